package kbit.decode.proto;

import java.util.List;
import kbit.decode.DecodeException;

/** A repeated scalar: one item a tag or, for numbers, a packed run of them. */
final class ProtoListField extends ProtoRepeatedField {
  private final ProtoValue item;
  private final boolean wanted;

  ProtoListField(ProtoValue item, boolean wanted) {
    this.item = item;
    this.wanted = wanted;
  }

  @Override
  boolean takes(int wireType) {
    return wireType == item.wireType || wireType == ProtoCursor.LENGTH;
  }

  @Override
  void add(List<Object> items, ProtoCursor in, int tag, int depth) throws DecodeException {
    if ((tag & 7) == item.wireType) {
      keep(items, item.read(in));
      return;
    }
    int outer = in.limit;
    in.limit = ProtoListField.run(in, item.wireType);
    while (in.at < in.limit) keep(items, item.read(in));
    in.limit = outer;
  }

  private void keep(List<Object> items, Object value) {
    if (wanted) items.add(value);
  }

  /** Reads the length of a packed run and returns where the run ends. */
  static int run(ProtoCursor in, int wireType) throws DecodeException {
    int start = in.at;
    int length = in.readLength();
    int width = wireType == ProtoCursor.FIXED32 ? 4 : wireType == ProtoCursor.FIXED64 ? 8 : 1;
    if (length % width == 0) return in.at + length;
    throw new DecodeException("bad_length", start, "a run of " + length + " bytes is no whole number of items");
  }
}
