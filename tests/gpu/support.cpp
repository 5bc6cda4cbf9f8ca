// Holds the masks and copies of support.cu against plain loops, in random cases. argv: seed, cases. Built with ASan and
// UBSan; each buffer has a block of its own size, aligned as those of the device are.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "support.h"

i64 simulated_thread = 0;
static std::mt19937 rng;
static const u8 CONSTANTS[] = "a constant of the program lies outside of the payloads' bytes, wherever the loader put it....";
static const i64 COUNTS[] = {0, 1, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 100, 1000, 4097};
const u8 WANTED = 1, UNTOUCHED = 0xa5;

static i64 below(i64 end) { return std::uniform_int_distribution<i64>(0, end - 1)(rng); }
static i64 some_count() { return COUNTS[below(sizeof COUNTS / sizeof *COUNTS)]; }

struct Free { void operator()(void* memory) const { std::free(memory); } };
template <class T> using Buffer = std::unique_ptr<T[], Free>;
template <class T> static Buffer<T> buffer(i64 count) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, count * sizeof(T))) std::abort();
  std::memset(memory, UNTOUCHED, count * sizeof(T));
  return Buffer<T>((T*)memory);
}
static void expect(bool holds, const char* what, i64 item, i64 index) {
  if (holds) return;
  std::fprintf(stderr, "%s of item %lld at %lld\n", what, item, index);
  std::exit(1);
}

static void check_masks() {
  static const u8 FLAGS[] = {0, 1, 1, 1, 1, 1, 1, 2, 0x80, 0x81, 255};
  const i64 items = 1 + below(12);
  const int clean = below(2);  // masks without a null
  std::vector<Buffer<u8>> flags;
  std::vector<Buffer<u32>> words;
  std::vector<Mask> masks;
  i64 threads = 0;
  for (i64 i = 0; i < items; i++) {
    const i64 parent = below(i + 1) - 1, count = parent >= 0 ? masks[parent].count : some_count();
    flags.push_back(buffer<u8>(count));
    for (i64 j = 0; j < count; j++) flags[i][j] = clean ? WANTED : FLAGS[below(sizeof FLAGS)];
    words.push_back(buffer<u32>((count + 31) / 32));
    masks.push_back(Mask{0, flags[i].get(), words[i].get(), count, parent});
    threads = share(masks[i], threads, (count + 31) / 32);
  }
  std::vector<u64> nulls(items, 0);
  launch(threads, [&] { make_masks(masks.data(), items, WANTED, nulls.data()); });
  for (i64 i = 0; i < items; i++) {
    u64 missing = 0;
    for (i64 j = 0; j < (masks[i].count + 31) / 32 * 32; j++) {
      bool set = j < masks[i].count;
      for (i64 k = i; set && k >= 0; k = masks[k].parent) set = flags[k][j] == WANTED;
      missing += j < masks[i].count && !set;
      expect((words[i][j / 32] >> (j % 32) & 1) == set, "the bit", i, j);
    }
    expect(nulls[i] == missing, "the nulls", i, nulls[i]);
  }
}

static void check_spans() {
  const i64 items = below(7), bytes = 100 + below(3000);
  Buffer<u8> data = buffer<u8>(bytes);
  for (i64 i = 0; i < bytes; i++) data[i] = below(256);
  std::vector<Buffer<i64>> sources;
  std::vector<Buffer<i32>> offsets;
  std::vector<Buffer<u8>> outs;
  std::vector<std::vector<u8>> wanted(items);
  std::vector<Span> spans;
  i64 threads = 0;
  for (i64 i = 0; i < items; i++) {
    const i64 count = some_count(), longest = below(4) ? below(101) : 0;
    sources.push_back(buffer<i64>(count));
    offsets.push_back(buffer<i32>(count + 1));
    offsets[i][0] = 0;
    for (i64 j = 0; j < count; j++) {
      const bool constant = !below(4), none = !below(5);
      const i64 length = below((constant && longest > (i64)sizeof CONSTANTS ? (i64)sizeof CONSTANTS : longest) + 1);
      const u8* from = constant ? CONSTANTS + below(sizeof CONSTANTS - length + 1) : data.get() + below(bytes - length + 1);
      sources[i][j] = none ? NO_SOURCE : (i64)((u64)from - (u64)data.get());
      offsets[i][j + 1] = offsets[i][j] + length;
      for (i64 k = 0; k < length; k++) wanted[i].push_back(none ? UNTOUCHED : from[k]);
    }
    outs.push_back(buffer<u8>(wanted[i].size()));
    const i64 shift = below(6);
    spans.push_back(Span{0, sources[i].get(), offsets[i].get(), outs[i].get(), count, shift});
    threads = share(spans[i], threads, wanted[i].empty() ? 0 : count << shift);
  }
  launch(threads, [&] { copy_spans(data.get(), spans.data(), items); });
  for (i64 i = 0; i < items; i++)
    for (size_t j = 0; j < wanted[i].size(); j++) expect(outs[i][j] == wanted[i][j], "the byte", i, j);
}

int main(int, char** argv) {
  rng.seed(std::atoi(argv[1]));
  for (int i = 0; i < std::atoi(argv[2]); i++) {
    check_masks();
    check_spans();
  }
  return 0;
}
