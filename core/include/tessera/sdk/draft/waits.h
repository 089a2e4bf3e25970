// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/draft/waits.h - transports that know for which ranks they have waited.
//
// abi/draft/waits.h is the specification. A group overrides Group::waited_s, and its transport declares
//
//   const void* extension(std::string_view id) const { return waits_extension(id); }
//
// A transport built on sdk/pair_engine.h gives its engines a WaitedFor, and reads the figures from it.
#pragma once

#include <string_view>

#include "tessera/abi/draft/waits.h"
#include "tessera/sdk/collective.h"

namespace tessera::sdk {
inline namespace v1 {

// The result of Collective::extension(); NULL: another id.
inline const void* waits_extension(std::string_view id) {
  constexpr auto waited = [](const tsr_group* raw, double* seconds, tsr_error* err) noexcept -> tsr_code {
    return guard(err, [&] {
      const Group& group = *reinterpret_cast<const Group*>(raw);
      if (!group.waited_s({seconds, static_cast<size_t>(group.world_size())}))
        fail(TSR_UNIMPLEMENTED, "this group does not record which ranks it has waited for");
    });
  };
  static constexpr tsr_collective_waits kTable{sizeof(tsr_collective_waits), 0, waited};
  return id == TSR_COLLECTIVE_WAITS ? &kTable : nullptr;
}

}  // namespace v1
}  // namespace tessera::sdk
