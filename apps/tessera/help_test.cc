// Tests that help, manual pages and completion agree; they come from one table of options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "command.h"
#include "config/test_refusal.h"
#include "shell.h"
#include "tessera/abi/base.h"

namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using tessera::test::output_of;
using tessera::test::run_shell;

const std::string kProgram = TESSERA_PROGRAM;

std::vector<std::string> matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern, std::regex::multiline);
  std::vector<std::string> found;
  for (std::sregex_iterator m(text.begin(), text.end(), regex), end; m != end; ++m) found.push_back((*m)[1]);
  return found;
}

std::vector<std::string> commands_in(const std::string& help) { return matches(help, "^  ([a-z][a-z-]*)  +[a-z]"); }
std::vector<std::string> options_in(const std::string& help) { return matches(help, "^  (?:-[a-z] \\[ )?(--[a-z-]+)"); }

// All commands: "", "train", "bench", "bench lookup", ...
std::vector<std::string> all_commands() {
  std::vector<std::string> all{""};
  for (const std::string& command : commands_in(output_of(kProgram + " --help"))) {
    all.push_back(command);
    for (const std::string& inner : commands_in(output_of(kProgram + " " + command + " --help")))
      all.push_back(command + " " + inner);
  }
  return all;
}

TEST(Help, TheVersionNamesProgramAndAbi) {
  EXPECT_EQ(output_of(kProgram + " --version"), "tessera " TESSERA_VERSION ", plugin ABI " +
                                                    std::to_string(TSR_ABI_MAJOR) + "." +
                                                    std::to_string(TSR_ABI_MINOR) + "\n");
}

// It is another name of predict --importance, and has its options.
TEST(Help, OfImportanceIsThatOfPredict) {
  EXPECT_EQ(output_of(kProgram + " model importance --help"), output_of(kProgram + " predict --help"));
}

TEST(Help, EveryCommandHasHelpInBothSpellings) {
  const std::vector<std::string> all = all_commands();
  EXPECT_THAT(all, Contains("train"));
  EXPECT_THAT(all, Contains("bench lookup"));
  EXPECT_THAT(all, Contains("bench show"));
  for (const std::string& command : all) {
    const std::string help = output_of(kProgram + " help " + command);
    EXPECT_THAT(help, StartsWith("usage: tessera " + command));
    EXPECT_EQ(help, output_of(kProgram + " " + command + " --help")) << command;
    if (commands_in(help).empty()) {
      EXPECT_THAT(options_in(help), Contains("--help")) << command;
    }
  }
  EXPECT_THAT(output_of(kProgram + " help train"), HasSubstr("--config FILE"));
  EXPECT_THAT(options_in(output_of(kProgram + " help bench lookup")), Contains("--compare"));
}

TEST(Help, LinesFitATerminal) {
  for (const std::string& command : all_commands())
    EXPECT_THAT(matches(output_of(kProgram + " help " + command), "^(.{81,})$"), ::testing::IsEmpty()) << command;
}

// A description can be read without the option's name before it.
TEST(Help, DescriptionsAreNoFragments) {
  for (const std::string& command : all_commands()) {
    const std::string page = output_of(kProgram + " " + command + " --man");
    const std::vector<std::string> about = matches(page, "\\.TP\n.+\n(.+)$");
    EXPECT_FALSE(about.empty()) << command;
    for (const std::string& text : about) {
      EXPECT_FALSE(std::regex_search(text, std::regex("^(of|what|where|whether|that|who|and|or|as|in|its) "))) << text;
      EXPECT_FALSE(std::regex_search(text, std::regex(" alone$|, else |so many"))) << text;
    }
  }
}

TEST(Help, UnknownCommandsAreWrongUse) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"trian", "train"}, {"help trian", "train"}, {"bench lokup", "lookup"}, {"bench help lokup", "lookup"}};
  for (const auto& [words, meant] : cases) {
    const auto done = run_shell(kProgram + " " + words + " 2>&1");
    EXPECT_EQ(done.status, 2) << words;
    EXPECT_THAT(done.output, HasSubstr("unknown command \"")) << words;
    EXPECT_THAT(done.output, HasSubstr("; the nearest is \"" + meant + "\": see tessera")) << words;
  }
}

TEST(Help, UnknownOptionsAndSurplusWordsAreNamed) {
  const auto said = [](const char* words) {
    const auto done = run_shell(kProgram + " " + words + " 2>&1");
    EXPECT_EQ(done.status, 2) << words;
    return done.output;
  };
  EXPECT_THAT(said("train --confg job.toml"),
              HasSubstr("there is no option --confg; the nearest is --config: see tessera train --help"));
  EXPECT_THAT(said("train --config job.toml --save ''"),
              HasSubstr("--save has an empty value: give DIR, or leave the option out"));
  EXPECT_THAT(said("predict models/films"),
              HasSubstr("\"models/films\" is one argument too many: see tessera predict --help"));
  EXPECT_THAT(said("launch -n 1 --restart-pause 1 -- true"), HasSubstr("--restart-pause has no effect without"));
}

// Every wrong use of any command is one sentence and status 2.
TEST(Help, EveryWrongUseHasStatus2) {
  for (const std::string& command : all_commands()) {
    if (command.empty() || commands_in(output_of(kProgram + " help " + command)).size() > 1) continue;
    const auto unknown = run_shell(kProgram + " " + command + " --no-such-option 2>&1 </dev/null");
    EXPECT_EQ(unknown.status, 2) << command << unknown.output;
    EXPECT_THAT(unknown.output, HasSubstr("there is no option --no-such-option")) << command;
  }
  const std::string none = "/nonexistent/file";
  for (const std::string& words : std::vector<std::string>{
           "train --config " + none, "plan --config " + none, "plan --tables " + none, "stats --config " + none,
           "predict --model " + none + " --data " + none, "quantize --load " + none + " --save " + none,
           "serve --model " + none, "model inspect " + none, "model new nothing", "data describe " + none,
           "report " + none + " " + none, "trace " + none + " " + none, "plugins --config " + none, "verify " + none,
           "plan --diff " + none + " " + none, "train --config x --nproc many", "plan --config x --world-size -3x",
           "launch -n 0 -- true"}) {
    const auto done = run_shell(kProgram + " " + words + " 2>&1 </dev/null");
    EXPECT_EQ(done.status, 2) << words << done.output;
    EXPECT_THAT(done.output, StartsWith("tessera ")) << words;
  }
  EXPECT_THAT(run_shell(kProgram + " model inspect " + TESSERA_COMPLETION + " 2>&1").output,
              HasSubstr("is a file: tessera model inspect takes the directory of a packed model"));
}

TEST(Help, ManualPagesNameEveryOption) {
  for (const std::string& command : all_commands()) {
    const std::string page = output_of(kProgram + " " + command + " --man");
    EXPECT_THAT(page, StartsWith(".TH TESSERA")) << command;
    EXPECT_EQ(matches(page, "^(\\.SH NAME)$").size(), 1u) << command;
    for (const std::string& option : options_in(output_of(kProgram + " help " + command))) {
      const std::string escaped = std::regex_replace(option, std::regex("-"), "\\-");
      EXPECT_THAT(page, HasSubstr(escaped)) << command;
    }
  }
}

TEST(Help, TheManualListsExitStatuses) {
  const std::string page = output_of(kProgram + " --man");
  for (const char* status : {"0", "1", "2", "75", "126, 127", "128 + N"})
    EXPECT_THAT(page, HasSubstr(std::string("\n.TP\n\\fB") + status + "\\fR\n"));
  EXPECT_EQ(run_shell(kProgram + " launch -n 1 -- no-such-program 2>/dev/null").status, 127);
}

TEST(Help, GroffReadsTheManualPages) {
  if (run_shell("groff --version >/dev/null 2>&1").status != 0) GTEST_SKIP() << "no groff";
  for (const std::string& command : all_commands()) {
    const std::string complaints =
        output_of(kProgram + " " + command + " --man | groff -man -Tascii -ww -P-c 2>&1 >/dev/null");
    EXPECT_EQ(complaints, "") << command;
  }
  const std::string page = output_of(kProgram + " conformance --man | groff -man -Tascii -P-cbou");
  EXPECT_THAT(page, HasSubstr("FAIL name: field, largest error    it differs"));
}

// The completions that bash offers for the last of `words`.
std::vector<std::string> completed(const std::string& words) {
  const std::string script = "source " TESSERA_COMPLETION "; COMP_WORDS=(" + kProgram + " " + words +
                             "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tessera; printf \"%s\\n\" \"${COMPREPLY[@]}\"";
  return matches(output_of("bash -c '" + script + "'"), "^(.+)$");
}

TEST(Help, BashCompletesCommandsAndOptions) {
  EXPECT_THAT(completed("trai"), ::testing::ElementsAre("train"));
  EXPECT_THAT(completed("\"\""), Contains("serve"));
  EXPECT_THAT(completed("bench lo"), ::testing::ElementsAre("lookup"));
  EXPECT_THAT(completed("train --config x --max-"), ::testing::ElementsAre("--max-steps"));
  EXPECT_THAT(completed("bench lookup --pool"), ::testing::ElementsAre("--pooling"));
  EXPECT_THAT(completed("launch --np"), ::testing::ElementsAre("--nproc"));
  EXPECT_THAT(completed("train --config con"), ::testing::IsEmpty());  // files are left to bash's own completion
  for (const std::string& option : options_in(output_of(kProgram + " help plan")))
    EXPECT_THAT(completed("plan " + option), Contains(option));
}

// tools_not_built.cc is linked here. A build without the measuring commands says how to get them.
TEST(Help, CommandsThatAreNotBuiltSaySo) {
  for (const auto& command :
       {tessera::cli::bench_command, tessera::cli::conformance_command, tessera::cli::calibrate_command}) {
    EXPECT_THAT(tessera::test::refusal<tessera::cli::UsageError>([&] { command({"lookup"}); }),
                HasSubstr("is not in this build: ./scripts/quickstart --tools builds it"));
    EXPECT_EQ(command({"--help"}), 0);
    EXPECT_EQ(command({"--man"}), 0);
  }
}

}  // namespace
