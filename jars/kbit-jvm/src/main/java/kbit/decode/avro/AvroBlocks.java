package kbit.decode.avro;

import kbit.decode.DecodeException;

/** Walks the blocks of an Avro array or map; a block that states its size must have it. */
final class AvroBlocks {
  private final AvroCursor in;
  private int end = -1;

  /** Where the count of the current block stands, for errors about it. */
  int countPosition;

  AvroBlocks(AvroCursor in) {
    this.in = in;
  }

  /** Ends the current block and returns the item count of the next one; 0 at the end. */
  int next() throws DecodeException {
    if (end >= 0 && in.at != end) throw in.badLength(countPosition, "a block size that disagrees with its items");
    end = -1;
    countPosition = in.at;
    long count = in.readLong();
    if (count == 0) return 0;
    if (count > Integer.MAX_VALUE || count < -Integer.MAX_VALUE) {
      throw in.badLength(countPosition, "a count of " + count);
    }
    if (count < 0) {
      int start = in.at;
      long size = in.readLong();
      if (size < 0 || size > Integer.MAX_VALUE) throw in.badLength(start, "a block size of " + size);
      if (size > in.data.length - in.at) throw DecodeException.truncated(in.data);
      countPosition = start;
      end = in.at + (int) size;
    }
    return (int) Math.abs(count);
  }
}
