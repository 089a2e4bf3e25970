// Tables whose ids without a row share one (docs/dynamic_tables.md): jobs on one rank and on two, checkpoints continued
// elsewhere, packed models, and publications.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

#include "dynamic_job.h"
#include "inference/test_model.h"
#include "job_file.h"
#include "publishing/test_publications.h"
#include "tessera/online.h"
#include "tessera/sdk/random.h"
#include "tessera_program.h"

namespace tessera::test::shared_row_test {
namespace {

using nlohmann::json;

using sdk::mixed;

class SharedRow : public testing::TestWithParam<const char*>, protected JobFile {
 protected:
  static double loss(const json& report) { return report.at("test").at("logloss").get<double>(); }
  std::string at(const char* name) const { return folder_.file(name); }

  const std::string config_ = dynamic_job(folder_, popular_rows(),
                                          str_cat(R"(any_id = true
sharding = ["table_wise"]
compute_kernel = ")",
                                                  GetParam(), R"("
[[table]]
name = "item"
rows = 130
)"));
};

TEST_P(SharedRow, JobsGoOnAnywhereAndArePacked) {
  const json alone = trained(1, {"--save", at("saved")});
  ASSERT_TRUE(alone.is_object());
  const json& table = alone.at("tables").at("item");
  EXPECT_GT(table.at("evictions").get<int64_t>(), 10);
  EXPECT_LT(table.at("hits").get<int64_t>(), table.at("lookups").get<int64_t>());
  EXPECT_NEAR(loss(trained(2, {})), loss(alone), 1e-5);
  ASSERT_TRUE(trained(1, {"--save", at("half"), "--max-steps", "37"}).is_object());
  EXPECT_NEAR(loss(trained(2, {"--save", at("half"), "--resume"})), loss(alone), 1e-5);
  const std::string model = at("model"), scores = at("scores.csv");
  succeed({"quantize", "--load", at("saved"), "--save", model, "--weights", "fp32"});
  const Finished inspected = run_tessera({"model", "inspect", model});
  EXPECT_THAT(one_line(inspected.output), testing::HasSubstr("other ids share one row"));
  succeed({"predict", "--model", model, "--config", config_, "--part", "test", "--output", scores});
  EXPECT_NEAR(logloss_of(scores), loss(alone), 1e-6) << "as the evaluation reads it";
}

// Two ranks with parts of the ids would each have a shared row; ranks with parts of the columns share one.
TEST_P(SharedRow, IsOneOnAnyNumberOfRanks) {
  const std::vector<std::string> hash{"--set", "table_defaults.sharding=[\"hash\"]"};
  const Finished refused = train(2, hash);
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(
      refused.output,
      testing::HasSubstr("table \"item\": its ids without a row share one row, but its rows are split (hash), and "
                         "each part would have a shared row of its own: shard it table_wise or column_wise"));
  EXPECT_NEAR(loss(trained(1, hash)), loss(trained(1, {})), 1e-6) << "one part is whole";
  const std::vector<std::string> columns{"--set", "table_defaults.sharding=[\"column_wise\"]", "--set",
                                         "table_defaults.min_partition=4"};
  EXPECT_NEAR(loss(trained(2, columns)), loss(trained(1, columns)), 1e-5);
}

// Base and deltas together equal the final model, bit for bit: rows come and go, and the shared one is among them.
TEST_P(SharedRow, IsPublished) {
  const std::string published = at("published"), saved = at("saved"), packed = at("packed");
  ASSERT_TRUE(trained(2, {"--publish", published, "--every", "5steps", "--save", saved, "--set", "publish.base_every=7",
                          "--set", "publish.keep_bases=100"})
                  .is_object());
  pack_model(open_float_model(saved).model, packed, {});
  const auto deltas = publishing::publications_in(published, Publication::kDelta);
  ASSERT_GT(deltas.size(), 8u);
  int64_t changed = 0, removed = 0;
  for (const int64_t n : deltas) {
    for (const auto& table : publishing::read_publication(published, Publication::kDelta, n).tables) {
      changed += table.changed;
      removed += table.removed;
    }
  }
  EXPECT_GT(changed, 100);
  EXPECT_GT(removed, 20);
  const int64_t last = deltas.back();
  EXPECT_EQ(difference(model_at(published, last).model(), open_packed_model(packed)), "");
  EXPECT_EQ(difference(model_at(published, 8).model(), open_packed_model(published + "/base-8")), "");
  EXPECT_NE(difference(model_at(published, 2).model(), open_packed_model(published + "/base-8")), "");

  const Runtime runtime;
  const ModelFollower follower(runtime, published);
  EXPECT_EQ(follower.status().number, last);
  const auto want = make_predictor(runtime, open_packed_model(packed));
  EXPECT_GE(open_packed_model(packed).tables.at(0).config.remapping->own_row(INT64_MAX), 0) << "the shared row";
  OwnInput input(want->model(), 200, 1);
  for (auto& ids : input.values) {  // some that have rows
    for (size_t i = 0; i < ids.size(); i += 2) ids[i] = static_cast<int64_t>(mixed(i % 150 + 77) >> 1);
  }
  EXPECT_EQ(scores_of(*follower.current(), input.view()), scores_of(*want, input.view()));
}

INSTANTIATE_TEST_SUITE_P(Kernels, SharedRow,
                         testing::Values("dynamic?evict=lfu&admit_after=2&absent=shared",
                                         "ssd_virtual_table?evict=lru&admit_after=2&cache_rows=40&absent=shared",
                                         "mch?policy=lfu&eviction_interval=2", "mch?policy=lru&reset=false"),
                         [](const auto& info) {
                           return std::string(std::array{"Dynamic", "OnDisk", "Managed", "Kept"}[info.index]);
                         });

}  // namespace
}  // namespace tessera::test::shared_row_test
