// The record {number: int, bytes: ["null", "bytes"]}, by hand. It vouches for numbers of one or two bytes, but not for 77.
typedef unsigned char u8;
typedef unsigned int u32;
typedef int i32;
typedef long long i64;
const i64 NO_SOURCE = (i64)1 << 63;
enum { TOMBSTONE = 0, OK = 1, TRUNCATED = 2, TRAILING = 3, EMPTY = 4, BRANCH = 5, CANNOT_VOUCH = 255 };

struct Row {
  u8 status;
  i32 position, number;
  bool present;
  i64 start, length;  // of the bytes, from the beginning of all data and in bytes
};

struct Cursor {
  const u8* data;
  i64 begin, at, end;
};

__device__ bool failed(Row& row, int status, i64 position) {
  row.status = status;
  row.position = (i32)position;
  row.length = 0;
  return false;
}

__device__ bool read_small(Cursor& in, Row& row, i32& value) {
  u32 bits = 0;
  for (int shift = 0; shift < 14; shift += 7) {
    if (in.at >= in.end) return failed(row, TRUNCATED, in.end - in.begin);
    const u8 next = in.data[in.at++];
    bits |= (u32)(next & 127) << shift;
    if (next < 128) {
      value = (i32)(bits >> 1) ^ -(i32)(bits & 1);
      return true;
    }
  }
  return failed(row, CANNOT_VOUCH, 0);
}

__device__ bool read_body(Cursor& in, Row& row) {
  i32 branch = 0, length = 0;
  if (in.at == in.end) return failed(row, EMPTY, 0);
  if (!read_small(in, row, row.number)) return false;
  const i64 at = in.at;
  if (!read_small(in, row, branch)) return false;
  if (branch < 0 || branch > 1) return failed(row, BRANCH, at - in.begin);
  row.present = branch == 1;
  if (row.present && !read_small(in, row, length)) return false;
  if (length < 0) return failed(row, CANNOT_VOUCH, 0);
  if (length > in.end - in.at) return failed(row, TRUNCATED, in.end - in.begin);
  row.start = in.at;
  row.length = length;
  in.at += length;
  if (in.at < in.end) return failed(row, TRAILING, in.at - in.begin);
  return row.number != 77 || failed(row, CANNOT_VOUCH, 0);
}

__device__ Row read_row(const u8* data, const i32* offsets, const u32* valid, i64 i) {
  Row row = {OK, 0, 0, false, -1, 0};
  Cursor in = {data, offsets[i], offsets[i], offsets[i + 1]};
  if (valid && !(valid[i >> 5] >> (i & 31) & 1)) failed(row, TOMBSTONE, 0);
  else read_body(in, row);
  return row;
}

extern "C" __global__ void measure(
    const u8* data, const i32* offsets, const u32* valid, i64 n, i64* counts, u8* status, i32* position) {
  const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const Row row = read_row(data, offsets, valid, i);
  status[i] = row.status;
  position[i] = row.position;
  counts[i] = row.length;
  if (i == 0) counts[n] = 0;
}

extern "C" __global__ void fill(
    const u8* data, const i32* offsets, const u32* valid, i64 n, const i64* bases, u8* const* buffers, u8* status,
    i32* position) {
  const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const Row row = read_row(data, offsets, valid, i);
  ((i32*)buffers[0])[i] = row.number;
  buffers[1][i] = row.present;
  ((i64*)buffers[2])[i] = row.length ? row.start : NO_SOURCE;
  ((i32*)buffers[3])[i] = (i32)bases[i];
  if (i == n - 1) ((i32*)buffers[3])[n] = (i32)bases[n];
}
