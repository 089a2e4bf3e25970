// The jobs of configs/bars, whose data is not part of this project: each says so, and trains on made files with the
// same columns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tessera/config.h"
#include "tessera_program.h"

namespace tessera::test::bars_test {
namespace {

using testing::HasSubstr;

std::vector<std::string> jobs() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(TESSERA_SOURCE_DIR) + "/configs/bars"))
    out.push_back(entry.path().stem());
  return out;
}

// Rows with the columns that a job reads: labels, numbers, and columns that are both a row of a table of 20 and a text.
std::string rows_of(const Config& config, int rows) {
  std::string out;
  for (const ColumnConfig& c : config.columns) {
    for (const std::string& name : c.name) out += str_cat(out.empty() ? "" : ",", name);
  }
  uint32_t random = 1;
  const auto below = [&](uint32_t n) { return ((random = random * 1664525u + 1013904223u) >> 16) % n; };
  for (int i = 0; i < rows; ++i) {
    std::string line;
    for (const ColumnConfig& c : config.columns) {
      for (size_t k = 0; k < c.name.size(); ++k)
        line += str_cat(line.empty() ? "\n" : ",", below(c.as == "label" ? 2 : 20), c.separator.empty() ? "" : " 3");
    }
    out += line;
  }
  return out + "\n";
}

class Bars : public testing::TestWithParam<std::string> {
 protected:
  std::vector<std::string> command(const std::vector<std::string>& sets) const {
    std::vector<std::string> out = {"train", "--config", config_, "--set", "data.reader=csv"};
    for (const std::string& set : sets) out.insert(out.end(), {"--set", set});
    return out;
  }

  const TestDirectory folder_;
  const std::string config_ = str_cat(TESSERA_SOURCE_DIR "/configs/bars/", GetParam(), ".toml");
};

TEST_P(Bars, SaysThatTheDataIsMissing) {
  const Finished done = run_tessera(command({"data.path=" + folder_.file("[tv][ra]*.csv")}));
  EXPECT_NE(done.status, 0);
  EXPECT_THAT(done.output, HasSubstr("there is no file " + folder_.file("[tv][ra]*.csv")));
  EXPECT_EQ(std::count(done.output.begin(), done.output.end(), '\n'), 1) << done.output;
}

TEST_P(Bars, TrainsOnMadeFilesOfTheSameColumns) {
  const Config config = load_config(config_);
  const bool validates = config.validation.fraction > 0;
  folder_.write("train.csv", rows_of(config, 60));
  folder_.write("valid.csv", rows_of(config, 20));
  const std::string test = folder_.write("test.csv", rows_of(config, 10)), report = folder_.file("report.json");
  std::vector<std::string> sets = {"data.path=" + folder_.file("[tv][ra]*.csv"),
                                   "data.test_path=" + test,
                                   "report.json=" + report,
                                   "data.batch=32",
                                   "data.epochs=1",
                                   "job.threads=1"};
  if (validates) sets.emplace_back("validation.fraction=0.25");
  for (const TableConfig& table : config.tables) sets.push_back(str_cat("table.", table.name, ".rows=20"));
  const std::string done = succeed(run_tessera(command(sets)));
  const auto told = nlohmann::json::parse(contents(report));
  EXPECT_EQ(told.at("test").at("samples"), 10);
  EXPECT_EQ(told.at("losses").size(), validates ? 2u : 3u) << "60 rows in batches of 32, or 80";
  EXPECT_EQ(done.find("(20 samples)") != std::string::npos, validates) << "those of valid.csv\n" << done;
}

INSTANTIATE_TEST_SUITE_P(Configs, Bars, testing::ValuesIn(jobs()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tessera::test::bars_test
