package kbit.gpu;

import ai.rapids.cudf.DeviceMemoryBuffer;
import java.util.Arrays;
import java.util.BitSet;

/** The device memory of a batch that is being decoded. Columns take slices of it; the rest goes with {@link #close}. */
final class Batch implements AutoCloseable {
  static final byte TOMBSTONE = 0;
  static final byte OK = 1;
  static final int FIRST_CODE = 2;
  static final int CANNOT_VOUCH = 255;

  private final Program program;
  private final int rows;
  private final long[] totals;
  private final DeviceMemoryBuffer status;
  private final DeviceMemoryBuffer position;
  private Slab kept;
  private Slab scratch;
  private Masks masks;

  Batch(Program program, int rows) {
    this.program = program;
    this.rows = rows;
    totals = new long[program.lanes() + 1];
    totals[0] = rows;
    status = DeviceMemoryBuffer.allocate(Math.max(rows, 1));
    try {
      position = DeviceMemoryBuffer.allocate((long) Integer.BYTES * Math.max(rows, 1));
    } catch (Throwable error) {
      status.close();
      throw error;
    }
  }

  int rows() {
    return rows;
  }

  /** Returns the number of elements in a lane. */
  int total(int lane) {
    return (int) totals[lane];
  }

  /** Sets the numbers of elements of lane 1 and up. */
  void setTotals(long[] counted) {
    for (int i = 0; i < counted.length; i++) {
      if (counted[i] > Integer.MAX_VALUE || counted[i] < 0) {
        throw new CudaError("lane " + (i + 1) + " of this batch of " + rows + " rows has " + counted[i]
            + " elements, and a column holds at most " + Integer.MAX_VALUE
            + ": decode it on the CPU, or make smaller batches");
      }
      totals[i + 1] = counted[i];
    }
  }

  /** Allocates the program's buffers and the masks, once the totals are known. */
  void allocate() {
    BitSet keep = program.kept();
    long[] sizes = new long[program.buffers().size()];
    Arrays.setAll(sizes, this::bytes);
    kept = new Slab(only(sizes, keep, true));
    scratch = new Slab(only(sizes, keep, false));
    masks = new Masks(program, this);
  }

  /** Returns the size of a buffer. */
  long bytes(int buffer) {
    Program.Buffer of = program.buffers().get(buffer);
    return Math.multiplyExact((long) of.width(), totals[of.lane()] + of.extra());
  }

  private static long[] only(long[] sizes, BitSet keep, boolean kept) {
    long[] some = sizes.clone();
    for (int i = 0; i < some.length; i++) if (keep.get(i) != kept) some[i] = -1;
    return some;
  }

  long address(int buffer) {
    return slab(buffer).address(buffer);
  }

  long[] addresses() {
    long[] addresses = new long[program.buffers().size()];
    Arrays.setAll(addresses, this::address);
    return addresses;
  }

  /** Returns a buffer that the caller closes. */
  DeviceMemoryBuffer slice(int buffer) {
    return slab(buffer).slice(buffer);
  }

  private Slab slab(int buffer) {
    return kept.has(buffer) ? kept : scratch;
  }

  Masks masks() {
    return masks;
  }

  long statusAddress() {
    return status.getAddress();
  }

  long positionAddress() {
    return position.getAddress();
  }

  /** Returns what became of each row: one of the constants, or a code from {@link #FIRST_CODE} on. */
  byte[] downloadStatus() {
    return Transfers.downloadBytes(status, rows);
  }

  int[] downloadPositions() {
    return Transfers.downloadInts(position, rows);
  }

  @Override
  public void close() {
    try (DeviceMemoryBuffer first = status; DeviceMemoryBuffer second = position; Slab third = kept; Slab fourth = scratch;
        Masks fifth = masks) {
      kept = null;
      scratch = null;
      masks = null;
    }
  }
}
