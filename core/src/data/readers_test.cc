// Tests the prepared and the Criteo reader, and what they share: lines, hashes, samples in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <limits>
#include <regex>

#include "data/examples.h"
#include "data/hash.h"
#include "data/line_reader.h"
#include "data/test_files.h"

namespace tessera {
namespace {

using data::Examples;
using data::reading_error;
using data::TestDirectory;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kMeta = R"({"name": "tiny", "dense": ["x", "y"],
 "columns": [{"name": "user", "rows": 3, "pooling": "sum"}, {"name": "words", "rows": 100, "pooling": "mean"}],
 "train": {"rows": 3}})";
constexpr const char* kTrain = "1\t0.5,-2\t2\t7,8,7\n0\t1,1e-3\t0\t\n1\t0,0\t\t99\n";

DataConfig prepared_at(const std::string& path) {
  DataConfig config;
  config.reader = "prepared";
  config.path = path;
  return config;
}

TEST(Hash, CheckValuesOfTheFormat) {
  EXPECT_EQ(data::fnv1a("t=the"), 0x4ade07faed725979u);
  EXPECT_EQ(data::mix(data::fnv1a("t=the")), 0xfe37beffec7c8adfu);
  EXPECT_EQ(data::row_of("o=", "student", 256), 162);
  EXPECT_EQ(data::row_of("s=", "M", 4), 1);
  EXPECT_EQ(data::row_of("s=", "F", 4), 3);
  EXPECT_EQ(data::row_of("z=", "941", 2048), 1192);
  EXPECT_EQ(data::row_of("g=", "Children's", 256), 248);
  EXPECT_EQ(data::row_of("t=", "the", 8192), 2783);
}

TEST(LineReader, PlainAndGzipAndLongLines) {
  const TestDirectory dir;
  const std::string long_line(700000, 'x');
  const std::string text = "one\r\n\n" + long_line + "\nlast without end";
  for (const std::string& path : {dir.write("a.txt", text), dir.write_gz("a.txt.gz", text)}) {
    data::LineReader lines(path);
    std::string_view line;
    ASSERT_TRUE(lines.next(line));
    EXPECT_EQ(line, "one");
    ASSERT_TRUE(lines.next(line));
    EXPECT_EQ(line, "");
    ASSERT_TRUE(lines.next(line));
    EXPECT_EQ(line, long_line);
    ASSERT_TRUE(lines.next(line));
    EXPECT_EQ(line, "last without end");
    EXPECT_EQ(lines.where(), path + ":4");
    EXPECT_FALSE(lines.next(line));
  }
  EXPECT_THROW(data::LineReader("/nonexistent"), Error);
  const std::string pipe = dir.path() + "/pipe";  // nobody writes to it, so reading it would never end
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(data::LineReader{pipe}, Error);
  EXPECT_THROW(data::LineReader{dir.path()}, Error);
}

TEST(LineReader, DamagedGzipIsDataLoss) {
  const TestDirectory dir;
  std::string noise;
  for (uint32_t i = 0, x = 1; i < 50000; ++i)
    noise += static_cast<char>('a' + (x = x * 1664525u + 1013904223u) / 200000000u);
  const std::string path = dir.write_gz("cut.gz", noise + "\n");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  data::LineReader lines(path);
  std::string_view line;
  try {
    while (lines.next(line)) continue;
    FAIL() << "a cut file was taken for a whole one";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kDataLoss);
  }
}

TEST(Numbers, OnlyWholeFieldsCount) {
  double d = 0;
  int64_t i = 0;
  EXPECT_TRUE(data::parse_number("-1.5e2", d));
  EXPECT_EQ(d, -150);
  EXPECT_TRUE(data::parse_number("-7", i));
  EXPECT_EQ(i, -7);
  for (const char* bad : {"", "1x", " 1", "nan", "inf", "1e999"}) EXPECT_FALSE(data::parse_number(bad, d)) << bad;
  for (const char* bad : {"", "1.0", "+1", "99999999999999999999"}) EXPECT_FALSE(data::parse_number(bad, i)) << bad;
  float f = 0;
  EXPECT_TRUE(data::parse_number("3.4e38", f));
  EXPECT_EQ(f, 3.4e38f);
  for (const char* bad : {"3.5e38", "-1e300", "nan"}) EXPECT_FALSE(data::parse_number(bad, f)) << bad;
}

TEST(Prepared, ReadsPlainAndGzip) {
  const TestDirectory dir;
  dir.write("meta.json", kMeta);
  dir.write_gz("train.tsv.gz", kTrain);
  dir.write("test.tsv", "0\t1,2\t1\t1\n");
  const Dataset set = read_dataset(prepared_at(dir.path()), 1);
  EXPECT_EQ(set.name, "tiny");
  EXPECT_THAT(set.dense, ElementsAre("x", "y"));
  ASSERT_EQ(set.columns.size(), 2u);
  EXPECT_EQ(set.columns[1].rows, 100);
  EXPECT_EQ(set.columns[1].pooling, "mean");
  EXPECT_EQ(set.train_rows(), 3);
  EXPECT_EQ(set.test_rows(), 1);
  Batch batch;
  BatchReader reader(set.train, {.batch = 8});
  ASSERT_TRUE(reader.next(batch));
  EXPECT_THAT(batch.labels.to_vector<float>(), ElementsAre(1, 0, 1));
  EXPECT_THAT(batch.dense.to_vector<float>(), ElementsAre(0.5f, -2, 1, 1e-3f, 0, 0));
  EXPECT_THAT(batch.sparse.keys(), ElementsAre("user", "words"));
  EXPECT_THAT(batch.sparse.lengths().to_vector<int32_t>(), ElementsAre(1, 1, 0, 3, 0, 1));
  EXPECT_THAT(batch.sparse.offsets().to_vector<int32_t>(), ElementsAre(0, 1, 2, 2, 5, 5, 6));
  EXPECT_THAT(batch.sparse.values().to_vector<int32_t>(), ElementsAre(2, 0, 7, 8, 7, 99));
  EXPECT_FALSE(reader.next(batch));
}

TEST(Prepared, MalformedRowsNameFileAndLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"2\t1,1\t0\t0\n", "the label is \"2\", but must be 0 or 1"},
      {"1\t1,1\t0\n", "a line has 4 fields with tabs between; this one has fewer"},
      {"1\n", "a line has 4 fields with tabs between; this one has fewer"},
      {"1\t1,1\t0\t0\t0\n", "there are more than 4 fields"},
      {"1\t1\t0\t0\n", "the dense values are not 2 numbers with commas between"},
      {"1\t1,x\t0\t0\n", "the dense values are not 2 numbers with commas between"},
      {"1\t1,1e39\t0\t0\n", "the dense values are not 2 numbers with commas between"},
      {"1\t1,1,1\t0\t0\n", "there are more than 2 dense values"},
      {"1\t1,1\t0\t1,,2\n", "column \"words\" is not a list of row numbers with commas between"},
      {"1\t1,1\t0\t1,\n", "column \"words\" is not a list of row numbers with commas between"},
      {"1\t1,1\t0\t1 2\n", "column \"words\" is not a list of row numbers with commas between"},
      {"\n", "the label is \"\", but must be 0 or 1"},
  };
  const TestDirectory dir;
  dir.write("meta.json", kMeta);
  dir.write("test.tsv", "");
  for (const auto& [line, error] : cases) {
    const std::string path = dir.write("train.tsv", kTrain + line);
    EXPECT_EQ(reading_error(prepared_at(dir.path())), path + ":4: " + error);
  }
}

TEST(Prepared, MissingAndWrongFiles) {
  const TestDirectory dir;
  EXPECT_THAT(reading_error(prepared_at(dir.path())), HasSubstr("data.path must be a directory of prepared data"));
  dir.write("meta.json", kMeta);
  EXPECT_EQ(reading_error(prepared_at(dir.path())),
            "there is neither " + dir.path() + "/train.tsv nor " + dir.path() + "/train.tsv.gz");
  dir.write("train.tsv", "0\t1,2\t1\t1\n");
  EXPECT_THAT(reading_error(prepared_at(dir.path())), HasSubstr("has 1 rows, but its meta.json says 3"));
  dir.write("meta.json", "{\"dense\": 3}");
  EXPECT_THAT(reading_error(prepared_at(dir.path())), HasSubstr("meta.json: dense is 3; a list is expected"));
  dir.write("meta.json", "{\"dense\": [], \"columns\": [{\"name\": \"a\", \"rows\": 0}]}");
  EXPECT_THAT(reading_error(prepared_at(dir.path())), HasSubstr("column \"a\" has no rows"));
  DataConfig config;
  config.reader = "movielens";
  EXPECT_EQ(reading_error(config), "there is no reader \"movielens\"; the nearest is \"movielens-100k\"");
}

// Makes `count` lines: label and I1 follow from the line's number, I2 is negative, I3 and C1 are empty, the others are
// "a".
std::string criteo_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += std::to_string(i % 2) + "\t" + std::to_string(i) + "\t-2\t";
    for (int k = 4; k <= 13; ++k) text += "\t0";
    text += "\t";
    for (int k = 2; k <= 26; ++k) text += "\t0a1";
    text += "\n";
  }
  return text;
}

TEST(Criteo, ReadsRawLines) {
  const TestDirectory dir;
  DataConfig config;
  config.reader = "criteo-tsv";
  config.path = dir.write_gz("day.gz", criteo_lines(10));
  config.rows = {1000};
  config.test_fraction = 0.2;
  const Dataset set = read_dataset(config, 1);
  EXPECT_EQ(set.train_rows(), 8);
  EXPECT_EQ(set.test_rows(), 2);
  EXPECT_EQ(set.columns[25].name, "C26");
  Batch batch;
  ASSERT_TRUE(BatchReader(set.test, {.batch = 2}).next(batch));
  EXPECT_THAT(batch.labels.to_vector<float>(), ElementsAre(0, 1));
  const float* dense = batch.dense.data<float>();
  EXPECT_FLOAT_EQ(dense[0], std::log(9.0f));
  EXPECT_FLOAT_EQ(dense[13], std::log(10.0f));
  EXPECT_EQ(dense[1], 0);  // negative
  EXPECT_EQ(dense[2], 0);  // empty
  const auto values = batch.sparse.values().to_vector<int32_t>();
  ASSERT_EQ(values.size(), 52u);
  EXPECT_EQ(values[0], data::row_of("C1=", "", 1000));
  EXPECT_EQ(values[2], data::row_of("C2=", "0a1", 1000));
  EXPECT_EQ(values[51], data::row_of("C26=", "0a1", 1000));

  config.test = "random";
  config.test_fraction = 0.5;
  const Dataset random = read_dataset(config, 1);
  EXPECT_EQ(random.train_rows() + random.test_rows(), 10);
  EXPECT_EQ(random.test_split, "50 % of the rows, random");
  config.test = "time:I1";
  EXPECT_THAT(reading_error(config), HasSubstr("have no column of times"));

  config.limit = 5;
  config.test.clear();
  config.test_fraction = DataConfig().test_fraction;
  config.test_path = dir.write("test.tsv", criteo_lines(3));
  const Dataset two = read_dataset(config, 1);
  EXPECT_EQ(two.train_rows(), 5);
  EXPECT_EQ(two.test_rows(), 3);
}

TEST(Criteo, MalformedRowsNameFileAndLine) {
  const TestDirectory dir;
  DataConfig config;
  config.reader = "criteo-tsv";
  const auto error_of = [&](const std::string& line) {
    config.path = dir.write("day.tsv", criteo_lines(1) + line);
    return reading_error(config).substr(config.path.size());
  };
  std::string line = criteo_lines(1);
  EXPECT_EQ(error_of("x" + line), ":2: the label is \"x0\", but must be 0 or 1");
  EXPECT_EQ(error_of("1\t1.5" + line.substr(3)), ":2: I1 is \"1.5\", but must be an integer");
  line.pop_back();
  EXPECT_EQ(error_of(line + "g\n"), ":2: C26 is \"0a1g\", but must be a hexadecimal number");
  EXPECT_EQ(error_of(line + "\t1\n"), ":2: there are more than 40 fields");
  EXPECT_EQ(error_of("1\t1\n"), ":2: a line has 40 fields with tabs between; this one has fewer");
  config.rows = {1, 2};
  EXPECT_THAT(reading_error(config), HasSubstr("data.rows has 2 numbers, but reader \"criteo-tsv\" has 26 columns"));
}

// Covers both layouts: samples of one id each, and of lists.
TEST(Examples, TakeOutClosesUp) {
  for (const bool lists : {false, true}) {
    Examples all(1, {{"one", 100}});
    for (int64_t i = 0; i < 40; ++i) {
      all.begin_sample(1);
      all.add_dense(static_cast<float>(i));
      for (int64_t k = 0; k < (lists ? i % 3 : 1); ++k) all.add_id(i);
      all.end_bag();
      all.end_sample();
    }
    const Examples out = all.take_out(10, [](int64_t i) { return i % 4 == 0; });
    EXPECT_EQ(out.size(), 7);
    EXPECT_EQ(all.size(), 33);
    int64_t next = 0, taken = 12;
    for (int64_t i = 0; i < all.size(); ++i, ++next) {
      if (next >= 10 && next % 4 == 0) ++next;
      ASSERT_EQ(all.dense(i)[0], static_cast<float>(next));
      ASSERT_EQ(all.num_ids(i), lists ? next % 3 : 1);
      ASSERT_TRUE(all.num_ids(i) == 0 || all.ids<int32_t>(i)[0] == next) << i;
    }
    for (int64_t i = 0; i < out.size(); ++i, taken += 4) {
      ASSERT_EQ(out.dense(i)[0], static_cast<float>(taken));
      ASSERT_TRUE(out.num_ids(i) == 0 || out.ids<int32_t>(i)[0] == taken) << i;
    }
  }
}

TEST(Examples, SplitOffKeepsEveryBag) {
  for (const bool single : {true, false}) {
    Examples all(1, {{"a", 100, "sum"}, {"b", int64_t{1} << 40, "sum"}});
    EXPECT_TRUE(all.wide());
    for (int s = 0; s < 6; ++s) {
      all.begin_sample(static_cast<float>(s % 2));
      all.add_dense(static_cast<float>(s));
      EXPECT_TRUE(all.add_id(s));
      all.end_bag();
      for (int j = 0; j < (single ? 1 : s % 3); ++j) all.add_id((int64_t{1} << 39) + s);
      all.end_bag();
      all.end_sample();
    }
    const Examples tail = all.split_off(2);
    EXPECT_EQ(all.size(), 2);
    ASSERT_EQ(tail.size(), 4);
    for (int s = 0; s < 6; ++s) {
      const Examples& part = s < 2 ? all : tail;
      const int at = s < 2 ? s : s - 2;
      const int64_t second = single ? 1 : s % 3;
      EXPECT_EQ(part.label(at), s % 2 == 1);
      EXPECT_EQ(part.dense(at)[0], s);
      ASSERT_EQ(part.num_ids(at), 1 + second);
      EXPECT_EQ(part.ids<int64_t>(at)[0], s);
      if (second > 0) {
        EXPECT_EQ(part.ids<int64_t>(at)[1], (int64_t{1} << 39) + s);
      }
      if (!single) {
        EXPECT_EQ(part.lengths(at)[1], second);
      }
      EXPECT_EQ(part.lengths(at) == nullptr, single);
    }
  }
}

// The columns are a dense value, a bag of one id, and a bag of `second` ids. Ids are `base` + the sample's number.
void expect_samples(const Examples& e, int64_t n, int64_t second, int64_t base) {
  ASSERT_EQ(e.size(), n);
  for (int64_t i = 0; i < n; ++i) {
    EXPECT_EQ(e.label(i), static_cast<float>(i % 2));
    EXPECT_EQ(e.dense(i)[0], static_cast<float>(i));
    ASSERT_EQ(e.num_ids(i), 1 + (second < 0 ? i % 3 : second)) << i;
    for (int64_t j = 0; j < e.num_ids(i); ++j) {
      EXPECT_EQ(e.wide() ? e.ids<int64_t>(i)[j] : e.ids<int32_t>(i)[j], base + i);
      const float weight = e.weighted() ? e.weights(i)[j] : 0.5f;
      EXPECT_EQ(weight, j == 0 && e.weighted() ? 1.0f : 0.5f);
    }
  }
}

TEST(Examples, ManySamplesAtOnceAreThoseOneByOne) {
  // Covers bags of one id, of any number, and empty first samples; narrow and wide ids; weights.
  for (const int64_t second : {1, -1}) {
    for (const int64_t base : {int64_t{5}, int64_t{1} << 40}) {
      Examples all(1, {{"a", 100, "sum"}, {"b", 100, "sum", base == 5}});
      for (int again = 0; again < 2; ++again) {
        for (int64_t first = 0; first < 12; first += 4) {
          std::vector<int64_t> ids = {-1}, begins = {1, 2, 3, 4, 5}, lists = {1};
          std::vector<int64_t> listed = {-1};
          std::vector<float> labels, dense, weights(40, 0.5f);
          for (int64_t i = first; i < first + 4; ++i) {
            labels.push_back(static_cast<float>(i % 2));
            dense.push_back(static_cast<float>(i));
            ids.push_back(base + i);
            listed.insert(listed.end(), static_cast<size_t>(second < 0 ? i % 3 : second), base + i);
            lists.push_back(std::ssize(listed));
          }
          all.append(labels, dense,
                     std::vector<Examples::Bags>{{ids.data(), begins.data(), nullptr},
                                                 {listed.data(), lists.data(), weights.data()}});
        }
        expect_samples(all, 12, second, base);
        EXPECT_EQ(all.wide(), base > 5);
        EXPECT_EQ(all.lengths(0) == nullptr, second == 1);
        all.clear();
        EXPECT_EQ(all.size(), 0);
        EXPECT_FALSE(all.wide());
      }
    }
  }
}

// Checks that append() keeps such ids of a table with `rows` rows, and says if the column has them all.
void expect_known(int64_t rows, const std::vector<int64_t>& ids, bool known, bool wide) {
  Examples all(0, {{"a", rows, "sum"}});
  const std::vector<int64_t> begins = {0, std::ssize(ids)};
  const std::vector<float> label = {1};
  EXPECT_EQ(all.append(label, {}, std::vector<Examples::Bags>{{ids.data(), begins.data(), nullptr}}), known)
      << rows << " rows, from id " << ids[0];
  EXPECT_EQ(all.wide(), wide) << rows << " rows, from id " << ids[0];
  for (size_t j = 0; j < ids.size(); ++j)
    EXPECT_EQ(wide ? all.ids<int64_t>(0)[j] : all.ids<int32_t>(0)[j], ids[j]) << rows << " rows";
}

TEST(Examples, ManyIdsAtOnceAreKnownOrNot) {
  constexpr int64_t kNarrow = std::numeric_limits<int32_t>::max();
  expect_known(1000, {999, 0}, true, false);
  expect_known(1000, {3, 1000}, false, false);
  expect_known(1000, {-1, 3}, false, false);
  expect_known(1000, {3, int64_t{1} << 40}, false, true);
  expect_known(1000, {(int64_t{1} << 32) + 5, 0}, false, true);
  expect_known(1000, {std::numeric_limits<int64_t>::min(), 1}, false, true);
  expect_known(kNarrow, {kNarrow - 1, 0}, true, false);
  expect_known(kNarrow + 2, {kNarrow + 1, 0}, true, true);
  expect_known(int64_t{1} << 40, {int64_t{1} << 40, 0}, false, true);
}

// Runs of ids are copied in whole steps. The memory after a run belongs to another bag, another sample, or a weight.
TEST(Examples, RunsOfAnyLengthAreKeptAndHandedOn) {
  for (const bool weighted : {false, true}) {
    Examples all(1, {{"a", 1 << 20, "sum"}, {"b", 1 << 20, "sum", weighted}});
    std::vector<int64_t> ids[2], begins[2] = {{0}, {0}};
    std::vector<float> labels, dense, weights;
    for (int64_t i = 0; i < 70; ++i) {
      labels.push_back(static_cast<float>(i % 2));
      dense.push_back(static_cast<float>(i));
      const int64_t lengths[2] = {(i * 7) % 40, i % 3 == 0 ? 0 : (i * 5) % 35};
      for (size_t k = 0; k < 2; ++k) {
        for (int64_t j = 0; j < lengths[k]; ++j) ids[k].push_back(1000 * i + 100 * static_cast<int64_t>(k) + j);
        begins[k].push_back(std::ssize(ids[k]));
      }
    }
    for (size_t j = 0; j < ids[1].size(); ++j) weights.push_back(static_cast<float>(j));
    ASSERT_TRUE(all.append(labels, dense,
                           std::vector<Examples::Bags>{{ids[0].data(), begins[0].data(), nullptr},
                                                       {ids[1].data(), begins[1].data(), weights.data()}}));
    Samples samples;
    samples.kept = std::make_shared<const Examples>(std::move(all));
    BatchReader reader(samples, {.batch = 70, .shuffle = false});
    Batch batch;
    ASSERT_TRUE(reader.next(batch));
    std::vector<int64_t> wanted = ids[0];
    wanted.insert(wanted.end(), ids[1].begin(), ids[1].end());
    ASSERT_EQ(batch.sparse.values().numel(), std::ssize(wanted));
    for (size_t j = 0; j < wanted.size(); ++j)
      ASSERT_EQ(batch.sparse.values().item(static_cast<int64_t>(j)), static_cast<double>(wanted[j])) << j;
    for (size_t j = 0; weighted && j < ids[1].size(); ++j)
      ASSERT_EQ(batch.sparse.weights().item(static_cast<int64_t>(ids[0].size() + j)), static_cast<double>(j)) << j;
    for (int64_t i = 0; i < 70; ++i) {
      ASSERT_EQ(batch.dense.item(i), static_cast<double>(i));
      ASSERT_EQ(batch.labels.item(i), static_cast<double>(i % 2));
    }
  }
}

TEST(Examples, KeepsIdsThatNoColumnHas) {
  Examples all(0, {{"a", 10, "sum"}});
  const std::vector<int64_t> ids = {3, 10, -1, int64_t{1} << 40, 9};
  for (const int64_t id : ids) {
    all.begin_sample(1);
    EXPECT_EQ(all.add_id(id), id == 3 || id == 9) << id;
    all.end_bag();
    all.end_sample();
    EXPECT_EQ(all.wide(), all.size() >= 4) << "as wide as the widest so far";
  }
  const Examples tail = all.split_off(1);
  EXPECT_EQ(all.ids<int64_t>(0)[0], 3);
  for (int64_t i = 0; i < tail.size(); ++i) EXPECT_EQ(tail.ids<int64_t>(i)[0], ids[static_cast<size_t>(i) + 1]);
}

// Reading continues, so that bounds_check can decide. The first bad id is reported with its place.
TEST(Prepared, IdsOutOfRangeAreKeptAndTold) {
  const TestDirectory dir;
  dir.write("meta.json", R"({"dense": [], "columns": [{"name": "user", "rows": 3}]})");
  const std::string train = dir.write("train.tsv", "1\t\t2\n0\t\t3,9999999999\n1\t\t-5\n");
  dir.write("test.tsv", "1\t\t0\n");
  const Dataset set = read_dataset(prepared_at(dir.path()), 1);
  EXPECT_EQ(reading_error(prepared_at(dir.path())),
            train + ":2: column \"user\" names row 3, but its table has 3 rows");
  Batch batch;
  ASSERT_TRUE(BatchReader(set.train, {.batch = 3}).next(batch));
  EXPECT_THAT(batch.sparse.values().to_vector<int64_t>(), ElementsAre(2, 3, 9999999999, -5));
  dir.write("train.tsv", "1\t\t2\n");
  EXPECT_EQ(reading_error(prepared_at(dir.path())), "no error");
  dir.write("meta.json", R"({"dense": [], "columns": [{"name": "user", "rows": 9223372036854775807}]})");
  dir.write("train.tsv", "1\t\t9223372036854775806\n1\t\t9223372036854775807\n");
  EXPECT_EQ(reading_error(prepared_at(dir.path())),
            train + ":2: column \"user\" has the id 9223372036854775807, but ids are 0 to 9223372036854775806");
}

// The example in docs/data.md can be read, and its hashed rows equal the reader's.
TEST(Docs, DataPage) {
  const std::string path = std::string(TESSERA_SOURCE_DIR) + "/docs/data.md";
  std::string meta, lines, language;
  int hashed = 0;
  data::LineReader page(path);
  for (std::string_view line; page.next(line);) {
    if (line.starts_with("```")) {
      language = language.empty() ? line.substr(3) : "";
    } else if (language == "json") {
      meta += line;
    } else if (language == "text" && line.find("⇥") != std::string_view::npos) {
      lines += line;
      lines += '\n';
    }
    std::smatch row;
    const std::string whole(line);
    if (!std::regex_match(whole, row, std::regex(R"(\| `(C\d+)` \| (?:`(\w+)`|empty) \| (\d+) \| (\d+) \|)"))) continue;
    EXPECT_EQ(data::row_of(row[1].str() + "=", row[2].str(), std::stoll(row[3])), std::stoll(row[4])) << whole;
    ++hashed;
  }
  EXPECT_EQ(hashed, 4);
  for (size_t at = lines.find("⇥"); at != std::string::npos; at = lines.find("⇥")) lines.replace(at, 3, "\t");
  const TestDirectory dir;
  dir.write("meta.json", meta);
  dir.write("train.tsv", lines);
  dir.write("test.tsv", "");
  const Dataset set = read_dataset(prepared_at(dir.path()), 1);
  EXPECT_EQ(set.name, "films");
  EXPECT_EQ(set.columns[1].pooling, "mean");
  Batch batch;
  ASSERT_TRUE(BatchReader(set.train, {.batch = 2}).next(batch));
  EXPECT_THAT(batch.dense.to_vector<float>(), ElementsAre(0.2f, -1, -0.5f, 0.25f));
  EXPECT_THAT(batch.sparse.values().to_vector<int32_t>(), ElementsAre(17, 0, 3, 4, 900));
}

TEST(RealData, PreparedSets) {
  struct Known {
    const char* name;
    int64_t train, test;
  };
  int found = 0;
  for (const Known& known :
       {Known{"shoppers", 9869, 2461}, Known{"coupon", 10140, 2544}, Known{"movielens-small", 80896, 19940}}) {
    const std::string path = data::real_data(known.name);
    if (path.empty()) continue;
    const Dataset set = read_dataset(prepared_at(path), 1);
    EXPECT_EQ(set.train_rows(), known.train);
    EXPECT_EQ(set.test_rows(), known.test);
    ++found;
  }
  if (found == 0) GTEST_SKIP() << "no data sets beside this checkout";
}

TEST(RealData, CriteoSample) {
  const std::string path = data::real_data("criteo-1tb-1000/day0-head.tsv.gz");
  if (path.empty()) GTEST_SKIP() << "no Criteo sample beside this checkout";
  DataConfig config;
  config.reader = "criteo-tsv";
  config.path = path;
  config.test_fraction = 0;
  EXPECT_EQ(read_dataset(config, 1).train_rows(), 1000);
}

}  // namespace
}  // namespace tessera
