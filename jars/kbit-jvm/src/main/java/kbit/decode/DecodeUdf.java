package kbit.decode;

import kbit.decode.framing.SchemaIds;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataType;

/** A decoder as a Spark function: {@code binary -> struct<value, error>}; null (a tombstone) stays null. */
public final class DecodeUdf implements UDF1<byte[], Row> {
  private final String plan;
  private final SchemaIds unresolved;
  private transient Decoder decoder;

  /** Not deterministic, so that the optimizer never decodes a record twice. */
  public static UserDefinedFunction of(String plan, SchemaIds unresolved, DataType result) {
    return functions.udf(new DecodeUdf(plan, unresolved), result).asNondeterministic();
  }

  /** {@code unresolved}: a registered accumulator of the schema ids that the plan lacks. */
  public DecodeUdf(String plan, SchemaIds unresolved) {
    this.plan = plan;
    this.unresolved = unresolved;
    Decoders.of(plan, unresolved); // a plan that cannot work fails here, on the driver
  }

  @Override
  public Row call(byte[] payload) {
    if (payload == null) return null;
    if (decoder == null) decoder = Decoders.of(plan, unresolved); // once a task: Spark deserialises the function for each
    try {
      return RowFactory.create(RowFactory.create(decoder.decode(payload, 0)), null);
    } catch (DecodeException fault) {
      return RowFactory.create(null, RowFactory.create(fault.code, fault.position, fault.getMessage()));
    }
  }
}
