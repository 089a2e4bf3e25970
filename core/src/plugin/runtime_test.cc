// Tests the Runtime without any plugin; tests/bad_plugins and tests/abi test it with plugins.
#include "tessera/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "config/test_refusal.h"
#include "tessera/abi/sharder.h"

namespace tessera {
namespace {

using testing::HasSubstr;

RuntimeOptions nowhere() {
  RuntimeOptions options{.default_path = false};
  return options;
}

TEST(Runtime, WithoutPluginsEveryNameIsUnknown) {
  RuntimeOptions options = nowhere();
  options.plugin_path = {"/nonexistent"};
  std::string logged;
  options.log = [&](int32_t, const char* text) { logged += text; };
  const Runtime runtime(options);
  EXPECT_EQ(logged,
            "the plugin directory /nonexistent does not exist, so nothing is loaded from it: correct plugins.path or "
            "TESSERA_PLUGIN_PATH");
  EXPECT_TRUE(runtime.ids("tessera.sharder/1").empty());
  EXPECT_FALSE(runtime.has("tessera.sharder/1", "row_wise"));
  EXPECT_EQ(test::refusal([&] { runtime.create("tessera.sharder/1", "row_wise"); }),
            "no plugin provides tessera.sharder/1 \"row_wise\": name its folder in [plugins] path; searched "
            "/nonexistent (does not exist)");
  EXPECT_THAT(test::refusal([&] { runtime.create("tessera.sharder/1", "auto"); }),
              HasSubstr("no plugin provides a usable"));
  EXPECT_THAT(test::refusal([&] { runtime.create("tessera.sharder/1", "no such name"); }),
              HasSubstr("not the name of a component"));
}

TEST(Runtime, RequiredPluginsMustBeThere) {
  RuntimeOptions options = nowhere();
  options.require = {"acme.stripe"};
  EXPECT_THAT(test::refusal([&] { Runtime runtime(options); }),
              HasSubstr("the required plugin \"acme.stripe\" is not found: name its folder"));
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
  EXPECT_THAT(test::refusal([] { Runtime runtime(nowhere()); }), HasSubstr("TESSERA_LOG is \"loud\""));
  ASSERT_EQ(::unsetenv("TESSERA_LOG"), 0);
  ASSERT_EQ(::setenv("TESSERA_TRUST_ALL", "yes", 1), 0);
  EXPECT_THAT(test::refusal([] { Runtime runtime(nowhere()); }), HasSubstr("TESSERA_TRUST_ALL is \"yes\""));
  ASSERT_EQ(::unsetenv("TESSERA_TRUST_ALL"), 0);
  ASSERT_EQ(::setenv("TESSERA_PLUGIN_CACHE", "cache", 1), 0);
  EXPECT_EQ(test::refusal([] { Runtime runtime(nowhere()); }),
            "TESSERA_PLUGIN_CACHE is \"cache\", but must be 0 or the absolute path of a folder");
  ASSERT_EQ(::unsetenv("TESSERA_PLUGIN_CACHE"), 0);
  for (const char* text : {"0", "3601", "1.5", "-1", "soon"}) {
    ASSERT_EQ(::setenv("TESSERA_PLUGIN_TRIAL_S", text, 1), 0);
    EXPECT_EQ(
        test::refusal([] { Runtime runtime(nowhere()); }),
        str_cat("TESSERA_PLUGIN_TRIAL_S is \"", text, "\", but must be a whole number of seconds from 1 to 3600"));
  }
  ASSERT_EQ(::unsetenv("TESSERA_PLUGIN_TRIAL_S"), 0);
}

// A sharder that offers nothing.
tsr_component held_component(const char* id) {
  static const tsr_sharder sharder{sizeof(tsr_sharder), 0,
                                   [](void*, const tsr_table*, const tsr_topology*, const tsr_constraints*,
                                      const tsr_layout_sink*, tsr_error*) -> tsr_code { return TSR_OK; },
                                   nullptr, nullptr};
  return {sizeof(tsr_component),
          0,
          id,
          TSR_SHARDER_KIND,
          "1.0",
          "of a test",
          &sharder,
          nullptr,
          [](const tsr_component*, const tsr_host* host, const char*, const tsr_instance*, void** self,
             tsr_error*) -> tsr_code {
            *self = nullptr;
            host->log(host, TSR_LOG_WARNING, "is made");
            return TSR_OK;
          },
          [](void*) {},
          nullptr,
          nullptr};
}

TEST(Runtime, PluginsOfTheProgramItself) {
  static const tsr_component one = held_component("mine"), two = held_component("other");
  static const tsr_component* const both[] = {&one, &two};
  static const tsr_component* const again[] = {&one};
  static const tsr_plugin held{
      sizeof(tsr_plugin), TSR_ABI_MAJOR, TSR_ABI_EPOCH, TSR_ABI_MINOR, 0, 2, "held", "1", "", both},
      same{sizeof(tsr_plugin), TSR_ABI_MAJOR, TSR_ABI_EPOCH, TSR_ABI_MINOR, 0, 1, "same", "1", "", again},
      older{sizeof(tsr_plugin), TSR_ABI_MAJOR, TSR_ABI_EPOCH - 1, TSR_ABI_MINOR, 0, 1, "older", "1", "", again},
      newer{sizeof(tsr_plugin),
            TSR_ABI_MAJOR,
            TSR_ABI_EPOCH,
            TSR_ABI_MINOR,
            TSR_ABI_MINOR + 1,
            1,
            "newer",
            "1",
            "",
            again};
  RuntimeOptions options = nowhere();
  options.plugins = {&held};
  options.require = {"other"};
  std::string logged;
  options.log = [&](int32_t level, const char* text) { logged += str_cat(level, " ", text); };
  {
    const Runtime runtime(options);
    EXPECT_EQ(runtime.ids(TSR_SHARDER_KIND), (std::vector<std::string>{"mine", "other"}));
    EXPECT_EQ(runtime.create(TSR_SHARDER_KIND, "mine")->raw()->component, &one);
    EXPECT_EQ(logged, "1 is made");
    EXPECT_EQ(runtime.report().entries[0].path, "the program's own held");
    EXPECT_EQ(runtime.report().entries[0].state, LoadEntry::State::kChosen);
    (void)runtime.ask(TSR_SHARDER_KIND, "other");
    EXPECT_EQ(runtime.report().entries[1].state, LoadEntry::State::kAsked);
    EXPECT_THAT(runtime.report().text(), HasSubstr("asked"));
    EXPECT_THAT(runtime.report().entries[1].reason, HasSubstr("another one is used"));
    (void)runtime.create(TSR_SHARDER_KIND, "other");
    (void)runtime.ask(TSR_SHARDER_KIND, "other");
    EXPECT_EQ(runtime.report().entries[1].state, LoadEntry::State::kChosen);
    EXPECT_EQ(runtime.report().entries[1].reason, "asked for by name");
  }
  options.plugins = {&held, &same};
  EXPECT_THAT(test::refusal([&] { Runtime runtime(options); }),
              HasSubstr("plugin \"same\": tessera.sharder/1 \"mine\" has"));
  options.plugins = {&newer};
  EXPECT_THAT(test::refusal([&] { Runtime runtime(options); }), HasSubstr("\"newer\": needs core minor"));
  options.plugins = {&older};
  EXPECT_THAT(test::refusal([&] { Runtime runtime(options); }),
              HasSubstr("the program's own plugin: the plugin table is not of release candidate"));
  options.plugins = {nullptr};
  EXPECT_THAT(test::refusal([&] { Runtime runtime(options); }), HasSubstr("is NULL"));
}

LoadReport sample() {
  LoadReport report{.searched = {"/opt/a", "/opt/b (does not exist)"}};
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
