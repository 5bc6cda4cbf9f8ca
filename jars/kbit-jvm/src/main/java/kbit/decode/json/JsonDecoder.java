package kbit.decode.json;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import kbit.decode.DecodeException;
import kbit.decode.Decoder;

/** Decodes a JSON object into a row: names unique and matched with case, extra members checked and left out. */
public final class JsonDecoder implements Decoder {
  private final byte[][] names;
  private final JsonReader[] readers;
  private final boolean[] required;
  private final Map<String, Integer> indices = new HashMap<>();

  public JsonDecoder(JsonNode plan) {
    JsonNode fields = plan.get("fields");
    names = new byte[fields.size()][];
    readers = new JsonReader[fields.size()];
    required = new boolean[fields.size()];
    for (int i = 0; i < readers.length; i++) {
      String name = fields.get(i).get("name").asText();
      names[i] = name.getBytes(StandardCharsets.UTF_8);
      readers[i] = JsonReaders.of(fields.get(i));
      required[i] = fields.get(i).get("required").asBoolean();
      indices.put(name, i);
    }
  }

  @Override
  public Object[] decode(byte[] payload, int start) throws DecodeException {
    JsonCursor in = new JsonCursor(payload);
    in.at = start;
    if (in.peek() < 0) throw new DecodeException("empty_payload", start, "there is nothing but white space");
    if (in.peek() != '{') throw in.mismatch("an object");
    Object[] row = new Object[readers.length];
    readMembers(in, row);
    if (in.peek() >= 0) throw new DecodeException("trailing_bytes", in.at, "bytes are left over behind the object");
    return row;
  }

  private void readMembers(JsonCursor in, Object[] row) throws DecodeException {
    boolean[] seen = new boolean[readers.length];
    Set<String> others = null;
    in.at++;
    boolean more = in.peek() != '}';
    if (!more) in.at++;
    int expected = 0; // members mostly come in the order of the fields
    while (more) {
      if (in.peek() != '"') throw in.bad("expected a name in quotes");
      int start = in.at;
      byte[] name = in.string();
      int index = index(name, expected);
      in.expect(':');
      if (index >= 0) {
        if (seen[index]) throw JsonCursor.repeated(start);
        seen[index] = true;
        row[index] = readMember(in, index);
        expected = index + 1;
      } else {
        if (others == null) others = new HashSet<>();
        if (!others.add(new String(name, StandardCharsets.UTF_8))) throw JsonCursor.repeated(start);
        in.skip(1);
      }
      more = in.more('}');
    }
    for (int i = 0; i < seen.length; i++) {
      if (required[i] && !seen[i]) throw missing(i, in.at - 1);
    }
  }

  private Object readMember(JsonCursor in, int index) throws DecodeException {
    if (in.peek() != 'n') return readers[index].read(in);
    int start = in.at;
    in.skipLiteral();
    if (required[index]) throw DecodeException.mismatch(start, "null for the required field " + name(index));
    return null;
  }

  private int index(byte[] name, int expected) {
    if (expected < names.length && Arrays.equals(name, names[expected])) return expected;
    return indices.getOrDefault(new String(name, StandardCharsets.UTF_8), -1);
  }

  private DecodeException missing(int index, int position) {
    return new DecodeException("missing_field", position, "the required field " + name(index) + " is absent");
  }

  private String name(int index) {
    return new String(names[index], StandardCharsets.UTF_8);
  }
}
