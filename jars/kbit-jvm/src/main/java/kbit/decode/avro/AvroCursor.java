package kbit.decode.avro;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;
import kbit.decode.DecodeException;
import kbit.decode.Utf8;
import org.apache.spark.unsafe.types.UTF8String;

/** A place in an Avro payload and the bounds-checked reading of primitives from there. */
final class AvroCursor {
  /** Items without a byte that one payload may hold: a count of them costs nothing, and would fill the memory. */
  private static final int MAX_EMPTY_ITEMS = 1 << 16;

  private static final VarHandle INTS = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);
  private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

  final byte[] data;
  int at;
  private int emptyItems;

  AvroCursor(byte[] data) {
    this.data = data;
  }

  /** Reads a zigzag varint of up to 64 bits. */
  long readLong() throws DecodeException {
    if (at < data.length && data[at] >= 0) { // one byte: most lengths, counts and pixels
      int small = data[at++];
      return (small >>> 1) ^ -(small & 1);
    }
    int start = at;
    long value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at >= data.length) throw DecodeException.truncated(data);
      byte next = data[at++];
      if (shift == 63 && (next & 0xfe) != 0) break;
      value |= (long) (next & 0x7f) << shift;
      if (next >= 0) return (value >>> 1) ^ -(value & 1);
    }
    throw new DecodeException("bad_varint", start, "a varint of more than 64 bits");
  }

  int readInt() throws DecodeException {
    int start = at;
    long value = readLong();
    if ((int) value != value) throw DecodeException.overflow(start, "int");
    return (int) value;
  }

  float readFloat() throws DecodeException {
    need(4);
    at += 4;
    return Float.intBitsToFloat((int) INTS.get(data, at - 4));
  }

  double readDouble() throws DecodeException {
    need(8);
    at += 8;
    return Double.longBitsToDouble((long) LONGS.get(data, at - 8));
  }

  boolean readBoolean() throws DecodeException {
    need(1);
    byte value = data[at];
    if (value != 0 && value != 1) throw DecodeException.mismatch(at, "a boolean is 0 or 1, not " + (value & 0xff));
    at++;
    return value == 1;
  }

  /** Reads a length of at most 2^31-1 and makes sure that so many bytes follow. */
  int readLength() throws DecodeException {
    int start = at;
    long length = readLong();
    if (length < 0 || length > Integer.MAX_VALUE) throw badLength(start, "a length of " + length);
    need((int) length);
    return (int) length;
  }

  byte[] readBytes(int length) throws DecodeException {
    need(length);
    at += length;
    return Arrays.copyOfRange(data, at - length, at);
  }

  /** Reads a string, which must be well-formed UTF-8; it is a view of the payload, and holds on to it. */
  UTF8String readString() throws DecodeException {
    int length = readLength();
    skipText(length);
    return UTF8String.fromBytes(data, at - length, length);
  }

  /** Reads the bytes of a string, which must be well-formed UTF-8. */
  byte[] readText() throws DecodeException {
    int length = readLength();
    skipText(length);
    return Arrays.copyOfRange(data, at - length, at);
  }

  void skip(int length) throws DecodeException {
    need(length);
    at += length;
  }

  /** Skips a string of so many bytes, which must be well-formed UTF-8. */
  void skipText(int length) throws DecodeException {
    int fault = Utf8.firstFault(data, at, at + length);
    if (fault >= 0) throw new DecodeException("bad_utf8", fault, "the text is not well-formed UTF-8");
    at += length;
  }

  /** Reads an index into {@code count} branches or symbols. */
  int readIndex(int count, String code, String what) throws DecodeException {
    int start = at;
    long index = readLong();
    if (index >= 0 && index < count) return (int) index;
    throw new DecodeException(code, start, "there is no " + what + " " + index + ", only 0 to " + (count - 1));
  }

  /** Counts an item that took no byte; {@code position}: the count that announced it. */
  void countEmptyItem(int position) throws DecodeException {
    if (++emptyItems > MAX_EMPTY_ITEMS) throw badLength(position, "more than " + MAX_EMPTY_ITEMS + " items of no bytes");
  }

  DecodeException badLength(int position, String what) {
    return new DecodeException("bad_length", position, what + " cannot be right");
  }

  private void need(int bytes) throws DecodeException {
    if (bytes > data.length - at) throw DecodeException.truncated(data);
  }
}
