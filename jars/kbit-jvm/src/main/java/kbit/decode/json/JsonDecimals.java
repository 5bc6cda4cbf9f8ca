package kbit.decode.json;

import java.math.BigDecimal;
import java.math.BigInteger;
import kbit.decode.DecodeException;

/** Decimals: the digits of the text, never rounded; zeros at either end do not count. */
final class JsonDecimals {
  /** Exponents beyond it are all the same: no digit of theirs is near the point. Sums with a length do not overflow. */
  private static final long FAR = 1L << 40;

  private JsonDecimals() {}

  static BigDecimal read(JsonCursor in, int precision, int scale) throws DecodeException {
    int next = in.peek();
    if (next != '-' && !JsonCursor.isDigit(next)) throw in.mismatch("a number");
    int start = in.at;
    in.skipNumber();
    return parse(in.data, start, in.at, start, precision, scale);
  }

  /**
   * Returns the number that stands in {@code [from, to)}. However long the text is, no more than {@code precision}
   * digits are made into a number.
   *
   * @param position where a fault is reported
   */
  static BigDecimal parse(byte[] text, int from, int to, int position, int precision, int scale)
      throws DecodeException {
    int at = text[from] == '-' ? from + 1 : from;
    int first = -1; // first and last digit that is not zero
    int last = -1;
    int point = -1;
    int end = at;
    for (; end < to && (text[end] == '.' || JsonCursor.isDigit(text[end])); end++) {
      if (text[end] == '.') {
        point = end;
      } else if (text[end] != '0') {
        if (first < 0) first = end;
        last = end;
      }
    }
    if (first < 0) return new BigDecimal(BigInteger.ZERO, scale);
    if (point < 0) point = end;
    long exponent = end < to ? exponent(text, end + 1, to) : 0;
    long highest = powerOf(first, point) + exponent;
    long lowest = powerOf(last, point) + exponent;
    int whole = precision - scale;
    if (highest >= whole) throw DecodeException.overflow(position, "a decimal with " + whole + " whole digits");
    if (lowest < -scale) throw DecodeException.mismatch(position, "more digits behind the point than scale " + scale);
    StringBuilder digits = new StringBuilder(text[from] == '-' ? "-" : "");
    for (int i = first; i <= last; i++) if (text[i] != '.') digits.append((char) text[i]);
    return new BigDecimal(new BigInteger(digits.toString()), (int) -lowest).setScale(scale);
  }

  /** Returns the power of ten that a digit counts, by its place before or behind the point. */
  private static long powerOf(int digit, int point) {
    return digit < point ? point - digit - 1 : point - digit;
  }

  private static long exponent(byte[] text, int from, int to) {
    boolean negative = text[from] == '-';
    long value = 0;
    for (int i = negative || text[from] == '+' ? from + 1 : from; i < to; i++) {
      value = Math.min(value * 10 + text[i] - '0', FAR);
    }
    return negative ? -value : value;
  }
}
