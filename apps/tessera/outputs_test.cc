#include "outputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "command.h"
#include "config/test_directory.h"
#include "config/test_refusal.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

class Outputs : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(root_ / "data");
    for (const char* file : {"job.toml", "data/train.tsv.gz", "data/report.json"}) std::ofstream(root_ / file) << "x";
    fs::create_symlink(root_ / "job.toml", root_ / "link");
  }
  std::string at(const std::string& path) const { return path.empty() ? "" : (root_ / path).string(); }
  // The message that refuses these outputs, or "".
  std::string refusal(const std::string& output, const std::string& other = "", const std::string& folder = "") const {
    const auto check = [&] {
      check_outputs({{"--output", at(output)}, {"--trace", at(other)}}, {{at("job.toml"), at("data"), ""}, {folder}});
    };
    return test::refusal<UsageError>(check, "");
  }
  const test::TestDirectory directory_;
  const fs::path root_ = fs::canonical(directory_.path());
};

TEST_F(Outputs, AreNoInputs) {
  EXPECT_EQ(refusal("job.toml"), "--output " + at("job.toml") + " would replace " + at("job.toml") +
                                     ", which this command reads: name another file");
  EXPECT_NE(refusal("link"), "");
  EXPECT_NE(refusal("data/../job.toml"), "");
  EXPECT_NE(refusal("data/train.tsv.gz"), "");
  EXPECT_NE(refusal("data"), "");
  fs::create_directories(root_ / "data/day=1");
  std::ofstream(root_ / "data/day=1/part.orc") << "x";
  EXPECT_THAT(refusal("data/day=1/part.orc"), testing::HasSubstr("would replace or be a file of " + at("data")));
  EXPECT_NE(refusal("data/day=1/new.parquet"), "") << "the directory would have it from then on";
  EXPECT_NE(refusal("data/new.csv", "", at("data")), "");  // in a folder such as a model's, every file counts
}

TEST_F(Outputs, AreNoFilesOfAPattern) {
  std::ofstream(root_ / "data/a.csv") << "x";
  const InputFiles pattern{{at("data/*.csv")}, {}};
  EXPECT_THROW(check_outputs({{"--output", at("data/a.csv")}}, pattern), UsageError);
  EXPECT_THROW(check_outputs({{"--output", at("data/new.csv")}}, pattern), UsageError);
  check_outputs({{"--output", at("data/new.jsonl")}, {"--trace", at("new.csv")}}, pattern);
}

TEST_F(Outputs, MayBeNewOrReplaceAnOlderOne) {
  EXPECT_EQ(refusal(""), "");
  EXPECT_EQ(refusal("new.csv", "new.json"), "");
  EXPECT_EQ(refusal("data/report.json"), "");
  EXPECT_EQ(refusal("data/new.html"), "");
}

TEST_F(Outputs, AreDifferentFilesInFoldersThatExist) {
  EXPECT_THAT(refusal("new.json", "data/../new.json"), testing::HasSubstr("--output and --trace are both"));
  EXPECT_THROW(refusal("none/new.json"), Error);
}

}  // namespace
}  // namespace tessera::cli
