package kbit.decode.proto;

import kbit.decode.DecodeException;
import kbit.decode.Tensor;

/** A repeated number that becomes a tensor; its items may come in several runs and one by one. */
final class ProtoTensorField extends ProtoField {
  private final Tensor tensor;
  private final ProtoKind kind;
  private final boolean pixels;
  private final boolean verbatim;

  ProtoTensorField(Tensor tensor, ProtoKind kind) {
    this.tensor = tensor;
    this.kind = kind;
    boolean plain = kind == ProtoKind.INT32 || kind == ProtoKind.INT64 || kind == ProtoKind.UINT32 || kind == ProtoKind.UINT64;
    pixels = plain && tensor.dtype.equals("uint8");
    verbatim =
        switch (kind) { // items that lie on the wire as they lie in the tensor
          case FLOAT -> tensor.dtype.equals("float32");
          case DOUBLE -> tensor.dtype.equals("float64");
          case SFIXED32 -> tensor.dtype.equals("int32");
          case SFIXED64 -> tensor.dtype.equals("int64");
          default -> false;
        };
  }

  private static final class Partial {
    final byte[] data;
    int items;
    int position;

    Partial(byte[] data) {
      this.data = data;
    }
  }

  @Override
  boolean takes(int wireType) {
    return wireType == kind.wireType || wireType == ProtoCursor.LENGTH;
  }

  @Override
  Object read(ProtoCursor in, int tag, Object slot, int depth) throws DecodeException {
    Partial partial = slot == null ? new Partial(tensor.allocate()) : (Partial) slot;
    partial.position = in.at;
    if ((tag & 7) == kind.wireType) {
      item(in, partial);
      return partial;
    }
    int outer = in.limit;
    in.limit = ProtoListField.run(in, kind.wireType);
    if (verbatim) copy(in, partial);
    else if (pixels) pixels(in, partial);
    while (in.at < in.limit) item(in, partial);
    in.limit = outer;
    return partial;
  }

  private void copy(ProtoCursor in, Partial partial) throws DecodeException {
    int bytes = in.limit - in.at;
    int items = bytes / tensor.itemBytes;
    if (items > tensor.items - partial.items) throw tooMany(partial, partial.position, (long) partial.items + items);
    System.arraycopy(in.data, in.at, partial.data, partial.items * tensor.itemBytes, bytes);
    partial.items += items;
    in.at = in.limit;
  }

  /** Reads varints of one or two bytes that are 0 to 255; stops at the first that is not. */
  private void pixels(ProtoCursor in, Partial partial) {
    byte[] data = in.data;
    byte[] out = partial.data;
    int at = in.at;
    int index = partial.items;
    while (at < in.limit && index < out.length) {
      byte low = data[at];
      if (low >= 0) at++;
      else if (at + 1 < in.limit && data[at + 1] == 1) at += 2; // 0x80 to 0xff, then 0x01: the low byte is the pixel
      else break;
      out[index++] = low;
    }
    in.at = at;
    partial.items = index;
  }

  private void item(ProtoCursor in, Partial partial) throws DecodeException {
    int start = in.at;
    if (partial.items == tensor.items) throw tooMany(partial, start, partial.items + 1L);
    if (kind.isFloating()) {
      double value = kind.readDouble(in);
      if (!tensor.holds(value)) throw DecodeException.overflow(start, tensor.dtype);
      tensor.put(partial.data, partial.items++, value);
      return;
    }
    long value = kind.readLong(in);
    boolean wide = value < 0 && (kind == ProtoKind.UINT64 || kind == ProtoKind.FIXED64);
    if (wide || tensor.isInteger && (value < tensor.min || value > tensor.max)) {
      throw DecodeException.overflow(start, tensor.dtype);
    }
    tensor.put(partial.data, partial.items++, value);
  }

  private DecodeException tooMany(Partial partial, int position, long found) {
    return tensor.wrongCount(position, "at least " + found);
  }

  @Override
  Object finish(Object slot, ProtoCursor in) throws DecodeException {
    Partial partial = (Partial) slot;
    if (partial.items == tensor.items) return partial.data;
    throw tensor.wrongCount(partial.position, Integer.toString(partial.items));
  }
}
