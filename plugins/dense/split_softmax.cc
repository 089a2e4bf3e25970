#include "split_softmax.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "item_loss.h"
#include "weights.h"

namespace tessera_dense {
namespace {

using tessera::sdk::fail;
using tessera::sdk::ModuleCall;

constexpr int64_t kSplitTileRows = 128;         // rows whose logits are one product
constexpr int64_t kSplitTileCandidates = 1024;  // candidates whose gradients are one product
constexpr int64_t kLogitsInMemory = 16 << 20;
constexpr int64_t kSumsAtOnce = 1 << 20;  // pairs of a maximum and a sum in one exchange

int64_t rows_in_memory(int64_t candidates) { return std::max<int64_t>(1, kLogitsInMemory / (candidates + 1)); }

// Ranks that hold the same candidates would count them twice.
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
  all->ids.assign(static_cast<size_t>(rows), 0.0);
  std::copy(ids.begin(), ids.end(), all->ids.begin() + all->first);
  sum_over_ranks(call, all->ids);
  all->states.assign(static_cast<size_t>(rows * all->width), 0.0f);
  std::copy_n(states, all->own * all->width, all->states.begin() + all->first * all->width);
  sum_over_ranks(call, all->states);
}

void SplitSoftmax::logits(const CandidatesHere& here, const AllRows& all, int64_t first, int64_t last, float* z) const {
  if (here.count == 0) return;
  multiply({'N', 'T', last - first, here.count, all.width, scale_, all.states.data() + first * all.width, all.width,
            here.rows, all.width, 0, z, here.count});
  for (int64_t i = first; i < last; ++i, z += here.count) {
    if (here.log_q != nullptr) loops_.of_rows->add_scaled(here.count, -1, here.log_q, z);
    if (here.index != nullptr)
      here.index->each(static_cast<int64_t>(all.ids[static_cast<size_t>(i)]), 0, here.count,
                       [&](int64_t candidate) { z[candidate] = -INFINITY; });
  }
}

template <class Body>
void SplitSoftmax::each_tile(const CandidatesHere& here, int64_t width, int64_t first, int64_t last, const Body& body) {
  float* z = logits_.at_least(host_, (last - first) * here.count);
  const bool worth = (last - first) * here.count * width > kProductsWorthAThread;
  one_by_one(host_, (last - first + kSplitTileRows - 1) / kSplitTileRows, worth, [&](int64_t k) {
    const OneThread alone;
    const int64_t begin = first + k * kSplitTileRows;
    body(begin, std::min(last, begin + kSplitTileRows), z + k * kSplitTileRows * here.count);
  });
}

void SplitSoftmax::sum_up(const ModuleCall& call, const CandidatesHere& here, AllRows* all) {
  const auto world = static_cast<int64_t>(call.world_size());
  const int64_t rows = all->count(), at_once = std::max<int64_t>(1, kSumsAtOnce / world);
  all->log_sums.assign(static_cast<size_t>(rows), -INFINITY);
  for (int64_t from = 0; from < rows; from += at_once) {
    const int64_t count = std::min(at_once, rows - from);
    parts_.assign(static_cast<size_t>(world * count * 2), 0.0f);
    float* own = parts_.data() + call.rank() * count * 2;
    for (int64_t begin = from, size = rows_in_memory(here.count); begin < from + count; begin += size) {
      each_tile(here, all->width, begin, std::min(from + count, begin + size),
                [&](int64_t first, int64_t last, float* z) {
                  logits(here, *all, first, last, z);
                  for (int64_t i = first; i < last; ++i, z += here.count) {
                    float* part = own + (i - from) * 2;
                    part[0] = here.count > 0 ? *std::max_element(z, z + here.count) : -INFINITY;
                    if (part[0] == -INFINITY) continue;
                    loops_.of_rows->softmax(1, here.count, z, z);
                    part[1] = 1 / *std::max_element(z, z + here.count);  // that one is exp(0) / sum
                  }
                });
    }
    sum_over_ranks(call, parts_);
    for (int64_t i = 0; i < count; ++i) {
      double largest = -INFINITY, sum = 0;
      for (int64_t r = 0; r < world; ++r) largest = std::max<double>(largest, parts_[(r * count + i) * 2]);
      if (largest == -INFINITY) continue;
      for (int64_t r = 0; r < world; ++r) {
        const float* part = parts_.data() + (r * count + i) * 2;
        sum += double{part[1]} * std::exp(part[0] - largest);
      }
      all->log_sums[static_cast<size_t>(from + i)] = largest + std::log(sum);
    }
  }
}

void SplitSoftmax::backward(const ModuleCall& call, const CandidatesHere& here, const std::vector<float>& factors,
                            const AllRows& all, float* grad_states, float* grad_candidates) {
  const int64_t rows = all.count();
  of_rows_.assign(static_cast<size_t>(rows * 2), 0.0);
  for (int64_t i = 0; i < all.own; ++i) {
    of_rows_[static_cast<size_t>(all.first + i) * 2] = factors[static_cast<size_t>(i)];
    of_rows_[static_cast<size_t>(all.first + i) * 2 + 1] = all.log_sums[static_cast<size_t>(all.first + i)];
  }
  sum_over_ranks(call, of_rows_);
  grads_.assign(static_cast<size_t>(rows * all.width), 0.0f);
  for (int64_t begin = 0, size = rows_in_memory(here.count); here.count > 0 && begin < rows; begin += size) {
    const int64_t end = std::min(rows, begin + size);
    each_tile(here, all.width, begin, end, [&](int64_t first, int64_t last, float* z) {
      logits(here, all, first, last, z);
      float* dz = z;
      for (int64_t i = first; i < last; ++i, dz += here.count) {
        const float largest = *std::max_element(dz, dz + here.count);
        if (largest == -INFINITY) {
          std::fill_n(dz, here.count, 0.0f);
          continue;
        }
        const double *row = of_rows_.data() + i * 2, share = std::exp(largest - row[1]);
        loops_.of_rows->softmax(1, here.count, dz, dz);
        const double factor = row[0] * share / double{*std::max_element(dz, dz + here.count)};
        loops_.of_rows->scale(here.count, static_cast<float>(factor), dz, dz);
      }
      multiply({'N', 'N', last - first, all.width, here.count, 1, z, here.count, here.rows, all.width, 0,
                grads_.data() + first * all.width, all.width});
    });
    if (grad_candidates == nullptr) continue;
    const float* dz = logits_.data();
    one_by_one(host_, (here.count + kSplitTileCandidates - 1) / kSplitTileCandidates, true, [&](int64_t k) {
      const OneThread alone;
      const int64_t at = k * kSplitTileCandidates, tile = std::min(kSplitTileCandidates, here.count - at);
      multiply({'T', 'N', tile, all.width, end - begin, 1, dz + at, here.count, all.states.data() + begin * all.width,
                all.width, 1, grad_candidates + at * all.width, all.width});
    });
  }
  sum_over_ranks(call, grads_);
  std::copy_n(grads_.begin() + all.first * all.width, all.own * all.width, grad_states);
}

}  // namespace tessera_dense
