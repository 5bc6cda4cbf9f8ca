package kbit.gpu;

import static org.bytedeco.cuda.global.cudart.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
import static org.bytedeco.cuda.global.cudart.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR;
import static org.bytedeco.cuda.global.cudart.cuCtxGetCurrent;
import static org.bytedeco.cuda.global.cudart.cuCtxGetDevice;
import static org.bytedeco.cuda.global.cudart.cuDeviceGetAttribute;
import static org.bytedeco.cuda.global.cudart.cuGetErrorName;
import static org.bytedeco.cuda.global.cudart.cuInit;
import static org.bytedeco.cuda.global.cudart.cuLaunchKernel;
import static org.bytedeco.cuda.global.cudart.cuModuleGetFunction;
import static org.bytedeco.cuda.global.cudart.cuModuleLoadData;

import ai.rapids.cudf.Cuda;
import java.util.function.Supplier;
import org.bytedeco.cuda.cudart.CUctx_st;
import org.bytedeco.cuda.cudart.CUfunc_st;
import org.bytedeco.cuda.cudart.CUmod_st;
import org.bytedeco.cuda.cudart.CUstream_st;
import org.bytedeco.javacpp.BytePointer;
import org.bytedeco.javacpp.LongPointer;
import org.bytedeco.javacpp.Pointer;
import org.bytedeco.javacpp.PointerPointer;
import org.bytedeco.javacpp.PointerScope;

/** The few calls of the driver API that cuDF does not offer. Handles are addresses. */
final class Driver {
  private static final class Holder {
    static final Driver DRIVER = new Driver();
  }

  private static final class Handle extends Pointer {
    Handle(long value) {
      address = value;
    }
  }

  private Driver() {
    NativeLibraries.load(org.bytedeco.cuda.global.cudart.class, "libcudart.so.");
    check(cuInit(0), () -> "cuInit");
  }

  static Driver get() {
    return Holder.DRIVER;
  }

  /** Makes sure that this thread has cuDF's context; call it first on each thread, which is cheap. */
  void bindContext() {
    try (PointerScope scope = new PointerScope()) {
      CUctx_st context = new CUctx_st();
      check(cuCtxGetCurrent(context), () -> "cuCtxGetCurrent");
      if (context.isNull()) Cuda.freeZero(); // any call of the run-time API binds the device's primary context
    }
  }

  /** Returns the architecture of this thread's device, such as {@code sm_90}. */
  String arch() {
    int[] device = new int[1];
    int[] major = new int[1];
    int[] minor = new int[1];
    check(cuCtxGetDevice(device), () -> "cuCtxGetDevice");
    check(cuDeviceGetAttribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device[0]), () -> "cuDeviceGetAttribute");
    check(cuDeviceGetAttribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device[0]), () -> "cuDeviceGetAttribute");
    return "sm_" + major[0] + minor[0];
  }

  long loadModule(byte[] cubin) {
    try (PointerScope scope = new PointerScope()) {
      CUmod_st module = new CUmod_st();
      check(cuModuleLoadData(module, new BytePointer(cubin)), () -> "cuModuleLoadData of " + cubin.length + " bytes");
      return module.address();
    }
  }

  long function(long module, String name) {
    try (PointerScope scope = new PointerScope()) {
      CUfunc_st function = new CUfunc_st();
      check(cuModuleGetFunction(function, new CUmod_st(new Handle(module)), name), () -> "cuModuleGetFunction of " + name);
      return function.address();
    }
  }

  /**
   * Starts a kernel on cuDF's stream.
   *
   * @param arguments each in 8 bytes, little-endian, of which CUDA takes as many as the parameter has
   * @param what says for an error what was launched
   */
  void launch(long function, long blocks, int threads, Supplier<String> what, long... arguments) {
    try (PointerScope scope = new PointerScope()) {
      LongPointer values = new LongPointer(arguments);
      PointerPointer<Pointer> addresses = new PointerPointer<>(arguments.length);
      for (int i = 0; i < arguments.length; i++) addresses.put(i, new Handle(values.address() + (long) Long.BYTES * i));
      CUstream_st stream = new CUstream_st(new Handle(Cuda.DEFAULT_STREAM.getStream()));
      int result = cuLaunchKernel(
          new CUfunc_st(new Handle(function)), Math.toIntExact(blocks), 1, 1, threads, 1, 1, 0, stream, addresses, null);
      check(result, () -> "cuLaunchKernel of " + what.get());
    }
  }

  private static void check(int result, Supplier<String> call) {
    if (result == 0) return;
    BytePointer name = new BytePointer();
    boolean named = cuGetErrorName(result, name) == 0 && !name.isNull();
    throw new CudaError(call.get() + ": " + (named ? name.getString() : "CUresult " + result));
  }
}
