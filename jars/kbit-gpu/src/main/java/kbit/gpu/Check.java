package kbit.gpu;

import ai.rapids.cudf.ColumnVector;
import ai.rapids.cudf.HostColumnVector;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import kbit.decode.DecodeException;
import kbit.decode.Decoder;
import kbit.decode.Decoders;
import kbit.decode.ReadableRow;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.CollectionAccumulator;
import org.apache.spark.util.LongAccumulator;

/**
 * Decodes payloads on the GPU and on the CPU and compares, without Spark running.
 *
 * <pre>java -cp … kbit.gpu.Check PAYLOADS PLAN PROGRAM [BATCH]</pre>
 *
 * PAYLOADS holds a line a payload: hexadecimal digits, or {@code null}. Prints a line of JSON for each row,
 * {@code {"row", "gpu", "cpu", "same"}} with the rows as {@link Decoders#decodeToJson} has them; with BATCH, the number of
 * rows to decode at once, only those that differ. Without BATCH all rows go through the shadow check as well. The last
 * line is the summary. Exit code 1 if a row differs.
 */
public final class Check {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final Counters counters = new Counters(
      new LongAccumulator(), new LongAccumulator(), new LongAccumulator(), new CollectionAccumulator<>());
  private final Decoder cpu;
  private final ReadableRow readable;
  private final StructType type;
  private final GpuDecoder gpu;
  private final boolean onlyDifferences;
  private int differences;
  private long gpuNanos;

  private Check(String plan, String program, boolean onlyDifferences) throws Exception {
    JsonNode fields = JSON.readTree(plan).get("fields");
    type = PlanTypes.result(fields);
    cpu = Decoders.of(plan, id -> {});
    readable = Decoders.readable(plan);
    gpu = new GpuDecoder(Program.parse(program), plan, id -> {}, type, counters, onlyDifferences ? 0 : 1);
    this.onlyDifferences = onlyDifferences;
  }

  /** See the class. */
  public static void main(String[] args) throws Exception {
    List<byte[]> payloads = read(Path.of(args[0]));
    Check check = new Check(Files.readString(Path.of(args[1])), Files.readString(Path.of(args[2])), args.length > 3);
    int size = args.length > 3 ? Integer.parseInt(args[3]) : Math.max(payloads.size(), 1);
    int start = 0;
    do { // a file without payloads is a batch of none
      check.compare(start, payloads.subList(start, Math.min(start + size, payloads.size())));
      start += size;
    } while (start < payloads.size());
    System.out.println(JSON.writeValueAsString(check.summary(payloads.size())));
    System.exit(check.differences == 0 ? 0 : 1);
  }

  private static List<byte[]> read(Path file) throws Exception {
    List<byte[]> payloads = new ArrayList<>();
    for (String line : Files.readAllLines(file)) payloads.add(line.equals("null") ? null : HexFormat.of().parseHex(line));
    return payloads;
  }

  private void compare(int first, List<byte[]> payloads) throws Exception {
    try (HostColumnVector host = HostColumns.build(DataTypes.BinaryType, payloads);
        ColumnVector device = host.copyToDevice();
        ColumnVector decoded = decode(device);
        HostColumnVector rows = decoded.copyToHost()) {
      for (int row = 0; row < payloads.size(); row++) {
        print(first + row, fromGpu(rows, row), fromCpu(payloads.get(row)));
      }
    }
  }

  private ColumnVector decode(ColumnVector payloads) {
    long start = System.nanoTime();
    ColumnVector decoded = gpu.decode(payloads);
    gpuNanos += System.nanoTime() - start;
    return decoded;
  }

  private Map<String, Object> fromGpu(HostColumnVector rows, int row) {
    if (rows.isNull(row)) return null;
    Object[] parts = HostValues.fields(rows, type, row);
    if (parts[0] != null && parts[1] != null) throw new IllegalStateException("row " + row + " has a value and an error");
    if (parts[0] == null && parts[1] == null) throw new IllegalStateException("row " + row + " has no value and no error");
    if (parts[1] instanceof Row error) return fault(error.get(0), error.get(1), error.get(2));
    return value(HostValues.fields(rows.getChildColumnView(0), (StructType) type.apply(0).dataType(), row));
  }

  private Map<String, Object> fromCpu(byte[] payload) {
    if (payload == null) return null;
    try {
      return value(cpu.decode(payload, 0));
    } catch (DecodeException error) {
      return fault(error.code, error.position, error.getMessage());
    }
  }

  private Map<String, Object> value(Object[] values) {
    Map<String, Object> line = new LinkedHashMap<>();
    line.put("value", readable.of(values));
    return line;
  }

  private static Map<String, Object> fault(Object code, Object position, Object reason) {
    Map<String, Object> line = new LinkedHashMap<>();
    line.put("error", code);
    line.put("position", position);
    line.put("reason", reason);
    return line;
  }

  private void print(int row, Map<String, Object> fromGpu, Map<String, Object> fromCpu) throws Exception {
    boolean same = Objects.equals(text(fromGpu), text(fromCpu));
    if (!same) differences++;
    if (same && onlyDifferences) return;
    Map<String, Object> line = new LinkedHashMap<>();
    line.put("row", row);
    line.put("gpu", fromGpu);
    line.put("cpu", fromCpu);
    line.put("same", same);
    System.out.println(JSON.writeValueAsString(line));
  }

  /** As text, -0.0 is not 0.0, and a float is not a double that prints otherwise. */
  private static String text(Object line) throws Exception {
    return JSON.writeValueAsString(line);
  }

  private Map<String, Object> summary(int rows) {
    Map<String, Object> line = new LinkedHashMap<>();
    line.put("rows", rows);
    line.put("differences", differences);
    line.put("refereed", counters.refereed.sum());
    line.put("disputes", counters.disputes.sum());
    line.put("shadowed", counters.shadowed.sum());
    line.put("shadow_differences", counters.differences.value());
    line.put("gpu_seconds", gpuNanos / 1e9);
    return line;
  }
}
