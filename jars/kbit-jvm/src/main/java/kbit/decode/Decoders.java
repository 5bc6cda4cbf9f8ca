package kbit.decode;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.LongConsumer;
import kbit.decode.avro.AvroDecoder;
import kbit.decode.framing.FramedDecoder;
import kbit.decode.json.JsonDecoder;
import kbit.decode.proto.ProtoDecoder;

/** Makes decoders out of plans; Python writes the plans (kbit_spark/codecs). */
public final class Decoders {
  private static final ObjectMapper JSON = new ObjectMapper();

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
    ReadableRow readable = readable(plan);
    List<String> lines = new ArrayList<>();
    for (byte[] payload : payloads) lines.add(JSON.writeValueAsString(describe(decoder, readable, payload)));
    return lines;
  }

  /** Returns what shows the values that this plan's decoder gives. */
  public static ReadableRow readable(String plan) {
    return new ReadableRow(parse(plan).get("fields"));
  }

  private static Map<String, Object> describe(Decoder decoder, ReadableRow readable, byte[] payload) {
    Map<String, Object> line = new LinkedHashMap<>();
    try {
      line.put("value", readable.of(decoder.decode(payload, 0)));
    } catch (DecodeException fault) {
      line.put("error", fault.code);
      line.put("position", fault.position);
      line.put("reason", fault.getMessage());
    }
    return line;
  }

  private static JsonNode parse(String plan) {
    try {
      return JSON.readTree(plan);
    } catch (JsonProcessingException error) {
      throw new IllegalArgumentException("the decoder plan is no JSON: " + error.getOriginalMessage(), error);
    }
  }
}
