// The two passes over a batch; `decode_row`, `decode_nothing` and `close_offsets` are generated.
DEVICE inline Row open_row(const u8* data, const i32* offsets, i64 i) {
  Row row;
  row.in = cursor_over(data + offsets[i], data + offsets[i + 1]);
  row.data = data;
  row.buffers = 0;
  row.next[0] = i;
  for (int lane_ = 1; lane_ <= LANES; lane_++) row.next[lane_] = 0;
  return row;
}
DEVICE inline bool is_null(const u32* valid, i64 i) { return valid && !(valid[i >> 5] >> (i & 31) & 1); }

KERNEL void measure(const u8* data, const i32* offsets, const u32* valid, i64 n, i64* counts, u8* status, i32* position) {
  i64 i = WARP ? thread_index() / 32 : thread_index();
  if (i >= n) return;
  Row row = open_row(data, offsets, i);
  bool null = is_null(valid, i);
  if (!null) decode_row<false>(row);
  bool ok = !null && !row.in.fault;
  if (!LEAD) return;
  status[i] = null ? TOMBSTONE : ok ? OK : row.in.fault;
  position[i] = row.in.position;
  for (int lane_ = 1; lane_ <= LANES; lane_++) {
    counts[(lane_ - 1) * (n + 1) + i] = ok ? row.next[lane_] : 0;
    if (i == n - 1) counts[(lane_ - 1) * (n + 1) + n] = 0;
  }
}

KERNEL void fill(const u8* data, const i32* offsets, const u32* valid, i64 n, const i64* bases, u8* const* buffers, u8* status, i32* position) {
  i64 i = WARP ? thread_index() / 32 : thread_index();
  if (i >= n) return;
  Row row = open_row(data, offsets, i);
  row.buffers = buffers;
  for (int lane_ = 1; lane_ <= LANES; lane_++) row.next[lane_] = bases[(lane_ - 1) * (n + 1) + i];
  bool null = is_null(valid, i);
  bool skipped = LANES ? status[i] != OK : null;
  if (!skipped) decode_row<true>(row);
  if (!LANES) {
    skipped = null || row.in.fault;
    if (LEAD) {
      status[i] = null ? TOMBSTONE : skipped ? row.in.fault : OK;
      position[i] = row.in.position;
    }
  }
  if (skipped) decode_nothing<true>(row);
  if (LEAD && i == n - 1) close_offsets(buffers, bases, n);
}
