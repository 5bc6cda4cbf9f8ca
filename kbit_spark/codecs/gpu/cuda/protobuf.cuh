// Protobuf's primitives, and the walk over fields that no column wants. The same checks, in the same order, as
// kbit.decode.proto.

enum WireType { WIRE_VARINT, WIRE_FIXED64, WIRE_LENGTH, WIRE_GROUP, WIRE_GROUP_END, WIRE_FIXED32 };
enum Kind {
  INT32, INT64, UINT32, UINT64, SINT32, SINT64, BOOL, ENUM,
  FIXED32, SFIXED32, FLOAT,
  FIXED64, SFIXED64, DOUBLE,
  STRING, BYTES, MESSAGE, GROUP
};
DEVICE inline u32 wire_type(i32 kind) {
  return kind <= ENUM ? WIRE_VARINT : kind <= FLOAT ? WIRE_FIXED32 : kind <= DOUBLE ? WIRE_FIXED64 : kind < GROUP ? WIRE_LENGTH : WIRE_GROUP;
}

// Reads a tag, number << 3 | wire type; 0 if it cannot be right.
DEVICE inline u32 read_tag(Cursor& in) {
  const u8* start = in.at;
  u64 tag = read_varint(in), number = tag >> 3;
  if (number == 0 || number > 0x1fffffff || (tag & 7) > WIRE_FIXED32) { fail(in, WRONG_WIRE_TYPE, start); return 0; }
  return (u32)tag;
}
FUNCTION i64 read_length(Cursor& in) {
  const u8* start = in.at;
  u64 length = read_varint(in);
  if (length > 0x7fffffff) { fail(in, BAD_LENGTH, start); return 0; }
  return has(in, (i64)length) ? (i64)length : 0;
}
// The length of a packed run of items of `width` bytes; 1 for varints.
DEVICE inline i64 read_run(Cursor& in, int width) {
  const u8* start = in.at;
  i64 length = read_length(in);
  if (length % width) { fail(in, BAD_LENGTH, start); return 0; }
  return length;
}
// Narrows what may be read to the next `length` bytes, and gives it back.
DEVICE inline const u8* enter(Cursor& in, i64 length) {
  const u8* outer = in.end;
  in.end = in.at + length;
  return outer;
}
DEVICE inline void leave(Cursor& in, const u8* outer) {
  in.end = outer;
  if (in.fault) in.at = outer;
}
// Passes bytes and returns how many; they stand before `in.at` then.
FUNCTION i64 read_bytes(Cursor& in) { return skip(in, read_length(in)); }
FUNCTION i64 read_text(Cursor& in) { return pass_text(in, read_length(in)); }

// What the bits on the wire are as a number of a kind; 64-bit unsigned numbers stay bits.
DEVICE inline bool in_range(i32 kind, u64 raw) {
  if (kind == INT32 || kind == ENUM) return (i64)(i32)raw == (i64)raw;
  if (kind == UINT32 || kind == SINT32) return raw >> 32 == 0;
  return kind != BOOL || raw >> 1 == 0;
}
DEVICE inline i64 value_of(i32 kind, u64 raw) {
  return kind == SINT32 || kind == SINT64 ? unzigzag(raw) : kind == SFIXED32 ? (i64)(i32)raw : (i64)raw;
}
DEVICE inline i64 read_number(Cursor& in, i32 kind) {
  const u8* start = in.at;
  u64 raw = kind <= ENUM ? read_varint(in) : read_bits(in, wire_type(kind) == WIRE_FIXED32 ? 4 : 8);
  if (!in_range(kind, raw)) { fail(in, INT_OVERFLOW, start); return 0; }
  return value_of(kind, raw);
}
// A 64-bit unsigned number into a signed column.
DEVICE inline i64 read_as_signed(Cursor& in, i32 kind) {
  const u8* start = in.at;
  i64 value = read_number(in, kind);
  if (value < 0) { fail(in, INT_OVERFLOW, start); return 0; }
  return value;
}
// The same as calls: a row may have hundreds of fields, and its code must stay small.
template <i32 kind> FUNCTION i64 call_read_number(Cursor& in) { return read_number(in, kind); }
template <i32 kind> FUNCTION i64 call_read_as_signed(Cursor& in) { return read_as_signed(in, kind); }

// Returns which of `count` ascending numbers it is, or -1.
FUNCTION i32 find_number(const i32* numbers, i32 count, i32 wanted) {
  i32 low = 0;
  while (low < count) {
    i32 middle = low + (count - low) / 2;
    if (numbers[middle] == wanted) return middle;
    if (numbers[middle] < wanted) low = middle + 1;
    else count = middle;
  }
  return -1;
}
// Reads an enum's number and which of its symbols it is; -1 if it is none, which only a closed enum forbids.
struct Symbol { i32 number, index; };
FUNCTION Symbol read_symbol(Cursor& in, const i32* numbers, i32 count, bool closed) {
  const u8* start = in.at;
  i32 number = (i32)read_number(in, ENUM);
  i32 index = find_number(numbers, count, number);
  if (index < 0 && closed) fail(in, BAD_ENUM, start);
  return Symbol{number, index};
}
// Writes a number as text, `out` may be null, and returns its length.
FUNCTION i64 number_text(i32 number, u8* out) {
  u32 size = number < 0 ? (u32)0 - (u32)number : (u32)number;
  i64 length = number < 0 ? 2 : 1;
  for (u32 rest = size; rest >= 10; rest /= 10) length++;
  if (!out) return length;
  if (number < 0) out[0] = '-';
  for (i64 i = length - 1; i >= (number < 0); i--, size /= 10) out[i] = (u8)('0' + size % 10);
  return length;
}

// A repeated number on its way into a tensor: how many items are there, where the last run or item began, and the run
// that is the tensor as it lies on the wire.
struct Items {
  i64 count = 0;
  const u8 *run = 0, *whole = 0;
};
// A float's bits are kept, but a processor may change those of a NaN: then the CPU decides.
DEVICE inline bool is_signaling(float value, u64 raw) { return value != value && !(raw & 0x400000); }
DEVICE inline bool is_signaling(double value, u64 raw) { return value != value && !(raw & 0x8000000000000); }

// The fields of all messages, by message and number. `part`: the message of a message, where the numbers of an enum
// begin; -1: only the CPU reads it. `count`: of those numbers, -1 for an open enum. `required`: its bit among those that
// must occur, or 0.
struct Field { i32 number, kind, packable, part, count; u32 required; };
struct Message { i32 first, count; u32 required; };
struct Schema { const Field* fields; const Message* messages; const i32* numbers; };

DEVICE inline const Field* find_field(const Schema& schema, i32 message, i32 number) {
  if (message < 0) return 0;
  i32 low = schema.messages[message].first, high = low + schema.messages[message].count;
  while (low < high) {
    i32 middle = low + (high - low) / 2;
    if (schema.fields[middle].number == number) return schema.fields + middle;
    if (schema.fields[middle].number < number) low = middle + 1;
    else high = middle;
  }
  return 0;
}
FUNCTION void check_value(Cursor& in, const Schema& schema, const Field& field) {
  if (field.kind == STRING) read_text(in);
  else if (field.kind == BYTES) read_bytes(in);
  else if (field.kind == ENUM && field.count >= 0) read_symbol(in, schema.numbers + field.part, field.count, true);
  else read_number(in, field.kind);
}
FUNCTION void skip_unknown(Cursor& in, u32 tag, const u8* tag_at) {
  switch (tag & 7) {
    case WIRE_VARINT: read_varint(in); break;
    case WIRE_FIXED64: skip(in, 8); break;
    case WIRE_LENGTH: read_bytes(in); break;
    case WIRE_FIXED32: skip(in, 4); break;
    default: fail(in, UNBALANCED_GROUP, tag_at);
  }
}

// A message or group that is open; of an unknown group `message` is -1.
struct Level {
  const u8* outer;
  i32 message, group;
  u32 seen;
};
// Reads a value behind its tag; true if it is a message or group, which is then open as `inner`.
FUNCTION bool check_field(Cursor& in, const Schema& schema, u32 tag, const u8* tag_at, Level& level, Level& inner) {
  const Field* field = find_field(schema, level.message, (i32)(tag >> 3));
  u32 wire = tag & 7;
  if (!field || wire == WIRE_GROUP_END) {
    if (wire != WIRE_GROUP) { skip_unknown(in, tag, tag_at); return false; }
    inner = Level{in.end, -1, (i32)(tag >> 3), 0};
    return true;
  }
  bool packed = field->packable && wire == WIRE_LENGTH;
  if (wire != wire_type(field->kind) && !packed) { fail(in, WRONG_WIRE_TYPE, tag_at); return false; }
  level.seen |= field->required;
  if (field->kind == GROUP) {
    if (field->part < 0) unsure(in);
    inner = Level{in.end, field->part, field->number, 0};
    return true;
  }
  if (field->kind == MESSAGE) {
    inner = Level{enter(in, read_length(in)), field->part, 0, 0};
    return true;
  }
  if (!packed) { check_value(in, schema, *field); return false; }
  u32 item = wire_type(field->kind);
  const u8* outer = enter(in, read_run(in, item == WIRE_FIXED32 ? 4 : item == WIRE_FIXED64 ? 8 : 1));
  while (in.at < in.end) check_value(in, schema, *field);
  leave(in, outer);
  return false;
}
// Passes the value of a field of `message` that no column wants, or reports why its tag cannot be right. What is nested
// too deep, and a required field that is absent, which may come when the message goes on, the CPU judges.
FUNCTION void pass_over(Cursor& in, const Schema& schema, i32 message, u32 tag, const u8* tag_at) {
  enum { MOST = 16 };
  Level levels[MOST];
  levels[0] = Level{in.end, message, 0, 0};
  for (int open = 0;;) {
    if (check_field(in, schema, tag, tag_at, levels[open], levels[open + 1])) {
      if (++open == MOST - 1) unsure(in);
    }
    for (bool more = false; open && !more;) {
      if (in.fault) { leave(in, levels[0].outer); return; }
      Level& level = levels[open];
      tag_at = in.at;
      if (level.group && in.at == in.end) { fail(in, UNBALANCED_GROUP, in.at); continue; }
      more = in.at < in.end;
      if (more) tag = read_tag(in);
      if (more && level.group && tag == ((u32)level.group << 3 | WIRE_GROUP_END)) more = false;
      if (more) continue;
      u32 required = level.message < 0 ? 0 : schema.messages[level.message].required;
      if ((level.seen & required) != required) unsure(in);
      in.end = level.outer;
      open--;
    }
    if (!open) { leave(in, levels[0].outer); return; }
  }
}
