package kbit.disk;

import org.apache.hadoop.fs.LocalFileSystem;

/** {@link Disk} with Hadoop's checksum files, for {@code fs.file.impl}. */
public final class DiskFileSystem extends LocalFileSystem {
  public DiskFileSystem() {
    super(new Disk());
  }
}
