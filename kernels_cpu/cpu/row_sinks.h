// Sinks collect rows whose gradients are known, so that backward updates many at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "row_block.h"
#include "row_ops.h"

namespace tessera_cpu {

// The optimizer's guarantees (abi/optimizer.h).
constexpr int64_t kNearBytes = 16384;
constexpr int64_t kNearRows = 128;

// A sink with a RowBlock, which holds few rows and has space for gradients that must be computed. Rows are prefetched
// through it before they are added.
class BlockSink {
 public:
  BlockSink(RowBlock* block, int64_t ahead) : block_(*block), ahead_(ahead) {}
  int64_t ahead() const { return ahead_; }
  [[gnu::always_inline]] void prefetch(uint32_t row) const { block_.prefetch<0>(row); }
  // Returns true if computed gradients are no longer valid.
  bool add(uint32_t row, const float* gradient) { return block_.add(row, gradient); }

 private:
  RowBlock& block_;
  const int64_t ahead_;
};

// A sink with a long list of rows whose gradients exist already. The optimizer prefetches while it works, which hides
// more latency than a separate loop. kLines > 0 is the number of cache lines per row; kRowState means that there is one
// state, a float per row.
template <int kLines, bool kRowState>
class ListSink {
 public:
  explicit ListSink(const RowBlock& block) : rows_(block), near_(near_rows(block)) {}
  ~ListSink() { flush(); }
  ListSink(const ListSink&) = delete;
  ListSink& operator=(const ListSink&) = delete;

  int64_t ahead() const { return 0; }
  void prefetch(uint32_t) const {}
  [[gnu::always_inline]] bool add(uint32_t row, const float* gradient) {
    if (count_ < near_) rows_.template prefetch<kLines, kRowState>(row);
    weights_[count_] = reinterpret_cast<float*>(rows_.template address<kLines>(row));
    grads_[count_] = gradient;
    if constexpr (kRowState) {
      states_[count_] = rows_.state(0, row);
    } else {
      for (uint32_t k = 0; k < rows_.num_states(); ++k) states_[k * kMost + count_] = rows_.state(k, row);
    }
    if (++count_ == kMost) flush();
    return false;
  }

 private:
  static constexpr int64_t kMost = kRowState ? 512 : 256;
  static int64_t near_rows(const RowBlock& block) {
    return std::clamp<int64_t>(kNearBytes / block.row_and_state_bytes(), 1, kNearRows);
  }
  void flush() {
    if (count_ == 0) return;
    rows_.update(count_, kMost, weights_, grads_, states_);
    count_ = 0;
  }

  const RowBlock& rows_;
  const int64_t near_;
  int64_t count_ = 0;
  float* weights_[kMost];
  const float* grads_[kMost];
  float* states_[kMost * (kRowState ? 1 : sdk::OptimizerRef::kMaxStates)];
};

// Calls body(sink) with the best sink for rows of this walk. `ready` means that gradients are floats which need no
// change and do not move while the sink lives.
template <class Body>
auto with_sink(const Walk& walk, bool ready, Body body) {
  const auto list = [&]<int kLines, bool kRowState>() {
    ListSink<kLines, kRowState> sink(*walk.block);
    return body(sink);
  };
  if (ready && walk.row_storage == Storage::kFloat32) {
    if (!walk.block->one_row_state()) return list.template operator()<0, false>();
    if (walk.dim == 16) return list.template operator()<1, true>();
    if (walk.dim == 32) return list.template operator()<2, true>();
    if (walk.dim == 64) return list.template operator()<4, true>();
    return list.template operator()<0, true>();
  }
  BlockSink sink(walk.block, 2 * walk.ahead);  // further than in walk(), because fewer gradients are in flight
  return body(sink);
}

}  // namespace tessera_cpu
