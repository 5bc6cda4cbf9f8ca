package kbit.decode.json;

import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import kbit.decode.DecodeException;

/** Numbers, plain or in one of the four wrappers. An integer is a floating-point number too, but never the reverse. */
final class MongoNumbers {
  private static final Set<String> INTEGERS = Set.of("$numberInt", "$numberLong");
  private static final Set<String> FLOATING = Set.of("$numberInt", "$numberLong", "$numberDouble");
  private static final Set<String> ALL = Set.of("$numberInt", "$numberLong", "$numberDouble", "$numberDecimal");
  private static final Set<String> NOT_FINITE = Set.of("NaN", "Infinity", "-Infinity");
  private static final byte[] INT = "{\"$numberInt\":\"".getBytes(StandardCharsets.US_ASCII);

  private MongoNumbers() {}

  /** Reads an integer within {@code [min, max]}. */
  static long integer(JsonCursor in, long min, long max, String type) throws DecodeException {
    if (in.peek() != '{') return JsonNumbers.integer(in, min, max, type);
    int end = compact(in);
    if (end > 0) {
      long value = digits(in.data, in.at + INT.length, end);
      if (value >= min && value <= max) {
        in.at = end + 2;
        return value;
      }
    }
    String name = MongoWrapper.open(in, INTEGERS, "an integer");
    int position = in.place();
    long value = Long.parseLong(text(in, name));
    if (value < min || value > max) throw DecodeException.overflow(position, type);
    MongoWrapper.close(in, name);
    return value;
  }

  /**
   * The hot path of lists of wrapped numbers: {"$numberInt":"DIGITS"} without white space. Returns the index behind up
   * to nine digits; 0 if anything looks unusual, which is left to the general reader.
   */
  private static int compact(JsonCursor in) {
    byte[] data = in.data;
    int first = in.at + INT.length;
    if (first + 11 > data.length) return 0;
    for (int i = 0; i < INT.length; i++) if (data[in.at + i] != INT[i]) return 0;
    int at = first;
    while (at < first + 9 && JsonCursor.isDigit(data[at])) at++;
    boolean plain = at > first && (data[first] != '0' || at == first + 1);
    return plain && data[at] == '"' && data[at + 1] == '}' ? at : 0;
  }

  private static long digits(byte[] data, int from, int to) {
    long value = 0;
    for (int i = from; i < to; i++) value = value * 10 + data[i] - '0';
    return value;
  }

  static Object float64(JsonCursor in) throws DecodeException {
    return number(in, "double");
  }

  static Object float32(JsonCursor in) throws DecodeException {
    return single(in);
  }

  /** Reads a plain or wrapped number as the nearest double. */
  static double number(JsonCursor in, String type) throws DecodeException {
    if (in.peek() != '{') return JsonNumbers.number(in, type);
    String name = MongoWrapper.open(in, FLOATING, "a number");
    int position = in.place();
    String text = text(in, name);
    double value = Double.parseDouble(text);
    if (Double.isInfinite(value) && !NOT_FINITE.contains(text)) throw DecodeException.overflow(position, type);
    MongoWrapper.close(in, name);
    return value;
  }

  /** Reads a plain or wrapped number as the nearest float. */
  static float single(JsonCursor in) throws DecodeException {
    if (in.peek() != '{') return JsonNumbers.single(in);
    String name = MongoWrapper.open(in, FLOATING, "a number");
    int position = in.place();
    String text = text(in, name);
    float value = Float.parseFloat(text);
    if (Float.isInfinite(value) && !NOT_FINITE.contains(text)) throw DecodeException.overflow(position, "float");
    MongoWrapper.close(in, name);
    return value;
  }

  /** Reads a wrapped number by its digits. */
  static BigDecimal decimal(JsonCursor in, int precision, int scale) throws DecodeException {
    String name = MongoWrapper.open(in, ALL, "a number");
    int position = in.place();
    String text = text(in, name);
    if (NOT_FINITE.contains(text)) throw DecodeException.mismatch(position, text + " for a decimal field");
    byte[] digits = text.getBytes(StandardCharsets.US_ASCII);
    BigDecimal value = JsonDecimals.parse(digits, 0, digits.length, position, precision, scale);
    MongoWrapper.close(in, name);
    return value;
  }

  /** Reads any wrapped number, only to check it. */
  static Object any(JsonCursor in) throws DecodeException {
    String name = MongoWrapper.open(in, ALL, "a number");
    String text = text(in, name);
    MongoWrapper.close(in, name);
    return text;
  }

  /** Reads the text in the wrapper {@code name}: a number as JSON writes it, within the range of the wrapper. */
  static String text(JsonCursor in, String name) throws DecodeException {
    int position = in.place();
    byte[] text = JsonScalars.text(in, "a number as text");
    String number = new String(text, StandardCharsets.UTF_8);
    boolean integer = INTEGERS.contains(name);
    if (!integer && NOT_FINITE.contains(number)) return number;
    JsonCursor inner = new JsonCursor(text);
    if (!isNumber(inner, integer)) throw DecodeException.mismatch(position, "the text is no number for " + name);
    if (!integer) return number;
    inner.at = 0;
    long bound = name.equals("$numberInt") ? Integer.MAX_VALUE : Long.MAX_VALUE;
    try {
      JsonNumbers.integer(inner, -bound - 1, bound, name);
    } catch (DecodeException fault) {
      throw DecodeException.overflow(position, name);
    }
    return number;
  }

  private static boolean isNumber(JsonCursor text, boolean integer) {
    try {
      return text.data.length > 0 && (text.skipNumber() || !integer) && text.at == text.data.length;
    } catch (DecodeException fault) {
      return false;
    }
  }
}
