// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/draft/changes.h - kernels that know which of their rows have changed since a mark.
//
// abi/draft/changes.h is the specification. An instance derives from Changes beside KernelInstance, and its kernel says
//
//   const void* extension(std::string_view id) const { return changes_extension<Instance>(id); }
#pragma once

#include <string_view>

#include "tessera/abi/draft/changes.h"
#include "tessera/sdk/kernel.h"

namespace tessera::sdk {

struct RowChanges {
  int64_t changed = 0, removed = 0;
};

class Changes {
 public:
  virtual ~Changes() = default;
  virtual void mark() = 0;
  // Behind a mark, which is the callers' promise.
  virtual RowChanges changes(uint32_t table) = 0;
  virtual void export_changed(uint32_t table, uint64_t& cursor, tsr_rows& rows) = 0;
  // Kernels that never give up a row leave it as it is.
  virtual void export_removed(uint32_t /*table*/, uint64_t& /*cursor*/, tsr_rows& rows) { rows.count = 0; }

  // Where the calls of a C table go.
  void marked_now() {
    mark();
    marked_ = true;
  }
  Changes& since_mark() {
    if (!marked_) fail(TSR_FAILED_PRECONDITION, "changes are known since a mark, and there is none: call mark first");
    return *this;
  }

 private:
  bool marked_ = false;
};

namespace detail {

template <class Instance>
struct ChangesTable {
  static Changes& of(void* instance) { return static_cast<Instance&>(*static_cast<KernelInstance*>(instance)); }
  static tsr_code mark(void* instance, tsr_error* err) noexcept {
    return guard(err, [&] { of(instance).marked_now(); });
  }
  static tsr_code count(void* instance, uint32_t table, int64_t* changed, int64_t* removed, tsr_error* err) noexcept {
    return guard(err, [&] {
      const RowChanges found = of(instance).since_mark().changes(table);
      *changed = found.changed;
      *removed = found.removed;
    });
  }
  static tsr_code export_changed(void* instance, uint32_t table, uint64_t* cursor, tsr_rows* rows,
                                 tsr_error* err) noexcept {
    return guard(err, [&] { of(instance).since_mark().export_changed(table, *cursor, *rows); });
  }
  static tsr_code export_removed(void* instance, uint32_t table, uint64_t* cursor, tsr_rows* rows,
                                 tsr_error* err) noexcept {
    return guard(err, [&] { of(instance).since_mark().export_removed(table, *cursor, *rows); });
  }
  static constexpr tsr_kernel_changes kTable{
      sizeof(tsr_kernel_changes), 0, &mark, &count, &export_changed, &export_removed};
};

}  // namespace detail

// For Kernel::extension(): NULL for other ids.
template <class Instance>
const void* changes_extension(std::string_view id) {
  return id == TSR_KERNEL_CHANGES ? &detail::ChangesTable<Instance>::kTable : nullptr;
}

}  // namespace tessera::sdk
