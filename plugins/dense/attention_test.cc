// Attention against plain sums in double, for lengths 0, 1 and 4096; gradients; equal bits for any number of threads.
#include <gmock/gmock.h>

#include <functional>

#include "test_layer.h"

namespace {

using testing::HasSubstr;

struct Shape {
  std::vector<int64_t> bounds;
  int64_t heads, key_width, value_width;
};

// Fills the layer's queries, keys and values with noise.
void fill(Layer& layer, const Shape& shape) {
  ASSERT_EQ(layer.code, TSR_OK) << layer.error();
  const int64_t rows = shape.bounds.back();
  layer.all_bounds = {shape.bounds, shape.bounds, shape.bounds};
  layer.with_inputs({{rows, shape.heads * shape.key_width},
                     {rows, shape.heads * shape.key_width},
                     {rows, shape.heads * shape.value_width}});
}

using Weight = std::function<double(double logit)>;
using Sees = std::function<bool(int64_t i, int64_t j)>;

// Computes row i of sample `s` for head `h`: the sum of weight(scale * q k) v, divided by the sum of weights for a
// softmax.
std::vector<double> plain_row(const Layer& layer, const Shape& shape, size_t s, int64_t h, int64_t i, const Sees& sees,
                              double scale, const Weight& weight, bool softmax) {
  const int64_t base = shape.bounds[s], n = shape.bounds[s + 1] - base;
  const auto at = [&](size_t input, int64_t row, int64_t width, int64_t d) {
    const auto place = static_cast<size_t>((base + row) * shape.heads * width + h * width + d);
    return double{layer.inputs[input].data[place]};
  };
  std::vector<double> out(static_cast<size_t>(shape.value_width), 0.0);
  double sum = 0;
  for (int64_t j = 0; j < n; ++j) {
    if (!sees(i, j)) continue;
    double logit = 0;
    for (int64_t d = 0; d < shape.key_width; ++d)
      logit += at(0, i, shape.key_width, d) * at(1, j, shape.key_width, d) * scale;
    const double w = weight(logit);
    sum += w;
    for (int64_t d = 0; d < shape.value_width; ++d) out[static_cast<size_t>(d)] += w * at(2, j, shape.value_width, d);
  }
  for (double& value : out) value /= softmax ? sum : 1;
  return out;
}

void expect_plain(Layer& layer, const Shape& shape, int64_t stride, const Sees& sees, double scale,
                  const Weight& weight, bool softmax) {
  ASSERT_EQ(layer.forward(), TSR_OK) << layer.error();
  for (size_t s = 0; s + 1 < shape.bounds.size(); ++s) {
    for (int64_t i = 0; i < shape.bounds[s + 1] - shape.bounds[s]; i += stride) {
      for (int64_t h = 0; h < shape.heads; ++h) {
        const std::vector<double> want = plain_row(layer, shape, s, h, i, sees, scale, weight, softmax);
        for (int64_t d = 0; d < shape.value_width; ++d) {
          const int64_t at = ((shape.bounds[s] + i) * shape.heads + h) * shape.value_width + d;
          ASSERT_NEAR(layer.output.data[static_cast<size_t>(at)], want[static_cast<size_t>(d)], 2e-5)
              << "sample " << s << ", row " << i << ", head " << h;
        }
      }
    }
  }
}

double silu_of(double x) { return x / (1 + std::exp(-x)); }

TEST(Attention, IsTheSumOverTheRowsThatARowSees) {
  TestHost host(2);
  const Shape shape{{0, 5, 5, 6, 75, 142}, 2, 3, 4};
  const auto exp_of = [](double x) { return std::exp(x); };
  Layer causal(host, "attention", R"({"heads": 2, "scale": 2.5})");
  fill(causal, shape);
  expect_plain(
      causal, shape, 1, [](int64_t i, int64_t j) { return j <= i; }, 2.5, exp_of, true);
  Layer near(host, "attention", R"({"heads": 2, "causal": false, "window": 4})");
  fill(near, shape);
  const auto close = [](int64_t i, int64_t j) { return std::abs(i - j) <= 4; };
  expect_plain(near, shape, 1, close, 1 / std::sqrt(3.0), exp_of, true);
  Layer itself(host, "attention", R"({"heads": 2, "window": 0})");
  fill(itself, shape);
  expect_plain(
      itself, shape, 1, [](int64_t i, int64_t j) { return i == j; }, 1, exp_of, true);
  Layer silu(host, "attention", R"({"heads": 2, "kind": "silu", "length": 80, "window": 40, "scale": 3})");
  fill(silu, shape);
  const auto back = [](int64_t i, int64_t j) { return j <= i && i - j <= 40; };
  expect_plain(
      silu, shape, 1, back, 3, [](double x) { return silu_of(x) / 80; }, false);
}

TEST(Attention, TakesLongSequencesAndEmptyOnes) {
  TestHost host(2);
  const Shape shape{{0, 4096, 4096, 4097}, 1, 2, 2};
  Layer layer(host, "attention", "{}");
  fill(layer, shape);
  const Sees causal = [](int64_t i, int64_t j) { return j <= i; };
  expect_plain(
      layer, shape, 509, causal, 1 / std::sqrt(2.0), [](double x) { return std::exp(x); }, true);
  for (const std::vector<int64_t>& bounds : {std::vector<int64_t>{0, 0, 0}, {0}}) {
    Layer none(host, "attention", R"({"kind": "silu", "length": 3, "bias": "position"})");
    fill(none, {bounds, 1, 2, 2});
    none.step();
    EXPECT_THAT(none.grad_parameters[0].data, testing::Each(0.0F));
  }
}

TEST(Attention, HasTheGradientsOfItsLoss) {
  TestHost host;
  const Shape shape{{0, 3, 3, 4, 9}, 2, 2, 3};
  for (const char* options :
       {R"({"heads": 2, "scale": 2})", R"({"heads": 2, "causal": false, "window": 2})",
        R"({"heads": 2, "dropout": 0.4})", R"({"heads": 2, "dropout": 0.4, "kind": "silu", "length": 6, "scale": 4})",
        R"({"heads": 2, "bias": "position", "length": 6})",
        R"({"heads": 2, "kind": "silu", "length": 6, "scale": 4, "bias": "position", "contextual": 2, "window": 1})"}) {
    SCOPED_TRACE(options);
    Layer layer(host, "attention", options);
    fill(layer, shape);
    check_all_gradients(layer);
  }
}

// A task's sums depend neither on other tasks nor on the thread that runs it.
TEST(Attention, HasEqualBitsForAnyNumberOfThreads) {
  const auto step = [](uint32_t threads) {
    TestHost host(threads);
    Layer layer(host, "attention", R"({"heads": 2, "kind": "silu", "length": 200, "bias": "position"})");
    fill(layer, {{0, 150, 151, 351, 380, 500}, 2, 8, 8});
    layer.step();
    EXPECT_EQ(host.lent > 0, threads > 1);
    std::vector<std::vector<float>> out = {layer.output.data, layer.grad_parameters[0].data};
    for (const Matrix& m : layer.grad_inputs) out.push_back(m.data);
    return out;
  };
  const auto one = step(1);
  EXPECT_EQ(step(2), one);
  EXPECT_EQ(step(3), one);
}

// With queries of only a sample's last rows, the output has the last rows of the whole. The targets are a sequence.
TEST(Attention, ComputesOnlyTheLastRowsThatAreAsked) {
  TestHost host;
  const std::vector<int64_t> rows = {0, 5, 5, 6, 46}, asked = {0, 2, 2, 3, 38}, targets = {0, 1, 1, 1, 4};
  for (const std::string kind : {"softmax", "silu", "linear"}) {
    SCOPED_TRACE(kind);
    const std::string options =
        R"({"heads": 2, "length": 50, "bias": "position", "targets": true, "kind": ")" + kind + "\"";
    Layer whole(host, "attention", options + "}"), last(host, "attention", options + R"(, "last_rows": true})");
    ASSERT_EQ(last.code, TSR_OK) << last.error();
    whole.all_bounds = {rows, rows, rows, targets};
    last.all_bounds = {asked, rows, rows, targets};
    whole.with_inputs({{46, 4}, {46, 4}, {46, 6}, {4, 2}});
    last.with_inputs({{38, 4}, {46, 4}, {46, 6}, {4, 2}});
    last.inputs[1] = whole.inputs[1], last.inputs[2] = whole.inputs[2], last.parameters = whole.parameters;
    const auto behind = [&](size_t s) { return rows[s + 1] - asked[s + 1]; };  // row's index minus the query's
    for (size_t s = 0; s + 1 < rows.size(); ++s) {
      const float* from = whole.inputs[0].data.data() + 4 * (asked[s] + behind(s));
      std::copy_n(from, 4 * (asked[s + 1] - asked[s]), last.inputs[0].data.data() + 4 * asked[s]);
    }
    ASSERT_EQ(whole.forward(), TSR_OK) << whole.error();
    ASSERT_EQ(last.forward(), TSR_OK) << last.error();
    for (size_t s = 0; s + 1 < rows.size(); ++s) {
      for (int64_t i = 6 * asked[s]; i < 6 * asked[s + 1]; ++i) {
        const auto place = static_cast<size_t>(i + 6 * behind(s));
        ASSERT_NEAR(last.output.data[static_cast<size_t>(i)], whole.output.data[place], 2e-6) << s << " " << i;
      }
    }
    check_all_gradients(last);
    last.all_bounds[0] = {0, 1, 2, 3, 38};
    EXPECT_EQ(last.forward(), TSR_INVALID_ARGUMENT);
    EXPECT_THAT(last.error(), HasSubstr("sample 1 has 1 queries of its last rows, but only 0 rows"));
  }
}

// If all values are 1, a row of the output is the sum of its weights, which are a tenth each.
TEST(Attention, DropsWeightsWhileTraining) {
  TestHost host(2);
  constexpr int64_t kRows = 200;
  std::vector<int64_t> bounds, few;
  for (int64_t s = 0; s <= kRows / 10; ++s) bounds.push_back(10 * s), few.push_back(2 * s);
  Layer layer(host, "attention", R"({"causal": false, "dropout": 0.25})");
  fill(layer, {bounds, 1, 2, 1});
  std::fill(layer.inputs[0].data.begin(), layer.inputs[0].data.end(), 0.0F);
  std::fill(layer.inputs[2].data.begin(), layer.inputs[2].data.end(), 1.0F);
  ASSERT_EQ(layer.forward(), TSR_OK) << layer.error();
  const std::vector<float> first = layer.output.data;
  int64_t kept = 0;
  for (const float sum : first) {
    const float of_row = sum * 7.5F;  // weights that were kept, each 0.1 / 0.75
    EXPECT_NEAR(of_row, std::round(of_row), 1e-4);
    kept += std::lround(of_row);
  }
  EXPECT_NEAR(static_cast<double>(kept), 0.75 * 10 * kRows, 80);  // about four standard deviations
  Layer last(host, "attention", R"({"causal": false, "dropout": 0.25, "last_rows": true})");
  fill(last, {bounds, 1, 2, 1});
  last.all_bounds[0] = few;
  last.with_inputs({{2 * kRows / 10, 2}, {kRows, 2}, {kRows, 1}});
  std::fill(last.inputs[0].data.begin(), last.inputs[0].data.end(), 0.0F);
  std::fill(last.inputs[2].data.begin(), last.inputs[2].data.end(), 1.0F);
  ASSERT_EQ(last.forward(), TSR_OK) << last.error();
  for (size_t i = 0; i < last.output.data.size(); ++i)
    ASSERT_EQ(last.output.data[i], first[i / 2 * 10 + 8 + i % 2]) << "the same weights, however many rows are asked";
  layer.step_number = 1;
  ASSERT_EQ(layer.forward(), TSR_OK);
  EXPECT_NE(layer.output.data, first);
  layer.trains = false;
  ASSERT_EQ(layer.forward(), TSR_OK);
  EXPECT_THAT(layer.output.data, testing::Each(testing::FloatEq(1)));
}

TEST(Attention, SaysWhatDoesNotFit) {
  TestHost host;
  for (const char* options :
       {R"({"kind": "silu"})", R"({"kind": "relu"})", R"({"heads": 0})", R"({"window": -1})",
        R"({"causal": false, "targets": true})", R"({"bias": "position"})", R"({"bias": "age"})", R"({"dropout": 1})"})
    EXPECT_EQ(Layer(host, "attention", options).code, TSR_INVALID_ARGUMENT) << options;
  Layer layer(host, "attention", R"({"bias": "position", "length": 3})");
  fill(layer, {{0, 4}, 1, 2, 2});
  EXPECT_EQ(layer.forward(), TSR_INVALID_ARGUMENT);
  EXPECT_THAT(layer.error(), HasSubstr("sample 0 has 4 rows, but attention's \"length\" is 3"));
}

}  // namespace
