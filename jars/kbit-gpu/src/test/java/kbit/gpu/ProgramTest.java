package kbit.gpu;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ai.rapids.cudf.DType;
import java.util.BitSet;
import org.junit.jupiter.api.Test;

class ProgramTest {
  private static String withColumn(String column) {
    return """
        {"source": "", "lanes": 2, "warp": true, "codes": ["truncated"], "spans": [],
         "buffers": [{"lane": 0, "width": 1, "extra": 0}, {"lane": 0, "width": 4, "extra": 1},
                     {"lane": 1, "width": 16, "extra": 0}, {"lane": 2, "width": 1, "extra": 0}],
         "columns": [%s]}""".formatted(column);
  }

  private static Program.Node column(String column) {
    return Program.parse(withColumn(column)).columns().get(0);
  }

  @Test
  void readsAProgram() throws Exception {
    Program program = Program.parse(TinyProgram.text());
    assertEquals(1, program.lanes());
    assertEquals(new Program.Span(0, 2, 3, 4), program.spans().get(0));
    assertEquals(new Program.Fixed(0, Program.NONE, DType.INT32, 0), program.columns().get(0));
    assertEquals(new Program.Bytes(0, 1, false, 3, 4, 1), program.columns().get(1));
  }

  @Test
  void isReadOnce() throws Exception {
    Program program = Program.of(TinyProgram.text());
    assertSame(program, Program.of(new String(TinyProgram.text())));
    assertEquals(Program.parse(TinyProgram.text()), program);
    assertThrows(IllegalArgumentException.class, () -> Program.of("{"));
  }

  @Test
  void keepsOnlyBuffersThatColumnsStandOn() throws Exception {
    assertEquals(BitSet.valueOf(new long[] {0b11001}), Program.parse(TinyProgram.text()).kept());
  }

  @Test
  void readsListsOfStructs() {
    Program.Node node = column("""
        {"kind": "list", "lane": 0, "offsets": 1, "child": 1, "valid": 0, "item":
          {"kind": "struct", "lane": 1, "valid": null, "children": [
            {"kind": "fixed", "lane": 1, "type": {"type": "decimal", "precision": 20, "scale": 3}, "data": 2}]}}""");
    Program.Struct item = (Program.Struct) ((Program.Items) node).item();
    assertEquals(DType.create(DType.DTypeEnum.DECIMAL128, -3), ((Program.Fixed) item.children().get(0)).type());
  }

  @Test
  void readsTensors() {
    Program.Node node = column("""
        {"kind": "bytes", "lane": 0, "string": false, "offsets": 1, "data": 0, "child": null}""");
    assertEquals(Program.NONE, ((Program.Bytes) node).child());
  }

  @Test
  void onlyTensorsThatAreNeverNullHaveBytesInNulls() throws Exception {
    String tensor = """
        {"kind": "bytes", "lane": 0, "string": false, "offsets": 1, "data": 0, "child": null}""";
    assertTrue(Program.parse(withColumn(tensor)).hasBytesOfNulls());
    assertFalse(Program.parse(TinyProgram.text()).hasBytesOfNulls());
  }

  @Test
  void refusesWhatPointsNowhere() {
    for (String column : new String[] {
      "{\"kind\": \"fixed\", \"lane\": 0, \"type\": \"int\", \"data\": 4}",
      "{\"kind\": \"fixed\", \"lane\": 3, \"type\": \"int\", \"data\": 0}",
      "{\"kind\": \"fixed\", \"lane\": 0, \"type\": \"timestamp_ntz\", \"data\": 0}",
      "{\"kind\": \"fixed\", \"lane\": 0, \"type\": \"int\"}",
      "{\"kind\": \"cube\", \"lane\": 0}",
    }) {
      assertThrows(IllegalArgumentException.class, () -> column(column), column);
    }
    String message = assertThrows(IllegalArgumentException.class, () -> Program.parse("{")).getMessage();
    assertTrue(message.startsWith("this is no program for the GPU"), message);
  }
}
