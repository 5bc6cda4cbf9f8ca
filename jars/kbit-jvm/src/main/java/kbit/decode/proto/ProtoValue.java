package kbit.decode.proto;

import com.fasterxml.jackson.databind.JsonNode;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import kbit.decode.DecodeException;
import kbit.decode.Tensor;
import kbit.decode.Utf8;
import org.apache.spark.unsafe.types.UTF8String;

/** Reads one value of a scalar field; the same for a field, an item of a list and a part of a map's entry. */
abstract class ProtoValue {
  /** Stands for a value that no column wants: it is there and well-formed. */
  static final Object PRESENT = Boolean.TRUE;

  final int wireType;

  private ProtoValue(int wireType) {
    this.wireType = wireType;
  }

  abstract Object read(ProtoCursor in) throws DecodeException;

  /** Returns the reader of a scalar field's plan: its {@code kind} on the wire and, if it is wanted, {@code read}. */
  static ProtoValue of(JsonNode plan) {
    String kind = plan.get("kind").asText();
    String read = plan.path("read").asText("check");
    return switch (kind) {
      case "string" -> read.equals("string") ? value(ProtoCursor.LENGTH, ProtoValue::text) : CHECKED_TEXT;
      case "bytes" -> bytes(read, plan);
      case "enum" -> enumeration(read, plan);
      default -> number(ProtoKind.of(kind), read);
    };
  }

  /** Reads the constant that a plan gives as the bytes which would be on the wire. */
  Object constant(String hex) {
    try {
      return read(new ProtoCursor(HexFormat.of().parseHex(hex), 0));
    } catch (DecodeException fault) {
      throw new IllegalArgumentException("the default " + hex + " cannot be read: " + fault.getMessage(), fault);
    }
  }

  private interface Reading {
    Object read(ProtoCursor in) throws DecodeException;
  }

  private static final ProtoValue CHECKED_TEXT =
      value(
          ProtoCursor.LENGTH,
          in -> {
            skipText(in);
            return PRESENT;
          });

  private static ProtoValue value(int wireType, Reading reading) {
    return new ProtoValue(wireType) {
      @Override
      Object read(ProtoCursor in) throws DecodeException {
        return reading.read(in);
      }
    };
  }

  private static ProtoValue number(ProtoKind kind, String read) {
    Reading reading =
        switch (read) {
          case "boolean" -> in -> kind.readLong(in) != 0;
          case "int" -> in -> (int) kind.readLong(in);
          case "long" -> kind == ProtoKind.UINT64 || kind == ProtoKind.FIXED64 ? in -> signed(kind, in) : kind::readLong;
          case "decimal" -> in -> unsigned(kind.readLong(in));
          case "float" -> in -> (float) kind.readDouble(in);
          case "double" -> kind::readDouble;
          default -> kind.isFloating() ? in -> check(kind.readDouble(in)) : in -> check(kind.readLong(in));
        };
    return value(kind.wireType, reading);
  }

  private static Object check(double ignored) {
    return PRESENT;
  }

  private static Object signed(ProtoKind kind, ProtoCursor in) throws DecodeException {
    int start = in.at;
    long value = kind.readLong(in);
    if (value < 0) throw DecodeException.overflow(start, "long");
    return value;
  }

  private static BigDecimal unsigned(long bits) {
    BigInteger low = BigInteger.valueOf(bits & Long.MAX_VALUE);
    return new BigDecimal(bits < 0 ? low.setBit(63) : low);
  }

  private static ProtoValue enumeration(String read, JsonNode plan) {
    Map<Long, UTF8String> symbols = new HashMap<>();
    plan.get("symbols").properties().forEach(
        symbol -> symbols.put(Long.valueOf(symbol.getKey()), UTF8String.fromString(symbol.getValue().asText())));
    boolean closed = plan.get("closed").asBoolean();
    return value(
        ProtoCursor.VARINT,
        in -> {
          int start = in.at;
          long number = ProtoKind.ENUM.readLong(in);
          UTF8String symbol = symbols.get(number);
          if (symbol == null && closed) throw new DecodeException("bad_enum", start, "the enum has no number " + number);
          if (read.equals("int")) return (int) number;
          return symbol == null ? UTF8String.fromString(Long.toString(number)) : symbol;
        });
  }

  private static ProtoValue bytes(String read, JsonNode plan) {
    if (read.equals("tensor")) {
      Tensor tensor = new Tensor(plan.get("tensor"));
      return value(
          ProtoCursor.LENGTH,
          in -> {
            int start = in.at;
            return tensor.checked(slice(in), start);
          });
    }
    if (read.equals("binary")) return value(ProtoCursor.LENGTH, ProtoValue::slice);
    return value(
        ProtoCursor.LENGTH,
        in -> {
          in.skipLength();
          return PRESENT;
        });
  }

  private static byte[] slice(ProtoCursor in) throws DecodeException {
    int length = in.readLength();
    in.at += length;
    return Arrays.copyOfRange(in.data, in.at - length, in.at);
  }

  private static UTF8String text(ProtoCursor in) throws DecodeException {
    int length = skipText(in);
    return UTF8String.fromBytes(in.data, in.at - length, length); // a view of the payload
  }

  private static int skipText(ProtoCursor in) throws DecodeException {
    int length = in.readLength();
    int fault = Utf8.firstFault(in.data, in.at, in.at + length);
    if (fault >= 0) throw new DecodeException("bad_utf8", fault, "the text is not well-formed UTF-8");
    in.at += length;
    return length;
  }
}
