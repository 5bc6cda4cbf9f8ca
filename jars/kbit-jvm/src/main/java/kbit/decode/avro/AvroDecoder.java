package kbit.decode.avro;

import com.fasterxml.jackson.databind.JsonNode;
import kbit.decode.DecodeException;
import kbit.decode.Decoder;

/** Decodes a bare Avro record into a row. */
public final class AvroDecoder implements Decoder {
  private final AvroRecordReader row;

  public AvroDecoder(JsonNode plan) {
    row = new AvroRecordReader(plan.get("row"), AvroNode.records(plan.get("records")), 1);
  }

  @Override
  public Object[] decode(byte[] payload, int start) throws DecodeException {
    AvroCursor in = new AvroCursor(payload);
    in.at = start;
    try {
      return readAll(in);
    } catch (DecodeException fault) {
      if (payload.length > 0 || !fault.code.equals("truncated")) throw fault;
      throw new DecodeException("empty_payload", 0, "the payload has no bytes");
    }
  }

  private Object[] readAll(AvroCursor in) throws DecodeException {
    Object[] values = row.readValues(in);
    if (in.at < in.data.length) {
      throw new DecodeException("trailing_bytes", in.at, "bytes are left over behind the record");
    }
    return values;
  }
}
