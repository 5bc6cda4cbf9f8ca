package kbit.gpu;

import ai.rapids.cudf.Cuda;
import com.sun.jna.Memory;
import com.sun.jna.Pointer;
import com.sun.jna.ptr.PointerByReference;
import java.util.function.Supplier;

/** The few calls of the driver API that cuDF does not offer. Handles are addresses. */
final class Driver {
  private static final ThreadLocal<Arguments> ARGUMENTS = ThreadLocal.withInitial(Arguments::new);

  private static Driver driver;

  private final NativeApi api = NativeApi.driver();

  private Driver() {
    check(() -> "cuInit", api.call("cuInit", 0));
    api.bind(Driver.class);
  }

  /** Throws CudaError where there is no driver or no device. */
  static synchronized Driver get() {
    if (driver == null) driver = new Driver();
    return driver;
  }

  /** Makes sure that this thread has cuDF's context; call it first on each thread, which is cheap. */
  void bindContext() {
    PointerByReference context = new PointerByReference();
    check(() -> "cuCtxGetCurrent", api.call("cuCtxGetCurrent", context));
    if (context.getValue() == null) Cuda.freeZero(); // any call of the run-time API binds the device's primary context
  }

  /** Returns the architecture of this thread's device, such as {@code sm_90}. */
  String arch() {
    return "sm_" + Cuda.getComputeCapabilityMajor() + Cuda.getComputeCapabilityMinor();
  }

  long loadModule(byte[] cubin) {
    PointerByReference module = new PointerByReference();
    try (Memory image = new Memory(cubin.length)) {
      image.write(0, cubin, 0, cubin.length);
      check(() -> "cuModuleLoadData of " + cubin.length + " bytes", api.call("cuModuleLoadData", module, image));
    }
    return Pointer.nativeValue(module.getValue());
  }

  long function(long module, String name) {
    PointerByReference function = new PointerByReference();
    check(() -> "cuModuleGetFunction of " + name, api.call("cuModuleGetFunction", function, new Pointer(module), name));
    return Pointer.nativeValue(function.getValue());
  }

  /**
   * Starts a kernel on cuDF's stream.
   *
   * @param arguments each in 8 bytes, little-endian, of which CUDA takes as many as the parameter has
   * @param what says for an error what was launched
   */
  void launch(long function, long blocks, int threads, Supplier<String> what, long... arguments) {
    Arguments block = ARGUMENTS.get();
    block.set(arguments);
    int result = cuLaunchKernel(
        function, Math.toIntExact(blocks), 1, 1, threads, 1, 1, 0, Cuda.DEFAULT_STREAM.getStream(), block.pointers, 0);
    check(() -> "cuLaunchKernel of " + what.get(), result);
  }

  /** Bound to the library's function, for a call by name takes six times as long: its arguments become objects. */
  private static native int cuLaunchKernel(
      long function, int gridX, int gridY, int gridZ, int blockX, int blockY, int blockZ, int sharedBytes, long stream,
      long arguments, long extra);

  /** A thread's memory for a launch's arguments, which CUDA copies: the values, and behind them a pointer to each. */
  private static final class Arguments {
    private static final int MOST = 16;

    private final Memory memory = new Memory(2L * MOST * Long.BYTES);
    final long pointers = Pointer.nativeValue(memory) + (long) MOST * Long.BYTES;

    Arguments() {
      for (long i = 0; i < MOST; i++) {
        memory.setLong((MOST + i) * Long.BYTES, Pointer.nativeValue(memory) + i * Long.BYTES);
      }
    }

    void set(long[] values) {
      if (values.length > MOST) throw new IllegalArgumentException(values.length + " arguments, and " + MOST + " at most");
      memory.write(0, values, 0, values.length);
    }
  }

  private void check(Supplier<String> call, int result) {
    if (result == 0) return;
    PointerByReference name = new PointerByReference();
    boolean named = api.call("cuGetErrorName", result, name) == 0;
    throw new CudaError(call.get() + ": " + (named ? name.getValue().getString(0) : "CUresult " + result));
  }
}
