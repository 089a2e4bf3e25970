// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/draft/changes.h - kernels that know which of their rows have changed since a mark.
//
// abi/draft/changes.h is the specification. An instance derives from both Changes and KernelInstance, and its kernel
// declares
//
//   const void* extension(std::string_view id) const { return changes_extension<Instance>(id); }
//
// RowMarks (sdk/draft/row_marks.h) tracks changes between the marks of several followers.
#pragma once

#include <string_view>

#include "tessera/abi/draft/changes.h"
#include "tessera/sdk/kernel.h"

namespace tessera::sdk {
inline namespace v1 {

// The followers that an instance serves.
inline constexpr uint32_t kFollowers = 2;

struct RowChanges {
  int64_t changed = 0, removed = 0;
};

class Changes {
 public:
  virtual ~Changes() = default;
  virtual void mark(uint32_t follower) = 0;
  // The changes since the follower's mark, which must exist.
  virtual RowChanges changes(uint32_t follower, uint32_t table) = 0;
  virtual void export_changed(uint32_t follower, uint32_t table, uint64_t& cursor, tsr_rows& rows) = 0;
  // Kernels that never remove a row need not override it.
  virtual void export_removed(uint32_t /*follower*/, uint32_t /*table*/, uint64_t& /*cursor*/, tsr_rows& rows) {
    rows.count = 0;
  }

  // Called through the C table.
  void marked_now(uint32_t follower) {
    const uint32_t bit = bit_of(follower);
    mark(follower);
    marked_ |= bit;
  }
  Changes& since_mark(uint32_t follower) {
    if ((marked_ & bit_of(follower)) == 0)
      fail(TSR_FAILED_PRECONDITION, "changes are known only after a mark, but follower ", follower,
           " has none: call mark first");
    return *this;
  }

 private:
  static uint32_t bit_of(uint32_t follower) {
    if (follower >= kFollowers)
      fail(TSR_INVALID_ARGUMENT, "there is no follower ", follower, " of changes: they are numbers below ", kFollowers);
    return 1u << follower;
  }

  uint32_t marked_ = 0;  // by bit_of()
};

namespace detail {

template <class Instance>
struct ChangesTable {
  static Changes& of(void* instance) { return static_cast<Instance&>(*static_cast<KernelInstance*>(instance)); }
  static tsr_code mark(void* instance, uint32_t follower, tsr_error* err) noexcept {
    return guard(err, [&] { of(instance).marked_now(follower); });
  }
  static tsr_code count(void* instance, uint32_t follower, uint32_t table, int64_t* changed, int64_t* removed,
                        tsr_error* err) noexcept {
    return guard(err, [&] {
      const RowChanges found = of(instance).since_mark(follower).changes(follower, table);
      *changed = found.changed;
      *removed = found.removed;
    });
  }
  static tsr_code export_changed(void* instance, uint32_t follower, uint32_t table, uint64_t* cursor, tsr_rows* rows,
                                 tsr_error* err) noexcept {
    return guard(err, [&] { of(instance).since_mark(follower).export_changed(follower, table, *cursor, *rows); });
  }
  static tsr_code export_removed(void* instance, uint32_t follower, uint32_t table, uint64_t* cursor, tsr_rows* rows,
                                 tsr_error* err) noexcept {
    return guard(err, [&] { of(instance).since_mark(follower).export_removed(follower, table, *cursor, *rows); });
  }
  static constexpr tsr_kernel_changes kTable{
      sizeof(tsr_kernel_changes), 0, kFollowers, 0, &mark, &count, &export_changed, &export_removed};
};

}  // namespace detail

// The result of Kernel::extension(); NULL: another id.
template <class Instance>
const void* changes_extension(std::string_view id) {
  return id == TSR_KERNEL_CHANGES ? &detail::ChangesTable<Instance>::kTable : nullptr;
}

}  // namespace v1
}  // namespace tessera::sdk
