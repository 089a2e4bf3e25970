// A table of the kernel under test (dynamic, or virtual_table with TESTS_VIRTUAL_TABLES), and the start values of its
// rows.
#pragma once

#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#ifdef TESTS_VIRTUAL_TABLES
#include "../tiered/plain_rows.h"
#include "../virtual_table/virtual_table.h"
#else
#include "dynamic.h"
#endif

namespace extras {

#ifdef TESTS_VIRTUAL_TABLES  // the cache is mostly smaller than the table
using Tested = VirtualTables;
inline const char* const kComputeKernel = "ssd_virtual_table";
constexpr bool kStartsAbsent = false;
inline std::string options_of_test(const std::string& options) {
  return "{\"cache_rows\":450" + std::string(options == "{}" ? "" : ",") + options.substr(1);
}
inline const Kernel& tested_kernel() {
  static const Plain plain;
  static const tsr_component component = [] {
    tsr_component out{};
    out.id = "test.plain";
    out.api = &Kernel::table<Plain>;
    return out;
  }();
  static const tsr_instance inner{&component, const_cast<Plain*>(&plain)};
  static Options none("{}");
  static const VirtualTableKernel kernel(Setup{Host(nullptr), none, &inner});
  return kernel;
}
#else
using Tested = DynamicTables;
inline const char* const kComputeKernel = "dynamic";
constexpr bool kStartsAbsent = true;
inline std::string options_of_test(const std::string& options) { return options; }
inline const Kernel& tested_kernel() {
  static const Dynamic kernel;
  return kernel;
}
#endif

inline int failures = 0;
template <class... Parts>
void expect(bool right, const Parts&... parts) {
  if (right) return;
  if (++failures > 20) return;
  std::ostringstream text;
  (text << ... << parts);
  std::printf("%s\n", text.str().c_str());
}

constexpr int64_t kDim = 20;  // not a multiple of a vector's floats
constexpr float kRate = 0.5f;

inline float start_of(int64_t id, int64_t column) {
  return static_cast<float>(id % 1000) / 1000 + static_cast<float>(column);
}

inline tsr_code fill(void*, uint32_t, int64_t count, const int64_t* rows, float* out, tsr_error*) {
  for (int64_t i = 0; i < count * kDim; ++i) out[i] = start_of(rows[i / kDim], i % kDim);
  return TSR_OK;
}

// An optimizer with w -= rate * g, and a state that starts at 0.25 and counts updates.
inline tsr_code state(void*, uint32_t i, tsr_state* out, tsr_error*) {
  if (i > 0) return TSR_OUT_OF_RANGE;
  *out = {sizeof(tsr_state), TSR_STATE_PER_ROW, dtype_of<float>(), 0, 0.25, "updates"};
  return TSR_OK;
}
inline void update_row(void*, const tsr_update*, int64_t dim, float* weight, const float* grad, float* const* states) {
  for (int64_t d = 0; d < dim; ++d) weight[d] -= kRate * grad[d];
  states[0][0] += 1;
}

inline DLTensor tensor(const void* data, DLDataType type, std::vector<int64_t>& shape) {
  return {const_cast<void*>(data), {kDLCPU, 0}, static_cast<int32_t>(shape.size()), type, shape.data(), nullptr, 0};
}

struct Row {
  std::vector<float> values;
  float updates;
  Table::Extra extra;
};

// One instance with one table.
class Bed {
 public:
  Bed(int64_t rows, const std::string& options, double max_gradient = 0) : options_(options_of_test(options)) {
    optimizer_api_.struct_size = sizeof(optimizer_api_);
    optimizer_api_.state = state;
    optimizer_api_.update_row = update_row;
    component_.id = "counting_sgd";
    component_.api = &optimizer_api_;
    part_.component = &component_;
    table_ = {sizeof(tsr_kernel_table), 0, "t", rows, kDim, options_.c_str(), 0, 0};
    config_.struct_size = sizeof(config_);
    config_.compute_kernel = kComputeKernel;
    config_.device = {kDLCPU, 0};
    config_.weight_dtype = config_.output_dtype = dtype_of<float>();
    config_.num_tables = 1;
    config_.table_stride = sizeof(table_);
    config_.tables = &table_;
    config_.optimizer = &part_;
    config_.max_gradient = max_gradient;
    config_.start_values = &start_;
    tables_ = tested_kernel().open(config_);
  }

  // A lookup with bags of one id each.
  struct Query {
    Query(const std::vector<int64_t>& asked, int64_t step, double time)
        : ids(asked), offsets(asked.size() + 1), n{std::ssize(asked)}, m{std::ssize(offsets)} {
      for (size_t i = 0; i < offsets.size(); ++i) offsets[i] = static_cast<int64_t>(i);
      id_view = tensor(ids.data(), dtype_of<int64_t>(), n);
      offset_view = tensor(offsets.data(), dtype_of<int64_t>(), m);
      feature.pooling = TSR_POOLING_SUM;
      feature.bags = std::ssize(ids);
      feature.output_stride = kDim;
      lookup.struct_size = sizeof(lookup);
      lookup.num_features = 1;
      lookup.feature_stride = sizeof(feature);
      lookup.features = &feature;
      lookup.ids = &id_view;
      lookup.offsets = &offset_view;
      lookup.step = step;
      lookup.time = time;
    }
    Query(const Query&) = delete;
    Query& operator=(const Query&) = delete;
    std::vector<int64_t> ids, offsets, n, m;
    DLTensor id_view{}, offset_view{};
    tsr_lookup_feature feature{};
    tsr_lookup lookup{};
  };

  double time = 0;                // time of the next step, in seconds
  std::function<void()> between;  // called between forward and backward
  // Returns the sums. Unless `grad` is 0, also runs a backward, which gives each id this gradient in all columns.
  std::vector<float> step(int64_t step, const std::vector<int64_t>& ids, bool reads_only = false, float grad = 1) {
    Query query(ids, step, time);
    query.lookup.flags = reads_only ? TSR_LOOKUP_READ_ONLY : 0;
    std::vector<int64_t> shape{std::ssize(ids), kDim};
    std::vector<float> out(ids.size() * kDim), grads(out.size(), grad);
    const DLTensor output = tensor(out.data(), dtype_of<float>(), shape),
                   gradient = tensor(grads.data(), dtype_of<float>(), shape);
    tsr_context* context = nullptr;
    tables_->forward(query.lookup, output, nullptr, reads_only || grad == 0 ? nullptr : &context);
    if (reads_only || grad == 0) return out;
    if (const auto call = std::exchange(between, nullptr)) call();
    const tsr_update update{sizeof(tsr_update), 0, kRate, step};
    const tsr_backward args{sizeof(tsr_backward), 0, &query.lookup, &gradient, nullptr, 1, &update};
    tables_->backward(context, args, nullptr);
    tables_->release(context);
    return out;
  }

  std::map<int64_t, Row> rows() {
    std::map<int64_t, Row> out;
    uint64_t cursor = 0;
    for (Block b(7);;) {
      tables_->export_rows(0, cursor, b.raw);
      if (b.raw.count == 0) return out;
      b.add_to(out);
    }
  }
  std::map<int64_t, Row> changed(int64_t at_once, uint32_t follower = 0) {
    std::map<int64_t, Row> out;
    uint64_t cursor = 0;
    for (Block b(at_once);;) {
      tables().export_changed(follower, 0, cursor, b.raw);
      if (b.raw.count == 0) return out;
      b.add_to(out);
    }
  }
  std::vector<int64_t> removed(int64_t at_once, uint32_t follower = 0) {
    std::vector<int64_t> out;
    uint64_t cursor = 0;
    for (Block b(at_once);;) {
      tables().export_removed(follower, 0, cursor, b.raw);
      if (b.raw.count == 0) return out;
      out.insert(out.end(), b.ids.begin(), b.ids.begin() + b.raw.count);
    }
  }
  void import(const std::map<int64_t, Row>& rows, bool replaces = false) {
    for (const auto& [id, row] : rows) {
      Block b(1);
      b.raw.flags = std::exchange(replaces, false) ? TSR_IMPORT_REPLACE : 0;
      b.ids[0] = id;
      std::copy(row.values.begin(), row.values.end(), b.weights.begin());
      b.updates[0] = row.updates;
      b.extra[0] = row.extra;
      b.raw.count = 1;
      tables_->import_rows(0, b.raw);
    }
  }
  tsr_estimate estimate(int64_t of_rows) const {
    tsr_workload work{};
    work.struct_size = sizeof(work);
    work.rows = of_rows;
    work.dim = kDim;
    work.ids = 100;
    return tested_kernel().estimate(config_, work);
  }
  Tested& tables() { return static_cast<Tested&>(*tables_); }
  tsr_kernel_stats stats() { return tables_->stats(0); }

 private:
  struct Block {
    explicit Block(int64_t count)
        : ids(count), weights(count * kDim), updates(count), extra(count), n{count}, shape{count, kDim} {
      id_view = tensor(ids.data(), dtype_of<int64_t>(), n);
      weight_view = tensor(weights.data(), dtype_of<float>(), shape);
      state_view = tensor(updates.data(), dtype_of<float>(), n);
      raw = {sizeof(tsr_rows), 0, 1, sizeof(Table::Extra), 0, &id_view, &weight_view, &states, extra.data()};
    }
    Block(const Block&) = delete;
    void add_to(std::map<int64_t, Row>& out) const {
      for (int64_t i = 0; i < raw.count; ++i)
        out[ids[i]] = {{weights.begin() + i * kDim, weights.begin() + (i + 1) * kDim}, updates[i], extra[i]};
    }
    std::vector<int64_t> ids;
    std::vector<float> weights, updates;
    std::vector<Table::Extra> extra;
    std::vector<int64_t> n, shape;
    DLTensor id_view, weight_view, state_view;
    const DLTensor* states = &state_view;
    tsr_rows raw;
  };

  const std::string options_;
  tsr_optimizer optimizer_api_{};
  tsr_component component_{};
  tsr_instance part_{};
  tsr_kernel_table table_{};
  const tsr_start_values start_{sizeof(tsr_start_values), 0, nullptr, fill, nullptr};
  tsr_kernel_config config_{};
  std::unique_ptr<KernelInstance> tables_;
};

// The bytes that save_extra() writes, to be added again.
struct Stream {
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  std::string bytes;
  size_t at = 0;
  const tsr_stream_io io{sizeof(tsr_stream_io), 0, this,
                         [](void* self, const void* from, uint64_t size, tsr_error*) -> tsr_code {
                           static_cast<Stream*>(self)->bytes.append(static_cast<const char*>(from), size);
                           return TSR_OK;
                         },
                         [](void* self, void* to, uint64_t size, tsr_error*) -> tsr_code {
                           auto& [all, begin, io] = *static_cast<Stream*>(self);
                           if (begin + size > all.size()) return TSR_DATA_LOSS;
                           std::memcpy(to, all.data() + begin, size);
                           begin += size;
                           return TSR_OK;
                         }};
};

// Draws ids with Zipf-like popularity. Their numbers, up to 2^61, do not follow popularity.
inline std::vector<int64_t> drawn(std::mt19937_64& random, size_t count, int64_t different) {
  std::vector<int64_t> out;
  for (size_t i = 0; i < count; ++i) {
    const double u = std::ldexp(static_cast<double>(random() >> 11), -53);
    const auto rank = static_cast<int64_t>(std::pow(static_cast<double>(different), u));
    out.push_back(static_cast<int64_t>(scrambled(rank) >> 3));
  }
  return out;
}

constexpr int64_t kAnyId = int64_t{1} << 62;

}  // namespace extras
