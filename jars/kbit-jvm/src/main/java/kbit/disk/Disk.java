package kbit.disk;

import java.io.IOException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Arrays;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Options.Rename;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * The local disk without shell commands: Hadoop's own class starts one for the permissions of every file that it
 * creates and for the links of every file that it renames, some twenty for a micro-batch.
 */
final class Disk extends RawLocalFileSystem {
  @Override
  public void setPermission(Path path, FsPermission permission) throws IOException {
    java.nio.file.Path file = pathToFile(path).toPath();
    if (permission.getStickyBit() || !file.getFileSystem().supportedFileAttributeViews().contains("posix")) {
      super.setPermission(path, permission);
      return;
    }
    String text = permission.getUserAction().SYMBOL + permission.getGroupAction().SYMBOL
        + permission.getOtherAction().SYMBOL;
    Files.setPosixFilePermissions(file, PosixFilePermissions.fromString(text));
  }

  @Override
  public FileStatus getFileLinkStatus(Path path) throws IOException {
    return getFileStatus(path); // links are followed, so that none has to be looked for
  }

  /** Renames without overwriting in one step where asked to: two drivers can never both write one table version. */
  @Override
  @SuppressWarnings("deprecation")
  protected void rename(Path from, Path to, Rename... options) throws IOException {
    boolean overwrite = options != null && Arrays.asList(options).contains(Rename.OVERWRITE);
    if (overwrite || pathToFile(from).isDirectory() || !linked(from, to)) super.rename(from, to, options);
    else Files.delete(pathToFile(from).toPath());
  }

  /** Gives the file a second name; false where the disk knows no hard links. */
  private boolean linked(Path from, Path to) throws IOException {
    try {
      Files.createLink(pathToFile(to).toPath(), pathToFile(from).toPath());
      return true;
    } catch (java.nio.file.FileAlreadyExistsException taken) {
      throw new FileAlreadyExistsException("rename destination " + to + " already exists");
    } catch (UnsupportedOperationException | FileSystemException noLinks) {
      return false;
    }
  }
}
