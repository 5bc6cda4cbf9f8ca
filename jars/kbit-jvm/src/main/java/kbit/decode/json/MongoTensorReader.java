package kbit.decode.json;

import kbit.decode.DecodeException;
import kbit.decode.Tensor;

/** Reads a tensor from lists of plain or wrapped numbers, or from a wrapper of bytes. */
final class MongoTensorReader extends JsonTensorReader {
  MongoTensorReader(Tensor tensor) {
    super(tensor);
  }

  @Override
  byte[] bytes(JsonCursor in) throws DecodeException {
    return in.peek() == '{' ? MongoValues.binary(in) : super.bytes(in);
  }

  @Override
  long integer(JsonCursor in) throws DecodeException {
    return MongoNumbers.integer(in, tensor.min, tensor.max, tensor.dtype);
  }

  @Override
  float single(JsonCursor in) throws DecodeException {
    return MongoNumbers.single(in);
  }

  @Override
  double number(JsonCursor in) throws DecodeException {
    return MongoNumbers.number(in, tensor.dtype);
  }
}
