#include <algorithm>
#include <vector>

#include "planner/dense_work.h"

namespace tessera {

double reduce_after_backward(const DenseWork& dense, const Curve& layer, double batch, double backward,
                             const std::function<double(double bytes)>& all_reduce) {
  struct Bucket {
    size_t first;  // the bucket's first layer
    double parameters;
  };
  std::vector<Bucket> buckets;
  for (size_t i = 0; i < dense.layers.size(); ++i) {
    const auto [in, out] = dense.layers[i];
    if (buckets.empty() || 4 * buckets.back().parameters >= dense.bucket_bytes) buckets.push_back({i, 0});
    buckets.back().parameters += static_cast<double>(in * out + out);
  }
  const double layers = dense.layer_seconds(layer, batch);
  const double share = layers > 0 ? backward / layers : 0;  // spreads the other work of backward over the layers
  double ran = 0, end = 0;
  for (size_t i = dense.layers.size(); i-- > 0;) {
    const auto [in, out] = dense.layers[i];
    ran += share * layer.at(2 * batch * static_cast<double>(in * out));
    if (i != buckets.back().first) continue;
    end = std::max(end, ran) + all_reduce(dense.gradient_bytes * buckets.back().parameters);
    buckets.pop_back();
  }
  return std::max(0.0, end - backward);
}

int64_t DenseWork::parameters() const {
  int64_t n = 0;
  for (const auto& [in, out] : layers) n += in * out + out;
  return n;
}

double DenseWork::layer_seconds(const Curve& curve, double batch) const {
  double seconds = 0;
  for (const auto& [in, out] : layers) seconds += curve.at(2 * batch * static_cast<double>(in * out));
  return seconds;
}

double DenseWork::interaction_seconds(const Curve& curve, double batch) const {
  return vectors > 0 ? curve.at(batch * static_cast<double>(vectors * vectors * dim)) : 0;
}

BesideLayersWork DenseWork::beside_layers(double batch) const {
  BesideLayersWork work;
  work.calls = empty() ? 0 : 1;
  work.layers = static_cast<double>(layers.size()) + (vectors > 0 ? 1 : 0);
  work.samples = batch;
  work.vector_pairs = batch * static_cast<double>(vectors * vectors);
  const int64_t pairs = vectors * (vectors - 1) / 2;
  auto values = static_cast<double>(vectors * dim + pairs);
  for (const auto& [in, out] : layers) values += static_cast<double>(in + out);
  work.bytes = 4 * batch * values;
  return work;
}

DenseUpdateWork DenseWork::update() const {
  return {1, 2 * static_cast<double>(layers.size()), 4 * static_cast<double>(parameters())};
}

DenseWork dlrm_dense_work(int64_t dense_inputs, int64_t num_embeddings, int64_t embedding_dim,
                          const std::vector<int64_t>& bottom_mlp, const std::vector<int64_t>& top_mlp) {
  DenseWork out;
  const auto add = [&](int64_t in, const std::vector<int64_t>& sizes) {
    for (const int64_t width : sizes) {
      out.layers.emplace_back(in, width);
      in = width;
    }
  };
  out.vectors = num_embeddings + 1;
  out.dim = embedding_dim;
  add(dense_inputs, bottom_mlp);
  add(embedding_dim + out.vectors * (out.vectors - 1) / 2, top_mlp);
  return out;
}

}  // namespace tessera
