// A job in a file, over tables whose rows come on demand.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tessera/error.h"
#include "tessera/sdk/random.h"
#include "tessera_program.h"

namespace tessera::test {

inline constexpr const char* kItemColumns = R"(
column = [
  {name = "label", as = "label"},
  {name = "price", as = "dense"},
  {name = "item", as = "ids"}]
)";

// Trains two epochs on `rows`, the text of a CSV file, whose last fifth is the test. `tables` follows the optimizer in
// [table_defaults] and includes the tables. Returns the job's path.
inline std::string dynamic_job(const TestDirectory& folder, const std::string& rows, const std::string& tables,
                               const std::string& columns = kItemColumns) {
  return folder.write("job.toml", str_cat(columns, "plugins = {path = [\"", TESSERA_TEST_PLUGINS, R"("]}
job = {seed = 3, threads = 1}
comm = {backend = "tcp"}
model = {embedding_dim = 8, bottom_mlp = [8], top_mlp = [8, 1]}
data = {reader = "csv", path = ")",
                                          folder.write("data.csv", rows),
                                          R"(", batch = 32, epochs = 2,)"
                                          R"( test = "last", test_fraction = 0.2}
[table_defaults]
optimizer = { name = "exact_rowwise_adagrad", learning_rate = 0.05, eps = 1e-8 }
)",
                                          tables));
}

// Rows with ids of 63 bits, some of them popular; labels depend on the ids.
inline std::string popular_rows() {
  std::string out = "label,price,item\n";
  for (int64_t i = 0; i < 1600; ++i) {
    const uint64_t x = sdk::mixed(static_cast<uint64_t>(i) + 1), id = x % 4 != 0 ? x / 4 % 150 : x / 4 % 3000;
    out += str_cat(sdk::mixed(id + 77) % 2, ',', i % 5, ',', sdk::mixed(id + 77) >> 1, "\n");
  }
  return out;
}

// Enough epochs that the run does not end by itself.
inline constexpr const char* kWithoutEnd = "data.epochs=100000";

struct Stopped {
  std::string changes;  // folder of a checkpoint
  int64_t step;         // of that checkpoint
};
// Runs the job's command and ends it after it has saved all rows and then changes twice; returns what it leaves.
inline Stopped stopped_behind_changes(std::vector<std::string> command, const std::string& save) {
  for (const char* more :
       {"--save", save.c_str(), "--save-every", "20", "--save-full-every", "1000000", "--set", kWithoutEnd})
    command.emplace_back(more);
  Program job(command);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!std::filesystem::exists(save + "/save-3") && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(kill(job.pid(), SIGTERM), 0);
  job.wait(60);
  EXPECT_THAT(job.output(), testing::HasSubstr("stopped by a signal"));
  const auto last = nlohmann::json::parse(run_tessera({"model", "inspect", "--json", "--verify", save}).output);
  EXPECT_EQ(last.at("base"), "save-1");
  return {last.at("path"), last.at("step")};
}

// The logloss of the output of `tessera predict`.
inline double logloss_of(const std::string& scores) {
  const std::vector<std::string> lines = lines_of(contents(scores));
  EXPECT_GT(lines.size(), 1u);
  double sum = 0, row = 0, label = 0, score = 0;
  for (size_t i = 1; i < lines.size(); ++i) {
    EXPECT_EQ(std::sscanf(lines[i].c_str(), "%lf,%lf,%lf", &row, &label, &score), 3) << lines[i];
    sum -= std::log(label > 0.5 ? score : 1 - score);
  }
  return sum / static_cast<double>(lines.size() - 1);
}

}  // namespace tessera::test
