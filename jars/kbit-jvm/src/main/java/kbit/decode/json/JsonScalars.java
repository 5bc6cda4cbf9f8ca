package kbit.decode.json;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Arrays;
import java.util.Base64;
import kbit.decode.DecodeException;
import org.apache.spark.unsafe.types.UTF8String;

/** The readers of scalar types. */
final class JsonScalars {
  private JsonScalars() {}

  /** Returns the reader of a scalar type's tree. */
  static JsonReader of(JsonNode type) {
    if (type.isObject()) {
      int precision = type.get("precision").asInt();
      int scale = type.get("scale").asInt();
      return in -> JsonDecimals.read(in, precision, scale);
    }
    return switch (type.asText()) {
      case "boolean" -> JsonScalars::bool;
      case "byte" -> in -> (byte) JsonNumbers.integer(in, Byte.MIN_VALUE, Byte.MAX_VALUE, "byte");
      case "short" -> in -> (short) JsonNumbers.integer(in, Short.MIN_VALUE, Short.MAX_VALUE, "short");
      case "int" -> in -> (int) JsonNumbers.integer(in, Integer.MIN_VALUE, Integer.MAX_VALUE, "int");
      case "long" -> in -> JsonNumbers.integer(in, Long.MIN_VALUE, Long.MAX_VALUE, "long");
      case "float" -> JsonNumbers::float32;
      case "double" -> JsonNumbers::float64;
      case "string" -> in -> UTF8String.fromBytes(text(in, "a string"));
      case "binary" -> JsonScalars::binary;
      case "date" -> JsonTimes::date;
      case "timestamp" -> JsonTimes::instant;
      case "timestamp_ntz" -> JsonTimes::local;
      default -> throw new IllegalArgumentException("no JSON reader for type " + type);
    };
  }

  private static Object bool(JsonCursor in) throws DecodeException {
    int next = in.peek();
    if (next != 't' && next != 'f') throw in.mismatch("true or false");
    in.skipLiteral();
    return next == 't';
  }

  static byte[] text(JsonCursor in, String wanted) throws DecodeException {
    if (in.peek() != '"') throw in.mismatch(wanted);
    return in.string();
  }

  /** Reads padded base64 (RFC 4648, section 4); bits that no byte needs must be zero. */
  static byte[] binary(JsonCursor in) throws DecodeException {
    if (in.peek() != '"') throw in.mismatch("base64 text");
    int start = in.at;
    byte[] text = in.string();
    try {
      byte[] bytes = Base64.getDecoder().decode(text);
      if (text.length % 4 == 0 && endsClean(text, bytes)) return bytes;
    } catch (IllegalArgumentException error) {
      // reported below, with the same words
    }
    throw DecodeException.mismatch(start, "expected padded base64");
  }

  private static boolean endsClean(byte[] text, byte[] bytes) {
    int rest = bytes.length % 3;
    if (rest == 0) return true;
    byte[] tail = Base64.getEncoder().encode(Arrays.copyOfRange(bytes, bytes.length - rest, bytes.length));
    return Arrays.equals(tail, 0, 4, text, text.length - 4, text.length);
  }
}
