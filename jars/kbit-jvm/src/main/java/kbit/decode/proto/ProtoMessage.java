package kbit.decode.proto;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import kbit.decode.DecodeException;

/** A message type: its fields by number, and which of them make a row. */
final class ProtoMessage {
  private static final int SMALL_NUMBERS = 256;

  private final Map<Integer, Integer> bigNumbers = new HashMap<>();
  private final int[] smallNumbers = new int[SMALL_NUMBERS]; // slot + 1
  private String name;
  private String[] names;
  private ProtoField[] fields;
  private boolean[] mustOccur;
  private int[] columns;
  private boolean[] notNull;

  /** Builds the messages of a plan, which may refer to each other and to themselves. */
  static Map<String, ProtoMessage> all(JsonNode plans) {
    Map<String, ProtoMessage> messages = new HashMap<>();
    plans.fieldNames().forEachRemaining(key -> messages.put(key, new ProtoMessage()));
    plans.properties().forEach(entry -> messages.get(entry.getKey()).build(entry.getValue(), messages));
    return messages;
  }

  private void build(JsonNode plan, Map<String, ProtoMessage> messages) {
    JsonNode known = plan.get("fields");
    name = plan.get("name").asText();
    names = new String[known.size()];
    fields = new ProtoField[known.size()];
    mustOccur = new boolean[known.size()];
    for (int slot = 0; slot < fields.length; slot++) {
      JsonNode field = known.get(slot);
      names[slot] = field.get("name").asText();
      fields[slot] = ProtoField.of(field, messages);
      mustOccur[slot] = field.path("must_occur").asBoolean();
      fields[slot].rivals = ints(field.path("rivals"));
      int number = field.get("number").asInt();
      if (number < SMALL_NUMBERS) smallNumbers[number] = slot + 1;
      else bigNumbers.put(number, slot);
    }
    columns = new int[plan.get("columns").size()];
    notNull = new boolean[columns.length];
    for (int i = 0; i < columns.length; i++) {
      columns[i] = plan.get("columns").get(i).get("slot").asInt();
      notNull[i] = plan.get("columns").get(i).get("required").asBoolean();
    }
  }

  private static int[] ints(JsonNode list) {
    int[] numbers = new int[list.size()];
    for (int i = 0; i < numbers.length; i++) numbers[i] = list.get(i).asInt();
    return numbers;
  }

  Object[] slots() {
    return new Object[fields.length];
  }

  /** Reads a message behind its tag, one level deeper; {@code group}: the number of its group, 0 if it has a length. */
  void readNested(ProtoCursor in, Object[] slots, int group, int depth) throws DecodeException {
    int below = in.deeper(depth);
    if (group != 0) {
      int end = group << 3 | ProtoCursor.GROUP_END;
      for (int tag = in.readTagIn(group); tag != end; tag = in.readTagIn(group)) readField(in, tag, slots, below);
      return;
    }
    int length = in.readLength();
    int outer = in.limit;
    in.limit = in.at + length;
    read(in, slots, below);
    in.limit = outer;
  }

  /** Reads fields up to the cursor's limit. */
  void read(ProtoCursor in, Object[] slots, int depth) throws DecodeException {
    while (in.at < in.limit) readField(in, in.readTag(), slots, depth);
  }

  private void readField(ProtoCursor in, int tag, Object[] slots, int depth) throws DecodeException {
    int slot = slotOf(tag >>> 3);
    int wireType = tag & 7;
    if (slot < 0 || wireType == ProtoCursor.GROUP_END) {
      in.skip(tag, depth);
      return;
    }
    ProtoField field = fields[slot];
    if (!field.takes(wireType)) {
      throw in.wrongTag("field " + names[slot] + " of " + name + " has not the wire type " + wireType);
    }
    slots[slot] = field.read(in, tag, slots[slot], depth);
    for (int rival : field.rivals) slots[rival] = null;
  }

  private int slotOf(int number) {
    return number < SMALL_NUMBERS ? smallNumbers[number] - 1 : bigNumbers.getOrDefault(number, -1);
  }

  /** Turns the slots of a message that has ended into the values of its columns. */
  Object[] finish(Object[] slots, ProtoCursor in) throws DecodeException {
    for (int slot = 0; slot < slots.length; slot++) {
      if (slots[slot] != null) slots[slot] = fields[slot].finish(slots[slot], in);
      else if (mustOccur[slot]) throw missing(slot, in);
    }
    Object[] row = new Object[columns.length];
    for (int i = 0; i < row.length; i++) {
      if (columns[i] >= 0) {
        Object value = slots[columns[i]];
        row[i] = value != null ? value : fields[columns[i]].absent(in);
      }
      if (row[i] == null && notNull[i]) throw missing(columns[i], in);
    }
    return row;
  }

  private DecodeException missing(int slot, ProtoCursor in) {
    return new DecodeException("missing_field", in.at, "the required field " + names[slot] + " of " + name + " is absent");
  }
}
