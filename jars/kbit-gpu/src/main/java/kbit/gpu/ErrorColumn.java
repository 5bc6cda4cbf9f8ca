package kbit.gpu;

import ai.rapids.cudf.ColumnView;
import ai.rapids.cudf.Cuda;
import ai.rapids.cudf.DType;
import ai.rapids.cudf.DeviceMemoryBuffer;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.function.Function;

/** The struct {@code error} of a batch: null but for the rows that are bad. */
final class ErrorColumn {
  private final int rows;
  private final Assembly assembly;

  private ErrorColumn(int rows, Assembly assembly) {
    this.rows = rows;
    this.assembly = assembly;
  }

  /** {@code faults} ascend by row. */
  static ColumnView of(int rows, List<Verdicts.Fault> faults, Assembly assembly) {
    ErrorColumn column = new ErrorColumn(rows, assembly);
    return faults.isEmpty() ? column.none() : column.some(faults);
  }

  /** A buffer of zeros is a mask that has no bit, offsets of texts that are empty, and positions. */
  private ColumnView none() {
    long bytes = Math.max(Masks.bytes(rows), Integer.BYTES * (rows + 1L));
    DeviceMemoryBuffer zeros = assembly.own(DeviceMemoryBuffer.allocate(bytes));
    Cuda.asyncMemset(zeros.getAddress(), (byte) 0, bytes);
    ColumnView text = assembly.string(rows, rows, zeros, zeros, zeros);
    return assembly.struct(rows, rows, zeros, text, assembly.fixed(DType.INT32, rows, rows, zeros, zeros), text);
  }

  private ColumnView some(List<Verdicts.Fault> faults) {
    int nulls = rows - faults.size();
    int[] positions = new int[rows];
    byte[] mask = new byte[(int) Masks.bytes(rows)];
    for (Verdicts.Fault fault : faults) {
      positions[fault.row()] = fault.error().position;
      mask[fault.row() >> 3] |= (byte) (1 << (fault.row() & 7));
    }
    DeviceMemoryBuffer valid = assembly.own(Transfers.upload(mask));
    ColumnView position = assembly.fixed(DType.INT32, rows, nulls, valid, assembly.own(Transfers.upload(positions)));
    return assembly.struct(
        rows, nulls, valid, text(faults, valid, fault -> fault.error().code), position,
        text(faults, valid, fault -> fault.error().getMessage()));
  }

  private ColumnView text(List<Verdicts.Fault> faults, DeviceMemoryBuffer valid, Function<Verdicts.Fault, String> text) {
    int[] offsets = new int[rows + 1];
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    int row = 0;
    for (Verdicts.Fault fault : faults) {
      while (row < fault.row()) offsets[++row] = bytes.size();
      bytes.writeBytes(text.apply(fault).getBytes(StandardCharsets.UTF_8));
      offsets[++row] = bytes.size();
    }
    while (row < rows) offsets[++row] = bytes.size();
    DeviceMemoryBuffer starts = assembly.own(Transfers.upload(offsets));
    DeviceMemoryBuffer data = assembly.own(Transfers.upload(bytes.toByteArray()));
    return assembly.string(rows, rows - faults.size(), valid, starts, data);
  }
}
