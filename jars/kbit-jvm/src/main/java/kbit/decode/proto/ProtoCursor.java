package kbit.decode.proto;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import kbit.decode.DecodeException;
import kbit.decode.Decoder;

/** A place in a Protobuf payload, the end of what may be read from there, and the checked reading of primitives. */
final class ProtoCursor {
  static final int VARINT = 0;
  static final int FIXED64 = 1;
  static final int LENGTH = 2;
  static final int GROUP = 3;
  static final int GROUP_END = 4;
  static final int FIXED32 = 5;

  private static final VarHandle INTS = view(int[].class);
  private static final VarHandle LONGS = view(long[].class);

  final byte[] data;
  int at;

  /** End of the message or packed run that is being read. */
  int limit;

  /** Where the last tag began, for errors about it. */
  int tagPosition;

  ProtoCursor(byte[] data, int start) {
    this.data = data;
    at = start;
    limit = data.length;
  }

  /** Reads a varint of up to 64 bits; needless zero groups are allowed within ten bytes. */
  long readVarint() throws DecodeException {
    if (at < limit && data[at] >= 0) return data[at++]; // one byte: most tags, lengths and small numbers
    int start = at;
    long value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at >= limit) throw truncated();
      byte next = data[at++];
      if (shift == 63 && (next & 0xfe) != 0) break;
      value |= (long) (next & 0x7f) << shift;
      if (next >= 0) return value;
    }
    throw new DecodeException("bad_varint", start, "a varint of more than 64 bits");
  }

  /** Reads a tag and returns {@code number << 3 | wireType}. */
  int readTag() throws DecodeException {
    tagPosition = at;
    long tag = readVarint();
    int wireType = (int) tag & 7;
    long number = tag >>> 3;
    if (number == 0 || number > 0x1fff_ffff) throw wrongTag("there is no field number " + Long.toUnsignedString(number));
    if (wireType > FIXED32) throw wrongTag("there is no wire type " + wireType);
    return (int) tag;
  }

  /** Reads a length of at most 2^31-1 and makes sure that so many bytes follow. */
  int readLength() throws DecodeException {
    int start = at;
    long length = readVarint();
    if (length < 0 || length > Integer.MAX_VALUE) {
      throw new DecodeException("bad_length", start, "a length of " + Long.toUnsignedString(length) + " cannot be right");
    }
    need((int) length);
    return (int) length;
  }

  int readFixed32() throws DecodeException {
    need(4);
    at += 4;
    return (int) INTS.get(data, at - 4);
  }

  long readFixed64() throws DecodeException {
    need(8);
    at += 8;
    return (long) LONGS.get(data, at - 8);
  }

  void need(int bytes) throws DecodeException {
    if (bytes > limit - at) throw truncated();
  }

  DecodeException truncated() {
    return DecodeException.truncated(data);
  }

  /** A tag that cannot be right. */
  DecodeException wrongTag(String reason) {
    return new DecodeException("wrong_wire_type", tagPosition, reason);
  }

  DecodeException unbalanced(int position, String reason) {
    return new DecodeException("unbalanced_group", position, reason);
  }

  /** Passes over the value of a field that the schema does not know; groups inside it must be balanced. */
  void skip(int tag, int depth) throws DecodeException {
    switch (tag & 7) {
      case VARINT -> readVarint();
      case FIXED64 -> advance(8);
      case FIXED32 -> advance(4);
      case LENGTH -> skipLength();
      case GROUP -> skipGroup(tag >>> 3, deeper(depth));
      default -> throw unbalanced(tagPosition, "the end of group " + (tag >>> 3) + ", which is not open here");
    }
  }

  void skipLength() throws DecodeException {
    int length = readLength(); // which moves `at`, so not within one `+=`
    at += length;
  }

  private void skipGroup(int number, int depth) throws DecodeException {
    int end = number << 3 | GROUP_END;
    for (int tag = readTagIn(number); tag != end; tag = readTagIn(number)) skip(tag, depth);
  }

  /** Reads the next tag of an open group. */
  int readTagIn(int number) throws DecodeException {
    if (at == limit) throw unbalanced(at, "the message ends while group " + number + " is open");
    return readTag();
  }

  int deeper(int depth) throws DecodeException {
    if (depth >= Decoder.MAX_DEPTH) throw DecodeException.tooDeep(at);
    return depth + 1;
  }

  private void advance(int bytes) throws DecodeException {
    need(bytes);
    at += bytes;
  }

  private static VarHandle view(Class<?> array) {
    return MethodHandles.byteArrayViewVarHandle(array, ByteOrder.LITTLE_ENDIAN);
  }
}
