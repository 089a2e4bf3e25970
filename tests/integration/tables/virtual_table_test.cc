// Jobs on tables of any ids whose rows lie on a disk (docs/dynamic_tables.md). They learn the same as tables in memory,
// on any ranks; checkpoints move between the two; errors are reported in a sentence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "dynamic_job.h"
#include "job_file.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::virtual_table_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string job(const TestDirectory& folder) {
  return folder.write("job.toml", str_cat("plugins = {path = [\"", TESSERA_TEST_PLUGINS, "\"]}", R"(
job = {seed = 3, device = "cpu", threads = 1}
comm = {backend = "tcp"}
model = {embedding_dim = 8, bottom_mlp = [8], top_mlp = [8, 1]}
[table_defaults]
optimizer = { name = "exact_adagrad", learning_rate = 0.05, eps = 1e-8 }
sharding = ["hash"]
[data]
reader = "synthetic"
columns = 2
rows = [1000000000000]
dense = 3
pooling = 3
index_dist = "zipf:1.05"
samples = 4000
test_samples = 600
batch = 32
)"));
}

class VirtualTableJobs : public testing::Test, protected JobFile {
 protected:
  Finished run(const std::string& kernel, int ranks, const Arguments& more) const {
    return train(ranks, settings({str_cat("table_defaults.compute_kernel=\"", kernel, "\"")}) + more);
  }
  // The report of a job that succeeds.
  json trained(const std::string& kernel, int ranks, const Arguments& more = {}) const {
    succeed(run(kernel, ranks, more));
    return report();
  }
  // Sums are in another order, so rounding differs.
  static void expect_same(const json& a, const json& b) {
    EXPECT_EQ(a["test"]["samples"], b["test"]["samples"]);
    for (const char* key : {"auc", "logloss"})
      EXPECT_NEAR(a["test"][key].get<double>(), b["test"][key].get<double>(), 1e-4) << key;
    for (const auto& [name, table] : a["tables"].items()) {
      for (const char* key : {"rows_in_use", "evictions"}) EXPECT_EQ(table[key], b["tables"][name][key]) << name;
    }
  }

  const std::string in_memory_ = "dynamic?capacity=2000&evict=lfu",
                    on_disk_ = "ssd_virtual_table?capacity=2000&evict=lfu&cache_rows=200";
  const std::string config_ = job(folder_);
};

TEST_F(VirtualTableJobs, LearnWhatTablesInMemoryDo) {
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(str_cat(ranks, " ranks"));
    const json there = trained(on_disk_, ranks), here = trained(in_memory_, ranks);
    expect_same(there, here);
    const json large = there["tables"].begin().value();
    EXPECT_GT(large["storage_reads"], 100);
    EXPECT_GT(large["storage_writes"], 100);
    EXPECT_GT(large["evictions"], 100);
    EXPECT_LT(large["hits"], large["lookups"]);
  }
}

TEST_F(VirtualTableJobs, CheckpointsGoFromDiskToMemoryAndBack) {
  const std::string save = folder_.file("save"), other = folder_.file("other");
  trained(on_disk_, 2, {"--max-steps", "60", "--save", save});
  trained(in_memory_, 1, {"--max-steps", "60", "--save", other});
  const json there = trained(on_disk_, 1, {"--load", save});
  expect_same(there, trained(in_memory_, 2, {"--load", save}));
  expect_same(there, trained(on_disk_, 2, {"--load", other}));
}

TEST_F(VirtualTableJobs, GoOnFromWhatHasChanged) {
  const Stopped last = stopped_behind_changes({tessera_path(), "train", "--config", config_, "--nproc", "2", "--set",
                                               str_cat("table_defaults.compute_kernel=\"", on_disk_, "\"")},
                                              folder_.file("save"));
  const std::vector<std::string> on{"--load", last.changes, "--max-steps", str_cat(last.step + 40),
                                    "--set",  kWithoutEnd};
  const json there = trained(on_disk_, 2, on);
  expect_same(there, trained(in_memory_, 1, on));
  const json never = trained(on_disk_, 2, {"--max-steps", str_cat(last.step + 40), "--set", kWithoutEnd});
  EXPECT_NEAR(there["test"]["logloss"].get<double>(), never["test"]["logloss"].get<double>(), 1e-4);
}

TEST_F(VirtualTableJobs, ThePlannerPutsOnDiskWhatDoesNotFit) {
  const std::string both =
      "table_defaults.compute_kernels=[\"dynamic?capacity=4000000\", "
      "\"ssd_virtual_table?capacity=4000000&cache_rows=20000\"]";
  const auto plan = [&](const char* gib) {
    const std::string done = succeed({"plan", "--config", config_, "--world-size", "1", "--ddr-gib", gib, "--set", both,
                                      "--set", "planner.ssd_gib=100"});
    return done;
  };
  const std::string roomy = plan("1"), tight = plan("0.4");
  EXPECT_THAT(roomy, testing::Not(HasSubstr("ssd_virtual_table")));
  EXPECT_THAT(tight, testing::AllOf(HasSubstr("ssd_virtual_table"), HasSubstr("reads a step"), HasSubstr("disk MiB")));
}

// Bands of 10^12 ids, most of which have no whole row of a capacity of a few hundred.
TEST_F(VirtualTableJobs, AreAsLargeAsTheirCapacityAndHaveTheDiskThatThereIs) {
  const auto plan = [&](const std::string& kernel, const Arguments& more) {
    return run_tessera(Arguments{"plan", "--config", config_, "--world-size", "1", "--ddr-gib", "0.1", "--set",
                                 str_cat("table_defaults.compute_kernel=\"", kernel, '"')} +
                       more);
  };
  const std::string few = "ssd_virtual_table?capacity=500&cache_rows=300", many = "ssd_virtual_table?capacity=4000000";
  for (const std::string& kernel : {few, std::string("dynamic?capacity=500")}) {
    const std::string done = succeed(plan(kernel, {"--set", "planner.ssd_gib=1"}));
    EXPECT_THAT(done, testing::ContainsRegex("c1 +hash +[^ ]+ +0 +1 +0\\.[0-9] ")) << "MiB of ddr";
  }
  const std::string from =
      "; ssd is what the disk of /var/tmp has free, in equal parts for 1 ranks: planner.ssd_gib overrides it";
  EXPECT_THAT(one_line(plan(few, {}).output), HasSubstr(from));
  EXPECT_THAT(one_line(plan(few, {"--ssd-gib", "1"}).output),
              testing::AllOf(HasSubstr(" of ddr, 1 GiB of ssd; set aside"), testing::Not(HasSubstr("/var/tmp"))));
  expect_refused(plan(many, {"--ssd-gib", "0.01"}),
                 HasSubstr(" of ssd, and the 1 ranks have 102 MiB of ddr, 10.2 MiB of ssd together"), 1);
}

TEST_F(VirtualTableJobs, TablesThatFitAreInMemoryWhereTheKernelIsLeftToThePlanner) {
  EXPECT_THAT(succeed({"plan", "--config", config_, "--world-size", "1", "--ddr-gib", "1", "--set",
                       "table_defaults.compute_kernel=\"auto\"", "--set", "table.c0.any_id=true", "--set",
                       "table.c0.rows=20000", "--set", "table.c1.any_id=true", "--set", "table.c1.rows=1000000"}),
              testing::AllOf(HasSubstr("dynamic"), testing::Not(HasSubstr("ssd_virtual_table"))));
}

TEST_F(VirtualTableJobs, SayWhatIsWrong) {
  EXPECT_THAT(run("ssd_virtual_table?capacity=2000&cach_rows=3", 1, {}).output,
              HasSubstr("unknown option \"cach_rows\": the nearest known one is \"cache_rows\""));
  EXPECT_THAT(run("ssd_virtual_table?capacity=2000&absent=start", 1, {}).output,
              HasSubstr("ids without a row read zeros in ssd_virtual_table tables"));
  expect_refused(run("ssd_virtual_table?capacity=2000&cache_rows=20", 1, {}),
                 HasSubstr("the steps in progress need more rows than the 20 that fit in its cache: set a "
                           "larger cache_mib, or use smaller batches"),
                 1);
}

}  // namespace
}  // namespace tessera::test::virtual_table_test
