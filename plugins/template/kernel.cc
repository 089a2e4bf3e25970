// SPDX-License-Identifier: Apache-2.0 OR MIT
// acme.rows: float32 tables in host memory, in plain loops. It looks rows up, updates them in backward ("fused") or
// hands their gradients out ("dense"), and takes any optimizer.
#include <tessera/sdk/kernel.h>
#include <tessera/sdk/plain_lookup.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

using namespace tessera::sdk;

// The rows of a table, with the optimizer's states of each.
struct Shard {
  int64_t rows, dim;
  std::vector<float> weights;
  std::vector<std::vector<float>> states;
  std::vector<int64_t> widths;  // of the states
};

// A forward's context: what backward_rows hands out lies here.
struct Kept {
  std::vector<std::vector<int64_t>> rows;
  std::vector<std::vector<float>> values;
  std::vector<std::array<int64_t, 2>> shapes;
};
Kept& kept(tsr_context* context) { return *reinterpret_cast<Kept*>(context); }

class Rows : public KernelInstance {
 public:
  explicit Rows(const tsr_kernel_config& config)
      : optimizer_(config.optimizer), max_gradient_(static_cast<float>(config.max_gradient)) {
    for (uint32_t t = 0; t < config.num_tables; ++t) {
      const tsr_kernel_table& table = table_of(config, t);
      Shard s{table.rows, table.dim, std::vector<float>(static_cast<size_t>(table.rows * table.dim)), {}, {}};
      for (uint32_t k = 0; k < optimizer_.num_states(); ++k) {
        s.widths.push_back(optimizer_.state_width(k, table.dim));
        s.states.emplace_back(static_cast<size_t>(table.rows * s.widths[k]),
                              static_cast<float>(optimizer_.state(k).start));
      }
      shards_.push_back(std::move(s));
    }
    lookups_.resize(shards_.size());
  }

  void forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream, tsr_context** context) override {
    float* out = elements<float>(output, "output").data();
    for (uint32_t f = 0; f < lookup.num_features; ++f) {
      const tsr_lookup_feature& feature = feature_of(lookup, f);
      const auto table = static_cast<size_t>(feature.table);
      const Shard& s = shards_.at(table);
      clear_output(lookup, feature, s.dim, out);
      for_each_entry(lookup, feature, [&](const LookupEntry& e) {
        for (int64_t d = 0; d < s.dim; ++d) out[e.place + d] += e.share * weight(s, e.row)[d];
        lookups_[table] += 1;
      });
    }
    if (context != nullptr) *context = reinterpret_cast<tsr_context*>(new Kept);
  }

  void backward(tsr_context*, const tsr_backward& args, tsr_stream) override {
    gradients_of_weights(args);
    for (size_t t = 0; t < shards_.size(); ++t) {
      for (const auto& [row, sum] : sums(args, t)) update(t, row, sum.data(), *args.update);  // each row once
    }
  }

  void backward_rows(tsr_context* context, const tsr_backward& args, std::span<tsr_row_gradient> out,
                     tsr_stream) override {
    gradients_of_weights(args);
    Kept& k = kept(context);
    k = {std::vector<std::vector<int64_t>>(shards_.size()), std::vector<std::vector<float>>(shards_.size()),
         std::vector<std::array<int64_t, 2>>(shards_.size())};
    for (size_t t = 0; t < shards_.size(); ++t) {
      for (const auto& [row, sum] : sums(args, t)) {  // ascending
        k.rows[t].push_back(row);
        k.values[t].insert(k.values[t].end(), sum.begin(), sum.end());
      }
      k.shapes[t] = {static_cast<int64_t>(k.rows[t].size()), shards_[t].dim};
      const DLDevice cpu{kDLCPU, 0};
      out[t].rows = {k.rows[t].data(), cpu, 1, dtype_of<int64_t>(), k.shapes[t].data(), nullptr, 0};
      out[t].values = {k.values[t].data(), cpu, 2, dtype_of<float>(), k.shapes[t].data(), nullptr, 0};
    }
  }

  void apply(uint32_t table, const DLTensor& rows, const DLTensor& values, const tsr_update& how, tsr_stream) override {
    for (int64_t i = 0; i < numel(rows); ++i)
      update(table, integer_at(rows, i), data_as<float>(values) + i * shards_.at(table).dim, how);
  }
  void release(tsr_context* context) noexcept override { delete &kept(context); }

  void export_rows(uint32_t table, uint64_t& cursor, tsr_rows& rows) override {  // the cursor is a row's number
    const Shard& s = shards_.at(table);
    const auto begin = static_cast<int64_t>(cursor);
    rows.count = std::max<int64_t>(0, std::min(numel(*rows.ids), s.rows - begin));
    for (int64_t i = 0; i < rows.count; ++i) {
      data_as<int64_t>(*rows.ids)[i] = begin + i;
      std::copy_n(weight(s, begin + i), s.dim, data_as<float>(*rows.weights) + i * s.dim);
      for (uint32_t k = 0; k < rows.num_states; ++k) {
        const int64_t width = s.widths[k];
        std::copy_n(s.states[k].data() + (begin + i) * width, width, data_as<float>(*rows.states[k]) + i * width);
      }
    }
    cursor += static_cast<uint64_t>(rows.count);
  }
  void import_rows(uint32_t table, const tsr_rows& rows) override {
    Shard& s = shards_.at(table);
    for (int64_t i = 0; i < rows.count; ++i) {
      const int64_t row = data_as<int64_t>(*rows.ids)[i];
      std::copy_n(data_as<float>(*rows.weights) + i * s.dim, s.dim, s.weights.data() + row * s.dim);
      for (uint32_t k = 0; k < rows.num_states; ++k) {
        const int64_t width = s.widths[k];
        std::copy_n(data_as<float>(*rows.states[k]) + i * width, width, s.states[k].data() + row * width);
      }
    }
  }
  tsr_kernel_stats stats(uint32_t table) override {
    const Shard& s = shards_.at(table);
    tsr_kernel_stats out{};
    out.weight_bytes = s.weights.size() * sizeof(float);
    for (const std::vector<float>& state : s.states) out.state_bytes += state.size() * sizeof(float);
    out.rows_in_use = static_cast<uint64_t>(s.rows);
    out.lookups = out.hits = lookups_.at(table);
    return out;
  }

 private:
  static const float* weight(const Shard& s, int64_t row) { return s.weights.data() + row * s.dim; }

  // Each row's gradient, summed over the batch.
  std::map<int64_t, std::vector<float>> sums(const tsr_backward& args, size_t table) const {
    std::map<int64_t, std::vector<float>> all;
    for (uint32_t i = 0; i < args.lookup->num_features; ++i) {
      const tsr_lookup_feature& f = feature_of(*args.lookup, i);
      if (static_cast<size_t>(f.table) != table) continue;
      const int64_t dim = shards_[table].dim;
      for_each_entry(*args.lookup, f, [&](const LookupEntry& e) {
        std::vector<float>& sum = all.try_emplace(e.row, static_cast<size_t>(dim), 0.0f).first->second;
        for (int64_t d = 0; d < dim; ++d)
          sum[static_cast<size_t>(d)] += e.share * gradient_at(args, e, d, max_gradient_);
      });
    }
    return all;
  }

  void gradients_of_weights(const tsr_backward& args) const {
    if (args.grad_weights == nullptr) return;
    for (uint32_t i = 0; i < args.lookup->num_features; ++i) {
      const tsr_lookup_feature& f = feature_of(*args.lookup, i);
      const Shard& s = shards_[static_cast<size_t>(f.table)];
      for_each_entry(*args.lookup, f, [&](const LookupEntry& e) {
        float dot = 0;
        for (int64_t d = 0; d < s.dim; ++d) dot += gradient_at(args, e, d, max_gradient_) * weight(s, e.row)[d];
        data_as<float>(*args.grad_weights)[e.position] = dot / e.length;
      });
    }
  }

  void update(size_t table, int64_t row, const float* grad, const tsr_update& how) {
    Shard& s = shards_.at(table);
    float* states[OptimizerRef::kMaxStates] = {};
    for (uint32_t k = 0; k < optimizer_.num_states(); ++k) states[k] = s.states[k].data() + row * s.widths[k];
    optimizer_.update_row(how, s.dim, s.weights.data() + row * s.dim, grad, states);
  }

  OptimizerRef optimizer_;
  float max_gradient_;
  std::vector<Shard> shards_;
  std::vector<uint64_t> lookups_;
};

class RowsKernel : public Kernel {
 public:
  using Instance = Rows;
  static constexpr const char* kComputeKernels[] = {"fused", "dense", nullptr};
  static constexpr int32_t kDeviceTypes[] = {kDLCPU, 0};

  void supports(const tsr_kernel_config& config) const override {
    const std::string_view kernel = config.compute_kernel;
    if (kernel != "fused" && kernel != "dense") fail(TSR_UNIMPLEMENTED, "acme.rows has no compute kernel ", kernel);
    if (config.device.device_type != kDLCPU) fail(TSR_UNIMPLEMENTED, "acme.rows works in host memory only");
    if (!same_dtype(config.weight_dtype, dtype_of<float>()) || !same_dtype(config.output_dtype, dtype_of<float>()))
      fail(TSR_UNIMPLEMENTED, "acme.rows has float32 rows and outputs only");
    for (uint32_t t = 0; t < config.num_tables; ++t) {
      const char* options = table_of(config, t).options;  // of a name like "acme.rows?ranks=8"
      if (options != nullptr) fail(TSR_INVALID_ARGUMENT, "tables of acme.rows have no options, not ", options);
    }
    const OptimizerRef optimizer(config.optimizer);
    if (config.mode == TSR_MODE_TRAIN && kernel == "fused" && !optimizer.updates())
      fail(TSR_UNIMPLEMENTED, "acme.rows updates rows in \"fused\", but the optimizer updates none");
    optimizer.check_states();
  }
  std::unique_ptr<KernelInstance> open(const tsr_kernel_config& config) const override {
    supports(config);
    return std::make_unique<Rows>(config);
  }
};

TESSERA_PLUGIN(
    "acme-rows", "1.0.0",
    component<RowsKernel>({.id = "acme.rows", .version = "1.0.0", .about = "float32 tables in plain loops"}));
