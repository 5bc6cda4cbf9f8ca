// Avro's primitives. The same checks, in the same order, as kbit.decode.avro.AvroCursor.

DEVICE inline i64 read_long(Cursor& in) { return unzigzag(read_varint(in)); }
DEVICE inline i32 read_int(Cursor& in) {
  const u8* start = in.at;
  i64 value = read_long(in);
  if ((i32)value != value) { fail(in, INT_OVERFLOW, start); return 0; }
  return (i32)value;
}
DEVICE inline u8 read_boolean(Cursor& in) {
  if (!has(in, 1)) return 0;
  if (*in.at > 1) { fail(in, TYPE_MISMATCH, in.at); return 0; }
  return *in.at++;
}
DEVICE inline i64 read_length(Cursor& in) {
  const u8* start = in.at;
  i64 length = read_long(in);
  if (length < 0 || length > 0x7fffffff) { fail(in, BAD_LENGTH, start); return 0; }
  return has(in, length) ? length : 0;
}
// Passes bytes and returns how many; they stand before `in.at` then.
DEVICE inline i64 read_bytes(Cursor& in) { return skip(in, read_length(in)); }
DEVICE inline i64 read_text(Cursor& in) { return pass_text(in, read_length(in)); }
DEVICE inline i32 read_index(Cursor& in, i64 count, int fault) {
  const u8* start = in.at;
  i64 index = read_long(in);
  if (index < 0 || index >= count) { fail(in, fault, start); return 0; }
  return (i32)index;
}

DEVICE inline i64 read_time(Cursor& in, i64 value, const u8* start, i64 day) {
  if (value < 0 || value >= day) { fail(in, INT_OVERFLOW, start); return 0; }
  return value;
}
DEVICE inline i64 read_time_millis(Cursor& in) {
  const u8* start = in.at;
  return 1000 * read_time(in, read_int(in), start, 86400000);
}
DEVICE inline i64 read_time_micros(Cursor& in) {
  const u8* start = in.at;
  return read_time(in, read_long(in), start, 86400000000);
}
FUNCTION i64 read_timestamp(Cursor& in, i32 per_second) {
  const i64 most = 0x7fffffffffffffff;
  const u8* start = in.at;
  i64 value = read_long(in);
  if (per_second == 1000000) return value;
  if (per_second == 1000) {
    if (value > most / 1000 || value < (-most - 1) / 1000) { fail(in, INT_OVERFLOW, start); return 0; }
    return value * 1000;
  }
  return value / 1000 - (value % 1000 < 0);
}

// A decimal: big-endian two's complement of `size` bytes (-1: behind a length), of fewer than `limit` = 10^precision.
FUNCTION Wide read_decimal(Cursor& in, i32 size, Wide limit) {
  const u8* start = in.at;
  i64 length = size < 0 ? read_length(in) : size;
  if (!has(in, length)) return Wide{0, 0};
  if (length == 0) { fail(in, BAD_LENGTH, start); return Wide{0, 0}; }
  const u8* digits = in.at;
  in.at += length;
  u64 sign = digits[0] & 0x80 ? ~(u64)0 : 0;
  Wide value = {sign, (i64)sign};
  bool fits = true;
  for (i64 i = 0; i < length; i++) {
    fits &= (u8)((u64)value.high >> 56) == (u8)sign && (value.high < 0) == (sign != 0);  // what leaves must be sign only
    value.high = (i64)((u64)value.high << 8 | value.low >> 56);
    value.low = value.low << 8 | digits[i];
  }
  fits &= (value.high < 0) == (sign != 0);
  Wide size_of = value;
  if (value.high < 0) {
    size_of.low = ~value.low + 1;
    size_of.high = (i64)(~(u64)value.high + (size_of.low == 0));
    fits &= size_of.high >= 0;
  }
  if (!fits || size_of.high > limit.high || (size_of.high == limit.high && size_of.low >= limit.low)) {
    fail(in, INT_OVERFLOW, start);
    return Wide{0, 0};
  }
  return value;
}

DEVICE inline i32 hex_digit(u8 c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}
DEVICE inline bool uuid_hyphen(int i) { return i == 8 || i == 13 || i == 18 || i == 23; }
// A UUID in lower case into `out`, which may be null; `size`: -1 for text, else 16.
FUNCTION void read_uuid(Cursor& in, i32 size, u8* out) {
  const u8* start = in.at;
  if (size < 0) {
    i64 length = read_text(in);
    const u8* text = in.at - length;
    bool good = length == 36;
    for (int i = 0; good && i < 36; i++) {
      good = uuid_hyphen(i) ? text[i] == '-' : hex_digit(text[i]) >= 0;
      if (good && out) out[i] = text[i] >= 'A' && text[i] <= 'F' ? text[i] + 32 : text[i];
    }
    if (!good) fail(in, TYPE_MISMATCH, start);
    return;
  }
  if (!has(in, 16)) return;
  for (int i = 0, digit = 0; out && i < 36; i++) {
    if (uuid_hyphen(i)) { out[i] = '-'; continue; }
    u8 half = digit & 1 ? in.at[digit / 2] & 15 : in.at[digit / 2] >> 4;
    out[i] = half < 10 ? '0' + half : 'a' + half - 10;
    digit++;
  }
  in.at += 16;
}

// The blocks of an array or map; a block that states its size must have it.
struct Blocks {
  const u8 *end, *size_at, *count_at;
};
FUNCTION i64 next_block(Cursor& in, Blocks& blocks) {
  if (blocks.end && in.at != blocks.end) { fail(in, BAD_LENGTH, blocks.size_at); return 0; }
  blocks.end = 0;
  blocks.count_at = in.at;
  i64 count = read_long(in);
  if (in.fault || count == 0) return 0;
  if (count > 0x7fffffff || count < -0x7fffffff) { fail(in, BAD_LENGTH, blocks.count_at); return 0; }
  if (count > 0) return count;
  blocks.size_at = in.at;
  i64 size = read_long(in);
  if (size < 0 || size > 0x7fffffff) { fail(in, BAD_LENGTH, blocks.size_at); return 0; }
  if (!has(in, size)) return 0;
  blocks.end = in.at + size;
  return in.fault ? 0 : -count;
}
// An item took no byte: so many of them may stand in a payload, for they would fill the memory.
DEVICE inline void count_empty(Cursor& in, const Blocks& blocks) {
  if (++in.empty_items > 1 << 16) fail(in, BAD_LENGTH, blocks.count_at);
}
