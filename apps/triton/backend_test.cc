// The backend as Triton loads it, in a server that stands in for Triton: scores of several requests at once, errors of
// one of them, configurations that do not fit.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "inference/test_model.h"
#include "stand_in.h"

namespace tessera::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr auto kI64 = TRITONSERVER_TYPE_INT64, kI32 = TRITONSERVER_TYPE_INT32, kF32 = TRITONSERVER_TYPE_FP32;

template <class F>
F* function(const char* name) {
  static void* const library = dlopen(TESSERA_TRITON_BACKEND, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  void* const found = library == nullptr ? nullptr : dlsym(library, name);
  EXPECT_NE(found, nullptr) << name;
  return reinterpret_cast<F*>(found);
}
#define TRITON(NAME) function<decltype(TRITONBACKEND_##NAME)>("TRITONBACKEND_" #NAME)

std::string text_of(TRITONSERVER_Error* error) {
  if (error == nullptr) return "";
  const std::string out = error->text;
  TRITONSERVER_ErrorDelete(error);
  return out;
}

class TritonBackend : public testing::Test {
 protected:
  explicit TritonBackend(FloatModelOptions options = {}) {
    std::filesystem::create_directories(folder_.file("repository"));
    pack_model(small_model(folder_, std::move(options)).model, folder_.file("repository/1"), {});
    predictor_ = open_predictor(runtime_, folder_.file("repository/1"));
    model_.repository = folder_.file("repository");
  }
  ~TritonBackend() override { EXPECT_EQ(stand_in::live_errors, 0); }

  static json input(const std::string& name, const char* type, const json& dims) {
    return {{"name", name}, {"data_type", type}, {"dims", dims}};
  }
  // The model's configuration; `rows`: features come as [batch, k] ids, and Triton makes batches.
  json config(bool rows) const {
    json out = {{"max_batch_size", rows ? 64 : 0}, {"input", json::array()}, {"output", json::array()}};
    const auto dims = [&](const json& width) { return rows ? json{width} : json{-1, width}; };
    out["input"].push_back(input("dense", "TYPE_FP32", dims(std::to_string(kTestDense))));  // as protobuf prints int64
    for (const ModelFeature& f : predictor_->model().features) {
      out["input"].push_back(input(rows ? f.name : f.name + ".values", "TYPE_INT64", {-1}));
      out["input"].push_back(input(f.name + ".lengths", "TYPE_INT32", {rows ? 1 : -1}));
    }
    out["output"].push_back(input(predictor_->model().outputs[0].name, "TYPE_FP32", dims(1)));
    return out;
  }
  std::string opened(const json& config) {
    model_.config = config.dump();
    return text_of(TRITON(ModelInitialize)(&model_));
  }
  void close() { EXPECT_EQ(text_of(TRITON(ModelFinalize)(&model_)), ""); }
  std::string execute(const std::vector<TRITONBACKEND_Request*>& requests) {
    std::vector<TRITONBACKEND_Request*> copy = requests;
    instance_.model = &model_;
    return text_of(TRITON(ModelInstanceExecute)(&instance_, copy.data(), static_cast<uint32_t>(copy.size())));
  }
  // A request with the samples of `own`; `rows`: ids padded to `most` per sample by an id that must not count.
  TRITONBACKEND_Request request(const OwnInput& own, bool rows, size_t most = 4) const {
    TRITONBACKEND_Request out;
    out.add("dense", kF32, {own.batch, kTestDense}, own.dense);
    for (size_t f = 0; f < own.values.size(); ++f) {
      const std::string& name = predictor_->model().features[f].name;
      if (!rows) {
        out.add(name + ".values", kI64, {std::ssize(own.values[f])}, own.values[f]);
        out.add(name + ".lengths", kI32, {own.batch}, own.lengths[f]);
        continue;
      }
      std::vector<int64_t> ids;
      size_t at = 0;
      for (const int32_t length : own.lengths[f]) {
        for (size_t i = 0; i < most; ++i) ids.push_back(i < static_cast<size_t>(length) ? own.values[f][at++] : -7);
      }
      out.add(name, kI64, {own.batch, static_cast<int64_t>(most)}, ids);
      out.add(name + ".lengths", kI32, {own.batch, 1}, own.lengths[f]);
    }
    return out;
  }
  void expect_scores(const TRITONBACKEND_Request& asked, OwnInput own) {
    const std::string& name = predictor_->model().outputs[0].name;
    EXPECT_TRUE(asked.response.sent);
    EXPECT_EQ(asked.released, 1);
    EXPECT_EQ(asked.response.error, "");
    ASSERT_TRUE(asked.response.outputs.contains(name));
    EXPECT_EQ(asked.response.outputs.at(name).shape, (std::vector<int64_t>{own.batch, 1}));
    EXPECT_EQ(asked.response.outputs.at(name).values, scores_of(*predictor_, own.view()));
  }

  ModelFolder folder_;
  Runtime runtime_;
  std::unique_ptr<Predictor> predictor_;
  TRITONBACKEND_Model model_;
  TRITONBACKEND_ModelInstance instance_;
};

TEST_F(TritonBackend, AnswersSeveralRequestsAtOnce) {
  for (const bool rows : {true, false}) {
    ASSERT_EQ(opened(config(rows)), "") << rows;
    OwnInput a(predictor_->model(), 3, 1), b(predictor_->model(), 1, 2), c(predictor_->model(), 7, 3);
    TRITONBACKEND_Request one = request(a, rows), two = request(b, rows, 3), three = request(c, rows, 9);
    ASSERT_EQ(execute({&one, &two, &three}), "");
    expect_scores(one, a);
    expect_scores(two, b);
    expect_scores(three, c);
    EXPECT_EQ(instance_.batch, 11u) << "all samples are one batch";
    close();
  }
  EXPECT_EQ(instance_.successes, 6);
  EXPECT_EQ(instance_.failures, 0);
}

// Each wrong request gets its own sentence, and the others their scores.
TEST_F(TritonBackend, AWrongRequestDoesNotSpoilTheOthers) {
  ASSERT_EQ(opened(config(true)), "");
  OwnInput own(predictor_->model(), 2, 5);
  struct Wrong {
    std::function<void(TRITONBACKEND_Request&)> change;
    const char* sentence;
  };
  const std::vector<Wrong> all = {
      {[](auto& r) { r.inputs.erase(r.inputs.begin()); }, "the input \"dense\" is missing"},
      {[](auto& r) {
         r.inputs[0].shape = {5, 2};
       },
       "\"dense\" has the shape [5, 2], but must be [batch, 5]"},
      {[](auto& r) { r.inputs[0].type = TRITONSERVER_TYPE_INT32; }, "has the type INT32, but must be FP32"},
      {[](auto& r) {
         r.inputs[0].shape = {3, 5};
       },
       "has 40 bytes, but needs 60"},
      {[](auto& r) { r.inputs[0].memory = TRITONSERVER_MEMORY_GPU; }, "is in the memory of a GPU"},
      {[](auto& r) { r.inputs[2].buffers = {std::string(8, '\x05')}; }, "which must be from 0 to 4"},
      {[](auto& r) {
         r.inputs[2] = {"film.lengths", kI32, {3, 1}, {std::string(12, '\0')}};
       },
       "\"film.lengths\" has 3 samples, but the inputs before it have 2"},
      {[](auto& r) {
         const int64_t ids[] = {0, 1, 2, 3, 1000000, 1, 2, 3};
         r.inputs[1].buffers = {std::string(reinterpret_cast<const char*>(ids), sizeof(ids))};
         const int32_t lengths[] = {4, 4};
         r.inputs[2].buffers = {std::string(reinterpret_cast<const char*>(lengths), sizeof(lengths))};
       },
       "1000000"},
      {[](auto& r) { r.outputs = {"stars"}; }, "the output \"stars\" is no head of the model"},
      {[](auto& r) { r.output_memory = TRITONSERVER_MEMORY_GPU; }, "wanted in the memory of a GPU"},
  };
  for (const Wrong& wrong : all) {
    TRITONBACKEND_Request before = request(own, true), bad = request(own, true), after = request(own, true);
    wrong.change(bad);
    ASSERT_EQ(execute({&before, &bad, &after}), "");
    expect_scores(before, own);
    expect_scores(after, own);
    EXPECT_THAT(bad.response.error, HasSubstr(wrong.sentence));
    EXPECT_TRUE(bad.response.sent);
    EXPECT_EQ(bad.released, 1);
  }
  EXPECT_EQ(instance_.failures, static_cast<int>(all.size()));
  TRITONBACKEND_Request none = request(OwnInput(predictor_->model(), 0, 1), true);
  ASSERT_EQ(execute({&none}), "");
  EXPECT_EQ(none.response.error, "");
  EXPECT_EQ(none.response.outputs.begin()->second.shape, (std::vector<int64_t>{0, 1}));
  close();
}

TEST_F(TritonBackend, RefusesConfigurationsThatDoNotFit) {
  const auto changed = [&](bool rows, const std::function<void(json&)>& change) {
    json c = config(rows);
    change(c);
    return opened(c);
  };
  EXPECT_THAT(changed(true, [](json& c) { c["input"].erase(0); }), HasSubstr("lacks the input \"dense\""));
  EXPECT_THAT(changed(true, [](json& c) { c["input"][0]["dims"] = {4}; }), HasSubstr("\"dense\" needs dims: [ 5 ]"));
  EXPECT_THAT(changed(true, [](json& c) { c["input"].erase(1); }),
              HasSubstr("needs one of the inputs \"film\" ([batch, k] ids) and \"film.values\""));
  EXPECT_THAT(changed(true, [](json& c) { c["input"][1]["data_type"] = "TYPE_STRING"; }),
              HasSubstr("\"film\" has the data_type TYPE_STRING, but must be TYPE_INT64 or TYPE_INT32"));
  EXPECT_THAT(changed(false, [](json& c) { c["max_batch_size"] = 8, c["input"][0]["dims"] = {5}; }),
              HasSubstr("\"film.values\" has no batch, which max_batch_size says: set it to 0"));
  EXPECT_THAT(changed(true, [](json& c) { c["input"].push_back(input("movie", "TYPE_INT64", {-1})); }),
              HasSubstr("has the input \"movie\", which is none of the model's"));
  EXPECT_THAT(changed(true, [](json& c) { c["input"].push_back(input("film.weights", "TYPE_FP32", {-1})); }),
              HasSubstr("\"film.weights\", but the model takes no weights"));
  EXPECT_THAT(changed(true, [](json& c) { c["output"][0]["name"] = "stars"; }),
              HasSubstr("the output \"stars\", which is no head of the model"));
  EXPECT_THAT(changed(true, [](json& c) { c["parameters"]["thread"]["string_value"] = "2"; }),
              HasSubstr("the parameter \"thread\", but the backend tessera has only threads,"));
  EXPECT_THAT(changed(true, [](json& c) { c["parameters"]["threads"]["string_value"] = "two"; }),
              HasSubstr("in the place of a whole number"));
  model_.version = 2;
  EXPECT_THAT(opened(config(true)), HasSubstr("repository/2"));
  model_.version = 1;
  ASSERT_EQ(changed(true, [](json& c) { c["parameters"]["threads"]["string_value"] = "2"; }), "");
  instance_.model = &model_;
  EXPECT_EQ(text_of(TRITON(ModelInstanceInitialize)(&instance_)), "");
  instance_.kind = TRITONSERVER_INSTANCEGROUPKIND_GPU;
  EXPECT_THAT(text_of(TRITON(ModelInstanceInitialize)(&instance_)), HasSubstr("kind: KIND_CPU"));
  close();
  EXPECT_EQ(text_of(TRITON(Initialize)(nullptr)), "");
  --stand_in::api_minor;
  EXPECT_THAT(text_of(TRITON(Initialize)(nullptr)), HasSubstr("build it with this server's headers"));
  ++stand_in::api_minor;
}

TEST_F(TritonBackend, CompletesTheConfiguration) {
  model_.auto_complete = true;
  ASSERT_EQ(opened(json::object()), "");
  const json completed = json::parse(model_.set_config);
  EXPECT_GT(completed.at("max_batch_size"), 0);
  EXPECT_TRUE(completed.contains("dynamic_batching"));
  EXPECT_EQ(completed.at("input").size(), 1 + 2 * predictor_->model().features.size());
  OwnInput own(predictor_->model(), 5, 9);
  TRITONBACKEND_Request asked = request(own, true);
  asked.outputs = {predictor_->model().outputs[0].name};
  ASSERT_EQ(execute({&asked}), "");
  expect_scores(asked, own);
  close();
  model_.set_config.clear();
  ASSERT_EQ(opened(completed), "");
  EXPECT_EQ(model_.set_config, "") << "there is nothing to complete";
  close();
}

class TritonBackendWithWeights : public TritonBackend {
 protected:
  TritonBackendWithWeights() : TritonBackend({.is_weighted = true}) {}
};

TEST_F(TritonBackendWithWeights, WeightsCountAndAreOneIfLeftOut) {
  json c = config(false);
  for (const ModelFeature& f : predictor_->model().features)
    c["input"].push_back(input(f.name + ".weights", "TYPE_FP32", {-1}));
  ASSERT_EQ(opened(c), "");
  OwnInput own(predictor_->model(), 4, 7, true), plain(predictor_->model(), 4, 8);
  TRITONBACKEND_Request with = request(own, false), without = request(plain, false);
  for (size_t f = 0; f < own.values.size(); ++f)
    with.add(predictor_->model().features[f].name + ".weights", kF32, {std::ssize(own.weights[f])}, own.weights[f]);
  ASSERT_EQ(execute({&with, &without}), "");
  expect_scores(with, own);
  expect_scores(without, plain);
  close();
}

}  // namespace
}  // namespace tessera::test
