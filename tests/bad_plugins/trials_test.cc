// Trials of plugins in child processes, and what is kept of them: each test counts how often a plugin was opened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "config/test_directory.h"
#include "tessera/abi/sharder.h"
#include "tessera/config.h"
#include "tessera/runtime.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::StartsWith;
using State = LoadEntry::State;

class Trials : public testing::Test {
 protected:
  void SetUp() override {
    ::chmod(dir_.c_str(), 0755);
    cache_in(dir_ / "cache");
    std::ofstream{dir_ / "counts"};  // nothing is counted yet
    ::setenv("BAD_PLUGINS_COUNTS", (dir_ / "counts").c_str(), 1);
  }
  void TearDown() override {
    for (const char* name : {"TESSERA_PLUGIN_CACHE", "BAD_PLUGINS_COUNTS", "TESSERA_PLUGIN_TRIAL_S"}) ::unsetenv(name);
  }

  static void cache_in(const fs::path& folder) { ::setenv("TESSERA_PLUGIN_CACHE", folder.c_str(), 1); }
  fs::path take(const std::string& file) {
    fs::path to = dir_ / fs::path(file).filename();
    fs::copy_file(fs::path(BAD_PLUGINS_DIR) / file, to);
    ::chmod(to.c_str(), 0755);
    return to;
  }
  // Writes a new file, because this process may have mapped the old one.
  void replace(const fs::path& path, const std::string& bytes) const {
    std::ofstream(dir_ / "new", std::ios::binary) << bytes;
    ::chmod((dir_ / "new").c_str(), 0755);
    fs::rename(dir_ / "new", path);
  }
  LoadEntry start() const {
    RuntimeOptions options{.plugin_path = {dir_.string()}, .default_path = false};
    const Runtime runtime(options);
    runtime.open_all();
    return runtime.report().entries.at(0);
  }
  // How often plugins were opened ('c') or their entries called ('e') so far. A library that a process has opened is
  // not opened again, but its entry is called.
  int64_t counted(char what) const {
    const std::string all = read_file(dir_ / "counts");
    return std::count(all.begin(), all.end(), what);
  }
  // How often entries are called by a start: twice if the plugin is tried, otherwise once.
  int64_t entries_of_a_start() const {
    const int64_t before = counted('e');
    EXPECT_EQ(start().state, State::kAvailable);
    return counted('e') - before;
  }
  fs::path verdict() const {
    fs::path out;
    for (const auto& e : fs::directory_iterator(dir_ / "cache" / "plugin_verdicts")) out = e.path();
    return out;
  }

  const test::TestDirectory directory_;
  const fs::path dir_ = fs::canonical(directory_.path());
};

constexpr int kTried = 2, kNotTried = 1;

TEST_F(Trials, AFileIsTriedOnce) {
  take("none.so");
  EXPECT_EQ(entries_of_a_start(), kTried);
  EXPECT_EQ(entries_of_a_start(), kNotTried);
  struct stat s {};
  ASSERT_EQ(::stat(verdict().c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat(verdict().parent_path().c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0700u);
  EXPECT_EQ(std::distance(fs::directory_iterator(verdict().parent_path()), {}), 1);  // neither locks nor halves
}

TEST_F(Trials, AFileOfAnotherTimeSizeOrContentIsTriedAgain) {
  const fs::path path = take("none.so");
  EXPECT_EQ(entries_of_a_start(), kTried);
  const auto time = fs::last_write_time(path);
  fs::last_write_time(path, time - std::chrono::seconds(1));
  EXPECT_EQ(entries_of_a_start(), kTried);
  EXPECT_EQ(entries_of_a_start(), kNotTried);
  std::string bytes = read_file(path) + '\n';
  replace(path, bytes);
  fs::last_write_time(path, time);
  EXPECT_EQ(entries_of_a_start(), kTried);
  EXPECT_EQ(entries_of_a_start(), kNotTried);
  bytes.back() = ' ';
  replace(path, bytes);
  fs::last_write_time(path, time);
  EXPECT_EQ(entries_of_a_start(), kTried);
  EXPECT_EQ(entries_of_a_start(), kNotTried);
}

// One word of a kept verdict is replaced.
TEST_F(Trials, AVerdictOfAnotherCoreOrMachineDoesNotCount) {
  take("none.so");
  for (const char* key : {"\"epoch\": ", "\"core\": \"", "\"machine\": \"", "\"crc32\": "}) {
    EXPECT_EQ(entries_of_a_start(), kTried);
    EXPECT_EQ(entries_of_a_start(), kNotTried);
    std::string text = read_file(verdict());
    const size_t at = text.find(key);
    ASSERT_NE(at, std::string::npos) << text;
    text.insert(at + std::strlen(key), "9");
    std::ofstream(verdict()) << text;
  }
}

TEST_F(Trials, ABrokenCacheIsNoError) {
  take("none.so");
  EXPECT_EQ(entries_of_a_start(), kTried);
  const std::string text = read_file(verdict());
  for (const std::string& other : {std::string(), std::string("{"), text.substr(0, text.size() / 2), text + "x",
                                   std::string("{\"subject\": 3}"), std::string(2 << 20, ' ')}) {
    std::ofstream(verdict()) << other;
    EXPECT_EQ(entries_of_a_start(), kTried) << other.substr(0, 80);
    EXPECT_EQ(read_file(verdict()), text);
  }
  ::chmod(verdict().c_str(), 0666);  // anybody may have written it
  EXPECT_EQ(entries_of_a_start(), kTried);
  const fs::path path = verdict();
  fs::rename(path, dir_ / "elsewhere");
  fs::create_symlink(dir_ / "elsewhere", path);
  EXPECT_EQ(entries_of_a_start(), kTried);
  fs::remove(path);
  fs::create_directories(path / "full");
  EXPECT_EQ(entries_of_a_start(), kTried);
  EXPECT_EQ(entries_of_a_start(), kTried);
  std::ofstream(dir_ / "file") << "no folder";
  for (const fs::path& folder : {dir_ / "file", fs::path("/proc/nowhere"), fs::path("0")}) {
    cache_in(folder);
    EXPECT_EQ(entries_of_a_start(), kTried) << folder;
  }
}

TEST_F(Trials, TheNumberOfVerdictsIsBounded) {
  take("none.so");
  const fs::path folder = dir_ / "cache" / "plugin_verdicts";
  fs::create_directories(folder);
  for (int i = 0; i < 300; ++i) std::ofstream(folder / std::to_string(i)) << "old";
  EXPECT_EQ(entries_of_a_start(), kTried);
  EXPECT_LE(std::distance(fs::directory_iterator(folder), {}), 128);
  EXPECT_EQ(entries_of_a_start(), kNotTried);
}

TEST_F(Trials, ABadVerdictIsKeptAndSaysHowToTryAgain) {
  struct {
    const char* file;
    const char* reason;
  } const faults[] = {{"crashing_constructor.so", "crashed when it was opened (SIGSEGV)"},
                      {"throwing_constructor.so", "threw an exception when it was opened: from a static initialiser"},
                      {"exiting_constructor.so", "ended the process with status 0 when it was opened"},
                      {"endless_constructor.so", "was not opened after 1 s"}};
  ::setenv("TESSERA_PLUGIN_TRIAL_S", "1", 1);
  for (const auto& fault : faults) {
    const fs::path path = take(fault.file);
    const int64_t before = counted('c');
    EXPECT_EQ(start().reason, fault.reason);
    EXPECT_EQ(counted('c') - before, 1);
    const LoadEntry again = start();
    EXPECT_EQ(again.state, State::kRejected);
    EXPECT_EQ(again.reason,
              str_cat(fault.reason, ", as an earlier start found (delete ", verdict().native(), " to try it again)"));
    EXPECT_EQ(counted('c') - before, 1) << fault.file;
    fs::remove(verdict());
    EXPECT_EQ(start().reason, fault.reason);
    EXPECT_EQ(counted('c') - before, 2) << fault.file;
    fs::remove(verdict());
    fs::remove(path);
  }
}

// A plugin without its library breaks no rule, so it is tried at each start. A library that changes is noticed.
TEST_F(Trials, LibrariesThatAPluginNeedsCount) {
  const auto in_a_process = [&] {  // because this one would keep what it has opened
    const int64_t before = counted('e');
    const pid_t child = ::fork();
    if (child == 0) ::_exit(start().state == State::kAvailable ? 0 : 1);
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    return counted('e') - before;
  };
  fs::rename(take("needs_a_library.so"), dir_ / "a.so");
  const LoadEntry without = start();
  EXPECT_EQ(without.state, State::kUnusable);
  EXPECT_THAT(without.reason, StartsWith("cannot be opened: libbad_entry_of_another.so: cannot open shared object"));
  const fs::path library = take("lib/libbad_entry_of_another.so");
  EXPECT_EQ(in_a_process(), kTried);
  EXPECT_EQ(in_a_process(), kNotTried);
  fs::last_write_time(library, fs::last_write_time(library) - std::chrono::seconds(1));
  EXPECT_EQ(in_a_process(), kTried);
  EXPECT_EQ(in_a_process(), kNotTried);
}

TEST_F(Trials, ProcessesThatStartTogetherTryOnce) {
  take("slow_constructor.so");
  constexpr int kProcesses = 4;
  std::vector<pid_t> children(kProcesses);
  for (pid_t& child : children) {
    child = ::fork();
    if (child == 0) ::_exit(start().state == State::kAvailable ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(counted('c'), kProcesses + 1);
}

}  // namespace
}  // namespace tessera
