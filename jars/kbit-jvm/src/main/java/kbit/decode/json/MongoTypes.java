package kbit.decode.json;

import com.fasterxml.jackson.databind.JsonNode;
import kbit.decode.DecodeException;
import kbit.decode.Tensor;

/**
 * MongoDB Extended JSON v2, relaxed and canonical: plain values mean what they mean in JSON, and a value may stand in
 * its wrapper, such as {"$numberInt": "7"}.
 */
final class MongoTypes extends JsonTypes {
  @Override
  JsonCursor cursor(byte[] payload) {
    return new MongoCursor(payload);
  }

  @Override
  JsonReader tensor(Tensor tensor) {
    return new MongoTensorReader(tensor);
  }

  @Override
  JsonReader object(JsonReader members) {
    return in -> {
      if (MongoWrapper.isAt(in)) throw DecodeException.mismatch(in.at, "expected an object, found a wrapped value");
      return members.read(in);
    };
  }

  @Override
  JsonReader scalar(JsonNode type) {
    if (type.isObject()) {
      int precision = type.get("precision").asInt();
      int scale = type.get("scale").asInt();
      return wrapped(super.scalar(type), in -> MongoNumbers.decimal(in, precision, scale));
    }
    return switch (type.asText()) {
      case "byte" -> in -> (byte) MongoNumbers.integer(in, Byte.MIN_VALUE, Byte.MAX_VALUE, "byte");
      case "short" -> in -> (short) MongoNumbers.integer(in, Short.MIN_VALUE, Short.MAX_VALUE, "short");
      case "int" -> in -> (int) MongoNumbers.integer(in, Integer.MIN_VALUE, Integer.MAX_VALUE, "int");
      case "long" -> in -> MongoNumbers.integer(in, Long.MIN_VALUE, Long.MAX_VALUE, "long");
      case "float" -> wrapped(super.scalar(type), MongoNumbers::float32);
      case "double" -> wrapped(super.scalar(type), MongoNumbers::float64);
      case "string" -> wrapped(super.scalar(type), MongoValues::text);
      case "binary" -> wrapped(super.scalar(type), MongoValues::binary);
      case "date" -> wrapped(super.scalar(type), MongoValues::date);
      case "timestamp" -> wrapped(super.scalar(type), MongoValues::instant);
      default -> super.scalar(type); // boolean, timestamp_ntz: there is no wrapper for them
    };
  }

  /** Chooses between the reader of a plain value and the one of a wrapper. */
  private static JsonReader wrapped(JsonReader plain, JsonReader wrapper) {
    return in -> in.peek() == '{' ? wrapper.read(in) : plain.read(in);
  }
}
