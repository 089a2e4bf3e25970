// Tests readers that know the columns of their files, and the choice of a path's reader.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <regex>

#include "config/test_refusal.h"
#include "data/examples.h"
#include "data/test_files.h"
#include "tessera/data.h"
#include "tessera/runtime.h"
#include "tessera/sdk/fields.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kMeta = R"({"name": "tiny", "dense": ["x", "y"],
 "columns": [{"name": "user", "rows": 3, "pooling": "sum"}, {"name": "words", "rows": 100, "pooling": "mean"}],
 "train": {"rows": 3}})";
constexpr const char* kTrain = "1\t0.5,-2\t2\t7,8,7\n0\t1,1e-3\t0\t\n1\t0,0\t\t99\n";

class DataSets : public testing::Test {
 protected:
  static DataConfig at(const std::string& reader, const std::string& path) { return {.reader = reader, .path = path}; }
  Dataset read(const DataConfig& data) const {
    Config config;
    config.data = data;
    return read_dataset(runtime_, config);
  }
  // The error of a job's check, of reading, or of the check of ids after it.
  std::string error(const DataConfig& data) const {
    Config config;
    config.data = data;
    return test::refusal([&] {
      (void)describe_dataset(runtime_, config);
      read_dataset(runtime_, config).require_known_ids();
    });
  }
  Dataset prepared() const { return read(at("prepared", dir_.path())); }
  std::string prepared_error() const { return error(at("prepared", dir_.path())); }

  const Runtime runtime_{{.plugin_path = {TESSERA_PLUGINS_BUILT}, .default_path = false}};
  const data::TestDirectory dir_;
};

TEST_F(DataSets, PreparedReadsPlainAndGzip) {
  dir_.write("meta.json", kMeta);
  data::write_gz(dir_, "train.tsv.gz", kTrain);
  dir_.write("test.tsv", "0\t1,2\t1\t1\n");
  const Dataset set = prepared();
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

TEST_F(DataSets, PreparedMalformedRowsNameFileAndLine) {
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
  std::string meta = kMeta;
  meta.erase(meta.find(",\n \"train\""), std::string(",\n \"train\": {\"rows\": 3}").size());
  dir_.write("meta.json", meta);
  dir_.write("test.tsv", "");
  for (const auto& [line, error] : cases) {
    const std::string path = dir_.write("train.tsv", kTrain + line);
    EXPECT_EQ(prepared_error(), path + ":4: " + error);
  }
}

TEST_F(DataSets, UserItemsLeaveOneOut) {
  // One user in two forms, and users with too few items for some parts.
  const std::string path = dir_.write("a.txt", "7 1\n7 2\n7\t3 4 5\n\n9 8 6 3\n2 1 4\n0 5\n");
  const Dataset set = read(at("user-items?history=2", path));
  ASSERT_EQ(set.train_rows(), 1);
  ASSERT_EQ(set.validation.size(), 2);
  ASSERT_EQ(set.test_rows(), 3);
  const auto ids = [](const Samples& part, int64_t sample) {
    const int32_t* first = part.kept->ids<int32_t>(sample);
    return std::vector<int32_t>(first, first + part.kept->num_ids(sample));
  };
  EXPECT_THAT(ids(set.train, 0), ElementsAre(7, 1, 2, 2, 3));
  EXPECT_THAT(ids(set.validation, 0), ElementsAre(7, 2, 3, 3, 4, 1, 2, 3));
  EXPECT_THAT(ids(set.test, 0), ElementsAre(7, 3, 4, 4, 5, 1, 2, 3, 4));
  EXPECT_THAT(ids(set.validation, 1), ElementsAre(9, 8, 6, 8));
  EXPECT_THAT(ids(set.test, 2), ElementsAre(2, 1, 4, 1));
  EXPECT_EQ(set.columns[0].rows, 10);
  EXPECT_EQ(set.columns[1].rows, 9);
  const auto refusal = [&](const char* text) { return error(at("user-items", dir_.write("b.txt", text))); };
  EXPECT_THAT(refusal("1 2\n2 3\n1 4\n"), HasSubstr("b.txt:3: user 1 has had lines before"));
  EXPECT_THAT(refusal("1 2\n1 x\n"), HasSubstr("b.txt:2: an item is \"x\""));
  EXPECT_THAT(refusal("1 -2\n"), HasSubstr("an integer from 0 on"));
  EXPECT_THAT(refusal("5\n"), HasSubstr("this one has none"));
  EXPECT_THAT(refusal("5 1 2 3\n"), HasSubstr("no user with 4 items or more"));
  EXPECT_THAT(refusal(""), HasSubstr("no line of a user and an item"));
  EXPECT_THAT(error(at("user-items?history=0", path)), HasSubstr("must be a number of items"));
}

TEST_F(DataSets, PreparedMissingAndWrongFiles) {
  EXPECT_THAT(prepared_error(), HasSubstr("data.path must be a directory of prepared data"));
  dir_.write("meta.json", kMeta);
  EXPECT_EQ(prepared_error(), "there is neither " + dir_.path() + "/train.tsv nor " + dir_.path() + "/train.tsv.gz");
  dir_.write("train.tsv", "0\t1,2\t1\t1\n");
  EXPECT_THAT(prepared_error(), HasSubstr("has 1 rows, but its meta.json says 3"));
  dir_.write("meta.json", "{\"dense\": 3}");
  EXPECT_THAT(prepared_error(), HasSubstr("meta.json: dense is 3; a list is expected"));
  dir_.write("meta.json", "{\"dense\": [], \"columns\": [{\"name\": \"a\", \"rows\": 0}]}");
  EXPECT_THAT(prepared_error(), HasSubstr("column \"a\" has no rows"));
  EXPECT_THAT(error(at("movielens", "a")),
              AllOf(StartsWith("there is no reader \"movielens\": set data.reader to one of "),
                    HasSubstr("the nearest is \"movielens-100k\"")));
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

TEST_F(DataSets, CriteoReadsRawLines) {
  DataConfig config = at("criteo-tsv", "");
  config.path = data::write_gz(dir_, "day.gz", criteo_lines(10));
  config.rows = {1000};
  config.test_fraction = 0.2;
  const Dataset set = read(config);
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
  EXPECT_EQ(values[0], sdk::row_of("C1=", "", 1000));
  EXPECT_EQ(values[2], sdk::row_of("C2=", "0a1", 1000));
  EXPECT_EQ(values[51], sdk::row_of("C26=", "0a1", 1000));

  config.test = "random";
  config.test_fraction = 0.5;
  const Dataset random = read(config);
  EXPECT_EQ(random.train_rows() + random.test_rows(), 10);
  EXPECT_EQ(random.test_split, "50 % of the rows, random");
  config.test = "time:I1";
  EXPECT_THAT(error(config), HasSubstr("column \"I1\" has another type"));

  config.limit = 5;
  config.test.clear();
  config.test_fraction = DataConfig().test_fraction;
  config.test_path = dir_.write("test.tsv", criteo_lines(3));
  const Dataset two = read(config);
  EXPECT_EQ(two.train_rows(), 5);
  EXPECT_EQ(two.test_rows(), 3);
}

TEST_F(DataSets, CriteoMalformedRowsNameFileAndLine) {
  DataConfig config = at("criteo-tsv", "");
  const auto error_of = [&](const std::string& line) {
    config.path = dir_.write("day.tsv", criteo_lines(1) + line);
    return error(config).substr(config.path.size());
  };
  std::string line = criteo_lines(1);
  EXPECT_EQ(error_of("x" + line), ":2: the label is \"x0\", but must be 0 or 1");
  EXPECT_EQ(error_of("1\t1.5" + line.substr(3)), ":2: I1 is \"1.5\", but must be an integer");
  line.pop_back();
  EXPECT_EQ(error_of(line + "g\n"), ":2: C26 is \"0a1g\", but must be a hexadecimal number");
  EXPECT_EQ(error_of(line + "\t1\n"), ":2: there are more than 40 fields");
  EXPECT_EQ(error_of("1\t1\n"), ":2: a line has 40 fields with tabs between; this one has fewer");
  config.rows = {1, 2};
  EXPECT_THAT(error(config), HasSubstr("data.rows has 2 numbers, but reader \"criteo-tsv\" has 26 columns"));
}

// Reading continues, so that bounds_check can decide. The first bad id is reported with its place.
TEST_F(DataSets, PreparedIdsOutOfRangeAreKeptAndTold) {
  dir_.write("meta.json", R"({"dense": [], "columns": [{"name": "user", "rows": 3}]})");
  const std::string train = dir_.write("train.tsv", "1\t\t2\n0\t\t3,9999999999\n1\t\t-5\n");
  dir_.write("test.tsv", "1\t\t0\n");
  const Dataset set = prepared();
  EXPECT_EQ(prepared_error(), train + ", row 2, column \"user\" names row 3, but its table has 3 rows");
  Batch batch;
  ASSERT_TRUE(BatchReader(set.train, {.batch = 3}).next(batch));
  EXPECT_THAT(batch.sparse.values().to_vector<int64_t>(), ElementsAre(2, 3, 9999999999, -5));
  dir_.write("train.tsv", "1\t\t2\n");
  EXPECT_EQ(prepared_error(), "no error");
  dir_.write("meta.json", R"({"dense": [], "columns": [{"name": "user", "rows": 9223372036854775807}]})");
  dir_.write("train.tsv", "1\t\t9223372036854775806\n1\t\t9223372036854775807\n");
  EXPECT_EQ(prepared_error(),
            train + ", row 2, column \"user\" has the id 9223372036854775807, but ids are 0 to 9223372036854775806");
}

// The example in docs/data.md can be read, and its hashed rows equal the reader's.
TEST_F(DataSets, OfDataPage) {
  const std::string path = std::string(TESSERA_SOURCE_DIR) + "/docs/data.md";
  std::string meta, lines, language;
  int hashed = 0;
  std::ifstream page(path);
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("```")) {
      language = language.empty() ? line.substr(3) : "";
    } else if (language == "json") {
      meta += line;
    } else if (language == "text" && line.find("⇥") != std::string::npos) {
      lines += line;
      lines += '\n';
    }
    std::smatch row;
    if (!std::regex_match(line, row, std::regex(R"(\| `(C\d+)` \| (?:`(\w+)`|empty) \| (\d+) \| (\d+) \|)"))) continue;
    EXPECT_EQ(sdk::row_of(row[1].str() + "=", row[2].str(), std::stoll(row[3])), std::stoll(row[4])) << line;
    ++hashed;
  }
  EXPECT_EQ(hashed, 4);
  for (size_t at = lines.find("⇥"); at != std::string::npos; at = lines.find("⇥")) lines.replace(at, 3, "\t");
  dir_.write("meta.json", meta);
  dir_.write("train.tsv", lines);
  dir_.write("test.tsv", "");
  const Dataset set = prepared();
  EXPECT_EQ(set.name, "films");
  EXPECT_EQ(set.columns[1].pooling, "mean");
  Batch batch;
  ASSERT_TRUE(BatchReader(set.train, {.batch = 2}).next(batch));
  EXPECT_THAT(batch.dense.to_vector<float>(), ElementsAre(0.2f, -1, -0.5f, 0.25f));
  EXPECT_THAT(batch.sparse.values().to_vector<int32_t>(), ElementsAre(17, 0, 3, 4, 900));
}

TEST_F(DataSets, RealPreparedSets) {
  struct Known {
    const char* name;
    int64_t train, test;
  };
  int found = 0;
  for (const Known& known :
       {Known{"shoppers", 9869, 2461}, Known{"coupon", 10140, 2544}, Known{"movielens-small", 80896, 19940}}) {
    const std::string path = data::real_data(known.name);
    if (path.empty()) continue;
    const Dataset set = read(at("prepared", path));
    EXPECT_EQ(set.train_rows(), known.train);
    EXPECT_EQ(set.test_rows(), known.test);
    ++found;
  }
  if (found == 0) GTEST_SKIP() << "no data sets beside this checkout";
}

TEST_F(DataSets, RealCriteoSample) {
  const std::string path = data::real_data("criteo-1tb-1000/day0-head.tsv.gz");
  if (path.empty()) GTEST_SKIP() << "no Criteo sample beside this checkout";
  DataConfig config = at("criteo-tsv", path);
  config.test_fraction = 0;
  EXPECT_EQ(read(config).train_rows(), 1000);
}

// A part of their own, and columns that the reader knows, leave nothing to choose.
TEST_F(DataSets, KeysWithoutEffectAreRefused) {
  dir_.write("meta.json", kMeta);
  dir_.write("train.tsv", kTrain);
  dir_.write("test.tsv", "");
  for (const auto& [key, set] : std::vector<std::pair<std::string, std::function<void(DataConfig&)>>>{
           {"test", [](DataConfig& d) { d.test = "random"; }},
           {"test_path", [](DataConfig& d) { d.test_path = "b"; }},
           {"test_fraction", [](DataConfig& d) { d.test_fraction = 0.3; }},
           {"order_by", [](DataConfig& d) { d.order_by = "x"; }}}) {
    DataConfig config = at("prepared", dir_.path());
    set(config);
    EXPECT_EQ(error(config), "data." + key +
                                 " has no effect: the data of the reader \"prepared\" come with a test part: leave it "
                                 "out");
  }
  DataConfig config = at("prepared", dir_.path());
  config.rows = {5};
  EXPECT_THAT(error(config), StartsWith("data.rows has no effect: the reader \"prepared\" does not use it"));
  Config columns;
  columns.data = at("prepared", dir_.path());
  columns.columns.emplace_back().name = {"user"};
  EXPECT_THAT(test::refusal([&] { (void)describe_dataset(runtime_, columns); }),
              StartsWith("[[column]] \"user\" has no effect: the reader \"prepared\" knows the columns"));
}

TEST_F(DataSets, AProgramWithoutThePluginSaysSo) {
  const data::TestDirectory none;
  const Runtime runtime({.plugin_path = {none.path()}, .default_path = false});
  Config config;
  config.data = at("prepared", dir_.path());
  const auto refusal = [&] { return test::refusal([&] { (void)describe_dataset(runtime, config); }); };
  EXPECT_EQ(
      refusal(),
      "there is no reader \"prepared\": set data.reader to one of synthetic; the nearest is \"synthetic\" (others "
      "are in plugins whose folder [plugins] path has to name)");
  config.data.reader.clear();
  EXPECT_THAT(refusal(), HasSubstr("which no reader plugin opens: set data.reader"));
}

// The reader plugins say which of them opens a path.
class ReaderChoice : public DataSets {
 protected:
  std::string of(const std::string& name) const {
    DataConfig data;
    data.reader.clear();
    data.path = name.starts_with('/') ? name : dir_.path() + "/" + name;
    std::string reader;
    const std::string why = test::refusal([&] { reader = reader_of(runtime_, data); }, "");
    return reader + why;
  }
};

TEST_F(ReaderChoice, FollowsFromTheNameAndTheFirstLine) {
  dir_.write("tabs.txt", "label\tfilm, or series\tuser\n");
  data::write_gz(dir_, "tabs.txt.gz", "label\tfilm\n");
  dir_.write("semicolons.csv", "label;film;user\n");
  dir_.write("bars.txt", "label|film\n");
  dir_.write("one.csv", "label\n");
  dir_.write("commas.tsv", "label,film\n");
  for (const auto& [file, reader] :
       std::vector<std::pair<std::string, std::string>>{{"tabs.txt", "tsv"},
                                                        {"tabs.txt.gz", "tsv"},
                                                        {"semicolons.csv", "csv?delimiter=;"},
                                                        {"bars.txt", "csv?delimiter=|"},
                                                        {"one.csv", "csv"},
                                                        {"commas.tsv", "csv"},
                                                        {"there_is_none.tsv", "tsv"},
                                                        {"CLICKS.CSV.zst", "csv"},
                                                        {"clicks-*.csv.gz", "csv"}})
    EXPECT_EQ(of(file), reader) << file;
  EXPECT_THAT(of("clicks"), AllOf(StartsWith("data.path is \""), HasSubstr("clicks\", which no reader plugin opens")));
}

TEST_F(ReaderChoice, OfDirectories) {
  std::filesystem::create_directories(dir_.path() + "/days/day=1");
  EXPECT_THAT(of("days"), HasSubstr("which no reader plugin opens: set data.reader, as in reader = \"csv\""));
  dir_.write("days/README.md", "");
  dir_.write("days/day=1/a.csv", "label;film\n");
  EXPECT_EQ(of("days"), "csv?delimiter=;");
  dir_.write("days/b.tsv", "label\tfilm\n");
  EXPECT_THAT(of("days"), HasSubstr("which the readers csv?delimiter=;, tsv open: set data.reader"));
  std::filesystem::create_directory(dir_.path() + "/prepared");
  dir_.write("prepared/meta.json", kMeta);
  EXPECT_EQ(of("prepared"), "prepared");
  std::filesystem::create_directory(dir_.path() + "/raw");
  dir_.write("raw/ml-100k.inter", "");
  EXPECT_EQ(of("raw"), "movielens-100k");
}

}  // namespace
}  // namespace tessera
