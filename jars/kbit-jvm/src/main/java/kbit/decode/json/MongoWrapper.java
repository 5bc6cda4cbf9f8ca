package kbit.decode.json;

import java.nio.charset.StandardCharsets;
import java.util.Set;
import kbit.decode.DecodeException;

/** The frame of a wrapped value: an object with exactly the wrapper's own names. */
final class MongoWrapper {
  /** Names that make an object a value. A reference ($ref) is a document, and $type alone may be any. */
  private static final Set<String> NAMES =
      Set.of(
          "$oid", "$numberInt", "$numberLong", "$numberDouble", "$numberDecimal", "$date", "$binary", "$uuid",
          "$symbol", "$code", "$timestamp", "$regularExpression", "$dbPointer", "$minKey", "$maxKey", "$undefined");

  private MongoWrapper() {}

  /** True at an object that is a wrapped value; the cursor stays there. */
  static boolean isAt(JsonCursor in) throws DecodeException {
    return in.peek() == '{' && NAMES.contains(firstName(in));
  }

  /** Returns the first name of the object at the cursor, which stays there; "" if it has none. */
  static String firstName(JsonCursor in) throws DecodeException {
    int start = in.at++;
    String name = in.peek() == '"' ? new String(in.string(), StandardCharsets.UTF_8) : "";
    in.at = start;
    return name;
  }

  /** Goes into the wrapper at the cursor, up to behind the colon, and returns which of {@code names} it is. */
  static String open(JsonCursor in, Set<String> names, String wanted) throws DecodeException {
    int start = in.place();
    String name = firstName(in);
    if (!names.contains(name)) {
      in.at++;
      if (in.peek() != '}' && name.isEmpty()) in.name(); // it is no object at all
      String found = NAMES.contains(name) ? name : "an object";
      throw DecodeException.mismatch(start, "expected " + wanted + ", found " + found);
    }
    in.at++;
    in.name();
    in.expect(':');
    return name;
  }

  /** Consumes the end of the wrapper {@code name}. */
  static void close(JsonCursor in, String name) throws DecodeException {
    if (!in.more('}')) return;
    int start = in.place();
    if (new String(in.name(), StandardCharsets.UTF_8).equals(name)) throw JsonCursor.repeated(start);
    throw DecodeException.mismatch(start, name + " holds nothing else");
  }
}
