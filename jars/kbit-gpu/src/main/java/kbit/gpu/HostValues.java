package kbit.gpu;

import ai.rapids.cudf.HostColumnVectorCore;
import java.time.LocalDate;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;

/** Reads columns on the host into the Java types that decoders give; the inverse of {@link HostColumns}. */
final class HostValues {
  private HostValues() {}

  static Object read(HostColumnVectorCore column, DataType type, int row) {
    if (column.isNull(row)) return null;
    if (type instanceof StructType struct) return RowFactory.create(fields(column, struct, row));
    if (type instanceof ArrayType array) return items(column, array.elementType(), row);
    if (type instanceof MapType map) return map(column, map, row);
    if (type.equals(DataTypes.StringType)) return column.getJavaString(row);
    if (type.equals(DataTypes.BinaryType)) return column.getBytesFromList(row);
    if (type instanceof DecimalType) return column.getBigDecimal(row);
    return scalar(column, type, row);
  }

  static Object[] fields(HostColumnVectorCore column, StructType type, int row) {
    Object[] values = new Object[type.size()];
    for (int i = 0; i < values.length; i++) values[i] = read(column.getChildColumnView(i), type.apply(i).dataType(), row);
    return values;
  }

  private static Object[] items(HostColumnVectorCore column, DataType type, int row) {
    int start = (int) column.getStartListOffset(row);
    Object[] items = new Object[(int) column.getEndListOffset(row) - start];
    for (int i = 0; i < items.length; i++) items[i] = read(column.getChildColumnView(0), type, start + i);
    return items;
  }

  private static Map<Object, Object> map(HostColumnVectorCore column, MapType type, int row) {
    Map<Object, Object> map = new LinkedHashMap<>();
    for (Object item : items(column, CudfTypes.entry(type), row)) {
      Row entry = (Row) item;
      Object key = entry.get(0);
      map.put(map.containsKey(key) ? key + " (again)" : key, entry.get(1)); // no decoder gives that, so it must show
    }
    return map;
  }

  private static Object scalar(HostColumnVectorCore column, DataType type, int row) {
    if (type.equals(DataTypes.BooleanType)) return column.getBoolean(row);
    if (type.equals(DataTypes.ByteType)) return column.getByte(row);
    if (type.equals(DataTypes.ShortType)) return column.getShort(row);
    if (type.equals(DataTypes.IntegerType)) return column.getInt(row);
    if (type.equals(DataTypes.LongType)) return column.getLong(row);
    if (type.equals(DataTypes.FloatType)) return column.getFloat(row);
    if (type.equals(DataTypes.DoubleType)) return column.getDouble(row);
    if (type.equals(DataTypes.DateType)) return LocalDate.ofEpochDay(column.getInt(row));
    if (type.equals(DataTypes.TimestampType)) return DateTimeUtils.microsToInstant(column.getLong(row));
    throw new IllegalArgumentException("RAPIDS has no column for " + type.catalogString());
  }
}
