package kbit.gpu;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.bytedeco.javacpp.Loader;

/** Loads CUDA's libraries and JavaCPP's bindings to them. */
final class NativeLibraries {
  /** System property: the folder that holds libnvrtc.so and libcudart.so; without it the system's loader looks for them. */
  static final String FOLDER = "kbit.gpu.libraries";

  private NativeLibraries() {}

  /**
   * Loads a binding. The loader resolves what it needs by name, so a library that is there already is taken, whatever
   * the search path says.
   *
   * @param needs beginnings of the names of libraries, in the order of their dependence
   * @throws CudaError something is not there
   */
  static void load(Class<?> binding, String... needs) {
    String folder = System.getProperty(FOLDER, "");
    try {
      if (!folder.isEmpty()) {
        for (String name : needs) preload(Path.of(folder), name);
      }
      Loader.load(binding);
    } catch (UnsatisfiedLinkError | IOException error) {
      throw new CudaError(
          "cannot load " + String.join(", ", needs) + (folder.isEmpty() ? "" : " from " + folder) + ": " + error.getMessage()
              + ". Put the folder that holds them (in a Python environment with torch: site-packages/nvidia/cu13/lib)"
              + " on LD_LIBRARY_PATH or name it with -D" + FOLDER + "=…; the driver brings libcuda.so.1",
          error);
    }
  }

  private static void preload(Path folder, String name) throws IOException {
    try (DirectoryStream<Path> found = Files.newDirectoryStream(folder, name + "*")) {
      for (Path library : found) System.load(library.toAbsolutePath().toString());
    }
  }
}
