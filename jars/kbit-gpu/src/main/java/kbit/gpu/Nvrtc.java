package kbit.gpu;

import com.sun.jna.Memory;
import com.sun.jna.Pointer;
import com.sun.jna.StringArray;
import com.sun.jna.ptr.IntByReference;
import com.sun.jna.ptr.LongByReference;
import com.sun.jna.ptr.PointerByReference;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/** NVIDIA's run-time compiler. It needs no device. */
final class Nvrtc implements Compiler {
  private static final int LOG_SHOWN = 4_000;
  private static final Map<Integer, String> ERRORS = Map.of(
      1, "NVRTC_ERROR_OUT_OF_MEMORY", 2, "NVRTC_ERROR_PROGRAM_CREATION_FAILURE", 3, "NVRTC_ERROR_INVALID_INPUT",
      4, "NVRTC_ERROR_INVALID_PROGRAM", 5, "NVRTC_ERROR_INVALID_OPTION", 6, "NVRTC_ERROR_COMPILATION",
      7, "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE", 11, "NVRTC_ERROR_INTERNAL_ERROR");

  private final NativeApi api = NativeApi.nvrtc();
  private final String version;

  Nvrtc() {
    IntByReference major = new IntByReference();
    IntByReference minor = new IntByReference();
    check("nvrtcVersion", major, minor);
    version = "nvrtc " + major.getValue() + "." + minor.getValue();
  }

  @Override
  public String version() {
    return version;
  }

  @Override
  public byte[] compile(String source, String arch) {
    PointerByReference created = new PointerByReference();
    check("nvrtcCreateProgram", created, source, "kbit.cu", 0, Pointer.NULL, Pointer.NULL);
    Pointer program = created.getValue();
    try {
      return compile(program, new String[] {"--std=c++17", "--gpu-architecture=" + arch});
    } finally {
      check("nvrtcDestroyProgram", created);
    }
  }

  private byte[] compile(Pointer program, String[] options) {
    int result = api.call("nvrtcCompileProgram", program, options.length, new StringArray(options));
    if (result != 0) throw new CudaError(describe("nvrtcCompileProgram", result) + "\n" + log(program));
    return bytes("nvrtcGetCUBINSize", "nvrtcGetCUBIN", program);
  }

  private String log(Pointer program) {
    String text = new String(bytes("nvrtcGetProgramLogSize", "nvrtcGetProgramLog", program), StandardCharsets.UTF_8).trim();
    return text.length() <= LOG_SHOWN ? text : text.substring(0, LOG_SHOWN) + " …";
  }

  private byte[] bytes(String sizeOf, String get, Pointer program) {
    LongByReference size = new LongByReference();
    check(sizeOf, program, size);
    try (Memory memory = new Memory(Math.max(size.getValue(), 1))) {
      check(get, program, memory);
      return memory.getByteArray(0, Math.toIntExact(size.getValue()));
    }
  }

  private void check(String function, Object... arguments) {
    int result = api.call(function, arguments);
    if (result != 0) throw new CudaError(describe(function, result));
  }

  private static String describe(String function, int result) {
    return function + ": " + ERRORS.getOrDefault(result, "nvrtcResult " + result);
  }
}
