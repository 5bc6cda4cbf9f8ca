package kbit.gpu;

import ai.rapids.cudf.ColumnVector;
import ai.rapids.cudf.HostColumnVector;
import java.util.List;
import java.util.stream.IntStream;
import kbit.decode.DecodeException;
import kbit.decode.Decoder;

/** Has the rows that the kernels did not call ok decoded by the CPU, whose word counts. */
final class Referee {
  private final List<String> codes;
  private final Lazy<Decoder> decoder;
  private final Counters counters;

  Referee(List<String> codes, Lazy<Decoder> decoder, Counters counters) {
    this.codes = codes;
    this.decoder = decoder;
    this.counters = counters;
  }

  /** {@code status} and {@code positions}: what the kernels said of each row. */
  Verdicts judge(ColumnVector payloads, byte[] status, int[] positions) {
    Verdicts verdicts = new Verdicts();
    int[] rows = IntStream.range(0, status.length)
        .filter(row -> status[row] != Batch.OK && status[row] != Batch.TOMBSTONE)
        .toArray();
    if (rows.length == 0) return verdicts;
    counters.refereed.add(rows.length);
    try (HostColumnVector some = Payloads.download(payloads, rows)) {
      for (int i = 0; i < rows.length; i++) {
        int row = rows[i];
        judge(row, some.getBytesFromList(i), Byte.toUnsignedInt(status[row]), positions[row], verdicts);
      }
    }
    return verdicts;
  }

  private void judge(int row, byte[] payload, int status, int position, Verdicts verdicts) {
    String code = code(row, status);
    boolean agreed = code == null;
    try {
      verdicts.decoded.add(new Verdicts.Decoded(row, decoder.get().decode(payload, 0)));
    } catch (DecodeException error) {
      verdicts.faults.add(new Verdicts.Fault(row, error));
      agreed |= error.code.equals(code) && error.position == position;
    }
    if (!agreed) counters.disputes.add(1);
  }

  private String code(int row, int status) {
    if (status == Batch.CANNOT_VOUCH) return null;
    if (status - Batch.FIRST_CODE < codes.size()) return codes.get(status - Batch.FIRST_CODE);
    throw new IllegalStateException(
        "the kernel gave row " + row + " the status " + status + ", but knows " + codes.size() + " codes");
  }
}
