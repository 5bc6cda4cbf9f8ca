package kbit.decode;

import com.fasterxml.jackson.databind.JsonNode;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/** A tensor field: items of one dtype, little-endian in one byte array. */
public final class Tensor {
  private static final VarHandle SHORTS = view(short[].class);
  private static final VarHandle INTS = view(int[].class);
  private static final VarHandle LONGS = view(long[].class);
  private static final VarHandle FLOATS = view(float[].class);
  private static final VarHandle DOUBLES = view(double[].class);

  public final String dtype;
  public final int[] shape;
  public final int items;
  public final int itemBytes;
  public final boolean isInteger;
  public final long min;
  public final long max;

  public Tensor(JsonNode plan) {
    dtype = plan.get("dtype").asText();
    shape = new int[plan.get("shape").size()];
    int product = 1;
    for (int i = 0; i < shape.length; i++) product *= shape[i] = plan.get("shape").get(i).asInt();
    items = product;
    isInteger = !dtype.startsWith("float");
    int bits = Integer.parseInt(dtype.replaceAll("\\D", ""));
    itemBytes = bits / 8;
    boolean unsigned = dtype.startsWith("u");
    max = unsigned ? (1L << bits) - 1 : Long.MAX_VALUE >> (64 - bits);
    min = unsigned ? 0 : -max - 1;
  }

  public byte[] allocate() {
    return new byte[items * itemBytes];
  }

  /** Stores an integer that is within {@code [min, max]} for integer dtypes. */
  public void put(byte[] data, int index, long value) {
    switch (dtype) {
      case "uint8", "int8" -> data[index] = (byte) value;
      case "int16" -> SHORTS.set(data, index * 2, (short) value);
      case "int32" -> INTS.set(data, index * 4, (int) value);
      case "int64" -> LONGS.set(data, index * 8, value);
      case "float32" -> FLOATS.set(data, index * 4, (float) value);
      default -> DOUBLES.set(data, index * 8, (double) value);
    }
  }

  /** Stores a number into a float dtype. */
  public void put(byte[] data, int index, double value) {
    if (itemBytes == 4) FLOATS.set(data, index * 4, (float) value);
    else DOUBLES.set(data, index * 8, value);
  }

  public DecodeException wrongCount(int position, String found) {
    return new DecodeException("bad_length", position, "the tensor needs " + items + " items, found " + found);
  }

  /** Returns {@code bytes} if they are exactly one tensor. */
  public byte[] checked(byte[] bytes, int position) throws DecodeException {
    if (bytes.length == items * itemBytes) return bytes;
    throw new DecodeException(
        "bad_length", position, "the tensor needs " + items * itemBytes + " bytes, found " + bytes.length);
  }

  private static VarHandle view(Class<?> array) {
    return MethodHandles.byteArrayViewVarHandle(array, ByteOrder.LITTLE_ENDIAN);
  }
}
