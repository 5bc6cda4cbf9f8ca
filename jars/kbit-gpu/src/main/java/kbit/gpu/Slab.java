package kbit.gpu;

import ai.rapids.cudf.DeviceMemoryBuffer;

/** One allocation that is cut into many buffers. A slice keeps all of it alive. */
final class Slab implements AutoCloseable {
  private static final long ALIGNMENT = 256;

  private final long[] sizes;
  private final long[] offsets;
  private final DeviceMemoryBuffer memory;

  /** Allocates buffers of these many bytes; a negative size is none at all. */
  Slab(long[] sizes) {
    this.sizes = sizes;
    offsets = new long[sizes.length];
    long end = 0;
    for (int i = 0; i < sizes.length; i++) {
      offsets[i] = end;
      if (sizes[i] >= 0) end = Math.addExact(end, (Math.max(sizes[i], 1) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    }
    memory = DeviceMemoryBuffer.allocate(Math.max(end, ALIGNMENT));
  }

  long bytes() {
    return memory.getLength();
  }

  boolean has(int buffer) {
    return sizes[buffer] >= 0;
  }

  long address(int buffer) {
    return memory.getAddress() + offsets[buffer];
  }

  /** Returns a buffer that the caller closes. */
  DeviceMemoryBuffer slice(int buffer) {
    return memory.slice(offsets[buffer], sizes[buffer]);
  }

  @Override
  public void close() {
    memory.close();
  }
}
