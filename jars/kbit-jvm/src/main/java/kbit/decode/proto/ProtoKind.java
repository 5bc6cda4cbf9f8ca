package kbit.decode.proto;

import java.util.Locale;
import kbit.decode.DecodeException;

/** The scalar types of Protobuf that are numbers: their wire form and range. */
enum ProtoKind {
  INT32(ProtoCursor.VARINT),
  INT64(ProtoCursor.VARINT),
  UINT32(ProtoCursor.VARINT),
  UINT64(ProtoCursor.VARINT),
  SINT32(ProtoCursor.VARINT),
  SINT64(ProtoCursor.VARINT),
  BOOL(ProtoCursor.VARINT),
  ENUM(ProtoCursor.VARINT),
  FIXED32(ProtoCursor.FIXED32),
  SFIXED32(ProtoCursor.FIXED32),
  FLOAT(ProtoCursor.FIXED32),
  FIXED64(ProtoCursor.FIXED64),
  SFIXED64(ProtoCursor.FIXED64),
  DOUBLE(ProtoCursor.FIXED64);

  final int wireType;

  /** Bytes of an item, 0 for varints. */
  final int width;

  ProtoKind(int wireType) {
    this.wireType = wireType;
    width = wireType == ProtoCursor.FIXED32 ? 4 : wireType == ProtoCursor.FIXED64 ? 8 : 0;
  }

  static ProtoKind of(String name) {
    return valueOf(name.toUpperCase(Locale.ROOT));
  }

  boolean isFloating() {
    return this == FLOAT || this == DOUBLE;
  }

  /** Reads an integer, boolean or enum number; 64-bit unsigned numbers come as their bits. */
  long readLong(ProtoCursor in) throws DecodeException {
    int start = in.at;
    return switch (this) {
      case INT32, ENUM -> {
        long value = in.readVarint();
        yield inRange((int) value == value, value, start);
      }
      case UINT32 -> {
        long value = in.readVarint();
        yield inRange(value >>> 32 == 0, value, start);
      }
      case BOOL -> {
        long value = in.readVarint();
        yield inRange(value >>> 1 == 0, value, start);
      }
      case SINT32 -> {
        long value = in.readVarint();
        yield inRange(value >>> 32 == 0, (value >>> 1) ^ -(value & 1), start);
      }
      case SINT64 -> {
        long value = in.readVarint();
        yield (value >>> 1) ^ -(value & 1);
      }
      case INT64, UINT64 -> in.readVarint();
      case FIXED32 -> in.readFixed32() & 0xffff_ffffL;
      case SFIXED32 -> in.readFixed32();
      case FIXED64, SFIXED64 -> in.readFixed64();
      case FLOAT, DOUBLE -> throw new IllegalStateException("no integer: " + this);
    };
  }

  double readDouble(ProtoCursor in) throws DecodeException {
    return this == FLOAT ? Float.intBitsToFloat(in.readFixed32()) : Double.longBitsToDouble(in.readFixed64());
  }

  private long inRange(boolean good, long value, int position) throws DecodeException {
    if (good) return value;
    throw DecodeException.overflow(position, name().toLowerCase(Locale.ROOT));
  }
}
