#include "sum_pass.h"

#include <algorithm>
#include <cstring>

#include "row_sinks.h"

namespace tessera_cpu {
namespace {

constexpr int64_t kMostSums = 1 << 20;     // the most bytes of sums, which should fit into an L2 cache
constexpr int64_t kMostRows = 1 << 17;     // the numbers of this many rows use half of an L2 cache
constexpr int64_t kMostRowsPerEntry = 16;  // with more rows per entry, most rows occur once

int64_t padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }
int64_t sum_bytes(int64_t entries, int64_t rows, int64_t dim) { return std::min(entries, rows) * dim * 4; }
int64_t number_bytes(int64_t rows) { return padded(rows * 4); }
int64_t list_bytes(int64_t rows) { return padded((rows + 1) * 4); }

}  // namespace

bool SumPass::serves(int64_t entries, int64_t rows, int64_t dim) {
  return rows <= std::min(kMostRows, entries * kMostRowsPerEntry) && sum_bytes(entries, rows, dim) <= kMostSums;
}

int64_t SumPass::bytes(int64_t entries, int64_t rows, int64_t dim) {
  return number_bytes(rows) + list_bytes(rows) + padded(sum_bytes(entries, rows, dim));
}

SumPass::SumPass(char* zeros, int64_t rows, int64_t dim, int low)
    : sums_{reinterpret_cast<uint32_t*>(zeros), reinterpret_cast<uint32_t*>(zeros + number_bytes(rows)),
            reinterpret_cast<float*>(zeros + number_bytes(rows) + list_bytes(rows)), 0, low},
      dim_(dim) {}

void SumPass::finish(const Walk& walk, uint32_t bucket) {
  const int64_t count = sums_.count;
  const auto row = [this, bucket](int64_t at) { return sums_.rows[at] << sums_.low | bucket; };
  const auto put = [&](auto& sink) {
    const int64_t ahead = sink.ahead();
    for (int64_t at = 0; at < std::min(ahead, count); ++at) sink.prefetch(row(at));
    for (int64_t at = 0; at < count; ++at) {
      if (ahead > 0 && at + ahead < count) sink.prefetch(row(at + ahead));
      sink.add(row(at), sums_.values + at * dim_);
    }
  };
  if (walk.row_storage == Storage::kFloat32) {
    ListSink<0, false> list(*walk.block);
    put(list);
  } else {
    BlockSink block(walk.block, walk.ahead);
    put(block);
  }
  walk.block->flush();
  for (int64_t at = 0; at < count; ++at) sums_.number_of[sums_.rows[at]] = 0;
  std::memset(sums_.values, 0, static_cast<size_t>(count * dim_) * 4);
  std::memset(sums_.rows, 0, static_cast<size_t>(count + 1) * 4);
}

}  // namespace tessera_cpu
