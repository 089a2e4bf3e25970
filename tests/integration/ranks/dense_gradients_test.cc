// Dense gradients that travel as bfloat16 (comm.lossy): the sums, their bits on all ranks, the bytes, and training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "job_file.h"
#include "small_job.h"
#include "spawn.h"
#include "tessera/distributed_model_parallel.h"
#include "tessera/sdk/half.h"
#include "tessera_program.h"

namespace tessera::test::dense_gradients_test {
namespace {

using nlohmann::json;

// Sizes that no number of ranks divides; the last parameter gets a gradient on rank 1 only, `unused` on none.
constexpr int64_t kSizes[] = {3, 1001, 77, 5};

std::vector<float> gradient_of(int rank, size_t parameter) {
  std::mt19937_64 random(static_cast<uint64_t>(10 * rank) + parameter);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<size_t>(kSizes[parameter]));
  for (float& v : out) v = normal(random);
  if (parameter == 0 && rank == 1) out = {std::numeric_limits<float>::infinity(), -0.0f, 1e-39f};
  return out;
}

float rounded(float v) { return sdk::bfloat16_to_float(sdk::float_to_bfloat16(v)); }

struct Sums {
  std::string error, bits;
  uint64_t bytes;
};

// Two steps, of which the second starts its exchanges early.
Sums reduce(const RankEnvironment& where, bool round) {
  const Runtime runtime({{}, {}, true, 1});
  const auto group = ProcessGroup::connect(runtime, where, {"tcp", "{}", 60});
  ParameterList parameters;
  for (size_t i = 0; i <= std::size(kSizes); ++i) {
    parameters.push_back(std::make_shared<Parameter>());
    parameters[i]->name = str_cat("p", i);
    parameters[i]->value = Tensor::zeros({i < std::size(kSizes) ? kSizes[i] : 9});
  }
  DistributedModelParallelOptions options{.plan = ShardingPlan{}};
  options.plan->world_size = options.plan->local_world_size = where.world_size;
  options.bucket_mib = 1e-3;  // several buckets
  options.sum_dense_gradients = true;
  options.round_dense_gradients = round;
  DistributedModelParallel parallel(runtime, {{}, {}, parameters}, group, options);
  Sums out;
  const uint64_t before = group->bytes_sent();
  for (const bool early : {false, true}) {
    for (size_t i = 0; i < std::size(kSizes); ++i)
      parameters[i]->grad = i == 3 && where.rank != 1 ? Tensor() : Tensor::from(gradient_of(where.rank, i));
    parameters.back()->grad = {};
    if (early) parallel.gradients_finished({parameters[3], parameters[4]});
    parallel.all_reduce_gradients();
    if (parameters.back()->grad.defined()) out.error += "a parameter without a gradient on any rank got one\n";
  }
  out.bytes = group->bytes_sent() - before;
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    const auto got = parameters[i]->grad.span<float>();
    std::vector<std::vector<float>> given;
    for (int rank = 0; rank < where.world_size; ++rank) given.push_back(gradient_of(rank, i));
    for (size_t k = 0; k < got.size(); ++k) {
      float want = 0;
      for (size_t rank = 0; rank < given.size(); ++rank) {
        if (i < 3 || rank == 1) want += round ? rounded(given[rank][k]) : given[rank][k];
      }
      if (round) want = rounded(want);
      const bool same = round ? got[k] == want : std::abs(got[k] - want) < 1e-5 || got[k] == want;
      if (!same) out.error += str_cat("p", i, " [", k, "] is ", got[k], ", not ", want, "\n");
      std::ostringstream bits;
      bits << std::hexfloat << got[k] << ' ';
      out.bits += bits.str();
    }
  }
  group->barrier();
  return out;
}

TEST(DenseGradients, AreRoundedOnceAddedInFloat32AndTheSameEverywhere) {
  for (const int world : {2, 3, 4}) {
    std::vector<std::string> exact, half;
    for (const bool round : {false, true}) {
      (round ? half : exact) = cli::run_in_ranks(world, world, 60, [&](const RankEnvironment& where) -> std::string {
        const Sums sums = reduce(where, round);
        return sums.error.empty() ? str_cat(sums.bytes, "|", sums.bits) : sums.error;
      });
    }
    const auto bits = [](const std::string& text) { return text.substr(text.find('|')); };
    const auto bytes = [](const std::string& text) { return std::stod(text); };
    double all_exact = 0, all_half = 0;
    for (size_t rank = 0; rank < half.size(); ++rank) {
      ASSERT_THAT(half[rank], testing::HasSubstr("|")) << half[rank];
      ASSERT_THAT(exact[rank], testing::HasSubstr("|")) << exact[rank];
      EXPECT_EQ(bits(half[rank]), bits(half[0])) << "rank " << rank << " of " << world;
      all_exact += bytes(exact[rank]);
      all_half += bytes(half[rank]);
    }
    EXPECT_NE(bits(half[0]), bits(exact[0])) << "nothing was rounded";
    EXPECT_LT(all_half, 0.7 * all_exact) << world << " ranks";
  }
}

class RoundedJob : public testing::Test, protected JobFile {
 protected:
  RoundedJob() : JobFile(small_job({.samples = 6400, .test_samples = 6000, .epochs = 1})) {}
};

TEST_F(RoundedJob, LearnsAsWithFloat32) {
  for (const int ranks : {2, 4}) {
    const json exact = trained(ranks, settings({})),
               half = trained(ranks, settings({R"(comm.lossy=["dense_gradients"])"}));
    EXPECT_NE(half.at("losses"), exact.at("losses")) << "nothing was lost";
    EXPECT_EQ(half.at("losses")[0], exact.at("losses")[0]) << "no update yet";
    EXPECT_NEAR(half.at("test").at("auc").get<double>(), exact.at("test").at("auc").get<double>(), 0.01);
    EXPECT_EQ(half.at("bytes_per_step").at("rows"), exact.at("bytes_per_step").at("rows")) << "rows are exact";
  }
}

TEST_F(RoundedJob, NamesWhatMayBeLost) {
  EXPECT_THAT(run_tessera(Arguments{"train", "--config", path(), "--nproc", "2"} +
                          settings({R"(comm.lossy=["rows", "dense_gradients"])"}))
                  .output,
              testing::HasSubstr("comm.lossy has no effect on rows, because the transport tcp has no codec"));
  expect_refused(Arguments{"train", "--config", path()} + settings({R"(comm.lossy=["dense"])"}),
                 testing::HasSubstr("dense_gradients"));
}

}  // namespace
}  // namespace tessera::test::dense_gradients_test
