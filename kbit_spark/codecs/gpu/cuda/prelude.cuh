// What every kernel begins with. Compiled by NVRTC for the GPU and, in the tests, by g++ for the CPU: no include, no
// thread ever reads behind its payload, and whatever needs a warp is written against `ballot` and `each`.
typedef signed char i8; typedef unsigned char u8; typedef short i16; typedef unsigned short u16;
typedef int i32; typedef unsigned int u32; typedef long long i64; typedef unsigned long long u64;

#ifdef __CUDACC__
#define KERNEL extern "C" __global__
#define DEVICE __device__
#define FUNCTION __device__ __noinline__
DEVICE inline i64 thread_index() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
DEVICE inline int lane() { return threadIdx.x & 31; }
template <class F> DEVICE inline u32 ballot(F holds) { return __ballot_sync(~0u, holds(lane())); }
template <class F> DEVICE inline void each(F run) { run(lane()); __syncwarp(); }
DEVICE inline int bits_set(u32 mask) { return __popc(mask); }
DEVICE inline int highest_bit(u32 mask) { return 31 - __clz(mask); }
DEVICE inline float float_of(u32 bits) { return __uint_as_float(bits); }
DEVICE inline double double_of(u64 bits) { return __longlong_as_double((i64)bits); }
#else
#define KERNEL extern "C"
#define DEVICE static
#define FUNCTION static
extern i64 simulated_thread;
DEVICE inline i64 thread_index() { return simulated_thread; }
DEVICE inline int lane() { return 0; }
template <class F> DEVICE inline u32 ballot(F holds) {
  u32 mask = 0;
  for (int l = 0; l < 32; l++) mask |= (u32)(holds(l) ? 1 : 0) << l;
  return mask;
}
template <class F> DEVICE inline void each(F run) { for (int l = 0; l < 32; l++) run(l); }
DEVICE inline int bits_set(u32 mask) { return __builtin_popcount(mask); }
DEVICE inline int highest_bit(u32 mask) { return mask ? 31 - __builtin_clz(mask) : -1; }
DEVICE inline float float_of(u32 bits) { float value; __builtin_memcpy(&value, &bits, 4); return value; }
DEVICE inline double double_of(u64 bits) { double value; __builtin_memcpy(&value, &bits, 8); return value; }
#endif

// A row's status: a tombstone, ok, one of the faults (see `Fault`), or: let the CPU decide.
enum { TOMBSTONE = 0, OK = 1, UNSURE = 255 };
const i64 NO_SOURCE = (i64)1 << 63;  // of a string that is null or was written by the thread itself

// `end`: of what may be read now, which may be a part of the payload; `last`: of the payload.
struct Cursor {
  const u8 *start, *at, *end, *last;
  i32 fault, position;
  i32 empty_items;
};

DEVICE inline Cursor cursor_over(const u8* start, const u8* end) { return Cursor{start, start, end, end, 0, 0, 0}; }

// The first fault counts. The cursor stands at its end from then on, so that every loop over it ends.
DEVICE inline void fail(Cursor& in, int fault, const u8* where) {
  if (!in.fault) { in.fault = fault; in.position = (i32)(where - in.start); }
  in.at = in.end;
}
DEVICE inline void unsure(Cursor& in) { fail(in, UNSURE, in.at); }
DEVICE inline void truncated(Cursor& in) { fail(in, TRUNCATED, in.last); }

// Strict UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF. Returns the first ill-formed sequence, or 0.
FUNCTION const u8* utf8_fault(const u8* at, const u8* end) {
  while (at < end) {
    u32 lead = *at;
    if (lead < 0x80) { at++; continue; }
    int length = lead >= 0xc2 && lead <= 0xdf ? 2 : lead >= 0xe0 && lead <= 0xef ? 3 : lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
    if (!length) return at;
    u32 low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80, high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    for (int i = 1; i < length; i++) {
      if (at + i >= end || at[i] < low || at[i] > high) return at;
      low = 0x80; high = 0xbf;
    }
    at += length;
  }
  return 0;
}

DEVICE inline bool same_bytes(const u8* a, const u8* b, i64 length) {
  for (i64 i = 0; i < length; i++) if (a[i] != b[i]) return false;
  return true;
}

// The keys of one map, as far as they are few: of a key that occurs twice the CPU decides.
struct Keys {
  enum { MOST = 24 };
  const u8* start[MOST];
  i32 length[MOST];
  int count = 0;
};
FUNCTION void add_key(Cursor& in, Keys& keys, const u8* start, i64 length) {
  if (in.fault) return;
  if (keys.count == Keys::MOST) { unsure(in); return; }
  for (int i = 0; i < keys.count; i++)
    if (keys.length[i] == length && same_bytes(keys.start[i], start, length)) { unsure(in); return; }
  keys.start[keys.count] = start;
  keys.length[keys.count++] = (i32)length;
}
struct NumberKeys {
  enum { MOST = Keys::MOST };
  i64 value[MOST];
  int count = 0;
};
FUNCTION void add_key(Cursor& in, NumberKeys& keys, i64 value) {
  if (in.fault) return;
  if (keys.count == NumberKeys::MOST) { unsure(in); return; }
  for (int i = 0; i < keys.count; i++)
    if (keys.value[i] == value) { unsure(in); return; }
  keys.value[keys.count++] = value;
}

// One row on its way out. `next`: in each lane the element that is written next; lane 0 has the rows.
struct Row {
  Cursor in;
  const u8* data;
  u8* const* buffers;
  i64 next[LANES + 1];
};
#define LEAD (!WARP || lane() == 0)
#define STORE(type, buffer, lane_, value) \
  do { if (FILL && LEAD) ((type*)row.buffers[buffer])[row.next[lane_]] = (type)(value); } while (0)

// 128 bits, as DECIMAL128 has them.
struct Wide { u64 low; i64 high; };

// A number into an item of a tensor.
template <class T> DEVICE inline void put_item(u8* tensor, i64 index, T value) {
#ifdef __CUDACC__
  ((T*)tensor)[index] = value;
#else
  __builtin_memcpy(tensor + index * sizeof(T), &value, sizeof(T));
#endif
}
