package kbit.decode;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/** Strict UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF. */
public final class Utf8 {
  private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.nativeOrder());
  private static final long ABOVE_ASCII = 0x8080808080808080L;

  private Utf8() {}

  /** Returns the offset of the first ill-formed sequence in {@code [start, end)}, or -1. */
  public static int firstFault(byte[] data, int start, int end) {
    int at = start;
    while (at < end) {
      if (data[at] >= 0) {
        at += at <= end - 8 && ((long) LONGS.get(data, at) & ABOVE_ASCII) == 0 ? 8 : 1;
        continue;
      }
      int length = sequence(data, at, end);
      if (length <= 0) return at;
      at += length;
    }
    return -1;
  }

  /**
   * Returns the length of the multi-byte sequence at {@code at}; 0 if it is ill-formed, -1 if {@code end} cuts a
   * sequence that is good so far.
   */
  public static int sequence(byte[] data, int at, int end) {
    int lead = data[at] & 0xff;
    int length = lead >= 0xc2 && lead <= 0xdf ? 2 : lead >= 0xe0 && lead <= 0xef ? 3 : lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
    if (length == 0) return 0;
    int low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    int high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    for (int i = 1; i < length; i++) {
      if (at + i >= end) return -1;
      int next = data[at + i] & 0xff;
      if (next < low || next > high) return 0;
      low = 0x80;
      high = 0xbf;
    }
    return length;
  }
}
