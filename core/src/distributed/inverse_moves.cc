#include "distributed/inverse_moves.h"

#include <algorithm>
#include <numeric>

namespace tessera {

InverseMoves::InverseMoves(const DeviceStreamPtr& stream) : stream_(stream), expand_(stream), gather_(stream) {
  samples_.on_device(stream);
}

void InverseMoves::list(const RowMoves& moves, bool backward) {
  expand_.clear();
  for (const RowTarget& target : moves.targets) {
    const RowRun& run = moves.of(target).front();
    TESSERA_CHECK(target.num_runs == 1 && target.stride == target.cols, "rows of a table feature, one after the other");
    expand_.add_target(run.rows, run.cols, run.begin, run.stride);
    const int64_t index = expand_.add_index(run.rows);
    expand_.add_run(target.begin, index, 0, run.cols);
    std::copy_n(run.bags, run.rows, expand_.index(index));
  }
  expand_.upload({});
  used_levels_ = 0;
  if (!backward) return;
  list_sources(moves);
  for (bool last = false; !last; ++used_levels_) {
    last = true;
    for (const Sources& of : sources_) {
      for (size_t i = 0; i + 1 < of.first.size(); ++i) last = last && of.first[i + 1] - of.first[i] <= kMostSources;
    }
    if (used_levels_ == levels_.size()) levels_.push_back(std::make_unique<Level>(stream_));
    list_level(moves, last, *levels_[used_levels_]);
  }
}

// Lists the samples of each row, ascending.
void InverseMoves::list_sources(const RowMoves& moves) {
  gather_.clear();
  sources_.resize(moves.targets.size());
  int64_t begin = 0;
  for (size_t t = 0; t < sources_.size(); ++t) {
    const RowTarget& target = moves.targets[t];
    const RowRun& run = moves.of(target).front();
    gather_.add_target(run.rows, run.cols, run.begin, run.stride);
    const int64_t index = gather_.add_index(run.rows);
    gather_.add_run(begin, index, 0, run.cols);
    std::iota(gather_.index(index), gather_.index(index) + run.rows, 0);
    Sources& of = sources_[t];
    of.begin = begin;
    begin += run.rows * run.cols;
    of.first.assign(static_cast<size_t>(target.rows) + 1, 0);
    of.order.resize(static_cast<size_t>(run.rows));
    for (int64_t b = 0; b < run.rows; ++b) ++of.first[static_cast<size_t>(run.bags[b])];
    std::inclusive_scan(of.first.begin(), of.first.end(), of.first.begin());
    for (int64_t b = run.rows; b-- > 0;)
      of.order[--of.first[static_cast<size_t>(run.bags[b])]] = static_cast<int32_t>(b);
  }
  gather_.upload({});
  samples_.ensure(begin);
}

// Lists sums of up to kMostSources entries each: whole rows in the last level, otherwise partial sums, which are the
// entries of the next level.
void InverseMoves::list_level(const RowMoves& moves, bool last, Level& level) {
  level.moves.clear();
  level.elements = 0;
  for (size_t t = 0; t < sources_.size(); ++t) {
    const int64_t dim = moves.targets[t].cols;
    Sources& of = sources_[t];
    const auto parts = [](int64_t n) { return (n + kMostSources - 1) / kMostSources; };
    int64_t sums = 0, runs = 0;
    for (size_t i = 0; i + 1 < of.first.size(); ++i) {
      const int64_t n = of.first[i + 1] - of.first[i];
      sums += last ? 1 : parts(n);
      runs = std::max(runs, std::min(n, kMostSources));
    }
    level.moves.add_target(sums, dim, last ? moves.targets[t].begin : level.elements, dim);
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
  if (!last) level.sums.ensure(level.elements);
}

void InverseMoves::collapse(const Tensor& packed, const Tensor& spread) const {
  gather_.split(samples_.tensor(), packed);
  Tensor from = samples_.tensor();
  for (size_t i = 0; i < used_levels_; ++i) {
    const Tensor& to = i + 1 == used_levels_ ? spread : levels_[i]->sums.tensor();
    levels_[i]->moves.combine(from, to);
    from = to;
  }
}

}  // namespace tessera
