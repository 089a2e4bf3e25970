// How runs of `tessera train` end and continue: unusable places for checkpoints, slow disks, losses that are NaN,
// signals, and checkpoints of finished runs or of other data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <nlohmann/json.hpp>
#include <regex>

#include "job_file.h"
#include "small_job.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::run_ends_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kConfig = small_job({.samples = 1615, .test_samples = 300, .epochs = 2});  // 102 steps
const Arguments kForever = {"--set", "data.epochs=1000000", "--set", "report.log_every=1"};

class RunEnds : public testing::Test, protected JobFile {
 protected:
  RunEnds() : JobFile(kConfig) {}
  Arguments command(const Arguments& more) const { return JobFile::command(0, more); }
  Finished train(const Arguments& more) const { return run_tessera(command(more), 60); }
  std::string saved() const { return folder_.file("saved"); }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(saved())) out.push_back(entry.path().filename().string());
    std::sort(out.begin(), out.end());
    return out;
  }
};

TEST_F(RunEnds, BeforeTheFirstStepWhereACheckpointHasNoPlace) {
  fs::create_directory(saved());
  folder_.write("saved/cat.jpg", "cat");
  const std::array<std::pair<std::string, std::string>, 3> places = {{
      {saved(), "holds no checkpoint"},
      {saved() + "/cat.jpg", "is a file"},
      {saved() + "/cat.jpg/deeper", "Not a directory"},
  }};
  for (const auto& [place, sentence] : places) {
    const Finished done = train(kForever + Arguments{"--nproc", "2", "--save", place});
    EXPECT_EQ(done.status, sentence == "Not a directory" ? 1 : 2) << done.output;
    EXPECT_THAT(done.output, AllOf(HasSubstr(sentence), Not(HasSubstr("step 1/"))));
  }
  EXPECT_THAT(names(), testing::ElementsAre("cat.jpg"));
}

// An error that all ranks find is printed once, and a restart does not fix a wrong config.
TEST_F(RunEnds, WhatIsWrongIsSaidOnceAndNotTriedAgain) {
  // A rank may hear of the error from another one before it finds it itself.
  const auto count = [](const std::string& text, const std::string& part) {
    int found = 0;
    for (const std::string& line : lines_of(text))
      found += line.find(part) != std::string::npos && line.find(" aborted: ") == std::string::npos ? 1 : 0;
    return found;
  };
  const Finished tight = train({"--nproc", "2", "--set", "planner.ddr_gib=0.0000001"});
  EXPECT_EQ(tight.status, 1) << tight.output;
  EXPECT_EQ(count(tight.output, "nothing is left for tables"), 1) << tight.output;
  ASSERT_EQ(train({"--save", saved(), "--max-steps", "1"}).status, 0);
  const std::string manifest = saved() + "/save-1/checkpoint.json";
  const std::string newer =
      std::regex_replace(contents(manifest), std::regex("\"version\": [0-9]+"), "\"version\": 99");
  folder_.write("saved/save-1/checkpoint.json", newer);
  Arguments launch = {"launch", "-n", "2", "--restart-job", "1", "--", tessera_path()};
  const Finished newest = run_tessera(launch + command({"--load", saved()}), 60);
  EXPECT_EQ(newest.status, 2) << newest.output;
  EXPECT_EQ(count(newest.output, "use the version of Tessera that wrote it"), 1) << newest.output;
  EXPECT_THAT(newest.output, Not(HasSubstr("starting the job again")));
}

// The reason why this user cannot mount a file system, as in a container without CAP_SYS_ADMIN; empty if it can.
std::string why_no_mounts(const std::string& where) {
  fs::create_directory(where);
  const Finished tried = run_program({"/usr/bin/unshare", "-rm", "mount", "-t", "tmpfs", "none", where}, 20);
  return tried.status == 0 ? "" : str_cat("no mounts here: ", tried.output, " (status ", tried.status, ")");
}

// Runs a script in which $1 is an empty file system of that size and the remaining arguments are the program's command
// line.
Finished on_a_mount(const std::string& size, const std::string& where, const std::string& script, Arguments args) {
  args.insert(args.begin(),
              {"/usr/bin/unshare", "-rm", "/bin/sh", "-c",
               "mount -t tmpfs -o size=" + size + " none \"$1\" || exit 99; " + script, "sh", where, tessera_path()});
  return run_program(std::move(args), 60);
}

TEST_F(RunEnds, AMountPointIsAPlace) {
  if (const std::string why = why_no_mounts(saved()); !why.empty()) GTEST_SKIP() << why;
  const std::string done = succeed(on_a_mount(
      "64m", saved(), "d=$1; shift; \"$@\" && \"$@\" --load $d && ls $d && \"$@\" --load $d --set data.epochs=3",
      command({"--save", saved()})));
  EXPECT_THAT(done, HasSubstr("save-1\nsave-2\n"));
  EXPECT_EQ(report().at("first_step"), 102);
}

TEST_F(RunEnds, BeforeTheFirstStepWhereTheDiskIsTooSmall) {
  if (const std::string why = why_no_mounts(saved()); !why.empty()) GTEST_SKIP() << why;
  expect_refused(
      on_a_mount("48k", saved(), "d=$1; shift; \"$@\"", command(kForever + Arguments{"--save", saved()})),
      AllOf(HasSubstr("a checkpoint of "), HasSubstr("bytes will not fit in " + saved()), Not(HasSubstr("step 1/"))),
      1);
}

#ifndef TESSERA_TEST_SANITIZE  // whose library must be loaded first
TEST_F(RunEnds, NotBecauseOfASlowDisk) {
  Arguments args = Arguments{tessera_path()} + command({"--nproc", "2", "--save", saved(), "--max-steps", "5", "--set",
                                                        str_cat("comm.timeout_s=", TESSERA_STALL_S - 2)});
  succeed(run_program(args, 60, [] { setenv("LD_PRELOAD", TESSERA_SLOW_DISK, 1); }));
  EXPECT_THAT(names(), testing::ElementsAre("save-1"));
}
#endif

TEST_F(RunEnds, WithoutASaveWhereTheLossIsNoNumber) {
  ASSERT_EQ(train({"--save", saved(), "--max-steps", "5"}).status, 0);
  for (const char* ranks : {"1", "2"}) {
    expect_refused(train(kForever + Arguments{"--nproc", ranks, "--load", saved(), "--save", saved(), "--save-every",
                                              "4", "--set", "dense_optimizer.learning_rate=1e38"}),
                   AllOf(testing::AnyOf(HasSubstr(": the loss of step "), HasSubstr("the gradient of parameter")),
                         HasSubstr("a lower learning rate"), Not(HasSubstr("step 9/"))),
                   1);
  }
  EXPECT_THAT(names(), testing::ElementsAre("save-1"));
  succeed(train({"--load", saved(), "--max-steps", "9"}));  // the last good one is still there
  EXPECT_EQ(report().at("first_step"), 5);
  EXPECT_TRUE(report().at("train").at("loss").is_number());
}

TEST_F(RunEnds, WithTheNameOfATableThatHasComeApart) {
  expect_refused(train(kForever + Arguments{"--save", saved(), "--save-every", "50", "--set",
                                            "table_defaults.optimizer={name=\"exact_sgd\",learning_rate=1e38}"}),
                 AllOf(Not(HasSubstr("step 100/")),
                       testing::AnyOf(HasSubstr("the lookup of \""), HasSubstr("the dense forward overflows"),
                                      HasSubstr("table \""))),
                 1);
  EXPECT_FALSE(fs::exists(saved() + "/save-1"));
}

bool wait_for(const Program& job, const std::string& text) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (job.output().find(text) == std::string::npos && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return job.output().find(text) != std::string::npos;
}

// Only one rank gets the signal. All of them end after the same step, and the next run continues from their checkpoint.
TEST_F(RunEnds, OnASignalAfterTheStepWithACheckpoint) {
  for (const char* pipeline : {"job.pipeline=false", "job.pipeline=true"}) {
    SCOPED_TRACE(pipeline);
    Program job(Arguments{tessera_path()} +
                command(kForever + Arguments{"--nproc", "2", "--save", saved(), "--overwrite", "--set", pipeline}));
    ASSERT_TRUE(wait_for(job, "step 5/")) << job.output();
    const std::vector<pid_t> ranks = ranks_of(job.pid());
    ASSERT_EQ(ranks.size(), 2u) << job.output();
    ASSERT_EQ(kill(ranks[1], SIGTERM), 0);
    EXPECT_EQ(job.wait(60), 75) << job.output();
    const std::string said = job.output(), text = "stopped by a signal after ";
    ASSERT_THAT(said, AllOf(HasSubstr(text), HasSubstr("--load " + saved() + " continues from there")));
    EXPECT_THAT(said, Not(HasSubstr("AUC")));
    const int64_t steps = std::stoll(said.substr(said.find(text) + text.size()));
    EXPECT_GE(steps, 5);
    succeed(train({"--load", saved(), "--set", "data.epochs=1000000", "--max-steps", str_cat(steps + 3)}));
    EXPECT_EQ(report().at("first_step"), steps);
  }
}

TEST_F(RunEnds, OnASignalForTheLauncher) {
  Program job(Arguments{tessera_path()} + command(kForever + Arguments{"--nproc", "2"}));
  ASSERT_TRUE(wait_for(job, "step 5/")) << job.output();
  ASSERT_EQ(kill(job.pid(), SIGINT), 0);
  EXPECT_EQ(job.wait(60), 75);
  EXPECT_THAT(job.output(), AllOf(HasSubstr("passed signal 2"), HasSubstr("nothing was saved, without --save")));
}

// Like a service manager: the launcher forwards a signal that the ranks have already received.
TEST_F(RunEnds, OnASignalForAllProcesses) {
  Program job(Arguments{tessera_path()} + command(kForever + Arguments{"--nproc", "2", "--save", saved()}));
  ASSERT_TRUE(wait_for(job, "step 5/")) << job.output();
  for (const pid_t rank : ranks_of(job.pid())) ASSERT_EQ(kill(rank, SIGTERM), 0);
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(60), 75) << job.output();
  EXPECT_TRUE(fs::exists(saved() + "/save-1"));
}

TEST_F(RunEnds, AtOnceOnTheSecondSignal) {
  Program job(Arguments{tessera_path()} + command(kForever + Arguments{"--save", saved()}));
  ASSERT_TRUE(wait_for(job, "step 5/")) << job.output();
  // Both signals are pending when it continues.
  for (const int signal : {SIGSTOP, SIGTERM, SIGINT, SIGCONT}) ASSERT_EQ(kill(job.pid(), signal), 0);
  EXPECT_THAT(job.wait(60), testing::AnyOf(128 + SIGTERM, 128 + SIGINT));
  EXPECT_FALSE(fs::exists(saved() + "/save-1"));
}

// Starts the same command again whenever it has ended.
TEST_F(RunEnds, AndGoesOnByItself) {
  const Arguments whole = {"--save", folder_.file("whole"), "--max-steps", "40", "--nproc", "2"};
  ASSERT_EQ(train(whole).status, 0);
  const json losses = report().at("losses");
  const Arguments again = {"--save", saved(), "--resume", "--keep", "9", "--nproc", "2"};
  EXPECT_THAT(succeed(train(again + Arguments{"--max-steps", "15", "--save-every", "7"})),
              HasSubstr("starts again: there is no whole checkpoint at " + saved()));
  EXPECT_GE(report().at("checkpoints").at("saved"), 2) << "behind step 7, and at the end";
  EXPECT_EQ(report().at("checkpoints").at("beside_training"), true);
  EXPECT_THAT(succeed(train(again + Arguments{"--max-steps", "28"})), HasSubstr(", after step 15"));
  EXPECT_EQ(report().at("losses"), json(std::vector<json>(losses.begin() + 15, losses.begin() + 28)));
  // The newest checkpoint is cut short and the one before is damaged; the third is complete.
  for (const char* steps : {"30", "32"}) ASSERT_EQ(train(again + Arguments{"--max-steps", steps}).status, 0);
  const std::vector<std::string> there = names();
  ASSERT_GE(there.size(), 4u);
  fs::resize_file(saved() + "/" + there.back() + "/model.safetensors", 100);
  const std::string before = there[there.size() - 2] + "/model.safetensors";
  std::string damaged = contents(saved() + "/" + before);
  damaged[damaged.size() - 5] ^= 1;
  folder_.write("saved/" + before, damaged);
  EXPECT_THAT(
      succeed(train(again + Arguments{"--max-steps", "40"})),
      AllOf(HasSubstr("skipped a checkpoint: "), HasSubstr(before + " is damaged"), HasSubstr(", after step 28")));
  EXPECT_EQ(report().at("losses"), json(std::vector<json>(losses.begin() + 28, losses.end())));
  // Another number of ranks uses the same samples, so losses agree except for rounding.
  Finished done = train({"--save", saved(), "--resume", "--max-steps", "45", "--nproc", "3"});
  EXPECT_EQ(done.status, 0) << done.output;
  const json other = report().at("losses");
  ASSERT_EQ(train({"--load", folder_.file("whole"), "--max-steps", "45", "--nproc", "2"}).status, 0);
  for (size_t i = 0; i < other.size(); ++i)
    EXPECT_NEAR(other[i].get<double>(), report().at("losses").at(i).get<double>(), 1e-5);
  EXPECT_EQ(other.size(), 5u);
  const std::vector<std::string> left = names();
  ASSERT_EQ(train(again + Arguments{"--max-steps", "45"}).status, 0);
  EXPECT_EQ(names(), left) << "nothing was left to do";
  EXPECT_EQ(train({"--resume"}).status, 2) << "of which directory?";
}

// Files may not grow to the size of a checkpoint: the job goes on, and says so.
TEST_F(RunEnds, NotBecauseOfACheckpointThatFails) {
  Arguments args = Arguments{tessera_path()} + command({"--save", saved(), "--save-every", "4", "--max-steps", "10"});
  expect_refused(run_program(args, 60,
                             [] {
                               const rlimit small{30'000, 30'000};
                               setrlimit(RLIMIT_FSIZE, &small);
                             }),
                 AllOf(HasSubstr("the checkpoint of step 4 was not written: cannot reserve"),
                       HasSubstr("(files of this process may have 30000 bytes: raise ulimit -f)"),
                       HasSubstr("earlier ones are complete, and training continues")),
                 1);
  args = command({"--save-best", folder_.file("best"), "--max-steps", "20", "--set", "validation.fraction=0.1", "--set",
                  "validation.every_steps=10"});
  args.insert(args.begin(), tessera_path());
  EXPECT_THAT(succeed(run_program(args, 60,
                                  [] {
                                    const rlimit small{30'000, 30'000};
                                    setrlimit(RLIMIT_FSIZE, &small);
                                  })),
              AllOf(HasSubstr("the best checkpoint, of step 10, was not written: cannot reserve"),
                    HasSubstr(" validated best, but was not saved in " + folder_.file("best") + ": ")));
}

TEST_F(RunEnds, WithACheckpointForEachMinute) {
  succeed(train({"--save", saved(), "--save-every-minutes", "0.00001", "--max-steps", "40"}));
  EXPECT_GE(report().at("checkpoints").at("saved").get<int>(), 2) << "one at least before the last";
}

const Arguments kValidations = {"--set", "validation.fraction=0.1", "--set", "validation.every_steps=10",
                                "--set", "validation.patience=2"};

TEST_F(RunEnds, EarlyIsForGood) {
  const Arguments settings =
      kValidations + Arguments{"--set", "validation.min_delta=10", "--save", saved(), "--resume"};
  Finished done = train(settings);
  EXPECT_THAT(done.output,
              AllOf(HasSubstr("ended early, at step 3"), HasSubstr(": the last 2 validations were no better by auc"),
                    HasSubstr("warning: the model validated best at step 10 (auc "), HasSubstr("saved step 3")));
  EXPECT_THAT(succeed(train(settings)),
              AllOf(HasSubstr(", where training ended early: the last 2 validations were no better by "
                              "auc; raise validation.patience to continue"),
                    HasSubstr("test: AUC "), Not(HasSubstr("ended early, at step"))));
  EXPECT_EQ(names().size(), 1u) << "and nothing is saved again";
  done = train(settings + Arguments{"--set", "validation.patience=3"});
  EXPECT_THAT(done.output, HasSubstr("ended early, at step 4"));
}

TEST_F(RunEnds, AndSaysThatNoValidationHadAValue) {
  const std::string monitor = "precision?threshold=0.999999";
  const std::string done = succeed(train(
      kValidations + Arguments{"--set", "metrics.names=[\"" + monitor + "\"]", "--save-best", folder_.file("best")}));
  EXPECT_THAT(done, AllOf(HasSubstr("no better by " + monitor + ", which was nan in them"),
                          HasSubstr("was nan in every validation, so none was the best, and nothing was saved")));
  EXPECT_FALSE(fs::exists(folder_.file("best")));
}

TEST_F(RunEnds, AtOnceWhereNothingIsLeftToTrain) {
  ASSERT_EQ(train({"--save", saved()}).status, 0);
  const json before = report();
  EXPECT_THAT(succeed(train({"--load", saved()})),
              AllOf(HasSubstr("nothing is left to train: " + saved() +
                              " is at step 102, and data.epochs = "
                              "2 ends at 102; raise data.epochs"),
                    HasSubstr("test: AUC "), Not(HasSubstr("0 steps")), Not(HasSubstr("train loss"))));
  EXPECT_TRUE(report().at("train").at("loss").is_null());
  EXPECT_NEAR(report().at("test").at("auc").get<double>(), before.at("test").at("auc").get<double>(), 1e-9);
  EXPECT_THAT(succeed(train({"--load", saved(), "--max-steps", "50"})), HasSubstr("--max-steps 50; raise it"));
}

TEST_F(RunEnds, NoStepsAreNoSteps) {
  const std::string none = succeed(train({"--save", saved(), "--max-steps", "0"}));
  EXPECT_THAT(none, AllOf(HasSubstr("there is nothing to train: the job has no steps (--max-steps 0)\n"),
                          HasSubstr("test: AUC ")));
  ASSERT_EQ(train({"--save", saved(), "--overwrite", "--max-steps", "5"}).status, 0);
  const std::string looked_at = succeed(train({"--load", saved(), "--max-steps", "0"}));
  EXPECT_THAT(looked_at, AllOf(HasSubstr("is at step 5, and --max-steps 0"), HasSubstr("test: AUC ")));
}

TEST_F(RunEnds, WhatIsHardlyMeantIsSaid) {
  const std::string csv = folder_.write("none.csv", "label,price,film\n"),
                    columns = folder_.write("columns.toml", str_cat(R"(
column = [{name = "label", as = "label"}, {name = "price", as = "dense"}, {name = "film", as = "ids", rows = 10}]
data = {reader = "csv", test = "last", test_fraction = 0, path = ")",
                                                                    csv, "\"}"));
  expect_refused({"train", "--config", columns, "--save", saved()},
                 HasSubstr("there is nothing to train: " + csv + " has no rows to train on"));
  EXPECT_FALSE(fs::exists(saved() + "/save-1"));

  const std::string ones = folder_.write("ones.csv", "label,price,film\n1,3,1\n1,4,2\n1,5,3\n1,6,4\n");
  const std::string alike = succeed(
      run_tessera({"train", "--config", columns, "--set", "data.path=" + ones, "--set", "data.test_fraction=0.5"}));
  EXPECT_THAT(alike, HasSubstr("AUC is not defined: all test rows with a weight have the same label"));

  const Arguments blank = {"train", "--config", folder_.write("blank.toml", "# nothing\n")};
  expect_refused(run_tessera(blank), HasSubstr("blank.toml is empty"));
  EXPECT_THAT(succeed(run_tessera(blank + Arguments{"--set", "data.samples=64", "--set", "data.test_samples=64"})),
              AllOf(HasSubstr("data: generated (set data.path to train on your own)"),
                    HasSubstr("(64 samples), generated data, not yours")));
}

TEST_F(RunEnds, AnEarlierRunsBestIsNotReplacedInSilence) {
  const Arguments best = {"--save-best", saved(),
                          "--max-steps", "6",
                          "--set",       "validation.every_steps=3",
                          "--set",       "validation.fraction=0.1"};
  succeed(train(best));
  expect_refused(train(best),
                 HasSubstr("--save-best " + saved() + " holds 1 checkpoint of another run, the newest of"));
  EXPECT_EQ(train(best + Arguments{"--overwrite"}).status, 0);
}

// A new run touches no checkpoint of another run, unless it is told what to do with them.
TEST_F(RunEnds, BeforeItBeginsWhereAnotherRunHasSaved) {
  const Arguments once = {"--save", saved(), "--max-steps", "3"};
  for (const char* steps : {"3", "5"})
    ASSERT_EQ(train({"--save", saved(), "--resume", "--max-steps", steps}).status, 0);
  expect_refused(train(once + Arguments{"--nproc", "2"}),
                 AllOf(HasSubstr("--save " + saved() + " holds 2 checkpoints of another run, the newest of step 5"),
                       HasSubstr("--resume"), HasSubstr("--load"), HasSubstr("--overwrite")));
  EXPECT_EQ(train(once + Arguments{"--resume", "--overwrite"}).status, 2);
  EXPECT_EQ(train({"--overwrite"}).status, 2) << "what?";
  const std::vector<std::string> both = names();
  // No old checkpoint is removed before the first new one is complete.
  EXPECT_EQ(train(once + Arguments{"--overwrite", "--set",
                                   "table_defaults.optimizer={name=\"exact_sgd\","
                                   "learning_rate=1e38}"})
                .status,
            1);
  EXPECT_EQ(names(), both);
  EXPECT_EQ(train(once + Arguments{"--overwrite"}).status, 0);
  EXPECT_THAT(names(), testing::ElementsAre("save-3"));
  EXPECT_EQ(train(once + Arguments{"--load", saved()}).status, 0);
  EXPECT_THAT(names(), testing::ElementsAre("save-3", "save-4"));
}

// If no checkpoint can be read, --resume changes nothing, whatever the reason.
TEST_F(RunEnds, InsteadOfBeginningAnewWhereNoCheckpointCanBeRead) {
  const Arguments on = {"--save", saved(), "--resume", "--keep", "1", "--max-steps", "6"};
  ASSERT_EQ(train({"--save", saved(), "--max-steps", "3"}).status, 0);
  const std::string manifest = "saved/save-1/checkpoint.json", model = "saved/save-1/model.safetensors";
  const std::string whole = contents(folder_.file(manifest)), tensors = contents(folder_.file(model));
  std::string flipped = tensors;
  flipped[flipped.size() - 100] ^= 4;
  const std::array<std::array<std::string, 3>, 4> wrongs = {{
      {manifest, std::regex_replace(whole, std::regex("\"version\": [0-9]+"), "\"version\": 99"), "format 99"},
      {manifest, whole.substr(0, whole.size() / 2), "is damaged"},
      {model, flipped, "is damaged: its checksum"},
      {model, tensors.substr(0, 100), "has 100 bytes"},
  }};
  for (const auto& [file, text, why] : wrongs) {
    folder_.write(file, text);
    expect_refused(train(on), AllOf(HasSubstr("--resume cannot read a checkpoint in " + saved()), HasSubstr(why),
                                    HasSubstr("--overwrite"), Not(HasSubstr("starts again:"))));
    folder_.write(manifest, whole);
    folder_.write(model, tensors);
  }
  fs::rename(folder_.file(manifest), folder_.file("aside"));
  EXPECT_EQ(train(on).status, 2) << "files without a manifest";
  fs::create_symlink(folder_.file(manifest), folder_.file(manifest));
  EXPECT_THAT(train(on).output, HasSubstr("Too many levels of symbolic links"));
  fs::rename(folder_.file("aside"), folder_.file(manifest));
  EXPECT_THAT(succeed(train(on)), HasSubstr(", after step 3"));
  EXPECT_THAT(names(), testing::ElementsAre("save-2"));
}

// One job owns a directory for its whole life, and not only while it writes there.
TEST_F(RunEnds, BeforeItBeginsWhereAnotherJobSaves) {
  Program job(Arguments{tessera_path()} + command(kForever + Arguments{"--save", saved()}));
  ASSERT_TRUE(wait_for(job, "step 5/")) << job.output();
  expect_refused(train({"--save", saved(), "--resume", "--max-steps", "3"}),
                 HasSubstr(str_cat("another job saves to ", saved(), ": process ", job.pid(), " on ")), 1);
  ASSERT_EQ(kill(job.pid(), SIGHUP), 0) << "its terminal goes";
  EXPECT_EQ(job.wait(60), 75) << job.output();
  EXPECT_THAT(names(), testing::ElementsAre("save-1"));
}

// Closed standard streams must not become files of the job.
TEST_F(RunEnds, WithWholeCheckpointsWithoutStandardStreams) {
  Arguments args =
      Arguments{tessera_path()} + command({"--nproc", "1", "--save", saved(), "--save-every", "5", "--keep", "9",
                                           "--max-steps", "20", "--set", "report.log_every=1"});
  const auto closed = [] {
    for (const int stream : {0, 1, 2}) close(stream);
  };
  EXPECT_EQ(run_program(args, 60, closed).status, 0);
  ASSERT_GE(names().size(), 2u);
  for (const std::string& name : names())
    EXPECT_EQ(run_tessera({"model", "inspect", "--verify", saved() + "/" + name}).status, 0) << name;
}

TEST_F(RunEnds, NotOnOtherDataUnlessAskedTo) {
  ASSERT_EQ(train({"--save", saved(), "--max-steps", "9"}).status, 0);
  const std::array<std::pair<const char*, const char*>, 4> others = {{
      {"data.samples=1700", "samples = 1615 instead of 1700"},
      {"data.batch=64", "batch = 32 instead of 64"},
      {"job.seed=4", "seed = 3 instead of 4"},
      {"data.index_dist=uniform", "other samples"},
  }};
  for (const auto& [setting, sentence] : others) {
    expect_refused(train({"--load", saved(), "--set", setting}), AllOf(HasSubstr(sentence), HasSubstr("--new-data")));
  }
  succeed(train({"--load", saved(), "--new-data", "--set", "data.samples=1700", "--max-steps", "9"}));
  EXPECT_EQ(report().at("first_step"), 0);
  EXPECT_EQ(report().at("steps"), 9);
}

std::string crc32_of(const std::string& text) {
  uint32_t crc = ~0u;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0u);
  }
  char out[9];
  std::snprintf(out, sizeof(out), "%08x", ~crc);
  return out;
}

// The checkpoint has a right checksum, however it was made.
TEST_F(RunEnds, OnACheckpointWhoseStepCannotBe) {
  ASSERT_EQ(train({"--save", saved(), "--max-steps", "3"}).status, 0);
  const std::string path = saved() + "/save-1/checkpoint.json";
  const auto whole = nlohmann::ordered_json::parse(contents(path));
  for (const char* progress : {R"({"step": -1, "data": {}})", R"({"step": 1e300, "data": {}})", R"({"step": 3})",
                               R"({"step": 3, "data": 1})", "[]", "", "no JSON"}) {
    auto changed = whole;
    changed["content"]["progress"] = progress;
    changed["crc32"] = crc32_of(changed["content"].dump());
    folder_.write("saved/save-1/checkpoint.json", changed.dump());
    const Finished done = train({"--load", saved(), "--set", "job.pipeline=false"});
    EXPECT_EQ(done.status, 1) << progress << '\n' << done.output;
    EXPECT_THAT(done.output, HasSubstr("does not say at which step of which data")) << progress;
    const std::string looked = succeed({"model", "inspect", saved()});
    EXPECT_EQ(one_line(looked).find(", a checkpoint after step 3 of 1 rank") != std::string::npos,
              std::string(progress).find('3') == 9)
        << progress << '\n'
        << looked;
    EXPECT_EQ(one_line(looked).find("after step -"), std::string::npos) << looked;
  }
}

}  // namespace
}  // namespace tessera::test::run_ends_test
