// The two quantized collections and their helpers.
#include <algorithm>
#include <utility>

#include "modules/quant_embeddings.h"
#include "sparse/arrays.h"

namespace tessera {

QuantEmbeddingBagCollection::QuantEmbeddingBagCollection(const Runtime& runtime, QuantCollectionOptions options)
    : QuantEmbeddings(runtime, std::move(options), "embedding_bags") {
  for (const QuantizedTable& t : tables()) {
    if (t.config.pooling == PoolingType::kSum || t.config.pooling == PoolingType::kMean) continue;
    fail(Code::kInvalidArgument, "table \"", t.config.name, "\" has pooling ", to_string(t.config.pooling),
         ": a QuantEmbeddingBagCollection pools by SUM or MEAN");
  }
}

int64_t QuantEmbeddingBagCollection::width() const { return impl().width; }

void QuantEmbeddingBagCollection::forward_into(const KeyedJaggedTensor& features, const Tensor& values) {
  const int64_t batch = features.stride();
  if (values.dtype() != options().output_dtype || values.dim() != 2 || values.size(0) != batch ||
      values.size(1) != width()) {
    fail(Code::kInvalidArgument, "the output must be ", to_string(options().output_dtype), " [", batch, ", ", width(),
         "]");
  }
  if (features.variable_stride_per_key() || features.inverse_indices_or_null() != nullptr) {
    fail(Code::kInvalidArgument, "a quantized collection takes batches in which every feature has the same samples");
  }
  (void)impl().check(features, false);
  for (size_t s = 0; s < impl().table_features.size(); ++s) impl().add(s, impl().table_features[s].column, width());
  impl().look_up(values);
}

KeyedTensor QuantEmbeddingBagCollection::forward(const KeyedJaggedTensor& features) {
  Tensor values = Tensor::empty({features.stride(), width()}, options().output_dtype);
  forward_into(features, values);
  return KeyedTensor(embedding_names(), impl().dims, std::move(values));
}

QuantEmbeddingCollection::QuantEmbeddingCollection(const Runtime& runtime, QuantCollectionOptions options)
    : QuantEmbeddings(runtime, std::move(options), "embeddings") {
  for (const QuantizedTable& t : tables()) {
    const EmbeddingBagConfig& first = tables().front().config;
    if (t.config.embedding_dim == first.embedding_dim) continue;
    fail(Code::kInvalidArgument, "table \"", t.config.name, "\" has ", t.config.embedding_dim, " columns, table \"",
         first.name, "\" has ", first.embedding_dim, ": all tables of a QuantEmbeddingCollection have equally many");
  }
}

namespace {

// Returns lengths and offsets of table feature s: the caller's, unless offsets were repaired.
JaggedTensor::Options lengths_of_feature(const KeyedJaggedTensor& features, const std::string& name,
                                         const CheckedIds* repaired, size_t s) {
  JaggedTensor::Options out;
  if (repaired == nullptr) {
    const JaggedTensor input = features[name];
    out.lengths = input.lengths();
    out.offsets = input.offsets();
    return out;
  }
  const int64_t bags = features.stride_per_key()[static_cast<size_t>(features.key_index(name))];
  out.lengths = repaired->lengths.narrow(repaired->first_bag[s], bags);
  return out;
}

}  // namespace

JaggedTensorDict QuantEmbeddingCollection::forward(const KeyedJaggedTensor& features) {
  const LookupIds& ids = impl().check(features, true);
  const int64_t dim = tables().empty() ? 0 : tables().front().config.embedding_dim;
  std::vector<int64_t> begin{0};
  for (size_t s = 0; s < impl().table_features.size(); ++s) {
    impl().add(s, begin.back() * dim, dim);
    begin.push_back(begin.back() + ids.features[s].rows);
  }
  const Tensor values = Tensor::empty({begin.back(), dim}, options().output_dtype);
  impl().look_up(values);
  JaggedTensorDict out;
  for (size_t s = 0; s < impl().table_features.size(); ++s) {
    JaggedTensor::Options jagged = lengths_of_feature(features, impl().table_features[s].feature, impl().repaired(), s);
    jagged.values = values.narrow(begin[s], begin[s + 1] - begin[s]);
    out.emplace_back(embedding_names()[s], JaggedTensor(std::move(jagged)));
  }
  return out;
}

Tensor gather_stored_rows(const QuantizedTable& table, const Tensor& ids) {
  const EmbeddingBagConfig& config = table.config;
  const int64_t bytes = sdk::row_bytes(*config.row_format, config.embedding_dim);
  Tensor out = Tensor::empty({ids.numel(), bytes}, DType::kUInt8);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const int64_t id = sparse::integer_at(ids, i);
    if (id < 0 || id >= config.num_embeddings) {
      fail(Code::kOutOfRange, "id ", id, " at position ", i, " is not in table \"", config.name, "\", which stores ",
           config.num_embeddings, " rows");
    }
    std::copy_n(static_cast<const uint8_t*>(table.rows.raw()) + id * table.rows.size(1), bytes,
                out.data<uint8_t>() + i * bytes);
  }
  return out;
}

KeyedJaggedTensor with_position_weights(const KeyedJaggedTensor& batch, const std::vector<PositionWeights>& weights) {
  Tensor by_position = Tensor::empty({batch.values().numel()});
  by_position.fill(1);
  const std::vector<int64_t> first_bag = batch.lengths_offset_per_key();
  for (const PositionWeights& w : weights) {
    const auto key = static_cast<size_t>(batch.key_index(w.feature));
    const int64_t longest = w.weights.numel();
    for (int64_t bag = first_bag[key]; bag < first_bag[key + 1]; ++bag) {
      const int64_t begin = sparse::integer_at(batch.offsets(), bag),
                    end = sparse::integer_at(batch.offsets(), bag + 1);
      if (begin < 0 || begin > end || end > by_position.numel()) {
        fail(Code::kInvalidArgument, "feature \"", w.feature, "\", sample ", bag - first_bag[key],
             ": its offsets do not ascend within the ", by_position.numel(), " ids");
      }
      if (end - begin > longest) {
        fail(Code::kInvalidArgument, "feature \"", w.feature, "\", sample ", bag - first_bag[key], " has ", end - begin,
             " ids, but there are position weights for ", longest);
      }
      std::copy_n(w.weights.data<float>(), end - begin, by_position.data<float>() + begin);
    }
  }
  KeyedJaggedTensor::Options out;
  out.keys = batch.keys();
  out.values = batch.values();
  out.weights = by_position;
  out.offsets = batch.offsets();
  out.stride = batch.stride();
  out.stride_per_key_per_rank = batch.stride_per_key_per_rank();
  if (const auto* inverse = batch.inverse_indices_or_null()) out.inverse_indices = *inverse;
  return KeyedJaggedTensor(std::move(out));
}

}  // namespace tessera
