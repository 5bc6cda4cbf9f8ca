package kbit.decode.proto;

import java.util.LinkedHashMap;
import java.util.Map;
import kbit.decode.DecodeException;

/** A map: on the wire a repeated message of key and value, of which the last of each key counts. */
final class ProtoMapField extends ProtoField {
  private final ProtoMessage entry;
  private final boolean wanted;

  ProtoMapField(ProtoMessage entry, boolean wanted) {
    this.entry = entry;
    this.wanted = wanted;
  }

  @Override
  boolean takes(int wireType) {
    return wireType == ProtoCursor.LENGTH;
  }

  @Override
  Object read(ProtoCursor in, int tag, Object slot, int depth) throws DecodeException {
    @SuppressWarnings("unchecked")
    Map<Object, Object> map = slot == null ? new LinkedHashMap<>() : (Map<Object, Object>) slot;
    Object[] slots = entry.slots();
    entry.readNested(in, slots, 0, depth);
    Object[] pair = entry.finish(slots, in);
    if (wanted) map.put(pair[0], pair[1]);
    return map;
  }

  @Override
  Object absent(ProtoCursor in) {
    return Map.of();
  }
}
