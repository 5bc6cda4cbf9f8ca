package kbit.gpu;

import ai.rapids.cudf.ColumnVector;
import ai.rapids.cudf.HostColumnVector;
import ai.rapids.cudf.OutOfBoundsPolicy;
import ai.rapids.cudf.Table;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;

/** Puts rows that the CPU decoded into a decoded column. This copies the column, so it is for few rows. */
final class Patch {
  private Patch() {}

  /** Returns {@code result} with these rows in place; {@code result} is closed, whatever happens. */
  static ColumnVector apply(ColumnVector result, StructType type, List<Verdicts.Decoded> decoded) {
    int rows = Math.toIntExact(result.getRowCount());
    ColumnVector all = append(result, type, decoded);
    int[] from = IntStream.range(0, rows).toArray();
    for (int i = 0; i < decoded.size(); i++) from[decoded.get(i).row()] = rows + i;
    try (all;
        ColumnVector map = ColumnVector.fromInts(from);
        Table table = new Table(all);
        Table gathered = table.gather(map, OutOfBoundsPolicy.DONT_CHECK)) {
      return gathered.getColumn(0).incRefCount();
    }
  }

  private static ColumnVector append(ColumnVector result, StructType type, List<Verdicts.Decoded> decoded) {
    List<Row> rows = decoded.stream().map(row -> RowFactory.create(RowFactory.create(row.values()), null)).toList();
    try (result;
        HostColumnVector host = HostColumns.build(type, rows);
        ColumnVector device = host.copyToDevice()) {
      return ColumnVector.concatenate(result, device);
    }
  }
}
