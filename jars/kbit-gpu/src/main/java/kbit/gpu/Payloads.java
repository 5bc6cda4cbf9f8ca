package kbit.gpu;

import ai.rapids.cudf.ColumnVector;
import ai.rapids.cudf.HostColumnVector;
import ai.rapids.cudf.OutOfBoundsPolicy;
import ai.rapids.cudf.Table;

/** Some rows of a column, on the host. */
final class Payloads {
  private Payloads() {}

  /** Returns these rows of a column, in their order; the caller closes them. */
  static HostColumnVector download(ColumnVector column, int[] rows) {
    try (ColumnVector map = ColumnVector.fromInts(rows);
        Table all = new Table(column);
        Table some = all.gather(map, OutOfBoundsPolicy.DONT_CHECK)) {
      return some.getColumn(0).copyToHost();
    }
  }
}
