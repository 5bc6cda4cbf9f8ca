package kbit.decode;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.math.BigDecimal;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.LongConsumer;
import kbit.decode.avro.AvroDecoder;
import kbit.decode.framing.FramedDecoder;
import kbit.decode.json.JsonDecoder;
import kbit.decode.proto.ProtoDecoder;
import org.apache.spark.sql.Row;

/** Makes decoders out of plans; Python writes the plans (kbit_spark/codecs). */
public final class Decoders {
  private static final ObjectMapper JSON = new ObjectMapper();

  private static final DateTimeFormatter MICROS = DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss.SSSSSS");

  private Decoders() {}

  /** {@code unresolved} gets the schema ids that a framed plan lacks. */
  public static Decoder of(String plan, LongConsumer unresolved) {
    JsonNode tree = parse(plan);
    return tree.get("format").asText().equals("framed") ? new FramedDecoder(tree, unresolved) : of(tree);
  }

  /** Makes the decoder of a body, which has no header. */
  public static Decoder of(JsonNode plan) {
    String format = plan.get("format").asText();
    return switch (format) {
      case "json" -> JsonDecoder.json(plan);
      case "mongo" -> JsonDecoder.mongo(plan);
      case "avro" -> new AvroDecoder(plan);
      case "protobuf" -> new ProtoDecoder(plan);
      default -> throw new IllegalArgumentException("no decoder for format " + format);
    };
  }

  /** Decodes many payloads and returns one JSON line for each: {"value": {...}} or {"error", "position", "reason"}. */
  public static List<String> decodeToJson(String plan, List<byte[]> payloads) throws JsonProcessingException {
    Decoder decoder = of(plan, id -> {});
    JsonNode fields = parse(plan).get("fields");
    List<String> lines = new ArrayList<>();
    for (byte[] payload : payloads) lines.add(JSON.writeValueAsString(describe(decoder, fields, payload)));
    return lines;
  }

  private static Map<String, Object> describe(Decoder decoder, JsonNode fields, byte[] payload) {
    Map<String, Object> line = new LinkedHashMap<>();
    try {
      Object[] values = decoder.decode(payload, 0);
      Map<String, Object> row = new LinkedHashMap<>();
      for (int i = 0; i < values.length; i++) row.put(fields.get(i).get("name").asText(), readable(values[i], fields.get(i).path("type")));
      line.put("value", row);
    } catch (DecodeException fault) {
      line.put("error", fault.code);
      line.put("position", fault.position);
      line.put("reason", fault.getMessage());
    }
    return line;
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

  private static JsonNode parse(String plan) {
    try {
      return JSON.readTree(plan);
    } catch (JsonProcessingException error) {
      throw new IllegalArgumentException("the decoder plan is no JSON: " + error.getOriginalMessage(), error);
    }
  }
}
