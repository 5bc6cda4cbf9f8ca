package kbit.decode.avro;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import kbit.decode.DecodeException;
import kbit.decode.Decoder;

/** A type of the writer's schema that no field wants: read over as strictly as one that is wanted. */
abstract class AvroNode {
  abstract void skip(AvroCursor in, int depth) throws DecodeException;

  /** True where a value takes no byte at all, so that a huge count of them costs nothing to skip. */
  boolean isEmpty() {
    return false;
  }

  /** Builds the records of a plan, which may refer to each other and to themselves. */
  static Map<String, AvroNode> records(JsonNode plans) {
    Map<String, AvroNode> records = new HashMap<>();
    plans.fieldNames().forEachRemaining(name -> records.put(name, new Record()));
    plans.properties().forEach(
        entry -> ((Record) records.get(entry.getKey())).fields = all(entry.getValue(), records));
    return records;
  }

  static AvroNode of(JsonNode plan, Map<String, AvroNode> records) {
    return switch (plan.get("op").asText()) {
      case "null" -> new Fixed(0);
      case "boolean" -> node(AvroCursor::readBoolean);
      case "int" -> node(AvroCursor::readInt);
      case "long" -> node(AvroCursor::readLong);
      case "float" -> new Fixed(4);
      case "double" -> new Fixed(8);
      case "bytes" -> node(in -> in.skip(in.readLength()));
      case "string" -> node(in -> in.skipText(in.readLength()));
      case "fixed" -> new Fixed(plan.get("size").asInt());
      case "enum" -> {
        int symbols = plan.get("symbols").asInt();
        yield node(in -> in.readIndex(symbols, "bad_enum", "symbol"));
      }
      case "array" -> new Items(of(plan.get("items"), records), false);
      case "map" -> new Items(of(plan.get("values"), records), true);
      case "union" -> new Union(all(plan.get("branches"), records));
      case "record" -> records.get(plan.get("name").asText());
      case "checked" -> node(AvroReader.of(plan.get("reader"), records, 0)::read);
      default -> throw new IllegalArgumentException("no Avro type " + plan.get("op"));
    };
  }

  private static AvroNode[] all(JsonNode plans, Map<String, AvroNode> records) {
    AvroNode[] nodes = new AvroNode[plans.size()];
    for (int i = 0; i < nodes.length; i++) nodes[i] = of(plans.get(i), records);
    return nodes;
  }

  private interface Reading {
    void read(AvroCursor in) throws DecodeException;
  }

  private static AvroNode node(Reading reading) {
    return new AvroNode() {
      @Override
      void skip(AvroCursor in, int depth) throws DecodeException {
        reading.read(in);
      }
    };
  }

  static int deeper(AvroCursor in, int depth) throws DecodeException {
    if (depth >= Decoder.MAX_DEPTH) throw DecodeException.tooDeep(in.at);
    return depth + 1;
  }

  private static final class Fixed extends AvroNode {
    private final int size;

    Fixed(int size) {
      this.size = size;
    }

    @Override
    void skip(AvroCursor in, int depth) throws DecodeException {
      in.skip(size);
    }

    @Override
    boolean isEmpty() {
      return size == 0;
    }
  }

  private static final class Items extends AvroNode {
    private final AvroNode item;
    private final boolean keyed;

    Items(AvroNode item, boolean keyed) {
      this.item = item;
      this.keyed = keyed;
    }

    @Override
    void skip(AvroCursor in, int depth) throws DecodeException {
      int below = deeper(in, depth);
      AvroBlocks blocks = new AvroBlocks(in);
      for (int count = blocks.next(); count != 0; count = blocks.next()) {
        if (!keyed && item.isEmpty()) continue;
        for (int i = 0; i < count; i++) {
          if (keyed) in.skipText(in.readLength());
          item.skip(in, below);
        }
      }
    }
  }

  private static final class Union extends AvroNode {
    private final AvroNode[] branches;

    Union(AvroNode[] branches) {
      this.branches = branches;
    }

    @Override
    void skip(AvroCursor in, int depth) throws DecodeException {
      branches[in.readIndex(branches.length, "bad_union_index", "branch")].skip(in, depth);
    }
  }

  private static final class Record extends AvroNode {
    private AvroNode[] fields = {};
    private Boolean empty;

    @Override
    void skip(AvroCursor in, int depth) throws DecodeException {
      int below = deeper(in, depth);
      for (AvroNode field : fields) field.skip(in, below);
    }

    @Override
    boolean isEmpty() {
      if (empty == null) {
        empty = false; // if it contains itself: a value that ends has a union or a list in it
        boolean all = true;
        for (AvroNode field : fields) all &= field.isEmpty();
        empty = all;
      }
      return empty;
    }
  }
}
