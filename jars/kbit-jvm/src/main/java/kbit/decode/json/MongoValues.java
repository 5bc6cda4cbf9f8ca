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
  private static final Set<String> IDS = Set.of("$oid", "$uuid");
  private static final Set<String> BYTES = Set.of("$binary", "$type", "$uuid");

  /** The reader of each wrapper whose form is known; a wrapper that no field wants is read and dropped. */
  static final Map<String, JsonReader> READERS =
      Map.of(
          "$oid", MongoValues::id,
          "$uuid", MongoValues::id,
          "$date", MongoValues::instant,
          "$binary", MongoValues::binary,
          "$numberInt", MongoNumbers::any,
          "$numberLong", MongoNumbers::any,
          "$numberDouble", MongoNumbers::any,
          "$numberDecimal", MongoNumbers::any);

  private MongoValues() {}

  /** Reads an object id as 24 hexadecimal digits, or a UUID as text with hyphens, both in lower case. */
  static UTF8String id(JsonCursor in) throws DecodeException {
    String name = MongoWrapper.open(in, IDS, "a string");
    String text = name.equals("$oid") ? matching(in, OID, "24 hexadecimal digits") : uuid(in);
    MongoWrapper.close(in, name);
    return UTF8String.fromString(text);
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
      ByteBuffer bytes = ByteBuffer.allocate(16);
      return bytes.putLong(uuid.getMostSignificantBits()).putLong(uuid.getLeastSignificantBits()).array();
    }
    if (!name.equals("$binary") || in.peek() != '{') return bytesAndType(in, name, "$binary", "$type");
    in.at++;
    if (in.peek() == '}') throw DecodeException.mismatch(in.at, "base64 and subType are absent");
    String first = member(in, "base64", "subType");
    byte[] bytes = bytesAndType(in, first, "base64", "subType");
    MongoWrapper.close(in, name);
    return bytes;
  }

  /** Reads both members, in either order, from behind the first name on to the end of their object. */
  private static byte[] bytesAndType(JsonCursor in, String name, String bytesName, String typeName)
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
    return bytes;
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
