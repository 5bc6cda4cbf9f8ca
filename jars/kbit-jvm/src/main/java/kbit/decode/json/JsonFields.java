package kbit.decode.json;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import kbit.decode.DecodeException;

/** The members of an object that become a row: names unique and matched with case, others checked and left out. */
final class JsonFields {
  private final String[] columns;
  private final JsonReader[] readers;
  private final boolean[] required;
  private final Map<String, Integer> indices = new HashMap<>();
  private final byte[][] names; // what each field was called last, without escapes; null before the first
  private final int depth;

  /**
   * @param depth level of the object
   */
  JsonFields(JsonNode fields, JsonTypes types, int depth) {
    this.depth = depth;
    columns = new String[fields.size()];
    names = new byte[columns.length][];
    readers = new JsonReader[columns.length];
    required = new boolean[columns.length];
    for (int i = 0; i < columns.length; i++) {
      JsonNode field = fields.get(i);
      columns[i] = field.get("name").asText();
      readers[i] = types.column(field, depth);
      required[i] = field.get("required").asBoolean();
      if (field.has("sources")) for (JsonNode source : field.get("sources")) indices.put(source.asText(), i);
      else indices.put(columns[i], i);
    }
  }

  /** Reads the object at the cursor. */
  Object[] read(JsonCursor in) throws DecodeException {
    if (in.peek() != '{') throw in.mismatch("an object");
    Object[] row = new Object[columns.length];
    boolean[] seen = new boolean[columns.length];
    Set<String> others = null;
    in.at++;
    boolean more = in.peek() != '}';
    if (!more) in.at++;
    int expected = 0; // members mostly come in the order of the fields
    while (more) {
      int start = in.place();
      int index = expected < names.length && in.skipName(names[expected]) ? expected : index(in);
      in.expect(':');
      if (index >= 0) {
        if (seen[index]) throw JsonCursor.repeated(start);
        seen[index] = true;
        row[index] = readMember(in, index);
        expected = index + 1;
      } else {
        if (others == null) others = new HashSet<>();
        if (!others.add(nameAt(in, start))) throw JsonCursor.repeated(start);
        in.skip(depth);
      }
      more = in.more('}');
    }
    for (int i = 0; i < seen.length; i++) {
      if (required[i] && !seen[i]) throw missing(i, in.at - 1);
    }
    return row;
  }

  private Object readMember(JsonCursor in, int index) throws DecodeException {
    if (in.peek() != 'n') return readers[index].read(in);
    int start = in.at;
    in.skipLiteral();
    if (required[index]) throw DecodeException.mismatch(start, "null for the required field " + columns[index]);
    return null;
  }

  private int index(JsonCursor in) throws DecodeException {
    int start = in.place();
    byte[] name = in.name();
    int index = indices.getOrDefault(new String(name, StandardCharsets.UTF_8), -1);
    boolean plain = in.at - start == name.length + 2; // an escaped name is written in more than one way
    if (index >= 0 && plain) names[index] = name;
    return index;
  }

  private static String nameAt(JsonCursor in, int start) throws DecodeException {
    int at = in.at;
    in.at = start;
    String name = new String(in.name(), StandardCharsets.UTF_8);
    in.at = at;
    return name;
  }

  private DecodeException missing(int index, int position) {
    return new DecodeException("missing_field", position, "the required field " + columns[index] + " is absent");
  }
}
