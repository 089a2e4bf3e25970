#include "inference/input_check.h"

#include <algorithm>

namespace tessera::inference {
namespace {

template <class... Parts>
Problem problem(Code code, const Parts&... parts) {
  return {code, str_cat(parts...)};
}

int64_t first_non_finite(std::span<const float> values) {
  return sdk::first_non_finite(values.data(), static_cast<int64_t>(values.size()));
}

// Returns the sample of the id at position `at`.
int64_t sample_of(std::span<const int32_t> lengths, int64_t at) {
  int64_t end = 0;
  for (size_t sample = 0; sample < lengths.size(); ++sample) {
    end += lengths[sample];
    if (at < end) return static_cast<int64_t>(sample);
  }
  return static_cast<int64_t>(lengths.size());
}

// The table that limits a feature's ids.
const ModelTable& smallest_table(const ModelDescription& model, const ModelFeature& feature) {
  return *std::find_if(model.tables.begin(), model.tables.end(), [&](const ModelTable& t) {
    return t.ids == feature.ids &&
           std::find(feature.tables.begin(), feature.tables.end(), t.name) != feature.tables.end();
  });
}

Problem problem_with_ids(const ModelDescription& model, const ModelFeature& feature, const PredictInput::Feature& in) {
  if (model.bounds_check != BoundsCheckMode::kFatal || count_bad(in.values, feature.ids) == 0) return {};
  const auto bad = std::find_if(in.values.begin(), in.values.end(), [&](int64_t id) {
    return static_cast<uint64_t>(id) >= static_cast<uint64_t>(feature.ids);
  });
  return problem(Code::kOutOfRange, "feature \"", feature.name, "\", sample ",
                 sample_of(in.lengths, bad - in.values.begin()), ": id ", *bad, " is not in table \"",
                 smallest_table(model, feature).name, "\", whose ids are 0 to ", feature.ids - 1);
}

Problem problem_with_feature(const ModelDescription& model, const ModelFeature& feature, int64_t batch,
                             const PredictInput::Feature& in) {
  const auto samples = static_cast<int64_t>(in.lengths.size()), ids = static_cast<int64_t>(in.values.size());
  if (samples != batch) {
    return problem(Code::kInvalidArgument, "feature \"", feature.name, "\" has lengths for ", samples,
                   " samples, but the batch has ", batch);
  }
  int64_t sum = 0;
  for (const int32_t length : in.lengths) sum += length;
  const auto negative = std::find_if(in.lengths.begin(), in.lengths.end(), [](int32_t n) { return n < 0; });
  if (negative != in.lengths.end()) {
    return problem(Code::kInvalidArgument, "feature \"", feature.name, "\", sample ", negative - in.lengths.begin(),
                   ": its length is ", *negative);
  }
  if (sum != ids) {
    return problem(Code::kInvalidArgument, "feature \"", feature.name, "\" has ", ids,
                   " values, but its lengths add up to ", sum);
  }
  if (!in.weights.empty()) {
    if (!model.is_weighted)
      return problem(Code::kInvalidArgument, "feature \"", feature.name, "\" has weights, but this model takes none");
    if (in.weights.size() != in.values.size()) {
      return problem(Code::kInvalidArgument, "feature \"", feature.name, "\" has ", in.weights.size(), " weights for ",
                     ids, " values");
    }
    if (const int64_t at = first_non_finite(in.weights); at >= 0) {
      return problem(Code::kInvalidArgument, "feature \"", feature.name, "\", sample ", sample_of(in.lengths, at),
                     ": a weight is not finite");
    }
  }
  return problem_with_ids(model, feature, in);
}

}  // namespace

int64_t count_bad(std::span<const int64_t> ids, int64_t rows) {
  int64_t bad = 0;
  for (const int64_t id : ids) bad += static_cast<uint64_t>(id) >= static_cast<uint64_t>(rows) ? 1 : 0;
  return bad;
}

Problem problem_with(const ModelDescription& model, const PredictInput& input) {
  if (input.batch < 0) return problem(Code::kInvalidArgument, "a batch has 0 or more samples, not ", input.batch);
  if (input.batch > INT32_MAX)
    return problem(Code::kInvalidArgument, "a batch of ", input.batch, " samples is too large");
  const auto given = static_cast<int64_t>(input.dense.size());
  if (given != input.batch * model.dense_inputs) {
    return problem(Code::kInvalidArgument, "there are ", given, " dense values, and ", input.batch, " samples have ",
                   input.batch * model.dense_inputs, ", ", model.dense_inputs, " each");
  }
  if (const int64_t at = first_non_finite(input.dense); at >= 0) {
    return problem(Code::kInvalidArgument, "dense input ", at % model.dense_inputs, " of sample ",
                   at / model.dense_inputs, " is not finite");
  }
  if (input.features.size() != model.features.size()) {
    return problem(Code::kInvalidArgument, "there are ", input.features.size(), " features, but the model takes ",
                   model.features.size());
  }
  for (size_t f = 0; f < input.features.size(); ++f) {
    Problem found = problem_with_feature(model, model.features[f], input.batch, input.features[f]);
    if (found.code != Code::kOk) return found;
  }
  return {};
}

NeededFeatures::NeededFeatures(const ModelDescription& model) {
  for (const ModelFeature& feature : model.features) {
    needed_.push_back(feature.needed);
    all_ &= feature.needed;
  }
}

PredictInput NeededFeatures::of(const PredictInput& input) {
  if (all_) return input;
  const auto batch = static_cast<size_t>(input.batch);
  if (zeros_.size() < batch) zeros_.resize(batch, 0);
  features_.assign(input.features.begin(), input.features.end());
  for (size_t f = 0; f < features_.size(); ++f) {
    if (!needed_[f]) features_[f] = {{}, std::span<const int32_t>(zeros_).first(batch), {}};
  }
  PredictInput out = input;
  out.features = features_;
  return out;
}

}  // namespace tessera::inference
