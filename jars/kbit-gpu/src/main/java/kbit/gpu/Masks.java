package kbit.gpu;

import ai.rapids.cudf.Cuda;
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
  private final long[] nulls;

  /** Makes the masks and waits for them; mask 0 is the value's own: rows that are ok. */
  Masks(Program program, Batch batch, Launcher launcher) {
    this.batch = batch;
    flags.add(new Flags(batch.statusAddress(), batch.rows(), NO_MASK));
    for (Program.Node column : program.columns()) plan(column, 0);
    words = new Slab(sizes());
    try {
      nulls = make(launcher);
    } catch (Throwable error) {
      words.close();
      throw error;
    }
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

  /** Each mask's bytes, and behind them those of the null counts. */
  private long[] sizes() {
    long[] sizes = new long[flags.size() + 1];
    for (int i = 0; i < flags.size(); i++) sizes[i] = bytes(flags.get(i).elements());
    sizes[flags.size()] = (long) Long.BYTES * flags.size();
    return sizes;
  }

  static long bytes(int elements) {
    return (elements / Byte.SIZE + PADDING) / PADDING * PADDING;
  }

  private long[] make(Launcher launcher) {
    int masks = flags.size();
    long counts = words.address(masks);
    Cuda.asyncMemset(counts, (byte) 0, (long) Long.BYTES * masks);
    for (int i = 0; i < masks; i++) {
      Flags from = flags.get(i);
      int count = from.elements();
      long parent = from.parent() == NO_MASK ? 0 : words.address(from.parent());
      long threads = (count + 31L) / 32;
      launcher.kernels().launch("pack_flags", threads, from.address(), Batch.OK, count, words.address(i));
      launcher.support().launch("finish_mask", threads, words.address(i), parent, count, counts + (long) Long.BYTES * i);
    }
    try (DeviceMemoryBuffer buffer = words.slice(masks)) {
      return Transfers.downloadLongs(buffer, masks);
    }
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
