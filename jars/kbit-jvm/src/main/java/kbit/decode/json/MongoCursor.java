package kbit.decode.json;

import kbit.decode.DecodeException;
import kbit.decode.Decoder;

/** A cursor that knows the wrappers, so it holds those that no field wants to the same rules. */
final class MongoCursor extends JsonCursor {
  MongoCursor(byte[] data) {
    super(data);
  }

  @Override
  void skipObject(int depth) throws DecodeException {
    if (depth > Decoder.MAX_DEPTH) throw DecodeException.tooDeep(at);
    JsonReader wrapper = MongoValues.READERS.get(MongoWrapper.firstName(this));
    if (wrapper == null) super.skipObject(depth);
    else wrapper.read(this);
  }
}
