// A job on arriving rows, for tests over ranks: the rows, and the job that learns from them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test {

inline const std::string kArrivingJob = R"toml(
job = {seed = 3, device = "cpu", threads = 1}
comm = {backend = "tcp"}
model = {embedding_dim = 8, bottom_mlp = [8], top_mlp = [16, 1]}
metrics = {training = ["logloss"]}
[data]
reader = "growing?end=DONE(csv)"
batch = 50
[[column]]
name = "click"
as = "label"
[[column]]
name = "price"
as = "dense"
[[column]]
name = "person"
ids = "row"
rows = 40
[[column]]
name = "films"
ids = "hash"
rows = 100
separator = " "
weighted = true
[table_defaults]
sharding = ["row_wise"]
)toml";
inline const std::string kWeightColumn = R"toml(
[[column]]
name = "weight"
as = "weight"
)toml";

inline const std::string kArrivingColumns = "click,price,person,films,weight";

inline std::string arriving_row(int i) {
  std::string out = str_cat(i * i % 11 < 4, ',', i % 7, ',', i % 40, ",film", i % 13, ":0.5");
  if (i % 3 == 0) out += str_cat(" film", i % 17, ":1.5");
  return out + str_cat(",", 1 + i % 2);
}

// A file with rows [first, first + count).
inline std::string arriving_file(int first, int count) {
  std::string out = kArrivingColumns + "\n";
  for (int i = first; i < first + count; ++i) out += arriving_row(i) + "\n";
  return out;
}

class ArrivingRanks : public testing::Test {
 protected:
  ArrivingRanks() {
    std::filesystem::create_directories(in_);
    folder_.write("job.toml", kArrivingJob + kWeightColumn);
  }
  std::vector<std::string> arguments(int ranks, const std::vector<std::string>& set,
                                     const std::vector<std::string>& more = {}) const {
    std::vector<std::string> out = {"train", "--config", folder_.file("job.toml"), "--nproc", str_cat(ranks)};
    out.insert(out.end(), more.begin(), more.end());
    for (const std::string& key : {"data.path=" + in_, "report.json=" + folder_.file("report.json")})
      out.insert(out.end(), {"--set", key});
    for (const std::string& key : set) out.insert(out.end(), {"--set", key});
    return out;
  }
  // The job's report; null if it failed.
  nlohmann::json train(int ranks, const std::vector<std::string>& set,
                       const std::vector<std::string>& more = {}) const {
    succeed(run_tessera(arguments(ranks, set, more)));
    return report();
  }
  nlohmann::json report() const { return nlohmann::json::parse(contents(folder_.file("report.json"))); }
  void arrive(const std::string& name, const std::string& text) const {
    folder_.write("new", text);
    std::filesystem::rename(folder_.file("new"), in_ + "/" + name);
  }

  TestDirectory folder_;
  const std::string in_ = folder_.file("in");
};

}  // namespace tessera::test
