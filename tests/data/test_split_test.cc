// Tests which rows are test rows (data.test), through the reader plugin csv, in memory and in streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "config/test_refusal.h"
#include "data/hold_out.h"
#include "data/test_files.h"
#include "tessera/data.h"
#include "tessera/runtime.h"

namespace tessera {
namespace {

using testing::HasSubstr;

// The dense values, in the order of the samples.
std::vector<int64_t> values_of(const Samples& samples, int world = 1) {
  std::vector<int64_t> out;
  for (int rank = 0; rank < world; ++rank) {
    BatchReader reader(samples, {.batch = 64, .rank = rank, .world_size = world});
    for (Batch batch; reader.next(batch);) {
      for (const float x : batch.dense.to_vector<float>()) out.push_back(static_cast<int64_t>(x));
    }
  }
  return out;
}

std::vector<int64_t> counted(int64_t first, int64_t end) {
  std::vector<int64_t> out(static_cast<size_t>(end - first));
  std::iota(out.begin(), out.end(), first);
  return out;
}

class DataTestSplit : public testing::Test {
 protected:
  static constexpr int64_t kRows = 6000;

  // Row i has the dense value i and, as a word, the number of ten rows; `time` makes its column "at".
  std::string file(
      const std::string& name, int64_t first, int64_t end,
      const std::function<std::string(int64_t)>& time = [](int64_t i) { return str_cat(i); }) {
    std::string text = "click,x,word,list,at\n";
    for (int64_t i = first; i < end; ++i)
      text += str_cat(i % 2, ",", i, ",w", i / 10, ",", i % 3 == 0 ? "1 2" : "", ",", time(i), "\n");
    return folder_.write(name, text);
  }
  Dataset read(const std::string& data, const std::string& more = "") {
    const std::string columns = R"(
column = [
  {name = "click", as = "label"},
  {name = "x", as = "dense"},
  {name = "word", ids = "vocabulary"},
  {name = "list", rows = 3, separator = " "}]
)";
    return read_dataset(runtime_, parse_config(columns + "[data]\nreader = \"csv\"\n" + data + more, "job.toml"));
  }
  std::string error(const std::string& data) {
    return test::refusal([&] { (void)read(data); });
  }
  static std::string keys(const std::string& path, const std::string& more, double mib = 256) {
    return str_cat("path = \"", path, "\"\n", more, "\nbuffer_mib = ", mib, "\n");
  }

  const Runtime runtime_{{.plugin_path = {TESSERA_PLUGINS_BUILT}, .default_path = false}};
  const data::TestDirectory folder_;
};

TEST_F(DataTestSplit, RandomRowsAreTheSameInMemoryAndStreamed) {
  file("a.csv", 0, kRows / 2);
  file("b.csv", kRows / 2, kRows);
  const Dataset kept = read(keys(folder_.path(), "test_fraction = 0.2"));
  EXPECT_EQ(kept.test_split, "20 % of the rows, random");
  EXPECT_FALSE(kept.test_is_last);
  const std::vector<int64_t> test = values_of(kept.test), train = values_of(kept.train);
  EXPECT_NEAR(static_cast<double>(test.size()), 0.2 * kRows, 150);
  EXPECT_TRUE(std::is_sorted(test.begin(), test.end()));
  EXPECT_TRUE(std::is_sorted(train.begin(), train.end()));
  EXPECT_LT(test.front(), 100);
  EXPECT_GT(test.back(), kRows - 100);
  std::vector<int64_t> all = train;
  all.insert(all.end(), test.begin(), test.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, counted(0, kRows));

  for (const double mib : {0.05, 0.02}) {  // with different blocks
    const Dataset set = read(keys(folder_.path(), "test = \"random\"\ntest_fraction = 0.2", mib));
    ASSERT_TRUE(set.train.streamed);
    EXPECT_EQ(set.test_rows(), kept.test_rows());
    EXPECT_EQ(values_of(set.test), test);
    EXPECT_EQ(values_of(set.train), train);
    std::vector<int64_t> of_ranks = values_of(set.train, 3);
    std::sort(of_ranks.begin(), of_ranks.end());
    EXPECT_EQ(of_ranks, train) << "each rank drops the test rows of its own blocks";
  }
  EXPECT_NE(values_of(read(keys(folder_.path(), "test_fraction = 0.2"), "[job]\nseed = 2\n").test), test);
  const std::vector<int64_t> fewer = values_of(read(keys(folder_.path(), "test_fraction = 0.2\nlimit = 1000")).test);
  EXPECT_TRUE(std::equal(fewer.begin(), fewer.end(), test.begin())) << "rows keep their numbers";
}

// Rows are ordered for training; the test rows are the same as without an order.
TEST_F(DataTestSplit, RandomRowsOfOrderedData) {
  const std::string path = file("a.csv", 0, kRows, [](int64_t i) { return str_cat(-i); });
  const std::string split = "test = \"random\"\ntest_fraction = 0.25\n";
  const Dataset plain = read(keys(path, split)), ordered = read(keys(path, split + "order_by = \"at\""));
  for (const auto& [from, to] : {std::pair(plain.train, ordered.train), std::pair(plain.test, ordered.test)}) {
    std::vector<int64_t> backwards = values_of(from);
    std::reverse(backwards.begin(), backwards.end());
    EXPECT_EQ(values_of(to), backwards);
  }
}

TEST_F(DataTestSplit, NothingIsLearnedFromTestRows) {
  const std::string path = file("a.csv", 0, kRows);
  const auto newest = [](int64_t i) { return str_cat(i < 300 ? 10 * kRows + i : i); };
  const std::string times = file("t.csv", 0, kRows, newest);
  for (const double mib : {256.0, 0.05}) {
    for (const std::string& data :
         {keys(path, "test_fraction = 0.9", mib), keys(path, "test = \"last\"\ntest_fraction = 0.9", mib),
          keys(times, "test = \"time:at\"\ntest_fraction = 0.9"),
          keys(times, "test = \"random\"\norder_by = \"at\"\ntest_fraction = 0.9")}) {
      for (const char* validation :
           {"", "[validation]\nfraction = 0.5\n", "[validation]\nfraction = 0.5\nsplit = \"last\"\n"}) {
        const Dataset set = read(data, validation);
        Samples trained = set.train;
        if (*validation != '\0')
          trained =
              data::hold_out(set.train, {0.5, std::string(validation).find("last") != std::string::npos, 1}).first;
        std::set<int64_t> words;
        for (const int64_t x : values_of(trained)) words.insert(x / 10);
        EXPECT_EQ(set.columns[0].rows, std::ssize(words) + 1) << data << validation;
        EXPECT_LT(words.size(), 600U);
      }
    }
  }
}

TEST_F(DataTestSplit, LastRowsAndOtherFiles) {
  const std::string path = file("a.csv", 0, 1000), other = file("b.csv", 1000, 1100);
  const Dataset last = read(keys(path, "test = \"last\""));
  EXPECT_EQ(values_of(last.test), counted(900, 1000));
  EXPECT_EQ(last.test_split, "the last 10 % of the rows");
  EXPECT_TRUE(last.test_is_last);
  for (const std::string& key : {"test = \"file:" + other + "\"", "test_path = \"" + other + "\""}) {
    const Dataset set = read(keys(path, key));
    EXPECT_EQ(values_of(set.train), counted(0, 1000));
    EXPECT_EQ(values_of(set.test), counted(1000, 1100));
    EXPECT_EQ(set.test_split, "a file of its own");
  }
  EXPECT_EQ(read(keys(path, "test_fraction = 0")).test_split, "no rows");
}

TEST_F(DataTestSplit, NewestRowsByAColumn) {
  const auto number = [](int64_t i) { return str_cat(7 * i % 1000); };
  const auto iso = [](int64_t i) {  // time zones count: +01:00 is earlier
    const int64_t at = 7 * i % 1000;
    return str_cat("2024-03-0", 1 + at / 500, " 1", at / 50 % 10, ":", 10 + at % 50,
                   at % 2 == 0 ? "Z" : ":00.000+00:00");
  };
  for (const auto& time : {std::function<std::string(int64_t)>(number), std::function<std::string(int64_t)>(iso)}) {
    const Dataset set = read(keys(file("a.csv", 0, 1000, time), "test = \"time:at\"\ntest_fraction = 0.3"));
    EXPECT_EQ(set.test_split, "the newest 30 % of the rows by \"at\"");
    std::vector<int64_t> train, test(300);
    for (int64_t i = 0; i < 1000; ++i) {
      if (7 * i % 1000 < 700)
        train.push_back(i);
      else
        test[static_cast<size_t>(7 * i % 1000 - 700)] = i;
    }
    EXPECT_EQ(values_of(set.train), train) << "in the order of the files";
    EXPECT_EQ(values_of(set.test), test);
  }
  const auto zones = [](int64_t i) { return i == 50 ? "2024-01-01 23:30:00-05:00" : "2024-01-02 00:00:00Z"; };
  EXPECT_EQ(values_of(read(keys(file("z.csv", 0, 100, zones), "test = \"time:at\"\ntest_fraction = 0.01")).test),
            counted(50, 51))
      << "half past four of the next day in UTC";
  // Streamed files are each in order and do not overlap.
  const data::TestDirectory streamed;
  const auto copy = [&](const std::string& name, int64_t first, int64_t at) {
    std::filesystem::copy_file(file(name, first, first + 2000, [&](int64_t i) { return str_cat(at + i - first); }),
                               streamed.path() + "/" + name);
  };
  copy("1.csv", 0, 4000), copy("2.csv", 2000, 0), copy("3.csv", 4000, 2000);
  const Dataset set = read(keys(streamed.path(), "test = \"time:at\"", 0.05));
  ASSERT_TRUE(set.train.streamed);
  EXPECT_EQ(values_of(set.test), counted(1400, 2000));
  std::vector<int64_t> train = counted(0, 1400);
  for (int64_t i = 2000; i < 6000; ++i) train.push_back(i);
  EXPECT_EQ(values_of(set.train), train);
  EXPECT_THAT(error(keys(streamed.path(), "test = \"time:at\"\norder_by = \"x\"", 0.05)),
              HasSubstr("name two columns, but rows that do not fit data.buffer_mib can have only one order"));
}

// Nobody writes to the pipe, so opening it would wait forever.
// The numbers of a column from which a [[column]] takes times are compared as times: milliseconds beside seconds.
TEST_F(DataTestSplit, NewestRowsByATimeOfTwoUnits) {
  const auto epoch = [](int64_t i) { return str_cat(1600000000 + 7200 * i, i % 2 == 0 ? "" : "000"); };
  const std::string path = file("a.csv", 0, 100, epoch);
  const auto tested = [&](const std::string& split, const std::string& take) {
    const std::string config = str_cat(
        "[data]\nreader = \"csv\"\n", keys(path, split), "test_fraction = 0.1\n[[column]]\nname = \"click\"\n",
        "as = \"label\"\n[[column]]\nname = \"x\"\nas = \"dense\"\n[[column]]\nname = \"word\"\nids = \"vocabulary\"\n",
        take);
    return read_dataset(runtime_, parse_config(config, "job.toml"));
  };
  const std::string take = "[[column]]\nname = \"h\"\ncolumn = \"at\"\ntake = \"hour\"\nids = \"row\"\n";
  for (const std::string split : {"test = \"time:at\"", "order_by = \"at\""})
    EXPECT_EQ(values_of(tested(split, take).test), counted(90, 100)) << split;
  const std::vector<int64_t> bare = values_of(tested("test = \"time:at\"", "").test);
  EXPECT_TRUE(std::all_of(bare.begin(), bare.end(), [](int64_t i) { return i % 2 == 1; })) << "no time, only a number";
  file("a.csv", 0, 100, [](int64_t i) { return str_cat(i); });
  EXPECT_THAT(
      test::refusal([&] { (void)tested("test = \"time:at\"", take); }),
      HasSubstr("row 1, column \"at\": 0 is no time since 1970, but a [[column]] takes times from this column"));
}

TEST_F(DataTestSplit, APipeIsNoFile) {
  const std::string pipe = folder_.path() + "/pipe.csv";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error(keys(pipe, "")),
            pipe +
                " is a pipe, which can be read only once: write its rows to a file, and name the file (tessera "
                "predict --data - reads its standard input)");
  EXPECT_THAT(error(keys("/dev/zero", "")), HasSubstr("/dev/zero is a device, and not a file of rows"));
}

TEST_F(DataTestSplit, WhatHasNoEffectIsRefused) {
  const std::string path = file("a.csv", 0, 100, [](int64_t i) { return str_cat("March ", i); });
  EXPECT_EQ(error(keys(path, "test = \"lsat\"")),
            "data.test = \"lsat\": the nearest is \"last\"; there are random, last, time:COLUMN and file:PATH");
  EXPECT_EQ(error(keys(path, "test = \"time:\"")), "data.test = \"time:\" names no column");
  EXPECT_EQ(error(keys(path, "test = \"file:\"")), "data.test = \"file:\" names no file");
  EXPECT_EQ(error(keys(path, "test = \"time:when\"")),
            "data.test: the files have no column \"when\"; they have click, x, word, list, at");
  EXPECT_EQ(error(keys(path, "order_by = \"when\"")),
            "data.order_by: the files have no column \"when\"; they have click, x, word, list, at");
  EXPECT_THAT(error(keys(path, "test = \"time:at\"")), HasSubstr("\"March 0\" is not a time: data.test takes numbers"));
  EXPECT_THAT(error(keys(path, "test = \"random\"\ntest_path = \"b.csv\"")), HasSubstr("leave one of them out"));
  EXPECT_EQ(error(keys(path, "test = \"file:b.csv\"\ntest_fraction = 0.2")),
            "job.toml:11: data.test_fraction has no effect: the test rows are those of b.csv: leave it out");
  EXPECT_THAT(error(keys(path, "test_path = \"b.csv\"\ntest_fraction = 0.2")),
              HasSubstr("data.test_fraction has no effect: the test rows are those of b.csv"));
  DataConfig generated{.test = "random"};
  EXPECT_EQ(data::reading_error(generated),
            "data.test has no effect: the data of the reader \"synthetic\" come with a test part: leave it out");
}

}  // namespace
}  // namespace tessera
