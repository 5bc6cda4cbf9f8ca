package kbit.telemetry;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.spark.SparkConf;
import org.apache.spark.TaskFailedReason;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.StageInfo;
import scala.Option;

/**
 * Tells per stage what its tasks did, and per failed task why, as JSON lines of kbit_spark.events.Event.
 *
 * <p>Set through {@code spark.extraListeners}. Python drains the lines over py4j; {@code spark.kbit.listener.file}
 * names a file that gets them as well. The callbacks only add up and queue: they never block the bus and never throw.
 * Work under the scope "telemetry" (the sinks' own) is left out.
 */
public final class StageListener extends SparkListener {
  private static final int MAX_STAGES = 1000;
  private static final int MAX_FAILURES_PER_STAGE = 20;
  private static final BoundedLines LINES = new BoundedLines(10_000);

  private final LineFile file;
  private final Map<String, StageSummary> stages =
      new LinkedHashMap<>() {
        @Override
        protected boolean removeEldestEntry(Map.Entry<String, StageSummary> eldest) {
          return size() > MAX_STAGES; // a stage whose completion never came
        }
      };

  public StageListener(SparkConf conf) {
    String path = conf.get("spark.kbit.listener.file", "");
    file = path.isEmpty() ? null : new LineFile(path);
  }

  /** At most {@code max} lines since the last call, joined by line feeds; empty if there are none. */
  public static String drain(int max) {
    return LINES.drain(max);
  }

  /** Lines lost because nobody drained them. */
  public static long dropped() {
    return LINES.dropped();
  }

  @Override
  public void onStageSubmitted(SparkListenerStageSubmitted event) {
    guarded(() -> stages.put(key(event.stageInfo()), summary(event)));
  }

  @Override
  public void onTaskEnd(SparkListenerTaskEnd event) {
    guarded(
        () -> {
          StageSummary stage = stages.get(event.stageId() + "." + event.stageAttemptId());
          if (stage == null || event.taskInfo() == null) {
            return;
          }
          stage.add(event.taskInfo().duration(), event.taskMetrics());
          if (event.reason() instanceof TaskFailedReason) {
            failed(stage, event, firstLine(((TaskFailedReason) event.reason()).toErrorString()));
          }
        });
  }

  @Override
  public void onStageCompleted(SparkListenerStageCompleted event) {
    guarded(
        () -> {
          StageInfo info = event.stageInfo();
          StageSummary stage = stages.remove(key(info));
          if (stage == null) {
            return;
          }
          Map<String, Double> numbers = new LinkedHashMap<>();
          numbers.put("stage_id", (double) info.stageId());
          numbers.put("attempt", (double) info.attemptNumber());
          numbers.put("tasks", (double) info.numTasks());
          numbers.put("duration_s", Math.max(0, millis(info.completionTime()) - millis(info.submissionTime())) / 1e3);
          numbers.putAll(stage.numbers());
          Option<String> failure = info.failureReason();
          String reason = failure.isDefined() ? firstLine(failure.get()) : stage.reason;
          tell(stage, "spark_stage", numbers, Map.of("stage_name", stage.name, "reason", reason));
        });
  }

  private void failed(StageSummary stage, SparkListenerTaskEnd event, String reason) {
    stage.failed++;
    stage.reason = reason;
    if (stage.failed > MAX_FAILURES_PER_STAGE) {
      return;
    }
    Map<String, Double> numbers = new LinkedHashMap<>();
    numbers.put("stage_id", (double) event.stageId());
    numbers.put("task_id", (double) event.taskInfo().taskId());
    numbers.put("attempt", (double) event.taskInfo().attemptNumber());
    Map<String, String> labels =
        Map.of("reason", reason, "executor", event.taskInfo().executorId(), "host", event.taskInfo().host());
    tell(stage, "spark_task_failure", numbers, labels);
  }

  private void tell(StageSummary stage, String kind, Map<String, Double> numbers, Map<String, String> labels) {
    if (stage.scope.equals("telemetry")) {
      return;
    }
    String line = Json.event(kind, stage.scope, numbers, labels);
    LINES.add(line);
    if (file != null) {
      file.add(line);
    }
  }

  private synchronized void guarded(Runnable callback) {
    try {
      callback.run();
    } catch (RuntimeException | LinkageError error) { // telemetry may lose a stage, never harm the bus
      System.err.println("kbit: a stage event was lost: " + error);
    }
  }

  /** A stage goes by its job's description, where there is one; Spark's own name is a place in the driver's code. */
  private static StageSummary summary(SparkListenerStageSubmitted event) {
    Properties properties = event.properties();
    String description = properties == null ? null : properties.getProperty("spark.job.description");
    String name = firstLine(description == null ? event.stageInfo().name() : description);
    return new StageSummary(name, scope(properties));
  }

  private static String scope(Properties properties) {
    if (properties == null) {
      return "";
    }
    String batch = properties.getProperty("streaming.sql.batchId");
    return properties.getProperty("kbit.scope", batch == null ? "" : "batch=" + batch);
  }

  private static String key(StageInfo info) {
    return info.stageId() + "." + info.attemptNumber();
  }

  private static long millis(Option<Object> time) {
    return time.isDefined() ? ((Number) time.get()).longValue() : 0;
  }

  /** The first line; of a Python traceback its last, which names the error. */
  private static String firstLine(String text) {
    String first = "";
    String error = "";
    boolean python = false;
    for (String line : (text == null ? "" : text).strip().split("\\R")) {
      if (first.isEmpty()) {
        first = line;
      }
      if (line.startsWith("\tat ")) {
        break;
      }
      if (python && !line.isBlank() && !Character.isWhitespace(line.charAt(0))) {
        error = line;
      }
      python |= line.contains("Traceback (most recent call last)");
    }
    String line = error.isEmpty() ? first : error;
    return line.length() > 500 ? line.substring(0, 500) : line;
  }
}
