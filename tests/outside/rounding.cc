// SPDX-License-Identifier: Apache-2.0 OR MIT
// outside.rounding: a kernel in plain loops whose rows are bfloat16. "fused" updates a row in float32 and rounds it up
// or down at random. The random bits come from tsr_kernel_config::seed, the table, the row and column of the whole
// table, and the step, so results depend on no plan. "quant" infers from rows in the format fbgemm.int8.
#include <tessera/sdk/kernel.h>
#include <tessera/sdk/plain_lookup.h>
#include <tessera/sdk/random.h>
#include <tessera/sdk/row_format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <string>
#include <vector>

using namespace tessera::sdk;

namespace {

uint64_t mixed_with(uint64_t x, uint64_t more) { return mixed(x + kGoldenStep * (more + 1)); }

// Adds 16 random bits below the last one that is kept. Infinities and NaN stay.
uint16_t rounded_at_random(float value, uint64_t random) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), up = bits + static_cast<uint32_t>(random & 0xFFFF);
  constexpr uint32_t kExponent = 0x7F800000;
  if ((bits & kExponent) == kExponent || (up & kExponent) == kExponent) return float_to_bfloat16(value);
  return static_cast<uint16_t>(up >> 16);
}

struct Shard {
  int64_t rows, dim;
  uint64_t key = 0;                      // of the seed and the table's name
  int64_t first_row = 0, first_col = 0;  // of the shard in the whole table
  std::vector<uint16_t> weights;         // bfloat16, of an instance that trains
  std::vector<uint8_t> codes;            // rows in fbgemm.int8, of one that infers
  const uint8_t* stored = nullptr;       // `codes`, or the rows that were adopted
  int64_t stride = 0;
  std::vector<std::vector<float>> states;
  std::vector<int64_t> widths;  // of the states
  uint64_t lookups = 0;

  void row(int64_t r, float* out) const {
    if (stored != nullptr) return decode_row(RowFormat::kInt8, stored + r * stride, dim, out);
    for (int64_t d = 0; d < dim; ++d) out[d] = bfloat16_to_float(weights[static_cast<size_t>(r * dim + d)]);
  }
};

class Rows : public KernelInstance {
 public:
  explicit Rows(const tsr_kernel_config& config)
      : optimizer_(config.optimizer), max_gradient_(static_cast<float>(config.max_gradient)) {
    const StartValues start(config);
    for (uint32_t t = 0; t < config.num_tables; ++t) {
      const tsr_kernel_table& table = table_of(config, t);
      Shard s{table.rows, table.dim};
      const auto values = static_cast<size_t>(table.rows * table.dim);
      if (config.mode == TSR_MODE_INFER) {
        s.stride = row_bytes(RowFormat::kInt8, table.dim);
        s.codes.resize(static_cast<size_t>(table.rows * s.stride));
        s.stored = s.codes.data();
      } else {
        s.weights.resize(values);
        s.key = config.seed;
        for (const char* c = table.name; *c != '\0'; ++c) s.key = mixed_with(s.key, static_cast<unsigned char>(*c));
        if (const auto place = start.formula(t)) s.first_row = place->first_row, s.first_col = place->first_col;
      }
      for (uint32_t k = 0; k < optimizer_.num_states(); ++k) {
        s.widths.push_back(optimizer_.state_width(k, table.dim));
        s.states.emplace_back(static_cast<size_t>(table.rows * s.widths[k]),
                              static_cast<float>(optimizer_.state(k).start));
      }
      shards_.push_back(std::move(s));
    }
  }

  void forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream, tsr_context** context) override {
    float* out = elements<float>(output, "output").data();
    std::vector<float> row;
    for (uint32_t f = 0; f < lookup.num_features; ++f) {
      const tsr_lookup_feature& feature = feature_of(lookup, f);
      Shard& s = shards_.at(static_cast<size_t>(feature.table));
      row.resize(static_cast<size_t>(s.dim));
      clear_output(lookup, feature, s.dim, out);
      for_each_entry(lookup, feature, [&](const LookupEntry& e) {
        s.row(e.row, row.data());
        for (int64_t d = 0; d < s.dim; ++d) out[e.place + d] += e.share * row[static_cast<size_t>(d)];
        s.lookups += 1;
      });
    }
    if (context != nullptr) *context = reinterpret_cast<tsr_context*>(this);  // nothing is kept
  }

  void backward(tsr_context*, const tsr_backward& args, tsr_stream) override {
    gradients_of_weights(args);
    std::vector<std::map<int64_t, std::vector<float>>> sums(shards_.size());  // of each row that occurs
    for (uint32_t i = 0; i < args.lookup->num_features; ++i) {
      const tsr_lookup_feature& f = feature_of(*args.lookup, i);
      const auto table = static_cast<size_t>(f.table);
      const auto dim = static_cast<size_t>(shards_[table].dim);
      for_each_entry(*args.lookup, f, [&](const LookupEntry& e) {
        std::vector<float>& sum = sums[table].try_emplace(e.row, dim, 0.0f).first->second;
        for (size_t d = 0; d < dim; ++d)
          sum[d] += e.share * gradient_at(args, e, static_cast<int64_t>(d), max_gradient_);
      });
    }
    for (size_t t = 0; t < shards_.size(); ++t) {
      for (const auto& [row, sum] : sums[t]) update(shards_[t], row, sum.data(), *args.update);
    }
  }
  void release(tsr_context*) noexcept override {}

  void export_rows(uint32_t table, uint64_t& cursor, tsr_rows& rows) override {
    const Shard& s = shards_.at(table);
    const auto begin = static_cast<int64_t>(cursor);
    rows.count = std::max<int64_t>(0, std::min(numel(*rows.ids), s.rows - begin));
    for (int64_t i = 0; i < rows.count; ++i) {
      data_as<int64_t>(*rows.ids)[i] = begin + i;
      s.row(begin + i, data_as<float>(*rows.weights) + i * s.dim);
      for (uint32_t k = 0; k < rows.num_states; ++k)
        std::copy_n(s.states[k].data() + (begin + i) * s.widths[k], s.widths[k],
                    data_as<float>(*rows.states[k]) + i * s.widths[k]);
    }
    cursor += static_cast<uint64_t>(rows.count);
  }
  void import_rows(uint32_t table, const tsr_rows& rows) override {
    Shard& s = shards_.at(table);
    for (int64_t i = 0; i < rows.count; ++i) {
      const int64_t row = data_as<int64_t>(*rows.ids)[i];
      const float* values = data_as<float>(*rows.weights) + i * s.dim;
      if (!s.codes.empty()) encode_row(RowFormat::kInt8, values, s.dim, s.codes.data() + row * s.stride);
      for (int64_t d = 0; d < s.dim && !s.weights.empty(); ++d)
        s.weights[static_cast<size_t>(row * s.dim + d)] = float_to_bfloat16(values[d]);
      for (uint32_t k = 0; k < rows.num_states; ++k)
        std::copy_n(data_as<float>(*rows.states[k]) + i * s.widths[k], s.widths[k],
                    s.states[k].data() + row * s.widths[k]);
    }
  }
  void adopt_rows(uint32_t table, const tsr_stored_rows& rows) override {
    Shard& s = shards_.at(table);
    if (s.stored == nullptr) fail(TSR_FAILED_PRECONDITION, "an instance that trains adopts no rows");
    s.stored = static_cast<const uint8_t*>(rows.bytes);
    s.stride = rows.stride;
    s.codes = {};
  }
  tsr_kernel_stats stats(uint32_t table) override {
    const Shard& s = shards_.at(table);
    tsr_kernel_stats out{};
    out.weight_bytes = s.weights.size() * sizeof(uint16_t) + static_cast<uint64_t>(s.rows * s.stride);
    for (const std::vector<float>& state : s.states) out.state_bytes += state.size() * sizeof(float);
    out.rows_in_use = static_cast<uint64_t>(s.rows);
    out.lookups = out.hits = s.lookups;
    return out;
  }

 private:
  void gradients_of_weights(const tsr_backward& args) const {
    if (args.grad_weights == nullptr) return;
    std::vector<float> row;
    for (uint32_t i = 0; i < args.lookup->num_features; ++i) {
      const tsr_lookup_feature& f = feature_of(*args.lookup, i);
      const Shard& s = shards_[static_cast<size_t>(f.table)];
      row.resize(static_cast<size_t>(s.dim));
      for_each_entry(*args.lookup, f, [&](const LookupEntry& e) {
        s.row(e.row, row.data());
        float dot = 0;
        for (int64_t d = 0; d < s.dim; ++d) dot += gradient_at(args, e, d, max_gradient_) * row[static_cast<size_t>(d)];
        data_as<float>(*args.grad_weights)[e.position] = dot / e.length;
      });
    }
  }

  void update(Shard& s, int64_t row, const float* grad, const tsr_update& how) const {
    float* states[OptimizerRef::kMaxStates] = {};
    for (uint32_t k = 0; k < optimizer_.num_states(); ++k) states[k] = s.states[k].data() + row * s.widths[k];
    std::vector<float> values(static_cast<size_t>(s.dim));
    s.row(row, values.data());
    optimizer_.update_row(how, s.dim, values.data(), grad, states);
    const uint64_t of_row =
        mixed_with(mixed_with(s.key, static_cast<uint64_t>(s.first_row + row)), static_cast<uint64_t>(how.step));
    for (int64_t d = 0; d < s.dim; ++d)
      s.weights[static_cast<size_t>(row * s.dim + d)] =
          rounded_at_random(values[static_cast<size_t>(d)], mixed_with(of_row, static_cast<uint64_t>(s.first_col + d)));
  }

  OptimizerRef optimizer_;
  float max_gradient_;
  std::vector<Shard> shards_;
};

class RoundingKernel : public Kernel {
 public:
  using Instance = Rows;
  static constexpr const char* kComputeKernels[] = {"fused", "quant", nullptr};
  static constexpr const char* kRowFormats[] = {TSR_ROW_FORMAT_INT8, nullptr};
  static constexpr int32_t kDeviceTypes[] = {kDLCPU, 0};

  void supports(const tsr_kernel_config& config) const override {
    const std::string_view kernel = config.compute_kernel;
    const bool infers = config.mode == TSR_MODE_INFER;
    if (kernel != (infers ? "quant" : "fused"))
      fail(TSR_UNIMPLEMENTED, "outside.rounding trains with \"fused\" and infers with \"quant\", not with ", kernel);
    if (config.device.device_type != kDLCPU) fail(TSR_UNIMPLEMENTED, "outside.rounding works in host memory only");
    const bool int8 = config.row_format != nullptr;  // the SDK has compared the name with kRowFormats
    const DLDataType wanted = infers ? dtype_of<uint8_t>() : DLDataType{kDLBfloat, 16, 1};
    if (!same_dtype(config.weight_dtype, wanted) || infers != int8)
      fail(TSR_UNIMPLEMENTED, "outside.rounding has rows of ", infers ? TSR_ROW_FORMAT_INT8 : "bfloat16", " only");
    if (!same_dtype(config.output_dtype, dtype_of<float>()))
      fail(TSR_UNIMPLEMENTED, "outside.rounding has float32 outputs only");
    for (uint32_t t = 0; t < config.num_tables; ++t) {
      const char* options = table_of(config, t).options;
      if (options != nullptr) fail(TSR_INVALID_ARGUMENT, "tables of outside.rounding have no options, not ", options);
    }
    const OptimizerRef optimizer(config.optimizer);
    if (!infers && !optimizer.updates())
      fail(TSR_UNIMPLEMENTED, "outside.rounding updates rows, but the optimizer updates none");
    optimizer.check_states();
  }
  std::unique_ptr<KernelInstance> open(const tsr_kernel_config& config) const override {
    supports(config);
    return std::make_unique<Rows>(config);
  }
};

}  // namespace

TESSERA_PLUGIN(
    "rounding", "1.0.0",
    component<RoundingKernel>({.id = "outside.rounding", .version = "1", .about = "bfloat16 rows, rounded at random"}));
