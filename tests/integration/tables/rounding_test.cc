// Tests tables with rounding = "stochastic" on two ranks, and from a checkpoint on.
#include <nlohmann/json.hpp>

#include "small_job.h"
#include "tessera_program.h"

namespace tessera::test {
namespace {

class Rounded : public testing::Test {
 protected:
  Rounded() : config_(folder_.write("job.toml", small_job({.samples = 640, .test_samples = 64, .epochs = 1}))) {}

  Arguments command(const Arguments& more) const {
    return Arguments{"train",
                     "--config",
                     config_,
                     "--set",
                     "report.json=\"" + folder_.file("report.json") + '"',
                     "--set",
                     "table_defaults.data_type=bfloat16",
                     "--set",
                     "table_defaults.rounding=stochastic"} +
           more;
  }
  std::vector<double> losses(const Arguments& more) const {
    succeed(command(more));
    return nlohmann::json::parse(contents(folder_.file("report.json"))).at("losses");
  }

  TestDirectory folder_;
  std::string config_;
};

TEST_F(Rounded, EveryPlanGivesTheSame) {
  const std::vector<double> alone = losses({});
  for (const char* sharding : {"table_wise", "row_wise", "column_wise"}) {
    const std::vector<double> here =
        losses({"--nproc", "2", "--set", std::string("table_defaults.sharding=[\"") + sharding + "\"]"});
    ASSERT_EQ(here.size(), alone.size());
    // Sums over ranks differ in the last bit, which seldom rounds a value the other way.
    for (size_t i = 0; i < here.size(); ++i) EXPECT_NEAR(here[i], alone[i], 1e-3) << sharding << ' ' << i;
  }
}

TEST_F(Rounded, ACheckpointContinuesExactly) {
  const std::string saved = folder_.file("saved");
  const std::vector<double> whole = losses({});
  (void)losses({"--max-steps", "12", "--save", saved});
  const std::vector<double> rest = losses({"--load", saved});
  EXPECT_EQ(rest, std::vector<double>(whole.begin() + 12, whole.end()));
}

TEST_F(Rounded, DataParallelTablesAreRefused) {
  const Finished refused = run_tessera(command({"--set", "table_defaults.sharding=[\"data_parallel\"]"}));
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(one_line(refused.output), testing::HasSubstr("fused?rounding=stochastic"));
}

}  // namespace
}  // namespace tessera::test
