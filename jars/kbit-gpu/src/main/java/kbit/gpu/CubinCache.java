package kbit.gpu;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.HexFormat;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Compiled kernels on disk. A file is its SHA-256 and the CUBIN; one that does not match is compiled anew. */
final class CubinCache {
  /** System property: the folder of the files. */
  static final String FOLDER = "kbit.gpu.cache";

  private static final Logger LOG = LoggerFactory.getLogger(CubinCache.class);
  private static final int DIGEST_BYTES = 32;

  private final Path folder;
  private final Compiler compiler;

  CubinCache(Path folder, Compiler compiler) {
    this.folder = folder;
    this.compiler = compiler;
  }

  static Path defaultFolder() {
    String folder = System.getProperty(FOLDER);
    return folder != null ? Path.of(folder) : Path.of(System.getProperty("user.home"), ".cache", "kbit", "kernels");
  }

  /** Returns the CUBIN of a source, compiled now if no process has done so before. */
  byte[] cubin(String source, String arch) {
    Path file = folder.resolve(key(source, arch) + ".cubin");
    byte[] stored = read(file);
    if (stored != null) return stored;
    byte[] cubin = compiler.compile(source, arch);
    write(file, cubin);
    return cubin;
  }

  private String key(String source, String arch) {
    String all = compiler.version() + "\n" + arch + "\n" + source;
    return HexFormat.of().formatHex(sha256(all.getBytes(StandardCharsets.UTF_8)));
  }

  private static byte[] read(Path file) {
    try {
      if (!Files.exists(file)) return null;
      byte[] content = Files.readAllBytes(file);
      byte[] cubin = Arrays.copyOfRange(content, Math.min(DIGEST_BYTES, content.length), content.length);
      if (Arrays.equals(sha256(cubin), Arrays.copyOf(content, DIGEST_BYTES))) return cubin;
      LOG.warn("{} is damaged and will be compiled anew", file);
    } catch (IOException error) {
      LOG.warn("cannot read {}: {}", file, error.toString());
    }
    return null;
  }

  /** Writes beside the file and renames, for other executors read while this one writes. */
  private void write(Path file, byte[] cubin) {
    try {
      Files.createDirectories(folder);
      Path part = Files.createTempFile(folder, "kernel", ".part");
      try {
        Files.write(part, join(sha256(cubin), cubin));
        Files.move(part, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
      } finally {
        Files.deleteIfExists(part);
      }
    } catch (IOException error) { // the kernel works; the next process will compile it again
      LOG.warn("cannot keep a kernel in {} (-D{} names another folder): {}", folder, FOLDER, error.toString());
    }
  }

  private static byte[] join(byte[] head, byte[] tail) {
    byte[] both = Arrays.copyOf(head, head.length + tail.length);
    System.arraycopy(tail, 0, both, head.length, tail.length);
    return both;
  }

  private static byte[] sha256(byte[] bytes) {
    try {
      return MessageDigest.getInstance("SHA-256").digest(bytes);
    } catch (NoSuchAlgorithmException error) {
      throw new AssertionError(error); // every Java has it
    }
  }
}
