// What is at DIR after a save, one that was interrupted, and beside files that are not ours.
#include "checkpoint/directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/manifest.h"
#include "checkpoint/test_model.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::TestDirectory;
using testing::HasSubstr;

void write(const std::string& folder, const std::string& content) {
  for (const char* name : {kModelFile, kOptimizerFile, kManifestFile}) test::write_file(folder + "/" + name, content);
}
void save(const std::string& target, const std::string& content) {
  StagedDirectory staged(target);
  for (const char* name : {kModelFile, kOptimizerFile, kManifestFile}) test::write_file(staged.file(name), content);
  staged.commit();
}
std::string content(const std::string& folder) { return test::read_file(folder + "/" + kModelFile); }
size_t count(const std::string& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(StagedDirectory, ReplacesAndLeavesNothingBehind) {
  const TestDirectory dir;
  const std::string target = dir.file("runs/7/model/");
  save(target, "first");
  EXPECT_EQ(content(target), "first");
  save(target, "second");
  EXPECT_EQ(content(target), "second");
  EXPECT_EQ(count(dir.file("runs/7")), 1u);
  EXPECT_EQ(whole_checkpoint(target), fs::canonical(target).string());
}

TEST(StagedDirectory, KeepsTheOldOneUntilCommitted) {
  const TestDirectory dir;
  save(dir.file("c"), "old");
  {
    StagedDirectory staged(dir.file("c"));
    test::write_file(staged.file(kModelFile), "half");
    EXPECT_EQ(content(dir.file("c")), "old");
  }
  EXPECT_EQ(content(dir.file("c")), "old");
  EXPECT_EQ(count(dir.file("")), 1u);
}

TEST(StagedDirectory, IsNotForTwoJobs) {
  const TestDirectory dir;
  const StagedDirectory first(dir.file("c"));
  const auto [text, code] = test::error_of([&] { StagedDirectory second(dir.file("c")); });
  EXPECT_EQ(code, Code::kUnavailable);
  EXPECT_THAT(text, HasSubstr("another job is writing"));
}

TEST(StagedDirectory, GoesOnAfterACrashWhileWriting) {
  const TestDirectory dir;
  save(dir.file("c"), "old");
  fs::create_directory(dir.file("c.saving"));
  test::write_file(dir.file("c.saving/") + kModelFile, "torn");
  EXPECT_EQ(whole_checkpoint(dir.file("c")), fs::canonical(dir.file("c")).string());
  save(dir.file("c"), "new");
  EXPECT_EQ(content(dir.file("c")), "new");
  EXPECT_EQ(count(dir.file("")), 1u);
}

TEST(StagedDirectory, GoesOnAfterACrashBetweenTheRenames) {
  const TestDirectory dir;
  fs::create_directory(dir.file("c.replaced"));
  write(dir.file("c.replaced"), "old");
  fs::create_directory(dir.file("c.saving"));
  write(dir.file("c.saving"), "new");
  EXPECT_EQ(content(whole_checkpoint(dir.file("c"))), "old");
  { StagedDirectory staged(dir.file("c")); }
  EXPECT_EQ(content(dir.file("c")), "old");
  EXPECT_EQ(count(dir.file("")), 1u);
}

TEST(StagedDirectory, GoesOnAfterACrashBeforeTheOldOneWasRemoved) {
  const TestDirectory dir;
  save(dir.file("c"), "new");
  fs::create_directory(dir.file("c.replaced"));
  test::write_file(dir.file("c.replaced/") + kOptimizerFile, "old");  // half removed
  test::write_file(dir.file("c.replaced/notes.txt"), "mine");
  { StagedDirectory staged(dir.file("c")); }
  EXPECT_EQ(content(dir.file("c")), "new");
  EXPECT_EQ(test::read_file(dir.file("c/notes.txt")), "mine");
  EXPECT_EQ(count(dir.file("")), 1u);
}

TEST(StagedDirectory, TouchesNoFilesOfOthers) {
  const TestDirectory dir;
  fs::create_directory(dir.file("photos"));
  test::write_file(dir.file("photos/cat.jpg"), "cat");
  auto [text, code] = test::error_of([&] { StagedDirectory staged(dir.file("photos")); });
  EXPECT_EQ(code, Code::kAlreadyExists);
  EXPECT_THAT(text, HasSubstr("holds no checkpoint"));
  EXPECT_EQ(test::read_file(dir.file("photos/cat.jpg")), "cat");
  EXPECT_EQ(count(dir.file("")), 1u);
  EXPECT_EQ(test::error_of([&] { StagedDirectory staged(dir.file("photos/cat.jpg")); }).second, Code::kAlreadyExists);

  fs::create_directory(dir.file("c.saving"));
  test::write_file(dir.file("c.saving/cat.jpg"), "cat");
  EXPECT_THAT(test::error_of([&] { StagedDirectory staged(dir.file("c")); }).first, HasSubstr("c.saving/cat.jpg"));
  EXPECT_EQ(test::read_file(dir.file("c.saving/cat.jpg")), "cat");

  save(dir.file("d"), "old");
  test::write_file(dir.file("d/report.json"), "mine");
  fs::create_directory(dir.file("d/plots"));
  save(dir.file("d"), "new");
  EXPECT_EQ(test::read_file(dir.file("d/report.json")), "mine");
  EXPECT_TRUE(fs::is_directory(dir.file("d/plots")));
  EXPECT_FALSE(fs::exists(dir.file("d.replaced")));
}

TEST(StagedDirectory, FollowsALink) {
  const TestDirectory dir;
  save(dir.file("real"), "old");
  fs::create_directory_symlink(dir.file("real"), dir.file("latest"));
  save(dir.file("latest"), "new");
  EXPECT_TRUE(fs::is_symlink(dir.file("latest")));
  EXPECT_EQ(content(dir.file("real")), "new");
}

TEST(WholeCheckpoint, IsNotFoundWhereThereIsNone) {
  const TestDirectory dir;
  const auto [text, code] = test::error_of([&] { whole_checkpoint(dir.file("c")); });
  EXPECT_EQ(code, Code::kNotFound);
  EXPECT_THAT(text, HasSubstr(dir.file("c")));
  test::write_file(dir.file("c"), "a file");
  EXPECT_EQ(test::error_of([&] { whole_checkpoint(dir.file("c")); }).second, Code::kNotFound);
  EXPECT_EQ(test::error_of([&] { whole_checkpoint(""); }).second, Code::kInvalidArgument);
}

}  // namespace
}  // namespace tessera::checkpoint
