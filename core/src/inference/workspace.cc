#include "inference/workspace.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera::inference {
namespace {

// Computes 1 / (1 + exp(-logit)), kept inside (0, 1).
void to_scores(std::span<const float> logits, std::span<float> scores) {
  constexpr float kLeast = std::numeric_limits<float>::min(), kMost = 1.0f - std::numeric_limits<float>::epsilon() / 2;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double p = 1 / (1 + std::exp(-static_cast<double>(logits[i])));
    scores[i] = std::clamp(static_cast<float>(p), kLeast, kMost);
  }
}

// The last row of each sample's sequence. A sample without one would get an answer that says nothing.
void take_last_rows(const std::string& name, const Tensor& rows, const Tensor& offsets, std::span<float> out) {
  const int64_t width = rows.size(1), samples = offsets.numel() - 1;
  TESSERA_CHECK(std::ssize(out) == samples * width, "room for each sample's values");
  const int64_t* ends = offsets.data<int64_t>() + 1;
  for (int64_t s = 0; s < samples; ++s) {
    if (ends[s] == ends[s - 1])
      fail(Code::kInvalidArgument, "sample ", s, " has no row of \"", name,
           "\", whose last row is the answer: ", "give the features that it depends on at least one id");
    std::copy_n(rows.data<float>() + (ends[s] - 1) * width, width, out.data() + s * width);
  }
}

DLTensor vector_of(void* data, DType dtype, const int64_t* size) {
  return {data, kCpu.dl(), 1, to_dl(dtype), const_cast<int64_t*>(size), nullptr, 0};
}

}  // namespace

TableFeatures table_features_of(const InferenceModel& model, const std::string& kernel) {
  TableFeatures out{.tables = group_quantized(configs_of(model.tables), kernel)};
  for (size_t t = 0; t < model.tables.size(); ++t) {
    const EmbeddingBagConfig& table = model.tables[t].config;
    const TableGroups::Place& place = out.tables.places[t];
    for (const std::string& name : table.feature_names) {
      const auto& features = model.description.features;
      const auto feature =
          std::find_if(features.begin(), features.end(), [&](const ModelFeature& f) { return f.name == name; });
      out.all.push_back({t, static_cast<size_t>(feature - features.begin()), model.description.tables[t].ids,
                         table.remapping.get(), table.pooling, out.width, table.embedding_dim, place.group,
                         place.index});
      if (!out.all.back().sequence()) out.width += table.embedding_dim;
    }
  }
  return out;
}

void count_bad_ids(const TableFeatures& table_features, const PredictInput& input, std::span<uint64_t> bad) {
  for (const TableFeature& one : table_features.all)
    bad[one.table] += static_cast<uint64_t>(count_bad(input.features[one.feature].values, one.ids));
}

Workspace::Workspace(const Runtime& runtime, const InferenceModel& model, const TableFeatures& table_features,
                     const std::string& precision)
    : table_features_(table_features),
      dense_(runtime, model.graph, {.values = &model.dense, .precision = precision, .sequence_heads = true}),
      first_ids_(model.graph, model.description),
      needed_(model.description),
      outputs_(outputs_of(runtime, model.graph, dense_)) {
  for (const LookupOptions& options : table_features.tables.groups) groups_.push_back({Lookup(runtime, options), {}});
  for (size_t t = 0; t < model.tables.size(); ++t) {
    const auto [group, index] = table_features.tables.places[t];
    groups_[group].lookup.adopt_rows(index, model.tables[t].rows);
  }
  for (const TableFeature& one : table_features.all) {
    std::vector<tsr_lookup_feature>& features = groups_[one.group].features;
    features.reserve(features.size() + table_features.all.size());
  }
  sequence_offsets_.resize(table_features.all.size());
  bad_ids_.resize(model.tables.size());
  without_row_.resize(table_features.all.size());
}

void Workspace::reserve(const PredictInput& input) {
  size_t ids = 1;  // never an empty vector, because kernels take pointers
  int64_t values = input.batch * table_features_.width;
  for (const TableFeature& one : table_features_.all) {
    ids += input.features[one.feature].values.size();
    if (one.sequence()) values += one.dim * std::ssize(input.features[one.feature].values);
  }
  const size_t offsets = table_features_.all.size() * static_cast<size_t>(input.batch) + 1;
  if (ids_.size() < ids) ids_.resize(ids);
  if (offsets_.size() < offsets) offsets_.resize(offsets);
  if (!rows_.defined() || rows_.numel() < values) rows_ = Tensor::empty({std::max<int64_t>(values, 1)});
}

int64_t Workspace::add_sequence(size_t s, const PredictInput::Feature& in, int64_t at) {
  const int64_t dim = table_features_.all[s].dim, ids = std::ssize(in.values), samples = std::ssize(in.lengths);
  Tensor& memory = sequence_offsets_[s];
  if (!memory.defined() || memory.numel() < samples + 1) memory = Tensor::empty({samples + 1}, DType::kInt64);
  const Tensor offsets = memory.first({samples + 1});
  int64_t end = 0;
  int64_t* to = offsets.data<int64_t>();
  *to = 0;
  for (const int32_t length : in.lengths) *++to = end += length;
  sequences_.emplace_back(rows_.narrow(at, ids * dim).reshape({ids, dim}), offsets);
  return at + ids * dim;
}

// Collects the table feature's ids, the ends of its bags, and the weight of each id. *end is the number of ids so far.
void Workspace::gather(size_t s, const PredictInput::Feature& in, bool weights, int64_t* end) {
  const TableFeature& one = table_features_.all[s];
  int64_t* ends = offsets_.data() + s * in.lengths.size() + 1;
  int64_t at = *end;
  if (!without_row_[s] && !weights) {
    std::copy(in.values.begin(), in.values.end(), ids_.begin() + at);
    for (const int32_t length : in.lengths) *ends++ = at += length;
    *end = at;
    return;
  }
  const bool mean_of_some = one.pooling == PoolingType::kMean && without_row_[s], sequence = one.sequence();
  size_t from = 0;
  for (const int32_t length : in.lengths) {
    const float divisor = mean_of_some ? static_cast<float>(length) : 1.0f;
    for (size_t i = from; i < from + static_cast<size_t>(length); ++i) {
      const int64_t row = one.row(in.values[i]);
      const bool bad = row < 0;
      if (bad && !sequence) continue;
      const float own = in.weights.empty() || sequence ? 1.0f : in.weights[i];
      if (weights) weights_[static_cast<size_t>(at)] = bad ? 0.0f : own / divisor;
      ids_[static_cast<size_t>(at++)] = bad ? 0 : row;
    }
    from += static_cast<size_t>(length);
    *ends++ = at;
  }
  *end = at;
}

bool Workspace::gather(const PredictInput& input) {
  bool weights = false;
  std::fill(bad_ids_.begin(), bad_ids_.end(), 0);
  for (size_t s = 0; s < table_features_.all.size(); ++s) {
    const TableFeature& one = table_features_.all[s];
    const PredictInput::Feature& in = input.features[one.feature];
    const int64_t bad = count_bad(in.values, one.ids);
    bad_ids_[one.table] += static_cast<uint64_t>(bad);
    without_row_[s] = bad > 0 || one.remapping != nullptr;
    weights = weights || !in.weights.empty() || (without_row_[s] && one.pooling != PoolingType::kSum);
  }
  if (weights && weights_.size() < ids_.size()) weights_.resize(ids_.size());
  for (Group& g : groups_) g.features.clear();
  sequences_.clear();
  int64_t end = 0, row_values = input.batch * table_features_.width;
  offsets_[0] = 0;
  for (size_t s = 0; s < table_features_.all.size(); ++s) {
    const TableFeature& one = table_features_.all[s];
    const int64_t first = static_cast<int64_t>(s) * input.batch;
    gather(s, input.features[one.feature], weights, &end);
    if (one.sequence()) {
      groups_[one.group].features.push_back({one.index, TSR_POOLING_NONE, input.batch, first, row_values, one.dim});
      row_values = add_sequence(s, input.features[one.feature], row_values);
      continue;
    }
    // MEAN over a bag that lost ids is a weighted sum, because its divisor is the bag's whole length.
    const bool sum = one.pooling == PoolingType::kSum || without_row_[s];
    groups_[one.group].features.push_back(
        {one.index, sum ? TSR_POOLING_SUM : TSR_POOLING_MEAN, input.batch, first, one.column, table_features_.width});
  }
  return weights;
}

void Workspace::look_up(int64_t batch, bool weighted) {
  const int64_t bags = static_cast<int64_t>(table_features_.all.size()) * batch, num_offsets = bags + 1,
                num_ids = offsets_[static_cast<size_t>(bags)];
  const DLTensor ids = vector_of(ids_.data(), DType::kInt64, &num_ids),
                 offsets = vector_of(offsets_.data(), DType::kInt64, &num_offsets),
                 weights = vector_of(weights_.data(), DType::kFloat32, &num_ids);
  for (Group& g : groups_) {
    tsr_lookup lookup{};
    lookup.struct_size = sizeof(lookup);
    lookup.num_features = static_cast<uint32_t>(g.features.size());
    lookup.feature_stride = sizeof(tsr_lookup_feature);
    lookup.features = g.features.data();
    lookup.ids = &ids;
    lookup.offsets = &offsets;
    lookup.weights = weighted ? &weights : nullptr;
    g.lookup.forward(lookup, rows_, nullptr);
  }
}

void Workspace::predict(const PredictInput& given, std::span<const std::span<float>> outputs) {
  const PredictInput input = needed_.of(given);
  reserve(input);
  look_up(input.batch, gather(input));
  answer(dense_, outputs_, input,
         {rows_.first({input.batch, table_features_.width}), sequences_, first_ids_.take(input)}, outputs);
}

std::vector<ModelOutput> outputs_of(const Runtime& runtime, const ModelGraph& graph, const LayerGraph& layers) {
  std::vector<ModelOutput> out;
  for (size_t h = 0; h < graph.heads.size(); ++h) {
    const HeadSpec& head = graph.heads[h];
    const int64_t width = layers.head_width(h);
    const bool probability = head.loss == kOwnLoss;
    if (head.loss != kNoLoss && layers.head_is_sequence(h))
      fail(Code::kInvalidArgument, "the head \"", head.name, "\" takes the sequence \"", head.input,
           "\", but a loss needs one row for each sample: pool it first");
    if (probability && width != 1)
      fail(Code::kInvalidArgument, "the head \"", head.name, "\" takes ", width,
           " values for each sample, but its loss ", kOwnLoss, " takes one, the logit");
    out.push_back(
        {head.name, width, probability, head.label, head.where, width > 1 && is_loss_of_classes(runtime, head.loss)});
  }
  return out;
}

void answer(LayerGraph& layers, const std::vector<ModelOutput>& model, const PredictInput& input, const GraphRows& rows,
            std::span<const std::span<float>> outputs) {
  const int64_t width = static_cast<int64_t>(input.dense.size()) / input.batch;
  const Tensor dense = Tensor::borrow(const_cast<float*>(input.dense.data()), {input.batch, width}, DType::kFloat32);
  const std::vector<Tensor>& heads = layers.forward(dense, rows.pooled, false, rows.sequences, rows.ids);
  TESSERA_CHECK(outputs.size() <= heads.size(), "no more outputs than heads");
  for (size_t h = 0; h < outputs.size(); ++h) {
    if (outputs[h].empty()) continue;
    const std::span<const float> values = heads[h].span<float>();
    if (layers.head_offsets(h).defined()) {
      take_last_rows(model[h].name, heads[h], layers.head_offsets(h), outputs[h]);
      continue;
    }
    TESSERA_CHECK(outputs[h].size() == values.size(), "room for each sample's values");
    if (model[h].probability) {
      to_scores(values, outputs[h]);
    } else {
      std::copy(values.begin(), values.end(), outputs[h].begin());
    }
  }
}

}  // namespace tessera::inference
