// A small DLRM in the form of a checkpoint, for tests: four tables, one pooled by mean, one with two features.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"
#include "config/test_directory.h"
#include "config/test_refusal.h"
#include "tessera/predictor.h"

namespace tessera::test {

using ModelFolder = TestDirectory;

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

struct NamedTensors {
  std::map<std::string, Tensor> tensors;

  void add(const std::string& name, const std::vector<int64_t>& shape, uint32_t seed, float scale = 0.5f) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, scale);
    Tensor t = Tensor::empty(shape);
    for (float& v : t.span<float>()) v = normal(random);
    tensors[name] = t;
  }
  void add_linear(const std::string& name, int64_t out, int64_t in, uint32_t seed) {
    add(name + ".weight", {out, in}, seed, 0.3f);
    add(name + ".bias", {out}, seed + 1, 0.1f);
  }
  void write(const std::string& path) const {
    checkpoint::StoredTensors announced;
    for (const auto& [name, value] : tensors) announced[name] = {value.dtype(), value.shape(), 0};
    checkpoint::SafetensorsWriter writer(path, announced);
    for (const auto& [name, value] : tensors) writer.write(name, value);
    writer.file().sync();
  }
};

inline constexpr int64_t kTestDense = 5, kTestDim = 8;

// Five pooled features: "film", "seen" (also of table film), "user", "tag", "genre".
inline std::vector<EmbeddingBagConfig> small_tables() {
  const auto table = [](const char* name, int64_t rows, PoolingType pooling, std::vector<std::string> features) {
    EmbeddingBagConfig t;
    t.name = name;
    t.num_embeddings = rows;
    t.embedding_dim = kTestDim;
    t.pooling = pooling;
    t.feature_names = std::move(features);
    return t;
  };
  return {table("film", 41, PoolingType::kSum, {"film", "seen"}), table("user", 23, PoolingType::kSum, {"user"}),
          table("tag", 17, PoolingType::kMean, {"tag"}), table("genre", 9, PoolingType::kSum, {"genre"})};
}

inline NamedTensors small_tensors(const std::string& before = "") {
  NamedTensors t;
  uint32_t seed = 1;
  for (const EmbeddingBagConfig& table : small_tables()) {
    t.add(before + "sparse_arch.embedding_bag_collection.embedding_bags." + table.name + ".weight",
          {table.num_embeddings, kTestDim}, seed++);
  }
  constexpr int64_t kFeatures = 5, kPairs = (kFeatures + 1) * kFeatures / 2;
  t.add_linear(before + "dense_arch.model._mlp.0._linear", 12, kTestDense, 100);
  t.add_linear(before + "dense_arch.model._mlp.1._linear", kTestDim, 12, 102);
  t.add_linear(before + "over_arch.model.0._mlp.0._linear", 20, kTestDim + kPairs, 104);
  t.add_linear(before + "over_arch.model.1", 1, 20, 106);
  return t;
}

// Maps the model from a file in `folder`.
inline FloatModel small_model(const ModelFolder& folder, FloatModelOptions options = {}) {
  const std::string path = folder.file("float.safetensors");
  if (!std::filesystem::exists(path)) small_tensors().write(path);
  if (options.tables.empty()) options.tables = small_tables();
  return open_float_model(path, options);
}

// An input with its own memory: `batch` samples with 0 to 3 ids in every feature.
struct OwnInput {
  int64_t batch = 0;
  std::vector<float> dense;
  std::vector<std::vector<int64_t>> values;
  std::vector<std::vector<int32_t>> lengths;
  std::vector<std::vector<float>> weights;
  std::vector<PredictInput::Feature> features;

  OwnInput(const ModelDescription& model, int64_t samples, uint32_t seed, bool weighted = false) : batch(samples) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < samples * model.dense_inputs; ++i) dense.push_back(normal(random));
    for (const ModelFeature& f : model.features) {
      values.emplace_back();
      lengths.emplace_back();
      weights.emplace_back();
      for (int64_t s = 0; s < samples; ++s) {
        lengths.back().push_back(static_cast<int32_t>(random() % 4));
        for (int32_t i = 0; i < lengths.back().back(); ++i) {
          values.back().push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(f.ids)));
          if (weighted) weights.back().push_back(normal(random));
        }
      }
    }
  }
  PredictInput view() {
    features.clear();
    for (size_t f = 0; f < values.size(); ++f) features.push_back({values[f], lengths[f], weights[f]});
    return {batch, dense, features};
  }
};

inline std::vector<float> scores_of(Predictor& predictor, const PredictInput& input) {
  std::vector<float> scores(static_cast<size_t>(input.batch));
  predictor.predict(input, scores);
  return scores;
}

}  // namespace tessera::test
