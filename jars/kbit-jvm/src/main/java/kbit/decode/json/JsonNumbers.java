package kbit.decode.json;

import java.nio.charset.StandardCharsets;
import kbit.decode.DecodeException;

/** Numbers: integers exactly, floating point to the nearest value. */
final class JsonNumbers {
  private static final double[] POWERS = {
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
    1e20, 1e21, 1e22
  };
  private static final long EXACT = 1L << 53;

  private JsonNumbers() {}

  /** Reads an integer within {@code [min, max]}. */
  static long integer(JsonCursor in, long min, long max, String type) throws DecodeException {
    int next = in.peek();
    if (next != '-' && !JsonCursor.isDigit(next)) throw in.mismatch("an integer");
    byte[] data = in.data;
    int start = in.at;
    boolean negative = next == '-';
    int at = negative ? start + 1 : start;
    int first = at;
    long value = 0;
    while (at < data.length && at - first < 18 && JsonCursor.isDigit(data[at])) value = value * 10 + data[at++] - '0';
    boolean plain = at > first && (data[first] != '0' || at == first + 1) && at < data.length && !goesOn(data[at]);
    if (!plain) return slowInteger(in, min, max, type);
    if (negative) value = -value;
    if (value < min || value > max) throw DecodeException.overflow(start, type);
    in.at = at;
    return value;
  }

  private static boolean goesOn(byte next) {
    return JsonCursor.isDigit(next) || next == '.' || next == 'e' || next == 'E';
  }

  private static long slowInteger(JsonCursor in, long min, long max, String type) throws DecodeException {
    int start = in.at;
    if (!in.skipNumber()) throw DecodeException.mismatch(start, "a fraction or exponent for an integer field");
    String text = new String(in.data, start, in.at - start, StandardCharsets.ISO_8859_1);
    try {
      long value = Long.parseLong(text);
      if (value >= min && value <= max) return value;
    } catch (NumberFormatException error) {
      // more digits than a long has; reported below
    }
    throw DecodeException.overflow(start, type);
  }

  static Object float64(JsonCursor in) throws DecodeException {
    return number(in, "double");
  }

  static Object float32(JsonCursor in) throws DecodeException {
    return single(in);
  }

  /** Reads any number as the nearest float. */
  static float single(JsonCursor in) throws DecodeException {
    int start = in.place();
    double near = number(in, "float");
    // The double is the nearest one, so its float is too, unless it fell on the middle between two floats
    boolean normal = Math.abs(near) >= Float.MIN_NORMAL && Math.abs(near) < Float.MAX_VALUE;
    if (near == 0 || normal && (Double.doubleToRawLongBits(near) & 0x1fffffffL) != 0x10000000L) return (float) near;
    float value = Float.parseFloat(new String(in.data, start, in.at - start, StandardCharsets.ISO_8859_1));
    if (Float.isInfinite(value)) throw DecodeException.overflow(start, "float");
    return value;
  }

  /** Reads any number as the nearest double; up to 15 digits without help of the library. */
  static double number(JsonCursor in, String type) throws DecodeException {
    int next = in.peek();
    if (next != '-' && !JsonCursor.isDigit(next)) throw in.mismatch("a number");
    int start = in.at;
    in.skipNumber();
    long digits = 0;
    int scale = 0;
    boolean fraction = false;
    boolean simple = in.at - start <= 17;
    for (int i = next == '-' ? start + 1 : start; simple && i < in.at; i++) {
      byte character = in.data[i];
      if (character == '.') fraction = true;
      else if (JsonCursor.isDigit(character)) {
        digits = digits * 10 + character - '0';
        if (fraction) scale++;
      } else simple = false;
    }
    double value;
    if (simple && digits < EXACT) {
      value = digits / POWERS[scale]; // both exact, so one rounding: the nearest double
      if (next == '-') value = -value;
    } else {
      value = Double.parseDouble(new String(in.data, start, in.at - start, StandardCharsets.ISO_8859_1));
    }
    if (Double.isInfinite(value)) throw DecodeException.overflow(start, type);
    return value;
  }
}
