package kbit.decode.avro;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import kbit.decode.DecodeException;
import kbit.decode.Decoder;
import kbit.decode.Tensor;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.unsafe.types.UTF8String;

/** Reads a value of the writer's type as the type that a field wants. Python has resolved which reader fits. */
interface AvroReader {
  Object read(AvroCursor in) throws DecodeException;

  /** {@code depth}: the level of the record, array or map that the value is in. */
  static AvroReader of(JsonNode plan, Map<String, AvroNode> records, int depth) {
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
      case "string_as_bytes" -> AvroCursor::readText;
      case "string", "bytes_as_string" -> AvroCursor::readString;
      case "fixed" -> {
        int size = plan.get("size").asInt();
        yield in -> in.readBytes(size);
      }
      case "enum" -> enumeration(plan.get("symbols"));
      case "decimal" -> AvroLogical.decimal(plan);
      case "uuid" -> AvroLogical.uuid(plan.get("size").asInt());
      case "date" -> AvroLogical.date();
      case "time_millis" -> AvroLogical.timeMillis();
      case "time_micros" -> AvroLogical.timeMicros();
      case "timestamp" -> AvroLogical.timestamp(plan.get("per_second").asInt());
      case "timestamp_ntz" -> AvroLogical.localTimestamp(plan.get("per_second").asInt());
      case "list" -> deeper(depth, list(of(plan.get("items"), records, depth + 1)));
      case "map" -> deeper(depth, map(of(plan.get("values"), records, depth + 1)));
      case "struct" -> deeper(depth, new AvroRecordReader(plan, records, depth + 1));
      case "union" -> union(plan.get("branches"), records, depth);
      case "member" -> member(plan, of(plan.get("reader"), records, depth));
      case "tensor_bytes" -> tensorBytes(new Tensor(plan.get("tensor")), plan.path("size").asInt(-1));
      case "tensor_list" -> new AvroTensorReader(new Tensor(plan.get("tensor")), plan.get("items").asText());
      case "refused" -> in -> {
        throw refused(plan, in.at);
      };
      default -> throw new IllegalArgumentException("no Avro reader " + op);
    };
  }

  private static AvroReader deeper(int depth, AvroReader reader) {
    if (depth < Decoder.MAX_DEPTH) return reader;
    return in -> {
      throw DecodeException.tooDeep(in.at);
    };
  }

  private static DecodeException refused(JsonNode plan, int position) {
    return new DecodeException(plan.get("code").asText(), position, plan.get("reason").asText());
  }

  /** Symbols of the writer that the reader lacks stand as null. */
  private static AvroReader enumeration(JsonNode plan) {
    UTF8String[] symbols = new UTF8String[plan.size()];
    for (int i = 0; i < symbols.length; i++) {
      if (!plan.get(i).isNull()) symbols[i] = UTF8String.fromString(plan.get(i).asText());
    }
    return in -> {
      int start = in.at;
      UTF8String symbol = symbols[in.readIndex(symbols.length, "bad_enum", "symbol")];
      if (symbol == null) throw new DecodeException("bad_enum", start, "the reader's schema lacks the symbol");
      return symbol;
    };
  }

  private static AvroReader list(AvroReader item) {
    return in -> {
      List<Object> items = new ArrayList<>(); // grows with the payload, never by a count that it announces
      AvroBlocks blocks = new AvroBlocks(in);
      for (int count = blocks.next(); count != 0; count = blocks.next()) {
        for (int i = 0; i < count; i++) {
          int start = in.at;
          items.add(item.read(in));
          if (in.at == start) in.countEmptyItem(blocks.countPosition);
        }
      }
      return items.toArray();
    };
  }

  /** Of a key that occurs twice the last value counts. */
  private static AvroReader map(AvroReader value) {
    return in -> {
      Map<Object, Object> entries = new LinkedHashMap<>();
      AvroBlocks blocks = new AvroBlocks(in);
      for (int count = blocks.next(); count != 0; count = blocks.next()) {
        for (int i = 0; i < count; i++) {
          UTF8String key = in.readString();
          entries.put(key, value.read(in));
        }
      }
      return entries;
    };
  }

  private static AvroReader union(JsonNode plans, Map<String, AvroNode> records, int depth) {
    AvroReader[] branches = new AvroReader[plans.size()];
    JsonNode[] refused = new JsonNode[plans.size()];
    for (int i = 0; i < branches.length; i++) {
      branches[i] = of(plans.get(i), records, depth);
      if (plans.get(i).get("read").asText().equals("refused")) refused[i] = plans.get(i);
    }
    return in -> {
      int start = in.at;
      int branch = in.readIndex(branches.length, "bad_union_index", "branch");
      if (refused[branch] != null) throw refused(refused[branch], start);
      return branches[branch].read(in);
    };
  }

  /** One member of a struct that stands for a union; the others are null. */
  private static AvroReader member(JsonNode plan, AvroReader reader) {
    int member = plan.get("member").asInt();
    int width = plan.get("width").asInt();
    return in -> {
      Object[] members = new Object[width];
      members[member] = reader.read(in);
      return RowFactory.create(members);
    };
  }

  /** Bytes ({@code size} -1) or a fixed that hold one tensor. */
  private static AvroReader tensorBytes(Tensor tensor, int size) {
    return in -> {
      int start = in.at;
      return tensor.checked(in.readBytes(size < 0 ? in.readLength() : size), start);
    };
  }
}
