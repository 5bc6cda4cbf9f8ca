package kbit.gpu;

import java.io.Serializable;
import org.apache.spark.SparkContext;
import org.apache.spark.util.CollectionAccumulator;
import org.apache.spark.util.LongAccumulator;

/** What a GPU decoder counts, as accumulators. */
public final class Counters implements Serializable {
  /** Rows that the CPU decoded because the kernel did not call them ok. */
  public final LongAccumulator refereed;

  /** Refereed rows for which the kernel named an error that the CPU does not, or names elsewhere. */
  public final LongAccumulator disputes;

  /** Rows that the kernel called ok and the CPU decoded as well, as a check. */
  public final LongAccumulator shadowed;

  /** One sentence for each shadowed row whose values differ. */
  public final CollectionAccumulator<String> differences;

  /** The caller has registered the accumulators. */
  public Counters(
      LongAccumulator refereed,
      LongAccumulator disputes,
      LongAccumulator shadowed,
      CollectionAccumulator<String> differences) {
    this.refereed = refereed;
    this.disputes = disputes;
    this.shadowed = shadowed;
    this.differences = differences;
  }

  /** Returns counters that are registered with a session. */
  public static Counters registered(SparkContext context) {
    return new Counters(
        context.longAccumulator("kbit.gpu.refereed"), context.longAccumulator("kbit.gpu.disputes"),
        context.longAccumulator("kbit.gpu.shadowed"), context.collectionAccumulator("kbit.gpu.differences"));
  }

  public void reset() {
    refereed.reset();
    disputes.reset();
    shadowed.reset();
    differences.reset();
  }
}
