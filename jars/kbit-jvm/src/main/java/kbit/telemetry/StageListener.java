package kbit.telemetry;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.spark.TaskFailedReason;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.StageInfo;

/**
 * Tells what each stage cost and why tasks failed, as JSON lines that the Python side drains.
 *
 * <p>Set with {@code spark.extraListeners}, so it works in any Spark application. It keeps at most {@link #CAPACITY}
 * lines, dropping the oldest, and never throws: telemetry must not harm the job. Work whose {@code kbit.scope} is
 * "telemetry" (the sinks' own writes) is left out.
 */
public final class StageListener extends SparkListener {
  private static final int CAPACITY = 10_000;
  private static final String OWN_WORK = "telemetry";
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Deque<String> LINES = new ArrayDeque<>();
  private static long dropped;

  private final Map<Long, Stage> running = new HashMap<>();

  /** What is summed up of one stage while its tasks end. */
  private static final class Stage {
    String scope = "";
    int failedTasks;
    String lastFailure = "";
    final List<Long> taskMillis = new ArrayList<>();
  }

  /** Takes up to {@code max} lines from the queue, oldest first, as one text. */
  public static String drain(int max) {
    synchronized (LINES) {
      List<String> taken = new ArrayList<>();
      while (taken.size() < max && !LINES.isEmpty()) taken.add(LINES.poll());
      return String.join("\n", taken);
    }
  }

  /** Returns how many lines were dropped because nobody drained them. */
  public static long dropped() {
    synchronized (LINES) {
      return dropped;
    }
  }

  @Override
  public void onStageSubmitted(SparkListenerStageSubmitted event) {
    Stage stage = new Stage();
    stage.scope = scope(event.properties());
    running.put(key(event.stageInfo().stageId(), event.stageInfo().attemptNumber()), stage);
  }

  @Override
  public void onTaskEnd(SparkListenerTaskEnd event) {
    Stage stage = running.get(key(event.stageId(), event.stageAttemptId()));
    if (stage == null || stage.scope.equals(OWN_WORK)) return;
    stage.taskMillis.add(event.taskInfo().duration());
    if (event.reason() instanceof TaskFailedReason failure) {
      stage.failedTasks++;
      stage.lastFailure = firstLine(failure.toErrorString());
      put(
          "spark_task_failure",
          stage.scope,
          Map.of(
              "stage_id", event.stageId(),
              "task_id", event.taskInfo().taskId(),
              "attempt", event.taskInfo().attemptNumber()),
          Map.of(
              "reason", stage.lastFailure,
              "executor", event.taskInfo().executorId(),
              "host", event.taskInfo().host()));
    }
  }

  @Override
  public void onStageCompleted(SparkListenerStageCompleted event) {
    StageInfo info = event.stageInfo();
    Stage stage = running.remove(key(info.stageId(), info.attemptNumber()));
    if (stage == null || stage.scope.equals(OWN_WORK)) return;
    Map<String, Number> numbers = new LinkedHashMap<>();
    numbers.put("stage_id", info.stageId());
    numbers.put("attempt", info.attemptNumber());
    numbers.put("tasks", info.numTasks());
    numbers.put("failed_tasks", stage.failedTasks);
    long start = info.submissionTime().isDefined() ? (Long) info.submissionTime().get() : 0;
    long end = info.completionTime().isDefined() ? (Long) info.completionTime().get() : start;
    numbers.put("duration_s", (end - start) / 1e3);
    stage.taskMillis.sort(null);
    if (!stage.taskMillis.isEmpty()) {
      numbers.put("task_p50_s", stage.taskMillis.get((stage.taskMillis.size() - 1) / 2) / 1e3);
      numbers.put("task_max_s", stage.taskMillis.get(stage.taskMillis.size() - 1) / 1e3);
    }
    if (info.taskMetrics() != null) measure(info.taskMetrics(), numbers);
    String reason = info.failureReason().isDefined() ? firstLine(info.failureReason().get()) : stage.lastFailure;
    put("spark_stage", stage.scope, numbers, Map.of("stage_name", info.name(), "reason", reason));
  }

  private static void measure(TaskMetrics metrics, Map<String, Number> numbers) {
    numbers.put("run_time_s", metrics.executorRunTime() / 1e3);
    numbers.put("cpu_time_s", metrics.executorCpuTime() / 1e9);
    numbers.put("gc_s", metrics.jvmGCTime() / 1e3);
    numbers.put("shuffle_read_bytes", metrics.shuffleReadMetrics().totalBytesRead());
    numbers.put("shuffle_write_bytes", metrics.shuffleWriteMetrics().bytesWritten());
    numbers.put("memory_spill_bytes", metrics.memoryBytesSpilled());
    numbers.put("disk_spill_bytes", metrics.diskBytesSpilled());
    numbers.put("peak_memory_bytes", metrics.peakExecutionMemory());
    numbers.put("input_bytes", metrics.inputMetrics().bytesRead());
    numbers.put("output_bytes", metrics.outputMetrics().bytesWritten());
  }

  private static String scope(Properties properties) {
    if (properties == null) return "";
    String scope = properties.getProperty("kbit.scope");
    if (scope != null) return scope;
    String batch = properties.getProperty("streaming.sql.batchId");
    return batch == null ? "" : "batch=" + batch;
  }

  private static long key(int stage, int attempt) {
    return (long) stage << 32 | attempt;
  }

  private static String firstLine(String text) {
    return text.strip().lines().findFirst().orElse("");
  }

  private static void put(String kind, String scope, Map<String, ?> numbers, Map<String, String> labels) {
    String line;
    try {
      line = JSON.writeValueAsString(Map.of("kind", kind, "scope", scope, "numbers", numbers, "labels", labels));
    } catch (JsonProcessingException error) {
      return; // numbers and strings always write; nothing that a job should end for
    }
    synchronized (LINES) {
      if (LINES.size() == CAPACITY) {
        LINES.poll();
        dropped++;
      }
      LINES.add(line);
    }
  }
}
