package kbit.gpu;

import ai.rapids.cudf.DType;
import ai.rapids.cudf.HostColumnVector;
import com.fasterxml.jackson.databind.JsonNode;
import java.util.Arrays;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;

/** The types that RAPIDS has for Spark's. */
final class CudfTypes {
  private static final int INT_DIGITS = 9;
  private static final int LONG_DIGITS = 18;

  private CudfTypes() {}

  /** Returns the type of a fixed-width column; {@code tree} is a type of a decoder plan. */
  static DType fixed(JsonNode tree) {
    if (tree.path("type").asText().equals("decimal")) {
      return decimal(tree.required("precision").asInt(), tree.required("scale").asInt());
    }
    return fixed(DataType.fromDDL(tree.asText()));
  }

  private static DType fixed(DataType type) {
    if (type instanceof DecimalType decimal) return decimal(decimal.precision(), decimal.scale());
    if (type.equals(DataTypes.BooleanType)) return DType.BOOL8;
    if (type.equals(DataTypes.ByteType)) return DType.INT8;
    if (type.equals(DataTypes.ShortType)) return DType.INT16;
    if (type.equals(DataTypes.IntegerType)) return DType.INT32;
    if (type.equals(DataTypes.LongType)) return DType.INT64;
    if (type.equals(DataTypes.FloatType)) return DType.FLOAT32;
    if (type.equals(DataTypes.DoubleType)) return DType.FLOAT64;
    if (type.equals(DataTypes.DateType)) return DType.TIMESTAMP_DAYS;
    if (type.equals(DataTypes.TimestampType)) return DType.TIMESTAMP_MICROSECONDS;
    throw new IllegalArgumentException("RAPIDS has no column of fixed width for " + type.catalogString());
  }

  private static DType decimal(int precision, int scale) {
    DType.DTypeEnum width = precision <= INT_DIGITS ? DType.DTypeEnum.DECIMAL32
        : precision <= LONG_DIGITS ? DType.DTypeEnum.DECIMAL64 : DType.DTypeEnum.DECIMAL128;
    return DType.create(width, -scale);
  }

  /** Returns how a column on the host is built that becomes one of {@code type} on the device. */
  static HostColumnVector.DataType host(DataType type) {
    if (type instanceof StructType struct) {
      return new HostColumnVector.StructType(
          true, Arrays.stream(struct.fields()).map(field -> host(field.dataType())).toList());
    }
    if (type instanceof ArrayType array) return new HostColumnVector.ListType(true, host(array.elementType()));
    if (type instanceof MapType map) return new HostColumnVector.ListType(true, host(entry(map)));
    if (type.equals(DataTypes.StringType)) return new HostColumnVector.BasicType(true, DType.STRING);
    if (type.equals(DataTypes.BinaryType)) {
      return new HostColumnVector.ListType(true, new HostColumnVector.BasicType(false, DType.UINT8));
    }
    return new HostColumnVector.BasicType(true, fixed(type));
  }

  /** Returns the struct that a map is a list of. */
  static StructType entry(MapType map) {
    return new StructType().add("key", map.keyType(), false).add("value", map.valueType(), map.valueContainsNull());
  }
}
