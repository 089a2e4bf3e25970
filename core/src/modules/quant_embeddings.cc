#include "modules/quant_embeddings.h"

#include <algorithm>
#include <utility>

namespace tessera {

QuantEmbeddings::Impl::Impl(const Runtime& r, QuantCollectionOptions o, std::string p)
    : runtime(r), options(std::move(o)), prefix(std::move(p)) {
  options.tables = validated(std::move(options.tables));
  const auto by_table = embedding_names_by_table(configs_of(options.tables));
  for (size_t t = 0; t < options.tables.size(); ++t) {
    const EmbeddingBagConfig& table = options.tables[t].config;
    names.insert(names.end(), by_table[t].begin(), by_table[t].end());
    for (const std::string& feature : table.feature_names) {
      table_features.push_back({t, feature, width});
      dims.push_back(table.embedding_dim);
      width += table.embedding_dim;
    }
  }
  bad_ids.assign(options.tables.size(), 0);
  open_kernels();
}

void QuantEmbeddings::Impl::open_kernels() {
  TableGroups grouped = group_quantized(configs_of(options.tables), options.kernel, options.output_dtype);
  for (LookupOptions& group : grouped.groups)
    groups_.push_back({std::make_shared<Lookup>(runtime, std::move(group)), {}});
  places_ = std::move(grouped.places);
  for (size_t t = 0; t < options.tables.size(); ++t) {
    const TableGroups::Place& at = places_[t];
    groups_[at.group].lookup->adopt_rows(at.index, options.tables[t].rows);
    kernel_ids.push_back(groups_[at.group].lookup->kernel_id());
  }
}

void QuantEmbeddings::Impl::find_keys(const KeyedJaggedTensor& batch) {
  if (!key_of_feature_.empty() && batch.keys() == keys_) return;
  std::vector<size_t> found;
  for (const TableFeature& table_feature : table_features)
    found.push_back(static_cast<size_t>(batch.key_index(table_feature.feature)));
  key_of_feature_ = std::move(found);
  keys_ = batch.keys();
}

const LookupIds& QuantEmbeddings::Impl::check(const KeyedJaggedTensor& batch, bool sequences) {
  find_keys(batch);
  const bool weighted = options.is_weighted && !sequences;
  if (weighted && !batch.weights_or_null().defined()) {
    fail(Code::kInvalidArgument, "this collection is weighted, but the batch has no weights");
  }
  std::vector<int64_t> bags, first_bags;
  if (batch.variable_stride_per_key()) {
    bags = batch.stride_per_key();
    first_bags = batch.lengths_offset_per_key();
  }
  features_.clear();
  pooling_.clear();
  for (size_t s = 0; s < table_features.size(); ++s) {
    const EmbeddingBagConfig& table = options.tables[table_features[s].table].config;
    const size_t key = key_of_feature_[s];
    BoundsFeature feature{table_features[s].feature, table.name, table.id_bound()};
    feature.first_bag = bags.empty() ? static_cast<int64_t>(key) * batch.stride() : first_bags[key];
    feature.bags = bags.empty() ? batch.stride() : bags[key];
    feature.pruned = true;
    feature.remapping = table.remapping.get();
    features_.push_back(feature);
    pooling_.push_back(sequences ? PoolingType::kNone : table.pooling);
  }
  BoundsInput input{.ids = batch.values(), .offsets = batch.offsets()};
  if (weighted) input.weights = batch.weights();
  input.features = features_;
  input.bad_ids_become_0 = options.bad_ids_become_0;
  CheckedIds checked = check_bounds(options.bounds_check, input);
  if (!checked.first.empty()) count_bad(checked);
  repaired_.reset();
  if (checked.bad_offsets > 0) repaired_ = checked;
  ids_ = make_lookup_ids(input, std::move(checked), pooling_);
  for (Group& g : groups_) g.features.clear();
  return ids_;
}

void QuantEmbeddings::Impl::count_bad(const CheckedIds& checked) {
  for (size_t s = 0; s < table_features.size(); ++s) bad_ids[table_features[s].table] += checked.bad[s];
  if (options.bounds_check != BoundsCheckMode::kWarning || std::exchange(warned_, true)) return;
  const std::string text = str_cat(checked.first, "; it is repaired on a copy, and further ones are only counted");
  const tsr_host* host = runtime.host();
  host->log(host, TSR_LOG_WARNING, text.c_str());
}

void QuantEmbeddings::Impl::add(size_t table_feature, int64_t offset, int64_t stride) {
  const TableGroups::Place& at = places_[table_features[table_feature].table];
  const LookupIds::Feature& f = ids_.features[table_feature];
  groups_[at.group].features.push_back(
      {at.index, static_cast<int32_t>(f.pooling), f.bags, f.first_offset, offset, stride});
}

void QuantEmbeddings::Impl::look_up(const Tensor& output) {
  const LookupView view(ids_.ids, ids_.offsets, ids_.weights);
  for (Group& g : groups_) {
    if (!g.features.empty()) g.lookup->forward(view.of(g.features), output, nullptr);
  }
}

QuantEmbeddings::QuantEmbeddings(const Runtime& runtime, QuantCollectionOptions options, std::string prefix)
    : impl_(std::make_unique<Impl>(runtime, std::move(options), std::move(prefix))) {}
QuantEmbeddings::~QuantEmbeddings() = default;

const QuantCollectionOptions& QuantEmbeddings::options() const { return impl_->options; }
const std::vector<std::string>& QuantEmbeddings::embedding_names() const { return impl_->names; }
const std::vector<std::string>& QuantEmbeddings::kernel_ids() const { return impl_->kernel_ids; }

namespace {

size_t table_position(const std::vector<QuantizedTable>& tables, std::string_view name) {
  std::string known;
  for (size_t t = 0; t < tables.size(); ++t) {
    if (tables[t].config.name == name) return t;
    known += str_cat(t > 0 ? ", " : "", tables[t].config.name);
  }
  fail(Code::kNotFound, "there is no table \"", name, "\" in this collection, which has: ", known);
}

}  // namespace

const QuantizedTable& QuantEmbeddings::table(std::string_view name) const {
  return tables()[table_position(tables(), name)];
}
int64_t QuantEmbeddings::bad_ids(std::string_view table) const {
  return impl_->bad_ids[table_position(tables(), table)];
}

std::vector<std::string> QuantEmbeddings::state_dict_keys() const {
  std::vector<std::string> out;
  for (const QuantizedTable& t : tables()) out.push_back(str_cat(impl_->prefix, ".", t.config.name, ".weight"));
  return out;
}

}  // namespace tessera
