package kbit.decode.avro;

import kbit.decode.DecodeException;
import kbit.decode.Tensor;

/** Reads an array of numbers into a tensor. */
final class AvroTensorReader implements AvroReader {
  private final Tensor tensor;
  private final String items;

  AvroTensorReader(Tensor tensor, String items) {
    this.tensor = tensor;
    this.items = items;
  }

  @Override
  public Object read(AvroCursor in) throws DecodeException {
    byte[] data = tensor.allocate();
    int index = 0;
    AvroBlocks blocks = new AvroBlocks(in);
    for (int count = blocks.next(); count != 0; count = blocks.next()) {
      if (count > tensor.items - index) {
        throw tensor.wrongCount(blocks.countPosition, "at least " + ((long) index + count));
      }
      for (int end = index + count; index < end; index++) item(in, data, index);
    }
    if (index < tensor.items) throw tensor.wrongCount(blocks.countPosition, Integer.toString(index));
    return data;
  }

  private void item(AvroCursor in, byte[] data, int index) throws DecodeException {
    int start = in.at;
    switch (items) {
      case "float" -> tensor.put(data, index, in.readFloat());
      case "double" -> tensor.put(data, index, in.readDouble());
      default -> {
        long value = items.equals("int") ? in.readInt() : in.readLong();
        if (tensor.isInteger && (value < tensor.min || value > tensor.max)) {
          throw DecodeException.overflow(start, tensor.dtype);
        }
        tensor.put(data, index, value);
      }
    }
  }
}
