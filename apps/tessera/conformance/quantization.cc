// Area "quantization" (tests/conformance/QUANTIZATION.md, sections 1 to 3): codecs, tables in memory, lookups.
#include "conformance/quantization.h"

#include <algorithm>
#include <boost/lexical_cast/try_lexical_convert.hpp>
#include <cmath>
#include <cstring>
#include <numeric>

namespace tessera::cli {

QuantizedTable table_from(const std::string& name, const Tensor& weights, RowFormat format, int64_t alignment) {
  QuantizedTable table;
  table.config.name = name;
  table.config.num_embeddings = weights.size(0);
  table.config.embedding_dim = weights.size(1);
  table.config.row_format = format;
  table.rows = quantize_rows(weights, format, name, alignment);
  return table;
}

TableImage image_of(const std::vector<Tensor>& tables, int64_t rounding) {
  TableImage out;
  for (const Tensor& t : tables) {
    out.offsets.push_back(static_cast<int64_t>(out.bytes.size()));
    const auto* bytes = static_cast<const uint8_t*>(t.raw());
    out.bytes.insert(out.bytes.end(), bytes, bytes + t.bytes());
    out.bytes.resize((out.bytes.size() + static_cast<size_t>(rounding) - 1) / static_cast<size_t>(rounding) *
                     static_cast<size_t>(rounding));
  }
  return out;
}

void check_bytes(Checker& check, const std::string& field, const json& want, const uint8_t* bytes, int64_t size) {
  const auto expected = want.at("data").get<std::vector<uint8_t>>();
  const std::vector<uint8_t> got(bytes, bytes + size);
  check.equal(field + ".size", expected.size(), got.size());
  const auto differs = std::mismatch(expected.begin(), expected.end(), got.begin(), got.end());
  const auto at = differs.first - expected.begin();
  check.equal(str_cat(field, ", first difference at byte"), static_cast<int64_t>(expected.size()), at);
}

KeyedJaggedTensor batch_of(const std::vector<QuantizedTable>& tables, const json& given) {
  std::vector<std::string> keys;
  for (const QuantizedTable& t : tables) keys.push_back(t.config.name);
  return KeyedJaggedTensor::from_offsets_sync(keys, tensor_from(given.at("indices")), tensor_from(given.at("offsets")),
                                              tensor_from(field_or_null(given, "per_sample_weights")));
}

namespace {

constexpr int64_t kRowsAlignment = 128;

RowFormat format_of_bits(int64_t bits) {
  for (const RowFormat format : {RowFormat::kInt8, RowFormat::kInt4, RowFormat::kInt2}) {
    if (sdk::info_of(format).bits == bits) return format;
  }
  fail(Code::kInvalidArgument, "rows are quantized to 8, 4 or 2 bits, not to ", bits);
}

// The factor of a bound that grows with the row: "2e-6 * max|row|".
double row_factor(const json& tolerance) {
  const json& values = field_or_null(tolerance, "values");
  const json& text = values.is_object() ? field_or_null(values, "atol_scale") : field_or_null(tolerance, "atol_scale");
  if (!text.is_string()) return 0;
  const std::string written = text.get<std::string>();
  double factor = 0;
  if (!boost::conversion::try_lexical_convert(written.substr(0, written.find(' ')), factor)) {
    fail(Code::kInvalidArgument, "atol_scale is \"", written, "\", which does not begin with a number");
  }
  return factor;
}

// Decoded rows [rows, dim]; each row's bound is relative to its largest recorded magnitude.
void check_decoded(CaseContext& c, const std::string& field, const json& want, const Tensor& got) {
  const Tensor expected = tensor_from(want);
  c.check.equal(field + ".shape", expected.shape(), got.shape());
  c.check.equal(field + ".dtype", to_string(expected.dtype()), to_string(got.dtype()));
  if (expected.shape() != got.shape()) return;
  const double factor = row_factor(c.tolerance);
  const int64_t dim = got.size(1);
  for (int64_t r = 0; r < got.size(0); ++r) {
    double largest = 0, worst = 0;
    for (int64_t i = r * dim; i < (r + 1) * dim; ++i) {
      if (std::isfinite(expected.item(i))) largest = std::max(largest, std::fabs(expected.item(i)));
    }
    for (int64_t i = r * dim; i < (r + 1) * dim; ++i) {
      const double w = expected.item(i), g = got.item(i);
      if (w == g || (std::isnan(w) && std::isnan(g))) continue;
      const double beyond = std::fabs(g - w) - c.check.atol() - factor * largest - c.check.rtol() * std::fabs(w);
      worst = beyond <= 0 ? worst : std::max(worst, std::fabs(g - w));
      if (std::isnan(beyond)) worst = INFINITY;
    }
    if (worst > 0) c.check.fail(field, str_cat("row ", r, ", largest error ", worst));
  }
}

// Rows as the op returns them: [codes][scale][bias].
Tensor fused_from_stored(const Tensor& rows, int64_t data_bytes) {
  constexpr int64_t kHeader = 4;
  Tensor out = Tensor::empty({rows.size(0), data_bytes}, DType::kUInt8);
  for (int64_t r = 0; r < rows.size(0); ++r) {
    const uint8_t* from = rows.data<uint8_t>() + r * rows.size(1);
    uint8_t* to = out.data<uint8_t>() + r * data_bytes;
    std::copy_n(from + kHeader, data_bytes - kHeader, to);
    std::copy_n(from, kHeader, to + data_bytes - kHeader);
  }
  return out;
}

// Cases on NaN and infinity are informative: such rows are refused here, with their number.
bool refuses_non_finite(CaseContext& c, RowFormat format, const Tensor& input) {
  if (!c.given.value("informative", false)) return false;
  expect_refusal(c, [&] { (void)quantize_rows(input, format, "given"); });
  return true;
}

Tensor input_of(CaseContext& c) {
  if (c.given.contains("input")) return tensor_from(c.given["input"]);
  return Tensor::zeros({1, c.given.at("dim").get<int64_t>()});
}

void nbit_op(CaseContext& c) {
  const RowFormat format = format_of_bits(c.given.at("bit_rate"));
  const Tensor input = input_of(c);
  if (c.expect.contains("error")) return expect_refusal(c, [&] { (void)quantize_rows(input, format, "given"); });
  if (refuses_non_finite(c, format, input)) return;
  const Tensor stored = quantize_rows(input, format, "given");
  const Tensor fused = fused_from_stored(stored, sdk::row_bytes(format, input.size(1)));
  c.check.tensor("fused", c.expect.at("fused"), fused);
  if (c.expect.contains("dequant")) {
    check_decoded(c, "dequant", c.expect["dequant"], dequantize_rows(stored, format, input.size(1)));
  }
}

Tensor sbfloat_rows(const Tensor& input) {
  const Tensor values = input.to(DType::kFloat32);
  const int64_t dim = input.size(1);
  Tensor out = Tensor::empty({input.size(0), dim + 8}, DType::kUInt8);
  for (int64_t r = 0; r < input.size(0); ++r) {
    sdk::encode_row_sbfloat(values.data<float>() + r * dim, dim, out.data<uint8_t>() + r * out.size(1));
  }
  return out;
}

void sbfloat_op(CaseContext& c) {
  const Tensor input = input_of(c);
  if (refuses_non_finite(c, RowFormat::kFloat32, input)) return;
  const Tensor fused = sbfloat_rows(input);
  c.check.tensor("fused", c.expect.at("fused"), fused);
  if (!c.expect.contains("dequant")) return;
  Tensor decoded = Tensor::empty(input.shape());
  for (int64_t r = 0; r < input.size(0); ++r) {
    sdk::decode_row_sbfloat(fused.data<uint8_t>() + r * fused.size(1), input.size(1),
                            decoded.data<float>() + r * input.size(1));
  }
  check_decoded(c, "dequant", c.expect["dequant"], decoded);
  if (c.expect.contains("dequant_half")) {
    c.check.tensor("dequant_half", c.expect["dequant_half"], decoded.to(DType::kFloat16));
  }
}

void sbfloat_then_half_op(CaseContext& c) {
  const Tensor stored = import_int8_sbfloat(sbfloat_rows(input_of(c)), "given");
  const int64_t dim = stored.size(1) - 4;
  std::vector<uint8_t> codes, scales;
  for (int64_t r = 0; r < stored.size(0); ++r) {
    const uint8_t* row = stored.data<uint8_t>() + r * stored.size(1);
    scales.insert(scales.end(), row, row + 4);
    codes.insert(codes.end(), row + 4, row + 4 + dim);
  }
  check_bytes(c.check, "weight_bytes", c.expect.at("weight_bytes"), codes.data(), static_cast<int64_t>(codes.size()));
  check_bytes(c.check, "scale_bias_half_bytes", c.expect.at("scale_bias_half_bytes"), scales.data(),
              static_cast<int64_t>(scales.size()));
}

void fp16_op(CaseContext& c) {
  const Tensor input = input_of(c);
  // This op is only the cast, which keeps infinities; tables refuse them.
  const Tensor stored = Tensor::empty({input.size(0), 2 * input.size(1)}, DType::kUInt8);
  sdk::encode_row(RowFormat::kFloat16, input.data<float>(), input.numel(), stored.raw());
  c.check.tensor("bytes", c.expect.at("bytes"), stored);
  c.check.tensor("dequant", c.expect.at("dequant"),
                 dequantize_rows(stored, RowFormat::kFloat16, input.size(1)).to(DType::kFloat16));
}

void hfp8_op(CaseContext& c) {
  const sdk::Float8 codec{c.given.at("exponent_bits"), c.given.at("exponent_bias")};
  const Tensor input = input_of(c);
  c.check.number("max_position", c.given.at("max_position"), codec.largest());
  Tensor bytes = Tensor::empty(input.shape(), DType::kUInt8), decoded = Tensor::empty(input.shape());
  for (int64_t i = 0; i < input.numel(); ++i) {
    bytes.data<uint8_t>()[i] = codec.encode(input.data<float>()[i]);
    decoded.data<float>()[i] = codec.decode(bytes.data<uint8_t>()[i]);
  }
  c.check.tensor("bytes", c.expect.at("bytes"), bytes);
  c.check.tensor("dequant", c.expect.at("dequant"), decoded);
}

std::vector<QuantizedTable> tables_of(const json& given) {
  std::vector<QuantizedTable> tables;
  for (const json& t : given.at("tables")) {
    tables.push_back(table_from(str_cat("table ", tables.size()), tensor_from(t.at("weights")),
                                row_format_from(t.at("weight_type").get<std::string>()), given.at("row_alignment")));
  }
  return tables;
}

QuantCollectionOptions collection_of(const CaseContext& c, std::vector<QuantizedTable> tables) {
  QuantCollectionOptions options;
  options.tables = std::move(tables);
  options.kernel = c.kernel;
  options.output_dtype = dtype_from(c.given.at("output_dtype").get<std::string>());
  options.bounds_check = BoundsCheckMode::kIgnore;  // FBGEMM's kernel repairs ids and skips -1
  options.bad_ids_become_0 = true;
  return options;
}

// One row per id, tables one after the other, all equally wide.
Tensor looked_up_rows(const CaseContext& c, const std::vector<QuantizedTable>& tables, const KeyedJaggedTensor& batch) {
  const auto module =
      served(c, [&] { return std::make_unique<QuantEmbeddingCollection>(c.runtime, collection_of(c, tables)); });
  const int64_t dim = tables.front().config.embedding_dim;
  Tensor output = Tensor::empty({batch.values().numel(), dim}, module->options().output_dtype);
  auto* to = static_cast<std::byte*>(output.raw());
  for (const auto& [key, rows] : module->forward(batch)) {
    if (rows.values().numel() == 0) continue;
    std::memcpy(to, rows.values().raw(), rows.values().bytes());
    to += rows.values().bytes();
  }
  return output;
}

void check_geometry(CaseContext& c, const std::vector<QuantizedTable>& tables) {
  json padded = json::array(), unpadded = json::array(), columns = {0}, types = json::array();
  for (const QuantizedTable& t : tables) {
    padded.push_back(t.rows.size(1));
    unpadded.push_back(sdk::row_bytes(*t.config.row_format, t.config.embedding_dim));
    columns.push_back(columns.back().get<int64_t>() + t.config.embedding_dim);
    types.push_back(static_cast<int>(*t.config.row_format));
  }
  c.check.equal("row_bytes_padded", c.expect.at("row_bytes_padded"), padded);
  c.check.equal("row_bytes_unpadded", c.expect.at("row_bytes_unpadded"), unpadded);
  c.check.equal("D_offsets", c.expect.at("D_offsets").at("data"), columns);
  c.check.equal("weights_tys", c.expect.at("weights_tys").at("data"), types);
}

void storage_op(CaseContext& c) {
  const std::vector<QuantizedTable> tables = tables_of(c.given);
  std::vector<Tensor> rows;
  for (const QuantizedTable& t : tables) rows.push_back(t.rows);
  const TableImage image = image_of(rows, c.given.value("cacheline_alignment", true) ? kRowsAlignment : 1);
  check_bytes(c.check, "weights_host", c.expect.at("weights_host"), image.bytes.data(),
              static_cast<int64_t>(image.bytes.size()));
  c.check.equal("table_byte_offsets", c.expect.at("table_byte_offsets"), image.offsets);
  check_geometry(c, tables);
  for (size_t t = 0; t < tables.size(); ++t) {
    const EmbeddingBagConfig& config = tables[t].config;
    std::vector<int64_t> every(static_cast<size_t>(config.num_embeddings));
    std::iota(every.begin(), every.end(), 0);
    const auto batch = KeyedJaggedTensor::from_lengths_sync({config.name}, Tensor::from(every),
                                                            Tensor::from<int64_t>({config.num_embeddings}));
    check_decoded(c, str_cat("dequant_rows ", t), c.expect.at("dequant_rows").at(t),
                  looked_up_rows(c, {tables[t]}, batch));
  }
}

int64_t offset_at(const Tensor& offsets, int64_t i) { return static_cast<int64_t>(offsets.item(i)); }

// Pooled output is [batch, sum of dims]; otherwise there is a row per id, tables one after the other.
Tensor looked_up(const CaseContext& c, std::vector<QuantizedTable> tables) {
  const PoolingType pooling = pooling_from(c.given.at("pooling").get<std::string>());
  for (QuantizedTable& t : tables) t.config.pooling = pooling;
  const KeyedJaggedTensor batch = batch_of(tables, c.given);
  if (pooling == PoolingType::kNone) return looked_up_rows(c, tables, batch);
  QuantCollectionOptions options = collection_of(c, std::move(tables));
  options.is_weighted = batch.weights_or_null().defined();
  return served(c, [&] { return std::make_unique<QuantEmbeddingBagCollection>(c.runtime, std::move(options)); })
      ->forward(batch)
      .values();
}

void lookup_op(CaseContext& c) {
  const std::vector<QuantizedTable> tables = tables_of(c.given);
  if (c.given.at("output_dtype") == "int8") {
    std::vector<uint8_t> rows;
    const Tensor ids = tensor_from(c.given.at("indices")), offsets = tensor_from(c.given.at("offsets"));
    const int64_t batch = c.given.at("batch");
    for (size_t t = 0; t < tables.size(); ++t) {
      const int64_t first = offset_at(offsets, static_cast<int64_t>(t) * batch);
      const int64_t end = offset_at(offsets, static_cast<int64_t>(t + 1) * batch);
      const Tensor stored = gather_stored_rows(tables[t], ids.narrow(first, end - first));
      rows.insert(rows.end(), stored.data<uint8_t>(), stored.data<uint8_t>() + stored.numel());
    }
    return check_bytes(c.check, "output", c.expect.at("output"), rows.data(), static_cast<int64_t>(rows.size()));
  }
  c.check.tensor("output", c.expect.at("output"), looked_up(c, tables));
}

}  // namespace

OpTable quantization_ops() {
  return {{"nbit_sbhalf", nbit_op},
          {"int8_sbfloat", sbfloat_op},
          {"int8_sbfloat_then_half", sbfloat_then_half_op},
          {"fp16", fp16_op},
          {"hfp8", hfp8_op},
          {"tbe_storage", storage_op},
          {"tbe_lookup", lookup_op}};
}

}  // namespace tessera::cli
