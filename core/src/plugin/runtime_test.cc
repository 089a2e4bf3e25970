// The Runtime without any plugin; tests/zoo and tests/abi have those.
#include "tessera/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace tessera {
namespace {

using testing::HasSubstr;

RuntimeOptions nowhere() {
  RuntimeOptions options;
  options.default_path = false;
  return options;
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Runtime, WithoutPluginsEveryNameIsUnknown) {
  RuntimeOptions options = nowhere();
  options.plugin_path = {"/nonexistent"};
  const Runtime runtime(options);
  EXPECT_TRUE(runtime.ids("tessera.sharder/1").empty());
  EXPECT_FALSE(runtime.has("tessera.sharder/1", "row_wise"));
  EXPECT_EQ(message_of([&] { runtime.create("tessera.sharder/1", "row_wise"); }),
            "no plugin provides tessera.sharder/1 \"row_wise\": searched /nonexistent (does not exist)");
  EXPECT_THAT(message_of([&] { runtime.create("tessera.sharder/1", "auto"); }),
              HasSubstr("no plugin provides a usable"));
  EXPECT_THAT(message_of([&] { runtime.create("tessera.sharder/1", "no such name"); }),
              HasSubstr("not the name of a part"));
}

TEST(Runtime, RequiredPluginsMustBeThere) {
  RuntimeOptions options = nowhere();
  options.require = {"acme.stripe"};
  EXPECT_THAT(message_of([&] { Runtime runtime(options); }),
              HasSubstr("required plugin \"acme.stripe\" was not found"));
}

TEST(Runtime, ThreadsAreCounted) {
  RuntimeOptions options = nowhere();
  options.threads = 3;
  Runtime runtime(options);
  EXPECT_EQ(runtime.threads(), 3);
  EXPECT_EQ(runtime.host()->num_threads(runtime.host()), 3u);
  runtime.set_threads(0);
  EXPECT_GE(runtime.threads(), 1);
  EXPECT_THROW(runtime.set_threads(-1), Error);
}

TEST(Runtime, ParallelForPassesTheFirstExceptionOn) {
  RuntimeOptions options = nowhere();
  options.threads = 4;
  const Runtime runtime(options);
  std::atomic<int64_t> sum{0};
  runtime.parallel_for(1000, [&](int64_t i) { sum += i; });
  EXPECT_EQ(sum.load(), 499500);
  runtime.parallel_for(0, [&](int64_t) { FAIL(); });
  EXPECT_THROW(runtime.parallel_for(100,
                                    [](int64_t i) {
                                      if (i == 42) fail(Code::kOutOfRange, "42");
                                    }),
               Error);
  runtime.parallel_for(10, [&](int64_t i) { sum += i; });
  EXPECT_EQ(sum.load(), 499545);
}

TEST(Runtime, VariablesThatMeanNothingAreErrors) {
  ASSERT_EQ(::setenv("TESSERA_LOG", "loud", 1), 0);
  EXPECT_THAT(message_of([] { Runtime runtime(nowhere()); }), HasSubstr("TESSERA_LOG is \"loud\""));
  ASSERT_EQ(::unsetenv("TESSERA_LOG"), 0);
  ASSERT_EQ(::setenv("TESSERA_TRUST_ALL", "yes", 1), 0);
  EXPECT_THAT(message_of([] { Runtime runtime(nowhere()); }), HasSubstr("TESSERA_TRUST_ALL is \"yes\""));
  ASSERT_EQ(::unsetenv("TESSERA_TRUST_ALL"), 0);
}

LoadReport sample() {
  LoadReport report;
  report.searched = {"/opt/a", "/opt/b (does not exist)"};
  report.entries = {{"/opt/a/x.so", "row_wise", "tessera.sharder/1", "1.0", "1.0", LoadEntry::State::kAvailable, ""},
                    {"/opt/a/y.so", "", "", "", "", LoadEntry::State::kRejected, "is not an ELF file"}};
  return report;
}

TEST(LoadReport, PrintsATable) {
  EXPECT_EQ(sample().text(),
            "ID        KIND               VERSION  ABI  STATE      WHERE AND WHY\n"
            "row_wise  tessera.sharder/1  1.0      1.0  available  /opt/a/x.so\n"
            "(y.so)    -                  -        -    rejected   /opt/a/y.so: is not an ELF file\n"
            "searched, in this order:\n"
            "  /opt/a\n"
            "  /opt/b (does not exist)\n");
}

TEST(LoadReport, PrintsJson) {
  const auto json = nlohmann::json::parse(sample().json());
  EXPECT_EQ(json["searched"].size(), 2u);
  EXPECT_EQ(json["plugins"][0]["id"], "row_wise");
  EXPECT_EQ(json["plugins"][0]["state"], "available");
  EXPECT_EQ(json["plugins"][1]["reason"], "is not an ELF file");
  LoadReport odd = sample();
  odd.entries[0].path = "/opt/\xff.so";
  EXPECT_NO_THROW(nlohmann::json::parse(odd.json()));
}

}  // namespace
}  // namespace tessera
