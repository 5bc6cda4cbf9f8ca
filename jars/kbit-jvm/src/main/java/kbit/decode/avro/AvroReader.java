package kbit.decode.avro;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import kbit.decode.DecodeException;
import kbit.decode.Tensor;
import org.apache.spark.unsafe.types.UTF8String;

/** Reads a value of the writer's type as the type that a field wants. Python has resolved which reader fits. */
interface AvroReader {
  Object read(AvroCursor in) throws DecodeException;

  static AvroReader of(JsonNode plan) {
    String op = plan.get("read").asText();
    return switch (op) {
      case "null" -> in -> null;
      case "boolean" -> AvroCursor::readBoolean;
      case "int" -> AvroCursor::readInt;
      case "long" -> AvroCursor::readLong;
      case "float" -> AvroCursor::readFloat;
      case "double" -> AvroCursor::readDouble;
      case "int_as_long" -> in -> (long) in.readInt();
      case "int_as_float" -> in -> (float) in.readInt();
      case "int_as_double" -> in -> (double) in.readInt();
      case "long_as_float" -> in -> (float) in.readLong();
      case "long_as_double" -> in -> (double) in.readLong();
      case "float_as_double" -> in -> (double) in.readFloat();
      case "bytes" -> in -> in.readBytes(in.readLength());
      case "string_as_bytes" -> in -> text(in);
      case "string", "bytes_as_string" -> in -> UTF8String.fromBytes(text(in));
      case "fixed" -> {
        int size = plan.get("size").asInt();
        yield in -> in.readBytes(size);
      }
      case "enum" -> {
        UTF8String[] symbols = new UTF8String[plan.get("symbols").size()];
        for (int i = 0; i < symbols.length; i++) symbols[i] = UTF8String.fromString(plan.get("symbols").get(i).asText());
        yield in -> symbols[in.readIndex(symbols.length, "bad_enum", "symbol")];
      }
      case "list" -> list(of(plan.get("items")));
      case "union" -> union(plan.get("branches"));
      case "tensor_bytes" -> tensorBytes(new Tensor(plan.get("tensor")), plan.path("size").asInt(-1));
      case "tensor_list" -> new AvroTensorReader(new Tensor(plan.get("tensor")), plan.get("items").asText());
      case "mismatch" -> {
        String reason = plan.get("reason").asText();
        yield in -> {
          throw DecodeException.mismatch(in.at, reason);
        };
      }
      default -> throw new IllegalArgumentException("no Avro reader " + op);
    };
  }

  private static byte[] text(AvroCursor in) throws DecodeException {
    int length = in.readLength();
    in.skipText(length);
    in.at -= length;
    return in.readBytes(length);
  }

  private static AvroReader list(AvroReader item) {
    return in -> {
      List<Object> items = new ArrayList<>(); // grows with the payload, never by a count that it announces
      AvroBlocks blocks = new AvroBlocks(in);
      for (int count = blocks.next(); count != 0; count = blocks.next()) {
        for (int i = 0; i < count; i++) items.add(item.read(in));
      }
      return items.toArray();
    };
  }

  private static AvroReader union(JsonNode plans) {
    AvroReader[] branches = new AvroReader[plans.size()];
    for (int i = 0; i < branches.length; i++) branches[i] = of(plans.get(i));
    return in -> branches[in.readIndex(branches.length, "bad_union_index", "branch")].read(in);
  }

  /** Bytes ({@code size} -1) or a fixed that hold one tensor. */
  private static AvroReader tensorBytes(Tensor tensor, int size) {
    return in -> {
      int start = in.at;
      return tensor.checked(in.readBytes(size < 0 ? in.readLength() : size), start);
    };
  }
}
