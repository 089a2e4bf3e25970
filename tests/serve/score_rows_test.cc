// Rows by the names of their columns: accepted requests, refused ones with their sentences, responses.
#include "serve/score_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "config/test_refusal.h"
#include "fake_predictor.h"
#include "tessera/data.h"

namespace tessera::serve {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Users are lists of texts with weights, items are numbers in buckets; there is a cross of the two; ages may be
// missing.
constexpr const char* kShopColumns = R"({"reader": "csv", "hash": "xxh64", "columns": [
  {"name": "click", "as": "label", "table": "click"},
  {"name": "price", "as": "dense", "table": "price", "transform": ["log1p"]},
  {"name": "age", "as": "dense", "table": "age", "missing": 30},
  {"name": "user", "as": "ids", "table": "user", "ids": "vocabulary", "rows": 0, "separator": "|", "weighted": true,
   "pooling": "sum"},
  {"name": "item", "as": "ids", "table": "item", "ids": "bucket", "rows": 0, "bounds": [6, 12], "pooling": "sum"},
  {"name": "both", "as": "ids", "table": "both", "cross": ["user", "item"], "rows": 50, "pooling": "sum"}],
  "vocabularies": {"user": ["ann", "bob", "4", "true"]}})";

constexpr const char* kListColumns = R"({"reader": "csv?missing_words=true", "columns": [
  {"name": "click", "as": "label", "table": "click"},
  {"name": "vec", "as": "vector", "table": "vec", "width": 3},
  {"name": "tags", "as": "ids", "table": "tags", "ids": "vocabulary", "rows": 0, "separator": "|", "pooling": "sum"},
  {"name": "hour", "as": "ids", "table": "hour", "ids": "row", "rows": 24, "pooling": "sum"}],
  "vocabularies": {"tags": ["new", "red"]}})";

class ScoreRows : public ::testing::Test {
 protected:
  ScoreRows() {
    model_.is_weighted = true;
    model_.features.push_back({"both", 50, {"both_table"}});
  }
  InferRequest parse(const std::string& rows) const {
    return parse_scores(model_, str_cat("{\"rows\": ", rows, "}"), {4, &columns_, "shop"});
  }
  std::string refusal(const std::string& body) const {
    return test::refusal(
        Code::kInvalidArgument,
        [&] {
          parse_scores(model_, body, {4, &columns_, "shop"});
        },
        "accepted");
  }
  std::string refused_row(const std::string& row) const {
    return refusal(str_cat(R"({"rows": [{"price": 1}, )", row, "]}"));
  }

  ColumnEncoding columns_{kShopColumns, "the test"};
  ModelDescription model_ = FakePredictor().model();
};

std::vector<int64_t> ids_of(const InferRequest& request, size_t f) {
  return {request.features[f].values.begin(), request.features[f].values.end()};
}
std::vector<int32_t> lengths_of(const InferRequest& request, size_t f) {
  return {request.features[f].lengths.begin(), request.features[f].lengths.end()};
}
std::vector<float> weights_of(const InferRequest& request, size_t f) {
  return {request.features[f].weights.begin(), request.features[f].weights.end()};
}

// A column of another name in the files has only that one: the model's own name is no column of a row.
TEST_F(ScoreRows, NameTheColumnsOfTheFiles) {
  std::string text = kShopColumns;
  text.insert(text.find("\"as\": \"ids\", \"table\": \"user\""), "\"column\": \"history.user\", ");
  columns_ = ColumnEncoding(text, "the test");
  EXPECT_THAT(ids_of(parse(R"([{"history.user": ["bob"], "price": 0, "item": 7}])"), 0), ElementsAre(2));
  EXPECT_THAT(refused_row(R"({"user": "bob", "price": 0, "item": 7})"),
              HasSubstr("row 2: the model has no column \"user\"; the nearest is"));
}

TEST_F(ScoreRows, AreWhatTheFilesHad) {
  const InferRequest request = parse(R"([{"user": "bob:1", "price": 0, "age": 31, "item": 7.5, "click": 1},
                                        {"price": "1.718281828", "user": ["ann", 4, true], "item": null},
                                        {"price": 2, "age": "", "user": {"bob": 0.5, "nobody": 2}, "item": "13"}])");
  EXPECT_TRUE(request.rows);
  EXPECT_EQ(request.batch, 3);
  EXPECT_THAT(request.dense, ElementsAre(0, 31, FloatEq(1), 30, FloatEq(std::log1p(2.0f)), 30));
  EXPECT_THAT(ids_of(request, 0), ElementsAre(2, 1, 3, 4, 2, 0));
  EXPECT_THAT(lengths_of(request, 0), ElementsAre(1, 3, 2));
  EXPECT_THAT(weights_of(request, 0), ElementsAre(1, 1, 1, 1, 0.5f, 2));
  EXPECT_THAT(ids_of(request, 1), ElementsAre(1, 2));
  EXPECT_THAT(lengths_of(request, 1), ElementsAre(1, 0, 1));
  EXPECT_THAT(lengths_of(request, 2), ElementsAre(1, 0, 2)) << "every user with every item";
}

TEST_F(ScoreRows, ListsOfEachSpelling) {
  const InferRequest request =
      parse(R"([{"price": 1, "user": "bob:1 | ann:0.5"}, {"price": 1, "user": [["bob", 1], ["ann", "0.5"]]},
                {"price": 1, "user": {"bob": 1, "ann": 0.5}}, {"price": 1, "user": []}])");
  EXPECT_THAT(ids_of(request, 0), ElementsAre(2, 1, 2, 1, 2, 1));
  EXPECT_THAT(lengths_of(request, 0), ElementsAre(2, 2, 2, 0));
  EXPECT_THAT(weights_of(request, 0), ElementsAre(1, 0.5f, 1, 0.5f, 1, 0.5f));
  const InferRequest printed = parse(R"([{"price": 1, "user": "{'bob': 1, 'ann': 0.5}"}, {"price": 1, "user": " "}])");
  EXPECT_THAT(ids_of(printed, 0), ElementsAre(2, 1));
  EXPECT_THAT(weights_of(printed, 0), ElementsAre(1, 0.5f));
}

// The code that splits fields of CSV files also splits these texts.
TEST_F(ScoreRows, TextsOfListsAreReadAsFieldsOfFiles) {
  columns_ = ColumnEncoding(kListColumns, "the test");
  model_.is_weighted = false;
  model_.features = {{"tags", 3, {"tags"}}, {"hour", 24, {"hour"}}};
  model_.dense_inputs = 3;
  const InferRequest request = parse(R"x([{"tags": " new | red", "vec": "1 2 3", "hour": "3.0"},
                                         {"tags": "(red, new)", "vec": "[4, 5, 6]", "hour": "+3"},
                                         {"tags": ["new | red"], "vec": [7, 8, 9], "hour": "NA"}])x");
  EXPECT_THAT(ids_of(request, 0), ElementsAre(1, 2, 2, 1, 0));
  EXPECT_THAT(ids_of(request, 1), ElementsAre(3, 3));
  EXPECT_THAT(lengths_of(request, 1), ElementsAre(1, 1, 0));
  EXPECT_THAT(request.dense, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));
  const auto refused = [&](const std::string& row) { return refusal(str_cat(R"({"rows": [)", row, "]}")); };
  EXPECT_EQ(refused(R"({"vec": "1 2 3", "tags": "new||red"})"),
            "row 1, column \"tags\": there is a value missing in the list");
  EXPECT_EQ(refused(R"({"vec": "1 2"})"), "row 1, column \"vec\": the model takes 3 numbers, and this row has 2");
  EXPECT_THAT(refused(R"({"vec": "1 2 x"})"), HasSubstr("row 1, column \"vec\": \"x\" is not a number"));
  EXPECT_THAT(refused(R"({"vec": [1, 2, 3], "hour": 100000000000000000000})"),
              HasSubstr("row 1, column \"hour\": \"100000000000000000000\" does not fit into 64 bits"));
  EXPECT_THAT(refused(R"({"vec": "1 2 NA"})"), HasSubstr("there is a value missing in the list"));
}

TEST_F(ScoreRows, TextsWithWeightsAreReadAsFieldsOfFiles) {
  EXPECT_EQ(refused_row(R"({"price": 1, "user": "ann:1|bob"})"),
            "row 2, column \"user\": \"bob\" has no weight after \":\"; or send {VALUE: WEIGHT, ...}");
  EXPECT_THAT(refused_row(R"({"price": 1, "user": "ann:|bob:1"})"), HasSubstr("\"\" is not a number"));
  EXPECT_THAT(refused_row(R"({"price": 1, "user": ":2"})"), HasSubstr("there is a value missing in the list"));
  EXPECT_EQ(refused_row(R"({"price": 1, "user": ["ann:1"]})"),
            "row 2, column \"user\": \"ann:1\" in a list is a value without a weight: send {\"ann\": 1}, or "
            "{\"ann:1\": 1} if that is the value");
}

// A double does not hold such numbers, so they are taken as they are written.
TEST_F(ScoreRows, NumbersOfManyDigitsKeepThem) {
  std::string columns = kShopColumns;
  columns.replace(columns.find("\"4\", \"true\""), 3, "\"100000000000000000003\", \"9007199254740993\"");
  columns_ = ColumnEncoding(columns, "the test");
  const InferRequest request = parse(R"([{"price": 1, "user": [100000000000000000003, 100000000000000000002]},
                                         {"price": 1, "user": 9007199254740993}, {"price": 1e3, "item": 1e1}])");
  EXPECT_THAT(ids_of(request, 0), ElementsAre(3, 0, 4));
}

// 4, 4.0 and "4" are one word; "4.0" follows the model's own rule.
TEST_F(ScoreRows, NumbersAndTextsAreTheSameWords) {
  const InferRequest request = parse(R"([{"price": 1, "user": 4}, {"price": 1, "user": 4.0},
                                         {"price": 1, "user": ["4"]}, {"price": 1, "user": true}])");
  EXPECT_THAT(ids_of(request, 0), ElementsAre(3, 3, 3, 4));
}

TEST_F(ScoreRows, RefusalsNameRowAndColumn) {
  EXPECT_EQ(refused_row(R"({"age": 31})"),
            "row 2, column \"price\": the value is missing, and the model has no other value for it (set missing in "
            "its [[column]])");
  EXPECT_EQ(refused_row(R"({"price": "dear"})"), "row 2, column \"price\": \"dear\" is not a number");
  EXPECT_EQ(refused_row(R"({"price": 1, "usr": "ann"})"),
            "row 2: the model has no column \"usr\"; the nearest is \"user\", of \"price\", \"age\", \"user\" and "
            "\"item\"");
  EXPECT_THAT(refused_row(R"({"price": 1, "both": "x"})"), HasSubstr("the model has no column \"both\""));
  EXPECT_EQ(refused_row(R"({"price": [1]})"), "row 2, column \"price\": it takes one value, not a list");
  EXPECT_EQ(refused_row(R"({"price": {"a": 1}})"), "row 2, column \"price\": it takes one value");
  EXPECT_EQ(refused_row(R"({"price": 1, "price": 2})"), "row 2, column \"price\": it is there twice");
  EXPECT_EQ(refused_row(R"({"price": 1, "item": {"7": 1}})"),
            "row 2, column \"item\": the model takes no weights there: send a list of values");
  EXPECT_EQ(refused_row(R"({"price": 1, "item": [[7, 1]]})"),
            "row 2, column \"item\": it takes a list of values, not of lists");
  EXPECT_EQ(refused_row(R"({"price": 1, "user": [["ann"]]})"), "row 2, column \"user\": a pair is [value, weight]");
  EXPECT_EQ(refused_row(R"({"price": 1, "user": [["ann", 1, 2]]})"),
            "row 2, column \"user\": a pair is [value, weight]");
  EXPECT_EQ(refused_row(R"({"price": 1, "user": {"ann": "much"}})"),
            "row 2, column \"user\": \"much\" is not a number");
  EXPECT_EQ(refused_row(R"({"price": 1, "user": {"ann": null}})"),
            "row 2, column \"user\": a weight is a finite number");
  EXPECT_THAT(refused_row("7"), HasSubstr("row 2 cannot be a single value, it is an object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("the request has no \"rows\": send {\"rows\": [{\"price\": 1, \"age\": 1, "));
  EXPECT_THAT(refusal(R"({"rows": []})"), HasSubstr("at least one row"));
  EXPECT_THAT(refusal(R"({"user": "ann"})"), HasSubstr("\"user\" is not a member of a request: send {\"rows\""));
  EXPECT_THAT(refusal(R"({"rows": {"user": "ann"}})"), HasSubstr("\"rows\" cannot be"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("the request cannot be an array"));
  EXPECT_THAT(refusal(R"({"rows": [{}, )"), HasSubstr("column \"price\""));
  EXPECT_THAT(refusal(R"({"rows": [{"price": 1}, )"),
              HasSubstr("the request is not JSON: line 1, byte 25: it ends too early"));
  EXPECT_THAT(refusal(R"({"rows": [{"price":1},{"price":1},{"price":1},{"price":1},{"price":1}]})"),
              HasSubstr("more than 4 rows"));
  EXPECT_THAT(refusal(R"({"rows": [{"price": 1}], "model": "other"})"),
              HasSubstr("names model \"other\", but was sent to \"shop\""));
  EXPECT_THAT(refusal(R"({"rows": [{"price": 1}], "outputs": ["like"]})"), HasSubstr("output \"like\" is unknown"));
  EXPECT_THAT(refused_row(R"({"price": 1, "age": 1e300})"), HasSubstr("row 2, column \"age\": it is too large"));
}

// A column of the files that two of the model's columns read, and numbers with a comma.
TEST_F(ScoreRows, TimesAndNumbersInTexts) {
  const ColumnEncoding columns(R"({"reader": "csv", "columns": [
    {"name": "click", "as": "label", "table": "click"},
    {"name": "hour", "column": "at", "as": "dense", "table": "hour", "take": "hour"},
    {"name": "cost", "as": "dense", "table": "cost", "decimal": ","},
    {"name": "day", "column": "at", "as": "ids", "table": "day", "ids": "row", "rows": 7, "take": "weekday",
     "pooling": "sum"}], "vocabularies": {}})",
                               "the test");
  ModelDescription model{
      .name = "shop", .dense_inputs = 2, .features = {{"day", 7, {"day_table"}}}, .outputs = {{"score"}}};
  const auto ask = [&](const std::string& row) {
    return parse_scores(model, str_cat("{\"rows\": [", row, "]}"), {4, &columns});
  };
  for (const char* row : {R"({"at": "2024-01-31 13:00", "cost": "65,5"})", R"({"at": 1706706000, "cost": 65.5})",
                          R"({"at": "2024-01-31T14:00:00+01:00", "cost": 65.5})"}) {
    const InferRequest request = ask(row);
    EXPECT_THAT(request.dense, ElementsAre(13, 65.5f)) << row;
    EXPECT_THAT(ids_of(request, 0), ElementsAre(2)) << row;
  }
  EXPECT_THAT(test::refusal([&] { ask(R"({"at": "soon", "cost": 1})"); }),
              HasSubstr("row 1, column \"at\": \"soon\" is not a time"));
}

TEST_F(ScoreRows, OfAModelWithoutColumns) {
  const ModelDescription model = FakePredictor().model();
  const auto ask = [&](const std::string& row) { return parse_scores(model, str_cat("{\"rows\": [", row, "]}"), {}); };
  const InferRequest request = ask(R"({"dense": [0.5, "2"], "user": 3, "item": ["7", 9.0]})");
  EXPECT_THAT(request.dense, ElementsAre(0.5f, 2));
  EXPECT_THAT(ids_of(request, 0), ElementsAre(3));
  EXPECT_THAT(ids_of(request, 1), ElementsAre(7, 9));
  const auto refused = [&](const std::string& row) -> std::string {
    return test::refusal([&] { ask(row); }, "accepted");
  };
  EXPECT_EQ(refused(R"({"dense": [1], "user": 3})"),
            "row 1, column \"dense\": the model takes 2 numbers, and this row has 1");
  EXPECT_EQ(refused(R"({"user": 3})"), "row 1, column \"dense\": the model takes 2 numbers, and this row has 0");
  EXPECT_EQ(refused(R"({"dense": [1, 2], "user": "ann"})"), "row 1, column \"user\": \"ann\" is not a whole number");
  EXPECT_EQ(refused(R"({"dense": [1, 2], "user": 0.5})"),
            "row 1, column \"user\": its ids are rows of a table: whole numbers from 0 on");
}

TEST_F(ScoreRows, ScoresComeByName) {
  InferRequest request = parse(R"([{"price": 1}, {"price": 2}])");
  request.id = "q";
  const std::vector<float> first = {0.25f, 0.5f}, second = {1, 2, 3, 4};
  const std::vector<std::span<const float>> one = {first}, two = {first, second};
  const auto render = [&](const std::vector<std::span<const float>>& values) {
    return json::parse(render_scores(model_, "shop", &columns_, request, values));
  };
  EXPECT_EQ(render(one), json::parse(str_cat(R"({"model": "shop", "id": "q", "version": ")", model_.version,
                                             R"(", "scores": [{"click": 0.25}, {"click": 0.5}]})")));
  model_.outputs = {{"like"}, {"kinds", 2}};
  EXPECT_EQ(render(two)["scores"], json::parse(R"([{"like": 0.25, "kinds": [1, 2]}, {"like": 0.5, "kinds": [3, 4]}])"));
  request.outputs = {{1, "kinds", false}};
  EXPECT_EQ(render(two)["scores"], json::parse(R"([{"kinds": [1, 2]}, {"kinds": [3, 4]}])"));
}

TEST_F(ScoreRows, ItemsComeWithTheirScores) {
  model_.type = "top_k";
  model_.outputs = {{"score", 2}, {"item", 2}};
  const InferRequest request = parse(R"([{"price": 1}])");
  const std::vector<float> scores = {0.5f, 0.25f}, items = {7, 3};
  const std::vector<std::span<const float>> values = {scores, items};
  EXPECT_EQ(json::parse(render_scores(model_, "shop", &columns_, request, values))["items"],
            json::parse(R"([[{"item": 7, "score": 0.5}, {"item": 3, "score": 0.25}]])"));
  EXPECT_THAT(refusal(R"({"rows": [{"price": 1}], "outputs": ["item"]})"),
              HasSubstr("each row is answered with \"items\", so \"outputs\" has no effect"));
}

}  // namespace
}  // namespace tessera::serve
