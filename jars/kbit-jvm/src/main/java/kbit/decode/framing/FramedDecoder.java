package kbit.decode.framing;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.Set;
import java.util.function.LongConsumer;
import kbit.decode.DecodeException;
import kbit.decode.Decoder;
import kbit.decode.Decoders;
import kbit.decode.proto.MessageIndexes;

/** Decodes payloads whose header names the schema of the body. The header is judged before the body. */
public final class FramedDecoder implements Decoder {
  private final Header header;
  private final boolean indexed;
  private final boolean resolvable;
  private final Map<Long, JsonNode> schemas = new HashMap<>();
  private final Set<Long> unknown = new HashSet<>();
  private final Map<JsonNode, Decoder> bodies = new IdentityHashMap<>();
  private final LongConsumer unresolved;

  /**
   * @param unresolved gets each schema id that the plan neither holds nor calls unknown; its records fail with the
   *     code {@code unresolved_schema}, which is for the driver and never for a table
   */
  public FramedDecoder(JsonNode plan, LongConsumer unresolved) {
    header = Header.of(plan.get("framing").asText());
    indexed = plan.get("indexed").asBoolean();
    resolvable = plan.get("resolvable").asBoolean();
    plan.get("schemas").properties()
        .forEach(schema -> schemas.put(Long.parseUnsignedLong(schema.getKey()), schema.getValue()));
    plan.get("unknown").forEach(id -> unknown.add(id.asLong()));
    this.unresolved = unresolved;
  }

  @Override
  public Object[] decode(byte[] payload, int start) throws DecodeException {
    long id = header.read(payload, start);
    int body = start + header.length;
    String path = null;
    if (indexed) {
      MessageIndexes indexes = MessageIndexes.read(payload, body);
      body = indexes.end;
      path = indexes.path;
    }
    JsonNode schema = schemas.get(id);
    if (schema == null) throw absent(id, start + header.idPosition);
    if (indexed && schema.has("messages")) {
      schema = schema.get("messages").get(path);
      if (schema == null) {
        throw new DecodeException("bad_framing", start + header.length, "schema " + id + " has no message [" + path + "]");
      }
    }
    return body(schema, body).decode(payload, body);
  }

  private Decoder body(JsonNode schema, int position) throws DecodeException {
    JsonNode refused = schema.get("refused");
    if (refused != null) {
      throw new DecodeException(refused.get("code").asText(), position, refused.get("reason").asText());
    }
    // made when it is first needed: a topic may have hundreds of schemas, a task sees few
    return bodies.computeIfAbsent(schema, known -> Decoders.of(known.get("plan")));
  }

  private DecodeException absent(long id, int position) {
    if (!resolvable || id < 0 || unknown.contains(id)) {
      return new DecodeException("unknown_schema", position, "there is no schema " + header.show(id));
    }
    unresolved.accept(id);
    return new DecodeException("unresolved_schema", position, "schema " + id + " was not asked for yet");
  }
}
