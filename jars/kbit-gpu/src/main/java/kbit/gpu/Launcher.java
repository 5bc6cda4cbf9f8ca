package kbit.gpu;

import ai.rapids.cudf.BaseDeviceMemoryBuffer;
import ai.rapids.cudf.ColumnVector;
import ai.rapids.cudf.ColumnView;
import ai.rapids.cudf.DType;
import ai.rapids.cudf.DeviceMemoryBuffer;

/** Runs a program's kernels over a batch: measure, prefix sums, fill, copies of spans, masks. */
final class Launcher {
  private static final int SCAN_BLOCK = 1024;
  private static final int WARP = 32;
  private static final int FEWEST_PER_ELEMENT = 4;

  private final Program program;
  private final Kernels kernels;
  private final Kernels support;

  /** Compiles the program's source, or takes it from a cache; the device must be there. */
  Launcher(Program program) {
    this.program = program;
    kernels = Kernels.of(program.source());
    support = Kernels.support();
  }

  /**
   * Decodes a batch of payloads, LIST of bytes, which stays the caller's.
   *
   * @throws CudaError a lane has more elements than a column can hold, or CUDA failed
   */
  Batch run(ColumnVector payloads) {
    Driver.get().bindContext();
    if (!payloads.getType().equals(DType.LIST)) throw new IllegalArgumentException("the payloads are " + payloads.getType());
    try (ColumnView bytes = payloads.getChildColumnView(0)) {
      return run(new long[] {
        address(bytes.getData()), address(payloads.getOffsets()), address(payloads.getValid()), payloads.getRowCount()
      });
    }
  }

  /** {@code input}: data, offsets, valid, n, as each kernel takes them. */
  private Batch run(long[] input) {
    int rows = Math.toIntExact(input[3]);
    Batch batch = new Batch(program, rows);
    try (DeviceMemoryBuffer counts = DeviceMemoryBuffer.allocate(Long.BYTES * Math.max(1L, program.lanes() * (rows + 1L)))) {
      if (rows > 0 && program.lanes() > 0) measure(input, counts, batch);
      batch.allocate();
      if (rows > 0) fill(input, counts, batch);
      return batch;
    } catch (Throwable error) {
      batch.close();
      throw error;
    }
  }

  private void measure(long[] input, DeviceMemoryBuffer counts, Batch batch) {
    kernels.launch(
        "measure", threads(batch), input[0], input[1], input[2], input[3], counts.getAddress(), batch.statusAddress(),
        batch.positionAddress());
    try (DeviceMemoryBuffer totals = DeviceMemoryBuffer.allocate((long) Long.BYTES * program.lanes())) {
      support.launchBlocks(
          "prefix_sums", program.lanes(), SCAN_BLOCK, counts.getAddress(), input[3] + 1, totals.getAddress());
      batch.setTotals(Transfers.downloadLongs(totals, program.lanes()));
    }
  }

  /** All that the kernels look up goes up at once, for each transfer waits for the device. */
  private void fill(long[] input, DeviceMemoryBuffer counts, Batch batch) {
    long[] buffers = batch.addresses();
    Shares spans = spans(batch);
    Shares masks = batch.masks().shares();
    long[] nulls = new long[masks.items()];
    try (DeviceMemoryBuffer tables = Transfers.upload(buffers, spans.table(), masks.table(), nulls)) {
      long atBuffers = tables.getAddress();
      long atSpans = atBuffers + Transfers.bytes(buffers);
      long atMasks = atSpans + Transfers.bytes(spans.table());
      long atNulls = atMasks + Transfers.bytes(masks.table());
      kernels.launch(
          "fill", threads(batch), input[0], input[1], input[2], input[3], program.lanes() > 0 ? counts.getAddress() : 0,
          atBuffers, batch.statusAddress(), batch.positionAddress());
      support.launch("copy_spans", spans.threads(), input[0], atSpans, spans.items());
      support.launch("make_masks", masks.threads(), atMasks, masks.items(), Batch.OK, atNulls);
      try (DeviceMemoryBuffer counted = tables.slice(atNulls - atBuffers, Transfers.bytes(nulls))) {
        batch.masks().setNulls(Transfers.downloadLongs(counted, nulls.length));
      }
    }
  }

  private Shares spans(Batch batch) {
    Shares shares = new Shares(program.spans().size(), 6);
    for (Program.Span span : program.spans()) {
      long elements = batch.total(span.lane());
      long bytes = batch.bytes(span.data());
      int perElement = threadsPerElement(elements, bytes);
      shares.add(
          bytes == 0 ? 0 : elements * perElement, batch.address(span.source()), batch.address(span.offsets()),
          batch.address(span.data()), elements, Integer.numberOfTrailingZeros(perElement));
    }
    return shares;
  }

  /** Returns how many threads copy an element: a warp copies several short ones, else most of its threads had no byte. */
  static int threadsPerElement(long elements, long bytes) {
    long average = bytes / Math.max(elements, 1);
    return average >= WARP ? WARP : Math.max(FEWEST_PER_ELEMENT, Integer.highestOneBit((int) average));
  }

  private long threads(Batch batch) {
    return (program.warp() ? WARP : 1L) * batch.rows();
  }

  private static long address(BaseDeviceMemoryBuffer buffer) {
    return buffer == null ? 0 : buffer.getAddress();
  }
}
