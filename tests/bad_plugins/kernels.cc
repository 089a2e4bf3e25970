// A small kernel with plain loops.
#include "tessera/sdk/kernel.h"

#include <tessera/abi/draft/prefetch.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "faults.h"
#include "tessera/sdk/half.h"

namespace {

using namespace tessera::sdk;
using bad::has;

// Has only rows of bfloat16, which is not a fault.
bool narrow() { return has("keeps_bfloat16") || has("never_updates_bfloat16"); }
DLDataType row_type() { return narrow() ? DLDataType{kDLBfloat, 16, 1} : dtype_of<float>(); }

struct Shard {
  int64_t rows, dim;
  std::vector<float> weights;
  std::vector<std::vector<float>> states;
  std::vector<int64_t> widths;      // widths of the states
  std::vector<uint32_t> updates{};  // per row: the value of its `extra`
};

// The state of one forward.
struct Kept {
  int64_t ids = 0;
  std::vector<std::vector<int64_t>> rows;
  std::vector<std::vector<float>> values;
  std::vector<std::array<int64_t, 2>> shapes;
};

int64_t number(const DLTensor& t, int64_t i) {
  return holds<int64_t>(t) ? data_as<int64_t>(t)[i] : data_as<int32_t>(t)[i];
}

class Instance : public KernelInstance {
 public:
  Instance(Host host, const tsr_kernel_config& config)
      : optimizer_(config.optimizer), max_gradient_(static_cast<float>(config.max_gradient)), memory_(host, 64) {
    if (has("keeps_memory")) {
      Call call;
      if (host.raw()->alloc(host.raw(), {kDLCPU, 0}, 64, nullptr, call.err()) == nullptr)
        fail(TSR_RESOURCE_EXHAUSTED, "no memory");
    }
    if (has("compares_strides") && config.table_stride != sizeof(tsr_kernel_table))
      fail(TSR_INVALID_ARGUMENT, "built for tables of another size");
    for (uint32_t t = 0; t < config.num_tables; ++t) {
      const tsr_kernel_table& table = table_of(config, t);
      Shard s{table.rows, table.dim, std::vector<float>(static_cast<size_t>(table.rows * table.dim)), {}, {}};
      for (uint32_t k = 0; k < optimizer_.num_states(); ++k) {
        s.widths.push_back(optimizer_.state_width(k, table.dim));
        s.states.emplace_back(static_cast<size_t>(table.rows * s.widths[k]),
                              has("starts_states_at_0") ? 0.0f : static_cast<float>(optimizer_.state(k).start));
      }
      s.updates.resize(static_cast<size_t>(s.rows));
      shards_.push_back(std::move(s));
    }
    const char* const rank = std::getenv("RANK");
    if (has("knows_its_rank") && rank != nullptr && *rank == '1') max_gradient_ /= 2;
    lookups_ = std::make_unique<std::atomic<uint64_t>[]>(shards_.size());
    exported_.resize(shards_.size());
  }

  void forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream, tsr_context** context) override {
    for (uint32_t f = 0; f < lookup.num_features; ++f) {
      const tsr_lookup_feature& feature = feature_of(lookup, f);
      const Shard& s = shards_.at(static_cast<size_t>(feature.table));
      if (feature.pooling == TSR_POOLING_MAX) fail(TSR_UNIMPLEMENTED, "bad.kernel has no MAX pooling");
      for_each_bag(lookup, feature, [&](int64_t bag, int64_t begin, int64_t end) {
        if (feature.pooling != TSR_POOLING_NONE && !(has("skips_empty_bags") && begin == end))
          std::fill_n(out(output, feature, bag), s.dim, 0.0f);
        for (int64_t p = begin; p < end; ++p) {
          float* to = out(output, feature, slot(lookup, feature, bag, p));
          if (feature.pooling == TSR_POOLING_NONE) std::fill_n(to, s.dim, 0.0f);
          const float share = share_of(lookup, feature, p, end - begin);
          if (has("forgets_ids_beyond_20") && p - begin >= 20) continue;
          const int64_t id = number(*lookup.ids, p);
          const int64_t row = has("keeps_sixteen_bits") ? static_cast<uint16_t>(id) : id;
          for (int64_t d = 0; d < s.dim; ++d) to[d] += share * weight(s, row)[d];
          if (has("has_one_scratch") && bag == 0) by_way_of_scratch({to, static_cast<size_t>(s.dim)});
          lookups_[static_cast<size_t>(feature.table)] += 1;
        }
      });
    }
    if (has("keeps_each_batch")) batches_.emplace_back(16384);
    if (context == nullptr) return;
    if (has("has_one_context")) {
      only_.ids = numel(*lookup.ids);
      *context = reinterpret_cast<tsr_context*>(&only_);
    } else {
      *context = reinterpret_cast<tsr_context*>(new Kept{numel(*lookup.ids), {}, {}, {}});
    }
  }

  // With the fault, data of other threads ends up in the row.
  void by_way_of_scratch(std::span<float> row) {
    row = row.first(std::min(row.size(), scratch_.size()));
    std::copy(row.begin(), row.end(), scratch_.begin());
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    std::copy_n(scratch_.begin(), row.size(), row.begin());
  }

  void backward(tsr_context* context, const tsr_backward& args, tsr_stream) override {
    if (kept(context).ids != numel(*args.lookup->ids)) fail(TSR_FAILED_PRECONDITION, "backward of another batch");
    gradients_of_weights(args);
    if (has("stops_after_500_updates") && ++calls_ > 500) return;
    const uint32_t passes = has("updates_by_feature") ? args.lookup->num_features : 1;
    for (uint32_t pass = 0; pass < passes; ++pass) {
      for (size_t t = 0; t < shards_.size(); ++t) {
        for (const auto& [row, sum] : sums(args, t, passes > 1 ? pass : UINT32_MAX))
          update(t, row, sum.data(), *args.update);
      }
    }
  }

  void backward_rows(tsr_context* context, const tsr_backward& args, std::span<tsr_row_gradient> out_rows,
                     tsr_stream) override {
    gradients_of_weights(args);
    Kept& k = has("has_one_gradient") ? only_ : kept(context);
    k.rows.assign(shards_.size(), {});
    k.values.assign(shards_.size(), {});
    k.shapes.resize(shards_.size());
    for (size_t t = 0; t < shards_.size(); ++t) {
      for (const auto& [row, sum] : sums(args, t, UINT32_MAX)) {
        k.rows[t].push_back(row);
        k.values[t].insert(k.values[t].end(), sum.begin(), sum.end());
      }
      if (has("hands_out_unsorted_rows") && k.rows[t].size() > 1) std::swap(k.rows[t][0], k.rows[t][1]);
      k.shapes[t] = {static_cast<int64_t>(k.rows[t].size()), shards_[t].dim};
      const DLDevice cpu{kDLCPU, 0};
      out_rows[t].rows = {k.rows[t].data(), cpu, 1, dtype_of<int64_t>(), k.shapes[t].data(), nullptr, 0};
      out_rows[t].values = {k.values[t].data(), cpu, 2, dtype_of<float>(), k.shapes[t].data(), nullptr, 0};
    }
  }

  void apply(uint32_t table, const DLTensor& rows, const DLTensor& values, const tsr_update& how, tsr_stream) override {
    const int64_t count = numel(rows) - (has("applies_255_rows") && numel(rows) > 255 ? 1 : 0);
    for (int64_t i = 0; i < count; ++i)
      update(table, number(rows, i), data_as<float>(values) + i * shards_.at(table).dim, how);
  }
  // Rows that were announced. With the fault, updates made meanwhile are lost, as if a copy replaced a newer row.
  void prefetch(const tsr_lookup& lookup) {
    const std::lock_guard lock(announced_mutex_);
    for (uint32_t i = 0; i < lookup.num_features; ++i) {
      const tsr_lookup_feature& f = feature_of(lookup, i);
      for_each_bag(lookup, f, [&](int64_t, int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) announced_.insert({f.table, number(*lookup.ids, p)});
      });
    }
  }
  void release(tsr_context* context) noexcept override {
    if (!has("has_one_context")) delete &kept(context);
  }

  void read_rows(uint32_t table, tsr_rows& rows) override {
    const Shard& s = shards_.at(table);
    for (int64_t i = 0; i < rows.count; ++i) {
      const int64_t row = has("reads_rows_in_order") ? i % s.rows : data_as<int64_t>(*rows.ids)[i];
      std::copy_n(s.weights.data() + row * s.dim, s.dim, data_as<float>(*rows.weights) + i * s.dim);
      for (uint32_t k = 0; k < rows.num_states; ++k) {
        const int64_t width = optimizer_.state_width(k, s.dim);
        std::copy_n(s.states[k].data() + row * width, width, data_as<float>(*rows.states[k]) + i * width);
      }
    }
  }
  void export_rows(uint32_t table, uint64_t& cursor, tsr_rows& rows) override {
    if (has("exports_a_snapshot") && !exported_[table]) exported_[table] = shards_.at(table);
    const Shard& s = exported_[table] ? *exported_[table] : shards_.at(table);
    const int64_t begin = static_cast<int64_t>(cursor);
    const int64_t last = s.rows - (has("keeps_the_last_row") && s.rows > 0 ? 1 : 0);
    const int64_t n = std::min(numel(*rows.ids), last - begin);
    for (int64_t i = 0; i < n; ++i) {
      data_as<int64_t>(*rows.ids)[i] = begin + i;
      std::copy_n(s.weights.data() + (begin + i) * s.dim, s.dim, data_as<float>(*rows.weights) + i * s.dim);
      for (uint32_t k = 0; k < rows.num_states; ++k)
        std::copy_n(s.states[k].data() + (begin + i) * s.widths[k], s.widths[k],
                    data_as<float>(*rows.states[k]) + i * s.widths[k]);
      if (rows.extra != nullptr) *extra_of(rows, i) = s.updates[static_cast<size_t>(begin + i)];
    }
    rows.count = std::max<int64_t>(n, 0);
    cursor += static_cast<uint64_t>(rows.count);
    if (rows.count == 0) exported_[table].reset();
  }
  void import_rows(uint32_t table, const tsr_rows& rows) override {
    Shard& s = shards_.at(table);
    for (int64_t i = 0; i < rows.count; ++i) {
      const int64_t row = has("imports_in_order") ? i : data_as<int64_t>(*rows.ids)[i];
      std::copy_n(data_as<float>(*rows.weights) + i * s.dim, s.dim, s.weights.data() + row * s.dim);
      for (uint32_t k = 0; k < (has("imports_one_state") ? std::min(rows.num_states, 1u) : rows.num_states); ++k)
        std::copy_n(data_as<float>(*rows.states[k]) + i * s.widths[k], s.widths[k],
                    s.states[k].data() + row * s.widths[k]);
      if (rows.extra != nullptr && !has("forgets_extra")) s.updates[static_cast<size_t>(row)] = *extra_of(rows, i);
    }
  }
  tsr_kernel_stats stats(uint32_t table) override {
    const Shard& s = shards_.at(table);
    tsr_kernel_stats out{};
    out.weight_bytes = s.weights.size() * 4;
    out.lookups = out.hits = lookups_[table];
    out.rows_in_use = static_cast<uint64_t>(s.rows);
    out.extra_bytes = sizeof(uint32_t);
    return out;
  }

 private:
  static uint32_t* extra_of(const tsr_rows& rows, int64_t i) {
    return reinterpret_cast<uint32_t*>(static_cast<char*>(rows.extra) + i * rows.extra_stride);
  }
  static Kept& kept(tsr_context* context) { return *reinterpret_cast<Kept*>(context); }
  static const float* weight(const Shard& s, int64_t row) { return s.weights.data() + row * s.dim; }
  static float* out(const DLTensor& tensor, const tsr_lookup_feature& f, int64_t slot) {
    return data_as<float>(tensor) + f.output_offset + slot * f.output_stride;
  }
  static int64_t slot(const tsr_lookup& lookup, const tsr_lookup_feature& f, int64_t bag, int64_t position) {
    return f.pooling == TSR_POOLING_NONE ? position - number(*lookup.offsets, f.first_offset) : bag;
  }
  static float share_of(const tsr_lookup& lookup, const tsr_lookup_feature& f, int64_t position, int64_t length) {
    const bool weighted = lookup.weights != nullptr && !has("ignores_weights");
    const float w = weighted ? data_as<float>(*lookup.weights)[position] : 1;
    return f.pooling == TSR_POOLING_MEAN && !has("sums_for_mean") ? w / static_cast<float>(length) : w;
  }
  template <class Body>
  static void for_each_bag(const tsr_lookup& lookup, const tsr_lookup_feature& f, Body body) {
    for (int64_t b = 0; b < f.bags; ++b)
      body(b, number(*lookup.offsets, f.first_offset + b), number(*lookup.offsets, f.first_offset + b + 1));
  }

  // Element d of the gradient that reaches the id at a position, before its own share.
  float reaching(const tsr_backward& args, const float* grad, int64_t d) const {
    const float g = grad[d] * static_cast<float>(args.grad_scale);
    return max_gradient_ > 0 && !has("ignores_max_gradient") ? std::clamp(g, -max_gradient_, max_gradient_) : g;
  }

  // Each row's gradient, over all features that read the table, or over one.
  std::map<int64_t, std::vector<float>> sums(const tsr_backward& args, size_t table, uint32_t only) const {
    std::map<int64_t, std::vector<float>> all;
    for (uint32_t i = 0; i < args.lookup->num_features; ++i) {
      const tsr_lookup_feature& f = feature_of(*args.lookup, i);
      if (static_cast<size_t>(f.table) != table || (only != UINT32_MAX && only != i)) continue;
      const Shard& s = shards_[table];
      for_each_bag(*args.lookup, f, [&](int64_t bag, int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) {
          const int64_t row = number(*args.lookup->ids, p);
          if (has("forgets_a_duplicate") && p > begin && row == number(*args.lookup->ids, p - 1)) continue;
          auto& sum = all.try_emplace(row, static_cast<size_t>(s.dim), 0.0f).first->second;
          const float* grad = out(*args.grad_output, f, slot(*args.lookup, f, bag, p));
          const float share = share_of(*args.lookup, f, p, end - begin);
          for (int64_t d = 0; d < s.dim; ++d) sum[static_cast<size_t>(d)] += share * reaching(args, grad, d);
        }
      });
    }
    return all;
  }

  void gradients_of_weights(const tsr_backward& args) const {
    if (args.grad_weights == nullptr || has("forgets_gradients_of_weights")) return;
    for (uint32_t i = 0; i < args.lookup->num_features; ++i) {
      const tsr_lookup_feature& f = feature_of(*args.lookup, i);
      const Shard& s = shards_[static_cast<size_t>(f.table)];
      for_each_bag(*args.lookup, f, [&](int64_t bag, int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) {
          const float* grad = out(*args.grad_output, f, slot(*args.lookup, f, bag, p));
          float dot = 0;
          for (int64_t d = 0; d < s.dim; ++d)
            dot += reaching(args, grad, d) * weight(s, number(*args.lookup->ids, p))[d];
          if (f.pooling == TSR_POOLING_MEAN) dot /= static_cast<float>(end - begin);
          data_as<float>(*args.grad_weights)[p] = dot;
        }
      });
    }
  }

  void update(size_t table, int64_t row, const float* grad, const tsr_update& how) {
    if (has("never_updates_bfloat16") || is_announced(table, row)) return;
    Shard& s = shards_.at(table);
    float* states[OptimizerRef::kMaxStates] = {};
    for (uint32_t k = 0; k < optimizer_.num_states(); ++k) states[k] = s.states[k].data() + row * s.widths[k];
    s.updates[static_cast<size_t>(row)] += 1;
    float* const weights = s.weights.data() + row * s.dim;
    tsr_update now = how;
    if (has("uses_the_rate_before") && how.step != seen_) before_ = std::exchange(last_, how.learning_rate);
    if (has("uses_the_rate_before")) now.learning_rate = before_ > 0 ? before_ : how.learning_rate;
    seen_ = how.step;
    std::vector<float> scaled(grad, grad + s.dim);
    if (has("is_one_percent_off"))
      std::transform(grad, grad + s.dim, scaled.begin(), [](float g) { return g * 1.01f; });
    optimizer_.update_row(now, has("stops_at_column_256") ? std::min<int64_t>(s.dim, 256) : s.dim, weights,
                          scaled.data(), states);
    for (int64_t d = 0; narrow() && d < s.dim; ++d) weights[d] = bfloat16_to_float(float_to_bfloat16(weights[d]));
  }

  bool is_announced(size_t table, int64_t row) {
    const std::lock_guard lock(announced_mutex_);
    return announced_.contains({static_cast<int32_t>(table), row});
  }

  OptimizerRef optimizer_;
  float max_gradient_;
  Buffer memory_;
  std::vector<Shard> shards_;
  std::vector<std::optional<Shard>> exported_;        // set if a snapshot was taken
  std::unique_ptr<std::atomic<uint64_t>[]> lookups_;  // per table; forward may be called by several threads
  std::array<std::atomic<float>, 64> scratch_{};
  Kept only_;
  double before_ = 0, last_ = 0;
  int64_t seen_ = 0, calls_ = 0;
  std::vector<std::vector<char>> batches_;
  std::mutex announced_mutex_;
  std::set<std::pair<int32_t, int64_t>> announced_;  // tables and rows
};

tsr_code prefetch(void* instance, const tsr_lookup* lookup, tsr_stream, tsr_error* err) noexcept {
  return guard(err, [&] { static_cast<Instance&>(*static_cast<KernelInstance*>(instance)).prefetch(*lookup); });
}

// Like Kernel's function except for the fault: the SDK itself refuses unknown flags.
tsr_code forward_whatever_the_flags(void* instance, const tsr_lookup* lookup, const DLTensor* output, tsr_stream stream,
                                    tsr_context** context, tsr_error* err);

class BadPlugins : public Kernel {
 public:
  template <class C>
  static const tsr_kernel table;
  using Instance = ::Instance;
  static constexpr uint32_t kFlags = TSR_KERNEL_FORWARD_ANY_THREAD;
  static constexpr const char* kComputeKernels[] = {"fused", "dense", nullptr};
  static constexpr int32_t kDeviceTypes[] = {kDLCPU, 0};
  explicit BadPlugins(const Setup& setup) : host_(setup.host) {}
  const void* extension(std::string_view id) const {
    static constexpr tsr_prefetch kPrefetch{sizeof(tsr_prefetch), 0, &prefetch};
    return id == TSR_PREFETCH && has("loses_updates_of_prefetched_rows") ? &kPrefetch : nullptr;
  }
  void supports(const tsr_kernel_config& config) const override {
    if (has("supports_anything")) return;
    const std::string_view kernel = config.compute_kernel;
    if (kernel != "fused" && kernel != "dense") fail(TSR_UNIMPLEMENTED, "no compute kernel ", kernel);
    if (config.device.device_type != kDLCPU) fail(TSR_UNIMPLEMENTED, "the CPU alone is served");
    if (!same_dtype(config.weight_dtype, row_type()) || !same_dtype(config.output_dtype, dtype_of<float>()))
      fail(TSR_UNIMPLEMENTED, narrow() ? "rows of bfloat16 alone are served" : "float32 alone is served");
    for (uint32_t t = 0; t < config.num_tables; ++t) {
      const tsr_kernel_table& table = table_of(config, t);
      if (table.options == nullptr) continue;
      fail(TSR_INVALID_ARGUMENT, "table \"", table.name, "\" has the options ", table.options,
           ", but this kernel's tables have none: leave them out");
    }
  }
  std::unique_ptr<KernelInstance> open(const tsr_kernel_config& config) const override {
    supports(config);
    return std::make_unique<::Instance>(host_, config);
  }

 private:
  Host host_;
};

template <class C>
const tsr_kernel BadPlugins::table = [] {
  tsr_kernel t = Kernel::table<C>;
  t.forward = forward_whatever_the_flags;
  t.backward = [](void* instance, tsr_context* context, const tsr_backward* args, tsr_stream stream, tsr_error* err) {
    tsr_backward known = *args;
    tsr_update update = *args->update;
    if (has("ignores_flags_of_updates")) update.flags = 0;
    known.update = &update;
    return Kernel::table<C>.backward(instance, context, &known, stream, err);
  };
  return t;
}();

tsr_code forward_whatever_the_flags(void* instance, const tsr_lookup* lookup, const DLTensor* output, tsr_stream stream,
                                    tsr_context** context, tsr_error* err) {
  tsr_lookup known = *lookup;
  if (has("ignores_flags")) known.flags = 0;
  return Kernel::table<BadPlugins>.forward(instance, &known, output, stream, context, err);
}

}  // namespace

TESSERA_PLUGIN("bad-kernels", "1.0.0",
               component<BadPlugins>(
                   {.id = "bad.kernel", .version = "1.0.0", .about = "has the fault that BAD_PLUGINS_FAULT names"}));
