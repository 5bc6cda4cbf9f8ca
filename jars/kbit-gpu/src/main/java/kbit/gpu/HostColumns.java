package kbit.gpu;

import ai.rapids.cudf.HostColumnVector;
import ai.rapids.cudf.HostColumnVector.ColumnBuilder;
import java.math.BigDecimal;
import java.math.RoundingMode;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** Columns on the host out of what decoders give. */
final class HostColumns {
  private HostColumns() {}

  /** Returns a column of these values, in the Java types that Catalyst's converters take; the caller closes it. */
  static HostColumnVector build(DataType type, List<?> values) {
    try (ColumnBuilder builder = new ColumnBuilder(CudfTypes.host(type), values.size())) {
      for (Object value : values) append(builder, type, value);
      return builder.build();
    }
  }

  private static void append(ColumnBuilder to, DataType type, Object value) {
    if (value == null) to.appendNull();
    else if (type instanceof StructType struct) appendStruct(to, struct, (Row) value);
    else if (type instanceof ArrayType array) appendItems(to, array.elementType(), (Object[]) value);
    else if (type instanceof MapType map) appendMap(to, map, (Map<?, ?>) value);
    else if (type.equals(DataTypes.BinaryType)) to.appendByteList((byte[]) value);
    else appendScalar(to, type, value);
  }

  private static void appendStruct(ColumnBuilder to, StructType type, Row row) {
    for (int i = 0; i < type.size(); i++) append(to.getChild(i), type.apply(i).dataType(), row.get(i));
    to.endStruct();
  }

  private static void appendItems(ColumnBuilder to, DataType type, Object[] items) {
    for (Object item : items) append(to.getChild(0), type, item);
    to.endList();
  }

  private static void appendMap(ColumnBuilder to, MapType type, Map<?, ?> map) {
    ColumnBuilder entries = to.getChild(0);
    map.forEach((key, value) -> {
      append(entries.getChild(0), type.keyType(), key);
      append(entries.getChild(1), type.valueType(), value);
      entries.endStruct();
    });
    to.endList();
  }

  private static void appendScalar(ColumnBuilder to, DataType type, Object value) {
    if (type.equals(DataTypes.StringType)) to.appendUTF8String(utf8(value));
    else if (type.equals(DataTypes.BooleanType)) to.append((boolean) value);
    else if (type.equals(DataTypes.ByteType)) to.append(((Number) value).byteValue());
    else if (type.equals(DataTypes.ShortType)) to.append(((Number) value).shortValue());
    else if (type.equals(DataTypes.IntegerType)) to.append(((Number) value).intValue());
    else if (type.equals(DataTypes.LongType)) to.append(((Number) value).longValue());
    else if (type.equals(DataTypes.FloatType)) to.append(((Number) value).floatValue());
    else if (type.equals(DataTypes.DoubleType)) to.append(((Number) value).doubleValue());
    else if (type.equals(DataTypes.DateType)) to.append((int) ((LocalDate) value).toEpochDay());
    else if (type.equals(DataTypes.TimestampType)) to.append(DateTimeUtils.instantToMicros((Instant) value));
    else if (type instanceof DecimalType decimal) to.append(scaled((BigDecimal) value, decimal));
    else throw new IllegalArgumentException("RAPIDS has no column for " + type.catalogString());
  }

  /** As Spark's converters do it. */
  private static BigDecimal scaled(BigDecimal value, DecimalType type) {
    return value.setScale(type.scale(), RoundingMode.HALF_UP);
  }

  private static byte[] utf8(Object text) {
    return text instanceof UTF8String bytes ? bytes.getBytes() : text.toString().getBytes(StandardCharsets.UTF_8);
  }
}
