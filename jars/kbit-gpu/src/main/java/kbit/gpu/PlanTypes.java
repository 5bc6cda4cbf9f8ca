package kbit.gpu;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** Spark's types of the types in a decoder plan (kbit_spark/column_types.py). */
final class PlanTypes {
  private static final StructType ERROR = new StructType()
      .add("code", DataTypes.StringType, false)
      .add("position", DataTypes.IntegerType, false)
      .add("reason", DataTypes.StringType, false);

  private PlanTypes() {}

  /** Returns what a decoder of these fields gives: struct of value and error. */
  static StructType result(JsonNode fields) {
    return new StructType().add("value", struct(fields), true).add("error", ERROR, true);
  }

  private static StructType struct(JsonNode fields) {
    StructType struct = new StructType();
    for (JsonNode field : fields) {
      DataType type = field.has("tensor") ? DataTypes.BinaryType : type(field.get("type"));
      struct = struct.add(field.get("name").asText(), type, !field.get("required").asBoolean());
    }
    return struct;
  }

  private static DataType type(JsonNode tree) {
    if (tree.isTextual()) return DataType.fromDDL(tree.asText());
    String kind = tree.get("type").asText();
    return switch (kind) {
      case "array" -> DataTypes.createArrayType(type(tree.get("items")));
      case "map" -> DataTypes.createMapType(type(tree.get("keys")), type(tree.get("values")));
      case "decimal" -> DataTypes.createDecimalType(tree.get("precision").asInt(), tree.get("scale").asInt());
      case "struct" -> struct(tree.get("fields"));
      default -> throw new IllegalArgumentException("a plan has no type " + kind);
    };
  }
}
