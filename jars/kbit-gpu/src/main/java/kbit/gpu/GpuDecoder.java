package kbit.gpu;

import ai.rapids.cudf.ColumnVector;
import ai.rapids.cudf.ColumnView;
import ai.rapids.cudf.DeviceMemoryBuffer;
import java.util.List;
import java.util.function.LongConsumer;
import kbit.decode.Decoder;
import kbit.decode.Decoders;
import kbit.decode.ReadableRow;
import org.apache.spark.sql.types.StructType;

/** Decodes columns of payloads on the GPU into exactly what the CPU's decoder gives. Used by one thread at a time. */
final class GpuDecoder {
  private final Program program;
  private final Launcher launcher;
  private final StructType type;
  private final Referee referee;
  private final ShadowCheck shadow;

  /** {@code type}: struct of value and error; {@code plan} and {@code unresolved}: see {@link Decoders#of}. */
  GpuDecoder(
      Program program, String plan, LongConsumer unresolved, StructType type, Counters counters, double shadowFraction) {
    // each task of each batch makes a decoder anew, few need the CPU's, and that of 200 columns takes milliseconds to make
    Lazy<Decoder> cpu = new Lazy<>(() -> Decoders.of(plan, unresolved));
    Lazy<ReadableRow> readable = new Lazy<>(() -> Decoders.readable(plan));
    this.program = program;
    this.type = type;
    launcher = new Launcher(program);
    referee = new Referee(program.codes(), cpu, counters);
    StructType value = (StructType) type.apply(0).dataType();
    shadow = new ShadowCheck(shadowFraction, cpu, readable, value, counters);
  }

  /** Returns a row for each payload, which the caller closes; a tombstone is null. */
  ColumnVector decode(ColumnVector payloads) {
    byte[] status = null;
    Verdicts verdicts = new Verdicts();
    ColumnVector result;
    try (Batch batch = launcher.run(payloads)) {
      if (batch.masks().notOk() > 0) {
        status = batch.downloadStatus();
        verdicts = referee.judge(payloads, status, batch.downloadPositions());
      }
      result = assemble(batch, status, verdicts.faults);
    }
    if (!verdicts.decoded.isEmpty()) result = Patch.apply(result, type, verdicts.decoded);
    if (status != null && program.hasBytesOfNulls()) result = purged(result);
    try {
      shadow.check(payloads, result, status);
      return result;
    } catch (Throwable error) {
      result.close();
      throw error;
    }
  }

  private ColumnVector assemble(Batch batch, byte[] status, List<Verdicts.Fault> faults) {
    int rows = batch.rows();
    try (Assembly assembly = new Assembly()) {
      ColumnView value = Columns.value(program, batch, assembly);
      ColumnView error = ErrorColumn.of(rows, faults, assembly);
      int tombstones = status == null ? 0 : tombstones(status);
      DeviceMemoryBuffer valid = tombstones == 0 ? null : assembly.own(Transfers.upload(maskOfRecords(status)));
      return assembly.finish(rows, tombstones, valid, value, error);
    }
  }

  private static int tombstones(byte[] status) {
    int count = 0;
    for (byte one : status) if (one == Batch.TOMBSTONE) count++;
    return count;
  }

  private static byte[] maskOfRecords(byte[] status) {
    byte[] mask = new byte[(int) Masks.bytes(status.length)];
    for (int row = 0; row < status.length; row++) {
      if (status[row] != Batch.TOMBSTONE) mask[row >> 3] |= (byte) (1 << (row & 7));
    }
    return mask;
  }

  /** cuDF wants lists that are null to be empty. To find out costs a kernel and a wait for each text and list. */
  private static ColumnVector purged(ColumnVector result) {
    try {
      if (!result.hasNonEmptyNulls()) return result;
    } catch (Throwable error) {
      result.close();
      throw error;
    }
    try (result) {
      return result.purgeNonEmptyNulls();
    }
  }
}
