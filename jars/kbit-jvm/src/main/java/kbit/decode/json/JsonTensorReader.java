package kbit.decode.json;

import kbit.decode.DecodeException;
import kbit.decode.Tensor;

/** Reads a tensor: one flat list, lists nested as the shape says, or its bytes. */
class JsonTensorReader implements JsonReader {
  final Tensor tensor;

  JsonTensorReader(Tensor tensor) {
    this.tensor = tensor;
  }

  @Override
  public Object read(JsonCursor in) throws DecodeException {
    int start = in.place();
    if (in.peek() != '[') return tensor.checked(bytes(in), start);
    byte[] data = tensor.allocate();
    in.at++;
    boolean nested = in.peek() == '[' && tensor.shape.length > 1;
    in.at = start;
    if (nested) nestedList(in, data, 0, 0);
    else flatList(in, data, 0, tensor.items);
    return data;
  }

  /** Reads the list of dimension {@code axis}; returns the index of the item behind it. */
  private int nestedList(JsonCursor in, byte[] data, int axis, int index) throws DecodeException {
    if (in.peek() != '[') throw in.mismatch("a list, as the shape of the tensor says");
    if (axis == tensor.shape.length - 1) {
      flatList(in, data, index, tensor.shape[axis]);
      return index + tensor.shape[axis];
    }
    in.at++;
    int rows = 0;
    boolean more = in.peek() != ']';
    if (!more) in.at++;
    while (more) {
      if (rows == tensor.shape[axis]) throw superfluous(in, "more than " + rows + " lists");
      index = nestedList(in, data, axis + 1, index);
      rows++;
      more = in.more(']');
    }
    if (rows != tensor.shape[axis]) throw wrong(in.at - 1, rows + " lists where " + tensor.shape[axis] + " belong");
    return index;
  }

  private void flatList(JsonCursor in, byte[] data, int index, int count) throws DecodeException {
    in.at++;
    int end = index + count;
    int first = index;
    boolean more = in.peek() != ']';
    if (!more) in.at++;
    if (more && tensor.itemBytes == 1 && tensor.min == 0) {
      index = JsonBytes.read(in, data, index, end);
      index = smallNumbers(in, data, index, end);
    }
    while (more) {
      if (index == end) throw superfluous(in, "more than " + count + " items");
      if (tensor.isInteger) tensor.put(data, index, integer(in));
      else tensor.put(data, index, tensor.itemBytes == 4 ? single(in) : number(in));
      index++;
      more = in.more(']');
    }
    if (index != end) throw wrong(in.at - 1, (index - first) + " items where " + count + " belong");
  }

  /** Reads a tensor that is written as bytes and not as a list. */
  byte[] bytes(JsonCursor in) throws DecodeException {
    if (in.peek() != '"') throw in.mismatch("a list of numbers or base64 text");
    return JsonScalars.binary(in);
  }

  long integer(JsonCursor in) throws DecodeException {
    return JsonNumbers.integer(in, tensor.min, tensor.max, tensor.dtype);
  }

  float single(JsonCursor in) throws DecodeException {
    return JsonNumbers.single(in);
  }

  double number(JsonCursor in) throws DecodeException {
    return JsonNumbers.number(in, tensor.dtype);
  }

  /**
   * Reads bytes as long as they look like {@code 123,} without anything unusual; the general loop goes on from there,
   * so it alone knows what is an error. It takes white space behind commas, which {@link JsonBytes} leaves to it.
   */
  private static int smallNumbers(JsonCursor in, byte[] data, int index, int end) {
    byte[] text = in.data;
    int at = in.at;
    int last = text.length - 5;
    while (index < end - 1 && at < last) {
      int begin = at;
      while (text[at] == ' ' && at < last) at++;
      int value = text[at] - '0';
      if (value < 0 || value > 9) break;
      int next = text[++at] - '0';
      if (next >= 0 && next <= 9 && value != 0) {
        value = value * 10 + next;
        next = text[++at] - '0';
        if (next >= 0 && next <= 9) {
          value = value * 10 + next;
          at++;
        }
      }
      if (text[at] != ',' || value > 255) {
        at = begin;
        break;
      }
      at++;
      data[index++] = (byte) value;
      in.at = at;
    }
    return index;
  }

  /** Behind a comma: one item too many, unless what stands there is no value at all. */
  private static DecodeException superfluous(JsonCursor in, String found) throws DecodeException {
    return wrong(in.mismatch("the end of the list").position, found);
  }

  private static DecodeException wrong(int position, String found) {
    return new DecodeException("bad_length", position, "the tensor has " + found);
  }
}
