package kbit.decode.proto;

import com.fasterxml.jackson.databind.JsonNode;
import kbit.decode.DecodeException;
import kbit.decode.Decoder;

/** Decodes a Protobuf message (proto2, proto3) of one type into a row; a payload of no bytes is a message of defaults. */
public final class ProtoDecoder implements Decoder {
  private final ProtoMessage root;

  public ProtoDecoder(JsonNode plan) {
    root = ProtoMessage.all(plan.get("messages")).get(plan.get("root").asText());
  }

  @Override
  public Object[] decode(byte[] payload, int start) throws DecodeException {
    ProtoCursor in = new ProtoCursor(payload, start);
    Object[] slots = root.slots();
    root.read(in, slots, 1);
    return root.finish(slots, in);
  }
}
