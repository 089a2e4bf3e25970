// `tessera plan` and `tessera train` make the same plan and report the same errors, also when memory runs out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "job_file.h"
#include "tessera_program.h"

namespace tessera::test::plan_command_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Bags of 100 popular ids, which no key describes; with one id each, no table would be replicated.
constexpr const char* kConfig = R"(
job = {threads = 1}
comm = {backend = "tcp", timeout_s = 60}
table = [
  {name = "a", rows = 20000, features = ["c0"]},
  {name = "b", rows = 100000, features = ["c1"]},
  {name = "d", rows = 300000, features = ["c2"]}]
[data]
reader = "synthetic"
columns = 3
rows = [20000, 100000, 300000]
pooling = 100
index_dist = "zipf:1.2"
samples = 3000
test_samples = 10
batch = 512
)";

class PlanCommand : public testing::Test, protected JobFile {
 protected:
  PlanCommand() : JobFile(kConfig) {}
  Arguments command(const std::string& name, const Arguments& more) const {
    return Arguments{name, "--config", path()} + more;
  }
  json planned(const Arguments& more) const {
    const std::string done = succeed(command("plan", {"--world-size", "2", "--format", "json"}) + more);
    return json::parse(done.substr(done.find('{')));
  }
  // The line with which both commands end.
  void expect_both_refused(const Arguments& settings, const testing::Matcher<std::string>& sentence) const {
    for (const char* name : {"plan", "train"}) expect_refused(command(name, settings), sentence);
  }
};

TEST_F(PlanCommand, ShowsThePlanThatTrainTakes) {
  const std::string report = folder_.file("report.json");
  succeed(run_tessera(command("train", {"--nproc", "2", "--max-steps", "1", "--set", "report.json=" + report})));
  const json taken = json::parse(contents(report)).at("plan");
  EXPECT_EQ(planned({}), taken);
  EXPECT_NE(planned({"--no-data"}), taken) << "or this job shows nothing";

  const Finished blind = run_tessera(command("plan", {"--no-data"}));
  EXPECT_THAT(blind.output, HasSubstr("--no-data: assumes pooling_factor or 1 ids per bag"));
  const Arguments missing{"--set", "data.reader=prepared", "--set", "data.path=/nowhere"};
  EXPECT_THAT(run_tessera(command("plan", missing)).output,
              AllOf(HasSubstr("/nowhere"), HasSubstr("--no-data plans without reading it")));
  EXPECT_EQ(run_tessera(command("plan", {"--no-data", missing[0], missing[1], missing[2], missing[3]})).status, 0);
}

TEST_F(PlanCommand, RefusesPartsThatTrainRefuses) {
  expect_both_refused({"--set", "job.kernel_plugin=nonsense"}, HasSubstr("\"nonsense\"; the nearest is \""));
  expect_both_refused({"--set", "comm.backend=nonsense"}, HasSubstr("\"nonsense\"; the nearest is \""));
  expect_both_refused({"--set", "table.b.optimizer={name=\"nonsense\"}"},
                      AllOf(HasSubstr("table b: "), HasSubstr("\"nonsense\"; the nearest is \"")));
  expect_both_refused({"--set", "table.b.optimizer.weight_decay=0.1"},
                      AllOf(HasSubstr("table b: "), HasSubstr("\"weight_decay_mode\" is none: set it to l2")));
}

TEST_F(PlanCommand, SavedPlansKeepToTheConfig) {
  const std::string plan = folder_.write("plan.json", planned({"--set", "table.b.sharding=row_wise"}).dump());
  const Arguments with_plan{"--nproc", "2", "--max-steps", "1", "--set", "planner.plan=" + plan};
  const auto train = [&](const std::string& setting) {
    Arguments all = command("train", with_plan);
    all.insert(all.end(), {"--set", setting});
    return run_tessera(all);
  };
  EXPECT_EQ(train("table.b.sharding=row_wise").status, 0);
  expect_refused(train("table.b.sharding=table_wise"),
                 HasSubstr("table b: the plan has sharding type row_wise, allowed is table_wise"));
  EXPECT_THAT(run_tessera(command("plan", {"--set", "planner.plan=" + plan})).output,
              HasSubstr("planner.plan: tessera train uses " + plan + "; this is a new plan"));
}

TEST_F(PlanCommand, MemoryMayBeListed) {
  const auto memory = [&](const Arguments& words) {
    return run_tessera(command("plan", Arguments{"--no-data", "--world-size", "2"} + words));
  };
  const std::string listed = memory({"--ddr-gib", "8,4.5"}).output;
  EXPECT_THAT(listed, HasSubstr("table_wise"));
  EXPECT_EQ(memory({"--ddr-gib", "8", "4.5"}).output, listed);
  for (const char* wrong : {"8;4", "8GiB", "x", "8, ,4"}) {
    expect_refused(memory({"--ddr-gib", wrong}),
                   HasSubstr("give one number of GiB for all ranks, such as 40, or one for each, such as "
                             "40,40,80"));
  }
  EXPECT_THAT(memory({"--ddr-gib", "1,2,3"}).output, HasSubstr("ddr_gib has 3 numbers for 2 ranks"));
  EXPECT_THAT(memory({"--ssd-gib", "1,2,3"}).output, HasSubstr("ssd_gib has 3 numbers for 2 ranks"));
  EXPECT_THAT(memory({"--set", "planner.ssd_gib=[1,2,3]"}).output, HasSubstr("ssd_gib has 3 numbers for 2 ranks"));
}

// Each rank has the batch of the smallest world; the sums that are printed are those of the step.
TEST_F(PlanCommand, ScaleComparesWorlds) {
  const std::string tables = folder_.write("tables.json", R"([
    {"name": "a", "num_embeddings": 100000, "embedding_dim": 64, "pooling_factors": [10]},
    {"name": "b", "num_embeddings": 300000, "embedding_dim": 64, "pooling_factors": [3]}])");
  const auto scaled = [&](const Arguments& more) {
    return succeed(Arguments{"plan", "--tables", tables, "--local-world-size", "2", "--ddr-gib", "1"} + more);
  };
  const json found = json::parse(scaled({"--scale", "2,4,8", "--network", "10Gbit,50us", "--format", "json"}));
  ASSERT_EQ(found["worlds"].size(), 3);
  for (const json& world : found["worlds"]) {
    const auto ranks = world["ranks"].get<int>();
    EXPECT_EQ(world["hosts"], ranks / 2);
    EXPECT_EQ(world["same_batch_per_rank"]["batch_per_rank"], 512);
    EXPECT_EQ(world["same_batch_in_all"]["batch_per_rank"], 1024 / ranks);
    for (const char* which : {"same_batch_per_rank", "same_batch_in_all"}) {
      const json& step = world[which];
      const double seconds = step["step_s"];
      EXPECT_NEAR(step["work_s"].get<double>() + step["busiest_rank_s"].get<double>() +
                      step["exchange_in_host_s"].get<double>() + step["exchange_across_hosts_s"].get<double>(),
                  seconds, seconds * 1e-6);
      EXPECT_NEAR(step["samples_per_s"].get<double>(), step["batch_per_rank"].get<double>() * ranks / seconds, 1);
      EXPECT_EQ(step["exchange_across_hosts_s"].get<double>() > 0, ranks > 2);
    }
    const double save = world["save_s"], failures = 250.0 * 86400 / (ranks / 2.0);
    EXPECT_NEAR(save, 400000.0 * 65 * 4 / (ranks / 2.0) / 500e6, 1e-9);
    EXPECT_NEAR(world["save_every_s"].get<double>(), std::sqrt(2 * save * failures) - save, 1e-3);
  }
  EXPECT_EQ(json::parse(
                scaled({"--scale", "2,4,8", "--network", "1Mbit", "--format", "json"}))["pays_up_to_same_batch_in_all"],
            2);
  const std::string table = scaled({"--scale", "2,4,8"});
  EXPECT_THAT(table, AllOf(HasSubstr("The same batch in all:"), HasSubstr("Predicted, not measured")));
  for (const std::string& line : lines_of(table)) EXPECT_LE(line.size(), 80) << line;
  EXPECT_THAT(succeed(Arguments{"plan", "--tables", tables, "--ddr-gib", "0.01", "--scale", "1,16"}),
              HasSubstr("no plan: "));
  expect_refused({"plan", "--tables", tables, "--ddr-gib", "0.0001", "--scale", "1,16"},
                 AllOf(HasSubstr("no plan: "), Not(HasSubstr("memory and saves"))), 1);
}

TEST_F(PlanCommand, ScaleRefusesWhatItCannotTake) {
  const auto refused = [&](const Arguments& more, const std::string& sentence) {
    expect_refused(command("plan", Arguments{"--no-data"} + more), HasSubstr(sentence));
  };
  refused({"--scale", "2,x"}, "\"x\" is no number from 1 to 65536");
  refused({"--scale", "4,2"}, "2 does not exceed 4");
  refused({"--scale", "2,9"}, "9 is no multiple of 8, the ranks of a host");
  refused({"--scale", "2", "--world-size", "4"}, "--world-size and --scale exclude each other");
  refused({"--scale", "2", "--format", "torchrec"}, "--format of --scale is table or json, not torchrec");
  refused({"--scale", "2", "--host-days", "0"}, "--host-days takes a positive number, not 0");
  refused({"--scale", "2", "--disk-mb-s", "nan"}, "--disk-mb-s takes a positive number, not nan");
  refused({"--scale", "2,16", "--network", "10Gbyte"}, "10Gbyte");
  refused({"--scale", "2,16", "--network", "fast"}, "--network fast: give the bandwidth of a host");
  refused({"--scale", "2,16", "--network", "10Gbit,5s"}, "such as 100Gbit or 25Gbit,50us");
  refused({"--host-days", "3"}, "--host-days has no effect without --scale");
}

// Runs under a limit on the address space, which sanitizers do not tolerate.
#ifndef TESSERA_TEST_SANITIZE
TEST_F(PlanCommand, OutOfMemoryIsASentenceWithTheSizes) {
  const auto train = [&](const Arguments& settings) {
    Arguments all = Arguments{tessera_path()} + command("train", settings);
    return run_program(all, 120, [] {
      const rlimit limit{512 << 20, 512 << 20};
      setrlimit(RLIMIT_AS, &limit);
    });
  };
  expect_refused(train({"--set", "table.b.rows=100000000", "--set", "planner.ddr_gib=1000"}),
                 AllOf(HasSubstr("table \"b\" with 100000000 rows of 16 columns here, 6400000000 bytes"),
                       HasSubstr("no memory for a block of 6"), Not(HasSubstr("bad_alloc"))),
                 1);
  expect_refused(train({"--set", "data.samples=2000000"}),
                 AllOf(HasSubstr("no memory for "), HasSubstr(" bytes of samples: take fewer")), 1);
}
#endif

}  // namespace
}  // namespace tessera::test::plan_command_test
