package kbit.telemetry;

import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.atomic.AtomicLong;

/** A bounded queue of lines: never blocks the giver; a full queue loses its oldest line and counts it. */
final class BoundedLines {
  private final ArrayBlockingQueue<String> lines;
  private final AtomicLong dropped = new AtomicLong();

  BoundedLines(int capacity) {
    lines = new ArrayBlockingQueue<>(capacity);
  }

  void add(String line) {
    while (!lines.offer(line)) {
      if (lines.poll() != null) {
        dropped.incrementAndGet();
      }
    }
  }

  /** Waits for the next line. */
  String take() throws InterruptedException {
    return lines.take();
  }

  boolean isEmpty() {
    return lines.isEmpty();
  }

  /** At most {@code max} lines, joined by line feeds; empty if there are none. */
  String drain(int max) {
    StringBuilder text = new StringBuilder();
    for (int i = 0; i < max; i++) {
      String line = lines.poll();
      if (line == null) {
        break;
      }
      text.append(i == 0 ? "" : "\n").append(line);
    }
    return text.toString();
  }

  long dropped() {
    return dropped.get();
  }
}
