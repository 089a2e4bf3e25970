// The disk for a command's result is full. The command reports it and does not succeed, unless the result is also
// elsewhere, as that of a training run is.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "small_job.h"
#include "tessera_program.h"

namespace tessera::test::full_disk_test {
namespace {

constexpr const char* kFull = "/dev/full";

class FullDisk : public testing::Test {
 protected:
  // Runs with standard output on the full disk; messages are on standard error.
  static Finished printed(std::vector<std::string> command) {
    command.insert(command.begin(), tessera_path());
    return run_program(std::move(command), 60, [] { dup2(open(kFull, O_WRONLY), STDOUT_FILENO); });
  }
  TestDirectory folder_;
  const std::string config_ = folder_.write("job.toml", small_job({.samples = 320, .test_samples = 32, .epochs = 1}));
};

TEST_F(FullDisk, TakesNothingThatIsPrinted) {
  const std::string sentence = "cannot write to standard output: is the disk full?\n";
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"plan", "--config", config_, "--format", "json"},
        {"stats", "--config", config_},
        {"plugins"}}) {
    const Finished done = printed(command);
    EXPECT_EQ(done.status, 1) << done.output;
    EXPECT_EQ(done.output, "tessera " + command[0] + ": " + sentence);
  }
  succeed(printed({"train", "--config", config_, "--save", folder_.file("saved")}));
  EXPECT_TRUE(std::filesystem::exists(folder_.file("saved")));
}

TEST_F(FullDisk, TakesNoFileThatIsAskedFor) {
  const auto refused = [](const std::vector<std::string>& command, int status, const std::string& sentence) {
    const Finished done = run_tessera(command);
    EXPECT_EQ(done.status, status) << done.output;
    EXPECT_THAT(done.output, testing::EndsWith("tessera " + command[0] + ": " + sentence + "\n"));
  };
  const std::string picture = folder_.file("plan.html");
  std::filesystem::create_symlink(kFull, picture);
  refused({"stats", "--config", config_, "--hot", kFull}, 1, "cannot write to /dev/full");
  refused({"plan", "--config", config_, "--picture", picture}, 1, "cannot write " + picture + ": is the disk full?");
  ASSERT_EQ(run_tessera({"train", "--config", config_, "--save", folder_.file("saved")}).status, 0);
  refused({"train", "--config", config_, "--set", str_cat("report.json=\"", kFull, "\"")}, 1,
          "cannot write the report to /dev/full: is the disk full?");
  ASSERT_EQ(run_tessera({"quantize", "--load", folder_.file("saved"), "--save", folder_.file("model")}).status, 0);
  refused({"predict", "--model", folder_.file("model"), "--config", config_, "--output", kFull}, 1,
          "cannot write to /dev/full");
}

}  // namespace
}  // namespace tessera::test::full_disk_test
