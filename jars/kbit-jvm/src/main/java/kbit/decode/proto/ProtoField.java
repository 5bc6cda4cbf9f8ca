package kbit.decode.proto;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Locale;
import java.util.Map;
import kbit.decode.DecodeException;
import kbit.decode.Tensor;

/** A field that the schema knows. Its slot grows with each occurrence and becomes a value when the message ends. */
abstract class ProtoField {
  /** Slots of the other members of its oneof. */
  int[] rivals = {};

  abstract boolean takes(int wireType);

  /** Reads one occurrence behind its tag and returns what the slot now holds; {@code slot} is null at the first. */
  abstract Object read(ProtoCursor in, int tag, Object slot, int depth) throws DecodeException;

  /** Returns the value of a slot that is not null. */
  Object finish(Object slot, ProtoCursor in) throws DecodeException {
    return slot;
  }

  /** Returns the value of a field that never occurred, null where that is no value. */
  Object absent(ProtoCursor in) throws DecodeException {
    return null;
  }

  static ProtoField of(JsonNode plan, Map<String, ProtoMessage> messages) {
    boolean wanted = plan.get("wanted").asBoolean();
    String kind = plan.get("kind").asText();
    boolean repeated = plan.get("repeated").asBoolean();
    if (kind.equals("map")) return new ProtoMapField(messages.get(plan.get("message").asText()), wanted);
    if (kind.equals("message") || kind.equals("group")) {
      ProtoMessage message = messages.get(plan.get("message").asText());
      boolean group = kind.equals("group");
      if (plan.has("read")) {
        ProtoWellKnown single = ProtoWellKnown.valueOf(plan.get("read").asText().toUpperCase(Locale.ROOT));
        return repeated
            ? new ProtoSingleField.Many(message, single)
            : new ProtoSingleField(message, single, plan.path("always").asBoolean());
      }
      return repeated
          ? new ProtoMessageField.Many(message, group, wanted)
          : new ProtoMessageField(message, group, plan.path("always").asBoolean());
    }
    if (repeated && plan.path("read").asText().equals("tensor")) {
      return new ProtoTensorField(new Tensor(plan.get("tensor")), ProtoKind.of(kind));
    }
    ProtoValue value = ProtoValue.of(plan);
    return repeated ? new ProtoListField(value, wanted) : new Single(value, plan.path("default").asText(null));
  }

  private static final class Single extends ProtoField {
    private final ProtoValue value;
    private final Object constant;

    Single(ProtoValue value, String constant) {
      this.value = value;
      this.constant = constant == null ? null : value.constant(constant);
    }

    @Override
    boolean takes(int wireType) {
      return wireType == value.wireType;
    }

    @Override
    Object read(ProtoCursor in, int tag, Object slot, int depth) throws DecodeException {
      return value.read(in);
    }

    @Override
    Object absent(ProtoCursor in) {
      return constant;
    }
  }
}
