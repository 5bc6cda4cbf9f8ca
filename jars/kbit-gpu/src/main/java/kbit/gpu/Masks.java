package kbit.gpu;

import ai.rapids.cudf.DeviceMemoryBuffer;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;

/**
 * The bit masks of a batch's columns, made from the kernels' flags. What is null takes all that is in it with it: a field
 * of a null struct is null as well, for cuDF reads fields without a look at the struct.
 */
final class Masks implements AutoCloseable {
  private static final int NO_MASK = -1;
  private static final long PADDING = 64; // what cuDF expects of masks

  /** {@code parent}: the mask that is a part of this one, or {@link #NO_MASK}. */
  private record Flags(long address, int elements, int parent) {}

  private final Batch batch;
  private final List<Flags> flags = new ArrayList<>();
  private final Map<Program.Node, Integer> maskOf = new IdentityHashMap<>();
  private final Slab words;
  private long[] nulls;

  /** Allocates the masks of a batch whose buffers are allocated; mask 0 is the value's own: rows that are ok. */
  Masks(Program program, Batch batch) {
    this.batch = batch;
    flags.add(new Flags(batch.statusAddress(), batch.rows(), NO_MASK));
    for (Program.Node column : program.columns()) plan(column, 0);
    words = new Slab(flags.stream().mapToLong(of -> bytes(of.elements())).toArray());
    nulls = new long[flags.size()];
  }

  private void plan(Program.Node node, int parent) {
    int own = parent;
    if (node.valid() != Program.NONE) {
      flags.add(new Flags(batch.address(node.valid()), batch.total(node.lane()), parent));
      own = flags.size() - 1;
    }
    maskOf.put(node, own);
    if (node instanceof Program.Struct struct) for (Program.Node child : struct.children()) plan(child, own);
    if (node instanceof Program.Items items) plan(items.item(), NO_MASK);
  }

  static long bytes(int elements) {
    return (elements / Byte.SIZE + PADDING) / PADDING * PADDING;
  }

  /** Returns what the kernel {@code make_masks} takes: a thread makes 32 bits. */
  Shares shares() {
    Shares shares = new Shares(flags.size(), 5);
    for (int i = 0; i < flags.size(); i++) {
      Flags from = flags.get(i);
      shares.add((from.elements() + 31L) / 32, from.address(), words.address(i), from.elements(), from.parent());
    }
    return shares;
  }

  /** Takes what {@code make_masks} counted: the nulls of each mask; without it there are none. */
  void setNulls(long[] counted) {
    nulls = counted;
  }

  /** Returns the number of rows that are not ok. */
  int notOk() {
    return (int) nulls[0];
  }

  long valueNulls() {
    return nulls[0];
  }

  /** Returns the value's own mask, which the caller closes; null where all rows are ok. */
  DeviceMemoryBuffer value() {
    return mask(0);
  }

  long nulls(Program.Node node) {
    int mask = maskOf.get(node);
    return mask == NO_MASK ? 0 : nulls[mask];
  }

  /** Returns the mask of a column, which the caller closes; null where nothing in it is null. */
  DeviceMemoryBuffer of(Program.Node node) {
    int mask = maskOf.get(node);
    return mask == NO_MASK ? null : mask(mask);
  }

  private DeviceMemoryBuffer mask(int mask) {
    return nulls[mask] == 0 ? null : words.slice(mask);
  }

  @Override
  public void close() {
    words.close();
  }
}
