package kbit.gpu;

import com.sun.jna.Function;
import com.sun.jna.Library;
import com.sun.jna.Native;
import com.sun.jna.NativeLibrary;
import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;

/** A library of C functions that return 0 or the number of an error. */
final class NativeApi {
  /** System property: the folder that holds libnvrtc.so; without it the system's loader looks for it. */
  static final String FOLDER = "kbit.gpu.libraries";

  private final NativeLibrary library;
  private final Map<String, Function> functions = new ConcurrentHashMap<>();

  private NativeApi(NativeLibrary library) {
    this.library = library;
  }

  /** Opens NVRTC, which needs no device. */
  static NativeApi nvrtc() {
    String folder = System.getProperty(FOLDER, "");
    try {
      return open(folder.isEmpty() ? "libnvrtc.so.13" : find(Path.of(folder), "libnvrtc.so.*"));
    } catch (UnsatisfiedLinkError | IOException error) {
      throw new CudaError("no NVRTC (" + brief(error) + "): put the folder of libnvrtc.so.13 (in a Python environment with"
          + " torch: site-packages/nvidia/cu13/lib) on LD_LIBRARY_PATH or name it with -D" + FOLDER + "=…");
    }
  }

  /** Opens the driver API. */
  static NativeApi driver() {
    try {
      return open("libcuda.so.1");
    } catch (UnsatisfiedLinkError error) {
      throw new CudaError("no NVIDIA driver on this machine (" + brief(error) + "): decode on the CPU here");
    }
  }

  private static NativeApi open(String name) {
    return new NativeApi(NativeLibrary.getInstance(name, Map.of(Library.OPTION_STRING_ENCODING, "UTF-8")));
  }

  /** JNA's messages hold the loader's own in their second line, and then the whole class path. */
  private static String brief(Throwable error) {
    return String.valueOf(error.getMessage()).lines().limit(2).collect(Collectors.joining(" "));
  }

  private static String find(Path folder, String pattern) throws IOException {
    try (DirectoryStream<Path> found = Files.newDirectoryStream(folder, pattern)) {
      for (Path library : found) return library.toAbsolutePath().toString();
    }
    throw new IOException("no " + pattern + " in " + folder);
  }

  /** Makes the native methods of a class those functions of the library that have their names. */
  void bind(Class<?> methods) {
    Native.register(methods, library);
  }

  /** Returns what the function returns. */
  int call(String function, Object... arguments) {
    return functions.computeIfAbsent(function, library::getFunction).invokeInt(arguments);
  }
}
