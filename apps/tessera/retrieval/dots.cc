// With Highway compiled once per target by its foreach_target; without it a plain loop.
#include "retrieval/dots.h"

#ifdef TESSERA_HIGHWAY
#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "retrieval/dots.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tessera::retrieval {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void dots(const std::array<const float*, kQueries>& queries, const float* items, size_t count, size_t dim,
          const std::array<float*, kQueries>& out) {
  const hn::CappedTag<float, kPadding> d;
  const size_t lanes = hn::Lanes(d);
  static_assert(kQueries == 4, "sums by name");
  for (size_t i = 0; i < count; ++i) {
    const float* const item = items + i * dim;
    auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
    for (size_t c = 0; c < dim; c += lanes) {
      const auto x = hn::LoadU(d, item + c);
      sum0 = hn::MulAdd(x, hn::LoadU(d, queries[0] + c), sum0);
      sum1 = hn::MulAdd(x, hn::LoadU(d, queries[1] + c), sum1);
      sum2 = hn::MulAdd(x, hn::LoadU(d, queries[2] + c), sum2);
      sum3 = hn::MulAdd(x, hn::LoadU(d, queries[3] + c), sum3);
    }
    out[0][i] = hn::GetLane(hn::SumOfLanes(d, sum0));
    out[1][i] = hn::GetLane(hn::SumOfLanes(d, sum1));
    out[2][i] = hn::GetLane(hn::SumOfLanes(d, sum2));
    out[3][i] = hn::GetLane(hn::SumOfLanes(d, sum3));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::retrieval
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::retrieval {

HWY_EXPORT(dots);
Dots best_dots() {
  return [](const std::array<const float*, kQueries>& queries, const float* items, size_t count, size_t dim,
            const std::array<float*, kQueries>& out) {
    HWY_DYNAMIC_DISPATCH(dots)
    (queries, items, count, dim, out);
  };
}

}  // namespace tessera::retrieval
#endif
#else
namespace tessera::retrieval {

Dots best_dots() {
  return [](const std::array<const float*, kQueries>& queries, const float* items, size_t count, size_t dim,
            const std::array<float*, kQueries>& out) {
    for (size_t i = 0; i < count; ++i) {
      for (size_t q = 0; q < kQueries; ++q) {
        float sum = 0;
        for (size_t c = 0; c < dim; ++c) sum += items[i * dim + c] * queries[q][c];
        out[q][i] = sum;
      }
    }
  };
}

}  // namespace tessera::retrieval
#endif
