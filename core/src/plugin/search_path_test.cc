#include "plugin/search_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "config/test_directory.h"
#include "config/test_refusal.h"
#include "tessera/error.h"

namespace tessera::plugin {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class SearchPathTest : public testing::Test {
 protected:
  std::string folder(const std::string& name) {
    fs::create_directories(root_ / name);
    ::chmod((root_ / name).c_str(), 0755);
    return (root_ / name).string();
  }
  std::string file(const std::string& name) {
    std::ofstream(root_ / name) << "x";
    ::chmod((root_ / name).c_str(), 0644);
    return (root_ / name).string();
  }
  const test::TestDirectory directory_;
  const fs::path root_ = fs::canonical(directory_.path());
};

TEST_F(SearchPathTest, ConfiguredFirstThenTheVariableThenTheDefault) {
  const std::string a = folder("a"), b = folder("b");
  const SearchPath path = search_path({{b}, a + "::" + b + ":" + a, true});
  ASSERT_EQ(path.directories.size(), 3u);
  EXPECT_EQ(path.directories[0].path, b);
  EXPECT_EQ(path.directories[0].problem, "");
  EXPECT_EQ(path.directories[1].path, a);
  EXPECT_THAT(path.directories[2].path, HasSubstr("/tessera/plugins-1"));
  EXPECT_FALSE(path.directories[0].installed);
  EXPECT_THAT(test::refusal(Code::kInvalidArgument,
                            [&] {
                              search_path({{}, a + ":relative", true});
                            }),
              HasSubstr("TESSERA_PLUGIN_PATH has \"relative\", but takes only absolute directories"));
}

TEST_F(SearchPathTest, OnlyTheConfiguredOnes) {
  const SearchPath path = search_path({{folder("a")}, folder("b"), false});
  ASSERT_EQ(path.directories.size(), 1u);
}

TEST_F(SearchPathTest, NamesWhatCannotBeSearched) {
  const SearchPath path = search_path({{(root_ / "none").string(), file("file")}, "", false});
  ASSERT_EQ(path.directories.size(), 2u);
  EXPECT_EQ(path.directories[0].problem, "does not exist");
  EXPECT_EQ(path.directories[1].problem, "is not a directory");
}

TEST_F(SearchPathTest, ARelativeConfiguredPathIsAnError) {
  EXPECT_THROW(search_path({{"plugins"}, "", false}), Error);
  EXPECT_THROW(search_path({{""}, "", false}), Error);
}

TEST_F(SearchPathTest, ListsLibrariesByNameWithoutDescending) {
  const std::string b = file("b.so"), a = file("a.so");
  file("c.so.1");
  file("d.txt");
  folder("deep");
  file("deep/e.so");
  fs::create_symlink(a, root_ / "z.so");
  EXPECT_THAT(plugin_files(root_.string()), ElementsAre(a, b, a));
  EXPECT_THAT(plugin_files((root_ / "none").string()), ElementsAre());
}

}  // namespace
}  // namespace tessera::plugin
