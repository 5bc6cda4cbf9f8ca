// What the binary formats share: varints, bytes and text, and arrays of numbers that a warp reads.

FUNCTION u64 read_long_varint(Cursor& in) {
  const u8* start = in.at;
  u64 value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (in.at >= in.end) { truncated(in); return 0; }
    u8 next = *in.at++;
    if (shift == 63 && (next & 0xfe)) break;
    value |= (u64)(next & 0x7f) << shift;
    if (next < 0x80) return value;
  }
  fail(in, BAD_VARINT, start);
  return 0;
}
DEVICE inline u64 read_varint(Cursor& in) {
  if (in.at < in.end && *in.at < 0x80) return *in.at++;
  return read_long_varint(in);
}
DEVICE inline i64 unzigzag(u64 raw) { return (i64)(raw >> 1) ^ -(i64)(raw & 1); }

DEVICE inline bool has(Cursor& in, i64 bytes) {
  if (bytes <= in.end - in.at) return true;
  truncated(in);
  return false;
}
DEVICE inline u64 bits_at(const u8* at, int bytes) {
  u64 value = 0;
  for (int i = 0; i < bytes; i++) value |= (u64)at[i] << (8 * i);
  return value;
}
FUNCTION u64 read_bits(Cursor& in, int bytes) {
  if (!has(in, bytes)) return 0;
  in.at += bytes;
  return bits_at(in.at - bytes, bytes);
}
DEVICE inline i64 skip(Cursor& in, i64 length) {
  if (!has(in, length)) return 0;
  in.at += length;
  return length;
}
// Passes well-formed text, for which there is room, and returns its length.
DEVICE inline i64 pass_text(Cursor& in, i64 length) {
  if (const u8* bad = utf8_fault(in.at, in.at + length)) { fail(in, BAD_UTF8, bad); return 0; }
  in.at += length;
  return length;
}

// Numbers by a warp: reads some of the next `left` varints, those that end within 32 bytes, and returns how many. `check`
// and `store` get a varint's 64 bits, `store` its place among those read, too. 0: something is unusual there, or the end
// is near; then the caller reads one number by itself.
template <class Check, class Store> DEVICE inline i64 read_window(Cursor& in, i64 left, Check check, Store store) {
  i64 room = in.end - in.at;
  const u8* at = in.at;
  u32 ends = ballot([&](int l) { return l < room && at[l] < 0x80; });
  while (bits_set(ends) > left) ends &= ~((u32)1 << highest_bit(ends));
  if (!ends) return 0;
  auto value_at = [&](int l, bool& good) {
    int from = highest_bit(ends & (((u32)1 << l) - 1)) + 1;
    u64 value = 0;
    good = l - from < 9 || (l - from == 9 && at[l] < 2);
    for (int i = from; i <= l && good; i++) value |= (u64)(at[i] & 0x7f) << (7 * (i - from));
    return value;
  };
  u32 bad = ballot([&](int l) {
    if (!(ends >> l & 1)) return false;
    bool good;
    u64 value = value_at(l, good);
    return !(good && check(value));
  });
  if (bad) return 0;
  each([&](int l) {
    if (!(ends >> l & 1)) return;
    bool good;
    store(bits_set(ends & (((u32)1 << l) - 1)), value_at(l, good));
  });
  in.at += highest_bit(ends) + 1;
  return bits_set(ends);
}
// The same for numbers of `width` bytes.
template <int width, class Check, class Store> DEVICE inline i64 read_fixed_window(Cursor& in, i64 left, Check check, Store store) {
  i64 count = (in.end - in.at) / width;
  const u8* at = in.at;
  if (count > left) count = left;
  if (count > 32) count = 32;
  if (ballot([&](int l) { return l < count && !check(bits_at(at + l * width, width)); })) return 0;
  each([&](int l) { if (l < count) store(l, bits_at(at + l * width, width)); });
  in.at += count * width;
  return count;
}
