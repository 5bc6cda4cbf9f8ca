package kbit.decode.json;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.regex.Pattern;
import kbit.decode.DecodeException;
import org.apache.spark.unsafe.types.UTF8String;

/** Wrapped values other than numbers: object ids, UUIDs, dates and bytes; the cursor is on the wrapper's brace. */
final class MongoValues {
  private static final Pattern OID = Pattern.compile("[0-9a-fA-F]{24}");
  private static final Pattern UUID_TEXT = Pattern.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}");
  private static final Pattern SUBTYPE = Pattern.compile("[0-9a-fA-F]{1,2}");
  private static final Set<String> DATE = Set.of("$date");
  private static final Set<String> MILLIS = Set.of("$numberLong");
  private static final Set<String> TEXTS = Set.of("$oid", "$uuid", "$symbol", "$binary", "$type");
  private static final int UUID_SUBTYPE = 4;
  private static final int UUID_BYTES = 16;
  private static final Set<String> BYTES = Set.of("$binary", "$type", "$uuid");

  /** The reader of each wrapper whose form is known; a wrapper that no field wants is read and dropped. */
  static final Map<String, JsonReader> READERS =
      Map.of(
          "$oid", MongoValues::text,
          "$uuid", MongoValues::text,
          "$symbol", MongoValues::text,
          "$date", MongoValues::instant,
          "$binary", MongoValues::binary,
          "$numberInt", MongoNumbers::any,
          "$numberLong", MongoNumbers::any,
          "$numberDouble", MongoNumbers::any,
          "$numberDecimal", MongoNumbers::any);

  private MongoValues() {}

  /** Reads a symbol, an object id as 24 hexadecimal digits, or a UUID, also in its bytes, as text in lower case. */
  static UTF8String text(JsonCursor in) throws DecodeException {
    int start = in.place();
    String name = MongoWrapper.open(in, TEXTS, "a string");
    if (name.equals("$binary") || name.equals("$type")) return uuid(binary(in, name), start);
    UTF8String text =
        switch (name) {
          case "$oid" -> UTF8String.fromString(matching(in, OID, "24 hexadecimal digits"));
          case "$uuid" -> UTF8String.fromString(uuid(in));
          default -> UTF8String.fromBytes(JsonScalars.text(in, "a string"));
        };
    MongoWrapper.close(in, name);
    return text;
  }

  private static UTF8String uuid(Binary binary, int position) throws DecodeException {
    if (binary.subtype != UUID_SUBTYPE || binary.bytes.length != UUID_BYTES) {
      throw DecodeException.mismatch(position, "expected a string, found bytes that are no UUID");
    }
    ByteBuffer bytes = ByteBuffer.wrap(binary.bytes);
    return UTF8String.fromString(new UUID(bytes.getLong(), bytes.getLong()).toString());
  }

  private static String uuid(JsonCursor in) throws DecodeException {
    return matching(in, UUID_TEXT, "a UUID with hyphens");
  }

  private static String matching(JsonCursor in, Pattern form, String wanted) throws DecodeException {
    int start = in.place();
    String text = new String(JsonScalars.text(in, wanted), StandardCharsets.UTF_8);
    if (!form.matcher(text).matches()) throw DecodeException.mismatch(start, "expected " + wanted);
    return text.toLowerCase(Locale.ROOT);
  }

  /** Reads {"$date": TEXT}, {"$date": {"$numberLong": MILLIS}} or, as older writers do, {"$date": MILLIS}. */
  static Instant instant(JsonCursor in) throws DecodeException {
    MongoWrapper.open(in, DATE, "a date");
    Instant instant = in.peek() == '"' ? JsonTimes.instant(in) : ofMillis(in);
    MongoWrapper.close(in, "$date");
    return instant;
  }

  private static Instant ofMillis(JsonCursor in) throws DecodeException {
    String name = in.peek() == '{' ? MongoWrapper.open(in, MILLIS, "milliseconds in $numberLong") : "";
    // Spark counts microseconds in 64 bits
    long bound = Long.MAX_VALUE / 1000;
    int position = in.place();
    long millis =
        name.isEmpty()
            ? JsonNumbers.integer(in, -bound, bound, "timestamp")
            : Long.parseLong(MongoNumbers.text(in, name));
    if (millis < -bound || millis > bound) throw DecodeException.overflow(position, "timestamp");
    if (!name.isEmpty()) MongoWrapper.close(in, name);
    return Instant.ofEpochMilli(millis);
  }

  /** Reads a date, which MongoDB keeps as the instant at which it begins in UTC. */
  static LocalDate date(JsonCursor in) throws DecodeException {
    int start = in.at;
    OffsetDateTime instant = instant(in).atOffset(ZoneOffset.UTC);
    if (instant.toLocalTime().equals(LocalTime.MIDNIGHT)) return instant.toLocalDate();
    throw DecodeException.mismatch(start, "an instant within a day for a date field");
  }

  /** Reads {"$binary": {"base64", "subType"}}, the older {"$binary", "$type"}, or the 16 bytes of a UUID. */
  static byte[] binary(JsonCursor in) throws DecodeException {
    String name = MongoWrapper.open(in, BYTES, "bytes");
    if (name.equals("$uuid")) {
      UUID uuid = UUID.fromString(uuid(in));
      MongoWrapper.close(in, name);
      ByteBuffer bytes = ByteBuffer.allocate(UUID_BYTES);
      return bytes.putLong(uuid.getMostSignificantBits()).putLong(uuid.getLeastSignificantBits()).array();
    }
    return binary(in, name).bytes;
  }

  private record Binary(byte[] bytes, int subtype) {}

  /** Reads bytes and subtype from behind the wrapper's first name on to its end. */
  private static Binary binary(JsonCursor in, String name) throws DecodeException {
    if (!name.equals("$binary") || in.peek() != '{') return bytesAndType(in, name, "$binary", "$type");
    in.at++;
    if (in.peek() == '}') throw DecodeException.mismatch(in.at, "base64 and subType are absent");
    String first = member(in, "base64", "subType");
    Binary binary = bytesAndType(in, first, "base64", "subType");
    MongoWrapper.close(in, name);
    return binary;
  }

  /** Reads both members, in either order, from behind the first name on to the end of their object. */
  private static Binary bytesAndType(JsonCursor in, String name, String bytesName, String typeName)
      throws DecodeException {
    byte[] bytes = null;
    String type = null;
    while (true) {
      if (name.equals(bytesName)) bytes = JsonScalars.binary(in);
      else type = matching(in, SUBTYPE, "a subtype of one or two hexadecimal digits");
      if (!in.more('}')) break;
      int start = in.place();
      name = member(in, bytesName, typeName);
      if (name.equals(bytesName) ? bytes != null : type != null) throw JsonCursor.repeated(start);
    }
    if (bytes == null || type == null) {
      throw DecodeException.mismatch(in.at - 1, (bytes == null ? bytesName : typeName) + " is absent");
    }
    return new Binary(bytes, Integer.parseInt(type, 16));
  }

  private static String member(JsonCursor in, String one, String other) throws DecodeException {
    int start = in.place();
    String name = new String(in.name(), StandardCharsets.UTF_8);
    boolean known = name.equals(one) || name.equals(other);
    if (!known) throw DecodeException.mismatch(start, "expected " + one + " or " + other);
    in.expect(':');
    return name;
  }
}
