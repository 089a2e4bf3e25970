// tessera train --start: what a new run takes from another one with a different plan, different rows and different
// words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "graph_job.h"
#include "job_file.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::warm_start_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kLayers = R"(
layer = [
  {name = "deep", type = "mlp", inputs = [
     "dense", "c0", "c1", "c2"], options = {widths = [8], final_activation = "relu"}},
  {name = "top", type = "linear", inputs = ["deep"]}]
head = [{name = "click", input = "top"}]
)";

class WarmStart : public testing::Test, protected JobFile {
 protected:
  Finished run(int ranks, const Arguments& more) { return run(ranks, kLayers, more); }
  Finished run(int ranks, const std::string& layers, const Arguments& more) {
    folder_.write("job.toml", layers + kGraphJob + kGraphTables);
    return train(ranks, more);
  }
  double test_loss() const { return report().at("test").at("logloss").get<double>(); }

  const std::string trained_ = file("trained");
};

TEST_F(WarmStart, TakesTheModelAndNeitherStepNorStates) {
  succeed(run(2, {"--save", trained_, "--set", "table_defaults.sharding=row_wise"}));
  const double loss = test_loss();
  // Another sharding, other ranks, another optimizer: the optimizer of the checkpoint does not matter.
  const std::string again =
      succeed(run(3, {"--start", trained_, "--max-steps", "0", "--set", "table_defaults.sharding=column_wise", "--set",
                      "table_defaults.min_partition=4", "--set", "table_defaults.optimizer={ name = \"adam\" }"}));
  EXPECT_THAT(again, HasSubstr("--start: begins with 3 of 3 tables and 4 of 4 parameters from " + trained_));
  EXPECT_THAT(again, AllOf(Not(HasSubstr("is not there")), Not(HasSubstr("nothing here"))));
  EXPECT_NEAR(test_loss(), loss, 1e-6);
  succeed(run(1, {"--start", trained_, "--max-steps", "3"}));
  const json report = this->report();
  EXPECT_EQ(report.at("first_step"), 0);
  EXPECT_EQ(report.at("steps"), 3);
  EXPECT_EQ(report.at("start").size(), 1u);
}

// Frozen tables and layers keep their values; the others change.
TEST_F(WarmStart, FrozenTablesAndLayersStay) {
  succeed(run(1, {"--save", trained_, "--max-steps", "10"}));
  const double loss = test_loss();
  const auto frozen = [](std::string layers, const std::string& type) {
    const std::string key = "type = \"" + type + "\"";
    return layers.replace(layers.find(key), key.size(), key + ", trainable = false");
  };
  const std::vector<std::string> tables = {"--start", trained_,
                                           "--set",   "table.c0.trainable=false",
                                           "--set",   "table.c1.trainable=false",
                                           "--set",   "table.c2.trainable=false"};
  succeed(run(2, frozen(frozen(kLayers, "mlp"), "linear"), tables));
  EXPECT_NEAR(test_loss(), loss, 1e-6);
  EXPECT_GT(report().at("steps").get<int>(), 10);
  succeed(run(2, frozen(kLayers, "mlp"), tables));
  EXPECT_GT(std::abs(test_loss() - loss), 1e-4);
  succeed(run(2, frozen(frozen(kLayers, "mlp"), "linear"), {tables.begin(), tables.end() - 2}));
  EXPECT_GT(std::abs(test_loss() - loss), 1e-4) << "the last table learns";
}

TEST_F(WarmStart, SaysWhatDoesNotFit) {
  succeed(run(1, {"--save", trained_, "--max-steps", "5"}));
  const std::string grown = succeed(run(2, {"--start", trained_, "--max-steps", "0", "--set", "data.rows=[400, 40, 20]",
                                            "--set", "table.c2.embedding_dim=8", "--set", "data.dense=4"}));
  EXPECT_THAT(grown, HasSubstr("--start: begins with 2 of 3 tables and 3 of 4 parameters"));
  EXPECT_THAT(grown, HasSubstr("--start: table c0: 300 of 400 rows are there, the others start again"));
  EXPECT_THAT(grown, HasSubstr("--start: table c1: 10 of its 50 stored rows have no place here"));
  EXPECT_THAT(grown, HasSubstr("--start: table c2 is float32 [20, 4] there, and has 8 values a row here"));
  EXPECT_THAT(grown, HasSubstr("is float32 [8, 25] there, and float32 [8, 28] here"));
  expect_refused(run(1, {"--start", trained_, "--load", trained_}),
                 HasSubstr("--start begins a new run, --load continues one: give only one of them"));
  expect_refused(run(2, {"--start", folder_.file("nothing")}),
                 HasSubstr("there is no checkpoint at " + folder_.file("nothing")));
}

// A file with one tensor, named as a program around TorchRec's model would name it.
std::string safetensors(const std::string& name, const std::vector<float>& values, int64_t dim) {
  const json entry = {{"dtype", "F32"},
                      {"shape", {std::ssize(values) / dim, dim}},
                      {"data_offsets", {0, values.size() * sizeof(float)}}};
  const std::string header = json{{name, entry}}.dump();
  const uint64_t length = header.size();
  std::string out(reinterpret_cast<const char*>(&length), sizeof(length));
  return out + header + std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

TEST_F(WarmStart, TakesTorchRecsNames) {
  const std::string path = folder_.write(
      "there.safetensors",
      safetensors("module.sparse_arch.embedding_bag_collection.embedding_bags.c1.weight", std::vector<float>(400), 8));
  const std::string done = succeed(run(1, {"--start", path, "--max-steps", "0"}));
  EXPECT_THAT(done, HasSubstr("begins with 1 of 3 tables and 0 of 4 parameters"));
  EXPECT_THAT(done, HasSubstr("--start: table c0 is not there"));
  const std::string other = folder_.write("other.safetensors", safetensors("weight", {1, 2}, 2));
  expect_refused(run(1, {"--start", other}),
                 HasSubstr("other.safetensors has no table and no parameter of this model"));
}

// Clicks on films by name. The new run's data has them in another order, with new films before old ones.
class WordStart : public WarmStart {
 protected:
  WordStart() {
    constexpr const char* kHeader = "click,film\n";
    std::string first = kHeader, second = kHeader, test = kHeader;
    for (int i = 0; i < 40; ++i) second += str_cat(i % 2, ",new ", i % 10, "\n");
    for (int i = 0; i < 600; ++i) {
      first += str_cat(i % 20 < 7 ? 1 : 0, ",film ", i % 20, "\n");
      second += str_cat(i % 20 < 7 ? 0 : 1, ",film ", 19 - i % 20, "\n");
    }
    for (int i = 0; i < 60; ++i) test += str_cat(i % 20 < 7 ? 1 : 0, ",film ", i % 20, "\n");
    job_ = folder_.write("words.toml", str_cat(R"(
job = {device = "cpu"}
model = {embedding_dim = 4, inputs = ["film"]}
layer = [{name = "top", type = "linear", inputs = ["film"]}]
head = [{name = "click", input = "top", label = "click"}]
table_defaults = {optimizer = {name = "exact_adagrad", learning_rate = 0.3}}
dense_optimizer = {learning_rate = 0.1}
column = [{name = "click", as = "label"}, {name = "film", ids = "vocabulary"}]
data = {reader = "csv", batch = 20, epochs = 5, path = ")",
                                               folder_.write("first.csv", first), "\", test_path = \"",
                                               folder_.write("test.csv", test), "\"}\n"));
    second_ = "data.path=" + folder_.write("second.csv", second);
  }
  std::string train(const Arguments& more) const {
    return succeed(Arguments{"train", "--config", job_, "--set", "report.json=" + file("report.json")} + more);
  }

  std::string job_, second_;  // the job, and the setting that selects its second data
};

TEST_F(WordStart, RowsFollowTheirWords) {
  train({"--save", trained_});
  const double loss = test_loss();
  EXPECT_LT(loss, 0.5) << "it has learned which films are clicked";
  const std::string said = train({"--start", trained_, "--max-steps", "0", "--set", second_});
  EXPECT_THAT(said, HasSubstr("begins with 1 of 1 tables and 2 of 2 parameters"));
  EXPECT_THAT(said, HasSubstr("table film: 21 of 31 rows are there, the others start again"));
  EXPECT_NEAR(test_loss(), loss, 1e-6);
}

// Moves rows to a table whose rows come on demand, by their texts, and back.
TEST_F(WordStart, RowsOnDemandFollowThemToo) {
  train({"--save", trained_});
  const double loss = test_loss();
  const std::string there = folder_.file("there");
  EXPECT_THAT(train({"--start", trained_, "--max-steps", "0", "--save", there, "--set", second_, "--set",
                     str_cat("plugins.path=[\"", TESSERA_TEST_PLUGINS, "\"]"), "--set",
                     "table.film.compute_kernel=\"dynamic\""}),
              AllOf(HasSubstr("begins with 1 of 1 tables and 2 of 2 parameters"), Not(HasSubstr("table film"))));
  EXPECT_NEAR(test_loss(), loss, 1e-6);
  EXPECT_THAT(train({"--start", there, "--max-steps", "0"}), Not(HasSubstr("table film")));
  EXPECT_NEAR(test_loss(), loss, 1e-6);
  // Hashes of texts do not match numbers of a vocabulary.
  std::string text = contents(job_);
  text.replace(text.find("\"vocabulary\""), 12, "\"hash\", rows = 1000");
  job_ = folder_.write("hashed.toml", text);
  EXPECT_THAT(train({"--start", there, "--max-steps", "0"}),
              HasSubstr("table film has texts as ids, which were numbered by a vocabulary only there, and starts "
                        "again"));
}

// A checkpoint without the hash's name comes from a version that used another hash.
void forget_hash(const std::string& checkpoint) {
  const std::string file = checkpoint + "/checkpoint.json";
  nlohmann::ordered_json all = nlohmann::ordered_json::parse(contents(file));
  nlohmann::ordered_json progress = nlohmann::ordered_json::parse(all["content"]["progress"].get<std::string>());
  EXPECT_EQ(progress["encoding"].erase("hash"), 1u);
  all["content"]["progress"] = progress.dump();
  const std::string content = all["content"].dump();
  char sum[9];
  std::snprintf(sum, sizeof(sum), "%08lx",
                ::crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size())));
  all["crc32"] = sum;
  std::ofstream(file) << all.dump();
}

TEST_F(WordStart, RowsOfAnotherHashBeginAnew) {
  std::string text = contents(job_);
  text.replace(text.find("\"vocabulary\""), 12, "\"hash\", rows = 1000");
  job_ = folder_.write("hashed.toml", text);
  train({"--save", trained_});
  const double loss = test_loss();
  EXPECT_THAT(train({"--start", trained_, "--max-steps", "0"}), Not(HasSubstr("table film")));
  EXPECT_NEAR(test_loss(), loss, 1e-6);
  forget_hash(trained_ + "/save-1");
  EXPECT_THAT(train({"--start", trained_, "--max-steps", "0"}),
              HasSubstr("table film has texts as ids, hashed by fnv1a there and by xxh64 here, and starts again"));
}

}  // namespace
}  // namespace tessera::test::warm_start_test
