package kbit.decode;

/** Turns one payload into the values of one row. Strict: the whole payload is consumed. Used by one thread at a time. */
public interface Decoder {
  /** Levels of nesting that are read; the row itself is the first. */
  int MAX_DEPTH = 128;

  /**
   * Returns one value for each field of the plan, in the types that Catalyst's converters take.
   *
   * @throws DecodeException the payload is no row; no part of it is returned
   */
  Object[] decode(byte[] payload) throws DecodeException;
}
