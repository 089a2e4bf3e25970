// Breaks every rule of the loader once: the report has one clear sentence, and the process survives.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cfenv>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "config/test_directory.h"
#include "config/test_refusal.h"
#include "tessera/abi/sharder.h"
#include "tessera/config.h"
#include "tessera/runtime.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using State = LoadEntry::State;

class BadPlugins : public testing::Test {
 protected:
  void SetUp() override {
    ::chmod(dir_.c_str(), 0755);
    ::setenv("TESSERA_PLUGIN_CACHE", (dir_ / "cache").c_str(), 1);
  }
  void TearDown() override { ::unsetenv("TESSERA_PLUGIN_CACHE"); }

  fs::path take(const std::string& variant, const std::string& name = "plugin.so") {
    fs::copy_file(fs::path(BAD_PLUGINS_DIR) / (variant + ".so"), dir_ / name);
    ::chmod((dir_ / name).c_str(), 0755);
    return dir_ / name;
  }
  void write(const std::string& bytes, const std::string& name = "plugin.so") {
    std::ofstream(dir_ / name, std::ios::binary) << bytes;
    ::chmod((dir_ / name).c_str(), 0755);
  }
  std::string bytes_of(const std::string& variant) { return read_file(str_cat(BAD_PLUGINS_DIR "/", variant, ".so")); }
  RuntimeOptions here() const { return {.plugin_path = {dir_.string()}, .default_path = false}; }
  // The only line of the report, after everything was opened.
  LoadEntry only_entry() const {
    const Runtime runtime(here());
    runtime.open_all();
    const LoadReport report = runtime.report();
    EXPECT_EQ(report.entries.size(), 1u) << report.text();
    return report.entries.empty() ? LoadEntry{} : report.entries[0];
  }

  const test::TestDirectory directory_;
  const fs::path dir_ = fs::canonical(directory_.path());
};

struct Rule {
  const char* variant;
  State state;
  const char* reason;
};
void PrintTo(const Rule& rule, std::ostream* out) { *out << rule.variant; }

class BadVariant : public BadPlugins, public testing::WithParamInterface<Rule> {};

TEST_P(BadVariant, GivesOneClearSentence) {
  const fs::path path = take(GetParam().variant);
  const LoadEntry entry = only_entry();
  EXPECT_EQ(entry.path, path.string());
  EXPECT_EQ(entry.state, GetParam().state);
  EXPECT_EQ(entry.reason, GetParam().reason);
}

// A bad plugin must not affect a good one that is found with it.
TEST_P(BadVariant, LeavesOthersAlone) {
  take(GetParam().variant, "a.so");
  take("other", "b.so");
  const Runtime runtime(here());
  runtime.open_all();
  EXPECT_EQ(runtime.report().entries.back().id, "other");
  EXPECT_EQ(runtime.report().entries.back().state, State::kAvailable);
  EXPECT_EQ(runtime.create(TSR_SHARDER_KIND, "other")->id(), "other");
  EXPECT_EQ(runtime.report().entries.back().state, State::kChosen);
}

constexpr Rule kRules[] = {
    {"none", State::kAvailable, ""},
    {"no_note", State::kRejected, "has no .note.tessera note: it is a library, but not a Tessera plugin"},
    {"no_entry", State::kRejected, "has a Tessera note, but no symbol tessera_plugin_v1"},
    {"borrowed_entry", State::kRejected,
     "has no symbol tessera_plugin_v1 of its own: the one found belongs to a library that it links"},
    {"abi_major", State::kRejected,
     "is built for plugin ABI 2.0, while this core has ABI 1.0: use a build of the plugin for ABI 1"},
    {"epoch", State::kRejected,
     "is built for release candidate 1 of plugin ABI 1, while this core has release candidate 3: build the plugin with "
     "headers of this core"},
    {"min_host_minor", State::kRejected,
     "needs a core with ABI 1.99 or newer, while this core has 1.0: upgrade Tessera or use an older version of the "
     "plugin"},
    {"duplicate_ids", State::kRejected, "lists tessera.sharder/1 \"bad\" twice"},
    {"throwing_entry", State::kRejected, "tessera_plugin_v1 threw an exception, which no plugin may do"},
    {"throwing_constructor", State::kRejected, "threw an exception when it was opened: from a static initialiser"},
    {"crashing_constructor", State::kRejected, "crashed when it was opened (SIGSEGV)"},
    {"exiting_constructor", State::kRejected, "ended the process with status 0 when it was opened"},
    {"starting_a_thread", State::kAvailable, "started 1 thread when it was opened"},
    {"refusing_entry", State::kUnusable, "refuses this core: it needs a licence"},
    {"null_table", State::kUnusable, "refuses this core: it gives no reason"},
    {"zero_struct_size", State::kRejected,
     "the plugin table has struct_size 0, too small for \"name\", which must be there"},
    {"table_min_host_minor", State::kRejected, "has a note that needs core minor 0, but a table that needs 1"},
    {"null_component", State::kRejected, "the plugin table has a NULL component"},
    {"null_id", State::kRejected, "a component has NULL for \"id\", which must be there"},
    {"null_api", State::kRejected, "a component has NULL for \"api\", which must be there"},
    {"null_create", State::kRejected, "a component has NULL for \"create\", which must be there"},
    {"null_slot", State::kRejected, "tessera.sharder/1 \"bad\" has NULL for \"propose\", which must be there"},
    {"short_api", State::kRejected,
     "tessera.sharder/1 \"bad\" has struct_size 8, too small for \"propose\", which must be there"},
    {"unknown_flags", State::kRejected,
     "tessera.sharder/1 \"bad\" has flags 0x40000000, which this core does not know: it needs a newer one"},
    {"spaced_version", State::kRejected,
     "tessera.sharder/1 \"bad\" has \"1.0 beta\" as kind, id or version, which are printable ASCII without spaces"},
    {"table_epoch", State::kRejected,
     "the plugin table is not of release candidate 3 of plugin ABI 1, which this core has: build the plugin with "
     "headers of this core"},
    {"one_route", State::kRejected,
     "tessera.sharder/1 \"bad\" has only one of \"route\" and \"unroute\", but needs both or neither"},
    {"note_version", State::kRejected,
     "has \"tessera.sharder/1 bad 2.0\" in its note, but \"tessera.sharder/1 bad 1.0\" in its table"},
    {"failing_probe", State::kUnusable, "this machine has no quantum unit"},
    {"throwing_probe", State::kRejected, "has a probe that threw an exception, which no plugin may do"},
};
INSTANTIATE_TEST_SUITE_P(Rules, BadVariant, testing::ValuesIn(kRules),
                         [](const auto& info) { return std::string(info.param.variant); });

TEST_F(BadPlugins, MissingSymbolIsNamed) {
  take("missing_symbol");
  const LoadEntry entry = only_entry();
  EXPECT_EQ(entry.state, State::kUnusable);
  EXPECT_THAT(entry.reason, HasSubstr("cannot be opened: "));
  EXPECT_THAT(entry.reason, HasSubstr("tessera_nobody_defines_this"));
}

TEST_F(BadPlugins, EveryLineOfAMismatchSaysWhy) {
  take("note_count");
  const Runtime runtime(here());
  runtime.open_all();
  const LoadReport report = runtime.report();
  ASSERT_EQ(report.entries.size(), 2u);
  for (const LoadEntry& e : report.entries) {
    EXPECT_EQ(e.reason, "has 2 components in its note, but 1 in its table");
  }
}

TEST_F(BadPlugins, NotAnElfFile) {
  write("#!/bin/sh\necho no\n");
  EXPECT_EQ(only_entry().reason, "is not an ELF file");
}

TEST_F(BadPlugins, AnEmptyFileAndADirectory) {
  write("", "a.so");
  fs::create_directory(dir_ / "b.so");
  const Runtime runtime(here());
  const LoadReport report = runtime.report();
  ASSERT_EQ(report.entries.size(), 2u);
  EXPECT_EQ(report.entries[0].reason, "is not an ELF file");
  EXPECT_EQ(report.entries[1].reason, "is not a regular file");
}

TEST_F(BadPlugins, AnotherArchitecture) {
  std::string bytes = bytes_of("none");
  bytes[offsetof(Elf64_Ehdr, e_machine)] = static_cast<char>(EM_RISCV);
  bytes[offsetof(Elf64_Ehdr, e_machine) + 1] = 0;
  write(bytes);
  EXPECT_THAT(only_entry().reason, HasSubstr("is built for another architecture: ELF machine 243"));
}

// Opening a file whose segments extend beyond its end would kill the process, so this must be noticed before.
TEST_F(BadPlugins, ATruncatedFile) {
  const std::string bytes = bytes_of("none");
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  std::memcpy(segments.data(), bytes.data() + header.e_phoff, segments.size() * sizeof(Elf64_Phdr));
  uint64_t needed = 0;
  for (const Elf64_Phdr& s : segments) {
    if (s.p_type == PT_LOAD) needed = std::max(needed, s.p_offset + s.p_filesz);
  }
  for (uint64_t size : {uint64_t{20}, uint64_t{64}, uint64_t{300}, needed / 2, needed - 1}) {
    write(bytes.substr(0, size));
    const LoadEntry entry = only_entry();
    EXPECT_EQ(entry.state, State::kRejected) << size;
    EXPECT_THAT(entry.reason, HasSubstr("is truncated")) << size;
  }
}

TEST_F(BadPlugins, WhatOthersMayWriteIsNotOpened) {
  const fs::path path = take("none");
  ::chmod(dir_.c_str(), 0777);
  EXPECT_EQ(only_entry().state, State::kRejected);
  EXPECT_EQ(only_entry().reason,
            "is not trusted: the directory " + dir_.string() + " may be written by everybody: chmod go-w it");
  ::chmod(dir_.c_str(), 0755);
  ::chmod(path.c_str(), 0775);
  EXPECT_EQ(only_entry().reason,
            "is not trusted: the file " + path.string() + " may be written by its group: chmod go-w it");
}

TEST_F(BadPlugins, NorWhatLiesBelowADirectoryThatOthersMayWrite) {
  const fs::path built = take("none"), open = dir_ / "open", folder = open / "plugins";
  fs::create_directories(folder);
  ::chmod(folder.c_str(), 0755);
  fs::rename(built, folder / "plugin.so");
  RuntimeOptions options = here();
  options.plugin_path = {folder.string()};
  const auto reason = [&](mode_t mode) {
    ::chmod(open.c_str(), mode);
    return Runtime(options).report().entries.at(0).reason;
  };
  EXPECT_EQ(reason(0755), "");
  EXPECT_EQ(reason(0777),
            "is not trusted: the directory " + open.string() + " may be written by everybody: chmod go-w it");
  EXPECT_EQ(reason(01777), "");  // sticky, as /tmp
}

// The file is exchanged between being found and being opened, so the checked file is not the one that would run.
TEST_F(BadPlugins, WhatHasChangedSinceItWasFoundIsNotOpened) {
  for (const bool in_place : {false, true}) {
    const fs::path path = take("none");
    const Runtime runtime(here());
    if (in_place) {
      std::ofstream(path, std::ios::binary | std::ios::app) << "more";
    } else {
      fs::rename(take("throwing_create", "new"), path);
    }
    EXPECT_THROW(runtime.create(TSR_SHARDER_KIND, "bad"), Error);
    EXPECT_EQ(runtime.report().entries[0].state, State::kUnusable);
    EXPECT_EQ(runtime.report().entries[0].reason, "has changed since it was found: start again");
    fs::remove(path);
  }
  take("none");
  const Runtime runtime(here());
  ::chmod(dir_.c_str(), 0777);
  runtime.open_all();
  EXPECT_THAT(runtime.report().entries[0].reason, HasSubstr("is not trusted any more: the directory"));
}

TEST_F(BadPlugins, TrustAllAcceptsWithAWarning) {
  take("none");
  ::chmod(dir_.c_str(), 0777);
  ASSERT_EQ(::setenv("TESSERA_TRUST_ALL", "1", 1), 0);
  testing::internal::CaptureStderr();
  EXPECT_EQ(only_entry().state, State::kAvailable);
  ASSERT_EQ(::unsetenv("TESSERA_TRUST_ALL"), 0);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("TESSERA_TRUST_ALL is 1, although the directory"));
}

TEST_F(BadPlugins, TheFirstOfTwoWins) {
  take("none", "a.so");
  take("null_slot", "b.so");
  const Runtime runtime(here());
  runtime.open_all();
  const LoadReport report = runtime.report();
  ASSERT_EQ(report.entries.size(), 2u);
  EXPECT_EQ(report.entries[0].state, State::kAvailable);
  EXPECT_EQ(report.entries[1].state, State::kRejected);
  EXPECT_THAT(report.entries[1].reason, HasSubstr("has the same kind and id as"));
}

TEST_F(BadPlugins, WhatOpeningChangesOfTheProcessIsPutBack) {
  const fs::path directory = fs::current_path();
  const std::string locale = std::setlocale(LC_ALL, nullptr);
  take("changes_process");
  const Runtime runtime(here());
  testing::internal::CaptureStderr();
  EXPECT_NE(runtime.create(TSR_SHARDER_KIND, "bad"), nullptr);
  const std::string reason = runtime.report().entries[0].reason;
  EXPECT_EQ(reason,
            "changed the floating-point mode, the locale, the working directory and the handler of signal 12 of the "
            "process when it was opened, which was put back");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(reason));
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
  EXPECT_EQ(std::setlocale(LC_ALL, nullptr), locale);
  EXPECT_EQ(fs::current_path(), directory);
  struct sigaction action {};
  ASSERT_EQ(::sigaction(SIGUSR2, nullptr, &action), 0);
  EXPECT_EQ(action.sa_handler, SIG_DFL);
}

TEST_F(BadPlugins, AThrowingCreateIsAnError) {
  take("throwing_create");
  const Runtime runtime(here());
  EXPECT_EQ(test::refusal(Code::kInternal, [&] { runtime.create(TSR_SHARDER_KIND, "bad"); }),
            "bad: create threw an exception, which no plugin may do");
  EXPECT_EQ(runtime.report().entries[0].state, State::kAvailable);
}

// The text has 504 characters and no NUL.
TEST_F(BadPlugins, ATextWithoutAnEndIsCutWhereItsArrayEnds) {
  const std::string text(sizeof(tsr_error::message), 'x');
  struct {
    AbiError error;
    char behind[8] = "behind";
  } kept;
  std::memset(kept.error.out()->message, 'x', text.size());
  EXPECT_EQ(kept.error.said(), text);
  take("endless_entry", "a.so");
  EXPECT_EQ(only_entry().reason, "refuses this core: " + text);
  fs::remove(dir_ / "a.so");
  take("endless_probe", "b.so");
  EXPECT_EQ(only_entry().reason, text);
  fs::remove(dir_ / "b.so");
  take("endless_create", "c.so");
  const Runtime runtime(here());
  EXPECT_EQ(test::refusal([&] { runtime.create(TSR_SHARDER_KIND, "bad"); }), "bad: " + text);
}

TEST_F(BadPlugins, AskingForARejectedOneSaysWhy) {
  const std::string path = take("null_slot").string();
  const Runtime runtime(here());
  EXPECT_EQ(test::refusal(Code::kNotFound, [&] { runtime.create(TSR_SHARDER_KIND, "bad"); }),
            "tessera.sharder/1 \"bad\" is rejected: " + path +
                ": tessera.sharder/1 \"bad\" has NULL for \"propose\", which must be there");
}

// A file of another version is found by the ids that it lists, though it is not opened.
TEST_F(BadPlugins, AskingForOneThatNeedsANewerCoreSaysWhy) {
  for (const char* variant : {"min_host_minor", "epoch"}) {
    const std::string path = take(variant, str_cat(variant, ".so")).string();
    const Runtime runtime(here());
    EXPECT_THAT(test::refusal(Code::kNotFound, [&] { runtime.create(TSR_SHARDER_KIND, "bad"); }),
                HasSubstr("tessera.sharder/1 \"bad\" is rejected: " + path + ": "));
    fs::remove(path);
  }
}

// A name with an inner name in parentheses is refused if the component wraps nothing.
TEST_F(BadPlugins, AnInnerNameThatNobodyUsesIsRefused) {
  const auto [why, code] = test::failure_of([] { Runtime().create("tessera.kernel/1", "reference(cpu)"); });
  if (code == Code::kNotFound) GTEST_SKIP() << why;  // this build has no such kernel
  EXPECT_EQ(code, Code::kInvalidArgument);
  EXPECT_THAT(why, HasSubstr("\"reference\" wraps no other, so \"cpu\" would never be used"));
}

TEST_F(BadPlugins, RequiringABadOneIsAnError) {
  take("throwing_entry");
  RuntimeOptions options = here();
  options.require = {"bad"};
  EXPECT_THROW(Runtime runtime(options), Error);
}

}  // namespace
}  // namespace tessera
