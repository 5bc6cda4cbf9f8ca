package kbit.decode.proto;

import java.util.ArrayList;
import java.util.List;
import kbit.decode.DecodeException;

/** A repeated scalar: one item a tag or, for numbers, a packed run of them. */
final class ProtoListField extends ProtoField {
  private static final Object[] EMPTY = {};

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
  Object read(ProtoCursor in, int tag, Object slot, int depth) throws DecodeException {
    @SuppressWarnings("unchecked")
    List<Object> items = slot == null ? new ArrayList<>() : (List<Object>) slot;
    if ((tag & 7) == item.wireType) {
      add(items, item.read(in));
      return items;
    }
    int outer = in.limit;
    in.limit = ProtoListField.run(in, item.wireType);
    while (in.at < in.limit) add(items, item.read(in));
    in.limit = outer;
    return items;
  }

  private void add(List<Object> items, Object value) {
    if (wanted) items.add(value);
  }

  @Override
  Object finish(Object slot, ProtoCursor in) {
    return ((List<?>) slot).toArray();
  }

  @Override
  Object absent(ProtoCursor in) {
    return EMPTY;
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
