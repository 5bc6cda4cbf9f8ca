package kbit.decode;

/** Why a payload is no row: a code of shared vocabulary, the byte offset of the fault, and a sentence for people. */
public final class DecodeException extends Exception {
  public final String code;
  public final int position;

  public DecodeException(String code, int position, String reason) {
    super(reason, null, false, false); // no stack trace: a bad record is data, and there may be millions
    this.code = code;
    this.position = position;
  }

  public static DecodeException truncated(byte[] payload) {
    return new DecodeException("truncated", payload.length, "the payload ends in the middle of a value");
  }

  public static DecodeException mismatch(int position, String reason) {
    return new DecodeException("type_mismatch", position, reason);
  }

  public static DecodeException overflow(int position, String type) {
    return new DecodeException("int_overflow", position, "the number is out of the range of " + type);
  }

  public static DecodeException tooDeep(int position) {
    return new DecodeException(
        "depth_exceeded", position, "nested more than " + Decoder.MAX_DEPTH + " levels deep");
  }
}
