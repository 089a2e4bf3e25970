// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/inner_kernel.h - for kernels that wrap another one (TSR_KERNEL_WRAPS): the caller's half, in C++.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "tessera/sdk/kernel.h"
#include "tessera/sdk/plain_lookup.h"

namespace tessera::sdk {
inline namespace v1 {

// The wrapped kernel, a component that somebody else made and that must outlive this. Every call throws Failure with
// that kernel's message. It converts to false if there is no component (`inner` of the Setup is NULL).
class InnerKernel {
 public:
  explicit InnerKernel(const tsr_instance* part) : part_(part) {
    if (part_ != nullptr) check_flags(api().flags, TSR_KERNEL_ROWS_ON_DEMAND | TSR_KERNEL_WRAPS, id());
  }
  explicit operator bool() const { return part_ != nullptr; }
  const tsr_kernel& api() const { return *static_cast<const tsr_kernel*>(part_->component->api); }
  const char* id() const { return part_->component->id; }

  void supports(const tsr_kernel_config& config) const {
    Call call;
    call.check(api().supports(part_->self, &config, call.err()));
  }
  tsr_estimate estimate(const tsr_kernel_config& config, const tsr_workload& work) const {
    tsr_estimate out{};
    out.struct_size = sizeof(out);
    Call call;
    const auto* cost = extension_of<tsr_kernel_cost>(*part_, TSR_KERNEL_COST);
    if (TSR_HAS(tsr_kernel_cost, cost, estimate))
      call.check(cost->estimate(part_->self, &config, &work, &out, call.err()));
    return out;
  }

 private:
  friend class InnerInstance;
  const tsr_instance* part_;
};

// Turns a question about a wrapper's table into one for the inner kernel: a table of `rows` numbered rows, started by
// the wrapper. The result borrows from both and must not be moved.
inline tsr_kernel_table inner_table(const tsr_kernel_table& asked, int64_t rows) {
  return {sizeof(tsr_kernel_table), 0, asked.name, rows, asked.dim, nullptr, asked.poolings, 0};
}
struct InnerConfig {
  InnerConfig(const tsr_kernel_config& config, const tsr_kernel_table& asked, int64_t rows)
      : table(inner_table(asked, rows)), raw(read_struct(config)) {
    raw.compute_kernel = TSR_COMPUTE_FUSED;
    raw.num_tables = 1;
    raw.table_stride = sizeof(tsr_kernel_table);
    raw.tables = &table;
    raw.start_values = nullptr;
  }
  InnerConfig(const InnerConfig&) = delete;
  InnerConfig& operator=(const InnerConfig&) = delete;
  tsr_kernel_table table;
  tsr_kernel_config raw;
};

// An instance of the inner kernel, closed by the destructor. It has the functions of abi/kernel.h, for its first table.
class InnerInstance {
 public:
  InnerInstance(const InnerKernel& kernel, const tsr_kernel_config& config) : api_(&kernel.api()) {
    Call call;
    call.check(api_->open(kernel.part_->self, &config, &raw_, call.err()));
  }
  ~InnerInstance() {
    if (raw_ != nullptr) api_->close(raw_);
  }
  InnerInstance(InnerInstance&& other) noexcept : api_(other.api_), raw_(std::exchange(other.raw_, nullptr)) {}
  InnerInstance& operator=(InnerInstance&&) = delete;

  void forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream stream, tsr_context** context) const {
    Call call;
    call.check(api_->forward(raw_, &lookup, &output, stream, context, call.err()));
  }
  void backward(tsr_context* context, const tsr_backward& args, tsr_stream stream) const {
    Call call;
    call.check(api_->backward(raw_, context, &args, stream, call.err()));
  }
  void release(tsr_context* context) const noexcept { api_->release(raw_, context); }
  // Exports rows from number `cursor` on.
  void export_rows(uint64_t cursor, tsr_rows& rows) const {
    Call call;
    call.check(api_->export_rows(raw_, 0, &cursor, &rows, call.err()));
  }
  void import_rows(const tsr_rows& rows) const {
    Call call;
    call.check(api_->import_rows(raw_, 0, &rows, call.err()));
  }
  // Reads the rows that rows.ids names.
  void read_rows(tsr_rows& rows) const {
    if (!TSR_HAS(tsr_kernel, api_, read_rows)) fail(TSR_UNIMPLEMENTED, "the wrapped kernel cannot read named rows");
    Call call;
    call.check(api_->read_rows(raw_, 0, &rows, call.err()));
  }
  tsr_kernel_stats stats() const {
    tsr_kernel_stats out{};
    out.struct_size = sizeof(out);
    Call call;
    call.check(api_->stats(raw_, 0, &out, call.err()));
    return out;
  }

 private:
  const tsr_kernel* api_;
  void* raw_ = nullptr;
};

// A lookup's request to one table of a wrapper, which keeps it from forward to backward.
struct InnerAsk {
  uint32_t table = 0;                        // the wrapper's table
  std::vector<tsr_lookup_feature> features;  // features that read it, for the inner kernel
  std::vector<int64_t> rows;                 // the rows of their ids, feature by feature; filled by the wrapper
  tsr_context* context = nullptr;            // from the inner kernel's forward, if there was one

  // Takes the features that read `own` and have bags, in the lookup's order, as features of the inner kernel's table
  // `inner`. False: there are none.
  bool take(const tsr_lookup& lookup, uint32_t own, int32_t inner = 0) {
    table = own;
    features.clear();
    for (uint32_t f = 0; f < lookup.num_features; ++f) {
      const tsr_lookup_feature& feature = feature_of(lookup, f);
      if (feature.table != static_cast<int32_t>(own) || feature.bags == 0) continue;
      features.push_back(feature);
      features.back().table = inner;
    }
    return !features.empty();
  }
  // Reads the ids of these features into `out`, feature by feature.
  void read_ids(const tsr_lookup& lookup, std::vector<int64_t>& out) const {
    out.clear();
    for (const tsr_lookup_feature& f : features) {
      const int64_t begin = integer_at(*lookup.offsets, f.first_offset);
      const int64_t end = integer_at(*lookup.offsets, f.first_offset + f.bags);
      if (holds<int64_t>(*lookup.ids)) {
        const int64_t* const all = data_as<int64_t>(*lookup.ids);
        out.insert(out.end(), all + begin, all + end);
      } else {
        for (int64_t p = begin; p < end; ++p) out.push_back(integer_at(*lookup.ids, p));
      }
    }
  }
};

// A lookup for the inner kernel with rows in place of ids. One object serves all tables of an instance, one after the
// other, even if two of them read the same positions. It only allocates for a lookup with more ids than any before.
class InnerLookup {
 public:
  // The result is valid until the next call, as long as both arguments live and `ask` does not change.
  tsr_lookup of(const tsr_lookup& lookup, const InnerAsk& ask) {
    ids_.resize(static_cast<size_t>(numel(*lookup.ids)));
    auto row = ask.rows.begin();
    for (const tsr_lookup_feature& f : ask.features) {
      const int64_t begin = integer_at(*lookup.offsets, f.first_offset);
      const int64_t count = integer_at(*lookup.offsets, f.first_offset + f.bags) - begin;
      std::copy_n(row, count, ids_.begin() + begin);
      row += count;
    }
    view_ = *lookup.ids;
    view_.data = ids_.data();
    view_.dtype = dtype_of<int64_t>();
    view_.byte_offset = 0;
    tsr_lookup out = read_struct(lookup);
    out.ids = &view_;
    out.features = ask.features.data();
    out.num_features = static_cast<uint32_t>(ask.features.size());
    out.feature_stride = sizeof(tsr_lookup_feature);
    return out;
  }

 private:
  std::vector<int64_t> ids_;
  DLTensor view_{};
};

}  // namespace v1
}  // namespace tessera::sdk
