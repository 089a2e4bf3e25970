// How a model interprets the text of a field: its word, number, time, missing value, label, list.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "config/test_refusal.h"
#include "data/test_files.h"
#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/runtime.h"
#include "tessera/sdk/values.h"

namespace tessera {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

const std::string kLabel = "[[column]]\nname = \"y\"\nas = \"label\"\n";
const std::string kId = "[[column]]\nname = \"id\"\nids = \"row\"\nrows = 10\n";

class Values : public testing::Test {
 protected:
  // Reads a job on the file v.csv, which uses all of its rows for training.
  Dataset read(const std::string& text, const std::string& columns, const std::string& encoding = "",
               const std::string& reader = "csv") {
    folder_.write("v.csv", text);
    const std::string data = "[data]\nreader = \"" + reader + "\"\ntest_fraction = 0\npath = \"" + file() + "\"\n";
    return read_dataset(runtime_, parse_config(data + columns, "job.toml"), encoding);
  }
  std::string file() const { return folder_.path() + "/v.csv"; }
  // The error message without the file's name.
  std::string error(const std::string& text, const std::string& columns, const std::string& encoding = "") {
    const std::string said = test::refusal([&] { (void)read(text, columns, encoding); });
    return said.starts_with(file() + ", ") ? said.substr(file().size() + 2) : said;
  }
  static Batch batch_of(const Dataset& set) {
    Batch batch;
    EXPECT_TRUE(BatchReader(set.train, {.batch = 1000}).next(batch));
    return batch;
  }
  static std::vector<std::string> words_of(const Dataset& set, const std::string& table) {
    return ordered_json::parse(set.encoding)["vocabularies"][table];
  }
  std::vector<float> dense(const std::string& text, const std::string& column) {
    return batch_of(read(text, kLabel + kId + column)).dense.to_vector<float>();
  }
  std::vector<float> labels(const std::string& values, const std::string& keys) {
    return batch_of(read("y,id\n" + values, kLabel + keys + kId)).labels.to_vector<float>();
  }

  const Runtime runtime_{{.plugin_path = {TESSERA_PLUGINS_BUILT}, .default_path = false}};
  data::TestDirectory folder_;
};

// The word of each typed value, and texts that programs write for it in files. Readers of typed values make these
// words.
TEST_F(Values, OneValueHasOneWordInAnySpelling) {
  const auto word_of = [](const auto& value) {
    std::string out;
    sdk::append_word(out, value);
    return out;
  };
  const auto time = [](int64_t ticks, int64_t per_second) {
    std::string out;
    sdk::append_time_word(out, ticks, per_second);
    return out;
  };
  const std::vector<std::pair<std::string, std::vector<std::string>>> all = {
      {word_of(4), {"4", "4.0", "4.00", "4e+00"}},
      {word_of(-3.0), {"-3", "-3.0"}},
      {word_of(uint64_t{18446744073709551615U}), {"18446744073709551615", "18446744073709551615.0"}},
      {word_of(0.1), {"0.1", "0.10", "1e-01"}},
      {word_of(-0.0), {"0", "-0", "0.0", "-0.0"}},
      {word_of(1e20), {"1e+20", "1e+20", "1.0e+20"}},
      {word_of(true), {"true", "True", "TRUE"}},
      {word_of(false), {"false", "False", "FALSE"}},
      {time(1706659200, 1), {"2024-01-31", "2024-01-31 00:00:00", "2024-01-31T00:00:00Z", "2024-01-31T01:00:00+01:00"}},
      {time(1706704496500, 1000), {"2024-01-31 12:34:56.5", "2024-01-31T12:34:56.500Z", "2024-01-31 12:34:56.5 UTC"}},
      {"007", {"007"}},
      {"1e5", {"1e5"}},
      {"Test", {"Test"}},
      {"Fax 1.0", {"Fax 1.0"}},
      {"-", {"-"}},
  };
  std::string text = "y,v,w,id\n";
  std::vector<std::string> words;
  std::vector<int32_t> rows;
  for (const auto& [word, spellings] : all) {
    words.push_back(word);
    for (const std::string& spelling : spellings) {
      text += "1," + spelling + "," + spelling + ",1\n";
      rows.push_back(static_cast<int32_t>(words.size()));
    }
  }
  const std::string columns = "[[column]]\nname = \"v\"\nids = \"vocabulary\"\n";
  const std::string hashed = "[[column]]\nname = \"w\"\nids = \"hash\"\nrows = 1000000\n";
  const std::string crossed = "[[column]]\nname = \"c\"\ncross = [\"v\", \"w\"]\nrows = 1000000\n";
  const Dataset set = read(text, kLabel + columns + hashed + crossed);
  EXPECT_EQ(words_of(set, "v"), words);
  const auto ids = batch_of(set).sparse.values().to_vector<int32_t>();
  ASSERT_EQ(ids.size(), 3 * rows.size());
  EXPECT_THAT(std::vector<int32_t>(ids.begin(), ids.begin() + std::ssize(rows)), ElementsAreArray(rows));
  for (size_t i = 1; i < rows.size(); ++i) {
    for (const size_t column : {rows.size(), 2 * rows.size()})
      EXPECT_EQ(ids[column + i] == ids[column + i - 1], rows[i] == rows[i - 1]) << i;
  }
}

TEST_F(Values, AModelKeepsTheRuleOfWordsThatItWasTrainedWith) {
  const std::string text = "y,v\n1,4.0\n0,4\n", columns = kLabel + "[[column]]\nname = \"v\"\nids = \"vocabulary\"\n";
  ordered_json encoding = ordered_json::parse(read(text, columns).encoding);
  EXPECT_EQ(encoding["words"], 1);
  EXPECT_EQ(encoding["vocabularies"]["v"], ordered_json::array({"4"}));
  encoding.erase("words");
  encoding["vocabularies"]["v"] = {"4.0", "4"};
  const Dataset old = read(text, columns, encoding.dump());
  EXPECT_THAT(batch_of(old).sparse.values().to_vector<int32_t>(), ElementsAre(1, 2));
  EXPECT_EQ(old.encoding, encoding.dump());
  encoding["words"] = 7;
  EXPECT_THAT(error(text, columns, encoding.dump()),
              HasSubstr("looks up words by rule 7, which this version does not"));
}

TEST_F(Values, NumbersAreRoundedAfterTheirTransform) {
  const auto x = dense("y,id,x\n1,1,1700000000001\n0,1,1700000000003\n",
                       "[[column]]\nname = \"x\"\nas = \"dense\"\ntransform = \"standardise\"\n");
  EXPECT_THAT(x, ElementsAre(-1, 1));
  const Dataset buckets = read("y,id,x\n1,1,0.7\n0,1,0.69999999\n1,1,16777217\n",
                               kLabel + "[[column]]\nname = \"x\"\nids = \"bucket\"\nbounds = [0.7, 16777217]\n");
  EXPECT_THAT(batch_of(buckets).sparse.values().to_vector<int32_t>(), ElementsAre(1, 0, 2));
  EXPECT_THAT(labels("0.7,1\n0.69999999,1\n", "threshold = 0.7\n"), ElementsAre(1, 0));
  const std::string plain = kLabel + kId + "[[column]]\nname = \"x\"\nas = \"dense\"\n";
  EXPECT_EQ(error("y,id,x\n1,1,1e39\n", plain), "row 1, column \"x\": \"1e39\" is too large for a float32");
  EXPECT_EQ(error("y,id,x\n1,1,1e39\n", plain + "transform = \"log1p\"\n"), "no error") << "its logarithm fits";
  EXPECT_EQ(error("y,id,x\n1,1,2\n1,1,1e400\n", plain + "transform = \"log1p\"\n"),
            "row 2, column \"x\": \"1e400\" is too large or too small for a double");
  EXPECT_EQ(error("y,id\n1e39,1\n", kLabel + "real = true\n" + kId),
            "row 1, column \"y\": the label is 1e+39, which is too large for a float32");
  EXPECT_EQ(error("y,id,w\n1,1,inf\n", kLabel + kId + "[[column]]\nname = \"w\"\nas = \"weight\"\n"),
            "row 1, column \"w\": \"inf\" is not a number: the reader's option missing_words=true (reader = "
            "\"csv?missing_words=true\") reads such words as missing values");
}

TEST_F(Values, WhatIsMissingIsTheMeanOrMedianOfTheTrainingRows) {
  const std::string text = "y,id,x\n1,1,1\n0,1,\n1,1,2\n0,1,9\n", column = "[[column]]\nname = \"x\"\nas = \"dense\"\n";
  EXPECT_THAT(dense(text, column + "missing = \"mean\"\n"), ElementsAre(1, 4, 2, 9));
  EXPECT_THAT(dense(text, column + "missing = \"median\"\n"), ElementsAre(1, 2, 2, 9));
  EXPECT_THAT(dense(text, column + "missing = \"mean\"\ntransform = \"log1p\"\n")[1], std::log1p(4.0f));
  const Dataset set = read(text, kLabel + kId + column + "missing = \"mean\"\ntransform = \"standardise\"\n");
  const auto standard = batch_of(set).dense.to_vector<float>();
  EXPECT_EQ(standard[1], 0);
  float sum = 0, squares = 0;
  for (const float x : standard) sum += x, squares += x * x;
  EXPECT_NEAR(sum, 0, 1e-6);
  EXPECT_NEAR(squares, 4, 1e-5) << "the row without a value is one of four";
  // Other rows, encoded with what these have taught.
  const Dataset other = read("y,id,x\n1,1,\n1,1,100\n", "", set.encoding);
  EXPECT_EQ(other.encoding, set.encoding);
  EXPECT_EQ(batch_of(other).dense.to_vector<float>()[0], 0);
  EXPECT_EQ(error("y,id,x\n1,1,\n", kLabel + kId + column + "missing = \"mean\"\n"),
            "no training row has a value in column \"x\", so it has no mean: leave the column out, or give missing a "
            "number");
  EXPECT_THAT(error(text, kLabel + kId + column + "missing = \"median\"\ntransform = \"standardise\"\n", set.encoding),
              HasSubstr("missing is \"median\", but was \"mean\" when the model was trained"));
}

TEST_F(Values, TakesWhetherAValueIsMissing) {
  const std::string price = "[[column]]\nname = \"price\"\nas = \"dense\"\nmissing = 0\n";
  const std::string none = "[[column]]\nname = \"none\"\ncolumn = \"price\"\nas = \"dense\"\ntake = \"missing\"\n";
  EXPECT_THAT(dense("y,id,price\n1,1,2.5\n0,1,\n", price + none), ElementsAre(2.5f, 0, 0, 1));
  const std::string ids = "[[column]]\nname = \"none\"\ncolumn = \"price\"\ntake = \"missing\"\n";
  const Dataset set = read("y,id,price\n1,1,2.5\n0,1,\n1,1,NA\n", kLabel + ids);
  EXPECT_EQ(set.columns[0].rows, 2);
  EXPECT_THAT(batch_of(set).sparse.values().to_vector<int32_t>(), ElementsAre(0, 1, 1));
}

TEST_F(Values, TakesPartsOfTimes) {
  // A Wednesday; all spellings mean the same instant.
  const std::vector<std::string> spellings = {"2024-01-31T23:30:00", "2024-02-01 00:30+01:00", "1706743800",
                                              "1706743800000",       "1706743800000000",       "1706743800000000000",
                                              "1706743800.0"};
  std::string text = "y,at\n";
  for (const std::string& at : spellings) text += "1," + at + "\n";
  const auto column = [](const std::string& take) {
    return "[[column]]\nname = \"" + take + "\"\ncolumn = \"at\"\ntake = \"" + take + "\"\n";
  };
  const Dataset set = read(text, kLabel + column("hour") + column("weekday") + column("month") +
                                     "[[column]]\nname = \"days\"\ncolumn = \"at\"\ntake = \"days\"\nas = \"dense\"\n");
  ASSERT_EQ(set.columns.size(), 3u);
  EXPECT_EQ(set.columns[0].rows, 24);
  EXPECT_EQ(set.columns[1].rows, 7);
  EXPECT_EQ(set.columns[2].rows, 12);
  const Batch batch = batch_of(set);
  const auto ids = batch.sparse.values().to_vector<int32_t>();
  ASSERT_EQ(ids.size(), 3 * spellings.size());
  for (size_t i = 0; i < spellings.size(); ++i) {
    EXPECT_EQ(ids[i], 23) << spellings[i];
    EXPECT_EQ(ids[spellings.size() + i], 2) << spellings[i];
    EXPECT_EQ(ids[2 * spellings.size() + i], 0) << spellings[i];
    EXPECT_FLOAT_EQ(batch.dense.to_vector<float>()[i], 19753.98f) << spellings[i];
  }
  const Dataset gaps = read("y,at\n1,\n0,1969-12-31 23:00\n1,NaT\n",
                            kLabel + column("weekday") + column("hour") + "ids = \"bucket\"\nbounds = [12, 18]\n");
  EXPECT_THAT(batch_of(gaps).sparse.lengths().to_vector<int32_t>(), ElementsAre(0, 1, 0, 0, 1, 0));
  EXPECT_THAT(batch_of(gaps).sparse.values().to_vector<int32_t>(), ElementsAre(2, 2)) << "a Wednesday, the evening";
  for (const char* none : {"17", "20240131", "20240131123000", "31.01.2024", "soon", "1e30"}) {
    EXPECT_THAT(error(str_cat("y,at\n1,2024-01-31\n0,", none, "\n"), kLabel + column("hour")),
                HasSubstr(str_cat("row 2, column \"at\": \"", none, "\" is not a time: a date as in 2024-01-31")));
  }
  EXPECT_THAT(error("y,at,id\n1,,1\n", kLabel + kId + column("hour") + "as = \"dense\"\n"),
              HasSubstr("row 1, column \"at\": the value is missing"));
  EXPECT_THAT(error(text, kLabel + column("days")), HasSubstr("says no rows"));
  EXPECT_THAT(error(text, kLabel + column("hour") + "ids = \"hash\"\n"),
              HasSubstr("take = \"hour\" gives numbers, so ids must be \"row\" or \"bucket\""));
}

TEST_F(Values, TimeIsCountedFromADay) {
  const auto column = [](const char* take, const std::string& more = "") {
    return str_cat("[[column]]\nname = \"", take, "\"\ncolumn = \"at\"\ntake = \"", take, "\"\n", more);
  };
  const std::string since = "since = \"2024-02-01 06:00\"\n", row = "ids = \"row\"\nrows = 100000\n";
  const std::string text = "y,at\n1,2024-02-01 06:00\n0,2024-02-02T07:30:59Z\n1,1706859059\n";
  const Dataset set = read(text, kLabel + column("days", since + row) + column("hours", since + row) +
                                     column("minutes", since + "as = \"dense\"\n"));
  const Batch batch = batch_of(set);
  EXPECT_THAT(batch.sparse.values().to_vector<int32_t>(), ElementsAre(0, 1, 1, 0, 25, 25));
  const auto minutes = batch.dense.to_vector<float>();
  EXPECT_THAT(minutes, ElementsAre(0, testing::FloatNear(1530.983F, 1e-3F), minutes[1]));
  EXPECT_EQ(batch_of(read("y,at\n1,1970-01-02 00:01\n", kLabel + column("minutes", row)))
                .sparse.values()
                .to_vector<int32_t>()[0],
            1441);
  EXPECT_THAT(error("y,at\n1,2024-02-01 05:59\n", kLabel + column("hours", since + row)),
              HasSubstr("row 1, column \"at\": the time is earlier than since = \"2024-02-01 06:00\""));
  EXPECT_THAT(error(text, kLabel + column("hour", since)), HasSubstr("counts no time, so its \"since\" has no effect"));
  EXPECT_THAT(error(text, kLabel + column("days", row + "since = \"soon\"\n")),
              HasSubstr("since is \"soon\", but must be a date as 2024-01-31"));
}

TEST_F(Values, AColumnOfTheFilesIsUsedTwice) {
  const std::string both =
      "[[column]]\nname = \"x\"\nas = \"dense\"\n[[column]]\nname = \"x_bucket\"\ncolumn = "
      "\"x\"\nids = \"bucket\"\nbounds = [5]\n[[column]]\nname = \"x_word\"\ncolumn = \"x\"\nids = "
      "\"vocabulary\"\n[[column]]\nname = \"same\"\ncolumn = \"x\"\nids = \"bucket\"\nbounds = [1]\n";
  for (const char* text : {"y,x\n1,3\n0,7.5\n", "y,x\n1,\"3\"\n0,\"7.5\"\n"}) {
    const Dataset set = read(text, kLabel + both);
    const Batch batch = batch_of(set);
    EXPECT_THAT(batch.dense.to_vector<float>(), ElementsAre(3, 7.5f));
    EXPECT_THAT(batch.sparse.values().to_vector<int32_t>(), ElementsAre(0, 1, 1, 2, 1, 1));
    EXPECT_EQ(batch_of(read(text, "", set.encoding)).sparse.values().to_vector<int32_t>(),
              batch.sparse.values().to_vector<int32_t>());
  }
  const std::string renamed = "[[column]]\nname = \"click\"\ncolumn = \"y\"\nas = \"label\"\n";
  EXPECT_THAT(batch_of(read("y,id\n1,1\n0,2\n", renamed + kId)).labels.to_vector<float>(), ElementsAre(1, 0));
  EXPECT_EQ(read("y,id\n1,1\n", renamed + kId).labels, std::vector<std::string>{"click"});
  EXPECT_THAT(error("y,id\n3,1\n", renamed + kId),
              HasSubstr("row 1, column \"y\": the label is 3, but must be 0 or 1"));
  EXPECT_THAT(error("y,x\n1,1\n", kLabel + "[[column]]\nname = [\"a\", \"b\"]\ncolumn = \"x\"\nrows = 9\n"),
              HasSubstr("is one of several names, but column = \"x\" is one column"));
  const std::string encoding = read("y,x\n1,3\n0,7.5\n", kLabel + both).encoding;
  std::string other = both;
  other.replace(other.find("column = \"x\""), 12, "column = \"z\"");
  EXPECT_THAT(error("y,x,z\n1,3,3\n", kLabel + other, encoding), HasSubstr("column is \"z\", but was \"x\" when"));
}

TEST_F(Values, LabelsAreWordsToo) {
  EXPECT_THAT(labels("yes,1\nno,1\n yes ,1\n\"no\",1\n", "positive = \"yes\"\n"), ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(labels("2,1\n1,1\n2.0,1\n", "positive = \"2\"\n"), ElementsAre(1, 0, 1));
  EXPECT_THAT(labels("none,1\nsome,1\n", "positive = \"some\"\n"), ElementsAre(0, 1));
  EXPECT_THAT(labels("True,1\nFalse,1\nTRUE,1\nfalse,1\n", ""), ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(labels("1.0,1\n0.0,1\n 1 ,1\n", ""), ElementsAre(1, 0, 1));
  const auto wrong = [&](const std::string& value, const std::string& keys) {
    return error("y,id\n" + value + ",1\n", kLabel + keys + kId);
  };
  EXPECT_EQ(
      wrong("good", ""),
      "row 1, column \"y\": \"good\" is not a number: positive = \"good\" in its [[column]] makes that word 1 and "
      "all others 0");
  EXPECT_EQ(wrong("", "positive = \"yes\"\n"), "row 1, column \"y\": the label is missing");
  EXPECT_EQ(wrong("YES", "positive = \"Yes\"\n"),
            "row 1, column \"y\": the label is \"YES\", but positive = \"Yes\" makes only that spelling 1: write one "
            "spelling into the files");
  EXPECT_THAT(labels("True,1\nFALSE,1\n", "positive = \"TRUE\"\n"), ElementsAre(1, 0));
  EXPECT_EQ(wrong("NaN", "positive = \"yes\"\n"), "row 1, column \"y\": the label is missing: it is \"NaN\"");
  EXPECT_EQ(wrong("null", ""), "row 1, column \"y\": the label is missing: it is \"null\"");
  EXPECT_THAT(wrong("\"65,5\"", "real = true\n"), HasSubstr("\"65,5\" is not a number: decimal = \",\""));
  EXPECT_THAT(wrong("1", "positive = \"1\"\nthreshold = 1\n"), HasSubstr("has positive, so it has no threshold"));
  EXPECT_THAT(wrong("1", "positive = \"1\"\nreal = true\n"), HasSubstr("has positive, so it is not real"));
  EXPECT_THAT(error("y,id\n1,1\n", kLabel + kId + "positive = \"1\"\n"), HasSubstr("its \"positive\" has no effect"));
}

TEST_F(Values, NumbersInTextOfAnyCountry) {
  const std::string x = "[[column]]\nname = \"x\"\nas = \"dense\"\n";
  EXPECT_THAT(dense("y,id,x\n1,1,\"65,5\"\n0,1,\" 1.234,5\"\n", x + "decimal = \",\"\nstrip = \".\"\n"),
              ElementsAre(65.5f, 1234.5f));
  EXPECT_THAT(dense("y,id,x\n1,1,$12.99\n0,1,\"1,234 $\"\n1,1,50%\n1,1,-$3\n", x + "strip = \"$%,\"\n"),
              ElementsAre(12.99f, 1234, 50, -3));
  EXPECT_THAT(dense("y,id,x\n1,1,\"1,5\"\n0,1,NA\n", x + "decimal = \",\"\nmissing = \"mean\"\n"),
              ElementsAre(1.5f, 1.5f));
  EXPECT_THAT(labels("\"3,5\",1\n\"2,5\",1\n", "threshold = 3\ndecimal = \",\"\n"), ElementsAre(1, 0));
  const Dataset bucket =
      read("y,x\n1,\"3,5\"\n0,\n",
           kLabel + "[[column]]\nname = \"x\"\nids = \"bucket\"\nbounds = [2, 3]\ndecimal = \",\"\n");
  EXPECT_THAT(batch_of(bucket).sparse.lengths().to_vector<int32_t>(), ElementsAre(1, 0));
  EXPECT_THAT(batch_of(bucket).sparse.values().to_vector<int32_t>(), ElementsAre(2));
  const auto wrong = [&](const std::string& value, const std::string& keys) {
    return error("y,id,x\n1,1,\"" + value + "\"\n", kLabel + kId + x + keys);
  };
  const std::string begin = "row 1, column \"x\": ";
  EXPECT_EQ(wrong("65,5", ""), begin +
                                   "\"65,5\" is not a number: decimal = \",\" in its [[column]] if the comma is the "
                                   "decimal sign, or strip = \",\" if it only groups digits");
  EXPECT_EQ(wrong("1.234,5", "decimal = \",\"\n"),
            begin +
                "\"1.234,5\" is not a number with decimal = \",\": strip = \".\" leaves out points that group "
                "digits");
  EXPECT_EQ(wrong("0.54", "decimal = \",\"\n"),
            begin + "\"0.54\" is not a number with decimal = \",\": write a comma there, or leave decimal out");
  EXPECT_THAT(wrong("$12.99", ""), HasSubstr("\"$12.99\" is not a number: strip = \"$\" in its [[column]]"));
  EXPECT_THAT(wrong("12 345,6 \xe2\x82\xac", ""),
              HasSubstr("is not a number: strip = \" \xe2\x82\xac\" and decimal = \",\" in its [[column]]"));
  EXPECT_THAT(wrong("2024-01-31", ""), HasSubstr("\"2024-01-31\" is not a number: take = \"days\""));
  EXPECT_EQ(wrong("12:34", ""), begin + "\"12:34\" is not a number");
  EXPECT_THAT(wrong("\\N", ""), HasSubstr("\"\\N\" is not a number: the reader's option missing_words=true"));
  EXPECT_THAT(wrong("($49.00)", ""), HasSubstr("is not a number: a negative number must have a minus, not "
                                               "parentheses"));
  EXPECT_THAT(wrong("90.000,00", ""), HasSubstr("is not a number: strip = \".\" and decimal = \",\" in its"));
  EXPECT_THAT(wrong("x", "strip = \"$\"\n"), HasSubstr("\"x\" is not a number"));
  EXPECT_THAT(wrong("1", "decimal = \",,\"\n"), HasSubstr("decimal is \",,\", but must be one character"));
  EXPECT_THAT(wrong("1", "strip = \"$1\"\n"), HasSubstr("strip is \"$1\", but digits, signs and the decimal sign"));
  EXPECT_THAT(error("y,id\n1,1\n", kLabel + kId + "strip = \"$\"\n"), HasSubstr("reads no number, so its \"strip\""));
}

TEST_F(Values, AColumnHasItsOwnMissingWords) {
  const std::string x = "[[column]]\nname = \"x\"\nas = \"dense\"\nmissing_words = [\"tbd\", \"#DIV/0!\"]\n";
  EXPECT_THAT(dense("y,id,x\n1,1,1.5\n0,1,tbd\n1,1, #DIV/0! \n0,1,NA\n", x + "missing = 3\n"),
              ElementsAre(1.5f, 3, 3, 3));
  EXPECT_THAT(dense("y,id,x\n1,1,tbd\n0,1,$2\n", x + "missing = \"mean\"\nstrip = \"$\"\n"), ElementsAre(2, 2));
  EXPECT_THAT(dense("y,id,x\n1,1,tbd\n0,1,2\n",
                    "[[column]]\nname = \"x\"\nas = \"dense\"\ntake = \"missing\"\nmissing_words = [\"tbd\"]\n"),
              ElementsAre(1, 0));
  const auto wrong = [&](const std::string& value, const std::string& keys) {
    return error("y,id,x\n1,1," + value + "\n", kLabel + kId + keys);
  };
  EXPECT_THAT(wrong("TBA", x + "missing = 3\n"), HasSubstr("\"TBA\" is not a number"));
  const std::string ids = "[[column]]\nname = \"x\"\nids = \"vocabulary\"\n";
  EXPECT_THAT(wrong("1", ids + "missing_words = [\"a\"]\n"), HasSubstr("its \"missing_words\" has no effect"));
  EXPECT_THAT(wrong("1", "[[column]]\nname = \"x\"\nas = \"dense\"\nmissing_words = [\"-1\"]\n"),
              HasSubstr("missing_words has \"-1\", which is a number"));
  EXPECT_THAT(wrong("1", "[[column]]\nname = \"x\"\nas = \"dense\"\nmissing_words = [\" \"]\n"),
              HasSubstr("an empty field is missing"));
  EXPECT_THAT(error("y,id\n1,1\n", kLabel + "missing_words = [\"a\"]\n" + kId), HasSubstr("is a label"));
  // The words are part of the model.
  const std::string trained = read("y,id,x\n1,1,tbd\n", kLabel + kId + x + "missing = 3\n").encoding;
  EXPECT_THAT(batch_of(read("y,id,x\n1,1,tbd\n", kLabel + kId + x + "missing = 3\n", trained)).dense.to_vector<float>(),
              ElementsAre(3));
}

TEST_F(Values, TimesHaveOtherForms) {
  const auto hours = [&](const std::string& format, const std::string& time) {
    return dense("y,id,x\n1,1,\"" + time + "\"\n",
                 "[[column]]\nname = \"x\"\nas = \"dense\"\ntake = \"days\"\ntime_format = \"" + format + "\"\n")[0] *
           24;
  };
  struct Case {
    const char *format, *time;
    float hours;  // since 1970
  };
  for (const Case& c : std::vector<Case>{{"%d.%m.%Y", "02.01.1970", 24},
                                         {"%d.%m.%Y %H:%M", "2.1.1970 6:00", 30},
                                         {"%m/%d/%y %I:%M:%S %p", "01/02/70 12:00:00 AM", 24},
                                         {"%m/%d/%Y %I:%M%p", "1/2/1970 12:30pm", 36.5f},
                                         {"%d-%b-%Y", "02-JAN-1970", 24},
                                         {"%a, %d %B %Y %H:%M:%S %z", "Fri, 02 January 1970 01:00:00 +0100", 24},
                                         {"%d/%b/%Y:%H:%M:%S %z", "01/Jan/1970:23:00:00 -01:00", 24},
                                         {"%Y%m%dT%H%M%S", "19700102T120000", 36},
                                         {"%b-%Y", "Feb-1970", 31 * 24},
                                         {"100%% %Y-%m", "100% 1970-02", 31 * 24}})
    EXPECT_FLOAT_EQ(hours(c.format, c.time), c.hours) << c.format;
  const std::string x = "[[column]]\nname = \"x\"\nas = \"dense\"\n";
  const auto wrong = [&](const std::string& value, const std::string& keys) {
    return error("y,id,x\n1,1,\"" + value + "\"\n", kLabel + kId + x + keys);
  };
  const std::string day = "take = \"days\"\ntime_format = \"%d.%m.%Y\"\n";
  for (const char* time :
       {"31.02.2024", "2024-01-31", "1.13.2024", "1.1.24", "1.1.2024 ", "1.1.2024 10:00", "20240131"})
    EXPECT_THAT(wrong(time, day), time == std::string("1.1.2024 ")
                                      ? HasSubstr("no error")
                                      : HasSubstr("is not a time as time_format \"%d.%m.%Y\" says"));
  EXPECT_THAT(wrong("1", "time_format = \"%d.%m.%Y\"\n"), HasSubstr("its \"time_format\" has no effect"));
  EXPECT_THAT(wrong("1", "take = \"days\"\ntime_format = \"%d.%m\"\n"), HasSubstr("has no year"));
  EXPECT_THAT(wrong("1", "take = \"days\"\ntime_format = \"%Q\"\n"), HasSubstr("has %Q, but only"));
  EXPECT_THAT(wrong("1", "take = \"days\"\ntime_format = \"%Y-%m %I\"\n"), HasSubstr("%I and %p together"));
  EXPECT_THAT(wrong("1", "take = \"days\"\ntime_format = \"%Y-%m%\"\n"), HasSubstr("ends with %"));
  EXPECT_THAT(wrong("31.01.2024", "take = \"days\"\n"), HasSubstr("time_format reads other forms"));
}

TEST_F(Values, WordsAreUtf8) {
  const std::string columns = kLabel + "[[column]]\nname = \"v\"\nids = \"vocabulary\"\n";
  EXPECT_EQ(error("y,v\n1,caf\xe9\n", columns),
            "row 1, column \"v\": a word of a vocabulary must be UTF-8; a file in another encoding is read by reader = "
            "\"csv?encoding=latin-1\", or windows-1252 or utf-16, and ids = \"hash\" takes any bytes");
  EXPECT_EQ(words_of(read("y,v\n1,caf\xe9\n", columns, "", "csv?encoding=latin-1"), "v"),
            std::vector<std::string>{"caf\xc3\xa9"});
}

}  // namespace
}  // namespace tessera
