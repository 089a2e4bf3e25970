// Outputs by the names of heads: which ones a request asks for, and how a response contains them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "config/test_refusal.h"
#include "fake_predictor.h"
#include "serve/protocol.h"

namespace tessera::serve {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

FakeOptions of_heads() {
  FakeOptions out{.outputs = {{"click"}, {"kinds", 3, false}, {"like"}}};
  return out;
}

// The outputs that a request asks for; `outputs` is JSON, empty if not given.
std::vector<WantedOutput> wanted(const std::string& outputs, const FakeOptions& model) {
  const std::string extra = outputs.empty() ? "" : "\"outputs\":" + outputs + ",";
  return parse_infer(FakePredictor(model).model(), Message(kSamples).json(extra), std::nullopt).outputs;
}

std::string refusal(const std::string& outputs, const FakeOptions& model) {
  return test::refusal(
      Code::kInvalidArgument, [&] { wanted(outputs, model); }, "accepted");
}

TEST(Outputs, AreAskedForByTheirHeads) {
  EXPECT_TRUE(wanted("", of_heads()).empty()) << "all";
  const auto two = wanted(R"([{"name":"like"},{"name":"kinds","parameters":{"binary_data":true}}])", of_heads());
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].output, 2u);
  EXPECT_FALSE(two[0].binary);
  EXPECT_EQ(two[1].output, 1u);
  EXPECT_TRUE(two[1].binary);
  const auto score = wanted(R"([{"name":"score"}])", of_heads());
  ASSERT_EQ(score.size(), 1u);
  EXPECT_EQ(score[0].output, 0u) << "the first head";
  EXPECT_EQ(score[0].name, "score") << "by the name that the client knows";
  FakeOptions one{.outputs = {{"click"}}};
  EXPECT_TRUE(wanted(R"([{"name":"score"}])", one).empty()) << "all that there is";
  EXPECT_EQ(wanted(R"([{"name":"click"}])", one).at(0).name, "click");
}

TEST(Outputs, ThatThereAreNotAreRefused) {
  const std::string unknown = R"([{"name":"clik"}])";
  EXPECT_EQ(
      refusal(unknown, of_heads()),
      "output \"clik\" is unknown; there are \"click\", \"kinds\" and \"like\", and \"score\" is the first of them");
  FakeOptions called_so = of_heads();
  called_so.outputs[2].name = "score";
  EXPECT_EQ(refusal(unknown, called_so), "output \"clik\" is unknown; there are \"click\", \"kinds\" and \"score\"");
  FakeOptions one{.outputs = {{"click"}}};
  EXPECT_EQ(refusal(unknown, one), "output \"clik\" is unknown; there is \"score\"");
  std::string many = R"([{"name":"score"})";
  for (int i = 0; i < 16; ++i) many += R"(,{"name":"score"})";
  EXPECT_EQ(refusal(many + "]", one), "the request asks for more than 16 outputs");
  for (int i = 0; i < 20; ++i) one.outputs.push_back({str_cat("head", i)});
  EXPECT_EQ(wanted(many + "]", one).size(), 17u) << "as many as the model has";
  EXPECT_THAT(refusal(unknown, one), HasSubstr("\"head5\", \"head6\" and 13 others"));
}

// Each output is returned as asked for, in that order; the bytes of binary ones follow each other.
TEST(Outputs, AreWhatWasAskedFor) {
  const FakePredictor model(of_heads());
  const std::vector<float> click = {0.5f, 0.25f}, kinds = {1, 2, 3, 4, 5, 6}, like = {0.75f, 1};
  const std::vector<std::span<const float>> values = {click, kinds, like};
  InferRequest request;
  const json all = json::parse(render_infer(model.model(), "m", request, values).body)["outputs"];
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0], json::parse(R"({"name":"click","datatype":"FP32","shape":[2],"data":[0.5,0.25]})"));
  EXPECT_EQ(all[1], json::parse(R"({"name":"kinds","datatype":"FP32","shape":[2,3],"data":[1,2,3,4,5,6]})"));
  EXPECT_EQ(all[2]["name"], "like");
  request.outputs = {{2, "like", true}, {0, "score", false}, {1, "kinds", true}};
  const InferResponse mixed = render_infer(model.model(), "m", request, values);
  const json some = json::parse(mixed.body.substr(0, mixed.json_bytes.value()))["outputs"];
  ASSERT_EQ(some.size(), 3u);
  EXPECT_EQ(some[0]["parameters"]["binary_data_size"], 8);
  EXPECT_EQ(some[1], json::parse(R"({"name":"score","datatype":"FP32","shape":[2],"data":[0.5,0.25]})"));
  EXPECT_EQ(some[2]["parameters"]["binary_data_size"], 24);
  std::vector<float> back(8);
  ASSERT_EQ(mixed.body.size(), *mixed.json_bytes + 32);
  std::memcpy(back.data(), mixed.body.data() + *mixed.json_bytes, 32);
  EXPECT_THAT(back, ElementsAre(0.75f, 1, 1, 2, 3, 4, 5, 6));
}

// A model that answers with items, also with only one item per sample.
TEST(Outputs, ItemsAreWholeNumbers) {
  ModelDescription model = FakePredictor().model();
  model.type = "top_k";
  model.outputs = {{"score", 1, false}, {"item", 1, false}};
  const std::vector<float> score = {0.5f, 0.25f}, item = {16777216, 3};
  const std::vector<std::span<const float>> values = {score, item};
  const json all = json::parse(render_infer(model, "m", InferRequest(), values).body)["outputs"];
  EXPECT_EQ(all[0], json::parse(R"({"name":"score","datatype":"FP32","shape":[2,1],"data":[0.5,0.25]})"));
  EXPECT_EQ(all[1], json::parse(R"({"name":"item","datatype":"INT64","shape":[2,1],"data":[16777216,3]})"));
  const InferRequest request =
      parse_infer(model, Message(kSamples).json(R"("outputs":[{"name":"item"}],)"), std::nullopt);
  const json items = json::parse(render_infer(model, "m", request, values).body)["outputs"];
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0], all[1]);
}

}  // namespace
}  // namespace tessera::serve
