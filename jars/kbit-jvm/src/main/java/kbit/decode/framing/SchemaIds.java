package kbit.decode.framing;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongConsumer;
import org.apache.spark.util.AccumulatorV2;

/** A Spark accumulator of the schema ids that a pass met and had no plan for. */
public final class SchemaIds extends AccumulatorV2<Long, List<Long>> implements LongConsumer {
  /** Noise that looks like a header makes ids without end; what does not fit is met again in the next pass. */
  private static final int MOST = 10_000;

  private final Set<Long> ids = ConcurrentHashMap.newKeySet(); // a heartbeat reads it while the task adds

  @Override
  public void accept(long id) {
    add(id);
  }

  @Override
  public void add(Long id) {
    if (ids.size() < MOST) ids.add(id);
  }

  @Override
  public List<Long> value() {
    return new ArrayList<>(ids);
  }

  @Override
  public boolean isZero() {
    return ids.isEmpty();
  }

  @Override
  public SchemaIds copy() {
    SchemaIds copy = new SchemaIds();
    copy.ids.addAll(ids);
    return copy;
  }

  @Override
  public void reset() {
    ids.clear();
  }

  @Override
  public void merge(AccumulatorV2<Long, List<Long>> other) {
    other.value().forEach(this::add);
  }
}
