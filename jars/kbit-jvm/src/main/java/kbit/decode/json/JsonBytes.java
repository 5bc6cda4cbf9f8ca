package kbit.decode.json;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/**
 * The hot path of images written as numbers: lists of 0 to 255, as compact JSON has them or with a space behind each comma.
 * All commas of 64 characters are found first, by arithmetic: then no number waits for the one before it, and nothing
 * branches on a character, which would be guessed wrong too often. Whatever looks unusual is left to the general reader,
 * which alone knows what is an error.
 */
final class JsonBytes {
  private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
  private static final VarHandle INTS = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);
  private static final int BLOCK = 64;
  private static final long FOUR_ZEROS = 0x2C302C302C302C30L; // "0,0,0,0,"
  private static final long LOW = 0x7F7F7F7F7F7F7F7FL;
  private static final int LONGEST = 3;

  /** Least value of a number without leading zeros, by its number of digits; nothing is good without a digit. */
  private static final int[] LEAST = {256, 0, 10, 100};

  private JsonBytes() {}

  /** Reads items into {@code data} from {@code index} on, not all up to {@code end}; returns the index reached. */
  static int read(JsonCursor in, byte[] data, int index, int end) {
    byte[] text = in.data;
    int last = text.length - BLOCK;
    if (in.at < LONGEST || in.at > last) return index;
    int space = spaceBehindComma(text, in.at);
    int at = in.at;
    while (at <= last && index < end - 4) {
      if ((long) LONGS.get(text, at) == FOUR_ZEROS) {
        index += 4; // the array is made of zeros
        at += 8;
        continue;
      }
      long commas = places(text, at, ',');
      if (space != 0) {
        commas &= Long.MAX_VALUE; // a space belongs to the last one
        if (places(text, at, ' ') != commas << 1) break;
      }
      int count = Math.min(Long.bitCount(commas), end - 1 - index) & -4; // few different counts, so that they are guessed
      int next = numbers(text, at, commas, space, count, data, index);
      if (next <= at) break;
      index += count;
      at = next;
    }
    in.at = at;
    return index;
  }

  private static int spaceBehindComma(byte[] text, int at) {
    for (int i = at; i <= at + LONGEST; i++) {
      if (text[i] == ',') return text[i + 1] == ' ' ? 1 : 0;
    }
    return 0;
  }

  /** Reads {@code count} numbers; returns where the next one begins, or 0 where these are not as usual. */
  private static int numbers(byte[] text, int at, long commas, int space, int count, byte[] data, int index) {
    int start = at;
    int notDigits = 0; // the highest bits of its bytes tell
    int wrong = 0; // its sign tells
    for (int i = 0; i < count; i++) {
      int stop = at + Long.numberOfTrailingZeros(commas);
      commas &= commas - 1;
      int length = stop - start;
      // the number's characters as digits of 0 to 9, the last one in the highest byte
      int digits = ((int) INTS.get(text, stop - 4) ^ 0x30303030) & -1 << (4 - length << 3);
      int value = (digits >> 8 & 0xFF) * 100 + (digits >> 16 & 0xFF) * 10 + (digits >>> 24);
      notDigits |= digits + 0x76767676 | digits;
      wrong |= 255 - value | value - LEAST[length & 3] | LONGEST - length;
      data[index + i] = (byte) value;
      start = stop + 1 + space;
    }
    return (notDigits & 0x80808080 | wrong & 0x80000000) == 0 ? start : 0;
  }

  /** Returns a bit for each of the 64 characters from {@code at} on, the first one in the lowest. */
  private static long places(byte[] text, int at, char character) {
    long pattern = character * 0x0101010101010101L;
    long bits = 0;
    for (int i = 0; i < 8; i++) {
      long other = (long) LONGS.get(text, at + 8 * i) ^ pattern;
      long equal = ~((other & LOW) + LOW | other | LOW) >>> 7; // 1 in the bytes that are equal
      bits |= (equal * 0x0102040810204080L >>> 56) << 8 * i;
    }
    return bits;
  }
}
