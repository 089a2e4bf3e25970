// Samples made of the columns of files by the reader plugin csv: in memory, and in streams that are read anew in each
// epoch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include "config/test_refusal.h"
#include "data/hold_out.h"
#include "data/test_files.h"
#include "tessera/data.h"
#include "tessera/runtime.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;

// Row i has the dense value i, the id i % 50 and, in a list, the ids of [0, i % 4).
std::string numbered_rows(int64_t first, int64_t rows) {
  std::string out = "click,x,id,list\n";
  for (int64_t i = first; i < first + rows; ++i) {
    out += str_cat(i % 2, ",", i, ",", i % 50, ",");
    for (int64_t k = 0; k < i % 4; ++k) out += str_cat(k ? " " : "", k);
    out += "\n";
  }
  return out;
}

const std::string kNumbered = R"(
column = [
  {name = "click", as = "label"},
  {name = "x", as = "dense"},
  {name = "id", rows = 50},
  {name = "list", rows = 4, separator = " ", pooling = "mean"}]
)";

class CsvData : public testing::Test {
 protected:
  Dataset read(const std::string& data, const std::string& columns, const std::string& encoding = "") {
    return read_dataset(runtime_, parse_config(columns + "[data]\nreader = \"csv\"\n" + data, "job.toml"), encoding);
  }
  std::string error(const std::string& data, const std::string& columns) {
    return test::refusal([&] {
      Dataset set = read(data, columns);
      set.require_known_ids();
      BatchReader reader(set.train, {});
      for (Batch batch; reader.next(batch);) continue;
    });
  }

  const Runtime runtime_{{.plugin_path = {TESSERA_PLUGINS_BUILT}, .default_path = false}};
  data::TestDirectory folder_;
};

// The dense values of the samples in each batch of an epoch, over all ranks, ascending within a batch.
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
  data::write_gz(folder_, "b.csv.gz", numbered_rows(kRows / 2, kRows / 4));
  folder_.write("c.csv", numbered_rows(kRows / 4 * 3, kRows / 4));
  const std::string path = "path = \"" + folder_.file("") + "\"\ntest = \"last\"\n";
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

// Ranks' threads read ahead from one component, independently of each other.
TEST_F(CsvData, StreamsAreReadByThreadsAtOnce) {
  constexpr int64_t kRows = 6000;
  folder_.write("a.csv", numbered_rows(0, kRows));
  const Dataset set =
      read("buffer_mib = 0.05\ntest_fraction = 0\npath = \"" + folder_.file("a.csv") + "\"\n", kNumbered);
  std::vector<std::vector<float>> seen(3);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      BatchReader reader(set.train, {.batch = 64, .rank = rank, .world_size = 3, .seed = 5, .shuffle = true});
      for (Batch batch; reader.next(batch);) {
        const auto values = batch.dense.to_vector<float>();
        seen[static_cast<size_t>(rank)].insert(seen[static_cast<size_t>(rank)].end(), values.begin(), values.end());
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  std::vector<float> all = joined(seen);
  std::sort(all.begin(), all.end());
  ASSERT_EQ(std::ssize(all), kRows);
  for (int64_t i = 0; i < kRows; ++i) ASSERT_EQ(all[static_cast<size_t>(i)], static_cast<float>(i));
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
model = {embedding_dim = 4}
table = [{name = "film", features = ["film", "seen"]}]
column = [
  {name = "click", as = "label", threshold = 4},
  {name = "price", as = "dense", transform = "log1p"},
  {name = "age", as = "dense", missing = 2, transform = "standardise"},
  {name = "film", ids = "vocabulary"},
  {name = "seen", ids = "vocabulary", separator = "|", longest = 2},
  {name = "user", ids = "hash", rows = 1000},
  {name = "hour", ids = "bucket", bounds = [6, 12]}]
)";
const std::string kLastFourth = "\ntest = \"last\"\ntest_fraction = 0.25\n";

TEST_F(CsvData, Transforms) {
  const std::string path = "path = \"" + folder_.write("a.csv", kClicks) + "\"" + kLastFourth;
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
  const double deviation = std::sqrt(2.0 / 3);  // of 1, 3 and 2; the missing value becomes 2
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

  // The test rows: a new film, a known person, a missing hour.
  Batch test;
  ASSERT_TRUE(BatchReader(set.test, {.batch = 8}).next(test));
  EXPECT_THAT(test.sparse.lengths().to_vector<int32_t>(), ElementsAre(1, 2, 1, 0));
  EXPECT_THAT(test.sparse.values().to_vector<int32_t>(), ElementsAre(0, 0, 1, ids[7]));

  // Other data, encoded with what these rows have taught.
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

TEST_F(CsvData, AnyIdEndsBelowTheLargestNumber) {
  const std::string columns = R"(
column = [{name = "click", as = "label"}, {name = "id", as = "ids"}]
table = [{name = "id", any_id = true, rows = 50}]
)";
  const auto with = [&](const char* id) {
    const std::string file = folder_.write("any.csv", str_cat("click,id\n1,7\n0,", id, "\n"));
    const std::string said = error("path = \"" + file + "\"\ntest_fraction = 0\n", columns);
    return said.starts_with(file) ? said.substr(file.size()) : said;
  };
  EXPECT_EQ(with("9223372036854775806"), "no error");
  const std::string says = ", but ids are 0 to 9223372036854775806";
  EXPECT_EQ(with("9223372036854775807"), ", row 2, column \"id\" has the id 9223372036854775807" + says);
  EXPECT_EQ(with("-1"), ", row 2, column \"id\" has the id -1" + says);
  EXPECT_EQ(with("9223372036854775808"),
            ", row 2, column \"id\": \"9223372036854775808\" does not fit into 64 bits with a sign; ids = "
            "\"vocabulary\" or \"hash\" takes such ids");
}

TEST_F(CsvData, WhatIsWrongIsSaidWithFileRowAndColumn) {
  const std::string file = folder_.file("a.csv"), path = "path = \"" + file + "\"\n";
  const auto with = [&](const std::string& row, double mib = 256) {
    folder_.write("a.csv", numbered_rows(0, 5000) + row + numbered_rows(0, 500).substr(16));
    return error(path + str_cat("test_fraction = 0\nbuffer_mib = ", mib, "\n"), kNumbered);
  };
  for (const double mib : {256.0, 0.05}) {  // in memory, and streamed
    EXPECT_EQ(with("1,2,1099511627776,\n", mib),
              file + ", row 5001, column \"id\" names row 1099511627776, but its table has 50 rows");
    EXPECT_EQ(with("2,2,1,\n", mib),
              file +
                  ", row 5001, column \"click\": the label is 2, but must be 0 or 1; "
                  "threshold = X makes it 1 from X on, positive = \"X\" makes X 1 and all others 0, and "
                  "real = true takes any number");
    EXPECT_EQ(with("1,,1,\n", mib), file +
                                        ", row 5001, column \"x\": the value is missing; set missing in its "
                                        "[[column]] to a number, or to \"mean\", to use that instead");
    EXPECT_EQ(with("1,2,x,\n", mib), file + ", row 5001, column \"id\": \"x\" is not a whole number");
  }
  EXPECT_EQ(error(path, ""),
            "data.reader = \"csv\" needs [[column]]s that say which column is the label, and which are dense or ids: "
            "`tessera data describe " +
                file + "` writes them");
  EXPECT_EQ(error(path, "[[column]]\nname = \"id\"\nrows = 50\n"),
            "no column is the label: set as = \"label\" in the [[column]] to predict");
  const std::string label = "[[column]]\nname = \"click\"\nas = \"label\"\n";
  EXPECT_EQ(error(path, label), "no [[column]] is as = \"ids\": there is nothing to look up");
  EXPECT_EQ(error(path, label + "[[column]]\nname = \"id\"\n"),
            "[[column]] \"id\" says no rows, nor does a [[table]] that reads it: its ids are rows 0 to rows - 1");
  EXPECT_EQ(error(path, label + "[[column]]\nname = \"id\"\nids = \"vocabulary\"\nrows = 5\n"),
            "[[column]] \"id\" has rows = 5, but a vocabulary has a row for each text of the training rows: leave rows "
            "out; min_count leaves out rare texts, and ids = \"hash\" takes rows");
  EXPECT_EQ(error(path, label + "[[column]]\nname = \"idd\"\nrows = 5\n"),
            file + " has no column \"idd\"; the nearest is \"id\", and there are \"id\", \"x\", \"list\", \"click\"");
  EXPECT_THAT(error(path, label + "[[column]]\nname = \"id\"\nrows = 99\nlongest = 2\n"),
              HasSubstr("the files have one value in each row, so its \"longest\" has no effect: set separator"));
  EXPECT_THAT(error(path, label + "[[column]]\nname = \"id\"\nrows = 99\nweighted = true\n"),
              HasSubstr("its \"weighted\" has no effect"));
  EXPECT_EQ(error(path, label + "rows = 3\n"),
            "[[column]] \"click\" is a label, so its \"rows\" has no effect: leave it out");
}

// Rows whose values are (i * 7) % n in the order of i; sorted, they count up.
TEST_F(CsvData, RowsComeInTheOrderOfAColumn) {
  constexpr int64_t kRows = 1000;
  const auto rows = [&](const auto& time_of) {
    std::string text = "click,x,id,list,at\n";
    for (int64_t i = 0; i < kRows; ++i) {
      const int64_t x = i * 7 % kRows;
      text += str_cat(x % 2, ",", x, ",", x % 50, ",", x % 4 > 0 ? "1" : "", x % 4 > 1 ? " 2" : "",
                      x % 4 > 2 ? " 3" : "", ",", time_of(x), "\n");
    }
    return text;
  };
  const auto day = [](int64_t x) { return str_cat("2026-", 10 + x / 100, "-", 10 + x / 10 % 10, "T1", x % 10); };
  const std::string path = "path = \"" + folder_.file("a.csv") + "\"\norder_by = \"at\"\ntest_fraction = 0.2\n";
  std::vector<float> up(800), rest(200);
  std::iota(up.begin(), up.end(), 0.0f);
  std::iota(rest.begin(), rest.end(), 800.0f);
  const auto number = [](int64_t x) { return str_cat(x * 1e6 - 3e8); };
  const auto padded = [](int64_t x) { return str_cat(x % 2 == 0 ? " " : " +", x, " "); };
  for (const std::string& text : {rows(day), rows(number), rows(padded)}) {
    folder_.write("a.csv", text);
    const Dataset set = read(path, kNumbered);
    EXPECT_EQ(joined(epoch_of(set.train, 1, 0, 0, false)), up) << text.substr(0, 60);
    EXPECT_EQ(joined(epoch_of(set.test, 2, 0, 0, false)), rest) << text.substr(0, 60);
  }
  EXPECT_EQ(error(path + "buffer_mib = 0.02\n", kNumbered),
            folder_.file("a.csv") +
                ", row 144, column \"at\": the value is less than that of the row before, but streamed data must be "
                "in the order of data.order_by; raise data.buffer_mib above the size of the data, or sort the files");
  folder_.write("a.csv", rows([](int64_t x) { return x == 7 ? std::string("noon") : str_cat(x); }));
  EXPECT_EQ(error(path, kNumbered), folder_.file("a.csv") +
                                        ", row 2, column \"at\": \"noon\" is not a number to order by, but the "
                                        "first value is one");
  folder_.write("a.csv", rows([](int64_t x) { return x == 14 ? std::string() : str_cat(x); }));
  EXPECT_EQ(error(path, kNumbered), folder_.file("a.csv") + ", row 3, column \"at\": there is no value to order by");
  folder_.write("a.csv", rows([](int64_t x) { return x == 0 ? std::string("NA") : str_cat(x); }));
  EXPECT_EQ(error(path, kNumbered), folder_.file("a.csv") + ", row 1, column \"at\": there is no value to order by");
  folder_.write("a.csv", rows([](int64_t x) { return x == 0 ? std::string("start") : str_cat(x); }));
  EXPECT_THAT(error(path, kNumbered),
              HasSubstr("has no place after \"start\", the first value, which is not a number"));
  folder_.write("a.csv", rows([](int64_t x) { return str_cat("$", x); }));
  EXPECT_THAT(error(path, kNumbered), HasSubstr("looks like a number, but data.order_by would sort it as text"));
}

// Dates that would sort by their day are refused, or read by the format of their column.
TEST_F(CsvData, OtherDatesAreOrderedByTheirFormat) {
  const std::string path = "path = \"" + folder_.file("a.csv") + "\"\norder_by = \"at\"\ntest_fraction = 0.25\n";
  folder_.write("a.csv",
                "click,x,id,list,at\n0,3,1,1,02.06.2022\n1,1,1,1,31.05.2022\n0,2,1,1,1.6.2022\n1,4,1,1,01.01.2023\n");
  EXPECT_THAT(
      error(path, kNumbered),
      AllOf(HasSubstr("row 1, column \"at\": \"02.06.2022\" looks like a date, but data.order_by would sort it as "
                      "text"),
            HasSubstr("set time_format of its [[column]]")));
  const std::string day = ", {name = \"at\", as = \"dense\", take = \"weekday\", time_format = \"%d.%m.%Y\"}]\n";
  const Dataset set = read(path, kNumbered.substr(0, kNumbered.rfind(']')) + day);
  BatchReader reader(set.train, {.batch = 1, .rank = 0, .world_size = 1, .seed = 5, .shuffle = false});
  reader.start_epoch(0);
  std::vector<float> x;  // the first dense value; the second one is the weekday
  for (Batch batch; reader.next(batch);) x.push_back(batch.dense.to_vector<float>()[0]);
  EXPECT_THAT(x, ElementsAre(1, 2, 3));
  folder_.write("a.csv", "click,x,id,list,at\n0,3,1,1,5 May 2022\n1,1,1,1,31 May 2022\n");
  EXPECT_THAT(error(path, kNumbered), HasSubstr("\"5 May 2022\" looks like a date"));
}

// Occurrences are counted over all columns of a table and only over training rows; the others keep their order.
TEST_F(CsvData, RareTextsAreAsUnseenOnes) {
  const std::string path = "path = \"" +
                           folder_.write("a.csv",
                                         "click,x,film,seen\n1,0,Rare,Alien|Cube\n0,0,Alien,\n"
                                         "1,0,Cube,Cube\n0,0,Brazil,Late\n0,0,Late,Brazil\n") +
                           "\"\ntest = \"last\"\ntest_fraction = 0.2\n";
  const std::string columns = R"(
table = [{name = "films", features = ["film", "seen"]}]
column = [
  {name = "click", as = "label"},
  {name = "x", as = "dense"},
  {name = ["film", "seen"], ids = "vocabulary", separator = "|", min_count = 2}]
)";
  const Dataset set = read(path, columns);
  EXPECT_EQ(set.columns[0].rows, 3) << "Alien and Cube; Brazil and Late come in the test rows again";
  Batch batch;
  ASSERT_TRUE(BatchReader(set.train, {.batch = 8}).next(batch));
  EXPECT_THAT(batch.sparse.values().to_vector<int32_t>(), ElementsAre(0, 1, 2, 0, 1, 2, 2, 0));
  const Dataset again = read(path, "", set.encoding);
  Batch test;
  ASSERT_TRUE(BatchReader(again.test, {.batch = 8}).next(test));
  EXPECT_THAT(test.sparse.values().to_vector<int32_t>(), ElementsAre(0, 0)) << "as a model's requests are encoded";
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string out = columns;
    return out.replace(out.find(from), from.size(), to);
  };
  EXPECT_THAT(error(path, replaced("{name = [\"film\", \"seen\"]",
                                   "{name = \"seen\", ids = \"vocabulary\"}, {name = \"film\"")),
              HasSubstr("share the vocabulary of table \"films\", but min_count is"));
  EXPECT_THAT(error(path, replaced("ids = \"vocabulary\"", "ids = \"hash\", rows = 9")),
              HasSubstr("has a min_count, which needs ids = \"vocabulary\""));
}

// Files that are each in order, named in another order: streamed, with a vocabulary of the training rows only.
TEST_F(CsvData, FilesComeInTheOrderOfAColumn) {
  const auto write = [&](const std::string& name, int64_t from) {
    std::string text = "click,x,word\n";
    for (int64_t i = from; i < from + 1000; ++i) text += str_cat(i % 2, ",", i, ",w", i / 10, "\n");
    folder_.write(name, text);
  };
  write("a.csv", 2000), write("b.csv", 0), write("c.csv", 1000);
  const std::string columns =
      "[[column]]\nname = \"click\"\nas = \"label\"\n[[column]]\nname = \"x\"\nas = \"dense\"\n[[column]]\nname = "
      "\"word\"\nids = \"vocabulary\"\n";
  for (const double mib : {256.0, 0.05}) {
    const Dataset set = read("path = \"" + folder_.file("") + "\"\norder_by = \"x\"\ntest_fraction = 0.1\n" +
                                 str_cat("buffer_mib = ", mib, "\n"),
                             columns + "[validation]\nfraction = 0.5\nsplit = \"last\"\n");
    EXPECT_EQ(set.train.streamed != nullptr, mib < 1);
    EXPECT_EQ(set.columns[0].rows, 136) << "1350 rows teach";
    std::vector<float> seen;
    BatchReader reader(set.train, {.batch = 100});
    for (Batch batch; reader.next(batch);) {
      const auto x = batch.dense.to_vector<float>();
      seen.insert(seen.end(), x.begin(), x.end());
    }
    ASSERT_EQ(seen.size(), 2700u);
    for (size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], static_cast<float>(i));
  }
  write("d.csv", 500);
  EXPECT_THAT(error("path = \"" + folder_.file("") + "\"\norder_by = \"x\"\nbuffer_mib = 0.05\n", columns),
              HasSubstr("streamed files must not overlap"));
}

TEST_F(CsvData, LearnsNothingFromWhatValidationKeepsBack) {
  std::string text = "click,x,word\n";
  for (int i = 0; i < 4000; ++i) text += str_cat(i % 2, ",", i < 3000 ? 1 : 101, ",w", i / 10, "\n");
  const std::string columns =
      "[[column]]\nname = \"click\"\nas = \"label\"\n[[column]]\nname = \"x\"\nas = \"dense\"\ntransform = "
      "\"standardise\"\n[[column]]\nname = \"word\"\nids = \"vocabulary\"\n";
  const std::string path = "path = \"" + folder_.write("a.csv", text) + "\"\ntest_fraction = 0\n";
  for (const double mib : {256.0, 0.05}) {
    const std::string data = path + str_cat("buffer_mib = ", mib, "\n");
    EXPECT_EQ(read(data, columns).columns[0].rows, 401);
    const Dataset last = read(data + "[validation]\nfraction = 0.25\nsplit = \"last\"\n", columns);
    EXPECT_EQ(last.columns[0].rows, 301) << "the words of the first 3000 rows, and all others";
    Batch batch;
    ASSERT_TRUE(BatchReader(last.train, {.batch = 8}).next(batch));
    EXPECT_EQ(batch.dense.to_vector<float>()[0], 0) << "the mean of the rows that are trained on is 1";

    const Dataset random = read(data + "[validation]\nfraction = 0.5\n", columns);
    const Samples kept = data::hold_out(random.train, {0.5, false, 1}).first;
    std::vector<bool> trained(static_cast<size_t>(random.columns[0].rows), false);
    BatchReader reader(kept, {.batch = 64});
    while (reader.next(batch)) {
      for (const int32_t id : batch.sparse.values().to_vector<int32_t>()) trained[static_cast<size_t>(id)] = true;
    }
    EXPECT_FALSE(trained[0]) << "nothing of what is trained on is unknown";
    EXPECT_EQ(std::count(trained.begin() + 1, trained.end(), false), 0) << "and nothing else is known";
  }
}

TEST_F(CsvData, CrossesAndWeights) {
  const std::string text =
      "click,hour,film,seen\n1,3,Alien,1:0.5 2:2\n0,9,Alien,\n1,3,Brazil,2:1\n0,,Alien,0:-1\n1,3,Alien,1:1\n";
  const std::string path = "path = \"" + folder_.write("a.csv", text) + "\"\ntest_fraction = 0\n";
  const std::string columns = R"(
[[column]]
name = "click"
as = "label"
[[column]]
name = "hour"
ids = "bucket"
bounds = [6]
[[column]]
name = "film"
ids = "vocabulary"
[[column]]
name = "seen"
rows = 3
separator = " "
weighted = true
)";
  const std::string cross = "[[column]]\nname = \"both\"\ncross = [\"hour\", \"film\"]\nrows = 1000000\n";
  const std::string listed = "[[column]]\nname = \"all\"\ncross = [\"seen\", \"film\"]\nrows = 1000000\nlongest = 1\n";
  const Dataset set = read(path, columns + cross + listed);
  EXPECT_TRUE(set.columns[2].weighted);
  EXPECT_EQ(set.columns[3].rows, 1000000);
  Batch batch;
  ASSERT_TRUE(BatchReader(set.train, {.batch = 8}).next(batch));
  EXPECT_THAT(batch.sparse.lengths().to_vector<int32_t>(), ElementsAre(1, 1, 1, 0, 1, /**/ 1, 1, 1, 1, 1, /**/ 2, 0, 1,
                                                                       1, 1, /**/ 1, 1, 1, 0, 1, /**/ 1, 0, 1, 1, 1));
  const auto ids = batch.sparse.values().to_vector<int32_t>();
  const std::vector<int32_t> both(ids.begin() + 14, ids.begin() + 18);
  EXPECT_EQ(both[0], both[3]) << "the same hour and film";
  EXPECT_NE(both[0], both[1]);
  EXPECT_NE(both[0], both[2]);
  EXPECT_NE(ids[18], ids[21]) << "Alien with film 2, the last, and with film 1";
  const auto weights = batch.sparse.weights().to_vector<float>();
  ASSERT_EQ(weights.size(), ids.size());
  EXPECT_THAT(std::vector<float>(weights.begin() + 9, weights.begin() + 14), ElementsAre(0.5f, 2, 1, -1, 1));
  EXPECT_EQ(std::count(weights.begin() + 14, weights.end(), 1.0f), std::ssize(weights) - 14) << "others weigh 1";
  const auto kept = data::hold_out(set.train, {0.4, true, 1}).second;
  ASSERT_TRUE(BatchReader(kept, {.batch = 8}).next(batch));
  EXPECT_THAT(batch.sparse.weights().to_vector<float>(), ElementsAre(1, 1, 1, -1, 1, 1, 1, 1));
  EXPECT_EQ(read(path, "", set.encoding).encoding, set.encoding);

  const auto wrong = [&](const std::string& more) { return error(path, columns + more); };
  EXPECT_EQ(wrong("[[column]]\nname = \"c\"\ncross = [\"hour\", \"fylm\"]\nrows = 9\n"),
            "[[column]] \"c\" is a cross of \"fylm\", which is not a [[column]] of ids of the files");
  EXPECT_EQ(wrong("[[column]]\nname = \"c\"\ncross = [\"hour\"]\nrows = 9\n"),
            "[[column]] \"c\" is a cross of one column: name two or more");
  EXPECT_EQ(wrong("[[column]]\nname = \"c\"\ncross = [\"hour\", \"film\"]\n"),
            "[[column]] \"c\" says no rows, nor does a [[table]] that reads it: its combinations are hashed to rows");
  EXPECT_EQ(wrong("[[column]]\nname = \"c\"\ncross = [\"hour\", \"film\"]\nrows = 9\nids = \"hash\"\n"),
            "[[column]] \"c\" is a cross of others, so its \"ids\" has no effect: leave it out");
  folder_.write("a.csv", "click,hour,film,seen\n1,3,Alien,1:0.5 2\n");
  EXPECT_EQ(wrong(""), folder_.file("a.csv") + ", row 1, column \"seen\": \"2\" has no weight after \":\"");
}

TEST_F(CsvData, AModelsColumnsStayAsTheyWere) {
  const std::string path = "path = \"" + folder_.write("a.csv", kClicks) + "\"" + kLastFourth;
  const std::string encoding = read(path, kTransforms).encoding;
  EXPECT_EQ(read(path, kTransforms, encoding).encoding, encoding);
  const auto with = [&](const std::string& before, const std::string& after) -> std::string {
    std::string changed = kTransforms;
    changed.replace(changed.find(before), before.size(), after);
    return test::refusal([&] { read(path, changed, encoding); });
  };
  const std::string end = "; a model keeps its columns: leave them as they were, or train a new model";
  EXPECT_EQ(with("rows = 1000", "rows = 500"),
            "[[column]] \"user\": rows is 500, but was 1000 when the model was trained" + end);
  EXPECT_EQ(with(", transform = \"log1p\"", ""),
            "[[column]] \"price\": transform is unset, but was [\"log1p\"] when the model was trained" + end);
  EXPECT_EQ(with("longest = 2", "longest = 2, pooling = \"mean\""),
            "[[column]] \"seen\": pooling is \"mean\", but was \"sum\" when the model was trained" + end);
  EXPECT_EQ(with("name = \"hour\"", "name = \"day\""), "[[column]] \"day\" is not a column of the model" + end);
  EXPECT_EQ(with(",\n  {name = \"hour\", ids = \"bucket\", bounds = [6, 12]}", ""),
            "the model was trained with a [[column]] \"hour\", which the config lacks" + end);
}

}  // namespace
}  // namespace tessera
