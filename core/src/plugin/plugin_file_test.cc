#include "plugin/plugin_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "config/test_directory.h"
#include "config/test_refusal.h"
#include "tessera/error.h"

namespace tessera::plugin {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class PluginFileTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(path_ = root_ / "above" / "folder");
    path_ /= "a.so";
    std::ofstream(path_) << "0123456789";
    for (fs::path at = path_; at != root_; at = at.parent_path()) mode(at, 0755);
  }
  static void mode(const fs::path& path, mode_t mode) { EXPECT_EQ(::chmod(path.c_str(), mode), 0); }
  std::string distrust(const std::string& program = "") const { return PluginFile(path_, program).distrust(); }
  std::string refusal(const fs::path& path) const {
    return test::refusal(
        Code::kInvalidArgument, [&] { const PluginFile file(path, ""); }, "opened");
  }
  const test::TestDirectory directory_;
  const fs::path root_ = fs::canonical(directory_.path());
  fs::path path_;
};

TEST_F(PluginFileTest, ReadsRanges) {
  const PluginFile file(path_);
  EXPECT_EQ(file.size(), 10u);
  char got[4] = {};
  file.read(7, got, 3);
  EXPECT_STREQ(got, "789");
  EXPECT_THROW(file.read(8, got, 3), Error);
}

TEST_F(PluginFileTest, RefusesWhatIsNoFileThatCanBeRead) {
  EXPECT_EQ(refusal(root_ / "none.so"), "cannot be read: No such file or directory");
  EXPECT_EQ(refusal(root_ / "none" / "a.so"), "cannot be read: No such file or directory");
  EXPECT_EQ(refusal(path_ / "a.so"), "cannot be read: Not a directory");
  EXPECT_EQ(refusal(root_), "is not a regular file");
  EXPECT_EQ(refusal("/dev/null"), "is not a regular file");
  fs::create_symlink("nowhere", root_ / "link.so");
  EXPECT_EQ(refusal(root_ / "link.so"), "cannot be read: it is a link that leads nowhere");
  ASSERT_EQ(::mkfifo((root_ / "fifo.so").c_str(), 0644), 0);
  EXPECT_EQ(refusal(root_ / "fifo.so"), "is not a regular file");
}

// A canonical path has no links, so a link was put there afterwards.
TEST_F(PluginFileTest, FollowsNoLink) {
  fs::rename(root_ / "above", root_ / "elsewhere");
  fs::create_directory_symlink(root_ / "elsewhere", root_ / "above");
  EXPECT_THAT(refusal(path_), HasSubstr("cannot be read"));
}

TEST_F(PluginFileTest, DistrustsAFileAndAFolderThatOthersMayWrite) {
  EXPECT_EQ(distrust(), "");
  mode(path_, 0664);
  EXPECT_EQ(distrust(), "the file " + path_.string() + " may be written by its group: chmod go-w it");
  mode(path_, 0646);
  EXPECT_THAT(distrust(), HasSubstr("a.so may be written by everybody"));
  mode(path_, 0644);
  mode(path_.parent_path(), 01777);  // others could put another plugin there
  EXPECT_EQ(distrust(),
            "the directory " + path_.parent_path().string() + " may be written by everybody: chmod go-w it");
  EXPECT_THAT(distrust(path_.parent_path() / "program"), HasSubstr("may be written by everybody"));
}

TEST_F(PluginFileTest, DistrustsWhatLiesWhereOthersMayRenameIt) {
  mode(root_ / "above", 0777);
  EXPECT_EQ(distrust(), "the directory " + (root_ / "above").string() + " may be written by everybody: chmod go-w it");
  EXPECT_EQ(distrust(root_ / "above" / "bin" / "program"), "");
  EXPECT_EQ(distrust(root_ / "above_all").substr(0, 13), "the directory");
  mode(root_ / "above", 01777);
  EXPECT_EQ(distrust(), "");
}

TEST_F(PluginFileTest, DistrustsStrangers) {
  if (::chown(path_.c_str(), 12345, 12345) != 0) GTEST_SKIP() << "only root can give a file away";
  EXPECT_THAT(distrust(), HasSubstr("a.so belongs to user 12345"));
  ASSERT_EQ(::chown(path_.c_str(), 0, 0), 0);
  ASSERT_EQ(::chown((root_ / "above").c_str(), 12345, 0), 0);
  mode(root_ / "above", 01755);
  EXPECT_THAT(distrust(), HasSubstr("above belongs to user 12345"));
  ASSERT_EQ(::chown((root_ / "above").c_str(), 0, 12345), 0);
  mode(root_ / "above", 0775);
  EXPECT_THAT(distrust(), HasSubstr("above may be written by its group"));
  ASSERT_EQ(::chown((root_ / "above").c_str(), 0, 0), 0);  // root's private group
  EXPECT_EQ(distrust(), "");
}

TEST_F(PluginFileTest, NoticesWhatHappensToThePath) {
  const PluginFile file(path_);
  EXPECT_EQ(file.changed(), "");
  mode(path_.parent_path(), 0777);
  EXPECT_THAT(file.changed(), HasSubstr("is not trusted any more: the directory"));
  mode(path_.parent_path(), 0755);
  EXPECT_EQ(file.changed(), "");
  fs::copy_file(path_, root_ / "copy");
  fs::rename(root_ / "copy", path_);
  EXPECT_EQ(file.changed(), "has changed since it was found: start again");
  fs::remove(path_);
  EXPECT_EQ(file.changed(), "has changed since it was found: it cannot be read: No such file or directory");
}

}  // namespace
}  // namespace tessera::plugin
