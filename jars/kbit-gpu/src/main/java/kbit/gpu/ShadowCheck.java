package kbit.gpu;

import ai.rapids.cudf.ColumnVector;
import ai.rapids.cudf.HostColumnVector;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.stream.IntStream;
import kbit.decode.DecodeException;
import kbit.decode.Decoder;
import kbit.decode.ReadableRow;
import org.apache.spark.sql.types.StructType;

/** Decodes a sample of the rows that the kernels called ok on the CPU as well, and counts what differs. */
final class ShadowCheck {
  private final double fraction;
  private final Lazy<Decoder> decoder;
  private final Lazy<ReadableRow> readable;
  private final StructType value;
  private final Counters counters;
  private final SplittableRandom random = new SplittableRandom();

  ShadowCheck(double fraction, Lazy<Decoder> decoder, Lazy<ReadableRow> readable, StructType value, Counters counters) {
    this.fraction = fraction;
    this.decoder = decoder;
    this.readable = readable;
    this.value = value;
    this.counters = counters;
  }

  /** {@code result}: the decoded struct of value and error; {@code status}: what the kernels said, null if all is ok. */
  void check(ColumnVector payloads, ColumnVector result, byte[] status) {
    if (fraction <= 0) return;
    int[] rows = IntStream.range(0, Math.toIntExact(result.getRowCount()))
        .filter(row -> (status == null || status[row] == Batch.OK) && random.nextDouble() < fraction)
        .toArray();
    if (rows.length == 0) return;
    counters.shadowed.add(rows.length);
    try (HostColumnVector some = Payloads.download(payloads, rows);
        HostColumnVector decoded = Payloads.download(result, rows)) {
      for (int i = 0; i < rows.length; i++) {
        Object[] values = HostValues.fields(decoded.getChildColumnView(0), value, i);
        compare(rows[i], some.getBytesFromList(i), readable.get().of(values));
      }
    }
  }

  private void compare(int row, byte[] payload, Map<String, Object> gpu) {
    try {
      Map<String, Object> cpu = readable.get().of(decoder.get().decode(payload, 0));
      cpu.forEach((name, expected) -> {
        if (!String.valueOf(expected).equals(String.valueOf(gpu.get(name)))) {
          report(row, name + " is " + shorten(gpu.get(name)) + " on the GPU, " + shorten(expected) + " on the CPU");
        }
      });
    } catch (DecodeException error) {
      report(row, "ok on the GPU, on the CPU " + error.code + " at " + error.position + ": " + error.getMessage());
    }
  }

  private void report(int row, String difference) {
    counters.differences.add("row " + row + ": " + difference);
  }

  private static String shorten(Object value) {
    String text = String.valueOf(value);
    return text.length() <= 80 ? text : text.substring(0, 80) + "…";
  }
}
