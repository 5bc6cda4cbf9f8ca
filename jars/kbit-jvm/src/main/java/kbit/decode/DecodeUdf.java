package kbit.decode;

import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF1;

/** A decoder as a Spark function: {@code binary -> struct<value, error>}; null (a tombstone) stays null. */
public final class DecodeUdf implements UDF1<byte[], Row> {
  private final String plan;
  private transient Decoder decoder;

  public DecodeUdf(String plan) {
    this.plan = plan;
    Decoders.of(plan); // a plan that cannot work fails here, on the driver
  }

  @Override
  public Row call(byte[] payload) {
    if (payload == null) return null;
    if (decoder == null) decoder = Decoders.of(plan); // once a task: Spark deserialises the function for each
    try {
      return RowFactory.create(RowFactory.create(decoder.decode(payload)), null);
    } catch (DecodeException fault) {
      return RowFactory.create(null, RowFactory.create(fault.code, fault.position, fault.getMessage()));
    }
  }
}
