package kbit.ledger;

import org.apache.spark.sql.api.java.UDF2;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.util.LongAccumulator;

/** Tells whether a decoded record is good, and counts it on the way; neither value nor error is a tombstone. */
public final class TallyUdf implements UDF2<Boolean, Boolean, Boolean> {
  private final LongAccumulator good;
  private final LongAccumulator bad;
  private final LongAccumulator tombstones;

  /** Not deterministic: the optimizer must neither move it below the decoder nor evaluate it twice. */
  public static UserDefinedFunction of(LongAccumulator good, LongAccumulator bad, LongAccumulator tombstones) {
    return functions.udf(new TallyUdf(good, bad, tombstones), DataTypes.BooleanType).asNondeterministic();
  }

  private TallyUdf(LongAccumulator good, LongAccumulator bad, LongAccumulator tombstones) {
    this.good = good;
    this.bad = bad;
    this.tombstones = tombstones;
  }

  @Override
  public Boolean call(Boolean hasValue, Boolean hasError) {
    (hasValue ? good : hasError ? bad : tombstones).add(1L);
    return hasValue;
  }
}
