// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/kernel.h - base classes of a compute kernel: Kernel opens instances, KernelInstance owns rows.
//
// abi/kernel.h is the specification of every function. These classes only add ownership, exceptions and absent
// functions; flags that this header does not know are refused before a function is called. A class C : Kernel declares
// its instance's class and what it serves:
//   using Instance = MyInstance;                                              // : KernelInstance
//   static constexpr const char* kComputeKernels[] = {"fused", "dense", nullptr};
//   static constexpr int32_t kDeviceTypes[] = {kDLCPU, 0};
//   static constexpr uint32_t kFlags = TSR_KERNEL_PLACES_ROWS;              // optional
//   static constexpr const char* kRowFormats[] = {"acme.mx4", nullptr};     // optional: besides plain values
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tessera/abi/draft/cost.h"
#include "tessera/abi/kernel.h"
#include "tessera/sdk/plugin.h"
#include "tessera/sdk/structs.h"
#include "tessera/sdk/tensor.h"

namespace tessera::sdk {
inline namespace v1 {

// Element i of an array whose owner may have a longer struct.
template <class T>
const T& strided(const T* array, uint32_t stride, size_t i) {
  return *reinterpret_cast<const T*>(reinterpret_cast<const char*>(array) + size_t{stride} * i);
}
inline const tsr_kernel_table& table_of(const tsr_kernel_config& config, size_t i) {
  return strided(config.tables, config.table_stride, i);
}
inline const tsr_lookup_feature& feature_of(const tsr_lookup& lookup, size_t i) {
  return strided(lookup.features, lookup.feature_stride, i);
}

// The tensor with a feature's rows or their gradients; `first` is the lookup's first one.
inline const DLTensor& output_of(const tsr_lookup& lookup, const tsr_lookup_feature& feature, const DLTensor& first) {
  return lookup.num_outputs > 1 ? (&first)[feature.output] : first;
}

// Start values of rows that a kernel makes itself, and the place of a shard in its table. Its calls look nothing up.
class StartValues {
 public:
  explicit StartValues(const tsr_kernel_config& config) : raw_(config.start_values) {
    if (raw_ != nullptr) check_flags(raw_->flags, 0, "tsr_start_values");
  }
  // Fills out [rows.size(), dim]; zeros if the host gives none.
  void fill(uint32_t table, std::span<const int64_t> rows, int64_t dim, float* out) const {
    if (raw_ == nullptr) {
      std::fill_n(out, static_cast<int64_t>(rows.size()) * dim, 0.0f);
      return;
    }
    Call call;
    call.check(raw_->fill(raw_->self, table, static_cast<int64_t>(rows.size()), rows.data(), out, call.err()));
  }
  // The formula of a table's start values, with the first row and column of the shard. Empty if the host gives none,
  // or if the table's rows are routed.
  std::optional<tsr_start_formula> formula(uint32_t table) const {
    if (!TSR_HAS(tsr_start_values, raw_, formula)) return std::nullopt;
    tsr_start_formula out{};
    out.struct_size = sizeof(out);
    Call call;
    const tsr_code code = raw_->formula(raw_->self, table, &out, call.err());
    if (code == TSR_UNIMPLEMENTED) return std::nullopt;
    call.check(code);
    return out;
  }

 private:
  const tsr_start_values* raw_;
};

// The optimizer of a config. Its calls look nothing up. `raw` may be NULL: nothing is updated.
class OptimizerRef {
 public:
  static constexpr uint32_t kMaxStates = 8;  // the most that check_states() allows
  OptimizerRef() = default;
  explicit OptimizerRef(const tsr_instance* raw)
      : api_(raw == nullptr ? nullptr : static_cast<const tsr_optimizer*>(raw->component->api)),
        self_(raw == nullptr ? nullptr : raw->self),
        id_(raw == nullptr ? "" : raw->component->id) {
    if (api_ != nullptr) check_flags(api_->flags, 0, id_);
    if (!TSR_HAS(tsr_optimizer, api_, state)) return;
    for (;; ++num_states_) {
      tsr_state state{};
      state.struct_size = sizeof(state);
      Call call;
      const tsr_code code = api_->state(self_, num_states_, &state, call.err());
      if (code == TSR_OUT_OF_RANGE) return;
      call.check(code);
      if (num_states_ == kMaxStates)
        fail(TSR_UNIMPLEMENTED, "optimizer \"", id_, "\" has more than ", kMaxStates,
             " states, which is the most that are kept");
      check_flags(state.flags, 0, "a state of an optimizer");
      states_[num_states_] = state;
    }
  }
  bool updates() const { return TSR_HAS(tsr_optimizer, api_, update_row); }
  // The formula's name, for kernels that compute it (tsr_optimizer::formula). "": it has no name.
  std::string_view formula() const { return TSR_HAS(tsr_optimizer, api_, formula) ? api_->formula : ""; }
  const char* id() const { return id_; }  // for messages, never for decisions
  uint32_t num_states() const { return num_states_; }
  const tsr_state& state(uint32_t i) const { return states_[i]; }
  // Number of values of state i for one row of `dim` elements.
  int64_t state_width(uint32_t i, int64_t dim) const { return states_[i].kind == TSR_STATE_PER_ELEMENT ? dim : 1; }
  // Refuses optimizers with other states than float32 per row or per element; a kernel calls it in `supports`.
  void check_states() const {
    for (uint32_t i = 0; i < num_states_; ++i) {
      const tsr_state& s = states_[i];
      if (s.kind != TSR_STATE_PER_ROW && s.kind != TSR_STATE_PER_ELEMENT)
        fail(TSR_UNIMPLEMENTED, "optimizer \"", id_, "\" has a state \"", s.name, "\" of kind ", s.kind,
             ", but states are kept per row (0) and per element (1)");
      if (!same_dtype(s.dtype, dtype_of<float>()))
        fail(TSR_UNIMPLEMENTED, "optimizer \"", id_, "\" has a state \"", s.name, "\" of DLPack type code ",
             int{s.dtype.code}, " with ", int{s.dtype.bits}, " bits, but states are kept as float32");
    }
  }
  void update_row(const tsr_update& update, int64_t dim, float* weight, const float* grad, float* const* states) const {
    if (!updates()) fail(TSR_FAILED_PRECONDITION, "the kernel was opened without an optimizer that updates rows");
    api_->update_row(self_, &update, dim, weight, grad, states);
  }
  // Updates `count` different rows; states[k * count + i]. Uses one call if the optimizer can, otherwise one per row.
  void update_rows(const tsr_update& update, int64_t dim, int64_t count, float* const* weights,
                   const float* const* grads, float* const* states) const {
    if (TSR_HAS(tsr_optimizer, api_, update_rows)) {
      api_->update_rows(self_, &update, dim, count, weights, grads, states);
      return;
    }
    float* row_states[kMaxStates] = {};
    for (int64_t i = 0; i < count; ++i) {
      for (uint32_t k = 0; k < num_states_; ++k) row_states[k] = states[k * count + i];
      update_row(update, dim, weights[i], grads[i], row_states);
    }
  }

 private:
  const tsr_optimizer* api_ = nullptr;
  void* self_ = nullptr;
  const char* id_ = "";
  uint32_t num_states_ = 0;
  std::array<tsr_state, kMaxStates> states_{};
};

class KernelInstance {
 public:
  virtual ~KernelInstance() = default;
  // `output`: the only one, or the first of several (kFlags): see output_of. `context` NULL: no backward follows.
  virtual void forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream stream, tsr_context** context) = 0;
  virtual void release(tsr_context* context) noexcept = 0;
  virtual tsr_kernel_stats stats(uint32_t table) = 0;

  // These are optional: the table has the function if it is overridden.
  virtual void backward(tsr_context*, const tsr_backward&, tsr_stream) {}
  virtual void backward_rows(tsr_context*, const tsr_backward&, std::span<tsr_row_gradient> /*one per table*/,
                             tsr_stream) {}
  virtual void apply(uint32_t /*table*/, const DLTensor& /*rows*/, const DLTensor& /*values*/, const tsr_update&,
                     tsr_stream) {}
  virtual void export_rows(uint32_t /*table*/, uint64_t& /*cursor*/, tsr_rows&) {}
  virtual void import_rows(uint32_t /*table*/, const tsr_rows&) {}
  virtual void adopt_rows(uint32_t /*table*/, const tsr_stored_rows&) {}
  virtual void read_rows(uint32_t /*table*/, tsr_rows&) {}

  uint32_t num_tables() const { return num_tables_; }

 private:
  friend class Kernel;
  uint32_t num_tables_ = 0;
  std::string row_format_;  // of the config; empty: plain values
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  // Throws Failure with the reason if the kernel cannot serve it. Allocates nothing large.
  virtual void supports(const tsr_kernel_config& config) const = 0;
  // Returns a new instance with initial states and zero rows, except for rows that it makes itself (StartValues); never
  // null.
  virtual std::unique_ptr<KernelInstance> open(const tsr_kernel_config& config) const = 0;
  // Optional, for the draft tessera.kernel.cost. `work` has every member; those that the host does not know are 0.
  virtual tsr_estimate estimate(const tsr_kernel_config&, const tsr_workload&) const { return {}; }

  static constexpr const char* kKind = TSR_KERNEL_KIND;
  template <class C>
  static const tsr_kernel table;
  // The draft tables that the base class provides.
  template <class C>
  static const void* base_extension(std::string_view id) {
    static constexpr tsr_kernel_cost kCost{sizeof(tsr_kernel_cost), 0, &estimate_slot<C>};
    return detail::overrides(&C::estimate, &Kernel::estimate) && id == TSR_KERNEL_COST ? &kCost : nullptr;
  }

 private:
  static KernelInstance& instance_of(void* instance) { return *static_cast<KernelInstance*>(instance); }
  template <class C>
  static constexpr bool rows_on_demand() {
    if constexpr (requires { C::kFlags; }) return (C::kFlags & TSR_KERNEL_ROWS_ON_DEMAND) != 0;
    return false;
  }
  template <class C>
  static const tsr_kernel_config& known(const tsr_kernel_config& config) {
    check_flags(config.flags, 0, "tsr_kernel_config");
    for (uint32_t t = 0; t < config.num_tables; ++t)
      check_flags(table_of(config, t).flags, rows_on_demand<C>() ? TSR_TABLE_ANY_ID : 0, "tsr_kernel_table");
    const tsr_start_values* start = read_struct(config).start_values;
    if (start != nullptr) check_flags(start->flags, 0, "tsr_start_values");
    const char* format = read_struct(config).row_format;
    if (format != nullptr && !stores<C>(format))
      fail(TSR_UNIMPLEMENTED, "rows of the format \"", format, "\" are not known to this kernel");
    return config;
  }
  template <class C>
  static bool stores([[maybe_unused]] std::string_view format) {
    if constexpr (requires { C::kRowFormats; }) {
      for (const char* const* known = C::kRowFormats; *known != nullptr; ++known) {
        if (format == *known) return true;
      }
    }
    return false;
  }
  static const tsr_lookup& known(const tsr_lookup& lookup) {
    check_flags(lookup.flags, TSR_LOOKUP_READ_ONLY, "tsr_lookup");
    return lookup;
  }
  static const tsr_backward& known(const tsr_backward& args) {
    check_flags(args.flags, 0, "tsr_backward");
    known(*args.lookup);
    if (args.update != nullptr) known(*args.update);
    return args;
  }
  static const tsr_update& known(const tsr_update& update) {
    check_flags(update.flags, 0, "tsr_update");
    return update;
  }
  static tsr_rows& known(tsr_rows& rows) {
    check_flags(rows.flags, 0, "tsr_rows");
    return rows;
  }
  static const tsr_stored_rows& known(const tsr_stored_rows& rows, const std::string& format) {
    check_flags(rows.flags, 0, "tsr_stored_rows");
    const char* const given = read_struct(rows).row_format;
    if (format != (given == nullptr ? "" : given))
      fail(TSR_INVALID_ARGUMENT, "the stored rows have the format \"", given == nullptr ? "" : given,
           "\", but the kernel was opened for \"", format, '"');
    return rows;
  }

  template <class C>
  static tsr_code supports_slot(void* self, const tsr_kernel_config* config, tsr_error* why) noexcept {
    return guard(why, [&] { static_cast<const C*>(self)->supports(known<C>(*config)); });
  }
  template <class C>
  static tsr_code estimate_slot(void* self, const tsr_kernel_config* config, const tsr_workload* workload,
                                tsr_estimate* estimate, tsr_error* err) noexcept {
    return guard(err, [&] {
      check_flags(workload->flags, 0, "tsr_workload");
      const tsr_workload work = read_struct(*workload);
      if (work.machine != nullptr) check_flags(work.machine->flags, 0, "tsr_machine");
      write_struct(static_cast<const C*>(self)->estimate(known<C>(*config), work), estimate);
    });
  }
  template <class C>
  static tsr_code open_slot(void* self, const tsr_kernel_config* config, void** instance, tsr_error* err) noexcept {
    return guard(err, [&] {
      std::unique_ptr<KernelInstance> made = static_cast<const C*>(self)->open(known<C>(*config));
      if (made == nullptr) fail(TSR_INTERNAL, "open() returned no instance: return one, or throw Failure");
      made->num_tables_ = config->num_tables;
      if (const char* format = read_struct(*config).row_format; format != nullptr) made->row_format_ = format;
      *instance = made.release();
    });
  }
  static void close_slot(void* instance) noexcept { delete static_cast<KernelInstance*>(instance); }
  static tsr_code forward_slot(void* instance, const tsr_lookup* lookup, const DLTensor* output, tsr_stream stream,
                               tsr_context** context, tsr_error* err) noexcept {
    return guard(err, [&] { instance_of(instance).forward(known(*lookup), *output, stream, context); });
  }
  static tsr_code backward_slot(void* instance, tsr_context* context, const tsr_backward* args, tsr_stream stream,
                                tsr_error* err) noexcept {
    return guard(err, [&] { instance_of(instance).backward(context, known(*args), stream); });
  }
  static tsr_code backward_rows_slot(void* instance, tsr_context* context, const tsr_backward* args,
                                     tsr_row_gradient* out, tsr_stream stream, tsr_error* err) noexcept {
    return guard(err, [&] {
      KernelInstance& i = instance_of(instance);
      i.backward_rows(context, known(*args), {out, i.num_tables_}, stream);
    });
  }
  static tsr_code apply_slot(void* instance, uint32_t table, const DLTensor* rows, const DLTensor* values,
                             const tsr_update* update, tsr_stream stream, tsr_error* err) noexcept {
    return guard(err, [&] { instance_of(instance).apply(table, *rows, *values, known(*update), stream); });
  }
  static void release_slot(void* instance, tsr_context* context) noexcept { instance_of(instance).release(context); }
  static tsr_code export_slot(void* instance, uint32_t table, uint64_t* cursor, tsr_rows* rows,
                              tsr_error* err) noexcept {
    return guard(err, [&] { instance_of(instance).export_rows(table, *cursor, known(*rows)); });
  }
  template <class C>
  static tsr_code import_slot(void* instance, uint32_t table, const tsr_rows* rows, tsr_error* err) noexcept {
    return guard(err, [&] {
      check_flags(rows->flags, rows_on_demand<C>() ? TSR_IMPORT_REPLACE : 0, "tsr_rows");
      instance_of(instance).import_rows(table, *rows);
    });
  }
  static tsr_code adopt_slot(void* instance, uint32_t table, const tsr_stored_rows* rows, tsr_error* err) noexcept {
    return guard(err, [&] {
      KernelInstance& i = instance_of(instance);
      i.adopt_rows(table, known(*rows, i.row_format_));
    });
  }
  static tsr_code read_slot(void* instance, uint32_t table, tsr_rows* rows, tsr_error* err) noexcept {
    return guard(err, [&] { instance_of(instance).read_rows(table, known(*rows)); });
  }
  static tsr_code stats_slot(void* instance, uint32_t table, tsr_kernel_stats* stats, tsr_error* err) noexcept {
    return guard(err, [&] { write_struct(instance_of(instance).stats(table), stats); });
  }
  template <class C>
  static constexpr tsr_kernel make_table();
};

template <class C>
constexpr tsr_kernel Kernel::make_table() {
  using I = typename C::Instance;
  using Base = KernelInstance;
  tsr_kernel t{};
  t.struct_size = sizeof(tsr_kernel);
  if constexpr (requires { C::kFlags; }) t.flags = C::kFlags;
  t.compute_kernels = C::kComputeKernels;
  t.device_types = C::kDeviceTypes;
  t.supports = &supports_slot<C>;
  t.open = &open_slot<C>;
  t.close = &close_slot;
  t.forward = &forward_slot;
  if (detail::overrides(&I::backward, &Base::backward)) t.backward = &backward_slot;
  if (detail::overrides(&I::backward_rows, &Base::backward_rows)) t.backward_rows = &backward_rows_slot;
  if (detail::overrides(&I::apply, &Base::apply)) t.apply = &apply_slot;
  t.release = &release_slot;
  if (detail::overrides(&I::export_rows, &Base::export_rows)) t.export_rows = &export_slot;
  if (detail::overrides(&I::import_rows, &Base::import_rows)) t.import_rows = &import_slot<C>;
  t.stats = &stats_slot;
  if (detail::overrides(&I::adopt_rows, &Base::adopt_rows)) t.adopt_rows = &adopt_slot;
  if (detail::overrides(&I::read_rows, &Base::read_rows)) t.read_rows = &read_slot;
  return t;
}

template <class C>
constexpr tsr_kernel Kernel::table = Kernel::make_table<C>();

}  // namespace v1
}  // namespace tessera::sdk
