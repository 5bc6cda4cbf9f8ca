package kbit.gpu;

import ai.rapids.cudf.Cuda;
import ai.rapids.cudf.DeviceMemoryBuffer;
import ai.rapids.cudf.HostMemoryBuffer;
import java.util.Arrays;
import java.util.function.Consumer;

/** Arrays between host and device; each call waits for what cuDF's stream has to do before it. */
final class Transfers {
  private Transfers() {}

  static DeviceMemoryBuffer upload(byte[] values) {
    return upload(values.length, host -> host.setBytes(0, values, 0, values.length));
  }

  static DeviceMemoryBuffer upload(int[] values) {
    return upload((long) Integer.BYTES * values.length, host -> host.setInts(0, values, 0, values.length));
  }

  /** Uploads arrays, one behind the other. */
  static DeviceMemoryBuffer upload(long[]... arrays) {
    return upload(Arrays.stream(arrays).mapToLong(Transfers::bytes).sum(), host -> {
      long at = 0;
      for (long[] values : arrays) {
        host.setLongs(at, values, 0, values.length);
        at += bytes(values);
      }
    });
  }

  static long bytes(long[] values) {
    return (long) Long.BYTES * values.length;
  }

  private static DeviceMemoryBuffer upload(long bytes, Consumer<HostMemoryBuffer> fill) {
    long allocated = Math.max(bytes, 1);
    DeviceMemoryBuffer device = DeviceMemoryBuffer.allocate(allocated);
    try (HostMemoryBuffer host = HostMemoryBuffer.allocate(allocated)) {
      fill.accept(host);
      device.copyFromHostBuffer(0, host, 0, bytes, Cuda.DEFAULT_STREAM);
      return device;
    } catch (Throwable error) {
      device.close();
      throw error;
    }
  }

  static byte[] downloadBytes(DeviceMemoryBuffer device, int count) {
    byte[] values = new byte[count];
    try (HostMemoryBuffer host = download(device)) {
      host.getBytes(values, 0, 0, count);
    }
    return values;
  }

  static int[] downloadInts(DeviceMemoryBuffer device, int count) {
    int[] values = new int[count];
    try (HostMemoryBuffer host = download(device)) {
      host.getInts(values, 0, 0, count);
    }
    return values;
  }

  static long[] downloadLongs(DeviceMemoryBuffer device, int count) {
    long[] values = new long[count];
    try (HostMemoryBuffer host = download(device)) {
      host.getLongs(values, 0, 0, count);
    }
    return values;
  }

  private static HostMemoryBuffer download(DeviceMemoryBuffer device) {
    HostMemoryBuffer host = HostMemoryBuffer.allocate(device.getLength());
    try {
      host.copyFromDeviceBuffer(device, Cuda.DEFAULT_STREAM);
      return host;
    } catch (Throwable error) {
      host.close();
      throw error;
    }
  }
}
