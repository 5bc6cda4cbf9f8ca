// The headers that name a schema, judged before the body.
DEVICE inline bool open_frame(Cursor& in, const u8* marker, int markers, int length) {
  if (in.at == in.end) { fail(in, EMPTY_PAYLOAD, in.at); return false; }
  for (int i = 0; i < markers && in.at + i < in.end; i++)
    if (in.at[i] != marker[i]) { fail(in, BAD_FRAMING, in.at + i); return false; }
  if (in.end - in.at < length) { fail(in, BAD_FRAMING, in.end); return false; }
  return true;
}
// Confluent's: zero and a big-endian id of 4 bytes.
FUNCTION u64 read_confluent(Cursor& in) {
  const u8 marker[] = {0};
  if (!open_frame(in, marker, 1, 5)) return 0;
  u64 id = (u64)in.at[1] << 24 | (u64)in.at[2] << 16 | (u64)in.at[3] << 8 | in.at[4];
  in.at += 5;
  return id;
}
// Avro's single-object one: C3 01 and a little-endian fingerprint.
FUNCTION u64 read_soe(Cursor& in) {
  const u8 marker[] = {0xc3, 0x01};
  if (!open_frame(in, marker, 2, 10)) return 0;
  u64 id = 0;
  for (int i = 0; i < 8; i++) id |= (u64)in.at[2 + i] << (8 * i);
  in.at += 10;
  return id;
}
