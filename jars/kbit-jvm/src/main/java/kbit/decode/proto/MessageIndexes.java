package kbit.decode.proto;

import kbit.decode.DecodeException;

/** The list behind a Confluent header that says which message of the schema follows: ``[1, 0]``, as zigzag varints. */
public final class MessageIndexes {
  /** The path as text, ``1,0``: the first message inside the second. */
  public final String path;

  /** Where the message begins. */
  public final int end;

  private MessageIndexes(String path, int end) {
    this.path = path;
    this.end = end;
  }

  /** Reads the list at {@code start}; a count of 0 is short for the first message. */
  public static MessageIndexes read(byte[] payload, int start) throws DecodeException {
    ProtoCursor in = new ProtoCursor(payload, start);
    long count = zigzag(in);
    if (count == 0) return new MessageIndexes("0", in.at);
    if (count < 0 || count > payload.length - in.at) throw bad(start, "a list of " + count + " message indexes");
    StringBuilder path = new StringBuilder();
    for (long i = 0; i < count; i++) {
      int position = in.at;
      long index = zigzag(in);
      if (index < 0) throw bad(position, "the message index " + index);
      path.append(i == 0 ? "" : ",").append(index);
    }
    return new MessageIndexes(path.toString(), in.at);
  }

  private static long zigzag(ProtoCursor in) throws DecodeException {
    int start = in.at;
    try {
      long value = in.readVarint();
      return (value >>> 1) ^ -(value & 1);
    } catch (DecodeException fault) {
      boolean cut = fault.code.equals("truncated");
      throw cut ? bad(fault.position, "the list of message indexes, which is cut,") : bad(start, "a message index");
    }
  }

  private static DecodeException bad(int position, String what) {
    return new DecodeException("bad_framing", position, what + " cannot be right");
  }
}
