package bench;

import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;

/** Counts the stacks of busy threads, so that a run tells where its time goes. Compiled by Janino: plain Java 1.4. */
public final class Sampler implements Runnable {
  private final long intervalMs;
  private final long bucketMs;
  private final Map counts = new HashMap();
  private final Map state = new HashMap();
  private volatile boolean running = true;
  private final Thread thread;

  /** {@code bucketMs}: stacks are counted by spans of so many milliseconds since the epoch. */
  public Sampler(long intervalMs, long bucketMs) {
    this.intervalMs = intervalMs;
    this.bucketMs = bucketMs;
    thread = new Thread(this, "bench sampler");
    thread.setDaemon(true);
    thread.start();
  }

  public void run() {
    while (running) {
      long bucket = System.currentTimeMillis() / bucketMs * bucketMs;
      Iterator threads = Thread.getAllStackTraces().entrySet().iterator();
      while (threads.hasNext()) {
        Map.Entry entry = (Map.Entry) threads.next();
        count(bucket, ((Thread) entry.getKey()).getName(), (StackTraceElement[]) entry.getValue());
      }
      machine(bucket);
      try {
        Thread.sleep(intervalMs);
      } catch (InterruptedException end) {
        return;
      }
    }
  }

  private void count(long bucket, String name, StackTraceElement[] stack) {
    String kind = kind(name, stack);
    if (kind == null) return;
    StringBuffer line = new StringBuffer(4096);
    line.append(bucket).append('\t').append(kind).append('\t');
    for (int i = 0; i < stack.length; i++) {
      if (i > 0) line.append('<');
      line.append(stack[i].getClassName()).append('.').append(stack[i].getMethodName());
    }
    String key = line.toString();
    Integer before = (Integer) counts.get(key);
    counts.put(key, new Integer(before == null ? 1 : before.intValue() + 1));
  }

  private static String kind(String name, StackTraceElement[] stack) {
    if (name.startsWith("stream execution thread")) return "stream";
    if (name.startsWith("Executor task launch worker")) {
      return within(stack, "org.apache.spark.executor.Executor$TaskRunner") ? "task" : null;
    }
    boolean waits = within(stack, "org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper");
    return within(stack, "py4j.commands.") && !waits ? "call" : null;
  }

  private static boolean within(StackTraceElement[] stack, String owner) {
    for (int i = stack.length - 1; i >= 0; i--) if (stack[i].getClassName().startsWith(owner)) return true;
    return false;
  }

  private void machine(long bucket) {
    String text = ManagementFactory.getClassLoadingMXBean().getTotalLoadedClassCount() + " classes, "
        + ManagementFactory.getCompilationMXBean().getTotalCompilationTime() + " ms of JIT";
    state.put(new Long(bucket), text);
  }

  /** Ends the sampling and writes a line for each stack: bucket, kind, frames from the leaf on, count. */
  public void write(String file) throws java.io.IOException, InterruptedException {
    running = false;
    thread.join();
    PrintWriter out = new PrintWriter(file, "UTF-8");
    Iterator lines = counts.entrySet().iterator();
    while (lines.hasNext()) {
      Map.Entry entry = (Map.Entry) lines.next();
      out.println(entry.getKey() + "\t" + entry.getValue());
    }
    Iterator states = state.entrySet().iterator();
    while (states.hasNext()) {
      Map.Entry entry = (Map.Entry) states.next();
      out.println(entry.getKey() + "\tmachine\t" + entry.getValue() + "\t1");
    }
    out.close();
  }
}
