// A plugin lies in the search path of a job and has a fault that shows when it is opened. The job names it and trains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <tuple>

#include "small_job.h"
#include "tessera_program.h"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

struct Fault {
  const char* file;
  const char* said;
};

class Opening : public testing::Test {
 protected:
  void take(const std::string& file) {
    fs::create_directories(folder_.file("plugins"));
    ::chmod(folder_.file("plugins").c_str(), 0755);
    fs::copy_file(str_cat(BAD_PLUGINS_DIR "/", file, ".so"), folder_.file("plugins/x.so"));
    ::chmod(folder_.file("plugins/x.so").c_str(), 0755);
  }
  Finished train(int ranks, const Arguments& variables = {}) {
    const std::string config =
        folder_.write("job.toml", small_job({.samples = 320, .test_samples = 32, .epochs = 1}) +
                                      str_cat("[plugins]\npath = [\"", folder_.file("plugins"), "\"]\n"));
    return run_program({tessera_path(), "train", "--config", config, "--nproc", std::to_string(ranks)}, 60, [&] {
      const rlimit none{0, 0};
      setrlimit(RLIMIT_CORE, &none);
      setenv("TESSERA_PLUGIN_CACHE", folder_.file("cache").c_str(), 1);
      setenv("TESSERA_PLUGIN_TRIAL_S", "2", 1);
      for (const std::string& name : variables) setenv(name.c_str(), "1", 1);
    });
  }

  TestDirectory folder_;
};

class Faulty : public Opening, public testing::WithParamInterface<std::tuple<int, Fault>> {};

TEST_P(Faulty, IsNamedAndTheJobTrains) {
  const auto& [ranks, fault] = GetParam();
  take(fault.file);
  for (const bool again : {false, true}) {  // from a trial, and from what is kept of it
    const std::string done = succeed(train(ranks));
    EXPECT_THAT(done, HasSubstr(str_cat(folder_.file("plugins/x.so"), " ", fault.said))) << again;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Openings, Faulty,
    testing::Combine(
        testing::Values(1, 2),
        testing::Values(Fault{"throwing_constructor",
                              "threw an exception when it was opened: from a static initialiser"},
                        Fault{"crashing_constructor", "crashed when it was opened (SIGSEGV)"},
                        Fault{"exiting_constructor", "ended the process with status 0 when it was opened"},
                        Fault{"endless_constructor", "was not opened after 2 s"},
                        Fault{"needs_a_library",
                              "cannot be opened: libbad_entry_of_another.so: cannot open shared object file: No "
                              "such file or directory, and is not used"},
                        Fault{"missing_symbol", "cannot be opened: "},
                        Fault{"changes_process",
                              "changed the floating-point mode, the locale, the working directory and the "
                              "handler of signal 12 of the process when it was opened, which was put back"},
                        Fault{"starting_a_thread", "started 1 thread when it was opened"})),
    [](const auto& info) { return str_cat(std::get<1>(info.param).file, "_on_", std::get<0>(info.param)); });

// A kept verdict may be mistaken later. Then the job ends with the name of the file, instead of waiting for ever.
TEST_F(Opening, WhatWasGoodOnceAndThrowsNowIsNamed) {
  take("mistaken_for_good");
  for (const int ranks : {1, 2}) {
    EXPECT_THAT(succeed(train(ranks)), Not(HasSubstr("x.so")));
    const Finished bad = train(ranks, {"BAD_PLUGINS_THROWS"});
    EXPECT_NE(bad.status, 0);
    EXPECT_THAT(bad.output, HasSubstr(str_cat("crashed (SIGABRT) in a plugin: a plugin's file that is being opened, \"",
                                              folder_.file("plugins/x.so"), "\"")));
  }
}

}  // namespace
}  // namespace tessera::test
