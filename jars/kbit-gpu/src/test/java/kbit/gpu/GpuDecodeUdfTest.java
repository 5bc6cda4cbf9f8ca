package kbit.gpu;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.nvidia.spark.RapidsUDF;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import kbit.decode.DecodeUdf;
import kbit.decode.framing.SchemaIds;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.expressions.SparkUserDefinedFunction;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.CollectionAccumulator;
import org.apache.spark.util.LongAccumulator;
import org.junit.jupiter.api.Test;
import scala.Function1;
import scala.Function2;

/** The functions as Spark sees them; their columnar forms need a device. */
class GpuDecodeUdfTest {
  private static final SchemaIds NO_IDS = new SchemaIds();

  private static SparkUserDefinedFunction decode(String program) throws Exception {
    Counters counters = new Counters(
        new LongAccumulator(), new LongAccumulator(), new LongAccumulator(), new CollectionAccumulator<>());
    StructType type = PlanTypes.result(new ObjectMapper().readTree(TinyProgram.PLAN).get("fields"));
    return (SparkUserDefinedFunction) GpuDecodeUdf.of(TinyProgram.PLAN, program, NO_IDS, counters, 0, type);
  }

  @Test
  @SuppressWarnings("unchecked")
  void rowsAreThoseOfTheCpu() throws Exception {
    Function1<Object, Object> gpu = (Function1<Object, Object>) decode(TinyProgram.text()).f();
    DecodeUdf cpu = new DecodeUdf(TinyProgram.PLAN, NO_IDS);
    for (String payload : TinyProgram.PAYLOADS) {
      byte[] bytes = payload.equals("null") ? null : HexFormat.of().parseHex(payload);
      assertEquals(show(cpu.call(bytes)), show((Row) gpu.apply(bytes)));
    }
    assertNull(gpu.apply(null));
  }

  private static String show(Row row) {
    if (row == null || row.isNullAt(0)) return String.valueOf(row);
    byte[] bytes = row.getStruct(0).getAs(1);
    return row.getStruct(0).get(0) + " " + (bytes == null ? "null" : HexFormat.of().formatHex(bytes));
  }

  @Test
  void rapidsFindsItsInterfaceAtTheFunctionItself() throws Exception {
    SparkUserDefinedFunction function = decode(TinyProgram.text());
    assertInstanceOf(RapidsUDF.class, function.f());
    assertFalse(function.deterministic());
  }

  @Test
  void aProgramThatCannotWorkFailsOnTheDriver() {
    assertThrows(IllegalArgumentException.class, () -> decode("{}"));
  }

  @Test
  @SuppressWarnings("unchecked")
  void theTallyCountsRows() {
    LongAccumulator[] counts = {new LongAccumulator(), new LongAccumulator(), new LongAccumulator()};
    SparkUserDefinedFunction function = (SparkUserDefinedFunction) GpuTallyUdf.of(counts[0], counts[1], counts[2]);
    assertInstanceOf(RapidsUDF.class, function.f());
    Function2<Object, Object, Object> tally = (Function2<Object, Object, Object>) function.f();
    assertEquals(true, tally.apply(true, false));
    assertEquals(false, tally.apply(false, true));
    assertEquals(false, tally.apply(false, true));
    assertEquals(false, tally.apply(false, false));
    assertEquals(List.of(1L, 2L, 1L), Arrays.stream(counts).map(LongAccumulator::sum).toList());
  }
}
