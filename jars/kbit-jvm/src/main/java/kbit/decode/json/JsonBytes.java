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
  private static final long ZEROS = 0x3030303030303030L;
  private static final long ONES = 0x0101010101010101L;

  /** The digits of 255, and the least ones without a leading zero by their number; none are good where it is not 1 to 3. */
  private static final int MOST = 0x020505, NONE = Integer.MAX_VALUE;
  private static final int[] LEAST = {NONE, 0, 0x0100, 0x010000, NONE, NONE, NONE, NONE, NONE};

  /** Times digits with the last one in the highest byte, this has their value, up to 255, in the highest byte. */
  private static final int WEIGHTS = 0x640A01; // 100, 10, 1

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
      int first = Long.numberOfTrailingZeros(marks); // in bits, of the mark's own bit
      int second = Long.numberOfTrailingZeros(marks & marks - 1);
      int length = second - first - 1;
      long figures = word ^ ZEROS;
      int a = (int) figures << 7 - first; // the last digit in the highest byte
      int b = (int) (figures >>> first + 1) << 7 - length;
      int textA = Integer.reverseBytes(a); // compares as the text does
      int textB = Integer.reverseBytes(b);
      int unusual = MOST - textA | textA - LEAST[first >>> 3] | MOST - textB | textB - LEAST[length >>> 3 & 7] | 63 - second;
      int noDigits = a + 0x76767676 | a | b + 0x76767676 | b;
      if ((noDigits & 0x80808080 | unusual & Integer.MIN_VALUE) != 0) break;
      data[index] = (byte) (a * WEIGHTS >>> 24);
      data[index + 1] = (byte) (b * WEIGHTS >>> 24);
      index += 2;
      at += second + 1 >>> 3;
    }
    in.at = at;
    return index;
  }
}
