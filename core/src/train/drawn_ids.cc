#include "train/drawn_ids.h"

#include <algorithm>
#include <numeric>

#include "config/fnv1a.h"
#include "data/examples.h"
#include "sparse/arrays.h"
#include "tessera/runtime.h"
#include "tessera/sdk/options.h"
#include "tessera/sdk/random.h"

namespace tessera {
namespace {

using Draw = DrawnFeature::Draw;
using When = DrawnFeature::When;

DrawnFeature parse(const std::string& text, int64_t rows, std::string* counted) {
  const ComponentName part = parse_component_name(text);
  sdk::Options options(part.options);
  DrawnFeature out;
  out.name = part.id;
  out.rows = rows;
  out.draw = static_cast<Draw>(options.word("draw", {"all", "uniform", "popularity"}));
  out.when = static_cast<When>(options.word("during", {"all", "training", "evaluation"}));
  out.first = options.integer("first", 0);
  if (out.first < 0 || out.first >= rows)
    sdk::fail(TSR_INVALID_ARGUMENT, "first is ", out.first, ", but the table has the rows 0 to ", rows - 1);
  if (out.draw != Draw::kAll) {
    out.count = options.integer("count", 0);
    if (!options.has("count")) sdk::fail(TSR_INVALID_ARGUMENT, "it needs count, the number of ids, such as count=100");
    out.per_sample = options.word("per", {"batch", "sample"}) == 1;
    if (out.count < 1) sdk::fail(TSR_INVALID_ARGUMENT, "count is ", out.count, ", but must be at least 1");
  }
  if (out.draw == Draw::kAll) out.split = options.flag("split", false);
  if (out.draw == Draw::kPopularity) *counted = options.string("of", "");
  options.finish();
  return out;
}

// How often the training samples have each id of a column.
std::vector<double> counts_of(const Dataset& data, const std::string& column, int64_t rows) {
  const auto at =
      std::find_if(data.columns.begin(), data.columns.end(), [&](const DataColumn& c) { return c.name == column; });
  if (at == data.columns.end())
    fail(Code::kInvalidArgument, "of is \"", column,
         "\", but the popularity of ids is counted in a column of the data");
  if (!data.train.kept)
    fail(Code::kInvalidArgument, "the popularity of \"", column,
         "\" is counted in memory, but the samples are streamed: raise data.buffer_mib, or draw uniformly");
  const data::Examples& samples = *data.train.kept;
  const int64_t key = at - data.columns.begin();
  std::vector<double> out(static_cast<size_t>(rows), 0.0);
  for (int64_t s = 0; s < samples.size(); ++s) {
    const int32_t* lengths = samples.lengths(s);
    const int64_t begin = lengths ? std::accumulate(lengths, lengths + key, int64_t{0}) : key;
    for (int64_t i = begin; i < begin + (lengths ? lengths[key] : 1); ++i) {
      const int64_t id = samples.wide() ? samples.ids<int64_t>(s)[i] : int64_t{samples.ids<int32_t>(s)[i]};
      if (id >= 0 && id < rows) ++out[static_cast<size_t>(id)];
    }
  }
  return out;
}

DrawnFeature drawn_feature(const std::string& text, const TableConfig& table, const Dataset& data) {
  if (table.pooling != "none") fail(Code::kInvalidArgument, "its rows are taken one by one, so pooling must be none");
  std::string counted;
  DrawnFeature out = parse(text, table.rows, &counted);
  if (out.draw != Draw::kPopularity) return out;
  if (std::find(table.features.begin(), table.features.end(), counted) == table.features.end())
    fail(Code::kInvalidArgument, "of is \"", counted, "\", but the ids to count are those of a feature of this table");
  out.counts = counts_of(data, counted, table.rows);
  out.counts.erase(out.counts.begin(), out.counts.begin() + out.first);
  if (std::accumulate(out.counts.begin(), out.counts.end(), 0.0) > 0) return out;
  fail(Code::kInvalidArgument, "the training samples have no id of \"", counted, "\" from ", out.first, " on");
}

Tensor grown(Tensor& memory, int64_t numel, DType dtype) {
  if (!memory.defined() || memory.dtype() != dtype || memory.numel() < numel)
    memory = Tensor::empty({std::max<int64_t>(numel + numel / 4, 1)}, dtype);
  return memory.first({numel});
}

// Integers of the batch, then those drawn.
Tensor joined(Tensor& memory, const Tensor& first, const std::vector<int64_t>& then) {
  const int64_t before = first.numel();
  Tensor out = grown(memory, before + std::ssize(then), first.dtype());
  const auto join = [&]<class T>(T* to) {
    std::copy_n(first.data<T>(), before, to);
    std::transform(then.begin(), then.end(), to + before, [](int64_t v) { return static_cast<T>(v); });
  };
  first.dtype() == DType::kInt64 ? join(out.data<int64_t>()) : join(out.data<int32_t>());
  return out;
}

}  // namespace

std::string counted_column(const std::string& feature) {
  return sdk::Options(parse_component_name(feature).options).string("of", "");
}

std::vector<DrawnFeature> drawn_features(const Config& config, const std::vector<TableConfig>& tables,
                                         const Dataset& data) {
  std::vector<DrawnFeature> out;
  for (size_t t = 0; t < config.tables.size(); ++t) {
    for (const std::string& feature : config.tables[t].features) {
      if (!is_drawn(feature)) continue;
      const auto refuse = [&](Code code, const char* why) {
        fail(code, "table \"", tables[t].name, "\" draws the feature \"", feature, "\": ", why);
      };
      try {
        out.push_back(drawn_feature(feature, tables[t], data));
      } catch (const sdk::Failure& e) {
        refuse(Code::kInvalidArgument, e.what());
      } catch (const Error& e) {
        refuse(e.code(), e.what());
      }
    }
  }
  return out;
}

void count_drawn(const std::vector<DrawnFeature>& drawn, const std::vector<TableConfig>& tables,
                 PlannerOptions* options) {
  const auto samples = static_cast<double>(std::max<int64_t>(options->batch_size, 1));
  for (const DrawnFeature& d : drawn) {
    double ids = 0;  // per sample of a rank; those that are split stay where their rows are
    if (d.when != When::kEvaluation && d.draw == Draw::kAll && !d.split)
      ids = static_cast<double>(d.rows - d.first) / samples;
    else if (d.when != When::kEvaluation && d.draw != Draw::kAll)
      ids = static_cast<double>(d.count) / (d.per_sample ? 1 : samples);
    for (const TableConfig& table : tables) {
      const auto at = std::find(table.features.begin(), table.features.end(), d.name) - table.features.begin();
      if (at == std::ssize(table.features) || !table.pooling_factor.empty()) continue;
      options->constraints[table.name].pooling_factors.at(static_cast<size_t>(at)) = ids;
    }
  }
}

DrawnIds::DrawnIds(std::vector<DrawnFeature> features, uint64_t seed, int rank, int world_size)
    : features_(std::move(features)), sums_(features_.size()), seed_(seed), rank_(rank), world_size_(world_size) {
  for (size_t f = 0; f < features_.size(); ++f) {
    const std::vector<double>& counts = features_[f].counts;
    std::partial_sum(counts.begin(), counts.end(), std::back_inserter(sums_[f]));
  }
}

void DrawnIds::draw(size_t feature, uint64_t seed, int64_t count) {
  const DrawnFeature& f = features_[feature];
  sdk::Random random(seed);
  for (int64_t i = 0; i < count; ++i) {
    if (f.draw == Draw::kUniform) {
      ids_.push_back(f.first + static_cast<int64_t>(random.below(static_cast<uint64_t>(f.rows - f.first))));
      continue;
    }
    const std::vector<double>& sums = sums_[feature];
    const auto at = std::upper_bound(sums.begin(), sums.end(), random.uniform() * sums.back());
    ids_.push_back(f.first + std::min<int64_t>(at - sums.begin(), std::ssize(sums) - 1));
  }
}

void DrawnIds::draw_for(size_t feature, const Batch& batch, bool train, int64_t step) {
  const DrawnFeature& f = features_[feature];
  const int64_t samples = batch.sparse.stride();
  const bool idle = f.when != When::kAlways && (f.when == When::kTraining) != train;
  const uint64_t seed = sdk::combine(sdk::combine(seed_, fnv1a(f.name)), static_cast<uint64_t>(train ? step : -1));
  const int64_t first_sample = batch.global_size * rank_ / world_size_;
  for (int64_t s = 0; s < samples; ++s) {
    const int64_t before = std::ssize(ids_);
    if (!idle && f.draw == Draw::kAll && s == 0) {
      const auto [begin, end] = f.split ? own_rows(f.rows, batch.global_size) : std::pair{int64_t{0}, f.rows};
      for (int64_t id = std::max(begin, f.first); id < end; ++id) ids_.push_back(id);
    } else if (!idle && f.draw != Draw::kAll && f.per_sample) {
      draw(feature, sdk::combine(seed, static_cast<uint64_t>(first_sample + s)), f.count);
    } else if (!idle && f.draw != Draw::kAll && s == 0) {
      draw(feature, seed, f.count);
    }
    lengths_.push_back(std::ssize(ids_) - before);
  }
}

// The rows of a table that this rank draws if the ranks divide them: the block that row-wise sharding gives it, so that
// no row travels under such a plan. Only ranks with samples draw, so they divide the rows of the last, small batch.
std::pair<int64_t, int64_t> DrawnIds::own_rows(int64_t rows, int64_t global_size) const {
  const bool all = global_size >= world_size_;
  const int64_t parts = all ? world_size_ : global_size;
  const int64_t part = all ? rank_ : global_size * rank_ / world_size_;
  const int64_t block = (rows + parts - 1) / parts;
  return {std::min(rows, part * block), std::min(rows, (part + 1) * block)};
}

const KeyedJaggedTensor& DrawnIds::add_to(const Batch& batch, bool train, int64_t step) {
  const KeyedJaggedTensor& given = batch.sparse;
  ids_.clear();
  lengths_.clear();
  std::vector<std::string> keys = given.keys();
  for (size_t f = 0; f < features_.size(); ++f) {
    keys.push_back(features_[f].name);
    draw_for(f, batch, train, step);
  }
  KeyedJaggedTensor::Options all;
  all.keys = std::move(keys);
  all.values = joined(values_, given.values(), ids_);
  all.lengths = joined(bag_lengths_, given.lengths(), lengths_);
  all.stride = given.stride();
  if (const Tensor& weights = given.weights_or_null(); weights.defined()) {
    all.weights = grown(weights_, all.values.numel(), DType::kFloat32);
    std::copy_n(weights.data<float>(), weights.numel(), all.weights.data<float>());
    std::fill_n(all.weights.data<float>() + weights.numel(), ids_.size(), 1.0F);
  }
  return all_ = KeyedJaggedTensor(std::move(all));
}

}  // namespace tessera
