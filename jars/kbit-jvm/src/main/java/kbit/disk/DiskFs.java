package kbit.disk;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;

/** {@link Disk} for Hadoop's FileContext, through which Delta writes its log: {@code fs.AbstractFileSystem.file.impl}. */
public final class DiskFs extends ChecksumFs {
  public DiskFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
    super(new Raw(conf));
  }

  private static final class Raw extends DelegateToFileSystem {
    Raw(Configuration conf) throws IOException, URISyntaxException {
      super(URI.create("file:///"), new Disk(), conf, "file", false);
    }

    @Override
    public int getUriDefaultPort() {
      return -1;
    }

    @Override
    public boolean isValidName(String name) {
      return true; // as in Hadoop's own: the disk decides
    }
  }
}
