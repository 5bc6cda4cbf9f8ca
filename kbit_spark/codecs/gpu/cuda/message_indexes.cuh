// The list behind a Confluent header that says which message of the schema follows. The same checks, in the same order,
// as kbit.decode.proto.MessageIndexes.
struct Indexes {
  enum { MOST = 8 };
  i64 index[MOST];
  i64 count;
};
DEVICE inline i64 read_message_index(Cursor& in) {
  i64 value = unzigzag(read_varint(in));
  if (in.fault) in.fault = BAD_FRAMING;
  return value;
}
FUNCTION void read_indexes(Cursor& in, Indexes& path) {
  path.index[0] = 0;
  path.count = 1;
  const u8* start = in.at;
  i64 count = read_message_index(in);
  if (in.fault || count == 0) return;
  if (count < 0 || count > in.end - in.at) { fail(in, BAD_FRAMING, start); return; }
  path.count = count;
  for (i64 i = 0; i < count && !in.fault; i++) {
    start = in.at;
    i64 index = read_message_index(in);
    if (index < 0) fail(in, BAD_FRAMING, start);
    if (i < Indexes::MOST) path.index[i] = index;
  }
}
// Returns which of `count` known paths it is, each given as its length and its indexes, or -1. One that is longer than
// any schema has is for the CPU.
FUNCTION i32 find_path(Cursor& in, const Indexes& path, const i32* known, i32 count) {
  if (path.count > Indexes::MOST) { unsure(in); return -1; }
  for (i32 i = 0; i < count; i++, known += 1 + known[0]) {
    bool same = known[0] == path.count;
    for (i32 j = 0; j < known[0] && same; j++) same = known[1 + j] == path.index[j];
    if (same) return i;
  }
  return -1;
}
