package kbit.decode.proto;

import java.util.ArrayList;
import java.util.List;
import kbit.decode.DecodeException;

/** A repeated field: its slot is the list of its items, and one that never occurred is an empty list. */
abstract class ProtoRepeatedField extends ProtoField {
  private static final Object[] EMPTY = {};

  @Override
  @SuppressWarnings("unchecked")
  final Object read(ProtoCursor in, int tag, Object slot, int depth) throws DecodeException {
    List<Object> items = slot == null ? new ArrayList<>() : (List<Object>) slot;
    add(items, in, tag, depth);
    return items;
  }

  /** Reads one occurrence behind its tag and adds what it holds. */
  abstract void add(List<Object> items, ProtoCursor in, int tag, int depth) throws DecodeException;

  @Override
  final Object finish(Object slot, ProtoCursor in) {
    return ((List<?>) slot).toArray();
  }

  @Override
  final Object absent(ProtoCursor in) {
    return EMPTY;
  }
}
