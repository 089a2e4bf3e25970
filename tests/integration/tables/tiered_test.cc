// Jobs whose tables are larger than the memory they may use (docs/tiered.md). Numbers equal those of tables in memory,
// bit for bit; checkpoints move between the two; a full disk ends the job but not its checkpoint; the planner puts on
// disk what does not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "failing_disk.h"
#include "job_file.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::tiered_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Its tables are divided by rows unless a test says otherwise; divided by columns, a rank has two tables of the same
// ids.
std::string job(const TestDirectory& folder) {
  return folder.write("job.toml", str_cat("plugins = {path = [\"", TESSERA_TEST_PLUGINS, "\"]}", R"(
job = {seed = 3, device = "cpu", threads = 1}
comm = {backend = "tcp"}
model = {embedding_dim = 8, bottom_mlp = [8], top_mlp = [8, 1]}
[table_defaults]
optimizer = { name = "exact_adagrad", learning_rate = 0.05, eps = 1e-8 }
min_partition = 4
sharding = ["row_wise"]
[data]
reader = "synthetic"
columns = 3
rows = [3000, 2000, 40]
dense = 3
pooling = 3
index_dist = "zipf:1.05"
samples = 2400
test_samples = 600
batch = 32
)"));
}

class TieredJobs : public testing::Test, protected JobFile {
 protected:
  static Arguments cached(const Arguments& more = {}) {
    return more + settings({R"(table_defaults.compute_kernel="key_value?cache_rows=400")"});
  }
  static Arguments in_memory(const Arguments& more = {}) {
    return more + settings({R"(table_defaults.compute_kernel="fused")"});
  }
  static void expect_same(const json& a, const json& b) {
    EXPECT_EQ(a["train"]["loss"], b["train"]["loss"]);
    expect_same_test(a, b);
  }
  static void expect_same_test(const json& a, const json& b) {
    for (const char* key : {"samples", "auc", "logloss", "calibration"}) EXPECT_EQ(a["test"][key], b["test"][key]);
  }

  const std::string config_ = job(folder_);
};

TEST_F(TieredJobs, HaveTheNumbersOfTablesInMemory) {
  for (const int ranks : {1, 2}) {
    for (const char* optimizer : {"exact_adagrad", "exact_rowwise_adagrad", "adam"}) {
      const char* sharding = optimizer == std::string_view("adam") ? "column_wise" : "row_wise";
      SCOPED_TRACE(str_cat(ranks, " ranks, ", optimizer));
      const std::vector<std::string> with{
          "--set", str_cat("table_defaults.optimizer={ name = \"", optimizer, "\", learning_rate = 0.05, eps = 1e-8 }"),
          "--set", str_cat("table_defaults.sharding=[\"", sharding, "\"]")};
      const json there = trained(ranks, cached(with)), here = trained(ranks, in_memory(with));
      expect_same(there, here);
      const json large = there["tables"].begin().value();
      EXPECT_GT(large["storage_reads"], 100);
      EXPECT_GT(large["storage_writes"], 100);
      EXPECT_LT(large["hits"], large["lookups"]);
    }
  }
}

TEST_F(TieredJobs, CheckpointsGoFromDiskToMemoryAndBack) {
  const std::string save = folder_.file("save");
  trained(2, cached({"--max-steps", "30", "--save", save}));
  const json there = trained(1, cached({"--load", save})), here = trained(1, in_memory({"--load", save}));
  expect_same(there, here);
  trained(1, in_memory({"--max-steps", "30", "--save", folder_.file("other")}));
  trained(1, cached({"--max-steps", "30", "--save", folder_.file("same")}));
  EXPECT_EQ(contents(folder_.file("other/model.safetensors")), contents(folder_.file("same/model.safetensors")));
  EXPECT_EQ(contents(folder_.file("other/optimizer.safetensors")),
            contents(folder_.file("same/optimizer.safetensors")));
}

TEST_F(TieredJobs, AFullDiskEndsTheJobAndNotItsCheckpoint) {
  const std::string save = folder_.file("save");
  trained(1, cached({"--max-steps", "20", "--save", save}));
  std::vector<std::string> args{tessera_path(), "train", "--config", config_};
  for (const std::string& more : cached()) args.push_back(more);
  Program full(args, [] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit small{65536, 65536};
    setrlimit(RLIMIT_FSIZE, &small);
  });
  EXPECT_EQ(full.wait(60), 1) << full.output();
  EXPECT_THAT(full.output(), HasSubstr("its file in \"/var/tmp\" cannot be written: File too large; make room "
                                       "there, or give the table another \"directory\", and continue from the last "
                                       "checkpoint"));
  expect_same(trained(1, cached({"--load", save})), trained(1, in_memory({"--load", save})));
}

// A job that is told to end saves the rows changed since its first checkpoint. Continued from there, also on other
// ranks and in memory, it reaches the numbers of a job that was never interrupted. Its own final checkpoint has
// everything.
TEST_F(TieredJobs, SaveTheRowsThatHaveChanged) {
  const std::string save = folder_.file("save");
  std::vector<std::string> command{tessera_path(), "train", "--config", config_, "--nproc", "2"};
  for (const std::string& more :
       cached({"--save", save, "--save-every", "5", "--save-full-every", "1000000", "--set", "data.epochs=100000"}))
    command.push_back(more);
  Program job(command);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!std::filesystem::exists(save + "/save-1") && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ASSERT_EQ(kill(job.pid(), SIGTERM), 0);
  job.wait(60);
  EXPECT_THAT(job.output(), HasSubstr("stopped by a signal"));

  const std::string looked = succeed({"model", "inspect", "--json", "--verify", save});
  const json last = json::parse(looked);
  EXPECT_EQ(last["base"], "save-1");
  const std::string from = last["path"], steps = str_cat(last["step"].get<int64_t>() + 20);
  const std::vector<std::string> on{"--set", "data.epochs=100000", "--max-steps", steps};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), on.begin(), on.end());
    return more;
  };
  const json whole = trained(2, in_memory(on));
  expect_same_test(trained(2, cached(with({"--load", from}))), whole);
  expect_same_test(trained(2, in_memory(with({"--load", from}))), whole);
  expect_same_test(trained(1, cached(with({"--load", from}))), trained(1, in_memory(with({"--load", from}))));
  EXPECT_THAT(run_tessera({"model", "inspect", from}).output,
              HasSubstr("some tables have only the rows that changed since save-1"));
  // The checkpoint, also for programs without the job, equals one with all rows.
  const std::string all = folder_.file("all");
  trained(1, in_memory({"--load", from, "--set", "data.epochs=100000", "--max-steps",
                        str_cat(last["step"].get<int64_t>()), "--save", all}));
  for (const std::string& of : {from, all}) {
    succeed({"quantize", "--load", of, "--save", folder_.file(of == all ? "b" : "a")});
  }
  for (const char* table : {"table-0.rows", "table-1.rows", "table-2.rows", "dense.safetensors"})
    EXPECT_EQ(contents(folder_.file(str_cat("a/", table))), contents(folder_.file(str_cat("b/", table)))) << table;

  const json resumed =
      trained(2, cached(with({"--save", save, "--save-every", "5", "--save-full-every", "1000000", "--resume"})));
  expect_same_test(resumed, whole);
  EXPECT_FALSE(json::parse(run_tessera({"model", "inspect", "--json", save}).output).contains("base"));
}

// Publications of tables on disk equal those of tables in memory.
TEST_F(TieredJobs, PublishTheRowsThatHaveChanged) {
  const auto published = [&](const std::string& name, std::vector<std::string> more) {
    const std::string to = folder_.file(name);
    more.insert(more.end(), {"--publish", to, "--every", "10steps"});
    trained(2, more);
    std::map<std::string, std::string> out;
    for (const auto& file : std::filesystem::recursive_directory_iterator(to)) {
      const std::string kind = file.path().extension();
      if (kind == ".safetensors" || kind == ".rows") out[file.path().lexically_relative(to)] = contents(file.path());
    }
    return out;
  };
  const auto here = published("here", in_memory());
  EXPECT_EQ(here.size(), 4 + 7) << "a base of three tables and a dense part, and deltas";
  EXPECT_TRUE(here == published("there", cached()));
}

// Impossible settings give one sentence before any step.
TEST_F(TieredJobs, RefuseToFollowChangesWhereNobodyDoes) {
  const std::vector<std::string> often{"--save", folder_.file("save"), "--save-every", "5", "--save-full-every", "3"};
  const auto said = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"train", "--config", config_});
    more.insert(more.end(), often.begin(), often.end());
    const Finished done = run_tessera(more);
    EXPECT_NE(done.status, 0) << done.output;
    return done.output;
  };
  EXPECT_THAT(said({"--set", "job.kernel_plugin=\"reference\""}),
              HasSubstr("no table's kernel can say which of its rows change"));
}

// A read or a write (of many rows together) fails during training, as if a device were gone: the job ends with one
// sentence, and continuing from the last checkpoint gives the same numbers.
TEST_F(TieredJobs, ABrokenDiskEndsTheJobAndNotItsCheckpoint) {
#ifdef TESSERA_TEST_SANITIZE
  GTEST_SKIP() << "sanitizers must be loaded first";
#endif
  const json whole = trained(1, in_memory());
  for (const auto& [reads, with] : {std::pair(true, EIO), std::pair(false, EIO), std::pair(true, ENODEV)}) {
    const std::string name = reads ? "read" : "written", of = str_cat(name, with);
    const std::string disk = folder_.file(of), save = folder_.file("save_" + of);
    std::filesystem::create_directories(disk);
    const std::string kernel = "table_defaults.compute_kernel=\"key_value?cache_rows=400&io=threads&directory=";
    const Arguments job = words(
        str_cat("train --config ", config_, " --save ", save, " --save-every 5 --resume --set ", kernel, disk, '"'));
    std::vector<std::string> sound = job, command = job;
    sound.insert(sound.end(), {"--max-steps", "20"});
    ASSERT_EQ(run_tessera(sound).status, 0);
    command.insert(command.begin(), tessera_path());
    const DiskFault fault{.under = disk, .at = reads ? 300 : 5, .with = with, .reads = reads};
    const Finished broken = run_program(command, 60, [&] { preload(fault); });
    EXPECT_EQ(broken.status, 1) << broken.output;
    EXPECT_TRUE(has_struck(broken.output)) << broken.output;
    const std::string sentence =
        str_cat("its file in \"", disk, "\" cannot be ", name, ": ", std::strerror(with),
                "; continue from the last checkpoint, with another \"directory\" where the disk is broken");
    EXPECT_THAT(broken.output, HasSubstr(sentence));
    EXPECT_EQ(broken.output.find(sentence), broken.output.rfind(sentence)) << broken.output;
    const std::string report = folder_.file("report.json");
    std::vector<std::string> again = job;
    again.insert(again.end(), {"--set", "report.json=" + report});
    EXPECT_THAT(succeed(run_tessera(again)), HasSubstr("continues from"));
    for (const char* key : {"samples", "auc", "logloss", "calibration"})
      EXPECT_EQ(json::parse(contents(report))["test"][key], whole["test"][key]) << of;
  }
}

TEST_F(TieredJobs, ThePlannerPutsOnDiskWhatDoesNotFit) {
  const std::vector<std::string> both{
      "--set", R"(table_defaults.compute_kernels=["fused", "key_value?cache_rows=20000"])",
      "--set", "data.rows=[4000000, 3000, 40]",
      "--set", "planner.ssd_gib=100"};
  const auto plan = [&](const char* gib) {
    const std::string done =
        succeed(run_tessera(Arguments{"plan", "--config", config_, "--world-size", "1", "--ddr-gib", gib} + both));
    return done;
  };
  const std::string roomy = plan("8"), tight = plan("0.15");
  EXPECT_THAT(roomy, testing::Not(HasSubstr("key_value")));
  EXPECT_THAT(
      tight, testing::AllOf(HasSubstr("key_value?cache_rows=20000"), HasSubstr("reads a step"), HasSubstr("disk MiB")));
}

}  // namespace
}  // namespace tessera::test::tiered_test
