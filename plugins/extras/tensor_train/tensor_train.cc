// tensor_train: a compute kernel whose tables store three small tensors instead of rows; each row is their product. A
// table's option "ranks" is the inner size of the product (8).
#include <tessera/sdk/cost.h>
#include <tessera/sdk/kernel.h>
#include <tessera/sdk/plain_lookup.h>

#include <map>
#include <memory>

#include "cores.h"

namespace {

using namespace tessera::sdk;
using extras::TrainRow;
using extras::TrainShape;

constexpr const char* kName = "tensor_train";

TrainShape shape_of(const tsr_kernel_table& table) {
  Options options(table.options == nullptr ? "{}" : table.options);
  const int64_t ranks = options.integer("ranks", 8);
  options.finish();
  if (ranks < 1 || ranks > 256)
    fail(TSR_INVALID_ARGUMENT, "table \"", table.name, "\" has ", ranks, " ranks, but needs 1 to 256");
  return {table.rows, table.dim, ranks};
}

// The slices of one core, with their optimizer states and their gradients in a step.
struct Core {
  int64_t count, width;
  std::vector<float> values, gradients;
  std::vector<uint8_t> touched;
  std::vector<std::vector<float>> states;
  const float* slice(int64_t i) const { return values.data() + i * width; }
};

class Table {
 public:
  Table(const TrainShape& shape, const OptimizerRef& optimizer) : shape_(shape), row_(shape_) {
    for (int k = 0; k < 3; ++k) {
      Core& core = cores_[static_cast<size_t>(k)];
      core.count = shape.rows == 0 ? 0 : shape.n[static_cast<size_t>(k)];
      core.width = shape.width(k);
      const auto size = static_cast<size_t>(core.count * core.width);
      core.values.resize(size);
      core.gradients.resize(size);
      core.touched.resize(static_cast<size_t>(core.count));
      for (uint32_t i = 0; i < optimizer.num_states(); ++i)
        core.states.emplace_back(static_cast<size_t>(core.count * optimizer.state_width(i, core.width)),
                                 static_cast<float>(optimizer.state(i).start));
    }
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  const TrainShape& shape() const { return shape_; }
  std::array<Core, 3>& cores() { return cores_; }
  uint64_t lookups = 0;

  // Draws the cores' values from the table's start values, scaled so that rows have the same spread: a row, as a
  // product of three cores with variance v, has variance rank^2 v^3. Without start values, only the first core is 0, so
  // that rows are 0 and can be trained.
  void start(const StartValues& start, uint32_t table) {
    for (size_t k = 0; k < 3; ++k) {
      Core& core = cores_[k];
      const int64_t rows = (core.count * core.width + shape_.dim - 1) / shape_.dim;
      std::vector<int64_t> ids(static_cast<size_t>(rows));
      for (size_t i = 0; i < ids.size(); ++i)  // each core uses the start values of different rows
        ids[i] = static_cast<int64_t>((i * 3 + k) % static_cast<size_t>(shape_.rows));
      std::vector<float> drawn(static_cast<size_t>(rows * shape_.dim));
      start.fill(table, ids, shape_.dim, drawn.data());
      double squares = 0;
      for (const float v : drawn) squares += static_cast<double>(v) * v;
      const double spread = std::sqrt(squares / std::max<double>(1, static_cast<double>(drawn.size())));
      const auto rank = static_cast<double>(shape_.rank);
      const double wanted = std::cbrt(spread / rank);  // spread of a core's values
      for (size_t i = 0; i < core.values.size(); ++i) {
        const double unit = spread > 0 ? drawn[i] / spread * wanted : k == 0 ? 0 : 1 / std::sqrt(rank);
        core.values[i] = static_cast<float>(unit);
      }
    }
  }

  void read(int64_t row, float* out) { row_.values(slices(row), out); }

  // Adds a row's gradient to the gradients of its slices.
  void add_gradient(int64_t row, const float* grad, float* scratch) {
    const std::array<int64_t, 3> at = shape_.slices_of(row);
    std::array<float*, 3> to{};
    for (size_t k = 0; k < 3; ++k) {
      to[k] = cores_[k].gradients.data() + at[k] * cores_[k].width;
      cores_[k].touched[static_cast<size_t>(at[k])] = 1;
    }
    read(row, scratch);
    row_.gradients(slices(row), grad, to);
  }

  void update(const OptimizerRef& optimizer, const tsr_update& how) {
    for (Core& core : cores_) {
      for (int64_t i = 0; i < core.count; ++i) {
        if (core.touched[static_cast<size_t>(i)] == 0) continue;
        core.touched[static_cast<size_t>(i)] = 0;
        float* states[OptimizerRef::kMaxStates] = {};
        for (uint32_t k = 0; k < optimizer.num_states(); ++k)
          states[k] = core.states[k].data() + i * optimizer.state_width(k, core.width);
        float* grad = core.gradients.data() + i * core.width;
        optimizer.update_row(how, core.width, core.values.data() + i * core.width, grad, states);
        std::fill_n(grad, core.width, 0.0f);
      }
    }
  }

 private:
  std::array<const float*, 3> slices(int64_t row) const {
    const std::array<int64_t, 3> at = shape_.slices_of(row);
    return {cores_[0].slice(at[0]), cores_[1].slice(at[1]), cores_[2].slice(at[2])};
  }

  const TrainShape shape_;
  TrainRow row_;
  std::array<Core, 3> cores_;
};

class Trains : public KernelInstance {
 public:
  explicit Trains(const tsr_kernel_config& config)
      : optimizer_(config.optimizer), max_gradient_(static_cast<float>(config.max_gradient)) {
    const StartValues start(config);
    for (uint32_t t = 0; t < config.num_tables; ++t) {
      tables_.push_back(std::make_unique<Table>(shape_of(table_of(config, t)), optimizer_));
      if (table_of(config, t).rows > 0) tables_.back()->start(start, t);
    }
  }

  void forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream, tsr_context** context) override {
    float* out = elements<float>(output, "output").data();
    for (uint32_t f = 0; f < lookup.num_features; ++f) {
      const tsr_lookup_feature& feature = feature_of(lookup, f);
      Table& table = *tables_.at(static_cast<size_t>(feature.table));
      const int64_t dim = table.shape().dim;
      std::vector<float> row(static_cast<size_t>(dim));
      clear_output(lookup, feature, dim, out);
      for_each_entry(lookup, feature, [&](const LookupEntry& e) {
        table.read(e.row, row.data());
        for (int64_t d = 0; d < dim; ++d) out[e.place + d] += e.share * row[static_cast<size_t>(d)];
        table.lookups += 1;
      });
    }
    if (context != nullptr) *context = reinterpret_cast<tsr_context*>(this);  // backward needs only the lookup
  }
  void release(tsr_context*) noexcept override {}

  void backward(tsr_context*, const tsr_backward& args, tsr_stream) override {
    for (size_t t = 0; t < tables_.size(); ++t) {
      Table& table = *tables_[t];
      std::vector<float> row(static_cast<size_t>(table.shape().dim));
      for (const auto& [id, gradient] : row_gradients(args, t, row))
        table.add_gradient(id, gradient.data(), row.data());
      table.update(optimizer_, *args.update);
    }
  }

  tsr_kernel_stats stats(uint32_t table) override {
    tsr_kernel_stats out{};
    for (const Core& core : tables_.at(table)->cores()) {
      out.weight_bytes += core.values.size() * sizeof(float);
      out.other_bytes += core.gradients.size() * sizeof(float) + core.touched.size();
      for (const std::vector<float>& state : core.states) out.state_bytes += state.size() * sizeof(float);
    }
    out.rows_in_use = static_cast<uint64_t>(tables_[table]->shape().rows);
    out.lookups = out.hits = tables_[table]->lookups;
    return out;
  }

 private:
  // Sums each row's gradient over the batch, and also computes the gradients of the ids' weights. `row` is scratch.
  std::map<int64_t, std::vector<float>> row_gradients(const tsr_backward& args, size_t t, std::vector<float>& row) {
    std::map<int64_t, std::vector<float>> sums;
    for (uint32_t f = 0; f < args.lookup->num_features; ++f) {
      const tsr_lookup_feature& feature = feature_of(*args.lookup, f);
      if (static_cast<size_t>(feature.table) != t) continue;
      for_each_entry(*args.lookup, feature, [&](const LookupEntry& e) {
        std::vector<float>& sum = sums.try_emplace(e.row, row.size()).first->second;
        float dot = 0;
        if (args.grad_weights != nullptr) tables_[t]->read(e.row, row.data());
        for (size_t d = 0; d < row.size(); ++d) {
          const float g = gradient_at(args, e, static_cast<int64_t>(d), max_gradient_);
          sum[d] += e.share * g;
          dot += g * row[d];
        }
        if (args.grad_weights != nullptr) data_as<float>(*args.grad_weights)[e.position] = dot / e.length;
      });
    }
    return sums;
  }

  OptimizerRef optimizer_;
  float max_gradient_;
  std::vector<std::unique_ptr<Table>> tables_;
};

class TensorTrain : public Kernel {
 public:
  using Instance = Trains;
  static constexpr const char* kComputeKernels[] = {kName, nullptr};
  static constexpr int32_t kDeviceTypes[] = {kDLCPU, 0};

  void supports(const tsr_kernel_config& config) const override {
    if (std::string_view(config.compute_kernel) != kName)
      fail(TSR_UNIMPLEMENTED, kName, " has no compute kernel ", config.compute_kernel);
    if (config.device.device_type != kDLCPU) fail(TSR_UNIMPLEMENTED, kName, " works in host memory only");
    if (!same_dtype(config.weight_dtype, dtype_of<float>()) || !same_dtype(config.output_dtype, dtype_of<float>()))
      fail(TSR_UNIMPLEMENTED, kName, " has float32 tables and outputs only");
    for (uint32_t t = 0; t < config.num_tables; ++t) {
      const tsr_kernel_table& table = table_of(config, t);
      shape_of(table);
      if ((table.poolings & 1u << TSR_POOLING_MAX) != 0)
        fail(TSR_UNIMPLEMENTED, "table \"", table.name, "\" is pooled by MAX, which ", kName, " has not");
    }
    const OptimizerRef optimizer(config.optimizer);
    optimizer.check_states();
    if (config.mode == TSR_MODE_TRAIN && !optimizer.updates())
      fail(TSR_UNIMPLEMENTED, kName, " updates its tensors in backward, but the optimizer updates none");
  }
  std::unique_ptr<KernelInstance> open(const tsr_kernel_config& config) const override {
    supports(config);
    return std::make_unique<Trains>(config);
  }

  // Typical figures: a multiplication takes a third of a nanosecond, and backward has three for each one in forward.
  tsr_estimate estimate(const tsr_kernel_config& config, const tsr_workload& work) const override {
    const tsr_kernel_table& shard = table_of(config, 0);
    const TrainShape shape = shape_of(shard);
    const OptimizerRef optimizer(config.optimizer);
    int64_t values = shape.values();
    for (int k = 0; k < 3; ++k) {
      for (uint32_t i = 0; i < optimizer.num_states(); ++i)
        values += shape.n[static_cast<size_t>(k)] * optimizer.state_width(i, shape.width(k));
    }
    constexpr double kMultiplication = 0.35e-9, kId = 20e-9;
    const double row = static_cast<double>(shape.work()) * kMultiplication;
    tsr_estimate out{};
    out.forward_seconds = work.ids * (row + kId);
    out.backward_seconds = work.ids * kId + (work.distinct > 0 ? work.distinct : work.ids) * 3 * row;
    const auto held = static_cast<double>(values + shape.values());  // includes the gradients
    out.bytes = static_cast<uint64_t>(part_of_shard(shard, work) * held * sizeof(float));
    return out;
  }
};

}  // namespace

TESSERA_PLUGIN("tensor-train", "0.1.0",
               component<TensorTrain>({.id = "tensor_train",
                                       .version = "0.1.0",
                                       .about = "tables as products of three small tensors",
                                       .priority = -10}));
