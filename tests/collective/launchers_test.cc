// Jobs as users start them: by `tessera launch` over tcp, and by mpirun over MPI. Tests ranks that are killed or never
// come, and that the program's own commands use the transport of their launcher.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tessera_program.h"

namespace tessera::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Arguments = std::vector<std::string>;

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A launcher, and the transport that "auto" chooses under it.
struct Launcher {
  std::string name, backend;
  Arguments command;  // placed before the number of ranks

  Arguments ranks(int n) const {
    Arguments all = command + Arguments{"-n", std::to_string(n)};
    if (backend == "tcp") all.push_back("--");
    return all;
  }
};

std::vector<Launcher> launchers() {
  std::vector<Launcher> all = {{"launch", "tcp", {tessera_path(), "launch"}}};
#ifdef TESSERA_MPIRUN
  Launcher mpirun{"mpirun", "mpi", {}};
  std::stringstream words(TESSERA_MPIRUN);
  for (std::string word; words >> word;) mpirun.command.push_back(word);
  all.push_back(mpirun);
#endif
  return all;
}

class Under : public testing::TestWithParam<Launcher> {
 protected:
  Finished run(int ranks, const Arguments& command, double timeout_s = 90) {
    return run_program(GetParam().ranks(ranks) + command, timeout_s);
  }
  Finished suite(int ranks, const Arguments& more) {
    return run(ranks, Arguments{TESSERA_SUITE, "--backend=" + GetParam().backend} + more);
  }
  bool mpi() const { return GetParam().backend == "mpi"; }
};
INSTANTIATE_TEST_SUITE_P(Launchers, Under, testing::ValuesIn(launchers()),
                         [](const auto& info) { return info.param.name; });

TEST_P(Under, AKilledRankEndsTheJobAndIsNamed) {
  const Finished done = suite(3, {"--die=2"});
  EXPECT_EQ(done.status, 128 + SIGKILL) << done.output;
  EXPECT_THAT(done.output, HasSubstr("rank 2 "));
  EXPECT_THAT(done.output, HasSubstr("signal 9"));
}

TEST_P(Under, ARankThatNeverComesIsNotWaitedForLongerThanTheDeadline) {
  expect_refused(suite(3, {"--absent=2"}), testing::AllOf(HasSubstr(GetParam().backend + ": "), HasSubstr("2 s")), 1);
}

// The bench's only line with a time; the closing lines are about the run.
json only_measurement(const std::string& output) {
  json found;
  for (const std::string& text : lines_of(output)) {
    const json line = json::parse(text);
    if (!line.contains("median_us")) continue;
    EXPECT_TRUE(found.is_null()) << output;
    found = line;
  }
  return found;
}

TEST_P(Under, ABenchUsesTheRanksAndTheTransportThatAreThere) {
  for (const char* bench : {"step", "train"}) {
    const std::string done = succeed(run(2, {tessera_path(), "bench", bench, "--json", "--rounds", "1", "--steps", "1",
                                             "--tables", "2", "--rows", "100", "--dim", "4", "--batch", "8"}));
    const json line = only_measurement(done);  // a single line, because ranks did not start further ranks
    EXPECT_EQ(line.at("world"), 2);
    EXPECT_EQ(line.at("backend"), GetParam().backend);
  }
  const std::string done = succeed(run(2, {tessera_path(), "bench", "collective", "--backend", GetParam().backend,
                                           "--rounds", "1", "--json", "--op", "all_to_all", "--bytes", "4096"}));
  EXPECT_EQ(only_measurement(done).at("verified"), true);
}

TEST_P(Under, ABenchThatWantsOtherRanksThanThereAreIsRefused) {
  expect_refused(run(2, {tessera_path(), "bench", "step", "--nproc", "3"}), HasSubstr("--nproc 3"));
}

constexpr const char* kConfig = R"(
job = {threads = 1}
model = {embedding_dim = 8, bottom_mlp = [8], top_mlp = [8, 1]}
table_defaults = {sharding = ["row_wise"]}
data = {columns = 3, rows = [50, 300, 40], samples = 640, test_samples = 100, batch = 32}
)";

TEST_P(Under, TrainingNeedsNoOtherSettingAndGivesTheSameLosses) {
  const TestDirectory folder;
  const std::string config = folder.write("job.toml", kConfig);
  const auto train = [&](const Arguments& before, const std::string& report) {
    succeed(run_program(
        before + Arguments{tessera_path(), "train", "--config", config, "--set", "report.json=" + folder.file(report)},
        90));
    return json::parse(contents(folder.file(report)));
  };
  const json one = train({}, "one.json"), four = train(GetParam().ranks(4), "four.json");
  EXPECT_EQ(four.at("world_size"), 4);
  const auto want = one.at("losses").get<std::vector<double>>(), got = four.at("losses").get<std::vector<double>>();
  ASSERT_EQ(want.size(), 20u);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-4 * want[i]) << "step " << i;
}

TEST_P(Under, ARankWithAnotherJobEndsAll) {
  const TestDirectory folder;
  const std::string config = folder.write("job.toml", kConfig);
  const std::string unlike =
      "R=${RANK-$OMPI_COMM_WORLD_RANK}; exec \"$0\" train --config \"$1\" "
      "$([ $R = 1 ] && echo --set data.reader=prepared --set data.path=/nowhere)";
  expect_refused(run(2, {"/bin/sh", "-c", unlike, tessera_path(), config}), HasSubstr("rank 1"), 1);
}

TEST(Launch, RefusesWhatIsNoNumber) {
  for (const char* grace : {"nan", "-1", "soon"}) {
    expect_refused(run_program({tessera_path(), "launch", "-n", "1", "--grace", grace, "--", "true"}, 30),
                   HasSubstr("--grace takes a number from 0 to 3600, not"));
  }
}

#ifdef TESSERA_MPIRUN
TEST(Mpi, RanksThatCutMessagesDifferentlyAreTold) {
  expect_refused(
      run_program(launchers().back().ranks(2) + Arguments{"/bin/sh", "-c",
                                                          "exec \"$0\" --backend=mpi --gtest_filter=BytesSent.* "
                                                          "--options=\"{\\\"max_message\\\": "
                                                          "$((100000 + 1000000 * OMPI_COMM_WORLD_RANK))}\"",
                                                          TESSERA_SUITE},
                  60),
      HasSubstr("mpi: damaged data from rank 0 during broadcast"), 1);
}

#ifdef TESSERA_SLOW_FINALIZE
// mpirun may not have noticed yet that such a rank has called MPI_Finalize.
TEST(Mpi, ARankThatTookLongToFinaliseStaysForAMoment) {
  const std::string done = succeed(
      run_program(launchers().back().ranks(2) + Arguments{"-x", "LD_PRELOAD=" TESSERA_SLOW_FINALIZE, TESSERA_SUITE,
                                                          "--backend=mpi", "--gtest_filter=BytesSent.*"},
                  90));
  constexpr std::string_view kStayed = "stayed ";
  int ranks = 0;
  for (size_t at = 0; (at = done.find(kStayed, at)) != std::string::npos; ++ranks) {
    at += kStayed.size();
    EXPECT_GE(std::stoi(done.substr(at)), 2000);
  }
  EXPECT_EQ(ranks, 2) << done;
}
#endif

TEST(Mpi, WithoutALauncherIsRefusedWithASentence) {
  expect_refused(run_program({TESSERA_SUITE, "--backend=mpi"}, 60),
                 HasSubstr("was not started as a rank of an MPI job"), 1);
}

TEST(Mpi, RanksThatAnotherLauncherCountsAreRefused) {
  expect_refused(run_program(launchers().back().ranks(2) +
                                 Arguments{"/bin/sh", "-c",
                                           "RANK=$((1 - OMPI_COMM_WORLD_RANK)) WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 "
                                           "exec \"$0\" --backend=mpi",
                                           TESSERA_SUITE},
                             60),
                 HasSubstr("but MPI says rank"), 1);
}

// Ranks that a rank of an MPI job starts by itself are not ranks of that job.
TEST(Mpi, ALauncherInsideAJobStartsRanksOfItsOwn) {
  const std::string done = succeed(
      run_program(launchers().back().ranks(1) +
                      Arguments{tessera_path(), "launch",   "-n", "2",       "--", tessera_path(), "bench", "step",
                                "--json",       "--rounds", "1",  "--steps", "1",  "--tables",     "2",     "--rows",
                                "100",          "--dim",    "4",  "--batch", "8"},
                  90));
  const json line = only_measurement(done);
  EXPECT_EQ(line.at("world"), 2);
  EXPECT_EQ(line.at("backend"), "tcp");
}
#endif

}  // namespace
}  // namespace tessera::test
