package kbit.gpu;

import ai.rapids.cudf.ColumnVector;
import com.nvidia.spark.RapidsUDF;
import java.io.Serializable;
import kbit.decode.DecodeUdf;
import kbit.decode.framing.SchemaIds;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.runtime.AbstractFunction1;

/**
 * {@link DecodeUdf} that RAPIDS may run by columns. RAPIDS looks for its interface at the very function of the
 * expression, so this is a function of Scala and not one of Spark's Java interfaces, which Spark wraps.
 */
public final class GpuDecodeUdf extends AbstractFunction1<Object, Object> implements RapidsUDF, Serializable {
  private final String plan;
  private final String program;
  private final SchemaIds unresolved;
  private final Counters counters;
  private final double shadowFraction;
  private final StructType result;
  private final DecodeUdf rows;
  private transient GpuDecoder decoder;

  /**
   * Not deterministic, so that the optimizer never decodes a record twice.
   *
   * @param shadowFraction of the rows that the GPU decodes, from 0 to 1: these the CPU decodes as well
   */
  public static UserDefinedFunction of(
      String plan, String program, SchemaIds unresolved, Counters counters, double shadowFraction, DataType result) {
    GpuDecodeUdf function = new GpuDecodeUdf(plan, program, unresolved, counters, shadowFraction, (StructType) result);
    return Functions.nondeterministic(function, result);
  }

  private GpuDecodeUdf(
      String plan, String program, SchemaIds unresolved, Counters counters, double shadowFraction, StructType result) {
    this.plan = plan;
    this.program = program;
    this.unresolved = unresolved;
    this.counters = counters;
    this.shadowFraction = shadowFraction;
    this.result = result;
    rows = new DecodeUdf(plan, unresolved); // a plan that cannot work fails here, on the driver
    Program.of(program); // and so does a program
  }

  @Override
  public Object apply(Object payload) {
    return rows.call((byte[]) payload);
  }

  @Override
  public ColumnVector evaluateColumnar(int numRows, ColumnVector... columns) {
    if (columns.length != 1 || columns[0].getRowCount() != numRows) {
      throw new IllegalArgumentException("one column of " + numRows + " payloads is wanted");
    }
    if (decoder == null) {
      decoder = new GpuDecoder(Program.of(program), plan, unresolved, result, counters, shadowFraction);
    }
    return decoder.decode(columns[0]);
  }
}
