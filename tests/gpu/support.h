// The kernels of kbit-gpu's support.cu that run on the CPU as well, and what the JVM makes for them.
#pragma once
using u8 = unsigned char;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

struct Span {
  i64 first;
  const i64* source;
  const i32* offsets;
  u8* out;
  i64 count, shift;
};
struct Mask {
  i64 first;
  const u8* flags;
  u32* words;
  i64 count, parent;
};
extern "C" void copy_spans(const u8* data, const Span* spans, i64 count);
extern "C" void make_masks(const Mask* masks, i64 count, u8 wanted, u64* nulls);
extern i64 simulated_thread;

const i64 NO_SOURCE = (i64)(1ULL << 63);

// As kbit.gpu.Shares: gives an item so many threads, in whole warps, and returns where the next one's begin.
template <class Item> i64 share(Item& item, i64 first, i64 threads) {
  item.first = first;
  return first + (threads + 31) / 32 * 32;
}

// Runs a kernel with at least so many threads, in whole blocks.
template <class Kernel> void launch(i64 threads, Kernel kernel) {
  for (i64 i = 0; i < (threads + 127) / 128 * 128; i++) {
    simulated_thread = i;
    kernel();
  }
}
