// A job on CSV files, by the reader part: columns into samples, streams that are read anew in each epoch, and the
// program from training to predictions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "data/hold_out.h"
#include "tessera/data.h"
#include "tessera/runtime.h"
#include "tessera_program.h"

namespace tessera::test {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;

// Row i has the dense value i, the id i % 50 and, in a list, the ids of [0, i % 4).
std::string numbered_rows(int64_t first, int64_t rows) {
  std::string out = "click,x,id,list\n";
  for (int64_t i = first; i < first + rows; ++i) {
    out += cat(i % 2, ",", i, ",", i % 50, ",");
    for (int64_t k = 0; k < i % 4; ++k) out += cat(k ? " " : "", k);
    out += "\n";
  }
  return out;
}

const std::string kNumbered = R"(
[[column]]
name = "click"
as = "label"
[[column]]
name = "x"
as = "dense"
[[column]]
name = "id"
rows = 50
[[column]]
name = "list"
rows = 4
separator = " "
pooling = "mean"
)";

void write_gz(const std::string& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
  gzclose(file);
}

class CsvData : public testing::Test {
 protected:
  Dataset read(const std::string& data, const std::string& columns, const std::string& encoding = "") {
    return read_dataset(runtime_, parse_config("[data]\nreader = \"csv\"\n" + data + columns, "job.toml"), encoding);
  }
  std::string error(const std::string& data, const std::string& columns) {
    try {
      Dataset set = read(data, columns);
      set.require_known_ids();
      BatchReader reader(set.train, {});
      for (Batch batch; reader.next(batch);) continue;
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }

  const Runtime runtime_{{}};
  TestFolder folder_;
};

// The dense values of the samples of each batch of an epoch, of all ranks together, each batch in ascending order.
std::vector<std::vector<float>> epoch_of(const Samples& samples, int world, int64_t epoch, int64_t from = 0,
                                         bool shuffle = true) {
  std::vector<std::vector<float>> out;
  for (int rank = 0; rank < world; ++rank) {
    BatchReader reader(samples, {.batch = 64, .rank = rank, .world_size = world, .seed = 5, .shuffle = shuffle});
    reader.start_epoch(epoch);
    reader.seek(from);
    size_t step = 0;
    for (Batch batch; reader.next(batch); ++step) {
      if (out.size() <= step) out.emplace_back();
      const auto values = batch.dense.to_vector<float>(), labels = batch.labels.to_vector<float>();
      const auto lengths = batch.sparse.length_per_key();
      int64_t listed = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(labels[i], static_cast<int64_t>(values[i]) % 2);
        listed += static_cast<int64_t>(values[i]) % 4;
      }
      EXPECT_EQ(lengths[0], std::ssize(values));
      EXPECT_EQ(lengths[1], listed);
      out[step].insert(out[step].end(), values.begin(), values.end());
    }
  }
  for (auto& batch : out) std::sort(batch.begin(), batch.end());
  return out;
}

std::vector<float> joined(const std::vector<std::vector<float>>& batches) {
  std::vector<float> out;
  for (const auto& batch : batches) out.insert(out.end(), batch.begin(), batch.end());
  return out;
}

TEST_F(CsvData, StreamsAreTheSameOnAnyNumberOfRanks) {
  constexpr int64_t kRows = 20000;
  folder_.write("a.csv", numbered_rows(0, kRows / 2));
  write_gz(folder_.file("b.csv.gz"), numbered_rows(kRows / 2, kRows / 4));
  folder_.write("c.csv", numbered_rows(kRows / 4 * 3, kRows / 4));
  const std::string path = "path = \"" + folder_.file("") + "\"\n";
  const Dataset kept = read(path, kNumbered), set = read(path + "buffer_mib = 0.2\n", kNumbered);
  EXPECT_TRUE(kept.train.kept);
  ASSERT_TRUE(set.train.streamed);
  EXPECT_EQ(set.train_rows(), kRows / 10 * 9);
  EXPECT_EQ(set.test_rows(), kRows / 10);
  EXPECT_EQ(set.columns[1].pooling, "mean");

  const auto alone = epoch_of(set.train, 1, 0);
  EXPECT_EQ(std::ssize(alone), (set.train_rows() + 63) / 64);
  for (size_t i = 0; i + 2 < alone.size(); ++i) EXPECT_EQ(alone[i].size(), 64u);
  EXPECT_EQ(epoch_of(set.train, 3, 0), alone);
  const std::vector<std::vector<float>> rest(alone.begin() + 170, alone.end());
  EXPECT_EQ(epoch_of(set.train, 2, 0, 170), rest);
  std::vector<float> all = joined(alone);
  EXPECT_FALSE(std::is_sorted(all.begin(), all.end()));
  EXPECT_NE(epoch_of(set.train, 2, 1), alone);
  std::sort(all.begin(), all.end());
  for (int64_t i = 0; i < set.train_rows(); ++i) ASSERT_EQ(all[static_cast<size_t>(i)], i);

  const std::vector<float> test = joined(epoch_of(set.test, 1, 0, 0, false));
  EXPECT_TRUE(std::is_sorted(test.begin(), test.end()));
  EXPECT_EQ(test, joined(epoch_of(kept.test, 1, 0, 0, false)));
  EXPECT_EQ(test.front(), static_cast<float>(set.train_rows()));
  EXPECT_GT(Samples(set.train.some()).size(), 1000);
}

TEST_F(CsvData, StreamsAreHeldOut) {
  folder_.write("a.csv", numbered_rows(0, 20000));
  const Dataset set =
      read("buffer_mib = 0.1\ntest_fraction = 0\npath = \"" + folder_.file("a.csv") + "\"\n", kNumbered);
  for (const bool last : {true, false}) {
    const auto [trained, kept] = data::hold_out(set.train, {0.25, last, 1});
    const std::vector<float> back = joined(epoch_of(kept, 1, 0, 0, false));
    EXPECT_NEAR(static_cast<double>(back.size()), 5000, last ? 0 : 2000);
    EXPECT_EQ(last, back.front() == 15000) << "the last ones, or blocks from all over";
    std::vector<float> all = joined(epoch_of(trained, 2, 0));
    all.insert(all.end(), back.begin(), back.end());
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all.size(), 20000u);
    for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<float>(i));
  }
}

constexpr const char* kClicks =
    "click,price,age,film,user,seen,hour\n"
    "3,0,1,Alien,u1,Alien|Brazil|Cube,0.5\n"
    "4,1.718281828,3,Brazil,u2,,7\n"
    "5,-5,,Alien,u3,Cube|Delicatessen,12\n"
    "1,0,5,Eraserhead,u1,Nobody|Alien,\n";

const std::string kTransforms = R"(
test_fraction = 0.25
[model]
embedding_dim = 4
[[table]]
name = "film"
features = ["film", "seen"]
[[column]]
name = "click"
as = "label"
threshold = 4
[[column]]
name = "price"
as = "dense"
transform = "log1p"
[[column]]
name = "age"
as = "dense"
missing = 2
transform = "standardise"
[[column]]
name = "film"
ids = "vocabulary"
[[column]]
name = "seen"
ids = "vocabulary"
separator = "|"
longest = 2
[[column]]
name = "user"
ids = "hash"
rows = 1000
[[column]]
name = "hour"
ids = "bucket"
bounds = [6, 12]
)";

TEST_F(CsvData, Transforms) {
  const std::string path = "path = \"" + folder_.write("a.csv", kClicks) + "\"";
  const Dataset set = read(path, kTransforms);
  ASSERT_EQ(set.columns.size(), 4u);
  EXPECT_EQ(set.columns[0].name, "film");
  EXPECT_EQ(set.columns[0].rows, 5) << "Alien, Brazil, Cube, Delicatessen and all others";
  EXPECT_EQ(set.columns[1].rows, 5) << "one vocabulary a table";
  EXPECT_EQ(set.columns[3].rows, 3);
  EXPECT_THAT(set.dense, ElementsAre("price", "age"));
  Batch batch;
  ASSERT_TRUE(BatchReader(set.train, {.batch = 8}).next(batch));
  EXPECT_THAT(batch.labels.to_vector<float>(), ElementsAre(0, 1, 1));
  const double deviation = std::sqrt(2.0 / 3);  // of 1, 3 and 2, which is missing
  const auto dense = batch.dense.to_vector<float>();
  EXPECT_THAT(dense, ElementsAre(0, FloatNear(static_cast<float>(-1 / deviation), 1e-6f), FloatNear(1, 1e-6f),
                                 FloatNear(static_cast<float>(1 / deviation), 1e-6f), 0, FloatNear(0, 1e-6f)));
  EXPECT_THAT(batch.sparse.lengths().to_vector<int32_t>(), ElementsAre(1, 1, 1, 2, 0, 2, 1, 1, 1, 1, 1, 1));
  auto ids = batch.sparse.values().to_vector<int32_t>();
  ASSERT_EQ(ids.size(), 13u);
  EXPECT_THAT(std::vector<int32_t>(ids.begin(), ids.begin() + 3), ElementsAre(1, 2, 1));
  EXPECT_EQ(ids[3], 2) << "the last two of the list";
  EXPECT_THAT(std::vector<int32_t>(ids.end() - 3, ids.end()), ElementsAre(0, 1, 2));
  EXPECT_NE(ids[7], ids[9]);

  // The test part: a film that was never seen, a person that was, an hour that is missing.
  Batch test;
  ASSERT_TRUE(BatchReader(set.test, {.batch = 8}).next(test));
  EXPECT_THAT(test.sparse.lengths().to_vector<int32_t>(), ElementsAre(1, 2, 1, 0));
  EXPECT_THAT(test.sparse.values().to_vector<int32_t>(), ElementsAre(0, 0, 1, ids[7]));

  // Other data, encoded by what these have taught.
  const std::string other = "path = \"" +
                            folder_.write("b.csv", "hour,user,seen,film,age,price,click\n9,u1,,Cube,2,0,9\n") +
                            "\"\ntest_fraction = 0";
  const Dataset again = read(other, "", set.encoding);
  EXPECT_EQ(again.encoding, set.encoding);
  EXPECT_EQ(again.columns[0].rows, 5);
  Batch one;
  ASSERT_TRUE(BatchReader(again.train, {.batch = 8}).next(one));
  EXPECT_THAT(one.labels.to_vector<float>(), ElementsAre(1));
  EXPECT_THAT(one.sparse.values().to_vector<int32_t>(), ElementsAre(3, ids[7], 1));
}

TEST_F(CsvData, WhatIsWrongIsSaidWithFileRowAndColumn) {
  const std::string file = folder_.file("a.csv"), path = "path = \"" + file + "\"\n";
  const auto with = [&](const std::string& row, double mib = 256) {
    folder_.write("a.csv", numbered_rows(0, 5000) + row + numbered_rows(0, 500).substr(16));
    return error(path + cat("test_fraction = 0\nbuffer_mib = ", mib, "\n"), kNumbered);
  };
  for (const double mib : {256.0, 0.05}) {  // in memory, and streamed
    EXPECT_EQ(with("1,2,1099511627776,\n", mib),
              file + ", row 5001, column \"id\" names row 1099511627776, but its table has 50 rows");
    EXPECT_EQ(with("2,2,1,\n", mib), file +
                                         ", row 5001, column \"click\": the label is 2, but must be 0 or 1; "
                                         "threshold = X makes it 1 from X on");
    EXPECT_EQ(with("1,,1,\n", mib), file +
                                        ", row 5001, column \"x\": the value is missing; missing = X in its "
                                        "[[column]] takes X instead");
    EXPECT_EQ(with("1,2,x,\n", mib), file + ", row 5001, column \"id\": \"x\" is no whole number");
  }
  EXPECT_EQ(error(path, ""),
            "data.reader = \"csv\" needs [[column]]s that say which column is the label, and which are dense or ids: "
            "`tessera data describe " +
                file + "` writes them");
  EXPECT_EQ(error(path, "[[column]]\nname = \"id\"\nrows = 50\n"),
            "0 columns are as = \"label\", but a model here has one label");
  const std::string label = "[[column]]\nname = \"click\"\nas = \"label\"\n";
  EXPECT_EQ(error(path, label), "no [[column]] is as = \"ids\": there is nothing to look up");
  EXPECT_EQ(error(path, label + "[[column]]\nname = \"id\"\n"),
            "[[column]] \"id\" says no rows, nor does a [[table]] that reads it: its ids are rows 0 to rows - 1");
  EXPECT_EQ(error(path, label + "[[column]]\nname = \"idd\"\nrows = 5\n"),
            file + " has no column \"idd\"; the nearest is \"id\"");
  EXPECT_EQ(error(path, label + "rows = 3\n"),
            "[[column]] \"click\" is the label, so its \"rows\" has no effect: leave it out");
}

// A click follows from the person's and the film's names, and a number.
std::string clicks(int rows) {
  std::string out = "click,price,person,film\n";
  uint32_t random = 1;
  for (int i = 0; i < rows; ++i) {
    const auto below = [&](uint32_t n) { return ((random = random * 1664525u + 1013904223u) >> 16) % n; };
    const uint32_t person = below(40), film = below(25), price = below(10);
    out += cat((person % 3 + film % 4 + price / 5) > 3 ? 1 : 0, ",", price, ",person ", person, ",film ", film, "\n");
  }
  return out;
}

const std::string kJob = R"(
[job]
device = "cpu"
threads = 1
[comm]
backend = "tcp"
[model]
embedding_dim = 8
bottom_mlp = [8]
top_mlp = [16, 1]
[data]
reader = "csv"
batch = 64
epochs = 2
[[column]]
name = "click"
as = "label"
[[column]]
name = "price"
as = "dense"
transform = ["log1p", "standardise"]
[[column]]
name = ["person", "film"]
ids = "vocabulary"
)";

TEST(CsvJob, TrainsStreamsResumesQuantizesAndPredicts) {
  const TestFolder folder;
  const std::string data = folder.write("clicks.csv", clicks(6000)), config = folder.write("job.toml", kJob);
  const std::string report = folder.file("report.json"), saved = folder.file("saved"), model = folder.file("model");
  const auto train = [&](std::vector<std::string> more) {
    std::vector<std::string> args = {"train",
                                     "--config",
                                     config,
                                     "--set",
                                     "data.path=" + data,
                                     "--set",
                                     "report.json=" + report,
                                     "--set",
                                     "data.buffer_mib=0.05"};
    args.insert(args.end(), more.begin(), more.end());
    const Finished done = run_tessera(args);
    EXPECT_EQ(done.status, 0) << done.output;
    return nlohmann::json::parse(contents(report));
  };
  const auto losses = [](const nlohmann::json& of) { return of.at("losses").get<std::vector<double>>(); };
  const nlohmann::json alone = train({"--nproc", "1"});
  EXPECT_GT(alone.at("test").at("auc").get<double>(), 0.9);
  const std::vector<double> whole = losses(alone);
  ASSERT_EQ(whole.size(), 170u);
  train({"--nproc", "2", "--max-steps", "100", "--save", saved});  // in the second epoch
  const nlohmann::json resumed = train({"--nproc", "3", "--load", saved, "--save", folder.file("end")});
  const std::vector<double> rest = losses(resumed);
  ASSERT_EQ(rest.size(), 70u);
  for (size_t i = 0; i < rest.size(); ++i) EXPECT_NEAR(rest[i], whole[100 + i], 1e-4 * (1 + whole[100 + i])) << i;

  const Finished packed = run_tessera({"quantize", "--load", folder.file("end"), "--save", model, "--weights", "fp32",
                                       "--config", config, "--set", "data.path=" + data});
  ASSERT_EQ(packed.status, 0) << packed.output;
  const std::string auc = cat("AUC ", resumed.at("test").at("auc").get<double>()).substr(0, 9);
  EXPECT_THAT(packed.output, HasSubstr(auc));
  // The model knows its columns: texts, in another order, one of which nobody has seen.
  const std::string asked =
      folder.write("ask.csv", "film,click,person,price\nfilm 3,1,person 2,9\nfilm 0,0,nobody,0\n");
  const Finished scored = run_tessera({"predict", "--model", model, "--data", asked});
  ASSERT_EQ(scored.status, 0) << scored.output;
  EXPECT_THAT(scored.output, HasSubstr("row,label,score\n0,1,0.9"));
  EXPECT_THAT(scored.output, HasSubstr("\n1,0,0.0"));
}

TEST(CsvJob, DescribedByLookingAtTheFile) {
  const TestFolder folder;
  std::string text = clicks(3000);  // and a list, a number with many values, a text of its own in each row
  std::string data = "label,\"weight, kg\",session,tags,person,film,price\n";
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  for (int i = 0; std::getline(lines, line); ++i) {
    std::istringstream fields(line);
    std::string click, price, person, film;
    std::getline(std::getline(std::getline(std::getline(fields, click, ','), price, ','), person, ','), film);
    data += cat(click, ",", i % 7 ? cat(i * 37 % 1000, ".5") : "", ",s", i, ",", i % 3 ? "new|cheap" : "old|new", ",",
                person, ",", film, ",", price, "\n");
  }
  const std::string path = folder.write("clicks.csv", data), job = folder.file("job.toml");
  const Finished described = run_tessera({"data", "describe", path, "--output", job});
  ASSERT_EQ(described.status, 0) << described.output;
  const Config config = load_config(job);
  std::map<std::string, ColumnConfig> columns;
  for (const ColumnConfig& c : config.columns) columns[c.name.at(0)] = c;
  ASSERT_EQ(columns.size(), 6u);
  EXPECT_EQ(columns.at("label").as, "label");
  EXPECT_FALSE(columns.at("label").threshold);
  EXPECT_EQ(columns.at("weight, kg").as, "dense");
  EXPECT_EQ(columns.at("weight, kg").missing, 0);
  EXPECT_EQ(columns.at("tags").separator, "|");
  EXPECT_EQ(columns.at("person").ids, "vocabulary");
  EXPECT_EQ(columns.at("person").separator, "") << "two words are a name here, and no list";
  EXPECT_EQ(columns.at("price").ids, "vocabulary") << "ten values: a category";
  EXPECT_FALSE(columns.contains("session")) << "every row has another one";
  EXPECT_THAT(contents(job), HasSubstr("# left out, as nearly every row has another one: \"session\""));

  const std::string report = folder.file("report.json");
  const Finished trained = run_tessera({"train", "--config", job, "--set", "job.device=cpu", "--set", "data.epochs=4",
                                        "--set", "data.batch=64", "--set", "report.json=" + report});
  ASSERT_EQ(trained.status, 0) << trained.output;
  EXPECT_GT(nlohmann::json::parse(contents(report)).at("test").at("auc").get<double>(), 0.8);
  const Finished again = run_tessera({"data", "describe", path, "--output", job});
  EXPECT_EQ(again.status, 1);
  EXPECT_THAT(again.output, HasSubstr(job + " exists: write to another file, or remove it first"));
  const Finished wrong = run_tessera({"data", "describe", path, "--label", "film"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.output,
              HasSubstr("there is no column \"film\" of numbers: --label NAME says which one of label, "));
}

TEST(CsvJob, TheExampleTrains) {
  const TestFolder folder;
  const std::string report = folder.file("report.json");
  const std::string configs = std::string(TESSERA_SOURCE_DIR) + "/configs/";
  const Finished done = run_tessera({"train", "--config", configs + "films.toml", "--set",
                                     "data.path=" + configs + "films.csv", "--set", "report.json=" + report});
  ASSERT_EQ(done.status, 0) << done.output;
  EXPECT_GT(nlohmann::json::parse(contents(report)).at("test").at("auc").get<double>(), 0.8);
}

}  // namespace
}  // namespace tessera::test
