package kbit.decode.json;

import com.fasterxml.jackson.databind.JsonNode;
import kbit.decode.DecodeException;
import kbit.decode.Decoder;

/** Decodes a JSON object, or a document in MongoDB Extended JSON v2, into a row. */
public final class JsonDecoder implements Decoder {
  private final JsonTypes types;
  private final JsonFields fields;

  private JsonDecoder(JsonNode plan, JsonTypes types) {
    this.types = types;
    fields = new JsonFields(plan.get("fields"), types, 1);
  }

  public static JsonDecoder json(JsonNode plan) {
    return new JsonDecoder(plan, new JsonTypes());
  }

  public static JsonDecoder mongo(JsonNode plan) {
    return new JsonDecoder(plan, new MongoTypes());
  }

  @Override
  public Object[] decode(byte[] payload, int start) throws DecodeException {
    JsonCursor in = types.cursor(payload);
    in.at = start;
    if (in.peek() < 0) throw new DecodeException("empty_payload", start, "there is nothing but white space");
    Object[] row = fields.read(in);
    if (in.peek() >= 0) throw new DecodeException("trailing_bytes", in.at, "bytes are left over behind the object");
    return row;
  }
}
