// Strict JSON (RFC 8259) and MongoDB Extended JSON. A kernel only says ok or unsure here: what is wrong with a text, and
// where, is the CPU's to say, and so is whatever is right but rare.

DEVICE inline bool is_digit(int c) { return c >= '0' && c <= '9'; }
// Skips white space and returns the byte there; -1 at the end.
DEVICE inline int peek(Cursor& in) {
  while (in.at < in.end) {
    u8 next = *in.at;
    if (next != ' ' && next != '\n' && next != '\t' && next != '\r') return next;
    in.at++;
  }
  return -1;
}
DEVICE inline void expect(Cursor& in, int wanted) {
  if (peek(in) != wanted) unsure(in);
  else in.at++;
}
// Goes into a list or object; false where it is empty, and then it is consumed.
DEVICE inline bool enter(Cursor& in, int close) {
  in.at++;
  if (peek(in) != close) return !in.fault;
  in.at++;
  return false;
}
// Behind an item: true at a comma, false at `close`; both are consumed.
DEVICE inline bool more(Cursor& in, int close) {
  int next = peek(in);
  if (next != ',' && next != close) { unsure(in); return false; }
  in.at++;
  return next == ',';
}
FUNCTION bool take_word(Cursor& in, const char* word) {
  const u8* at = in.at;
  for (; *word; word++, at++)
    if (at >= in.end || *at != (u8)*word) { unsure(in); return false; }
  in.at = at;
  return true;
}
DEVICE inline bool take_null(Cursor& in) { return peek(in) == 'n' && take_word(in, "null"); }
DEVICE inline u8 read_boolean(Cursor& in) {
  int next = peek(in);
  if (next == 't') return take_word(in, "true");
  take_word(in, "false");
  return 0;
}

// A string, the cursor on its opening quote. `length`: of the text, its escapes resolved.
struct Text { const u8 *start, *end; i64 length; bool escaped; };
FUNCTION i32 code_unit(Cursor& in) {
  i32 value = 0;
  for (int i = 0; i < 4; i++) {
    int c = in.at < in.end ? *in.at++ : 0;
    int digit = is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) { unsure(in); return 0; }
    value = value << 4 | digit;
  }
  return value;
}
// Reads an escape, the cursor behind its backslash, and returns the character.
FUNCTION u32 read_escape(Cursor& in) {
  if (in.at >= in.end) { unsure(in); return 0; }
  switch (*in.at++) {
    case '"': return '"';
    case '\\': return '\\';
    case '/': return '/';
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'u': break;
    default: unsure(in); return 0;
  }
  u32 high = (u32)code_unit(in);
  if (high < 0xd800 || high > 0xdfff) return high;
  if (high > 0xdbff || in.end - in.at < 2 || in.at[0] != '\\' || in.at[1] != 'u') { unsure(in); return 0; }
  in.at += 2;
  u32 low = (u32)code_unit(in);
  if (low < 0xdc00 || low > 0xdfff) { unsure(in); return 0; }
  return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}
DEVICE inline int utf8_length(u32 c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }
FUNCTION Text read_string(Cursor& in) {
  Text text = {in.at + 1, in.at + 1, 0, false};
  if (peek(in) != '"') { unsure(in); return text; }
  text.start = ++in.at;
  const u8* run = in.at;
  bool ascii = true;
  i64 saved = 0;
  while (in.at < in.end) {
    u8 next = *in.at;
    if (next == '"') break;
    if (next < 0x20) { unsure(in); return text; }
    if (next >= 0x80) ascii = false;
    if (next != '\\') { in.at++; continue; }
    if (!ascii && utf8_fault(run, in.at)) { unsure(in); return text; }
    const u8* start = in.at++;
    u32 character = read_escape(in);
    if (in.fault) return text;
    saved += (in.at - start) - utf8_length(character);
    text.escaped = true;
    run = in.at;
    ascii = true;
  }
  if (in.at >= in.end || (!ascii && utf8_fault(run, in.at))) { unsure(in); return text; }
  text.end = in.at++;
  text.length = text.end - text.start - saved;
  return text;
}
FUNCTION void write_text(const Text& text, u8* out) {
  Cursor in = cursor_over(text.start, text.end);
  while (in.at < in.end) {
    u8 next = *in.at++;
    if (next != '\\') { *out++ = next; continue; }
    u32 c = read_escape(in);
    int length = utf8_length(c);
    if (length == 1) { *out++ = (u8)c; continue; }
    *out++ = (u8)((length == 2 ? 0xc0 : length == 3 ? 0xe0 : 0xf0) | c >> (6 * (length - 1)));
    for (int i = length - 2; i >= 0; i--) *out++ = (u8)(0x80 | ((c >> (6 * i)) & 0x3f));
  }
}
// A member's name; one with escapes is left to the CPU.
DEVICE inline Text read_name(Cursor& in) {
  Text name = read_string(in);
  if (name.escaped) unsure(in);
  return name;
}
// Returns which of `count` names it is, -1 for none; members mostly come in the order of the fields.
FUNCTION i32 find_name(const Text& name, const u8* names, const i32* places, i32 count, i32 expected) {
  for (i32 i = 0; i < count; i++) {
    i32 index = expected + i < count ? expected + i : expected + i - count;
    i64 length = places[index + 1] - places[index];
    if (length == name.length && same_bytes(names + places[index], name.start, length)) return index;
  }
  return -1;
}

// Passes a number if its grammar is right.
struct Number { u64 digits; i32 exponent, count; bool negative, integer; };
FUNCTION Number read_number(Cursor& in) {
  Number number = {0, 0, 0, false, true};
  if (peek(in) == '-') { number.negative = true; in.at++; }
  const u8* first = in.at;
  const u8* point = 0;
  // digits that do not count: zeros in front
  while (in.at < in.end && (is_digit(*in.at) || (*in.at == '.' && !point && in.at > first))) {
    if (*in.at == '.') { point = in.at++; continue; }
    if (number.digits || *in.at != '0') {
      number.count++;
      if (number.count <= 19) number.digits = number.digits * 10 + (*in.at - '0');
    }
    if (point) number.exponent--;
    in.at++;
  }
  const u8* whole = point ? point : in.at;
  if (whole == first || (*first == '0' && whole > first + 1) || (point && in.at == point + 1)) { unsure(in); return number; }
  number.integer = !point;
  if (in.at < in.end && (*in.at == 'e' || *in.at == 'E')) {
    number.integer = false;
    in.at++;
    bool minus = in.at < in.end && *in.at == '-';
    if (in.at < in.end && (*in.at == '-' || *in.at == '+')) in.at++;
    if (in.at >= in.end || !is_digit(*in.at)) { unsure(in); return number; }
    i32 exponent = 0;
    for (; in.at < in.end && is_digit(*in.at); in.at++) if (exponent < 100000) exponent = exponent * 10 + (*in.at - '0');
    number.exponent += minus ? -exponent : exponent;
  }
  return number;
}
FUNCTION i64 read_integer(Cursor& in, i64 low, i64 high) {
  Number number = read_number(in);
  if (!number.integer || number.count > 18) unsure(in);
  i64 value = (i64)(number.negative ? 0 - number.digits : number.digits);
  if (value < low || value > high) unsure(in);
  return in.fault ? 0 : value;
}

DEVICE inline u64 multiply_high(u64 a, u64 b) {
#ifdef __CUDACC__
  return __umul64hi(a, b);
#else
  return (u64)((unsigned __int128)a * b >> 64);
#endif
}
DEVICE inline int leading_zeros(u64 value) {
#ifdef __CUDACC__
  return __clzll((i64)value);
#else
  return __builtin_clzll(value);
#endif
}
// The nearest double of digits times ten to a power, by the method of Eisel and Lemire (D. Lemire, "Number parsing at a
// gigabyte per second", 2021): a product with a power's first 128 bits decides, but in rare cases, which are the CPU's.
FUNCTION double to_double(Cursor& in, const Number& number) {
  const double zero = number.negative ? -0.0 : 0.0;
  if (number.digits == 0) return zero;
  if (number.count > 19 || number.exponent < -POWERS || number.exponent > POWERS) { unsure(in); return 0; }
  int shift = leading_zeros(number.digits);
  u64 digits = number.digits << shift;
  const u64* power = powers_of_ten + 2 * (number.exponent + POWERS);
  u64 high = multiply_high(digits, power[0]), low = digits * power[0];
  if ((high & 0x1ff) == 0x1ff) {
    u64 carry = multiply_high(digits, power[1]);
    low += carry;
    if (low < carry) high++;
    if (low == ~(u64)0) { unsure(in); return 0; }
  }
  int top = (int)(high >> 63);
  u64 mantissa = high >> (top + 9);
  i32 binary = ((217706 * number.exponent) >> 16) + 63 + top - shift + 1023;
  if (binary <= 0 || binary >= 2046) { unsure(in); return 0; }
  bool halfway = low <= 1 && number.exponent >= -4 && number.exponent <= 23 && (mantissa & 3) == 1;
  if (halfway && mantissa << (top + 9) == high) mantissa &= ~(u64)1;  // a tie goes to the even one
  mantissa = (mantissa + (mantissa & 1)) >> 1;
  if (mantissa >> 53) { mantissa = (u64)1 << 52; binary++; }
  u64 bits = (mantissa & (((u64)1 << 52) - 1)) | (u64)binary << 52 | (u64)(number.negative ? 1 : 0) << 63;
  return double_of(bits);
}
FUNCTION double read_double(Cursor& in) {
  Number number = read_number(in);
  return in.fault ? 0 : to_double(in, number);
}
// The double is the nearest one, so its float is too, unless it fell on the middle between two floats.
FUNCTION float read_float(Cursor& in) {
  double near = read_double(in);
  double size = near < 0 ? -near : near;
  if (near == 0) return (float)near;
  union { double value; u64 bits; } as = {near};
  if (size < 1.1754943508222875e-38 || size >= 3.4028234663852886e38 || (as.bits & 0x1fffffff) == 0x10000000) unsure(in);
  return in.fault ? 0 : (float)near;
}
// A decimal whose digits all have their place; exponents are the CPU's.
FUNCTION Wide read_decimal(Cursor& in, i32 precision, i32 scale) {
  Wide value = {0, 0};
  peek(in);
  const u8* start = in.at;
  Number number = read_number(in);
  i32 counted = 0, behind = -1;
  for (const u8* at = start; at < in.at && !in.fault; at++) {
    if (*at == '-') continue;
    if (*at == '.') { behind = 0; continue; }
    if (!is_digit(*at)) { unsure(in); break; }
    if (behind >= scale && *at != '0') { unsure(in); break; }
    if (behind >= scale && behind >= 0) continue;
    if (behind >= 0) behind++;
    if (counted || *at != '0') counted++;
    if (counted > precision) { unsure(in); break; }
    u64 low = value.low * 10, digit = *at - '0';
    value.high = (i64)((u64)value.high * 10 + multiply_high(value.low, 10) + (low + digit < low));
    value.low = low + digit;
  }
  for (i32 i = behind < 0 ? 0 : behind; i < scale && !in.fault; i++) {
    if (counted && ++counted > precision) { unsure(in); break; }
    u64 low = value.low * 10;
    value.high = (i64)((u64)value.high * 10 + multiply_high(value.low, 10));
    value.low = low;
  }
  if (in.fault) return Wide{0, 0};
  if (number.negative) {
    value.low = ~value.low + 1;
    value.high = (i64)(~(u64)value.high + (value.low == 0));
  }
  return value;
}

DEVICE inline i32 two_digits(const u8* at) { return is_digit(at[0]) && is_digit(at[1]) ? (at[0] - '0') * 10 + at[1] - '0' : 1000; }
// Days since 1970 of YYYY-MM-DD; false where there is no such day.
FUNCTION bool to_days(const u8* at, i32& days) {
  i32 century = two_digits(at), rest = two_digits(at + 2), month = two_digits(at + 5), day = two_digits(at + 8);
  if (century > 99 || rest > 99 || at[4] != '-' || at[7] != '-' || month < 1 || month > 12 || day < 1) return false;
  i32 year = century * 100 + rest;
  bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  i32 length = month == 2 ? (leap ? 29 : 28) : month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
  if (day > length) return false;
  // years begin in March here, so that a leap day is their last
  i32 y = year + 400 - (month <= 2), m = (month + 9) % 12;
  days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719468 - 146097;
  return true;
}
FUNCTION i32 read_date(Cursor& in) {
  Text text = read_string(in);
  i32 days = 0;
  if (in.fault || text.escaped || text.length != 10 || !to_days(text.start, days)) unsure(in);
  return days;
}
// Microseconds since 1970 of YYYY-MM-DDTHH:MM:SS.ffffff with Z or an offset.
FUNCTION i64 read_instant(Cursor& in) {
  Text text = read_string(in);
  i32 days = 0;
  if (in.fault || text.escaped || text.length < 20 || !to_days(text.start, days)) { unsure(in); return 0; }
  const u8* at = text.start;
  i32 hour = two_digits(at + 11), minute = two_digits(at + 14), second = two_digits(at + 17);
  if (at[10] != 'T' || at[13] != ':' || at[16] != ':' || hour > 23 || minute > 59 || second > 59) { unsure(in); return 0; }
  at += 19;
  i64 micros = 0;
  if (*at == '.') {
    int digits = 0;
    for (at++; at < text.end && is_digit(*at) && digits < 9; at++, digits++) {
      if (digits < 6) micros = micros * 10 + (*at - '0');
      else if (*at != '0') { unsure(in); return 0; }
    }
    if (digits == 0) unsure(in);
    for (; digits < 6; digits++) micros *= 10;
  }
  i64 offset = 0;
  if (text.end - at == 1 && *at == 'Z') {
    offset = 0;
  } else if (text.end - at == 6 && (*at == '+' || *at == '-') && at[3] == ':') {
    i32 hours = two_digits(at + 1), minutes = two_digits(at + 4);
    if (hours > 17 || minutes > 59) unsure(in);  // up to 18:00, but that is rare
    offset = (*at == '-' ? -60 : 60) * (i64)(hours * 60 + minutes);
  } else {
    unsure(in);
  }
  return ((i64)days * 86400 + hour * 3600 + minute * 60 + second - offset) * 1000000 + micros;
}

DEVICE inline i32 base64_value(u8 c) {
  return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : is_digit(c) ? c - '0' + 52 : c == '+' ? 62 : c == '/' ? 63 : -1;
}
// Padded base64 into `out`, which may be null; returns the number of bytes.
FUNCTION i64 read_base64(Cursor& in, u8* out) {
  Text text = read_string(in);
  if (in.fault || text.escaped || text.length % 4) { unsure(in); return 0; }
  const u8* end = text.end;
  while (end > text.start && text.end - end < 2 && end[-1] == '=') end--;
  u32 bits = 0;
  i64 bytes = 0;
  int held = 0;
  for (const u8* at = text.start; at < end; at++) {
    i32 value = base64_value(*at);
    if (value < 0) { unsure(in); return 0; }
    bits = bits << 6 | (u32)value;
    held += 6;
    if (held < 8) continue;
    held -= 8;
    if (out) out[bytes] = (u8)(bits >> held);
    bytes++;
  }
  if (bits & ((1u << held) - 1)) { unsure(in); return 0; }  // bits that no byte needs must be zero
  if (held >= 6) { unsure(in); return 0; }
  return bytes;
}

// Passes a value that no field wants, `LEFT` levels deep at most.
template <int LEFT> FUNCTION void skip_value(Cursor& in) {
  int next = peek(in);
  if (next == '"') { read_string(in); return; }
  if (next == 't') { take_word(in, "true"); return; }
  if (next == 'f') { take_word(in, "false"); return; }
  if (next == 'n') { take_word(in, "null"); return; }
  if (next != '{' && next != '[') { read_number(in); return; }
  if constexpr (LEFT == 0) {
    unsure(in);
  } else if (next == '[') {
    for (bool go = enter(in, ']'); go && !in.fault; go = more(in, ']')) skip_value<LEFT - 1>(in);
  } else {
    Keys names;
    names.count = 0;
    for (bool go = enter(in, '}'); go && !in.fault; go = more(in, '}')) {
      Text name = read_name(in);
      if (MONGO && name.length && *name.start == '$') { unsure(in); return; }  // a wrapper has rules of its own
      add_key(in, names, name.start, name.length);
      expect(in, ':');
      skip_value<LEFT - 1>(in);
    }
  }
}

// Integers of a list by a warp: those of the next `left` that end, with a comma, within 32 bytes; returns how many. 0:
// something is unusual there, or the end is near; then the caller reads one item by itself.
template <class Check, class Store> DEVICE inline i64 read_integers(Cursor& in, i64 left, Check check, Store store) {
  i64 room = in.end - in.at;
  const u8* at = in.at;
  u32 commas = ballot([&](int l) { return l < room && at[l] == ','; });
  while (bits_set(commas) > left) commas &= ~((u32)1 << highest_bit(commas));
  if (!commas) return 0;
  auto value_at = [&](int l, bool& good) {
    int from = highest_bit(commas & (((u32)1 << l) - 1)) + 1;
    while (from < l && at[from] == ' ') from++;
    bool negative = from < l && at[from] == '-';
    if (negative) from++;
    good = from < l && l - from <= 18 && (at[from] != '0' || l - from == 1);
    i64 value = 0;
    for (int i = from; i < l && good; i++) {
      good = is_digit(at[i]);
      value = value * 10 + (at[i] - '0');
    }
    return negative ? -value : value;
  };
  u32 bad = ballot([&](int l) {
    if (!(commas >> l & 1)) return false;
    bool good;
    i64 value = value_at(l, good);
    return !(good && check(value));
  });
  if (bad) return 0;
  each([&](int l) {
    if (!(commas >> l & 1)) return;
    bool good;
    store(bits_set(commas & (((u32)1 << l) - 1)), value_at(l, good));
  });
  in.at += highest_bit(commas) + 1;
  return bits_set(commas);
}

// MongoDB's wrappers, in the form that drivers write; any other is the CPU's. Goes in up to the value's quote.
FUNCTION bool open_wrapper(Cursor& in, const char* name) {
  expect(in, '{');
  Text found = read_name(in);
  const u8* at = found.start;
  for (; *name && !in.fault; name++, at++) if (at >= found.end || *at != (u8)*name) unsure(in);
  if (!in.fault && at != found.end) unsure(in);
  expect(in, ':');
  return !in.fault && peek(in) == '"';
}
// The text of a wrapped number as a cursor of its own.
DEVICE inline Cursor inner_text(Cursor& in) {
  Text text = read_string(in);
  if (text.escaped) unsure(in);
  Cursor inner = in.fault ? cursor_over(in.end, in.end) : cursor_over(text.start, text.end);
  return inner;
}
DEVICE inline bool starts_plain(const Cursor& in) { return in.at < in.end && (is_digit(*in.at) || *in.at == '-'); }
FUNCTION bool next_is(Cursor in, const char* name) {
  expect(in, '{');
  Text found = read_name(in);
  const u8* at = found.start;
  for (; *name && !in.fault; name++, at++) if (at >= found.end || *at != (u8)*name) return false;
  return !in.fault && at == found.end;
}
FUNCTION i64 read_mongo_integer(Cursor& in, i64 low, i64 high) {
  if (peek(in) != '{') return read_integer(in, low, high);
  bool small = next_is(in, "$numberInt");
  if (!open_wrapper(in, small ? "$numberInt" : "$numberLong")) { unsure(in); return 0; }
  Cursor text = inner_text(in);
  i64 bound = small ? 0x7fffffffLL : 0x7fffffffffffffffLL;
  if (!starts_plain(text)) unsure(in);
  i64 value = read_integer(text, -bound - 1, bound);
  if (text.fault || text.at != text.end || value < low || value > high) unsure(in);
  expect(in, '}');
  return in.fault ? 0 : value;
}
FUNCTION double read_mongo_double(Cursor& in) {
  if (peek(in) != '{') return read_double(in);
  if (!next_is(in, "$numberDouble")) return (double)read_mongo_integer(in, -0x7fffffffffffffffLL - 1, 0x7fffffffffffffffLL);
  if (!open_wrapper(in, "$numberDouble")) { unsure(in); return 0; }
  Cursor text = inner_text(in);
  if (!starts_plain(text)) unsure(in);
  double value = read_double(text);
  if (text.fault || text.at != text.end) unsure(in);
  expect(in, '}');
  return value;
}
FUNCTION i64 read_mongo_instant(Cursor& in) {
  if (peek(in) != '{') return read_instant(in);
  if (open_wrapper(in, "$date")) {
    i64 micros = read_instant(in);
    expect(in, '}');
    return micros;
  }
  const i64 bound = 0x7fffffffffffffffLL / 1000;
  i64 millis = read_mongo_integer(in, -bound, bound);
  expect(in, '}');
  return millis * 1000;
}
