// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/draft/rows_view.h - kernels that give a view of their rows.
//
// abi/draft/rows_view.h is the specification. An instance derives from both RowsView and KernelInstance, and its kernel
// declares
//
//   const void* extension(std::string_view id) const { return rows_view_extension<Instance>(id); }
#pragma once

#include <string_view>

#include "tessera/abi/draft/rows_view.h"
#include "tessera/sdk/kernel.h"

namespace tessera::sdk {

class RowsView {
 public:
  virtual ~RowsView() = default;
  // `state` is TSR_VIEW_WEIGHTS or the number of a state. struct_size is set by the caller.
  virtual tsr_matrix_view view(uint32_t table, int32_t state) = 0;
};

namespace detail {

template <class Instance>
struct RowsViewTable {
  static tsr_code view(void* instance, uint32_t table, int32_t state, tsr_matrix_view* out, tsr_error* err) noexcept {
    return guard(err, [&] {
      RowsView& viewed = static_cast<Instance&>(*static_cast<KernelInstance*>(instance));
      write_struct(viewed.view(table, state), out);
    });
  }
  static constexpr tsr_rows_view kTable{sizeof(tsr_rows_view), 0, &view};
};

}  // namespace detail

// The result of Kernel::extension(); NULL: another id.
template <class Instance>
const void* rows_view_extension(std::string_view id) {
  return id == TSR_ROWS_VIEW ? &detail::RowsViewTable<Instance>::kTable : nullptr;
}

}  // namespace tessera::sdk
