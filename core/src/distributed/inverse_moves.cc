#include "distributed/inverse_moves.h"

#include <algorithm>
#include <numeric>

namespace tessera {

InverseMoves::InverseMoves(const DeviceStreamPtr& stream) : stream_(stream), expand_(stream), gather_(stream) {
  samples_.on_device(stream);
}

void InverseMoves::upload(const Wiring& wiring, const CheckedBatch& batch, const std::vector<int64_t>& row_begin,
                          bool backward) {
  batch_ = batch.output_batch;
  width_ = wiring.output_width();
  expand_.clear();
  for (size_t s = 0; s < wiring.slots().size(); ++s) {
    const Slot& slot = wiring.slots()[s];
    expand_.add_target(batch_, slot.dim, slot.col, width_);
    const int64_t index = expand_.add_index(batch_);
    expand_.add_run(row_begin[s], index, 0, slot.dim);
    std::copy_n(batch.inverse[s], batch_, expand_.index(index));
  }
  expand_.upload({});
  used_levels_ = 0;
  if (!backward) return;
  list_sources(wiring, batch);
  for (bool last = false; !last; ++used_levels_) {
    last = true;
    for (const Sources& of : sources_) {
      for (size_t i = 0; i + 1 < of.first.size(); ++i) last = last && of.first[i + 1] - of.first[i] <= kMostSources;
    }
    if (used_levels_ == levels_.size()) levels_.push_back(std::make_unique<Level>(stream_));
    list_level(wiring, row_begin, last, *levels_[used_levels_]);
  }
}

// The samples of each row, ascending.
void InverseMoves::list_sources(const Wiring& wiring, const CheckedBatch& batch) {
  gather_.clear();
  sources_.resize(wiring.slots().size());
  int64_t begin = 0;
  for (size_t s = 0; s < sources_.size(); ++s) {
    const Slot& slot = wiring.slots()[s];
    gather_.add_target(batch_, slot.dim, slot.col, width_);
    const int64_t index = gather_.add_index(batch_);
    gather_.add_run(begin, index, 0, slot.dim);
    std::iota(gather_.index(index), gather_.index(index) + batch_, 0);
    Sources& of = sources_[s];
    of.begin = begin;
    begin += batch_ * slot.dim;
    of.first.assign(static_cast<size_t>(batch.slots[s].bags) + 1, 0);
    of.order.resize(static_cast<size_t>(batch_));
    const int64_t* row = batch.inverse[s];
    for (int64_t b = 0; b < batch_; ++b) ++of.first[static_cast<size_t>(row[b])];
    std::inclusive_scan(of.first.begin(), of.first.end(), of.first.begin());
    for (int64_t b = batch_; b-- > 0;) of.order[--of.first[static_cast<size_t>(row[b])]] = static_cast<int32_t>(b);
  }
  gather_.upload({});
  samples_.ensure(begin);
}

// Sums up to kMostSources entries each: whole rows where it is the last level, else parts, which are the next level's
// entries.
void InverseMoves::list_level(const Wiring& wiring, const std::vector<int64_t>& row_begin, bool last, Level& level) {
  level.moves.clear();
  level.elements = 0;
  for (size_t s = 0; s < sources_.size(); ++s) {
    const int64_t dim = wiring.slots()[s].dim;
    Sources& of = sources_[s];
    const auto parts = [](int64_t n) { return (n + kMostSources - 1) / kMostSources; };
    int64_t sums = 0, runs = 0;
    for (size_t i = 0; i + 1 < of.first.size(); ++i) {
      const int64_t n = of.first[i + 1] - of.first[i];
      sums += last ? 1 : parts(n);
      runs = std::max(runs, std::min(n, kMostSources));
    }
    level.moves.add_target(sums, dim, last ? row_begin[s] : level.elements, dim);
    const int64_t index = level.moves.add_index(runs * sums);
    for (int64_t k = 0; k < runs; ++k) level.moves.add_run(of.begin, index + k * sums, 0, dim);
    int32_t* entry = level.moves.index(index);
    int64_t sum = 0;
    for (size_t i = 0; i + 1 < of.first.size(); ++i) {
      const int64_t from = of.first[i], n = of.first[i + 1] - from;
      for (int64_t k = 0; k < n; ++k) entry[k % kMostSources * sums + sum + k / kMostSources] = of.order[from + k];
      of.first[i] = sum;
      sum += last ? 1 : parts(n);
    }
    of.first.back() = sum;
    of.order.resize(static_cast<size_t>(sum));
    std::iota(of.order.begin(), of.order.end(), 0);
    of.begin = level.elements;
    level.elements += sums * dim;
  }
  level.moves.upload({});
  level.sums.ensure(level.elements);
}

Tensor InverseMoves::expand(const Tensor& rows) {
  const int64_t elements = batch_ * width_;
  if (!output_.defined() || !output_.unique() || output_.numel() < elements)
    output_ = stream_->empty({std::max<int64_t>(elements, 1)});
  const Tensor out = output_.first({elements});
  expand_.combine(rows, out);
  return out.reshape({batch_, width_});
}

Tensor InverseMoves::collapse(const Tensor& grad) {
  gather_.split(samples_.tensor(), grad);
  Tensor sums = samples_.tensor();
  for (size_t i = 0; i < used_levels_; ++i) {
    const Level& level = *levels_[i];
    level.moves.combine(sums, level.sums.tensor());
    sums = level.sums.tensor().first({level.elements});
  }
  return sums;
}

}  // namespace tessera
