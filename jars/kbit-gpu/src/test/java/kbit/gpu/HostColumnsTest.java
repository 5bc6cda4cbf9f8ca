package kbit.gpu;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import ai.rapids.cudf.HostColumnVector;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Masks need cuDF's native library, so what is null is left to the device (Check). */
class HostColumnsTest {
  private static Object roundTrip(String type, Object value) {
    DataType parsed = DataType.fromDDL(type);
    try (HostColumnVector column = HostColumns.build(parsed, List.of(value, value))) {
      assertEquals(2, column.getRowCount());
      return HostValues.read(column, parsed, 1);
    }
  }

  static List<Arguments> scalars() {
    return List.of(
        Arguments.of("boolean", true), Arguments.of("tinyint", (byte) -128), Arguments.of("smallint", (short) 300),
        Arguments.of("int", Integer.MIN_VALUE), Arguments.of("bigint", Long.MIN_VALUE), Arguments.of("float", -0.0f),
        Arguments.of("double", Double.NaN), Arguments.of("date", LocalDate.of(1582, 10, 4)),
        Arguments.of("timestamp", Instant.parse("0001-01-01T00:00:00.000001Z")), Arguments.of("string", "zwölf 𝟙𝟚"),
        Arguments.of("decimal(9,2)", new BigDecimal("-1234567.89")), Arguments.of("decimal(18,0)", new BigDecimal("1")),
        Arguments.of("decimal(38,10)", new BigDecimal("-9999999999999999999999999999.0123456789")));
  }

  @ParameterizedTest
  @MethodSource("scalars")
  void scalarsComeBack(String type, Object value) {
    assertEquals(value, roundTrip(type, value));
  }

  @Test
  void textOfSparkIsText() {
    assertEquals("ä", roundTrip("string", UTF8String.fromBytes("ä".getBytes(StandardCharsets.UTF_8))));
  }

  @Test
  void bytesComeBack() {
    assertArrayEquals(new byte[] {0, -1, 7}, (byte[]) roundTrip("binary", new byte[] {0, -1, 7}));
    assertArrayEquals(new byte[0], (byte[]) roundTrip("binary", new byte[0]));
  }

  @Test
  void nestedValuesComeBack() {
    Row row = (Row) roundTrip(
        "struct<a: array<struct<x: int>>, m: map<string, array<bigint>>>",
        RowFactory.create(new Object[] {RowFactory.create(1), RowFactory.create(2)}, Map.of("k", new Object[] {5L, 6L})));
    assertArrayEquals(new Object[] {RowFactory.create(1), RowFactory.create(2)}, (Object[]) row.get(0));
    assertArrayEquals(new Object[] {5L, 6L}, (Object[]) ((Map<?, ?>) row.get(1)).get("k"));
  }

  @Test
  void aColumnMayHaveNoRows() {
    try (HostColumnVector column = HostColumns.build(new StructType().add("a", "int").add("b", "string"), List.of())) {
      assertEquals(0, column.getRowCount());
    }
  }
}
