// Compares lookups and updates of a GPU's kernel (gpu_under_test.h) with the reference kernel: tables of all widths,
// with rows that occur once, often, and in several places of the batch.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "fake_runtime.h"
#include "gpu_under_test.h"
#include "tessera/device.h"
#include "tessera/lookup.h"

namespace tessera {
namespace {

using Random = std::mt19937_64;

// Tables of these rows and widths with one feature each, and the largest numbers of samples and of ids per sample.
struct Shape {
  const char* name;
  std::vector<std::pair<int64_t, int64_t>> tables;
  int64_t samples, most_ids;
};
const Shape kAllWidths{
    "all_widths",
    {{7, 4}, {1, 16}, {40, 17}, {300, 32}, {0, 8}, {25, 64}, {90, 1}, {33, 128}, {20, 200}, {11, 300}},
    9,
    6};
const Shape kWidthsOfVectors{
    "widths_of_vectors", {{7, 4}, {1, 16}, {40, 20}, {300, 64}, {33, 128}, {20, 200}, {60, 256}, {11, 300}}, 30, 6};
const Shape kOneWidth{"one_width", {{500, 64}, {2000, 64}}, 300, 9};
const Shape kFewRows{"few_rows", {{1, 8}, {3, 16}, {20000, 8}, {40, 132}}, 150, 12};
const Shape kManyRows{"many_rows", {{50000, 8}, {80000, 4}}, 7000, 20};  // more than 131,072 ids: warps with many units

struct Case {
  Shape shape;
  std::string optimizer, options;
  DType rows = DType::kFloat32;
  double max_gradient = 0;
  int steps = 3;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.shape.name << ' ' << c.optimizer; }

LookupOptions options_of(const Case& c, const std::string& kernel, DeviceStreamPtr stream) {
  LookupOptions o{.kernel = kernel,
                  .compute_kernel = "fused",
                  .stream = std::move(stream),
                  .weight_dtype = c.rows,
                  .optimizer = {c.optimizer, c.options, c.max_gradient}};
  for (const auto& [rows, dim] : c.shape.tables) {
    LookupTable table{.name = str_cat("t", o.tables.size()), .rows = rows, .dim = dim};
    o.tables.push_back(std::move(table));
  }
  return o;
}

// The batch of one step.
class Request {
 public:
  Request(Random& random, const Shape& shape, bool weighted) {
    std::vector<int64_t> ids, offsets{0};
    for (size_t t = 0; t < shape.tables.size(); ++t) {
      const auto [rows, dim] = shape.tables[t];
      const auto pooling = static_cast<int32_t>(t % 2 ? TSR_POOLING_MEAN : TSR_POOLING_SUM);
      features_.push_back(
          {static_cast<int32_t>(t), pooling, shape.samples, static_cast<int64_t>(offsets.size()) - 1, columns_, 0});
      for (int64_t b = 0; b < shape.samples; ++b) {
        const auto count = rows == 0 ? 0 : static_cast<int64_t>(random() % static_cast<uint64_t>(shape.most_ids + 1));
        for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(rows)));
        offsets.push_back(static_cast<int64_t>(ids.size()));
      }
      columns_ += dim;
    }
    for (tsr_lookup_feature& f : features_) f.output_stride = columns_;
    std::vector<float> weights(ids.size());
    for (float& w : weights) w = static_cast<float>(random() % 1000) / 500 - 1;
    ids_ = Tensor::from(ids);
    offsets_ = Tensor::from(offsets);
    raw_ids_ = ids_.dl();
    raw_offsets_ = offsets_.dl();
    if (weighted) {
      weights_ = Tensor::from(weights);
      raw_weights_ = weights_.dl();
    }
    output = Tensor::empty({shape.samples, columns_});
    gradient = Tensor::empty({shape.samples, columns_});
    for (float& g : gradient.span<float>()) g = static_cast<float>(random() % 1000) / 500 - 1;
  }
  tsr_lookup lookup() const {
    tsr_lookup out{};
    out.struct_size = sizeof(out);
    out.num_features = static_cast<uint32_t>(features_.size());
    out.feature_stride = sizeof(tsr_lookup_feature);
    out.features = features_.data();
    out.ids = &raw_ids_;
    out.offsets = &raw_offsets_;
    out.weights = weights_.defined() ? &raw_weights_ : nullptr;
    return out;
  }
  Tensor output, gradient;

 private:
  std::vector<tsr_lookup_feature> features_;
  Tensor ids_, offsets_, weights_;
  DLTensor raw_ids_{}, raw_offsets_{}, raw_weights_{};
  int64_t columns_ = 0;
};

void expect_near(const Tensor& got, const Tensor& want, float tolerance, const std::string& what) {
  const std::vector<float> a = got.to_vector<float>(), b = want.to_vector<float>();
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < b.size(); ++i) {
    ASSERT_LE(std::abs(a[i] - b[i]), tolerance * (1 + std::abs(b[i]))) << what << " " << i << ": " << a[i];
  }
}

RuntimeOptions with_gpu() {
  RuntimeOptions options = test::with_fake_device();
  options.plugin_path.push_back(TESSERA_EMULATOR_PLUGINS);
  return options;
}

class LookupOnGpu : public testing::TestWithParam<Case> {
 protected:
  Runtime runtime_{with_gpu()};
};

TEST_P(LookupOnGpu, TrainsAsTheReferenceDoes) {
  const Case& c = GetParam();
  Random random(7);
  Lookup want(runtime_, options_of(c, "reference", nullptr));
  Lookup got(runtime_, options_of(c, test::gpu_under_test(), open_device(runtime_, test::gpu_under_test())));
  for (size_t t = 0; t < c.shape.tables.size(); ++t) {
    const auto [rows, dim] = c.shape.tables[t];
    const Tensor start = Tensor::empty({rows, dim});
    for (float& w : start.span<float>()) w = static_cast<float>(random() % 256) / 128 - 1;  // also exact in 16 bits
    for (Lookup* lookup : {&want, &got}) lookup->set_weight(static_cast<int>(t), start);
  }
  const float tolerance = c.rows == DType::kFloat32 ? 1e-4f : 1e-2f;
  for (int step = 0; step < c.steps; ++step) {
    const Request request(random, c.shape, step == 1);
    std::vector<Tensor> outputs;
    for (Lookup* lookup : {&want, &got}) {
      Lookup::Context context;
      lookup->forward(request.lookup(), request.output, &context);
      outputs.push_back(request.output.clone());
      lookup->backward(std::move(context), request.lookup(), request.gradient, 0.5);
    }
    expect_near(outputs[1], outputs[0], tolerance, str_cat("output of step ", step));
    for (int t = 0; t < static_cast<int>(c.shape.tables.size()); ++t) {
      expect_near(got.weight(t), want.weight(t), tolerance, str_cat("table ", t, " after step ", step));
      for (int k = 0; k < static_cast<int>(want.states().size()); ++k)
        expect_near(got.state(t, k), want.state(t, k), tolerance, str_cat("state of table ", t, " after step ", step));
      if (HasFatalFailure()) return;
    }
  }
}

std::vector<Case> cases() {
  const std::string adagrad = R"({"learning_rate": 0.1, "eps": 0.01})",
                    decayed = R"({"learning_rate": 0.1, "eps": 0.01, "weight_decay": 0.1, "weight_decay_mode": "l2"})";
  std::vector<Case> out;
  for (const Shape& shape : {kAllWidths, kWidthsOfVectors, kOneWidth, kFewRows}) {
    out.push_back({shape, "exact_sgd", R"({"learning_rate": 0.1})", DType::kFloat32, 0.4});
    out.push_back({shape, "exact_adagrad", adagrad});
    out.push_back({shape, "exact_rowwise_adagrad", decayed});
    out.push_back({shape, "adam", R"({"learning_rate": 0.01, "eps": 0.01})"});
  }
  for (const DType rows : {DType::kFloat16, DType::kBFloat16})
    out.push_back({kWidthsOfVectors, "exact_rowwise_adagrad", adagrad, rows});
  out.push_back({kManyRows, "exact_rowwise_adagrad", adagrad, DType::kFloat32, 0, 1});
  return out;
}
INSTANTIATE_TEST_SUITE_P(Cases, LookupOnGpu, testing::ValuesIn(cases()), [](const auto& info) {
  const Case& c = info.param;
  return str_cat(c.shape.name, '_', c.optimizer, c.rows == DType::kFloat32 ? "" : str_cat('_', to_string(c.rows)));
});

}  // namespace
}  // namespace tessera
