package kbit.gpu;

/**
 * What the many items of one launch share it by: a table with a row of numbers an item, of which the first is the first
 * of its threads. An item has whole warps.
 */
final class Shares {
  private static final long WARP = 32;

  private final int items;
  private final long[] table;
  private int end;
  private long threads;

  /** {@code width}: the numbers of a row. */
  Shares(int items, int width) {
    this.items = items;
    table = new long[items * width];
  }

  /** Adds an item that needs so many threads; {@code row}: its numbers but for the first. */
  void add(long needed, long... row) {
    table[end] = threads;
    System.arraycopy(row, 0, table, end + 1, row.length);
    end += 1 + row.length;
    threads += (needed + WARP - 1) / WARP * WARP;
  }

  int items() {
    return items;
  }

  long threads() {
    return threads;
  }

  long[] table() {
    return table;
  }
}
