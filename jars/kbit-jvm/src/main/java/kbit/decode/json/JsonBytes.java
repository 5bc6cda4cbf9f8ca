package kbit.decode.json;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/**
 * The hot path of images written as numbers: lists of 0 to 255 without white space, eight characters at a time. Commas are
 * found by arithmetic, because a branch on each character would be guessed wrong too often. Whatever looks unusual is
 * left to the general reader, which alone knows what is an error.
 */
final class JsonBytes {
  private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
  private static final long FOUR_ZEROS = 0x2C302C302C302C30L; // "0,0,0,0,"
  private static final long COMMAS = 0x2C2C2C2C2C2C2C2CL;
  private static final long ONES = 0x0101010101010101L;

  /** Least value of a number without leading zeros, by its number of digits; none is good with no digit or above three. */
  private static final int[] LEAST = {256, 0, 10, 100, 256, 256, 256, 256, 256};

  private JsonBytes() {}

  /** Reads items into {@code data} from {@code index} on, at most to {@code end - 4}; returns the index reached. */
  static int read(JsonCursor in, byte[] data, int index, int end) {
    byte[] text = in.data;
    int at = in.at;
    int last = text.length - 8;
    while (index < end - 4 && at <= last) {
      long word = (long) LONGS.get(text, at);
      if (word == FOUR_ZEROS) {
        index += 4; // the array is made of zeros
        at += 8;
        continue;
      }
      long commas = word ^ COMMAS;
      long marks = commas - ONES & ~commas & 0x8080808080808080L;
      int first = Long.numberOfTrailingZeros(marks) >>> 3;
      int second = Long.numberOfTrailingZeros(marks & marks - 1) >>> 3;
      int length = second - first - 1 & 7;
      int a = digits((int) word, first);
      int b = digits((int) (word >>> (first + 1 << 3)), length);
      int valueA = value(a);
      int valueB = value(b);
      int unusual = 255 - valueA | valueA - LEAST[first] | 255 - valueB | valueB - LEAST[length];
      if (((a + 0x76767676 | a | b + 0x76767676 | b) & 0x80808080 | unusual >>> 31) != 0 || second > 7) break;
      data[index] = (byte) valueA;
      data[index + 1] = (byte) valueB;
      index += 2;
      at += second + 1;
    }
    in.at = at;
    return index;
  }

  /** Turns the first {@code length} characters into digits of 0 to 9, the last one in the highest byte. */
  private static int digits(int characters, int length) {
    return (characters ^ 0x30303030) << (4 - length << 3);
  }

  private static int value(int digits) {
    return (digits >> 8 & 0xFF) * 100 + (digits >> 16 & 0xFF) * 10 + (digits >>> 24);
  }
}
