package kbit.gpu;

import ai.rapids.cudf.BinaryOp;
import ai.rapids.cudf.ColumnVector;
import ai.rapids.cudf.DType;
import ai.rapids.cudf.Scalar;
import com.nvidia.spark.RapidsUDF;
import java.io.Serializable;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.util.LongAccumulator;
import scala.runtime.AbstractFunction2;

/** {@link kbit.ledger.TallyUdf} that RAPIDS may run by columns. */
public final class GpuTallyUdf extends AbstractFunction2<Object, Object, Object> implements RapidsUDF, Serializable {
  private final LongAccumulator good;
  private final LongAccumulator bad;
  private final LongAccumulator tombstones;

  /** Not deterministic: the optimizer must neither move it below the decoder nor evaluate it twice. */
  public static UserDefinedFunction of(LongAccumulator good, LongAccumulator bad, LongAccumulator tombstones) {
    return Functions.nondeterministic(new GpuTallyUdf(good, bad, tombstones), DataTypes.BooleanType);
  }

  private GpuTallyUdf(LongAccumulator good, LongAccumulator bad, LongAccumulator tombstones) {
    this.good = good;
    this.bad = bad;
    this.tombstones = tombstones;
  }

  @Override
  public Object apply(Object hasValue, Object hasError) {
    ((boolean) hasValue ? good : (boolean) hasError ? bad : tombstones).add(1L);
    return hasValue;
  }

  /** Counts the rows of a batch; both columns are BOOL8 without nulls. */
  @Override
  public ColumnVector evaluateColumnar(int numRows, ColumnVector... columns) {
    ColumnVector hasValue = columns[0];
    try (ColumnVector either = hasValue.binaryOp(BinaryOp.LOGICAL_OR, columns[1], DType.BOOL8)) {
      long values = count(hasValue);
      long records = count(either);
      good.add(values);
      bad.add(records - values);
      tombstones.add(numRows - records);
    }
    return hasValue.incRefCount();
  }

  private static long count(ColumnVector flags) {
    if (flags.getRowCount() == 0) return 0;
    try (Scalar sum = flags.sum(DType.INT64)) {
      return sum.getLong();
    }
  }
}
