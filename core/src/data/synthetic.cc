// Generates samples: ids from a distribution, labels from a hidden model.
#include <cmath>
#include <numbers>
#include <numeric>

#include "data/index_distribution.h"
#include "data/readers.h"
#include "tessera/sdk/fields.h"
#include "tessera/sdk/random.h"

namespace tessera::data {

IndexDistribution::IndexDistribution(const std::string& text, int64_t rows) : rows_(rows) {
  if (text == "uniform") return;
  double exponent = 0;
  if (!text.starts_with("zipf:") || !sdk::parse_number(std::string_view(text).substr(5), exponent) || exponent < 0) {
    fail(Code::kInvalidArgument, "data.index_dist is \"", text,
         "\", but must be uniform or zipf:A with a number A >= 0");
  }
  zipf_ = exponent > 0;
  exponent_ = exponent;
  low_ = integral(1.5) - 1;
  high_ = integral(static_cast<double>(rows) + 0.5);
  shortcut_ = 2 - inverse(integral(2.5) - std::pow(2.0, -exponent_));
}

double IndexDistribution::integral(double x) const {
  return exponent_ == 1 ? std::log(x) : (std::pow(x, 1 - exponent_) - 1) / (1 - exponent_);
}

double IndexDistribution::inverse(double u) const {
  return exponent_ == 1 ? std::exp(u) : std::pow(1 + u * (1 - exponent_), 1 / (1 - exponent_));
}

namespace {

// logit = dense . weights + sum of a value per id. Each part is roughly normal with the given standard deviation.
class HiddenModel {
 public:
  HiddenModel(uint64_t seed, int64_t dense, int64_t ids) : seed_(sdk::combine(seed, 1)) {
    constexpr double kDenseSpread = 1.5, kSparseSpread = 1.5;
    sdk::Random random(seed_);
    for (int64_t i = 0; i < dense; ++i) weights_.push_back(random.normal() * kDenseSpread / std::sqrt(dense));
    // A uniform number in [-1, 1) has standard deviation 1 / sqrt(3).
    id_scale_ = kSparseSpread * std::sqrt(3.0 / static_cast<double>(std::max<int64_t>(ids, 1)));
  }
  double of_dense(int64_t i, double value) const { return weights_[i] * value; }
  double of_id(int64_t column, int64_t id) const {
    sdk::Random random(sdk::combine(sdk::combine(seed_, column + 1), id));
    return id_scale_ * (2 * random.uniform() - 1);
  }

 private:
  uint64_t seed_;
  std::vector<double> weights_;
  double id_scale_;
};

// The length of each column's bags.
std::vector<int64_t> lengths_of(const DataConfig& config) {
  const auto columns = static_cast<size_t>(config.columns);
  if (config.pooling.size() == 1) return std::vector<int64_t>(columns, config.pooling[0]);
  if (config.pooling.size() == columns) return config.pooling;
  fail(Code::kInvalidArgument, "data.pooling has ", config.pooling.size(), " numbers, but data.columns is ", columns,
       ": give one number for all, or one for each");
}

// Sample i depends only on seed, part and i.
ExamplesPtr make_part(const DataConfig& config, const Dataset& set, const std::vector<HiddenModel>& models,
                      uint64_t seed, int64_t samples) {
  const std::vector<int64_t> lengths = lengths_of(config);
  std::vector<IndexDistribution> distributions;
  for (const DataColumn& column : set.columns) distributions.emplace_back(config.index_dist, column.rows);
  Examples examples(set.dense.size(), set.columns, {models.size()});
  std::vector<float> dense(set.dense.size());
  std::vector<int64_t> ids;
  std::vector<double> logits(models.size());
  for (int64_t s = 0; s < samples; ++s) {
    sdk::Random random(sdk::combine(seed, s));
    std::fill(logits.begin(), logits.end(), 0.0);
    for (size_t i = 0; i < dense.size(); ++i) {
      dense[i] = static_cast<float>(random.normal());
      for (size_t k = 0; k < models.size(); ++k)
        logits[k] += models[k].of_dense(static_cast<int64_t>(i), static_cast<double>(dense[i]));
    }
    ids.clear();
    for (size_t column = 0; column < lengths.size(); ++column) {
      for (int64_t j = 0; j < lengths[column]; ++j) {
        ids.push_back(distributions[column](random));
        for (size_t k = 0; k < models.size(); ++k)
          logits[k] += models[k].of_id(static_cast<int64_t>(column), ids.back());
      }
    }
    const auto drawn = [&](double logit) { return random.uniform() < 1 / (1 + std::exp(-logit)) ? 1.0f : 0.0f; };
    examples.begin_sample(drawn(logits[0]));
    for (size_t k = 1; k < logits.size(); ++k) examples.add_label(drawn((logits[0] + logits[k]) / std::numbers::sqrt2));
    for (float value : dense) examples.add_dense(value);
    auto id = ids.begin();
    for (const int64_t length : lengths) {
      for (int64_t j = 0; j < length; ++j) examples.add_id(*id++);
      examples.end_bag();
    }
    examples.end_sample();
  }
  return finish(std::move(examples));
}

}  // namespace

Dataset describe_synthetic(const DataConfig& config) {
  Dataset set{.name = "synthetic"};
  for (int64_t k = 1; k < config.labels; ++k) set.labels.push_back(str_cat("label", k));
  const std::vector<int64_t> rows = rows_of(config, config.columns);
  for (int64_t i = 0; i < config.dense; ++i) set.dense.push_back(str_cat("d", i));
  for (int64_t i = 0; i < config.columns; ++i) set.columns.push_back({str_cat("c", i), rows[i], "sum"});
  return set;
}

Dataset make_synthetic(const DataConfig& config, uint64_t seed) {
  Dataset set = describe_synthetic(config);
  const std::vector<int64_t> lengths = lengths_of(config);
  const int64_t ids = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  std::vector<HiddenModel> models{HiddenModel(seed, config.dense, ids)};
  for (size_t k = 1; k < set.labels.size(); ++k) models.emplace_back(sdk::combine(seed, 100 + k), config.dense, ids);
  set.train = make_part(config, set, models, sdk::combine(seed, 2), config.samples);
  set.test = make_part(config, set, models, sdk::combine(seed, 3), config.test_samples);
  return set;
}

}  // namespace tessera::data
