// Kernels that make their own rows: a map of rows that are created when training first looks them up, and a table
// without stored rows, which are products of two small ones ("compositional embeddings", Shi et al., 2019).
#include <algorithm>
#include <map>

#include "faults.h"
#include "tessera/sdk/cost.h"
#include "tessera/sdk/kernel.h"
#include "tessera/sdk/options.h"
#include "tessera/sdk/plain_lookup.h"

namespace {

using namespace tessera::sdk;
using bad::has;

// A row and its optimizer states, one after the other.
using Values = std::vector<float>;

// The common base: lookups and gradients in plain loops over rows that a subclass keeps.
class RowMaker : public KernelInstance {
 public:
  explicit RowMaker(const tsr_kernel_config& config)
      : start_(config), optimizer_(config.optimizer), max_gradient_(static_cast<float>(config.max_gradient)) {
    for (uint32_t t = 0; t < config.num_tables; ++t) {
      rows_.push_back(table_of(config, t).rows);
      dims_.push_back(table_of(config, t).dim);
    }
    lookups_.resize(dims_.size());
    hits_.resize(dims_.size());
  }

  void forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream, tsr_context** context) override {
    const bool reads_only = (lookup.flags & TSR_LOOKUP_READ_ONLY) != 0 && !has("inserts_when_reading");
    float* const out = data_as<float>(output);
    for (uint32_t f = 0; f < lookup.num_features; ++f) {
      const tsr_lookup_feature& feature = feature_of(lookup, f);
      const auto table = static_cast<size_t>(feature.table);
      Values row(static_cast<size_t>(dims_[table]));
      clear_output(lookup, feature, dims_[table], out);
      for_each_entry(lookup, feature, [&](const LookupEntry& e) {
        hits_[table] += read(table, e.row, reads_only, row) ? 1 : 0;
        lookups_[table] += 1;
        for (size_t d = 0; d < row.size(); ++d) out[e.place + static_cast<int64_t>(d)] += e.share * row[d];
      });
    }
    if (context != nullptr) *context = reinterpret_cast<tsr_context*>(this);  // backward needs only the lookup
  }
  void release(tsr_context*) noexcept override {}

  void backward(tsr_context*, const tsr_backward& args, tsr_stream) override {
    std::vector<std::map<int64_t, Values>> sums(dims_.size());
    for (uint32_t f = 0; f < args.lookup->num_features; ++f) {
      const tsr_lookup_feature& feature = feature_of(*args.lookup, f);
      const auto table = static_cast<size_t>(feature.table);
      Values row(static_cast<size_t>(dims_[table]));
      for_each_entry(*args.lookup, feature, [&](const LookupEntry& e) {
        const auto reaching = [&](size_t d) { return gradient_at(args, e, static_cast<int64_t>(d), max_gradient_); };
        Values& sum = sums[table].try_emplace(e.row, row.size()).first->second;
        for (size_t d = 0; d < row.size(); ++d) sum[d] += e.share * reaching(d);
        if (args.grad_weights == nullptr) return;
        read(table, e.row, true, row);
        float& out = data_as<float>(*args.grad_weights)[e.position] = 0;
        for (size_t d = 0; d < row.size(); ++d) out += reaching(d) * row[d] / e.length;
      });
    }
    for (size_t t = 0; t < sums.size(); ++t) update(t, sums[t], *args.update);
  }

 protected:
  // Copies the row to `row`; returns true if it already existed. If it does not exist and must not be made, gives
  // zeros.
  virtual bool read(size_t table, int64_t id, bool reads_only, Values& row) = 0;
  virtual void update(size_t table, const std::map<int64_t, Values>& gradients, const tsr_update& how) = 0;

  int64_t width(size_t table) const {  // of a row with its states
    int64_t out = dims_[table];
    for (uint32_t k = 0; k < optimizer_.num_states(); ++k) out += state_width(table, k);
    return out;
  }
  int64_t state_width(size_t table, uint32_t k) const { return optimizer_.state_width(k, dims_[table]); }
  void update_row(size_t table, Values& row, const float* gradient, const tsr_update& how) {
    float* states[OptimizerRef::kMaxStates] = {};
    float* at = row.data() + dims_[table];
    for (uint32_t k = 0; k < optimizer_.num_states(); at += state_width(table, k++)) states[k] = at;
    optimizer_.update_row(how, dims_[table], row.data(), gradient, states);
  }
  Values new_row(size_t table, int64_t id) const {
    Values out(static_cast<size_t>(width(table)));
    start_.fill(static_cast<uint32_t>(table), {&id, 1}, dims_[table], out.data());
    float* at = out.data() + dims_[table];
    for (uint32_t k = 0; k < optimizer_.num_states(); ++k)
      at = std::fill_n(at, state_width(table, k), static_cast<float>(optimizer_.state(k).start));
    return out;
  }
  tsr_kernel_stats counted(size_t table, size_t rows) const {
    tsr_kernel_stats out{};
    out.weight_bytes = rows * static_cast<size_t>(dims_[table]) * sizeof(float);
    out.state_bytes = rows * static_cast<size_t>(width(table) - dims_[table]) * sizeof(float);
    out.rows_in_use = rows;
    out.lookups = lookups_[table];
    out.hits = hits_[table];
    return out;
  }

  StartValues start_;
  OptimizerRef optimizer_;
  float max_gradient_;
  std::vector<int64_t> rows_, dims_;
  std::vector<uint64_t> lookups_, hits_;
};

// Reads the options of a table; refuses unknown ones.
Options options_of(const tsr_kernel_table& table) { return Options(table.options == nullptr ? "{}" : table.options); }

void check_common(const tsr_kernel_config& config, std::string_view kernel) {
  OptimizerRef(config.optimizer).check_states();
  if (config.compute_kernel != kernel) fail(TSR_UNIMPLEMENTED, "no compute kernel ", config.compute_kernel);
  if (config.device.device_type != kDLCPU) fail(TSR_UNIMPLEMENTED, "the CPU alone is served");
  if (!same_dtype(config.weight_dtype, dtype_of<float>()) || !same_dtype(config.output_dtype, dtype_of<float>()))
    fail(TSR_UNIMPLEMENTED, "float32 alone is served");
  for (uint32_t t = 0; t < config.num_tables; ++t) {
    if ((table_of(config, t).poolings & 1u << TSR_POOLING_MAX) != 0)
      fail(TSR_UNIMPLEMENTED, "table \"", table_of(config, t).name, "\" is pooled by MAX, which is not served");
  }
}

// Rows in a map; `extra` counts a row's lookups in training.
class Map : public RowMaker {
 public:
  explicit Map(const tsr_kernel_config& config) : RowMaker(config), tables_(config.num_tables) {
    for (uint32_t t = 0; t < config.num_tables; ++t) capacity_.push_back(capacity_of(table_of(config, t)));
  }
  static int64_t capacity_of(const tsr_kernel_table& table) {
    Options options = options_of(table);
    const int64_t out = options.integer("capacity", int64_t{1} << 52);
    options.finish();
    if (out < 1) fail(TSR_INVALID_ARGUMENT, "table \"", table.name, "\" has capacity ", out, ", but needs 1 or more");
    return out;
  }

  // The cursor is the last exported id plus one.
  void export_rows(uint32_t table, uint64_t& cursor, tsr_rows& rows) override {
    rows.count = 0;
    auto& all = tables_.at(table);
    for (auto at = all.lower_bound(static_cast<int64_t>(cursor)); at != all.end() && rows.count < numel(*rows.ids);
         ++at, ++rows.count) {
      data_as<int64_t>(*rows.ids)[rows.count] = at->first;
      move(table, rows, rows.count, at->second,
           [](auto* mine, auto* theirs, int64_t n) { std::copy_n(mine, n, theirs); });
      cursor = static_cast<uint64_t>(at->first) + 1;
    }
  }
  void import_rows(uint32_t table, const tsr_rows& rows) override {
    if ((rows.flags & TSR_IMPORT_REPLACE) != 0 && !has("keeps_replaced_rows")) tables_.at(table).clear();
    for (int64_t i = 0; i < rows.count; ++i) {
      Row& row = made(table, data_as<int64_t>(*rows.ids)[i]);
      move(table, rows, i, row, [](auto* mine, auto* theirs, int64_t n) { std::copy_n(theirs, n, mine); });
    }
  }
  tsr_kernel_stats stats(uint32_t table) override {
    tsr_kernel_stats out = counted(table, tables_.at(table).size());
    out.extra_bytes = sizeof(uint32_t);
    return out;
  }

 protected:
  bool read(size_t table, int64_t id, bool reads_only, Values& row) override {
    const auto at = tables_[table].find(id);
    const bool there = at != tables_[table].end();
    if (!there && reads_only) return std::fill(row.begin(), row.end(), 0.0f), false;
    Row& found = there ? at->second : made(table, id);
    found.lookups += reads_only ? 0 : 1;
    std::copy_n(found.values.begin(), row.size(), row.begin());
    return there;
  }
  void update(size_t table, const std::map<int64_t, Values>& gradients, const tsr_update& how) override {
    for (const auto& [id, gradient] : gradients) update_row(table, made(table, id).values, gradient.data(), how);
  }

 private:
  struct Row {
    Values values;
    uint32_t lookups = 0;
  };
  Row& made(size_t table, int64_t id) {
    const auto [at, is_new] = tables_[table].try_emplace(id);
    if (!is_new) return at->second;
    if (static_cast<int64_t>(tables_[table].size()) > capacity_[table]) {
      tables_[table].erase(at);
      fail(TSR_RESOURCE_EXHAUSTED, "table ", table, " has its capacity of ", capacity_[table], " rows: give it more");
    }
    at->second.values = new_row(table, id);
    if (has("forgets_start_values")) std::fill(at->second.values.begin(), at->second.values.end(), 0.0f);
    return at->second;
  }
  template <class Copy>
  void move(size_t table, const tsr_rows& rows, int64_t i, Row& row, Copy copy) {
    float* at = row.values.data();
    copy(at, data_as<float>(*rows.weights) + i * dims_[table], dims_[table]);
    at += dims_[table];
    for (uint32_t k = 0; k < rows.num_states; at += state_width(table, k++))
      copy(at, data_as<float>(*rows.states[k]) + i * state_width(table, k), state_width(table, k));
    if (rows.extra == nullptr) return;
    copy(&row.lookups, reinterpret_cast<uint32_t*>(static_cast<char*>(rows.extra) + i * rows.extra_stride), 1);
  }

  std::vector<std::map<int64_t, Row>> tables_;
  std::vector<int64_t> capacity_;
};

class OnDemand : public Kernel {
 public:
  using Instance = Map;
  static constexpr const char* kComputeKernels[] = {"bad.on_demand", nullptr};
  static constexpr int32_t kDeviceTypes[] = {kDLCPU, 0};
  static constexpr uint32_t kFlags = TSR_KERNEL_ROWS_ON_DEMAND;
  void supports(const tsr_kernel_config& config) const override {
    check_common(config, kComputeKernels[0]);
    for (uint32_t t = 0; t < config.num_tables; ++t) Map::capacity_of(table_of(config, t));
  }
  std::unique_ptr<KernelInstance> open(const tsr_kernel_config& config) const override {
    supports(config);
    return std::make_unique<Map>(config);
  }
  tsr_estimate estimate(const tsr_kernel_config& config, const tsr_workload& work) const override {
    tsr_estimate out{};
    const tsr_kernel_table& shard = table_of(config, 0);
    const auto rows = static_cast<double>(std::min(shard.rows, Map::capacity_of(shard)));
    out.bytes = static_cast<uint64_t>(part_of_shard(shard, work) * rows * static_cast<double>(work.dim * 4));
    out.forward_seconds = out.backward_seconds = 1e-7 * work.ids;
    return out;
  }
};

// Row r is left[r / radix] times right[r % radix], element by element.
class Products : public RowMaker {
 public:
  explicit Products(const tsr_kernel_config& config) : RowMaker(config), tables_(config.num_tables) {
    for (uint32_t t = 0; t < config.num_tables; ++t) {
      Table& table = tables_[t];
      table.radix = radix_of(table_of(config, t));
      for (int64_t q = 0; q * table.radix < rows_[t]; ++q) table.left.push_back(new_row(t, q * table.radix));
      for (int64_t r = 0; r < std::min(table.radix, rows_[t]); ++r) {
        table.right.push_back(new_row(t, r));
        for (int64_t d = 0; d < dims_[t]; ++d) table.right.back()[static_cast<size_t>(d)] += 1;
      }
    }
  }
  static int64_t radix_of(const tsr_kernel_table& table) {
    Options options = options_of(table);
    const int64_t out = options.integer("radix", 16);
    options.finish();
    if (out < 1) fail(TSR_INVALID_ARGUMENT, "table \"", table.name, "\" has radix ", out, ", but needs 1 or more");
    return out;
  }
  tsr_kernel_stats stats(uint32_t table) override {
    tsr_kernel_stats out = counted(table, tables_.at(table).left.size() + tables_[table].right.size());
    out.rows_in_use = static_cast<uint64_t>(rows_[table]);
    return out;
  }

 protected:
  bool read(size_t table, int64_t id, bool, Values& row) override {
    const auto [left, right] = factors(table, id);
    for (size_t d = 0; d < row.size(); ++d) row[d] = (*left)[d] * (*right)[d];
    return true;
  }
  void update(size_t table, const std::map<int64_t, Values>& gradients, const tsr_update& how) override {
    std::map<Values*, Values> sums;
    for (const auto& [id, gradient] : gradients) {
      const auto [left, right] = factors(table, id);
      for (const auto& [to, other] : {std::pair(left, right), std::pair(right, left)}) {
        Values& sum = sums.try_emplace(to, gradient.size()).first->second;
        for (size_t d = 0; d < gradient.size(); ++d) sum[d] += gradient[d] * (*other)[d];
      }
    }
    for (const auto& [row, sum] : sums) update_row(table, *row, sum.data(), how);
  }

 private:
  struct Table {
    int64_t radix = 1;
    std::vector<Values> left, right;
  };
  std::pair<Values*, Values*> factors(size_t table, int64_t id) {
    Table& t = tables_[table];
    return {&t.left.at(static_cast<size_t>(id / t.radix)), &t.right.at(static_cast<size_t>(id % t.radix))};
  }
  template <class Body>
  void for_each_row(uint32_t table, Body body) {
    for (std::vector<Values>* part : {&tables_.at(table).left, &tables_[table].right}) {
      for (Values& row : *part) body(row);
    }
  }
  std::vector<Table> tables_;
};

class NoRows : public Kernel {
 public:
  using Instance = Products;
  static constexpr const char* kComputeKernels[] = {"bad.products", nullptr};
  static constexpr int32_t kDeviceTypes[] = {kDLCPU, 0};
  void supports(const tsr_kernel_config& config) const override {
    check_common(config, kComputeKernels[0]);
    for (uint32_t t = 0; t < config.num_tables; ++t) Products::radix_of(table_of(config, t));
  }
  std::unique_ptr<KernelInstance> open(const tsr_kernel_config& config) const override {
    supports(config);
    return std::make_unique<Products>(config);
  }
  tsr_estimate estimate(const tsr_kernel_config& config, const tsr_workload& work) const override {
    const tsr_kernel_table& shard = table_of(config, 0);
    const int64_t radix = Products::radix_of(shard);
    const int64_t products = shard.rows / radix + radix;
    const auto rows = static_cast<double>(products);
    const double part = has("counts_again_in_each_part") ? 1 : part_of_shard(shard, work);
    tsr_estimate out{};
    out.bytes = static_cast<uint64_t>(part * rows * static_cast<double>(work.dim * 4));
    out.forward_seconds = out.backward_seconds = 1e-7 * work.ids;
    return out;
  }
};

}  // namespace

TESSERA_PLUGIN("bad-row-makers", "1.0.0",
               component<OnDemand>({.id = "bad.on_demand", .version = "1.0.0", .about = "rows appear on demand"}),
               component<NoRows>({.id = "bad.products", .version = "1.0.0", .about = "no rows, but two small tables"}));
