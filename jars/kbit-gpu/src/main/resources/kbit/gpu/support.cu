// What the JVM needs around a program's own kernels. No include: NVRTC has no header path. The tests run all but
// `prefix_sums` on the CPU as well, thread by thread, under sanitizers.
typedef unsigned char u8;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#ifdef __CUDACC__
#define KERNEL extern "C" __global__
#define DEVICE __device__ inline
DEVICE i64 thread_index() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
DEVICE u32 bits_set(u32 word) { return __popc(word); }
DEVICE u8 constant_byte(const u8* at) { return __ldg(at); }  // no store of this kernel changes it, so loads may run ahead

// Adds the numbers of a warp's threads, all of which come here, by one atomic operation.
DEVICE void add_of_warp(u64* sum, u32 number) {
  for (int distance = 16; distance > 0; distance /= 2) number += __shfl_xor_sync(0xffffffffu, number, distance);
  if ((threadIdx.x & 31) == 0 && number) atomicAdd(sum, (u64)number);
}
#else
#define KERNEL extern "C"
#define DEVICE static inline
extern i64 simulated_thread;
DEVICE i64 thread_index() { return simulated_thread; }
DEVICE u32 bits_set(u32 word) { return __builtin_popcount(word); }
DEVICE u8 constant_byte(const u8* at) { return *at; }
DEVICE void add_of_warp(u64* sum, u32 number) { *sum += number; }
#endif

// Returns which of the items that share a launch (kbit.gpu.Shares) has a thread: the last that does not begin behind it.
template <class Item> DEVICE i64 item_of(const Item* items, i64 count, i64 thread) {
  i64 low = 0, high = count;
  while (high - low > 1) {
    const i64 middle = (low + high) / 2;
    if (items[middle].first <= thread) low = middle;
    else high = middle;
  }
  return low;
}

// The strings or tensors of a column. 2 to the power of `shift` threads copy an element.
struct Span {
  i64 first;
  const i64* source;
  const i32* offsets;
  u8* out;
  i64 count, shift;
};
const i64 NO_SOURCE = (i64)1 << 63;  // as a program's own: a null, or what the thread of a row has written itself

// A source may lie outside of `data`: symbols and defaults are constants of the program.
KERNEL void copy_spans(const u8* data, const Span* spans, i64 count) {
  const Span span = spans[item_of(spans, count, thread_index())];
  const i64 thread = thread_index() - span.first, threads = (i64)1 << span.shift, element = thread >> span.shift;
  if (element >= span.count || span.source[element] == NO_SOURCE) return;
  const i64 start = span.offsets[element], length = span.offsets[element + 1] - start;
  const u8* from = (const u8*)((u64)data + (u64)span.source[element]);
  u8* to = span.out + start;
  for (i64 at = thread & (threads - 1); at < length; at += threads) to[at] = constant_byte(from + at);
}

// A bit mask, 32 elements a thread. `parent`: the mask of the struct around, which has as many elements; -1 for none.
struct Mask {
  i64 first;
  const u8* flags;
  u32* words;
  i64 count, parent;
};
struct alignas(16) Piece { u32 parts[4]; };  // what one instruction loads

// Returns a bit for each byte that equals `wanted`.
DEVICE u32 equal_bytes(u32 bytes, u8 wanted) {
  const u32 other = bytes ^ wanted * 0x01010101u;           // a zero where equal
  const u32 some = (other & 0x7f7f7f7fu) + 0x7f7f7f7fu;     // bit 7 of a byte: one of the bits below it is set
  const u32 zeros = ~(some | other | 0x7f7f7f7fu) >> 7;     // bit 0 of a byte: it is zero
  return zeros * 0x01020408u >> 24 & 0xf;                   // no two bits meet in this product
}

// Returns the bits of 32 flags. The buffer is aligned, and no flag behind its last is read.
DEVICE u32 pack_flags(const u8* flags, i64 count, u8 wanted) {
  u32 word = 0;
  if (count < 32) {
    for (int bit = 0; bit < count; bit++) word |= (u32)(flags[bit] == wanted) << bit;
    return word;
  }
  const Piece pieces[] = {((const Piece*)flags)[0], ((const Piece*)flags)[1]};
  for (int part = 0; part < 8; part++) word |= equal_bytes(pieces[part / 4].parts[part % 4], wanted) << 4 * part;
  return word;
}

// An element is set where its flag and those of all structs around it are `wanted`; `nulls` counts those that are not.
KERNEL void make_masks(const Mask* masks, i64 count, u8 wanted, u64* nulls) {
  const i64 thread = thread_index();
  const i64 item = item_of(masks, count, thread);  // a warp's threads have the same one
  const i64 at = thread - masks[item].first, left = masks[item].count - at * 32;
  u32 missing = 0;
  if (left > 0) {
    const u32 used = left >= 32 ? 0xffffffffu : (1u << left) - 1;
    u32 word = used;
    for (i64 each = item; each >= 0; each = masks[each].parent) {
      word &= pack_flags(masks[each].flags + at * 32, left, wanted);
    }
    masks[item].words[at] = word;
    missing = bits_set(used & ~word);
  }
  add_of_warp(nulls + item, missing);
}

#ifdef __CUDACC__
// One block of 1024 threads a lane: turns `length` counts into their exclusive prefix sums, in place.
extern "C" __global__ void prefix_sums(i64* counts, i64 length, i64* totals) {
  __shared__ i64 warp_sums[32];
  const int in_warp = threadIdx.x & 31, warp = threadIdx.x >> 5;
  i64* lane = counts + blockIdx.x * length;
  i64 before = 0;  // the sum of all tiles to the left
  for (i64 tile = 0; tile < length; tile += blockDim.x) {
    const i64 at = tile + threadIdx.x;
    const i64 own = at < length ? lane[at] : 0;
    i64 sum = own;  // inclusive, within the warp
    for (int distance = 1; distance < 32; distance *= 2) {
      const i64 left = __shfl_up_sync(0xffffffffu, sum, distance);
      if (in_warp >= distance) sum += left;
    }
    if (in_warp == 31) warp_sums[warp] = sum;
    __syncthreads();
    i64 warps = 0, all = 0;
    for (int other = 0; other < 32; other++) {
      all += warp_sums[other];
      if (other < warp) warps += warp_sums[other];
    }
    if (at < length) lane[at] = before + warps + sum - own;
    before += all;
    __syncthreads();  // the next tile writes warp_sums
  }
  if (threadIdx.x == 0) totals[blockIdx.x] = before;
}
#endif
