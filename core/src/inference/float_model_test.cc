// Tests float models read from the names and shapes of their tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "inference/input_check.h"
#include "inference/test_model.h"

namespace tessera {
namespace {

using namespace test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

constexpr const char* kBags = "sparse_arch.embedding_bag_collection.embedding_bags.";

std::vector<std::string> names(const InferenceModel& model) {
  std::vector<std::string> out;
  for (const ModelTable& t : model.description.tables) out.push_back(t.name);
  return out;
}

// Makes tables t_cat_0 to t_cat_{n-1} with 3 + i rows and one feature each.
NamedTensors numbered(int n, int64_t dim) {
  NamedTensors t;
  for (int i = 0; i < n; ++i) t.add(str_cat("model.", kBags, "t_cat_", i, ".weight"), {3 + i, dim}, 1);
  t.add_linear("model.dense_arch.model._mlp.0._linear", dim, 4, 2);
  t.add_linear("model.over_arch.model.0._mlp.0._linear", 5, dim + n * (n + 1) / 2, 3);
  t.add_linear("model.over_arch.model.1", 1, 5, 4);
  return t;
}

TEST(FloatModel, ReadsSizesOffShapes) {
  const ModelFolder folder;
  const FloatModel m = small_model(folder);
  EXPECT_EQ(m.model.dlrm.dense_inputs, kTestDense);
  EXPECT_THAT(m.model.dlrm.bottom_mlp, ElementsAre(12, kTestDim));
  EXPECT_THAT(m.model.dlrm.top_mlp, ElementsAre(20, 1));
  EXPECT_EQ(m.model.dlrm.embedding_dim, kTestDim);
  EXPECT_TRUE(m.assumptions.empty()) << m.assumptions[0];
  EXPECT_EQ(*m.model.tables[0].config.row_format, RowFormat::kFloat32);
}

TEST(FloatModel, TablesOfTorchRecAreInTheOrderOfTheirNumbers) {
  const ModelFolder folder;
  numbered(12, 4).write(folder.file("m.safetensors"));
  const FloatModel m = open_float_model(folder.file("m.safetensors"));
  EXPECT_EQ(names(m.model)[2], "t_cat_2");
  EXPECT_EQ(names(m.model)[10], "t_cat_10");
  EXPECT_EQ(m.model.description.features[11].name, "t_cat_11");
  ASSERT_EQ(m.assumptions.size(), 2u) << "what was assumed is said";
  EXPECT_THAT(m.assumptions[0], HasSubstr("order of the tables; they are sorted by name: t_cat_0, t_cat_1, t_cat_2"));
  EXPECT_THAT(m.assumptions[1], HasSubstr("pooled by sum"));
}

TEST(FloatModel, AFileADirectoryAndAnIndexAreTheSame) {
  const ModelFolder folder;
  NamedTensors all = numbered(3, 4), first, second;
  all.write(folder.file("m.safetensors"));
  std::filesystem::create_directory(folder.file("plain"));
  all.write(folder.file("plain/model.safetensors"));
  std::filesystem::create_directory(folder.file("parts"));
  std::string index = "{\"weight_map\": {";
  for (const auto& [name, value] : all.tensors) {
    const bool dense = name.find("_arch.model") != std::string::npos;
    (dense ? first : second).tensors[name] = value;
    index += str_cat(index.back() == '{' ? "" : ", ", '"', name, "\": \"", dense ? "a" : "b", ".safetensors\"");
  }
  first.write(folder.file("parts/a.safetensors"));
  second.write(folder.file("parts/b.safetensors"));
  write_text(folder.file("parts/model.safetensors.index.json"), index + "}}");
  const auto rows = [&](const std::string& path) {
    return open_float_model(folder.file(path)).model.tables[1].rows.to_vector<uint8_t>();
  };
  EXPECT_EQ(rows("m.safetensors"), rows("plain"));
  EXPECT_EQ(rows("m.safetensors"), rows("parts"));
  std::filesystem::remove(folder.file("parts/b.safetensors"));
  EXPECT_THAT(failure_of([&] { rows("parts"); }), Pair(HasSubstr("b.safetensors"), Code::kDataLoss));
}

TEST(FloatModel, HalvesAreMappedAndOtherFloatsConverted) {
  const ModelFolder folder;
  NamedTensors t = small_tensors();
  const std::string film = std::string(kBags) + "film.weight", user = std::string(kBags) + "user.weight";
  const Tensor exact = t.tensors[user].to(DType::kBFloat16);
  t.tensors[film] = t.tensors[film].to(DType::kFloat16);
  t.tensors[user] = exact;
  t.write(folder.file("m.safetensors"));
  const FloatModel m = open_float_model(folder.file("m.safetensors"), {.tables = small_tables()});
  EXPECT_EQ(*m.model.tables[0].config.row_format, RowFormat::kFloat16);
  EXPECT_EQ(*m.model.tables[1].config.row_format, RowFormat::kFloat32);
  EXPECT_EQ(dequantize_rows(m.model.tables[1].rows, RowFormat::kFloat32, kTestDim).to_vector<float>(),
            exact.to(DType::kFloat32).to_vector<float>());
}

TEST(FloatModel, SizesThatTheConfigLeavesOpenAreThoseStored) {
  const ModelFolder folder;
  auto tables = small_tables();
  for (auto& t : tables) t.num_embeddings = t.embedding_dim = 0;
  const FloatModel m = small_model(folder, {.tables = tables});
  EXPECT_EQ(m.model.tables[1].config.num_embeddings, 23);
  EXPECT_EQ(m.model.tables[1].config.embedding_dim, kTestDim);
}

// The dense parameters have the same prefix as the tables. Their layers are not checked here.
TEST(FloatModel, IsTheGraphThatIsGiven) {
  const ModelFolder folder;
  FloatModelOptions options{.tables = small_tables()};
  options.graph.emplace();
  options.graph->dense_width = kTestDense;
  options.graph->layers = {{"net", "cross", {"dense", "pooled"}}};
  options.graph->heads = {{"click", "net"}};
  NamedTensors t = small_tensors("around.model.");
  t.add("around.model.inter_arch.crossnet.bias.0", {3}, 1);
  t.write(folder.file("m.safetensors"));
  const FloatModel m = open_float_model(folder.file("m.safetensors"), options);
  EXPECT_EQ(m.model.description.type, "graph");
  EXPECT_EQ(m.model.dense.size(), 9u);
  EXPECT_EQ(m.model.dense.count("inter_arch.crossnet.bias.0"), 1u);
  EXPECT_EQ(m.model.graph.layers.at(0).name, "net");
  EXPECT_EQ(m.model.graph.pooled_width, 5 * kTestDim);
  t.add("metrics.seen", {1}, 1);
  t.write(folder.file("m.safetensors"));
  EXPECT_THAT(failure_of([&] { open_float_model(folder.file("m.safetensors"), options); }),
              Pair(HasSubstr("no layer has \"metrics.seen\": "), Code::kInvalidArgument));
}

class Refused : public testing::Test {
 protected:
  std::pair<std::string, Code> open(const NamedTensors& tensors, const FloatModelOptions& options) {
    tensors.write(folder_.file("m.safetensors"));
    return failure_of([&] { open_float_model(folder_.file("m.safetensors"), options); });
  }
  ModelFolder folder_;
};

TEST_F(Refused, WhatIsNotThere) {
  EXPECT_THAT(failure_of([&] { open_float_model(folder_.file("nowhere")); }),
              Pair(AllOf(HasSubstr("no checkpoint"), HasSubstr("nowhere")), Code::kNotFound));
  write_text(folder_.file("text"), "this is text and no tensors");
  EXPECT_EQ(failure_of([&] { open_float_model(folder_.file("text")); }).second, Code::kDataLoss);
}

TEST_F(Refused, TensorsThatAreMissingOrOfAnotherModel) {
  NamedTensors t = small_tensors();
  t.tensors.erase("dense_arch.model._mlp.1._linear.bias");
  EXPECT_THAT(open(t, {.tables = small_tables()}),
              Pair(HasSubstr("no tensor \"dense_arch.model._mlp.1._linear.bias\""), Code::kInvalidArgument));
  t = small_tensors();
  t.add("inter_arch.crossnet.kernels.0", {4, 4}, 1);
  EXPECT_THAT(open(t, {.tables = small_tables()}).first, HasSubstr("another interaction"));
  t = {};
  t.add("weights", {3}, 1);
  EXPECT_THAT(open(t, {}).first, HasSubstr("no table was found"));
  t = small_tensors();
  t.add_linear("dense_arch.model._mlp.1._linear", kTestDim, 11, 1);
  EXPECT_THAT(open(t, {.tables = small_tables()}).first, HasSubstr("takes 11 values, but the layer before gives 12"));
}

TEST_F(Refused, ParametersThatNoDlrmHas) {
  NamedTensors t = small_tensors("model.");
  t.add("model.dense_arch.model._mlp.1._linear.gain", {kTestDim}, 1);
  t.add("model.over_arch.model.2.weight", {1, 1}, 1);
  t.add("metrics.seen", {1}, 1);
  EXPECT_THAT(open(t, {.tables = small_tables()}),
              Pair(AllOf(HasSubstr("no DLRM has \"metrics.seen\", \"model.dense_arch.model._mlp.1._linear.gain\", "
                                   "\"model.over_arch.model.2.weight\": "),
                         HasSubstr("another model")),
                   Code::kInvalidArgument));
}

TEST_F(Refused, TablesThatAreNotThoseOfTheConfig) {
  auto tables = small_tables();
  tables[1].name = "viewer";
  tables[1].feature_names = {"viewer"};
  EXPECT_THAT(open(small_tensors(), {.tables = tables}),
              Pair(HasSubstr("there is no table \"viewer\", only film, genre, tag, user"), Code::kInvalidArgument));
  tables = small_tables();
  tables.pop_back();
  EXPECT_THAT(open(small_tensors(), {.tables = tables}).first, HasSubstr("table \"genre\" is not in the config"));
  tables = small_tables();
  tables[0].num_embeddings = 40;
  EXPECT_THAT(open(small_tensors(), {.tables = tables}).first,
              HasSubstr("table \"film\" is [41, 8], but the config says [40, 8]"));
  EXPECT_THAT(open(small_tensors(), {}).first,
              AllOf(HasSubstr("tables have the right features"), HasSubstr("--config")))
      << "four tables cannot be five features";
}

TEST(NeededFeatures, LeavesOutIdsOfOthers) {
  ModelDescription model;
  model.features.resize(2);
  model.features[0].needed = false;
  inference::NeededFeatures needed(model);
  const std::vector<int64_t> ids = {4, 5};
  const std::vector<int32_t> lengths = {2, 0};
  const std::vector<PredictInput::Feature> features = {{ids, lengths, {}}, {ids, lengths, {}}};
  const PredictInput out = needed.of({2, {}, features});
  EXPECT_TRUE(out.features[0].values.empty());
  EXPECT_EQ(out.features[0].lengths.size(), 2u);
  EXPECT_EQ(out.features[0].lengths[0], 0);
  EXPECT_EQ(out.features[1].values.data(), ids.data());
  EXPECT_EQ(out.features[1].lengths[0], 2);
}

}  // namespace
}  // namespace tessera
