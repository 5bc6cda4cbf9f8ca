package kbit.decode.json;

import kbit.decode.DecodeException;

/** Reads the value at the cursor (never null) for one field. */
interface JsonReader {
  Object read(JsonCursor in) throws DecodeException;
}
