#include "split_softmax.h"

#include <utility>

#include "item_loss.h"

namespace tessera_dense {
namespace {

using tessera::sdk::fail;
using tessera::sdk::ModuleCall;

constexpr int64_t kSumsAtOnce = 1 << 20;  // log_sums of all ranks in one exchange

// Throws Failure if ranks hold the same candidates, which would be counted twice.
void check_apart(const std::vector<double>& sizes, size_t stride) {
  std::vector<std::pair<double, double>> ranges;
  for (size_t i = stride; i <= sizes.size(); i += stride) {
    if (sizes[i - 2] < sizes[i - 1]) ranges.emplace_back(sizes[i - 2], sizes[i - 1]);
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second)
      fail(TSR_INVALID_ARGUMENT, "several ranks have the candidate ", static_cast<int64_t>(ranges[i].first),
           ", but with the option \"split\" each candidate is of one rank: draw them with split=true");
  }
}

}  // namespace

void gather_sizes(const ModuleCall& call, std::span<const int64_t> candidates, std::span<const double> own,
                  std::vector<double>* all) {
  if (call.rank() < 0 || call.rank() >= call.world_size())
    fail(TSR_INVALID_ARGUMENT, "the call is of rank ", call.rank(), " of ", call.world_size(),
         ", but if candidates are split it must say how many ranks there are");
  const size_t stride = own.size() + 2;
  all->assign(static_cast<size_t>(call.world_size()) * stride, 0.0);
  double* here = std::copy(own.begin(), own.end(), all->data() + static_cast<size_t>(call.rank()) * stride);
  if (!candidates.empty()) {
    const auto [least, most] = std::minmax_element(candidates.begin(), candidates.end());
    here[0] = static_cast<double>(*least);
    here[1] = static_cast<double>(*most + 1);
  }
  sum_over_ranks(call, *all);
  check_apart(*all, stride);
}

void SplitSoftmax::gather(const ModuleCall& call, const float* states, const std::vector<int64_t>& ids,
                          const CandidatesHere& here, AllRows* all) {
  const auto rank = static_cast<size_t>(call.rank());
  const auto own = static_cast<double>(ids.size());
  gather_sizes(call, {here.ids, static_cast<size_t>(here.count)}, {&own, 1}, &sizes_);
  int64_t rows = 0;
  for (size_t r = 0; r * 3 < sizes_.size(); ++r) {
    if (r == rank) all->first = rows;
    rows += static_cast<int64_t>(sizes_[r * 3]);
  }
  all->own = std::ssize(ids);
  all->log_sums.assign(static_cast<size_t>(rows), -INFINITY);
  ids_.assign(static_cast<size_t>(rows), 0.0);
  std::copy(ids.begin(), ids.end(), ids_.begin() + all->first);
  sum_over_ranks(call, ids_);
  all->left_out.clear();
  for (const double id : ids_) {
    if (here.index != nullptr)
      here.index->each(static_cast<int64_t>(id), 0, here.count,
                       [&](int64_t candidate) { all->left_out.candidates.push_back(candidate); });
    all->left_out.end_row();
  }
  all->states.assign(static_cast<size_t>(rows * all->width), 0.0f);
  std::copy_n(states, all->own * all->width, all->states.begin() + all->first * all->width);
  sum_over_ranks(call, all->states);
}

Compared SplitSoftmax::compared(const CandidatesHere& here, const AllRows& all) const {
  return {all.count(), here.count, all.width, scale_, all.states.data(), here.rows, here.log_q, &all.left_out, 0};
}

void SplitSoftmax::sum_up(const ModuleCall& call, const CandidatesHere& here, AllRows* all) {
  const auto world = static_cast<int64_t>(call.world_size());
  const int64_t rows = all->count(), at_once = std::max<int64_t>(1, kSumsAtOnce / world);
  tiles_.sum_up(compared(here, *all), all->log_sums.data());
  for (int64_t from = 0; from < rows; from += at_once) {
    const int64_t count = std::min(at_once, rows - from);
    double* sums = all->log_sums.data() + from;
    parts_.assign(static_cast<size_t>(world * count), 0.0);
    std::copy_n(sums, count, parts_.data() + call.rank() * count);
    sum_over_ranks(call, parts_);
    std::fill_n(sums, count, -INFINITY);
    for (int64_t r = 0; r < world; ++r) {
      for (int64_t i = 0; i < count; ++i) sums[i] = log_of_sum(sums[i], parts_[static_cast<size_t>(r * count + i)]);
    }
  }
}

void SplitSoftmax::backward(const ModuleCall& call, const CandidatesHere& here, const std::vector<float>& factors,
                            const AllRows& all, float* grad_states, float* grad_candidates) {
  const auto rows = static_cast<size_t>(all.count());
  of_rows_.assign(rows * 2, 0.0);
  for (int64_t i = 0; i < all.own; ++i) {
    of_rows_[static_cast<size_t>(all.first + i) * 2] = factors[static_cast<size_t>(i)];
    of_rows_[static_cast<size_t>(all.first + i) * 2 + 1] = all.log_sums[static_cast<size_t>(all.first + i)];
  }
  sum_over_ranks(call, of_rows_);
  factors_.resize(rows);
  log_sums_.resize(rows);
  for (size_t i = 0; i < rows; ++i) {
    factors_[i] = static_cast<float>(of_rows_[i * 2]);
    log_sums_[i] = of_rows_[i * 2 + 1];
  }
  grads_.resize(rows * static_cast<size_t>(all.width));
  tiles_.backward(compared(here, all), factors_.data(), log_sums_.data(), grads_.data(), grad_candidates);
  sum_over_ranks(call, grads_);
  std::copy_n(grads_.begin() + all.first * all.width, all.own * all.width, grad_states);
}

}  // namespace tessera_dense
