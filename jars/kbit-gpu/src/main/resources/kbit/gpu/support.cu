// What the JVM needs around a program's own kernels. No include: NVRTC has no header path.
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

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

// One thread a word: takes away the bits that the parent lacks (parent may be 0), adds up the bits that are not set.
extern "C" __global__ void finish_mask(u32* words, const u32* parent, i64 count, u64* nulls) {
  const i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= (count + 31) / 32) return;
  const u32 word = parent ? words[at] & parent[at] : words[at];
  words[at] = word;
  const i64 left = count - at * 32;
  const u32 used = left >= 32 ? 0xffffffffu : (1u << left) - 1;
  const int missing = __popc(used & ~word);
  if (missing) atomicAdd(nulls, (u64)missing);
}
