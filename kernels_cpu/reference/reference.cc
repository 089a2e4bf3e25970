// The reference kernel: kernel/1 in plain scalar loops on one thread, in the order that abi/kernel.h describes. Other
// kernels are compared with it.
#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "common/config.h"
#include "common/table_store.h"
#include "tessera/sdk/draft/rows_view.h"
#include "tessera/sdk/kernel.h"
#include "tessera/sdk/plugin.h"

namespace {

namespace sdk = tessera::sdk;
using tessera_cpu::Batch;
using tessera_cpu::Config;
using tessera_cpu::load_value;
using tessera_cpu::RowGradients;
using tessera_cpu::store_value;
using tessera_cpu::TableStore;

// The state that forward keeps: for MAX pooling, the position whose row has the maximum of each column of each bag (-1
// if the bag is empty). backward_rows also stores its result here.
struct Context {
  struct Table {
    std::vector<int64_t> rows;
    std::vector<float> values;
    int64_t rows_shape[1];
    int64_t values_shape[2];
  };
  std::vector<std::vector<int64_t>> winners;  // per feature: [bags, dim], or empty
  std::vector<Table> tables;
};
Context* context_of(tsr_context* raw) { return reinterpret_cast<Context*>(raw); }

// One id of one bag; `output` is the index at which the bag's row begins in the feature's output.
struct Entry {
  int64_t position;
  int64_t row;
  int64_t bag;
  int64_t output;
  float weight;   // weight of the id
  float divisor;  // the bag's length for MEAN, otherwise 1
};

// The output row of a bag of the feature.
int64_t row_of(const Batch& batch, const tsr_lookup_feature& f, int64_t bag) {
  const int32_t* rows = batch.rows(f);
  return rows == nullptr ? bag : rows[bag];
}

// Calls body(entry) for every id of the feature, in order.
template <class Body>
void for_each_entry(const Batch& batch, const tsr_lookup_feature& f, Body body) {
  for (int64_t b = 0; b < f.bags; ++b) {
    const int64_t begin = batch.offsets[f.first_offset + b];
    const int64_t end = batch.offsets[f.first_offset + b + 1];
    for (int64_t p = begin; p < end; ++p) {
      Entry e{.position = p, .row = batch.ids[p], .bag = b};
      const int64_t output_row =
          f.pooling == TSR_POOLING_NONE ? p - batch.offsets[f.first_offset] : row_of(batch, f, b);
      e.output = output_row * f.output_stride;
      e.weight = batch.weights == nullptr ? 1.0f : batch.weights[p];
      e.divisor = f.pooling == TSR_POOLING_MEAN ? static_cast<float>(end - begin) : 1.0f;
      body(e);
    }
  }
}

class ReferenceInstance : public sdk::KernelInstance, public sdk::RowsView {
 public:
  ReferenceInstance(sdk::Host host, Config config)
      : config_(std::move(config)),
        memory_(tessera_cpu::make_tables(host, config_, &tables_)),
        lookups_(config_.tables.size()) {}

  void forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream, tsr_context** context) override {
    const Batch batch(lookup, config_, output);
    auto kept = std::make_unique<Context>();
    kept->winners.resize(batch.num_features());
    for (uint32_t f = 0; f < batch.num_features(); ++f) {
      const tsr_lookup_feature& feature = batch.feature(f);
      if (feature.bags == 0) continue;
      std::atomic_ref(lookups_[static_cast<size_t>(feature.table)])
          .fetch_add(static_cast<uint64_t>(batch.end(feature) - batch.begin(feature)), std::memory_order_relaxed);
      switch (feature.pooling) {
        case TSR_POOLING_NONE:
          sequence(batch, feature);
          break;
        case TSR_POOLING_MAX:
          kept->winners[f] = max_pool(batch, feature);
          break;
        default:
          sum_pool(batch, feature);
      }
    }
    if (context == nullptr) return;
    if (!config_.train) sdk::fail(TSR_FAILED_PRECONDITION, "an instance opened to infer keeps no context for backward");
    *context = reinterpret_cast<tsr_context*>(kept.release());
  }

  void backward(tsr_context* context, const tsr_backward& args, tsr_stream) override {
    check_updates();
    const Batch batch(*args.lookup, config_, *args.grad_output);
    weight_gradients(*context_of(context), batch, args);
    for (uint32_t t = 0; t < tables_.size(); ++t) {
      for (const auto& [row, gradient] : row_gradients(*context_of(context), batch, args, t)) {
        update(tables_[t], *args.update, row, gradient.data());
      }
    }
  }

  void backward_rows(tsr_context* context, const tsr_backward& args, std::span<tsr_row_gradient> out,
                     tsr_stream) override {
    const Batch batch(*args.lookup, config_, *args.grad_output);
    Context& kept = *context_of(context);
    weight_gradients(kept, batch, args);
    kept.tables.resize(tables_.size());
    for (uint32_t t = 0; t < tables_.size(); ++t) {
      Context::Table& to = kept.tables[t];
      to = {};
      for (const auto& [row, gradient] : row_gradients(kept, batch, args, t)) {
        to.rows.push_back(row);
        to.values.insert(to.values.end(), gradient.begin(), gradient.end());
      }
      const int64_t count = static_cast<int64_t>(to.rows.size());
      to.rows_shape[0] = to.values_shape[0] = count;
      to.values_shape[1] = tables_[t].dim();
      const DLDevice cpu{kDLCPU, 0};
      out[t].rows = {to.rows.data(), cpu, 1, sdk::dtype_of<int64_t>(), to.rows_shape, nullptr, 0};
      out[t].values = {to.values.data(), cpu, 2, sdk::dtype_of<float>(), to.values_shape, nullptr, 0};
    }
  }

  void apply(uint32_t table, const DLTensor& rows, const DLTensor& values, const tsr_update& step,
             tsr_stream) override {
    check_updates();
    TableStore& t = tables_.at(table);
    const RowGradients gradients(t, rows, values);
    for (int64_t i = 0; i < gradients.count; ++i) update(t, step, gradients.rows[i], gradients.values + i * t.dim());
  }

  void release(tsr_context* context) noexcept override { delete context_of(context); }
  void read_rows(uint32_t table, tsr_rows& rows) override { tables_.at(table).read_named_rows(rows); }
  void export_rows(uint32_t table, uint64_t& cursor, tsr_rows& rows) override {
    tables_.at(table).export_rows(cursor, rows);
  }
  void import_rows(uint32_t table, const tsr_rows& rows) override { tables_.at(table).import_rows(rows); }
  tsr_kernel_stats stats(uint32_t table) override {
    const TableStore& t = tables_.at(table);
    return t.stats(0, lookups_.at(table));
  }
  tsr_matrix_view view(uint32_t table, int32_t state) override { return tables_.at(table).view(state); }

 private:
  float value(const TableStore& table, int64_t row, int64_t d) const {
    return load_value(table.storage(), table.row(row), d);
  }

  void sequence(const Batch& batch, const tsr_lookup_feature& f) {
    const TableStore& table = tables_[f.table];
    for_each_entry(batch, f, [&](const Entry& e) {
      for (int64_t d = 0; d < table.dim(); ++d) {
        store_value(config_.output, batch.values(f), e.output + d, e.weight * value(table, e.row, d));
      }
    });
  }

  void sum_pool(const Batch& batch, const tsr_lookup_feature& f) {
    const TableStore& table = tables_[f.table];
    for (int64_t b = 0; b < f.bags; ++b) {
      const int64_t begin = batch.offsets[f.first_offset + b];
      const int64_t end = batch.offsets[f.first_offset + b + 1];
      for (int64_t d = 0; d < table.dim(); ++d) {
        float sum = 0;
        for (int64_t p = begin; p < end; ++p) {
          sum += (batch.weights == nullptr ? 1.0f : batch.weights[p]) * value(table, batch.ids[p], d);
        }
        if (f.pooling == TSR_POOLING_MEAN && end > begin) sum /= static_cast<float>(end - begin);
        store_value(config_.output, batch.values(f), row_of(batch, f, b) * f.output_stride + d, sum);
      }
    }
  }

  std::vector<int64_t> max_pool(const Batch& batch, const tsr_lookup_feature& f) {
    const TableStore& table = tables_[f.table];
    std::vector<int64_t> winners(static_cast<size_t>(f.bags * table.dim()), -1);
    for (int64_t b = 0; b < f.bags; ++b) {
      for (int64_t d = 0; d < table.dim(); ++d) {
        int64_t& winner = winners[b * table.dim() + d];
        float most = 0;
        for (int64_t p = batch.offsets[f.first_offset + b]; p < batch.offsets[f.first_offset + b + 1]; ++p) {
          const float v = value(table, batch.ids[p], d);
          if (winner >= 0 && !(v > most)) continue;
          most = v;
          winner = p;
        }
        store_value(config_.output, batch.values(f), row_of(batch, f, b) * f.output_stride + d, most);
      }
    }
    return winners;
  }

  // Column d of the gradient for entry e's row, with all factors except the id's own weight.
  float reaching(const Context& context, const Batch& batch, const tsr_backward& args, uint32_t feature, const Entry& e,
                 int64_t d) const {
    const tsr_lookup_feature& f = batch.feature(feature);
    if (f.pooling == TSR_POOLING_MAX && context.winners[feature][e.bag * tables_[f.table].dim() + d] != e.position) {
      return 0;
    }
    float g = load_value(config_.output, batch.values(f), e.output + d) * static_cast<float>(args.grad_scale);
    if (config_.max_gradient > 0) g = std::clamp(g, -config_.max_gradient, config_.max_gradient);
    return g / e.divisor;
  }

  std::map<int64_t, std::vector<float>> row_gradients(const Context& context, const Batch& batch,
                                                      const tsr_backward& args, uint32_t table) const {
    const int64_t dim = tables_[table].dim();
    std::map<int64_t, std::vector<float>> sums;
    for (uint32_t f = 0; f < batch.num_features(); ++f) {
      if (static_cast<uint32_t>(batch.feature(f).table) != table) continue;
      for_each_entry(batch, batch.feature(f), [&](const Entry& e) {
        std::vector<float>& sum = sums.try_emplace(e.row, dim, 0.0f).first->second;
        for (int64_t d = 0; d < dim; ++d) sum[d] += reaching(context, batch, args, f, e, d) * e.weight;
      });
    }
    return sums;
  }

  void weight_gradients(const Context& context, const Batch& batch, const tsr_backward& args) const {
    if (args.grad_weights == nullptr) return;
    const std::span<float> out = sdk::elements<float>(*args.grad_weights, "grad_weights");
    if (static_cast<int64_t>(out.size()) != batch.ids.size()) {
      sdk::fail(TSR_INVALID_ARGUMENT, "grad_weights has ", out.size(), " elements for ", batch.ids.size(), " ids");
    }
    for (uint32_t f = 0; f < batch.num_features(); ++f) {
      const TableStore& table = tables_[batch.feature(f).table];
      for_each_entry(batch, batch.feature(f), [&](const Entry& e) {
        float dot = 0;
        for (int64_t d = 0; d < table.dim(); ++d) {
          dot += reaching(context, batch, args, f, e, d) * value(table, e.row, d);
        }
        out[e.position] = dot;
      });
    }
  }

  void check_updates() const {
    if (!config_.optimizer.updates()) {
      sdk::fail(TSR_FAILED_PRECONDITION, "the kernel was opened without an optimizer that updates rows");
    }
  }

  void update(TableStore& table, const tsr_update& step, int64_t row, const float* gradient) const {
    std::vector<float> weight(table.dim());
    table.read_rows(row, 1, weight.data());
    std::array<float*, sdk::OptimizerRef::kMaxStates> states{};
    for (uint32_t k = 0; k < table.num_states(); ++k) states[k] = table.state(k, row);
    config_.optimizer.update_row(step, table.dim(), weight.data(), gradient, states.data());
    table.write_updated_row(row, step.step, weight.data());
  }

  Config config_;
  std::vector<TableStore> tables_;
  sdk::Buffer memory_;  // memory of tables_
  std::vector<uint64_t> lookups_;
};

class ReferenceKernel : public sdk::Kernel {
 public:
  using Instance = ReferenceInstance;
  static constexpr const char* kComputeKernels[] = {"fused", "dense", nullptr};
  static constexpr int32_t kDeviceTypes[] = {kDLCPU, 0};
  static constexpr uint32_t kFlags = TSR_KERNEL_PLACES_ROWS | TSR_KERNEL_FORWARD_ANY_THREAD;

  explicit ReferenceKernel(const sdk::Setup& setup) : host_(setup.host) {}

  const void* extension(std::string_view id) const { return sdk::rows_view_extension<Instance>(id); }

  void supports(const tsr_kernel_config& config) const override { checked(config); }
  std::unique_ptr<sdk::KernelInstance> open(const tsr_kernel_config& config) const override {
    return std::make_unique<ReferenceInstance>(host_, checked(config));
  }

 private:
  static Config checked(const tsr_kernel_config& config) {
    return tessera_cpu::checked(config, kComputeKernels, INT64_MAX);
  }
  sdk::Host host_;
};

}  // namespace

TESSERA_PLUGIN("kernel-reference", "0.1.0",
               tessera::sdk::component<ReferenceKernel>(
                   {.id = "reference", .version = "0.1.0", .about = "plain scalar loops, to compare with"}));
