package kbit.decode.avro;

import com.fasterxml.jackson.databind.JsonNode;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.UUID;
import kbit.decode.DecodeException;
import org.apache.spark.unsafe.types.UTF8String;

/** Readers of logical types, in the Java types that Spark has for them. */
final class AvroLogical {
  private static final long DAY_MILLIS = 86_400_000L;
  private static final int NANOS = 1_000_000_000;
  private static final int UUID_LENGTH = 36;
  private static final int UUID_BYTES = 16;

  private AvroLogical() {}

  static AvroReader date() {
    return in -> LocalDate.ofEpochDay(in.readInt());
  }

  /** A time of day as microseconds since midnight. */
  static AvroReader timeMillis() {
    return in -> {
      int start = in.at;
      return 1000 * timeOfDay(in.readInt(), DAY_MILLIS, start);
    };
  }

  static AvroReader timeMicros() {
    return in -> {
      int start = in.at;
      return timeOfDay(in.readLong(), 1000 * DAY_MILLIS, start);
    };
  }

  private static long timeOfDay(long value, long day, int start) throws DecodeException {
    if (value < 0 || value >= day) throw DecodeException.overflow(start, "a time of day");
    return value;
  }

  static AvroReader timestamp(int perSecond) {
    return in -> {
      long value = readTimestamp(in, perSecond);
      return Instant.ofEpochSecond(Math.floorDiv(value, perSecond), nanos(value, perSecond));
    };
  }

  static AvroReader localTimestamp(int perSecond) {
    return in -> {
      long value = readTimestamp(in, perSecond);
      long seconds = Math.floorDiv(value, perSecond);
      return LocalDateTime.ofEpochSecond(seconds, nanos(value, perSecond), ZoneOffset.UTC);
    };
  }

  private static long readTimestamp(AvroCursor in, int perSecond) throws DecodeException {
    int start = in.at;
    long value = in.readLong();
    boolean millis = perSecond == 1000;
    if (millis && (value > Long.MAX_VALUE / 1000 || value < Long.MIN_VALUE / 1000)) {
      throw DecodeException.overflow(start, "64-bit microseconds");
    }
    return value;
  }

  private static int nanos(long value, int perSecond) {
    return (int) Math.floorMod(value, (long) perSecond) * (NANOS / perSecond);
  }

  /** A decimal in bytes ({@code size} -1) or a fixed: a big-endian two's complement of its digits. */
  static AvroReader decimal(JsonNode plan) {
    int scale = plan.get("scale").asInt();
    int size = plan.get("size").asInt();
    int precision = plan.get("precision").asInt();
    BigInteger limit = BigInteger.TEN.pow(precision);
    return in -> {
      int start = in.at;
      byte[] digits = in.readBytes(size < 0 ? in.readLength() : size);
      if (digits.length == 0) throw in.badLength(start, "a decimal of no bytes");
      BigInteger unscaled = new BigInteger(digits);
      if (unscaled.abs().compareTo(limit) >= 0) throw DecodeException.overflow(start, "a decimal of " + precision + " digits");
      return new BigDecimal(unscaled, scale);
    };
  }

  /** A UUID as text ({@code size} -1) or 16 bytes; text comes out in lower case. */
  static AvroReader uuid(int size) {
    if (size < 0) return AvroLogical::uuidText;
    return in -> {
      ByteBuffer bytes = ByteBuffer.wrap(in.readBytes(UUID_BYTES));
      return UTF8String.fromString(new UUID(bytes.getLong(), bytes.getLong()).toString());
    };
  }

  private static Object uuidText(AvroCursor in) throws DecodeException {
    int start = in.at;
    byte[] text = in.readText();
    boolean good = text.length == UUID_LENGTH;
    for (int i = 0; good && i < UUID_LENGTH; i++) {
      boolean hyphen = i == 8 || i == 13 || i == 18 || i == 23;
      good = hyphen ? text[i] == '-' : Character.digit(text[i], 16) >= 0;
      text[i] = (byte) Character.toLowerCase(text[i]);
    }
    if (!good) throw DecodeException.mismatch(start, "the text is no UUID");
    return UTF8String.fromBytes(text);
  }
}
