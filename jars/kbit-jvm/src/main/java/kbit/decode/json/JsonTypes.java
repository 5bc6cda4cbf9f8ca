package kbit.decode.json;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import kbit.decode.DecodeException;
import kbit.decode.Tensor;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.unsafe.types.UTF8String;

/** Makes the readers of column types. A dialect of JSON changes what scalars, tensors and objects look like. */
class JsonTypes {
  JsonCursor cursor(byte[] payload) {
    return new JsonCursor(payload);
  }

  JsonReader scalar(JsonNode type) {
    return JsonScalars.of(type);
  }

  JsonReader tensor(Tensor tensor) {
    return new JsonTensorReader(tensor);
  }

  /** Returns the reader of a struct or map, given the one that reads its members. */
  JsonReader object(JsonReader members) {
    return members;
  }

  /**
   * Returns the reader of a field.
   *
   * @param depth level of the object that holds it
   */
  final JsonReader column(JsonNode field, int depth) {
    return field.has("tensor") ? tensor(new Tensor(field.get("tensor"))) : of(field.get("type"), depth);
  }

  private JsonReader of(JsonNode type, int depth) {
    return switch (type.path("type").asText()) {
      case "array" -> list(of(type.get("items"), depth + 1));
      case "map" -> object(map(of(type.get("values"), depth + 1)));
      case "struct" -> {
        JsonFields fields = new JsonFields(type.get("fields"), this, depth + 1);
        yield object(in -> RowFactory.create(fields.read(in)));
      }
      default -> scalar(type);
    };
  }

  private static JsonReader list(JsonReader item) {
    return in -> {
      if (in.peek() != '[') throw in.mismatch("a list");
      in.at++;
      List<Object> items = new ArrayList<>();
      boolean more = in.peek() != ']';
      if (!more) in.at++;
      while (more) {
        items.add(valueOrNull(in, item));
        more = in.more(']');
      }
      return items.toArray();
    };
  }

  private static JsonReader map(JsonReader value) {
    return in -> {
      if (in.peek() != '{') throw in.mismatch("an object");
      in.at++;
      Map<UTF8String, Object> members = new LinkedHashMap<>();
      boolean more = in.peek() != '}';
      if (!more) in.at++;
      while (more) {
        int start = in.place();
        UTF8String name = UTF8String.fromBytes(in.name());
        in.expect(':');
        if (members.containsKey(name)) throw JsonCursor.repeated(start);
        members.put(name, valueOrNull(in, value));
        more = in.more('}');
      }
      return members;
    };
  }

  private static Object valueOrNull(JsonCursor in, JsonReader reader) throws DecodeException {
    if (in.peek() != 'n') return reader.read(in);
    in.skipLiteral();
    return null;
  }
}
