package kbit.decode.avro;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import kbit.decode.DecodeException;
import kbit.decode.Decoder;

/** Decodes a bare Avro record: each of the writer's fields is read into its place in the row, or over. */
public final class AvroDecoder implements Decoder {
  private final int width;
  private final AvroReader[] readers;
  private final AvroNode[] skipped;
  private final int[] targets;

  public AvroDecoder(JsonNode plan) {
    width = plan.get("fields").size();
    JsonNode steps = plan.get("writer").get("fields");
    readers = new AvroReader[steps.size()];
    skipped = new AvroNode[steps.size()];
    targets = new int[steps.size()];
    Map<String, AvroNode> names = new HashMap<>();
    if (plan.get("writer").has("self")) AvroNode.of(plan.get("writer").get("self"), names);
    for (int i = 0; i < targets.length; i++) {
      JsonNode step = steps.get(i);
      targets[i] = step.path("target").asInt(-1);
      if (targets[i] >= 0) readers[i] = AvroReader.of(step.get("reader"));
      else skipped[i] = AvroNode.of(step.get("skip"), names);
    }
  }

  @Override
  public Object[] decode(byte[] payload, int start) throws DecodeException {
    AvroCursor in = new AvroCursor(payload);
    in.at = start;
    try {
      return readAll(in);
    } catch (DecodeException fault) {
      if (payload.length > 0 || !fault.code.equals("truncated")) throw fault;
      throw new DecodeException("empty_payload", 0, "the payload has no bytes");
    }
  }

  private Object[] readAll(AvroCursor in) throws DecodeException {
    Object[] row = new Object[width];
    for (int i = 0; i < targets.length; i++) {
      if (targets[i] >= 0) row[targets[i]] = readers[i].read(in);
      else skipped[i].skip(in, 1);
    }
    if (in.at < in.data.length) {
      throw new DecodeException("trailing_bytes", in.at, "bytes are left over behind the record");
    }
    return row;
  }
}
