// A simple kernel, which tests wrap.
#pragma once

#include <tessera/sdk/kernel.h>
#include <tessera/sdk/plain_lookup.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace extras {

using namespace tessera::sdk;

// Has rows in memory and plain loops. It updates w -= 0.5 g, and has a state that starts at 0.25 and counts updates.
class PlainRows : public KernelInstance {
 public:
  explicit PlainRows(const tsr_kernel_config& config) : max_gradient_(static_cast<float>(config.max_gradient)) {
    for (uint32_t t = 0; t < config.num_tables; ++t) {
      const tsr_kernel_table& table = table_of(config, t);
      const Row start{std::vector<float>(static_cast<size_t>(table.dim)), 0.25f};
      tables_.emplace_back(static_cast<size_t>(table.rows), start);
      dims_.push_back(table.dim);
    }
  }
  void forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream, tsr_context** context) override {
    float* const out = data_as<float>(output);
    for (uint32_t f = 0; f < lookup.num_features; ++f) {
      const tsr_lookup_feature& feature = feature_of(lookup, f);
      const int64_t dim = dim_of(feature.table);
      clear_output(lookup, feature, dim, out);
      for_each_entry(lookup, feature, [&](const LookupEntry& e) {
        const float* const weights = row(feature.table, e.row).weights.data();
        for (int64_t d = 0; d < dim; ++d) out[e.place + d] += e.share * weights[d];
      });
    }
    if (context != nullptr) *context = reinterpret_cast<tsr_context*>(this);
  }
  void backward(tsr_context*, const tsr_backward& args, tsr_stream) override {
    std::map<std::pair<int32_t, int64_t>, std::vector<float>> sums;
    for (uint32_t f = 0; f < args.lookup->num_features; ++f) {
      const tsr_lookup_feature& feature = feature_of(*args.lookup, f);
      for_each_entry(*args.lookup, feature, [&](const LookupEntry& e) {
        const int64_t dim = dim_of(feature.table);
        std::vector<float>& sum = sums.try_emplace({feature.table, e.row}, dim, 0.0f).first->second;
        for (int64_t d = 0; d < dim; ++d)
          sum[static_cast<size_t>(d)] += e.share * gradient_at(args, e, d, max_gradient_);
      });
    }
    for (const auto& [at, sum] : sums) {
      Row& r = row(at.first, at.second);
      for (size_t d = 0; d < sum.size(); ++d) r.weights[d] -= 0.5f * sum[d];
      r.updates += 1;
    }
  }
  void release(tsr_context*) noexcept override {}
  void export_rows(uint32_t t, uint64_t& cursor, tsr_rows& rows) override {
    rows.count = std::min(numel(*rows.ids), std::ssize(tables_[t]) - static_cast<int64_t>(cursor));
    for (int64_t i = 0; i < rows.count; ++i, ++cursor) {
      const Row& r = tables_[t][cursor];
      data_as<int64_t>(*rows.ids)[i] = static_cast<int64_t>(cursor);
      std::copy(r.weights.begin(), r.weights.end(), data_as<float>(*rows.weights) + i * dims_[t]);
      if (rows.num_states > 0) data_as<float>(*rows.states[0])[i] = r.updates;
    }
  }
  void read_rows(uint32_t t, tsr_rows& rows) override {
    for (int64_t i = 0; i < rows.count; ++i) {
      const Row& r = row(static_cast<int32_t>(t), data_as<int64_t>(*rows.ids)[i]);
      std::copy(r.weights.begin(), r.weights.end(), data_as<float>(*rows.weights) + i * dims_[t]);
      if (rows.num_states > 0) data_as<float>(*rows.states[0])[i] = r.updates;
    }
  }
  void import_rows(uint32_t t, const tsr_rows& rows) override {
    for (int64_t i = 0; i < rows.count; ++i) {
      Row& r = row(static_cast<int32_t>(t), data_as<int64_t>(*rows.ids)[i]);
      std::copy_n(data_as<float>(*rows.weights) + i * dims_[t], dims_[t], r.weights.begin());
      if (rows.num_states > 0) r.updates = data_as<float>(*rows.states[0])[i];
    }
  }
  tsr_kernel_stats stats(uint32_t) override { return {}; }

 private:
  struct Row {
    std::vector<float> weights;
    float updates = 0;
  };
  Row& row(int32_t table, int64_t id) { return tables_[static_cast<size_t>(table)][static_cast<size_t>(id)]; }
  int64_t dim_of(int32_t table) const { return dims_[static_cast<size_t>(table)]; }
  float max_gradient_;
  std::vector<std::vector<Row>> tables_;
  std::vector<int64_t> dims_;
};

class Plain : public Kernel {
 public:
  using Instance = PlainRows;
  static constexpr const char* kComputeKernels[] = {"fused", nullptr};
  static constexpr int32_t kDeviceTypes[] = {kDLCPU, 0};
  static constexpr uint32_t kFlags = TSR_KERNEL_PLACES_ROWS;
  void supports(const tsr_kernel_config&) const override {}
  std::unique_ptr<KernelInstance> open(const tsr_kernel_config& config) const override {
    return std::make_unique<PlainRows>(config);
  }
};

}  // namespace extras
