package kbit.gpu;

import static org.bytedeco.cuda.global.nvrtc.nvrtcCompileProgram;
import static org.bytedeco.cuda.global.nvrtc.nvrtcCreateProgram;
import static org.bytedeco.cuda.global.nvrtc.nvrtcDestroyProgram;
import static org.bytedeco.cuda.global.nvrtc.nvrtcGetCUBIN;
import static org.bytedeco.cuda.global.nvrtc.nvrtcGetCUBINSize;
import static org.bytedeco.cuda.global.nvrtc.nvrtcGetErrorString;
import static org.bytedeco.cuda.global.nvrtc.nvrtcGetProgramLog;
import static org.bytedeco.cuda.global.nvrtc.nvrtcGetProgramLogSize;
import static org.bytedeco.cuda.global.nvrtc.nvrtcVersion;

import java.nio.charset.StandardCharsets;
import org.bytedeco.cuda.nvrtc._nvrtcProgram;
import org.bytedeco.javacpp.BytePointer;
import org.bytedeco.javacpp.PointerPointer;
import org.bytedeco.javacpp.PointerScope;
import org.bytedeco.javacpp.SizeTPointer;

/** NVIDIA's run-time compiler. It needs no device. */
final class Nvrtc implements Compiler {
  private static final int LOG_SHOWN = 4_000;

  private final String version;

  Nvrtc() {
    NativeLibraries.load(org.bytedeco.cuda.global.nvrtc.class, "libnvrtc-builtins.so.", "libnvrtc.so.");
    int[] major = new int[1];
    int[] minor = new int[1];
    check(nvrtcVersion(major, minor), "nvrtcVersion");
    version = "nvrtc " + major[0] + "." + minor[0];
  }

  @Override
  public String version() {
    return version;
  }

  @Override
  public byte[] compile(String source, String arch) {
    try (PointerScope scope = new PointerScope()) {
      _nvrtcProgram program = new _nvrtcProgram();
      BytePointer text = new BytePointer(source, StandardCharsets.UTF_8);
      check(
          nvrtcCreateProgram(program, text, new BytePointer("kbit.cu"), 0, (PointerPointer<?>) null, null),
          "nvrtcCreateProgram");
      try {
        return compile(program, "--std=c++17", "--gpu-architecture=" + arch);
      } finally {
        nvrtcDestroyProgram(program);
      }
    }
  }

  private static byte[] compile(_nvrtcProgram program, String... options) {
    int result = nvrtcCompileProgram(program, options.length, new PointerPointer<BytePointer>(options));
    if (result != 0) throw new CudaError(describe(result, "nvrtcCompileProgram") + "\n" + log(program));
    SizeTPointer size = new SizeTPointer(1);
    check(nvrtcGetCUBINSize(program, size), "nvrtcGetCUBINSize");
    byte[] cubin = new byte[Math.toIntExact(size.get())];
    check(nvrtcGetCUBIN(program, cubin), "nvrtcGetCUBIN");
    return cubin;
  }

  private static String log(_nvrtcProgram program) {
    SizeTPointer size = new SizeTPointer(1);
    check(nvrtcGetProgramLogSize(program, size), "nvrtcGetProgramLogSize");
    byte[] log = new byte[Math.toIntExact(size.get())];
    check(nvrtcGetProgramLog(program, log), "nvrtcGetProgramLog");
    String text = new String(log, StandardCharsets.UTF_8).trim();
    return text.length() <= LOG_SHOWN ? text : text.substring(0, LOG_SHOWN) + " …";
  }

  private static void check(int result, String call) {
    if (result != 0) throw new CudaError(describe(result, call));
  }

  private static String describe(int result, String call) {
    return call + ": " + nvrtcGetErrorString(result).getString();
  }
}
