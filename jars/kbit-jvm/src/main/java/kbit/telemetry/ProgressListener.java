package kbit.telemetry;

import org.apache.spark.sql.streaming.StreamingQueryListener;

/** Keeps the progress of each trigger, as Spark's own JSON document on one line, until Python drains it over py4j. */
public final class ProgressListener extends StreamingQueryListener {
  private final BoundedLines lines = new BoundedLines(10_000);

  /** At most {@code max} lines since the last call, joined by line feeds; empty if there are none. */
  public String drain(int max) {
    return lines.drain(max);
  }

  @Override
  public void onQueryProgress(QueryProgressEvent event) {
    lines.add(event.progress().json());
  }

  @Override
  public void onQueryStarted(QueryStartedEvent event) {}

  @Override
  public void onQueryTerminated(QueryTerminatedEvent event) {}
}
