package kbit.decode.proto;

import java.util.List;
import kbit.decode.DecodeException;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;

/** A message within a message; its occurrences are merged. */
final class ProtoMessageField extends ProtoField {
  private final ProtoMessage message;
  private final boolean group;
  private final boolean always;

  /** {@code always}: a message of defaults where there is none, as for the values of maps. */
  ProtoMessageField(ProtoMessage message, boolean group, boolean always) {
    this.message = message;
    this.group = group;
    this.always = always;
  }

  @Override
  boolean takes(int wireType) {
    return wireType == (group ? ProtoCursor.GROUP : ProtoCursor.LENGTH);
  }

  @Override
  Object read(ProtoCursor in, int tag, Object slot, int depth) throws DecodeException {
    Object[] slots = slot == null ? message.slots() : (Object[]) slot;
    message.readNested(in, slots, group ? tag >>> 3 : 0, depth);
    return slots;
  }

  @Override
  Row finish(Object slot, ProtoCursor in) throws DecodeException {
    return RowFactory.create(message.finish((Object[]) slot, in));
  }

  @Override
  Object absent(ProtoCursor in) throws DecodeException {
    return always ? finish(message.slots(), in) : null;
  }

  /** A repeated message; its occurrences are items, each a level below the list. */
  static final class Many extends ProtoRepeatedField {
    private final ProtoMessage message;
    private final boolean group;
    private final boolean wanted;

    Many(ProtoMessage message, boolean group, boolean wanted) {
      this.message = message;
      this.group = group;
      this.wanted = wanted;
    }

    @Override
    boolean takes(int wireType) {
      return wireType == (group ? ProtoCursor.GROUP : ProtoCursor.LENGTH);
    }

    @Override
    void add(List<Object> items, ProtoCursor in, int tag, int depth) throws DecodeException {
      Object[] slots = message.slots();
      message.readNested(in, slots, group ? tag >>> 3 : 0, in.deeper(depth));
      Object[] values = message.finish(slots, in);
      if (wanted) items.add(RowFactory.create(values));
    }
  }
}
