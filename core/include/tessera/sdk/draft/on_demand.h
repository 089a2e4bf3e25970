// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/draft/on_demand.h - kernels whose rows come on demand, and what their tables have besides rows.
//
// abi/draft/on_demand.h is the specification. A KernelInstance declares those of these functions that it has, and its
// kernel's extension() returns on_demand_extension<Instance>(id).
//
//   bool shares_row(uint32_t table) const;
//   void save_extra(uint32_t table, const ExtraBytes& to) const;
//   void add_extra(uint32_t table, const ExtraBytes& from);  // both, or none of the two
//   tsr_table_ages ages(uint32_t table) const;
#pragma once

#include <string_view>

#include "tessera/abi/draft/on_demand.h"
#include "tessera/sdk/kernel.h"

namespace tessera::sdk {
inline namespace v1 {

// The host's byte stream. Throws Failure if the host cannot write or read.
class ExtraBytes {
 public:
  explicit ExtraBytes(const tsr_stream_io& io) : io_(&io) { check_flags(io.flags, 0, "the byte stream"); }
  void write(const void* bytes, uint64_t size) const {
    Call call;
    if (size > 0) call.check(io_->write(io_->self, bytes, size, call.err()));
  }
  void read(void* bytes, uint64_t size) const {
    Call call;
    if (size > 0) call.check(io_->read(io_->self, bytes, size, call.err()));
  }

 private:
  const tsr_stream_io* io_;
};

namespace detail {

template <class Instance>
struct OnDemandTable {
  static Instance& of(void* instance) { return static_cast<Instance&>(*static_cast<KernelInstance*>(instance)); }
  static tsr_code shares(void* instance, uint32_t table, int32_t* out, tsr_error* err) noexcept {
    return guard(err, [&] { *out = of(instance).shares_row(table) ? 1 : 0; });
  }
  static tsr_code save(void* instance, uint32_t table, const tsr_stream_io* io, tsr_error* err) noexcept {
    return guard(err, [&] { of(instance).save_extra(table, ExtraBytes(*io)); });
  }
  static tsr_code add(void* instance, uint32_t table, const tsr_stream_io* io, tsr_error* err) noexcept {
    return guard(err, [&] { of(instance).add_extra(table, ExtraBytes(*io)); });
  }
  static tsr_code ages(void* instance, uint32_t table, tsr_table_ages* out, tsr_error* err) noexcept {
    return guard(err, [&] { write_struct(of(instance).ages(table), out); });
  }
  static constexpr tsr_on_demand table() {
    tsr_on_demand out{sizeof(tsr_on_demand), 0, nullptr, nullptr, nullptr, nullptr};
    if constexpr (requires(Instance i) { i.shares_row(0u); }) out.shares = &shares;
    if constexpr (requires(Instance i, const ExtraBytes& bytes) { i.save_extra(0u, bytes); }) {
      out.save = &save;
      out.add = &add;
    }
    if constexpr (requires(Instance i) { i.ages(0u); }) out.ages = &ages;
    return out;
  }
  static constexpr tsr_on_demand kTable = table();
};

}  // namespace detail

// The result of Kernel::extension(); NULL: another id.
template <class Instance>
const void* on_demand_extension(std::string_view id) {
  return id == TSR_ON_DEMAND ? &detail::OnDemandTable<Instance>::kTable : nullptr;
}

}  // namespace v1
}  // namespace tessera::sdk
