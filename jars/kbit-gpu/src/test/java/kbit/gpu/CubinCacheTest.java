package kbit.gpu;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class CubinCacheTest {
  @TempDir Path folder;

  /** Counts what it is asked for; the "machine code" names all that it depends on. */
  private static final class Counting implements Compiler {
    final String version;
    int compiled;

    Counting(String version) {
      this.version = version;
    }

    @Override
    public String version() {
      return version;
    }

    @Override
    public byte[] compile(String source, String arch) {
      compiled++;
      return (version + arch + source).getBytes(StandardCharsets.UTF_8);
    }
  }

  private final Counting compiler = new Counting("13.2");

  private byte[] cubin(String source, String arch) {
    return new CubinCache(folder, compiler).cubin(source, arch); // a new one, as in another process
  }

  private List<Path> files() throws Exception {
    try (Stream<Path> files = Files.list(folder)) {
      return files.toList();
    }
  }

  @Test
  void compilesASourceOnce() throws Exception {
    byte[] first = cubin("source", "sm_90");
    assertArrayEquals(first, cubin("source", "sm_90"));
    assertEquals(1, compiler.compiled);
    assertEquals(1, files().size());
  }

  @Test
  void tellsSourcesArchitecturesAndCompilersApart() {
    cubin("source", "sm_90");
    cubin("source", "sm_80");
    cubin("other", "sm_90");
    assertEquals(3, compiler.compiled);
    Counting newer = new Counting("13.3");
    new CubinCache(folder, newer).cubin("source", "sm_90");
    assertEquals(1, newer.compiled);
  }

  @Test
  void compilesAnewWhatIsDamaged() throws Exception {
    byte[] good = cubin("source", "sm_90");
    Path file = files().get(0);
    byte[] whole = Files.readAllBytes(file);
    for (int length : new int[] {0, 7, 32, whole.length - 1}) {
      Files.write(file, Arrays.copyOf(whole, length));
      assertArrayEquals(good, cubin("source", "sm_90"));
      assertArrayEquals(whole, Files.readAllBytes(file));
    }
    assertEquals(5, compiler.compiled);
  }

  @Test
  void worksWithoutAPlaceToKeepFiles() throws Exception {
    Path occupied = Files.writeString(folder.resolve("file"), "");
    CubinCache cache = new CubinCache(occupied.resolve("kernels"), compiler);
    assertArrayEquals(cache.cubin("source", "sm_90"), cache.cubin("source", "sm_90"));
    assertEquals(2, compiler.compiled);
  }
}
