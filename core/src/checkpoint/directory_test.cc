// Tests the contents of DIR after saves and interrupted saves, and beside foreign files.
#include "checkpoint/directory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "checkpoint/test_model.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::TestDirectory;
using testing::ElementsAre;
using testing::HasSubstr;

void write(const std::string& folder, const std::string& content) {
  const auto bytes = static_cast<int64_t>(content.size());
  Manifest manifest;
  for (const char* name : {kModelFile, kOptimizerFile}) {
    test::write_file(folder + "/" + name, content);
    manifest.files.push_back({name, bytes, 0});
  }
  test::write_file(folder + "/" + kManifestFile, manifest.json());
}
void fill(const StagedCheckpoint& staged, const std::string& content) {
  write(fs::path(staged.file(kManifestFile)).parent_path().string(), content);
}
void save(const std::string& target, const std::string& content, int keep = 2) {
  StagedCheckpoint staged(target);
  fill(staged, content);
  staged.commit(keep);
}
std::string content(const std::string& folder) { return read_file(folder + "/" + kModelFile); }
std::string newest(const std::string& target) { return content(hold_checkpoint(target).path); }
std::vector<std::string> names(const std::string& folder) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(folder)) out.push_back(entry.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

TEST(StagedCheckpoint, KeepsTheLastFew) {
  const TestDirectory dir;
  const std::string target = dir.file("runs/7/model/");
  for (const char* text : {"first", "second", "third"}) {
    save(target, text);
    EXPECT_EQ(newest(target), text);
  }
  EXPECT_THAT(names(target), ElementsAre("save-2", "save-3"));
  EXPECT_EQ(content(target + "save-2"), "second");
  EXPECT_EQ(content(hold_checkpoint(target + "save-2").path), "second") << "one of them by its own path";
  for (int i = 4; i <= 12; ++i) save(target, str_cat(i), 3);
  EXPECT_THAT(names(target), ElementsAre("save-10", "save-11", "save-12"));
  EXPECT_EQ(newest(target), "12") << "numbers, not texts";
  save(target, "last", 1);
  EXPECT_THAT(names(target), ElementsAre("save-13"));
}

// Truncated checkpoints are not counted. They are removed together with the whole ones before them.
TEST(StagedCheckpoint, KeepsWholeOnesBehindBrokenOnes) {
  const TestDirectory dir;
  const std::string target = dir.file("c");
  const auto cut_off = [&](const char* name) { fs::resize_file(target + "/" + name + "/" + kModelFile, 1); };
  for (const char* text : {"first", "second", "third", "fourth"}) save(target, text, 9);
  cut_off("save-3");
  cut_off("save-4");
  save(target, "fifth");
  EXPECT_THAT(names(target), ElementsAre("save-2", "save-3", "save-4", "save-5"));
  cut_off("save-5");
  save(target, "sixth", 1);
  EXPECT_THAT(names(target), ElementsAre("save-6"));
  cut_off("save-6");
  save(target, "seventh");
  EXPECT_THAT(names(target), ElementsAre("save-6", "save-7")) << "there are not so many whole ones";
  save(target, "eighth");
  EXPECT_THAT(names(target), ElementsAre("save-7", "save-8"));
}

TEST(StagedCheckpoint, LeavesNothingWithoutCommit) {
  const TestDirectory dir;
  { StagedCheckpoint staged(dir.file("a/c")); }
  EXPECT_FALSE(fs::exists(dir.file("a/c")));
  save(dir.file("c"), "old");
  {
    StagedCheckpoint staged(dir.file("c"));
    test::write_file(staged.file(kModelFile), "half");
    EXPECT_EQ(newest(dir.file("c")), "old");
  }
  EXPECT_THAT(names(dir.file("c")), ElementsAre("save-1"));
}

TEST(DirectoryLock, IsNotForTwoJobs) {
  const TestDirectory dir;
  const DirectoryLock first(dir.file("c"), "saves to");
  const auto [text, code] = test::failure_of([&] { StagedCheckpoint second(dir.file("c")); });
  EXPECT_EQ(code, Code::kUnavailable);
  EXPECT_THAT(text, testing::AllOf(HasSubstr("another job saves to " + first.directory()),
                                   HasSubstr(str_cat("process ", getpid(), " on ")), HasSubstr(" UTC (")));
}

// A user who can read the directory can lock it and the files in it, but not the lock's file.
TEST(DirectoryLock, IsTheOwnersAlone) {
  const TestDirectory dir;
  save(dir.file("c"), "old");
  const Descriptor folder(::open(dir.file("c").c_str(), O_RDONLY | O_CLOEXEC));
  const Descriptor checkpoint(::open(dir.file("c/save-1").c_str(), O_RDONLY | O_CLOEXEC));
  for (const Descriptor* one : {&folder, &checkpoint}) ASSERT_EQ(::flock(one->get(), LOCK_EX), 0);
  {
    const DirectoryLock lock(dir.file("c"), "saves to");
    EXPECT_EQ(fs::status(dir.file("c/tessera.lock")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
    StagedCheckpoint staged(dir.file("c"), &lock);
    fill(staged, "new");
    EXPECT_EQ(newest(dir.file("c")), "old") << "loading goes on without a lock";
    staged.commit(2);
  }
  EXPECT_THAT(names(dir.file("c")), ElementsAre("save-1", "save-2"));
  test::write_file(dir.file("c/tessera.lock"), "of a job that was killed");
  fs::permissions(dir.file("c/tessera.lock"), fs::perms::all);
  save(dir.file("c"), "newer");
  EXPECT_THAT(names(dir.file("c")), ElementsAre("save-1", "save-2", "save-3")) << "save-1 is being read";
  test::write_file(dir.file("other"), "mine");
  fs::create_symlink(dir.file("other"), dir.file("c/tessera.lock"));
  EXPECT_THAT(test::failure_of([&] { save(dir.file("c"), "newest"); }).first, HasSubstr("cannot open "));
  EXPECT_EQ(read_file(dir.file("other")), "mine");
}

TEST(DirectoryLock, LeavesNoDirectoryThatIsNotUsed) {
  const TestDirectory dir;
  { const DirectoryLock lock(dir.file("a/c"), "saves to"); }
  EXPECT_FALSE(fs::exists(dir.file("a/c")));
}

// Makes a checkpoint's manifest unreadable: a link to itself.
void make_unreadable(const std::string& folder) {
  const std::string manifest = folder + "/" + kManifestFile;
  fs::rename(manifest, folder + "/aside");
  fs::create_symlink(manifest, manifest);
}
void make_readable(const std::string& folder) { fs::rename(folder + "/aside", folder + "/" + kManifestFile); }

// An unreadable checkpoint is not counted. It stays, as do all older ones, because it may need them.
TEST(StagedCheckpoint, RemovesNothingThatCannotBeRead) {
  const TestDirectory dir;
  const std::string target = dir.file("c");
  for (const char* text : {"first", "second", "third"}) save(target, text, 9);
  make_unreadable(target + "/save-2");
  for (const char* text : {"fourth", "fifth"}) save(target, text, 1);
  EXPECT_THAT(names(target), ElementsAre("save-1", "save-2", "save-5"));
  EXPECT_THAT(find_checkpoints(target).whole, ElementsAre(testing::EndsWith("/save-5")));

  make_unreadable(target + "/save-5");
  const FoundCheckpoints found = find_checkpoints(target);
  EXPECT_TRUE(found.whole.empty() && found.broken.empty());
  EXPECT_THAT(found.unreadable, ElementsAre(HasSubstr("save-5"), HasSubstr("save-2")));
  EXPECT_THAT(found.older, ElementsAre(testing::EndsWith("/save-1")));
  EXPECT_NE(test::failure_of([&] { hold_checkpoint(target); }).second, Code::kNotFound) << "it is not passed over";

  for (const char* name : {"save-2", "save-5"}) make_readable(target + "/" + name);
  std::string newer = read_file(target + "/save-5/" + kManifestFile);
  newer.replace(newer.find("\"version\": 2"), 12, "\"version\": 9");
  test::write_file(target + "/save-5/" + kManifestFile, newer);
  save(target, "sixth", 1);
  EXPECT_THAT(names(target), ElementsAre("save-1", "save-2", "save-5", "save-6")) << "a newer format";
  EXPECT_THAT(find_checkpoints(target).unreadable, ElementsAre(HasSubstr("is of checkpoint format 9")));
}

// Only what saves have written is removed, and the directory only if it is then empty.
TEST(StagedCheckpoint, RemovesAllThatItWrote) {
  const TestDirectory dir;
  for (const char* name : {"c", "d"}) {
    for (const char* text : {"first", "second"}) save(dir.file(name), text, 9);
    fs::create_directory(dir.file(name) + "/save-3.saving");
    test::write_file(dir.file(name) + "/save-3.saving/" + kModelFile, "torn");
  }
  test::write_file(dir.file("d/notes.txt"), "of somebody else");
  remove_checkpoints(dir.file("c"));
  remove_checkpoints(dir.file("d"));
  remove_checkpoints(dir.file("none"));
  EXPECT_FALSE(fs::exists(dir.file("c")));
  EXPECT_THAT(names(dir.file("d")), ElementsAre("notes.txt"));
}

// Files that have lost their manifest are not the rest of a removal if there is no newer checkpoint.
TEST(StagedCheckpoint, RemovesNoFilesThatHaveLostTheirManifest) {
  const TestDirectory dir;
  const std::string target = dir.file("c");
  save(target, "only");
  fs::remove(target + "/save-1/" + kManifestFile);
  EXPECT_THAT(find_checkpoints(target).broken, ElementsAre(HasSubstr("save-1 has lost its checkpoint.json")));
  EXPECT_EQ(content(target + "/save-1"), "only");
  save(target, "new");
  EXPECT_EQ(content(target + "/save-1"), "only");
  save(target, "newer", 9);
  EXPECT_THAT(names(target), ElementsAre("save-2", "save-3"));
}

TEST(StagedCheckpoint, GoesOnAfterACrashWhileWriting) {
  const TestDirectory dir;
  save(dir.file("c"), "old");
  fs::create_directory(dir.file("c/save-2.saving"));
  test::write_file(dir.file("c/save-2.saving/") + kModelFile, "torn");
  EXPECT_EQ(newest(dir.file("c")), "old");
  save(dir.file("c"), "new");
  EXPECT_EQ(newest(dir.file("c")), "new");
  EXPECT_EQ(names(dir.file("c")).size(), 2u);
  // The first save was interrupted, so there is nothing else yet.
  fs::create_directories(dir.file("d/save-1.saving"));
  save(dir.file("d"), "new");
  EXPECT_EQ(names(dir.file("d")).size(), 1u);
}

TEST(StagedCheckpoint, AWholeOneThatWasNotRenamedIsNotLost) {
  const TestDirectory dir;
  const std::string target = dir.file("c");
  std::string kept;
  {
    StagedCheckpoint staged(target);
    fill(staged, "whole");
    fs::create_directories(target + "/save-1/of somebody else");
    const auto [text, code] = test::failure_of([&] { staged.commit(2); });
    EXPECT_EQ(code, Code::kUnavailable);
    kept = fs::canonical(target).string() + "/save-1.saving";
    EXPECT_THAT(text, testing::AllOf(HasSubstr("cannot rename " + kept), HasSubstr("the checkpoint is complete")));
  }
  EXPECT_EQ(content(hold_checkpoint(kept).path), "whole");
  { StagedCheckpoint staged(target); }
  EXPECT_EQ(newest(target), "whole");
  EXPECT_FALSE(fs::exists(kept));
  EXPECT_TRUE(fs::exists(target + "/save-1/of somebody else"));
}

TEST(StagedCheckpoint, ReadsWhatEarlierVersionsWrote) {
  const TestDirectory dir;
  const std::string target = dir.file("c");
  fs::create_directory(target);
  write(target, "flat");
  test::write_file(target + "/notes.txt", "mine");
  EXPECT_EQ(newest(target), "flat");
  save(target, "second");
  EXPECT_EQ(newest(target), "second");
  EXPECT_EQ(content(target), "flat");
  save(target, "third");
  EXPECT_THAT(names(target), ElementsAre("notes.txt", "save-1", "save-2"));
  // An old version was interrupted between its two renames.
  fs::create_directory(dir.file("d.replaced"));
  write(dir.file("d.replaced"), "old");
  EXPECT_EQ(newest(dir.file("d")), "old");
}

TEST(StagedCheckpoint, TouchesNoFilesOfOthers) {
  const TestDirectory dir;
  fs::create_directory(dir.file("photos"));
  test::write_file(dir.file("photos/cat.jpg"), "cat");
  const auto [text, code] = test::failure_of([&] { StagedCheckpoint staged(dir.file("photos")); });
  EXPECT_EQ(code, Code::kAlreadyExists);
  EXPECT_THAT(text, testing::AllOf(HasSubstr("holds no checkpoint"), HasSubstr("cat.jpg")));
  EXPECT_THAT(names(dir.file("photos")), ElementsAre("cat.jpg"));
  EXPECT_EQ(test::failure_of([&] { StagedCheckpoint staged(dir.file("photos/cat.jpg")); }).second,
            Code::kAlreadyExists);

  fs::create_directories(dir.file("mount/lost+found"));  // an empty file system
  save(dir.file("mount"), "new");
  EXPECT_THAT(names(dir.file("mount")), ElementsAre("lost+found", "save-1"));

  save(dir.file("d"), "old");
  test::write_file(dir.file("d/report.json"), "mine");
  test::write_file(dir.file("d/save-1/notes.txt"), "mine");
  save(dir.file("d"), "new", 1);
  EXPECT_THAT(names(dir.file("d")), ElementsAre("report.json", "save-1", "save-2"));
  EXPECT_THAT(names(dir.file("d/save-1")), ElementsAre("notes.txt"));
}

TEST(StagedCheckpoint, FollowsALink) {
  const TestDirectory dir;
  save(dir.file("real"), "old");
  fs::create_directory_symlink(dir.file("real"), dir.file("latest"));
  save(dir.file("latest"), "new");
  EXPECT_TRUE(fs::is_symlink(dir.file("latest")));
  EXPECT_EQ(newest(dir.file("real")), "new");
}

// Somebody moved a checkpoint to another disk and left a link.
TEST(StagedCheckpoint, RemovesTheLinkToAnOldOneAndNotItsTarget) {
  const TestDirectory dir;
  save(dir.file("c"), "old");
  fs::rename(dir.file("c/save-1"), dir.file("archive"));
  fs::create_directory_symlink(dir.file("archive"), dir.file("c/save-1"));
  for (const char* text : {"second", "third"}) save(dir.file("c"), text);
  EXPECT_THAT(names(dir.file("c")), ElementsAre("save-2", "save-3"));
  EXPECT_EQ(content(dir.file("archive")), "old");
}

TEST(StagedCheckpoint, LooksForRoom) {
  const TestDirectory dir;
  save(dir.file("c"), "old");
  const StagedCheckpoint staged(dir.file("c"));
  staged.check_space(1, 100, 2);
  const auto refused = [&](int64_t bytes, int64_t saves, int keep) {
    return test::failure_of([&] { staged.check_space(bytes, saves, keep); });
  };
  const auto [text, code] = refused(int64_t{1} << 60, 1, 2);
  EXPECT_EQ(code, Code::kResourceExhausted);
  EXPECT_THAT(text, testing::StartsWith(str_cat("a checkpoint of ", int64_t{1} << 60, " bytes will not fit in ")));
  EXPECT_THAT(refused(int64_t{1} << 60, 100, 4).first, testing::StartsWith("4 checkpoints of ")) << "one is there";
}

// After SIGKILL at any moment, the newest checkpoint is whole and no older than the last committed one.
TEST(StagedCheckpoint, SurvivesSigkillAnywhere) {
  const TestDirectory dir;
  test::write_file(dir.file("committed"), "");
  save(dir.file("c"), "0");
  int last = 0;
  for (int round = 0; round < 40; ++round) {
    const pid_t writer = fork();
    if (writer == 0) {
      test::failure_of([&] {
        for (int i = last + 1; true; ++i) {
          save(dir.file("c"), str_cat(i), 1 + i % 3);
          test::write_file(dir.file("committed"), str_cat(i));
        }
      });
      _exit(1);
    }
    usleep(static_cast<useconds_t>(500 + 397 * round));
    ASSERT_EQ(kill(writer, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(writer, &status, 0), writer);
    ASSERT_TRUE(WIFSIGNALED(status)) << "it failed by itself";
    const std::string found = hold_checkpoint(dir.file("c")).path, committed = read_file(dir.file("committed"));
    ASSERT_EQ(content(found), read_file(found + "/" + kOptimizerFile));
    ASSERT_GE(std::stoi(content(found)), committed.empty() ? 0 : std::stoi(committed));
    last = std::stoi(content(found));
    save(dir.file("c"), content(found), 2);
    EXPECT_LE(names(dir.file("c")).size(), 2u) << "the next save has tidied up";
  }
  EXPECT_GT(last, 0);
}

TEST(HeldCheckpoint, IsNotRemovedWhileItIsRead) {
  const TestDirectory dir;
  save(dir.file("c"), "1");
  {
    const HeldCheckpoint held = hold_checkpoint(dir.file("c"));
    for (const char* text : {"2", "3"}) save(dir.file("c"), text, 1);
    EXPECT_EQ(content(held.path), "1");
    EXPECT_THAT(names(dir.file("c")), ElementsAre("save-1", "save-3"));
  }
  save(dir.file("c"), "4", 1);
  EXPECT_THAT(names(dir.file("c")), ElementsAre("save-4"));
}

// A reader always finds a whole checkpoint while another thread saves as fast as it can.
TEST(HeldCheckpoint, BesideItsWriter) {
  const TestDirectory dir;
  save(dir.file("c"), "0");
  const std::jthread writer([&] {
    for (int i = 1; i <= 200; ++i) save(dir.file("c"), str_cat(i), 1);
  });
  int last = 0;
  while (last < 200) {
    const HeldCheckpoint held = hold_checkpoint(dir.file("c"));
    const std::string model = content(held.path), optimizer = read_file(held.path + "/" + kOptimizerFile);
    ASSERT_FALSE(model.empty()) << "after " << last;
    EXPECT_EQ(model, optimizer);
    ASSERT_GE(std::stoi(model), last);
    last = std::stoi(model);
  }
}

TEST(HeldCheckpoint, IsNotFoundWhereThereIsNone) {
  const TestDirectory dir;
  const auto [text, code] = test::failure_of([&] { hold_checkpoint(dir.file("c")); });
  EXPECT_EQ(code, Code::kNotFound);
  EXPECT_THAT(text, HasSubstr(dir.file("c")));
  EXPECT_FALSE(has_checkpoint(dir.file("c")));
  test::write_file(dir.file("c"), "a file");
  EXPECT_EQ(test::failure_of([&] { hold_checkpoint(dir.file("c")); }).second, Code::kNotFound);
  EXPECT_EQ(test::failure_of([&] { hold_checkpoint(""); }).second, Code::kInvalidArgument);
}

}  // namespace
}  // namespace tessera::checkpoint
