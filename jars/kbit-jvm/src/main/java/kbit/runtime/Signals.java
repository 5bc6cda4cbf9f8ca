package kbit.runtime;

import sun.misc.Signal;

/**
 * Hands SIGTERM and SIGINT to the Python driver.
 *
 * <p>Under spark-submit the JVM is the parent process and Python its child: a SIGTERM to the JVM would tear the
 * SparkContext down in the middle of a batch without Python hearing of it. Python decides when to stop; the JVM then
 * ends with Python's exit code.
 */
public final class Signals {
  private Signals() {}

  /** Forwards SIGTERM to the process {@code pid}. SIGINT is dropped: the terminal sends it to Python as well. */
  public static void forwardTo(long pid) {
    Signal.handle(new Signal("TERM"), signal -> ProcessHandle.of(pid).ifPresent(ProcessHandle::destroy));
    Signal.handle(new Signal("INT"), signal -> {});
  }
}
