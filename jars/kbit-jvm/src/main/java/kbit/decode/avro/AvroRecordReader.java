package kbit.decode.avro;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HexFormat;
import java.util.Map;
import kbit.decode.DecodeException;
import org.apache.spark.sql.RowFactory;

/** Reads a record: each of the writer's fields into its place, or over; what the writer lacks gets its default. */
final class AvroRecordReader implements AvroReader {
  private final AvroReader[] readers;
  private final AvroNode[] skipped;
  private final int[] targets;
  private final int depth;

  /** The row before anything is read: defaults, and null where there is none. */
  private final Object[] absent;

  private DecodeException badDefault;

  /** {@code depth}: the level that this record is on; the row itself is on the first. */
  AvroRecordReader(JsonNode plan, Map<String, AvroNode> records, int depth) {
    this.depth = depth;
    absent = new Object[plan.get("width").asInt()];
    JsonNode steps = plan.get("steps");
    readers = new AvroReader[steps.size()];
    skipped = new AvroNode[steps.size()];
    targets = new int[steps.size()];
    for (int i = 0; i < targets.length; i++) {
      JsonNode step = steps.get(i);
      targets[i] = step.path("target").asInt(-1);
      if (targets[i] >= 0) readers[i] = AvroReader.of(step.get("reader"), records, depth);
      else skipped[i] = AvroNode.of(step.get("skip"), records);
    }
    for (JsonNode constant : plan.get("defaults")) setDefault(constant, records);
  }

  private void setDefault(JsonNode plan, Map<String, AvroNode> records) {
    byte[] bytes = HexFormat.of().parseHex(plan.get("bytes").asText());
    try {
      Object value = AvroReader.of(plan.get("reader"), records, depth).read(new AvroCursor(bytes));
      absent[plan.get("target").asInt()] = value;
    } catch (DecodeException fault) {
      badDefault = fault; // of each record, as any other value that its column cannot hold
    }
  }

  @Override
  public Object read(AvroCursor in) throws DecodeException {
    return RowFactory.create(readValues(in));
  }

  Object[] readValues(AvroCursor in) throws DecodeException {
    Object[] row = absent.clone();
    for (int i = 0; i < targets.length; i++) {
      if (targets[i] >= 0) row[targets[i]] = readers[i].read(in);
      else skipped[i].skip(in, depth);
    }
    if (badDefault != null) {
      throw new DecodeException(badDefault.code, in.at, "a default of the reader's schema: " + badDefault.getMessage());
    }
    return row;
  }
}
