// Runs a kernel on the CPU, built with ASan and UBSan. argv: layout, payloads, output. With one row a batch each payload
// lies in a block of its own size, so that any read outside of it is caught.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "support.h"

extern "C" void measure(const u8*, const i32*, const u32*, i64, i64*, u8*, i32*);
extern "C" void fill(const u8*, const i32*, const u32*, i64, const i64*, u8* const*, u8*, i32*);
i64 simulated_thread = 0;

struct BufferSpec { int lane, width, extra; };
struct SpanSpec { int lane, source, offsets, data; };

static std::vector<std::uint8_t> read_file(const char* name) {
  FILE* file = std::fopen(name, "rb");
  std::vector<std::uint8_t> bytes;
  std::uint8_t chunk[65536];
  for (size_t n; (n = std::fread(chunk, 1, sizeof chunk, file)) > 0;) bytes.insert(bytes.end(), chunk, chunk + n);
  std::fclose(file);
  return bytes;
}
static void write(FILE* out, const void* data, size_t bytes) {
  std::uint64_t size = bytes;
  std::fwrite(&size, 8, 1, out);
  std::fwrite(data, 1, bytes, out);
}
int main(int, char** argv) {
  FILE* layout = std::fopen(argv[1], "r");
  int rows, lanes, warp, buffers, spans;
  if (std::fscanf(layout, "%d %d %d %d %d", &rows, &lanes, &warp, &buffers, &spans) != 5) return 2;
  auto threads = [&](i64 count) { return warp ? 32 * count : count; };
  std::vector<BufferSpec> specs(buffers);
  for (auto& s : specs) if (std::fscanf(layout, "%d %d %d", &s.lane, &s.width, &s.extra) != 3) return 2;
  std::vector<SpanSpec> copies(spans);
  for (auto& s : copies) if (std::fscanf(layout, "%d %d %d %d", &s.lane, &s.source, &s.offsets, &s.data) != 4) return 2;
  std::vector<std::uint8_t> payloads = read_file(argv[2]);
  FILE* out = std::fopen(argv[3], "wb");

  for (size_t at = 0; at < payloads.size();) {
    std::vector<i32> offsets{0};
    std::vector<u32> valid(rows / 32 + 1, 0);
    std::vector<std::uint8_t> bytes;
    i64 n = 0;
    for (; n < rows && at < payloads.size(); n++) {
      i32 length;
      std::memcpy(&length, &payloads[at], 4);
      at += 4;
      if (length >= 0) {
        valid[n / 32] |= 1u << (n % 32);
        bytes.insert(bytes.end(), payloads.begin() + at, payloads.begin() + at + length);
        at += length;
      }
      offsets.push_back((i32)bytes.size());
    }
    std::unique_ptr<u8[]> data(new u8[bytes.size()]);  // no spare byte behind it
    if (!bytes.empty()) std::memcpy(data.get(), bytes.data(), bytes.size());
    std::vector<i64> bases(lanes * (n + 1) + 1, -1);
    std::vector<u8> status(n, 77);
    std::vector<i32> position(n, -1);
    if (lanes) {
      for (i64 i = 0; i < threads(n); i += threads(1)) {
        simulated_thread = i;
        measure(data.get(), offsets.data(), valid.data(), n, bases.data(), status.data(), position.data());
      }
    }
    for (int lane_ = 0; lane_ < lanes; lane_++) {
      i64 sum = 0;
      for (i64 i = 0; i <= n; i++) {
        i64 count = bases[lane_ * (n + 1) + i];
        bases[lane_ * (n + 1) + i] = sum;
        sum += count;
      }
    }
    auto total = [&](int lane_) { return lane_ ? bases[(lane_ - 1) * (n + 1) + n] : n; };
    std::vector<std::unique_ptr<u8[]>> memory;
    std::vector<u8*> pointers;
    std::vector<size_t> sizes;
    for (auto& s : specs) {
      sizes.push_back((size_t)s.width * (total(s.lane) + s.extra));
      memory.emplace_back(new u8[sizes.back()]);
      std::memset(memory.back().get(), 0xa5, sizes.back());
      pointers.push_back(memory.back().get());
    }
    for (i64 i = 0; i < threads(n); i += threads(1)) {
      simulated_thread = i;
      fill(data.get(), offsets.data(), valid.data(), n, bases.data(), pointers.data(), status.data(), position.data());
    }
    std::vector<Span> table;
    i64 copiers = 0;
    for (auto& s : copies) {
      const i64 count = total(s.lane), shift = 2 + table.size() % 4;  // 4, 8, 16 or 32 threads an element
      table.push_back({0, (const i64*)pointers[s.source], (const i32*)pointers[s.offsets], pointers[s.data], count, shift});
      copiers = share(table.back(), copiers, sizes[s.data] ? count << shift : 0);
    }
    launch(copiers, [&] { copy_spans(data.get(), table.data(), table.size()); });
    write(out, status.data(), n);
    write(out, position.data(), 4 * n);
    for (size_t k = 0; k < specs.size(); k++) write(out, pointers[k], sizes[k]);
  }
  std::fclose(out);
  return 0;
}
