package kbit.gpu;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;

/** The kernels of one source, loaded into this process' device. They stay loaded for the life of the process. */
final class Kernels {
  /** System property for tests: the number of the launch, counted from 1 in this process, that fails. */
  static final String FAIL_AT_LAUNCH = "kbit.gpu.fail_at_launch";

  private static final int BLOCK = 128;
  private static final Map<String, Kernels> LOADED = new ConcurrentHashMap<>(); // RAPIDS has one device a process
  private static final AtomicLong LAUNCHES = new AtomicLong();

  private static CubinCache cubins;

  private final Driver driver;
  private final long module;
  private final Map<String, Long> functions = new ConcurrentHashMap<>();

  private Kernels(String source) {
    driver = Driver.get();
    driver.bindContext();
    module = driver.loadModule(cubins().cubin(source, driver.arch()));
  }

  private static synchronized CubinCache cubins() {
    if (cubins == null) cubins = new CubinCache(CubinCache.defaultFolder(), new Nvrtc());
    return cubins;
  }

  /** Returns the kernels of a source, compiled and loaded where this process has not done so yet. */
  static Kernels of(String source) {
    Driver.get().bindContext();
    return LOADED.computeIfAbsent(source, Kernels::new);
  }

  /** Returns the kernels that no program brings itself. */
  static Kernels support() {
    return of(Support.SOURCE);
  }

  private static final class Support {
    static final String SOURCE = read("support.cu");
  }

  static String read(String resource) {
    try (InputStream in = Kernels.class.getResourceAsStream(resource)) {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Starts a kernel with at least {@code threads} threads; none where there is nothing to do. */
  void launch(String name, long threads, long... arguments) {
    if (threads > 0) launchBlocks(name, (threads + BLOCK - 1) / BLOCK, BLOCK, arguments);
  }

  void launchBlocks(String name, long blocks, int block, long... arguments) {
    Supplier<String> what = () -> name + " (" + blocks + " blocks of " + block + " threads)";
    if (LAUNCHES.incrementAndGet() == Long.getLong(FAIL_AT_LAUNCH, -1)) {
      throw new CudaError("launch of " + what.get() + ": made to fail by " + FAIL_AT_LAUNCH);
    }
    driver.launch(functions.computeIfAbsent(name, key -> driver.function(module, key)), blocks, block, what, arguments);
  }
}
