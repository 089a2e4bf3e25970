// Sums over more ranks than the suite for all transports uses.
#include <gtest/gtest.h>

#include "spawn.h"
#include "tessera/process_group.h"
#include "tessera/runtime.h"

namespace tessera::test::reduction_test {
namespace {

// The part of a sum that a rank computes at once depends on the number of ranks, and must contain whole elements.
TEST(Reduction, OfMegabytesOverSixAndSevenRanks) {
  constexpr int64_t kElements = 200003;
  for (const int world : {6, 7}) {
    const auto out = cli::run_in_ranks(world, world, 60, [&](const RankEnvironment& where) -> std::string {
      const Runtime runtime({{}, {}, true, 1});
      const auto group = ProcessGroup::connect(runtime, where, {"tcp", "{}", 60});
      const int64_t n = kElements * world;  // each rank sums more than a megabyte
      const Tensor sums = Tensor::empty({n}, DType::kFloat64);
      for (int64_t i = 0; i < n; ++i) sums.data<double>()[i] = static_cast<double>(i + where.rank);
      group->all_reduce(sums).wait();
      for (int64_t i = 0; i < n; ++i) {
        const double want =
            static_cast<double>(world * i) + static_cast<double>(world) * static_cast<double>(world - 1) / 2;
        if (sums.data<double>()[i] != want)
          return str_cat("element ", i, " is ", sums.data<double>()[i], ", not ", want);
      }
      return "";
    });
    for (const std::string& text : out) EXPECT_EQ(text, "") << world << " ranks";
  }
}

}  // namespace
}  // namespace tessera::test::reduction_test
