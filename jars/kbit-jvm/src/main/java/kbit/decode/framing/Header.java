package kbit.decode.framing;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Locale;
import kbit.decode.DecodeException;

/** The headers that name a schema: Confluent's (zero, 4-byte id) and Avro's single-object one (C3 01, fingerprint). */
enum Header {
  CONFLUENT(1, 5, 0),
  SOE(2, 10, 0xc3, 0x01);

  private static final VarHandle INT = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.BIG_ENDIAN);
  private static final VarHandle LONG = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

  final int idPosition;
  final int length;
  private final int[] marker;

  Header(int idPosition, int length, int... marker) {
    this.idPosition = idPosition;
    this.length = length;
    this.marker = marker;
  }

  static Header of(String framing) {
    return valueOf(framing.toUpperCase(Locale.ROOT));
  }

  /** Returns the schema's id or fingerprint, as it stands at {@code start}. */
  long read(byte[] payload, int start) throws DecodeException {
    if (start == payload.length) throw new DecodeException("empty_payload", start, "the payload has no bytes");
    for (int i = 0; i < marker.length && start + i < payload.length; i++) {
      if ((payload[start + i] & 0xff) != marker[i]) {
        throw new DecodeException("bad_framing", start + i, "the header's marker is absent");
      }
    }
    if (payload.length - start < length) {
      throw new DecodeException("bad_framing", payload.length, "the header of " + length + " bytes is cut");
    }
    return this == CONFLUENT ? (int) INT.get(payload, start + idPosition) : (long) LONG.get(payload, start + idPosition);
  }

  String show(long id) {
    return this == CONFLUENT ? Integer.toUnsignedString((int) id) : String.format("%016x", id);
  }
}
