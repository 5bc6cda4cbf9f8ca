package kbit.decode;

/** Turns one payload into the values of one row. Strict: the whole payload is consumed. Used by one thread at a time. */
public interface Decoder {
  /** Levels of nesting that are read; the row itself is the first. */
  int MAX_DEPTH = 128;

  /**
   * Returns one value for each field of the plan, in the types that Catalyst's converters take.
   *
   * @param start where the body begins: 0, or behind a header; positions count from the payload's first byte
   * @throws DecodeException the payload is no row; no part of it is returned
   */
  Object[] decode(byte[] payload, int start) throws DecodeException;
}
