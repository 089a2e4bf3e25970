#include "bench/lookup_workload.h"

#include <algorithm>
#include <boost/lexical_cast/try_lexical_convert.hpp>
#include <cmath>
#include <numeric>
#include <utility>

#include "bench/bench.h"
#include "data/index_distribution.h"
#include "tessera/embedding_configs.h"
#include "tessera/sdk/half.h"

namespace tessera::cli {
namespace {

constexpr uint64_t kBatchSeed = 1, kScatterSeed = 7, kRowSeed = 11, kGradientSeed = 13;

// The row of each Zipf rank; empty for a uniform distribution.
std::vector<int64_t> scattered_ranks(const LookupShape& shape) {
  if (shape.alpha() == 0) return {};
  std::vector<int64_t> places(static_cast<size_t>(shape.rows));
  std::iota(places.begin(), places.end(), int64_t{0});
  sdk::Random random(kScatterSeed);
  for (size_t i = places.size() - 1; i > 0; --i) std::swap(places[i], places[random.below(i + 1)]);
  return places;
}

Tensor even_offsets(const LookupShape& shape) {
  Tensor offsets = Tensor::empty({shape.bags() + 1}, DType::kInt64);
  for (int64_t i = 0; i <= shape.bags(); ++i) offsets.data<int64_t>()[i] = i * shape.pooling;
  return offsets;
}

}  // namespace

double LookupShape::alpha() const {
  if (index_dist == "uniform") return 0;
  double exponent = -1;
  if (!index_dist.starts_with("zipf:") || !boost::conversion::try_lexical_convert(index_dist.substr(5), exponent) ||
      !std::isfinite(exponent) || exponent < 0) {
    throw UsageError("--index-dist takes uniform or zipf:A with a number A of at least 0, not \"" + index_dist + "\"");
  }
  return exponent;
}

double LookupShape::table_bytes() const {
  return static_cast<double>(tables) * static_cast<double>(rows) * static_cast<double>(row_bytes());
}

const char* LookupShape::dtype() const {
  if (format) return sdk::to_string(*format);
  return weights == DType::kFloat32 ? "fp32" : weights == DType::kFloat16 ? "fp16" : "bf16";
}

double LookupShape::rounding() const {
  return weights == DType::kFloat32 ? 0x1p-24 : weights == DType::kFloat16 ? 0x1p-11 : 0x1p-8;
}

LookupBatch::LookupBatch(const LookupShape& shape, Tensor ids)
    : LookupBatch(shape, std::move(ids), even_offsets(shape)) {
  TESSERA_CHECK(ids_.numel() == shape.lookups());
}

LookupBatch::LookupBatch(const LookupShape& shape, Tensor ids, Tensor offsets)
    : ids_(std::move(ids)), offsets_(std::move(offsets)) {
  TESSERA_CHECK(offsets_.numel() == shape.bags() + 1);
  for (int64_t t = 0; t < shape.tables; ++t) {
    features_.push_back({static_cast<int32_t>(t), TSR_POOLING_SUM, shape.batch, t * shape.batch, t * shape.dim,
                         shape.tables * shape.dim});
  }
  raw_ids_ = ids_.dl();
  raw_offsets_ = offsets_.dl();
  raw_.struct_size = sizeof(tsr_lookup);
  raw_.num_features = static_cast<uint32_t>(features_.size());
  raw_.feature_stride = sizeof(tsr_lookup_feature);
  raw_.features = features_.data();
  raw_.ids = &raw_ids_;
  raw_.offsets = &raw_offsets_;
}

std::unique_ptr<LookupBatch> LookupBatch::on_device(const LookupShape& shape) const {
  return std::make_unique<LookupBatch>(shape, shape.stream->to_device(ids_), shape.stream->to_device(offsets_));
}

LookupBatches lookup_batches(const LookupShape& shape) {
  const std::vector<int64_t> places = scattered_ranks(shape);
  const data::IndexDistribution draw(shape.index_dist, shape.rows);
  sdk::Random random(kBatchSeed);
  LookupBatches batches;
  for (int b = 0; b < shape.batches; ++b) {
    Tensor ids = Tensor::empty({shape.lookups()}, DType::kInt64);
    for (int64_t& id : ids.span<int64_t>()) {
      id = draw(random);
      if (!places.empty()) id = places[static_cast<size_t>(id)];
    }
    batches.push_back(std::make_unique<LookupBatch>(shape, std::move(ids)));
  }
  return batches;
}

double distinct_rows(const LookupShape& shape, const LookupBatches& batches) {
  const int64_t per_table = shape.batch * shape.pooling;
  size_t distinct = 0;
  std::vector<int64_t> ids;
  for (const auto& batch : batches) {
    for (int64_t t = 0; t < shape.tables; ++t) {
      ids.assign(batch->ids() + t * per_table, batch->ids() + (t + 1) * per_table);
      std::sort(ids.begin(), ids.end());
      distinct += static_cast<size_t>(std::unique(ids.begin(), ids.end()) - ids.begin());
    }
  }
  return static_cast<double>(distinct) / static_cast<double>(batches.size());
}

LookupOptions lookup_options(const LookupShape& shape, const std::vector<int64_t>& rows) {
  LookupOptions options{.weight_dtype = shape.weights};
  for (size_t t = 0; t < rows.size(); ++t) options.tables.push_back({str_cat("t", t), rows[t], shape.dim});
  return options;
}

void start_rows(const LookupShape& shape, int64_t t, int64_t first, int64_t count, float* out) {
  EmbeddingBagConfig table;
  table.name = str_cat("t", t);
  table.num_embeddings = shape.rows;
  table.embedding_dim = shape.dim;
  table.init_range = 1;
  initial_values(table, kRowSeed, first, count, 0, shape.dim, out);
}

void stored_rows(const LookupShape& shape, int64_t t, int64_t first, int64_t count, float* out) {
  start_rows(shape, t, first, count, out);
  for (int64_t i = 0; i < count * shape.dim && shape.weights != DType::kFloat32; ++i) {
    out[i] = shape.weights == DType::kFloat16 ? sdk::half_to_float(sdk::float_to_half(out[i]))
                                              : sdk::bfloat16_to_float(sdk::float_to_bfloat16(out[i]));
  }
  if (!shape.format) return;
  std::vector<char> stored(static_cast<size_t>(shape.row_bytes()));
  for (int64_t i = 0; i < count; ++i) {
    sdk::encode_row(*shape.format, out + i * shape.dim, shape.dim, stored.data());
    sdk::decode_row(*shape.format, stored.data(), shape.dim, out + i * shape.dim);
  }
}

Tensor output_gradient(const LookupShape& shape) {
  Tensor gradient = Tensor::empty({shape.batch, shape.tables * shape.dim});
  sdk::Random random(kGradientSeed);
  for (float& g : gradient.span<float>()) g = static_cast<float>(0.5 + random.uniform());
  return gradient;
}

}  // namespace tessera::cli
