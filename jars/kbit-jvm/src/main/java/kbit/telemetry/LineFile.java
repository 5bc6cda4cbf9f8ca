package kbit.telemetry;

import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** Appends lines to a file from its own daemon thread; a file that fails ends the thread, nothing else. */
final class LineFile {
  private final BoundedLines lines = new BoundedLines(10_000);
  private volatile boolean idle = true;

  LineFile(String path) {
    Thread thread = new Thread(() -> run(Path.of(path)), "kbit-listener-file");
    thread.setDaemon(true);
    thread.start();
    // The last stages complete just before the JVM ends: give the writer a moment, bounded.
    Runtime.getRuntime().addShutdownHook(new Thread(() -> settle(thread)));
  }

  void add(String line) {
    lines.add(line);
  }

  private void run(Path path) {
    try (Writer out =
        Files.newBufferedWriter(
            path, StandardCharsets.UTF_8, StandardOpenOption.CREATE, StandardOpenOption.APPEND)) {
      while (true) {
        String line = lines.take();
        idle = false;
        out.write(line + "\n");
        out.flush();
        idle = true;
      }
    } catch (Exception error) {
      System.err.println("kbit: spark.kbit.listener.file is off: " + error);
    }
  }

  private void settle(Thread writer) {
    try {
      for (int i = 0; i < 50 && writer.isAlive() && !(lines.isEmpty() && idle); i++) {
        Thread.sleep(20);
      }
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }
}
