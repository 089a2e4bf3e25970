#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "config/test_refusal.h"
#include "tessera/process_group.h"

namespace tessera {
namespace {

using testing::HasSubstr;

constexpr const char* kVariables[] = {"RANK",
                                      "WORLD_SIZE",
                                      "LOCAL_RANK",
                                      "LOCAL_WORLD_SIZE",
                                      "MASTER_ADDR",
                                      "MASTER_PORT",
                                      "TESSERA_JOB_TOKEN",
                                      "OMPI_COMM_WORLD_RANK",
                                      "OMPI_COMM_WORLD_SIZE",
                                      "OMPI_COMM_WORLD_LOCAL_RANK",
                                      "OMPI_COMM_WORLD_LOCAL_SIZE",
                                      "PMIX_NAMESPACE",
                                      "SLURM_STEP_ID",
                                      "SLURM_PROCID",
                                      "SLURM_NTASKS",
                                      "SLURM_LOCALID",
                                      "SLURM_STEP_TASKS_PER_NODE",
                                      "SLURM_STEP_NODELIST",
                                      "SLURM_JOB_ID"};

// The environment with these variables of launchers and no others.
RankEnvironment with(const std::map<std::string, std::string>& variables) {
  for (const char* name : kVariables) ::unsetenv(name);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  return RankEnvironment::from_environment();
}

std::string refusal(const std::map<std::string, std::string>& variables) {
  return test::refusal([&] { with(variables); }, "accepted");
}

TEST(RankEnvironment, OneRankWithoutALauncher) {
  const RankEnvironment e = with({});
  EXPECT_EQ(e.source, "single");
  EXPECT_EQ(e.rank, 0);
  EXPECT_EQ(e.world_size, 1);
}

TEST(RankEnvironment, Torchrun) {
  const RankEnvironment e = with({{"RANK", "5"},
                                  {"WORLD_SIZE", "8"},
                                  {"LOCAL_RANK", "1"},
                                  {"LOCAL_WORLD_SIZE", "4"},
                                  {"MASTER_ADDR", "10.0.0.7"},
                                  {"MASTER_PORT", "1234"},
                                  {"TESSERA_JOB_TOKEN", "secret"}});
  EXPECT_EQ(e.source, "torchrun");
  EXPECT_EQ(e.rank, 5);
  EXPECT_EQ(e.world_size, 8);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.local_world_size, 4);
  EXPECT_EQ(e.master_addr, "10.0.0.7");
  EXPECT_EQ(e.master_port, 1234);
  EXPECT_EQ(e.token, "secret");
}

TEST(RankEnvironment, Mpirun) {
  const std::map<std::string, std::string> rank3 = {{"OMPI_COMM_WORLD_RANK", "3"},
                                                    {"OMPI_COMM_WORLD_SIZE", "4"},
                                                    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                                    {"PMIX_NAMESPACE", "job-17"}};
  const RankEnvironment e = with(rank3);
  EXPECT_EQ(e.source, "mpirun");
  EXPECT_EQ(e.rank, 3);
  EXPECT_EQ(e.local_world_size, 2);
  auto rank0 = rank3;
  rank0["OMPI_COMM_WORLD_RANK"] = "0";
  EXPECT_EQ(with(rank0).master_port, e.master_port) << "all ranks of a job find the same port";
}

TEST(RankEnvironment, Slurm) {
  std::map<std::string, std::string> step = {{"SLURM_STEP_ID", "0"},
                                             {"SLURM_PROCID", "2"},
                                             {"SLURM_NTASKS", "4"},
                                             {"SLURM_LOCALID", "0"},
                                             {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                                             {"SLURM_STEP_NODELIST", "node[03-04,09]"},
                                             {"SLURM_JOB_ID", "77"}};
  const RankEnvironment e = with(step);
  EXPECT_EQ(e.source, "slurm");
  EXPECT_EQ(e.rank, 2);
  EXPECT_EQ(e.local_world_size, 2);
  EXPECT_EQ(e.master_addr, "node03");
  step.erase("SLURM_STEP_ID");  // a shell inside an allocation is no rank
  EXPECT_EQ(with(step).source, "single");
}

TEST(RankEnvironment, ALauncherThatDoesNotSayWhatAHostHas) {
  const RankEnvironment e = with({{"RANK", "1"}, {"WORLD_SIZE", "4"}});
  EXPECT_EQ(e.world_size, 4);
  EXPECT_EQ(e.local_world_size, 0);
}

TEST(RankEnvironment, ClearedAProcessIsNoRank) {
  with({{"RANK", "1"},
        {"WORLD_SIZE", "2"},
        {"OMPI_COMM_WORLD_RANK", "3"},
        {"OMPI_COMM_WORLD_SIZE", "4"},
        {"PMIX_NAMESPACE", "job-17"},
        {"SLURM_STEP_ID", "0"},
        {"SLURM_PROCID", "2"}});
  RankEnvironment::clear_environment();
  EXPECT_EQ(RankEnvironment::from_environment().source, "single");
  EXPECT_EQ(::getenv("PMIX_NAMESPACE"), nullptr);
}

TEST(RankEnvironment, RefusesWhatCannotBe) {
  EXPECT_THAT(refusal({{"RANK", "two"}, {"WORLD_SIZE", "4"}}), HasSubstr("RANK is \"two\""));
  EXPECT_THAT(refusal({{"RANK", "4"}, {"WORLD_SIZE", "4"}}), HasSubstr("rank 4 of 4"));
  EXPECT_THAT(refusal({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}}),
              HasSubstr("local rank 2 of 2"));
  EXPECT_THAT(refusal({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "0"}}), HasSubstr("local rank 0 of 0"));
  EXPECT_THAT(refusal({{"MASTER_PORT", "70000"}}), HasSubstr("MASTER_PORT is 70000"));
  EXPECT_THAT(refusal({{"RANK", "1,2"}, {"WORLD_SIZE", "4"}}), HasSubstr("RANK is \"1,2\""));
  for (const char* local_rank : {"0", "1"}) {
    EXPECT_THAT(refusal({{"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "2"},
                         {"SLURM_NTASKS", "3"},
                         {"SLURM_LOCALID", local_rank},
                         {"SLURM_STEP_TASKS_PER_NODE", "1,2"}}),
                HasSubstr("SLURM_STEP_TASKS_PER_NODE is \"1,2\": every host needs the same number ranks"));
  }
}

}  // namespace
}  // namespace tessera
