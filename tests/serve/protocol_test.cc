// The messages: accepted requests, refused ones with their sentences, responses.
#include "serve/protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "config/test_refusal.h"
#include "config/test_replaced.h"
#include "fake_predictor.h"
#include "tessera/data.h"

namespace tessera::serve {
namespace {

using nlohmann::json;
using test::replaced;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void expect_same(const PredictInput& a, const PredictInput& b) {
  const auto same = [](const auto& x, const auto& y) { return std::equal(x.begin(), x.end(), y.begin(), y.end()); };
  EXPECT_EQ(a.batch, b.batch);
  EXPECT_TRUE(same(a.dense, b.dense));
  ASSERT_EQ(a.features.size(), b.features.size());
  for (size_t f = 0; f < a.features.size(); ++f) {
    EXPECT_TRUE(same(a.features[f].values, b.features[f].values)) << f;
    EXPECT_TRUE(same(a.features[f].lengths, b.features[f].lengths)) << f;
    EXPECT_TRUE(same(a.features[f].weights, b.features[f].weights)) << f;
  }
}

InferRequest parse(const std::string& body, const FakeOptions& model = {}) {
  return parse_infer(FakePredictor(model).model(), body, std::nullopt);
}

std::string refusal(const std::string& body, std::optional<size_t> json_bytes = {}, const FakeOptions& model = {}) {
  return test::refusal(
      Code::kInvalidArgument, [&] { parse_infer(FakePredictor(model).model(), body, json_bytes, {4}); }, "accepted");
}

TEST(Protocol, JsonAndBytesSayTheSame) {
  const Message message(kSamples);
  const InferRequest from_json = parse(message.json(R"("id":"a \"b\"",)"));
  expect_same(from_json.input(), message.input());
  EXPECT_EQ(from_json.id, "a \"b\"");
  EXPECT_FALSE(from_json.binary_output);

  size_t json_bytes = 0;
  const std::string body = message.binary(&json_bytes);
  const InferRequest from_bytes = parse_infer(FakePredictor().model(), body, json_bytes);
  expect_same(from_bytes.input(), message.input());
  EXPECT_TRUE(from_bytes.binary_output);
}

// A model that knows its columns: texts of users, hours of items in buckets, a dense column whose logarithm is taken,
// and a cross.
constexpr const char* kColumns = R"({"reader": "csv", "columns": [
  {"name": "click", "as": "label", "table": "click"},
  {"name": "price", "as": "dense", "table": "price", "transform": ["log1p", "standardise"], "mean": 1, "deviation": 2},
  {"name": "age", "as": "dense", "table": "age"},
  {"name": "user", "as": "ids", "table": "user", "ids": "vocabulary", "rows": 0, "separator": "|", "longest": 2,
   "pooling": "sum"},
  {"name": "item", "as": "ids", "table": "item", "ids": "bucket", "rows": 0, "bounds": [6, 12], "pooling": "sum"},
  {"name": "both", "as": "ids", "table": "both", "cross": ["user", "item"], "rows": 50, "pooling": "sum"}],
  "vocabularies": {"user": ["ann", "bob", "cy"]}})";

class Described {
 public:
  explicit Described(const std::string& columns = kColumns)
      : columns_(columns, "the test"), model_(FakePredictor().model()) {
    model_.features.push_back({"both", 50, {"both_table"}});
  }
  InferRequest parse(const std::string& body, std::optional<size_t> json_bytes = {}) const {
    return parse_infer(model_, body, json_bytes, {4, &columns_});
  }
  std::string refusal(const std::string& body, std::optional<size_t> json_bytes = {}) const {
    return test::refusal([&] { parse(body, json_bytes); }, "accepted");
  }

 private:
  ColumnEncoding columns_;
  ModelDescription model_;
};

constexpr const char* kRaw = R"({"inputs": [
  {"name": "price", "datatype": "FP32", "shape": [2], "data": [0, 1.718281828]},
  {"name": "age", "datatype": "FP32", "shape": [2], "data": [30, 31]},
  {"name": "user.values", "datatype": "BYTES", "shape": [5], "data": ["bob", "ann", "nobody", "cy", "ann"]},
  {"name": "user.lengths", "datatype": "INT32", "shape": [2], "data": [3, 2]},
  {"name": "item.values", "datatype": "FP32", "shape": [1], "data": [7.5]},
  {"name": "item.lengths", "datatype": "INT32", "shape": [2], "data": [0, 1]}]})";

TEST(Protocol, ValuesAsTheyStandInFiles) {
  const Described model;
  const InferRequest request = model.parse(kRaw);
  const PredictInput input = request.input();
  const auto of = [](const auto& span) { return std::vector(span.begin(), span.end()); };
  EXPECT_EQ(input.batch, 2);
  EXPECT_THAT(of(input.dense), ElementsAre(-0.5f, 30, ::testing::FloatNear(0, 1e-6f), 31));
  EXPECT_THAT(of(input.features[0].values), ElementsAre(1, 0, 3, 1)) << "the last two of each; 0: never seen";
  EXPECT_THAT(of(input.features[0].lengths), ElementsAre(2, 2));
  EXPECT_THAT(of(input.features[1].values), ElementsAre(1));
  EXPECT_THAT(of(input.features[1].lengths), ElementsAre(0, 1));
  EXPECT_THAT(of(input.features[2].lengths), ElementsAre(0, 2)) << "every user with every item";
  EXPECT_EQ(input.features[2].values.size(), 2u);

  // The same as bytes; each text follows its length.
  std::string bytes;
  for (const std::string text : {"bob", "ann", "nobody", "cy", "ann"}) {
    const auto length = static_cast<uint32_t>(text.size());
    bytes += std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
  }
  const std::string head = replaced(kRaw, R"("data": ["bob", "ann", "nobody", "cy", "ann"])",
                                    "\"parameters\": {\"binary_data_size\": " + std::to_string(bytes.size()) + "}");
  const InferRequest from_bytes = model.parse(head + bytes, head.size());
  expect_same(from_bytes.input(), input);
  // Ids and complete dense values are accepted as well.
  const InferRequest plain = model.parse(R"({"inputs": [
    {"name": "dense", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]},
    {"name": "user.rows", "datatype": "INT64", "shape": [1], "data": [3]},
    {"name": "user.lengths", "datatype": "INT32", "shape": [1], "data": [1]},
    {"name": "item.rows", "datatype": "INT64", "shape": [1], "data": [2]},
    {"name": "item.lengths", "datatype": "INT32", "shape": [1], "data": [1]},
    {"name": "both.values", "datatype": "INT64", "shape": [1], "data": [49]},
    {"name": "both.lengths", "datatype": "INT32", "shape": [1], "data": [1]}]})");
  EXPECT_THAT(of(plain.input().features[0].values), ElementsAre(3));
  EXPECT_THAT(of(plain.input().features[1].values), ElementsAre(2));
  EXPECT_THAT(of(plain.input().features[2].values), ElementsAre(49));
}

// Like in training: a column's substitute for a missing value, after its transform.
TEST(Protocol, DenseValuesThatAreMissing) {
  const std::string instead = replaced(kColumns, R"("table": "price",)", R"("table": "price", "missing": 0,)");
  const Described model(instead);
  const auto dense = [&](const std::string& body) {
    const InferRequest request = model.parse(body);
    return request.dense;
  };
  const std::string price = R"({"name": "price", "datatype": "FP32", "shape": [2], "data": [0, 1.718281828]},)";
  EXPECT_THAT(dense(replaced(kRaw, price, "")), ElementsAre(-0.5f, 30, -0.5f, 31)) << "not there at all";
  EXPECT_THAT(dense(replaced(kRaw, "[0, 1.718281828]", "[1.718281828, null]")),
              ElementsAre(::testing::FloatNear(0, 1e-6f), 30, -0.5f, 31));
  EXPECT_EQ(model.refusal(replaced(kRaw, "[30, 31]", "[30, null]")), "input age of sample 1 is not a finite number");
  EXPECT_THAT(Described().refusal(replaced(kRaw, price, "")), HasSubstr("input price is missing"));
}

// A value has one word, however it is sent.
TEST(Protocol, NumbersAndTextsOfAVocabularyAreTheSameWords) {
  const Described model(replaced(kColumns, R"(["ann", "bob", "cy"])",
                                 R"(["4", "0.1", "true", "18446744073709551615", "-7", "9007199254740993"])"));
  struct Case {
    const char* datatype;
    const char* data;
    int64_t row;
  };
  const std::vector<Case> cases = {{"INT64", "4", 1},
                                   {"INT8", "4", 1},
                                   {"UINT64", "4", 1},
                                   {"FP64", "4.0", 1},
                                   {"FP32", "4", 1},
                                   {"INT64", "4.0", 1},
                                   {"BYTES", "\"4\"", 1},
                                   {"BYTES", "4", 1},
                                   {"BYTES", "4.0", 1},
                                   {"FP64", "0.1", 2},
                                   {"BYTES", "\"0.1\"", 2},
                                   {"BOOL", "true", 3},
                                   {"BYTES", "true", 3},
                                   {"BYTES", "\"true\"", 3},
                                   {"UINT64", "18446744073709551615", 4},
                                   {"BYTES", "18446744073709551615", 4},
                                   {"INT64", "-7", 5},
                                   {"INT64", "9007199254740993", 6},
                                   {"INT64", "99", 0}};
  const auto values = [&](const std::string& datatype, const std::string& data) {
    return replaced(kRaw, R"("BYTES", "shape": [5], "data": ["bob", "ann", "nobody", "cy", "ann"])",
                    str_cat("\"", datatype, R"(", "shape": [5], "data": [)", data, "]"));
  };
  for (const Case& c : cases) {
    const InferRequest request =
        model.parse(values(c.datatype, str_cat(c.data, ",", c.data, ",", c.data, ",", c.data, ",", c.data)));
    EXPECT_THAT(request.features[0].values, ::testing::Each(c.row)) << c.datatype << " " << c.data;
  }
  // A model trained with these words accepts other spellings of the texts.
  const Described modern(replaced(replaced(kColumns, R"(["ann", "bob", "cy"])", R"(["4", "true", "2024-01-31"])"),
                                  R"("reader": "csv",)", R"("reader": "csv", "words": 1,)"));
  for (const Case& c : std::vector<Case>{{"BYTES", "\"4.0\"", 1},
                                         {"BYTES", "\"4\"", 1},
                                         {"FP64", "4.0", 1},
                                         {"BYTES", "\"True\"", 2},
                                         {"BOOL", "true", 2},
                                         {"BYTES", "\"2024-01-31T00:00:00Z\"", 3}}) {
    const InferRequest request =
        modern.parse(values(c.datatype, str_cat(c.data, ",", c.data, ",", c.data, ",", c.data, ",", c.data)));
    EXPECT_THAT(request.features[0].values, ::testing::Each(c.row)) << c.datatype << " " << c.data;
  }
  // null is a missing value, among texts and numbers; the last two of each sample count.
  for (const auto& [datatype, data] : {std::pair<const char*, const char*>{"BYTES", R"(null, null, "4", "0.1", null)"},
                                       {"BYTES", R"("", "", "4", "0.1", "")"},
                                       {"FP64", "null, null, 4, 0.1, null"}}) {
    const InferRequest request = model.parse(values(datatype, data));
    EXPECT_THAT(request.features[0].values, ElementsAre(1, 2)) << datatype;
    EXPECT_THAT(request.features[0].lengths, ElementsAre(1, 1)) << datatype;
  }
  EXPECT_EQ(
      model.refusal(values("FP64", "9007199254740993, 0.5, 1, 1, 1")),
      "input user.values holds whole numbers of more than 53 bits and numbers with fractions: send them as texts");
  EXPECT_EQ(model.refusal(values("INT64", "true, false, true, true, true")),
            "input user.values has true and false in \"data\"; its datatype must be BOOL then");
  EXPECT_THAT(model.refusal(values("INT64", "true, 1, 1, 1, 1")), HasSubstr("a number among true and false"));
  EXPECT_THAT(model.refusal(values("DATE", "1, 1, 1, 1, 1")), HasSubstr("has datatype \"DATE\""));
}

TEST(Protocol, BinaryNumbersOfAVocabularyAreWords) {
  const Described model(replaced(kColumns, R"(["ann", "bob", "cy"])", R"(["4", "true", "18446744073709551615"])"));
  const auto row = [&](const char* datatype, const auto& value) {
    std::string bytes;
    for (int i = 0; i < 5; ++i) bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    const std::string head =
        replaced(kRaw, R"("BYTES", "shape": [5], "data": ["bob", "ann", "nobody", "cy", "ann"])",
                 str_cat("\"", datatype, R"(", "shape": [5], "parameters": {"binary_data_size": )", bytes.size(), "}"));
    return model.parse(head + bytes, head.size()).features[0].values[0];
  };
  EXPECT_EQ(row("INT64", int64_t{4}), 1);
  EXPECT_EQ(row("INT16", int16_t{4}), 1);
  EXPECT_EQ(row("UINT32", uint32_t{4}), 1);
  EXPECT_EQ(row("FP32", 4.0f), 1);
  EXPECT_EQ(row("FP64", 4.0), 1);
  EXPECT_EQ(row("BOOL", uint8_t{1}), 2);
  EXPECT_EQ(row("UINT64", ~uint64_t{0}), 3);
}

// Numbers with all their digits, and texts of which the model uses a part.
TEST(Protocol, TimesAndNumbersOf64Bits) {
  const std::string taken = replaced(
      replaced(kColumns, R"("name": "age", "as": "dense",)", R"("name": "age", "as": "dense", "take": "hour",)"),
      R"("mean": 1, "deviation": 2)", R"("mean": 1700000000000, "deviation": 2)");
  const Described model(replaced(taken, R"("log1p", )", ""));
  const std::string body =
      replaced(replaced(kRaw, R"("datatype": "FP32", "shape": [2], "data": [0, 1.718281828])",
                        R"("datatype": "FP64", "shape": [2], "data": [1700000000001, 1700000000004])"),
               R"("datatype": "FP32", "shape": [2], "data": [30, 31])",
               R"("datatype": "BYTES", "shape": [2], "data": ["2024-01-31T17:30:00Z", "1706743800"])");
  EXPECT_THAT(model.parse(body).dense, ElementsAre(0.5f, 17, 2, 23));
  EXPECT_THAT(model.refusal(replaced(body, "1706743800", "17")),
              HasSubstr("input age of sample 1: \"17\" is not a time: a date as in 2024-01-31"));
  EXPECT_EQ(model.refusal(replaced(body, "1700000000004", "1e300")), "input price of sample 1 is too large: 1e+300");
  const std::string wide = R"("FP64", "shape": [1], "data": [7.5])";
  EXPECT_THAT(model.parse(replaced(body, R"("FP32", "shape": [1], "data": [7.5])", wide)).input().features[1].values,
              ElementsAre(1));
}

TEST(Protocol, ValuesThatAColumnCannotTake) {
  const Described model;
  const auto with = [&](const char* what, const char* instead) { return model.refusal(replaced(kRaw, what, instead)); };
  EXPECT_EQ(with(R"("FP32", "shape": [1], "data": [7.5])", R"("BYTES", "shape": [1], "data": ["x"])"),
            "input item.values holds texts, but model fake takes numbers there, not texts");
  EXPECT_EQ(refusal(replaced(Message(kSamples).json(), "\"INT64\"", "\"BYTES\"")),
            "input user.values holds texts, but model fake knows no column of that name: send ids, INT64");
  EXPECT_EQ(with(R"("user.values", "datatype": "BYTES")", R"("user.rows", "datatype": "BYTES")"),
            "input user.rows holds texts, but model fake knows numbers of rows there: send them as INT64");
  EXPECT_EQ(with("7.5", "1e999"), "the request holds a number that is too large");
  EXPECT_EQ(with(R"("FP32", "shape": [1], "data": [7.5])", R"("INT32", "shape": [1], "data": [7.5])"),
            "input item.values holds 7.5, which is not INT32");
  EXPECT_EQ(with("[30, 31]", "[30, 1e300]"), "input age of sample 1 is not a finite number");
  EXPECT_EQ(with("[\"bob\", \"ann\"", "[\"bob\", 7"),
            "inputs[2].data cannot be a number among texts: see the Open Inference Protocol v2");
  EXPECT_EQ(with("\"BYTES\"", "\"INT64\""), "input user.values has texts in \"data\"; its datatype must be BYTES then");
  EXPECT_EQ(with("[5]", "[6]"), "input user.values has 5 values in \"data\"; its shape needs 6");
  EXPECT_EQ(with("[3, 2]", "[3, 1]"), "input user.lengths add up to 4, but user.values has 5 ids");
  EXPECT_EQ(
      with("{\"name\": \"age\", \"datatype\": \"FP32\", \"shape\": [2], \"data\": [30, 31]},", ""),
      "input age is missing; model fake takes price, age, user.values, user.lengths, item.values and item.lengths, "
      "for example {\"inputs\": [{\"name\": \"age\", \"datatype\": \"FP32\", \"shape\": [1], \"data\": [1]}, ...]}; or "
      "by the names of columns POST /v1/models/fake/score {\"rows\": [{\"price\": 1, \"age\": 1, \"user\": \"a\", "
      "\"item\": 1}]}");
  EXPECT_THAT(
      model.refusal(R"({"user": "u3"})"),
      HasSubstr("is missing: the request has no \"inputs\", and \"user\" is not one of its members; model fake takes"));
  const std::string listed = replaced(kRaw, R"("shape": [1], "data": [7.5])", R"("shape": [2], "data": [7.5, 1])");
  EXPECT_EQ(model.refusal(replaced(listed, "[0, 1]", "[0, 2]")),
            "sample 1 has several ids of 2 columns that \"both\" is a cross of, but only one of them may have "
            "several");
  const std::string cut =
      replaced(kRaw, R"("data": ["bob", "ann", "nobody", "cy", "ann"])", R"("parameters": {"binary_data_size": 6})");
  EXPECT_EQ(model.refusal(cut + std::string("\3\0\0\0bo", 6), cut.size()),
            "input user.values has 0 whole texts in its bytes; its shape needs 5");
}

TEST(Protocol, AnUnknownInputIsRefusedWithThoseOfTheMetadata) {
  const std::string more = replaced(kRaw, "{\"inputs\": [",
                                    R"({"inputs": [{"name": "film", "datatype": "FP32", "shape": [1], "data": [1]},)");
  EXPECT_EQ(Described().refusal(more),
            "input \"film\" is there twice or unknown; model fake takes 2 dense columns \"price\" and \"age\", and "
            "NAME.values and NAME.lengths of its 2 features \"user\" and \"item\"")
      << "the cross of them is made here";
  const ColumnEncoding columns(kColumns, "the test");
  EXPECT_THAT(test::refusal([&] {
                parse_infer(FakePredictor().model(), more, std::nullopt, {4, &columns, "served"});
              }),
              HasSubstr("model served takes 2 dense columns"));
}

TEST(Protocol, AMovedRequestKeepsItsViews) {
  const Message message(kSamples);
  InferRequest first = parse(message.json());
  const InferRequest second = std::move(first);
  expect_same(second.input(), message.input());
}

TEST(Protocol, DataMayBeNestedAndTensorsInAnyOrder) {
  const InferRequest r = parse(R"({"inputs":[
    {"name":"item.lengths","datatype":"INT32","shape":[2],"data":[[0],[1]]},
    {"data":[[1,2.5],[3,4]],"shape":[2,2],"datatype":"FP32","name":"dense"},
    {"name":"user.values","datatype":"INT64","shape":[0],"data":[]},
    {"name":"user.lengths","datatype":"INT32","shape":[2],"data":[0,0]},
    {"name":"item.values","datatype":"INT64","shape":[1],"data":[42],"note":{"deep":[1,{"x":null}]}}],
    "more":[true,{"a":[]}],"parameters":{"timeout":1500,"other":"x"}})");
  EXPECT_EQ(r.batch, 2);
  EXPECT_THAT(r.dense, ElementsAre(1, 2.5, 3, 4));
  EXPECT_THAT(r.features[1].values, ElementsAre(42));
  EXPECT_THAT(r.features[1].lengths, ElementsAre(0, 1));
  EXPECT_EQ(r.timeout, std::chrono::microseconds(1500));
}

TEST(Protocol, WeightsAreOptionalForEachFeature) {
  FakeOptions weighted{.is_weighted = true};
  const Message message({{{1, 2}, {5}, {7, 8}, {0.5f, -2}}});
  const InferRequest r = parse(message.json(), weighted);
  expect_same(r.input(), message.input());
  EXPECT_TRUE(r.features[0].weights.empty());
  EXPECT_EQ(refusal(message.json()),
            "input \"item.weights\" is there twice or unknown; model fake takes dense and NAME.values and NAME.lengths "
            "of its 2 features \"user\" and \"item\"");
  EXPECT_THAT(refusal(replaced(message.json(), "[0.5,-2]", "[1]"), {}, weighted),
              HasSubstr("item.weights has 1 numbers in \"data\"; its shape needs 2"));
}

TEST(Protocol, AModelWithoutDenseInputs) {
  FakeOptions options{.dense_inputs = 0};
  const std::string body = R"({"inputs":[{"name":"user.values","datatype":"INT64","shape":[1],"data":[1]},
    {"name":"user.lengths","datatype":"INT32","shape":[1],"data":[1]},
    {"name":"item.values","datatype":"INT64","shape":[0],"data":[]},
    {"name":"item.lengths","datatype":"INT32","shape":[1],"data":[0]}]})";
  EXPECT_EQ(parse(body, options).batch, 1);
  EXPECT_THAT(refusal(body), HasSubstr("input dense is missing"));
  EXPECT_THAT(refusal(R"({"inputs":[]})", {}, options), HasSubstr("input user.values is missing"));
}

TEST(Protocol, RefusalsNameTheTensorTheSampleAndTheBound) {
  const std::string good = Message(kSamples).json();
  const auto with = [&](const std::string& what, const std::string& other) {
    return refusal(replaced(good, what, other));
  };
  EXPECT_EQ(refusal(good), "accepted");
  EXPECT_THAT(
      with("\"user.values\"", "\"users.values\""),
      HasSubstr("input user.values is missing; model fake takes dense, user.values, user.lengths, item.values and"));
  EXPECT_EQ(with("\"datatype\":\"FP32\"", "\"datatype\":\"FP64\""),
            "input dense has datatype \"FP64\"; it must be FP32");
  EXPECT_EQ(with("\"shape\":[2,2]", "\"shape\":[4]"), "input dense has 1 dimensions; it must have 2");
  EXPECT_EQ(with("\"shape\":[2,2]", "\"shape\":[1,4]"), "input dense has 4 values for each sample; model fake takes 2");
  EXPECT_EQ(with("\"shape\":[2,2]", "\"shape\":[-2,2]"), "input dense has a dimension of -2");
  EXPECT_EQ(with("\"shape\":[2,2]", "\"shape\":[4611686018427387904,16]"),
            "input dense has a shape of too many elements");
  EXPECT_EQ(with("[2,0]", "[1,0]"), "input user.lengths add up to 1, but user.values has 2 ids");
  EXPECT_EQ(with("[2,0]", "[3,-1]"), "input user.lengths of sample 1 is -1; it must be at least 0");
  EXPECT_EQ(with("[2,0]", "[2,4294967296]"), "input user.lengths holds a number that is not an integer of 32 bits");
  EXPECT_EQ(with("[3,999]", "[3,9223372036854775808]"),
            "input user.values holds a number that is not an integer of 64 bits");
  EXPECT_EQ(with("[3,999]", "[3,9.5]"), "input user.values holds a number that is not an integer of 64 bits");
  EXPECT_EQ(with("[3,999]", "[3]"), "input user.values has 1 numbers in \"data\"; its shape needs 2");
  EXPECT_EQ(with(",\"data\":[3,999]", ""), "input user.values has neither \"data\" nor \"binary_data_size\"");
  EXPECT_EQ(with("0.5,", "1e300,"), "input dense of sample 0 is not a finite number");
  EXPECT_EQ(with("0.5,", "1e999,"), "the request holds a number that is too large");
  EXPECT_EQ(with("\"shape\":[2],\"data\":[2,0]", "\"shape\":[1],\"data\":[2]"),
            "input user.lengths has 1 samples; the request has 2");
  EXPECT_THAT(with("0.5,", "\"0.5\","), HasSubstr("inputs[0].data cannot be a number among texts"));
  EXPECT_THAT(with("0.5,", "null,"), HasSubstr("is not a finite number"));
  EXPECT_THAT(with("\"shape\":[2,2]", "\"shape\":2"), HasSubstr("inputs[0].shape cannot be a number"));
}

TEST(Protocol, RefusesWhatIsNoRequest) {
  EXPECT_EQ(refusal(""), "the request is not JSON: line 1, byte 1: it ends too early");
  EXPECT_EQ(refusal("{\"inputs\":[}"), "the request is not JSON: line 1, byte 12: unexpected '}'");
  EXPECT_THAT(refusal("[]"), HasSubstr("the request cannot be an array"));
  EXPECT_THAT(refusal("1"), HasSubstr("the request cannot be a number"));
  EXPECT_THAT(refusal("{}"), HasSubstr("input dense is missing"));
  EXPECT_THAT(refusal("{} x"), HasSubstr("not JSON"));
  EXPECT_THAT(refusal(R"({"inputs":{}})"), HasSubstr("inputs cannot be an object"));
  EXPECT_THAT(refusal(R"({"inputs":[{},{},{},{},{},{},{},{}]})"), HasSubstr("more inputs than the 7"));
  EXPECT_EQ(refusal(std::string(100000, '[')), "the request is nested deeper than 32");
  EXPECT_THAT(refusal("{\"x\":" + std::string(100000, '[')), HasSubstr("nested deeper than 32"));
  EXPECT_THAT(refusal(Message(kSamples).json(R"("outputs":[{"name":"logit"}],)")),
              HasSubstr("output \"logit\" is unknown; there is \"score\""));
  const Message five(std::vector<Sample>(5, kSamples[0]));
  EXPECT_EQ(refusal(five.json()), "a request of 5 samples is too large: at most 4");
  const std::string twice = replaced(Message(kSamples).json(), "\"item.lengths\"", "\"user.lengths\"");
  EXPECT_THAT(refusal(twice), HasSubstr("input item.lengths is missing"));
}

TEST(Protocol, BinarySizesHaveToAddUp) {
  size_t n = 0;
  const std::string body = Message(kSamples).binary(&n);
  EXPECT_EQ(refusal(body, n), "accepted");
  EXPECT_THAT(refusal(body, body.size() + 1), HasSubstr("Inference-Header-Content-Length is"));
  EXPECT_THAT(refusal(body + "x", n), HasSubstr("1 bytes follow the last binary tensor"));
  EXPECT_THAT(refusal(body.substr(0, body.size() - 1), n),
              HasSubstr("tensor item.lengths has binary_data_size 8, but 7"));
  EXPECT_THAT(refusal(body, std::nullopt), HasSubstr("not JSON"));
  const std::string smaller = replaced(body, "\"shape\":[2,2]", "\"shape\":[1,2]");
  EXPECT_THAT(refusal(smaller, n), HasSubstr("input dense has 16 bytes of data; its shape needs 2 times 4"));
  const std::string both = replaced(body, "\"shape\":[2,2]", "\"shape\":[2,2],\"data\":[]");
  EXPECT_THAT(refusal(both, n + 10), HasSubstr("has both \"data\" and \"binary_data_size\""));
  const std::string negative = replaced(body, "\"binary_data_size\":16", "\"binary_data_size\":-6");
  EXPECT_THAT(refusal(negative, n), HasSubstr("has binary_data_size -6"));
  std::string nan = body;
  const float bad = std::nanf("");
  std::memcpy(nan.data() + n + 8, &bad, sizeof(bad));
  EXPECT_EQ(refusal(nan, n), "input dense of sample 1 is not a finite number");
}

TEST(Protocol, ScoresComeBackAsTheSameFloats) {
  const std::vector<float> scores = {0.1f, 1.0f / 3, 0.99999994f, 1e-30f, 0.5f};
  const FakePredictor model;
  const std::vector<std::span<const float>> values = {scores};
  InferRequest request;
  request.id = "7\n";
  const json body = json::parse(render_infer(model.model(), "shown", request, values).body);
  EXPECT_EQ(body["model_name"], "shown");
  EXPECT_EQ(body["model_version"], "0000000000000001");
  EXPECT_EQ(body["id"], "7\n");
  const json& out = body["outputs"][0];
  EXPECT_EQ(out["name"], "score");
  EXPECT_EQ(out["datatype"], "FP32");
  EXPECT_EQ(out["shape"], json({5}));
  EXPECT_EQ(out["data"].get<std::vector<float>>(), scores);

  request.binary_output = true;
  const InferResponse bytes = render_infer(model.model(), "shown", request, values);
  const json head = json::parse(bytes.body.substr(0, bytes.json_bytes.value()));
  EXPECT_EQ(head["outputs"][0]["parameters"]["binary_data_size"], 20);
  std::vector<float> back(5);
  ASSERT_EQ(bytes.body.size(), *bytes.json_bytes + 20);
  std::memcpy(back.data(), bytes.body.data() + *bytes.json_bytes, 20);
  EXPECT_EQ(back, scores);
}

TEST(Protocol, Metadata) {
  FakeOptions weighted{.is_weighted = true};
  const json m = json::parse(render_model(FakePredictor(weighted).model(), "shown", {"0000000000000001"}));
  EXPECT_EQ(m["name"], "shown");
  EXPECT_EQ(m["versions"], json({"0000000000000001"}));
  EXPECT_EQ(m["inputs"].size(), 7u);
  EXPECT_EQ(m["inputs"][0], json::parse(R"({"name":"dense","datatype":"FP32","shape":[-1,2]})"));
  EXPECT_EQ(m["inputs"][1], json::parse(R"({"name":"user.values","datatype":"INT64","shape":[-1]})"));
  EXPECT_EQ(m["outputs"], json::parse(R"([{"name":"score","datatype":"FP32","shape":[-1]}])"));
  EXPECT_EQ(json::parse(render_model(FakePredictor({.outputs = {{"click"}, {"kinds", 3, false}, {"like"}}}).model(),
                                     "shown", {}))["outputs"],
            json::parse(R"([{"name":"click","datatype":"FP32","shape":[-1]},
                            {"name":"kinds","datatype":"FP32","shape":[-1,3]},
                            {"name":"like","datatype":"FP32","shape":[-1]}])"));
  // For columns: the values in their files.
  const ColumnEncoding columns(kColumns, "the test");
  const json described = json::parse(render_model(FakePredictor().model(), "shown", {}, &columns))["inputs"];
  std::map<std::string, std::string> types;
  for (const json& input : described) types[input["name"]] = input["datatype"];
  EXPECT_EQ(types.count("dense"), 0u) << described;
  EXPECT_EQ(types["user.values"], "BYTES");
  EXPECT_EQ(types["item.values"], "FP32");
  EXPECT_EQ(types["price"], "FP64") << "it is transformed";
  EXPECT_EQ(types["age"], "FP32");
  EXPECT_EQ(types["item.lengths"], "INT32");
  EXPECT_EQ(json::parse(render_server())["extensions"], json({"binary_tensor_data", "model_repository"}));
  EXPECT_EQ(json::parse(render_error("no \xff utf-8"))["error"], "no \xEF\xBF\xBD utf-8");
}

}  // namespace
}  // namespace tessera::serve
