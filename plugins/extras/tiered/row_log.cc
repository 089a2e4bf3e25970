#include "row_log.h"

#include <algorithm>

namespace extras {
namespace {

constexpr uint32_t kSpareSegments = 8;

uint32_t ceil_div(uint64_t a, uint64_t b) { return static_cast<uint32_t>((a + b - 1) / b); }

}  // namespace

// The file has 1.4 times the space of the rows, so that on average a segment that is emptied is at least a quarter
// free.
LogShape::LogShape(int64_t rows, uint64_t record_bytes) : stride(record_bytes + sizeof(uint32_t)) {
  constexpr uint64_t kSegmentBytes = 1 << 20, kFewestSegments = 64;
  in_block = static_cast<uint32_t>(std::max<uint64_t>(kBlockBytes / stride, 1));
  block_bytes = ceil_div(stride, kBlockBytes) * kBlockBytes;
  const uint64_t wanted = ceil_div(static_cast<uint64_t>(rows), in_block) * uint64_t{7} / 5 + 1;
  blocks = static_cast<uint32_t>(
      std::clamp<uint64_t>(wanted / kFewestSegments, 1, std::max<uint64_t>(kSegmentBytes / block_bytes, 1)));
  segments = ceil_div(wanted, blocks) + 2 * kSpareSegments;
}

RowLog::RowLog(const LogShape& shape)
    : shape_(shape),
      spare_(kSpareSegments * shape.blocks),
      states_(shape.segments, State::kUnused),
      held_(shape.segments) {
  for (uint32_t s = shape.segments; s > 0; --s) unused_.push_back(s - 1);
}

uint32_t RowLog::free_blocks() const {
  const auto unused = static_cast<uint32_t>(unused_.size()) * shape_.blocks;
  return unused + (open_ == kNowhere ? 0 : shape_.blocks - next_block_);
}

void RowLog::take(uint32_t count, std::vector<uint32_t>& blocks) {
  blocks.clear();
  while (blocks.size() < count) {
    if (open_ == kNowhere) {
      open_ = unused_.back();
      unused_.pop_back();
      states_[open_] = State::kOpen;
      next_block_ = 0;
    }
    blocks.push_back(open_ * shape_.blocks + next_block_++);
    if (next_block_ < shape_.blocks) continue;
    states_[open_] = State::kFull;
    open_ = kNowhere;
  }
}

void RowLog::reuse() {
  for (const uint32_t s : cleared_) states_[s] = State::kUnused;
  unused_.insert(unused_.end(), cleared_.rbegin(), cleared_.rend());
  cleared_.clear();
}

std::vector<RowLog::Emptied> RowLog::to_be_emptied() const {
  std::vector<uint32_t> full;
  for (uint32_t s = 0; s < shape_.segments; ++s) {
    if (states_[s] == State::kFull) full.push_back(s);
  }
  const size_t most = std::min(full.size(), size_t{2} * kSpareSegments);
  std::partial_sort(full.begin(), full.begin() + static_cast<int64_t>(most), full.end(),
                    [&](uint32_t a, uint32_t b) { return held_[a] < held_[b]; });
  full.resize(most);
  std::vector<Emptied> out;
  uint64_t held = 0;
  for (const uint32_t s : full) {  // takes segments with the fewest held places first, until a block is gained
    if (held_[s] > 0 && ceil_div(held + held_[s], shape_.in_block) > free_blocks()) break;
    held += held_[s];
    out.push_back({s, held_[s] == 0});
    if (held > 0 && out.size() * shape_.blocks > ceil_div(held, shape_.in_block)) break;
  }
  std::sort(out.begin(), out.end(), [](const Emptied& a, const Emptied& b) { return a.segment < b.segment; });
  return out;
}

void RowLog::emptied(std::span<const Emptied> segments) {
  for (const Emptied& e : segments) {
    states_[e.segment] = State::kEmptied;
    cleared_.push_back(e.segment);
  }
}

uint64_t RowLog::bytes() const { return states_.size() * (sizeof(State) + 2 * sizeof(uint32_t)); }

}  // namespace extras
