package kbit.gpu;

import ai.rapids.cudf.ColumnVector;
import ai.rapids.cudf.ColumnView;
import ai.rapids.cudf.DType;
import ai.rapids.cudf.DeviceMemoryBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/**
 * Puts a column together from device buffers without a copy. Views and buffers belong to the assembly until
 * {@link #finish} hands the buffers over to the one column that stands on them all.
 */
final class Assembly implements AutoCloseable {
  private final List<DeviceMemoryBuffer> buffers = new ArrayList<>();
  private final List<ColumnView> views = new ArrayList<>();

  /** Takes a buffer over; null passes through. */
  DeviceMemoryBuffer own(DeviceMemoryBuffer buffer) {
    if (buffer != null) buffers.add(buffer);
    return buffer;
  }

  ColumnView fixed(DType type, long rows, long nulls, DeviceMemoryBuffer valid, DeviceMemoryBuffer data) {
    return add(new ColumnView(type, rows, Optional.of(nulls), data, valid));
  }

  ColumnView string(long rows, long nulls, DeviceMemoryBuffer valid, DeviceMemoryBuffer offsets, DeviceMemoryBuffer data) {
    return add(new ColumnView(DType.STRING, rows, Optional.of(nulls), data, valid, offsets));
  }

  ColumnView list(long rows, long nulls, DeviceMemoryBuffer valid, DeviceMemoryBuffer offsets, ColumnView item) {
    return add(new ColumnView(DType.LIST, rows, Optional.of(nulls), valid, offsets, new ColumnView[] {item}));
  }

  ColumnView struct(long rows, long nulls, DeviceMemoryBuffer valid, ColumnView... children) {
    return add(new ColumnView(DType.STRUCT, rows, Optional.of(nulls), valid, null, children));
  }

  private ColumnView add(ColumnView view) {
    views.add(view);
    return view;
  }

  /** Returns the struct over these children; it owns every buffer, and the caller owns it. */
  ColumnVector finish(long rows, long nulls, DeviceMemoryBuffer valid, ColumnView... children) {
    long[] handles = new long[children.length];
    for (int i = 0; i < handles.length; i++) handles[i] = children[i].getNativeView();
    List<DeviceMemoryBuffer> below = new ArrayList<>(buffers);
    below.remove(valid); // the column closes its own mask by itself
    ColumnVector column = new ColumnVector(DType.STRUCT, rows, Optional.of(nulls), null, valid, null, below, handles);
    buffers.clear();
    return column;
  }

  @Override
  public void close() {
    views.forEach(ColumnView::close);
    buffers.forEach(DeviceMemoryBuffer::close);
  }
}
