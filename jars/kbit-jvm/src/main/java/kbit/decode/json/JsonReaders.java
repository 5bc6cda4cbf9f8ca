package kbit.decode.json;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import kbit.decode.DecodeException;
import kbit.decode.Tensor;
import org.apache.spark.unsafe.types.UTF8String;

/** The readers of scalar, list and tensor fields. */
final class JsonReaders {
  private JsonReaders() {}

  static JsonReader of(JsonNode field) {
    if (field.has("tensor")) return new JsonTensorReader(new Tensor(field.get("tensor")));
    return ofType(field.get("type").asText());
  }

  private static JsonReader ofType(String type) {
    if (type.startsWith("array<")) return list(ofType(type.substring(6, type.length() - 1)));
    return switch (type) {
      case "boolean" -> JsonReaders::bool;
      case "int" -> in -> (int) JsonNumbers.integer(in, Integer.MIN_VALUE, Integer.MAX_VALUE, "int");
      case "long" -> in -> JsonNumbers.integer(in, Long.MIN_VALUE, Long.MAX_VALUE, "long");
      case "float" -> JsonNumbers::float32;
      case "double" -> JsonNumbers::float64;
      case "string" -> in -> UTF8String.fromBytes(text(in, "a string"));
      case "binary" -> in -> base64(in, text(in, "base64 text"));
      default -> throw new IllegalArgumentException("no JSON reader for type " + type);
    };
  }

  private static JsonReader list(JsonReader item) {
    return in -> {
      if (in.peek() != '[') throw in.mismatch("a list");
      in.at++;
      List<Object> items = new ArrayList<>();
      boolean more = in.peek() != ']';
      if (!more) in.at++;
      while (more) {
        if (in.peek() == 'n') {
          in.skipLiteral();
          items.add(null);
        } else {
          items.add(item.read(in));
        }
        more = in.more(']');
      }
      return items.toArray();
    };
  }

  private static Object bool(JsonCursor in) throws DecodeException {
    int next = in.peek();
    if (next != 't' && next != 'f') throw in.mismatch("true or false");
    in.skipLiteral();
    return next == 't';
  }

  private static byte[] text(JsonCursor in, String wanted) throws DecodeException {
    if (in.peek() != '"') throw in.mismatch(wanted);
    return in.string();
  }

  /** Decodes padded base64 that ended at the cursor. */
  static byte[] base64(JsonCursor in, byte[] text) throws DecodeException {
    int start = in.at - text.length - 2;
    try {
      byte[] bytes = Base64.getDecoder().decode(text);
      if (text.length % 4 == 0) return bytes;
    } catch (IllegalArgumentException error) {
      // reported below, with the same words
    }
    throw DecodeException.mismatch(Math.max(start, 0), "expected padded base64");
  }
}
