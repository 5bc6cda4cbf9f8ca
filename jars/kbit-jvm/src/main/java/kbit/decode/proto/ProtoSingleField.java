package kbit.decode.proto;

import java.util.List;
import kbit.decode.DecodeException;

/** A message that becomes one value instead of a row; its occurrences are merged before that. */
final class ProtoSingleField extends ProtoField {
  private final ProtoMessage message;
  private final ProtoWellKnown kind;
  private final boolean always;

  /** {@code always}: a message of defaults where there is none, as for the values of maps. */
  ProtoSingleField(ProtoMessage message, ProtoWellKnown kind, boolean always) {
    this.message = message;
    this.kind = kind;
    this.always = always;
  }

  private record Partial(Object[] slots, int position) {}

  @Override
  boolean takes(int wireType) {
    return wireType == ProtoCursor.LENGTH;
  }

  @Override
  Object read(ProtoCursor in, int tag, Object slot, int depth) throws DecodeException {
    Partial partial = new Partial(slot == null ? message.slots() : ((Partial) slot).slots, in.at);
    message.readNested(in, partial.slots, 0, depth);
    return partial;
  }

  @Override
  Object finish(Object slot, ProtoCursor in) throws DecodeException {
    Partial partial = (Partial) slot;
    return kind.of(message.finish(partial.slots, in), partial.position);
  }

  @Override
  Object absent(ProtoCursor in) throws DecodeException {
    return always ? kind.of(message.finish(message.slots(), in), in.at) : null;
  }

  /** A repeated one; its occurrences are items. */
  static final class Many extends ProtoRepeatedField {
    private final ProtoMessage message;
    private final ProtoWellKnown kind;

    Many(ProtoMessage message, ProtoWellKnown kind) {
      this.message = message;
      this.kind = kind;
    }

    @Override
    boolean takes(int wireType) {
      return wireType == ProtoCursor.LENGTH;
    }

    @Override
    void add(List<Object> items, ProtoCursor in, int tag, int depth) throws DecodeException {
      int position = in.at;
      Object[] slots = message.slots();
      message.readNested(in, slots, 0, in.deeper(depth));
      items.add(kind.of(message.finish(slots, in), position));
    }
  }
}
