package kbit.decode.proto;

import java.time.Instant;
import kbit.decode.DecodeException;

/** Makes one value of a message that stands for one: a timestamp, a duration, a scalar that may be absent. */
enum ProtoWellKnown {
  TIMESTAMP {
    @Override
    Object of(Object[] row, int position) throws DecodeException {
      long seconds = (long) row[0];
      int nanos = (int) row[1];
      boolean good = seconds >= YEAR_1 && seconds < YEAR_10000 && nanos >= 0 && nanos < NANOS;
      if (!good) throw DecodeException.overflow(position, "a timestamp of the years 1 to 9999");
      return Instant.ofEpochSecond(seconds, nanos);
    }
  },

  /** As microseconds; of the nanoseconds the microsecond that they are in. */
  DURATION {
    @Override
    Object of(Object[] row, int position) throws DecodeException {
      long seconds = (long) row[0];
      int nanos = (int) row[1];
      boolean sameSign = seconds == 0 || nanos == 0 || seconds > 0 == nanos > 0;
      boolean inRange = seconds >= -LONGEST && seconds <= LONGEST && nanos > -NANOS && nanos < NANOS;
      if (!inRange || !sameSign) throw DecodeException.overflow(position, "a duration of 10,000 years");
      return seconds * 1_000_000 + Math.floorDiv(nanos, 1_000);
    }
  },

  WRAPPED {
    @Override
    Object of(Object[] row, int position) {
      return row[0];
    }
  };

  private static final long YEAR_1 = -62_135_596_800L;
  private static final long YEAR_10000 = 253_402_300_800L;
  private static final long LONGEST = 315_576_000_000L;
  private static final int NANOS = 1_000_000_000;

  /** {@code row}: the message's columns; {@code position}: where the message begins, for the error. */
  abstract Object of(Object[] row, int position) throws DecodeException;
}
