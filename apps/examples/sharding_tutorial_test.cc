// Compares the tutorial's output of both ranks with recorded lines.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "shell.h"

namespace {

// Returns the lines that the command printed; fails the test if the command failed.
std::multiset<std::string> lines_of(const std::string& command) {
  const std::string text = tessera::test::output_of(command);
  std::multiset<std::string> lines;
  for (size_t start = 0, end = 0; (end = text.find('\n', start)) != std::string::npos; start = end + 1) {
    lines.insert(text.substr(start, end - start));
  }
  return lines;
}

TEST(ShardingTutorial, PrintsEachPlanAsTheTutorialDoesAndRunsIt) {
  const auto lines = lines_of(TESSERA_PROGRAM " launch -n 2 -- " TESSERA_EXAMPLE);
  std::ifstream in(TESSERA_PLANS);
  const auto cases = nlohmann::json::parse(in).at("cases");
  int found = 0;
  for (const auto& one : cases) {
    if (!one.at("expect").contains("tutorial_printed")) continue;
    ++found;
    for (const char* rank : {"rank:0,sharding plan: ", "rank:1,sharding plan: "}) {
      EXPECT_EQ(lines.count(rank + one.at("expect").at("tutorial_printed").get<std::string>()), 1u) << one.at("name");
    }
  }
  EXPECT_EQ(found, 4);
  EXPECT_EQ(lines.size(), 16u);
}

}  // namespace
