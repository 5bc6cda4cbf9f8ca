package kbit.decode;

import com.fasterxml.jackson.databind.JsonNode;
import java.math.BigDecimal;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.sql.Row;

/** Shows decoded values as people and JSON read them: bytes in hexadecimal digits, times in UTC. */
public final class ReadableRow {
  private static final DateTimeFormatter MICROS = DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss.SSSSSS");

  private final JsonNode fields;

  /** {@code fields}: those of a decoder plan. */
  public ReadableRow(JsonNode fields) {
    this.fields = fields;
  }

  /** Returns the fields' values by name; {@code values} are in the order of the fields. */
  public Map<String, Object> of(Object[] values) {
    Map<String, Object> row = new LinkedHashMap<>();
    for (int i = 0; i < values.length; i++) row.put(fields.get(i).get("name").asText(), readable(values[i], fields.get(i).path("type")));
    return row;
  }

  private static Object readable(Object value, JsonNode type) {
    if (value instanceof byte[] bytes) return Map.of("$hex", HexFormat.of().formatHex(bytes));
    if (value instanceof Double || value instanceof Float) {
      double number = ((Number) value).doubleValue();
      return Double.isFinite(number) ? (Object) number : Double.toString(number);
    }
    if (value instanceof Object[] items) {
      return Arrays.stream(items).map(item -> readable(item, type.path("items"))).toList();
    }
    if (value instanceof Map<?, ?> map) {
      Map<String, Object> members = new LinkedHashMap<>();
      map.forEach((key, member) -> members.put(key.toString(), readable(member, type.path("values"))));
      return members;
    }
    if (value instanceof Row row) {
      Map<String, Object> members = new LinkedHashMap<>();
      for (int i = 0; i < row.size(); i++) {
        JsonNode field = type.get("fields").get(i);
        members.put(field.get("name").asText(), readable(row.get(i), field.get("type")));
      }
      return members;
    }
    if (value instanceof BigDecimal number) return number.toPlainString();
    if (value instanceof Instant instant) return MICROS.format(instant.atOffset(ZoneOffset.UTC)) + "Z";
    if (value instanceof LocalDateTime local) return MICROS.format(local);
    return value == null || value instanceof Number || value instanceof Boolean ? value : value.toString();
  }
}
