package kbit.telemetry;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.SplittableRandom;
import org.apache.spark.executor.TaskMetrics;

/** Sums over the tasks of one stage attempt; memory is bounded whatever the number of tasks. */
final class StageSummary {
  private static final int SAMPLE = 2048;

  final String name;
  final String scope;
  private final Map<String, Double> sums = new LinkedHashMap<>();
  private final SplittableRandom random = new SplittableRandom(0);
  private long[] durations = new long[16];
  private int tasks;
  private long longest;
  private double peak;
  int failed;
  String reason = "";

  StageSummary(String name, String scope) {
    this.name = name;
    this.scope = scope;
  }

  void add(long durationMs, TaskMetrics metrics) {
    sample(durationMs);
    longest = Math.max(longest, durationMs);
    if (metrics == null) { // a task lost with its executor tells nothing
      return;
    }
    sum("run_time_s", metrics.executorRunTime() / 1e3);
    sum("cpu_time_s", metrics.executorCpuTime() / 1e9);
    sum("gc_s", metrics.jvmGCTime() / 1e3);
    sum("shuffle_read_bytes", metrics.shuffleReadMetrics().totalBytesRead());
    sum("shuffle_write_bytes", metrics.shuffleWriteMetrics().bytesWritten());
    sum("memory_spill_bytes", metrics.memoryBytesSpilled());
    sum("disk_spill_bytes", metrics.diskBytesSpilled());
    sum("input_bytes", metrics.inputMetrics().bytesRead());
    sum("output_bytes", metrics.outputMetrics().bytesWritten());
    peak = Math.max(peak, metrics.peakExecutionMemory());
  }

  Map<String, Double> numbers() {
    Map<String, Double> numbers = new LinkedHashMap<>(sums);
    numbers.put("peak_memory_bytes", peak);
    numbers.put("failed_tasks", (double) failed);
    long[] sorted = Arrays.copyOf(durations, Math.min(tasks, SAMPLE));
    Arrays.sort(sorted);
    numbers.put("task_p50_s", sorted.length == 0 ? 0.0 : sorted[sorted.length / 2] / 1e3);
    numbers.put("task_max_s", longest / 1e3);
    return numbers;
  }

  private void sum(String name, double value) {
    sums.merge(name, value, Double::sum);
  }

  /** Keeps a uniform sample of the durations. */
  private void sample(long durationMs) {
    int at = tasks < SAMPLE ? tasks : random.nextInt(tasks + 1);
    tasks++;
    if (at >= SAMPLE) {
      return;
    }
    if (at >= durations.length) {
      durations = Arrays.copyOf(durations, Math.min(SAMPLE, durations.length * 2));
    }
    durations[at] = durationMs;
  }
}
