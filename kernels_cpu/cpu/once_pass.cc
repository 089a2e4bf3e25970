#include "once_pass.h"

#include <algorithm>

namespace tessera_cpu {
namespace {

// What an optimizer may count on (abi/optimizer.h).
constexpr int64_t kNearBytes = 16384;
constexpr int64_t kNearRows = 128;

// Where a pass puts rows: a RowBlock, which holds few and has room for gradients that do not lie ready. It is given
// rows to prefetch ahead of adding them.
class BlockSink {
 public:
  BlockSink(RowBlock* block, int64_t ahead) : block_(*block), ahead_(ahead) {}
  int64_t ahead() const { return ahead_; }
  [[gnu::always_inline]] void prefetch(uint32_t row) const { block_.prefetch<0>(row); }
  // True: gradients that were made are gone.
  bool add(uint32_t row, const float* gradient) { return block_.add(row, gradient); }

 private:
  RowBlock& block_;
  const int64_t ahead_;
};

// Or a long list of rows whose gradients lie ready: the optimizer prefetches while it works, which hides more than a
// loop that does nothing else. kLines > 0: rows are so many cache lines; kRowState: one state, a float per row.
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

}  // namespace

OncePass::OncePass(const Walk& walk, const OnceMap& once, const RowOps& ops)
    : walk_(walk),
      once_(once),
      ops_(ops),
      as_it_lies_(walk.storage == Storage::kFloat32 && walk.max_gradient == 0 && walk.grad_scale == 1),
      gradient_bytes_(walk.dim * bytes_of(walk.storage)) {}

// What walk() would sum for an entry of this output row alone, until the block flushes.
const float* OncePass::gradient(uint32_t output_row) const {
  if (as_it_lies_ && (walk_.output_rows == nullptr || walk_.output_rows[output_row].scale == 1)) {
    return reinterpret_cast<const float*>(address(output_row));
  }
  const PlainEntry entry{0, output_row};
  int64_t row;
  Walk one = walk_;
  one.plain = &entry;
  one.count = 1;
  one.block = nullptr;
  one.out_rows = &row;
  one.out_values = walk_.block->next_gradient();
  ops_.walk(one);
  return one.out_values;
}

template <class Id, class Sink>
PlainEntry* OncePass::pass(const IdRun& run, Sink& sink, PlainEntry* again) const {
  const Id* const ids = static_cast<const Id*>(run.ids);
  const int64_t ahead = sink.ahead();
  int64_t p = run.begin;
  for (int64_t i = p; i < std::min(p + ahead, run.end); ++i) sink.prefetch(static_cast<uint32_t>(ids[i]));
  for (int64_t bag = 0; bag < run.bags; ++bag) {
    const uint32_t output_row = static_cast<uint32_t>(run.first_output_row + bag);
    prefetch_gradient(output_row);
    const float* g = nullptr;
    for (const int64_t end = run.first(bag + 1); p < end; ++p) {
      if (ahead > 0 && p + ahead < run.end) sink.prefetch(static_cast<uint32_t>(ids[p + ahead]));
      const uint32_t row = static_cast<uint32_t>(ids[p]);
      if (!once_.once(row)) {
        *again++ = {row, output_row};
        continue;
      }
      if (g == nullptr) g = gradient(output_row);
      if (sink.add(row, g)) g = nullptr;
    }
  }
  return again;
}

template <class Sink>
PlainEntry* OncePass::pass(const PlainEntry* entries, int64_t count, Sink& sink, PlainEntry* again) const {
  const int64_t ahead = sink.ahead();
  for (int64_t i = 0; i < std::min(ahead, count); ++i) sink.prefetch(entries[i].row);
  const float* g = nullptr;
  uint32_t output_row = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (ahead > 0 && i + ahead < count) sink.prefetch(entries[i + ahead].row);
    const PlainEntry e = entries[i];
    if (e.output_row != output_row) g = nullptr;
    output_row = e.output_row;
    if (!once_.once(e.row)) {
      *again++ = e;
      continue;
    }
    if (g == nullptr) {
      prefetch_gradient(output_row);
      g = gradient(output_row);
    }
    if (sink.add(e.row, g)) g = nullptr;
  }
  return again;
}

template <class Body>
PlainEntry* OncePass::with_sink(bool ready, Body body) const {
  const auto list = [&]<int kLines, bool kRowState>() {
    ListSink<kLines, kRowState> sink(*walk_.block);
    return body(sink);
  };
  if (as_it_lies_ && ready && walk_.row_storage == Storage::kFloat32) {
    if (!walk_.block->one_row_state()) return list.template operator()<0, false>();
    if (walk_.dim == 16) return list.template operator()<1, true>();
    if (walk_.dim == 32) return list.template operator()<2, true>();
    if (walk_.dim == 64) return list.template operator()<4, true>();
    return list.template operator()<0, true>();
  }
  BlockSink sink(walk_.block, 2 * walk_.ahead);  // further than in walk(): fewer gradients are on their way
  return body(sink);
}

PlainEntry* OncePass::run(const IdRun& run, PlainEntry* again) const {
  return with_sink(!run.scaled, [&](auto& sink) {
    return run.wide_ids ? pass<int64_t>(run, sink, again) : pass<int32_t>(run, sink, again);
  });
}

PlainEntry* OncePass::run(const PlainEntry* entries, int64_t count, PlainEntry* again) const {
  return with_sink(walk_.output_rows == nullptr, [&](auto& sink) { return pass(entries, count, sink, again); });
}

}  // namespace tessera_cpu
