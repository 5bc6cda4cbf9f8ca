package kbit.gpu;

import ai.rapids.cudf.ColumnView;
import ai.rapids.cudf.DType;
import ai.rapids.cudf.DeviceMemoryBuffer;
import java.util.List;

/** The columns of a program over a batch's buffers. */
final class Columns {
  private final Batch batch;
  private final Masks masks;
  private final Assembly assembly;

  private Columns(Batch batch, Assembly assembly) {
    this.batch = batch;
    masks = batch.masks();
    this.assembly = assembly;
  }

  /** Returns the struct {@code value}: null where a row is not ok. */
  static ColumnView value(Program program, Batch batch, Assembly assembly) {
    Masks masks = batch.masks();
    ColumnView[] fields = new Columns(batch, assembly).all(program.columns());
    return assembly.struct(batch.rows(), masks.valueNulls(), assembly.own(masks.value()), fields);
  }

  private ColumnView[] all(List<Program.Node> nodes) {
    return nodes.stream().map(this::column).toArray(ColumnView[]::new);
  }

  private ColumnView column(Program.Node node) {
    int rows = batch.total(node.lane());
    long nulls = masks.nulls(node);
    DeviceMemoryBuffer valid = assembly.own(masks.of(node));
    if (node instanceof Program.Fixed fixed) return assembly.fixed(fixed.type(), rows, nulls, valid, buffer(fixed.data()));
    if (node instanceof Program.Struct struct) return assembly.struct(rows, nulls, valid, all(struct.children()));
    if (node instanceof Program.Items items) {
      return assembly.list(rows, nulls, valid, buffer(items.offsets()), column(items.item()));
    }
    Program.Bytes bytes = (Program.Bytes) node;
    DeviceMemoryBuffer data = buffer(bytes.data());
    if (bytes.string()) return assembly.string(rows, nulls, valid, buffer(bytes.offsets()), data);
    long length = bytes.child() == Program.NONE ? data.getLength() : batch.total(bytes.child());
    return assembly.list(rows, nulls, valid, buffer(bytes.offsets()), assembly.fixed(DType.UINT8, length, 0, null, data));
  }

  private DeviceMemoryBuffer buffer(int number) {
    return assembly.own(batch.slice(number));
  }
}
