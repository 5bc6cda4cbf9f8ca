package kbit.decode.json;

import java.nio.charset.StandardCharsets;
import java.time.DateTimeException;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.util.regex.Pattern;
import kbit.decode.DecodeException;

/** Dates and times as text, in the form of RFC 3339: whole, with capitals, up to microseconds. */
final class JsonTimes {
  private static final String DATE = "\\d{4}-\\d{2}-\\d{2}";
  // Spark keeps microseconds: digits behind the sixth are taken only where they are zeros, so nothing is rounded
  private static final String LOCAL = DATE + "T\\d{2}:\\d{2}:\\d{2}(\\.\\d{1,6}0{0,3})?";
  private static final Pattern DATE_TEXT = Pattern.compile(DATE);
  private static final Pattern LOCAL_TEXT = Pattern.compile(LOCAL);
  private static final Pattern INSTANT_TEXT = Pattern.compile(LOCAL + "(Z|[+-]\\d{2}:\\d{2})");

  private JsonTimes() {}

  private interface Parsing<T> {
    T parse(String text);
  }

  static LocalDate date(JsonCursor in) throws DecodeException {
    return read(in, DATE_TEXT, LocalDate::parse, "a date as YYYY-MM-DD");
  }

  /** Reads an instant; it needs a zone. */
  static Instant instant(JsonCursor in) throws DecodeException {
    return read(in, INSTANT_TEXT, JsonTimes::instant, "an instant as YYYY-MM-DDTHH:MM:SS.ffffff with Z or an offset");
  }

  /** Reads a local time; it has no zone. */
  static LocalDateTime local(JsonCursor in) throws DecodeException {
    return read(in, LOCAL_TEXT, LocalDateTime::parse, "a local time as YYYY-MM-DDTHH:MM:SS.ffffff without a zone");
  }

  private static Instant instant(String text) {
    return OffsetDateTime.parse(text).toInstant();
  }

  private static <T> T read(JsonCursor in, Pattern form, Parsing<T> parsing, String wanted) throws DecodeException {
    int start = in.place();
    String text = new String(JsonScalars.text(in, wanted), StandardCharsets.UTF_8);
    try {
      if (form.matcher(text).matches()) return parsing.parse(text);
    } catch (DateTimeException error) {
      // no such day or hour; reported below, with the same words
    }
    throw DecodeException.mismatch(start, "expected " + wanted);
  }
}
