// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/isa.h - chooses among variants of a function table that were compiled for several instruction sets.
//
//   const IsaVariant variants[] = {{"avx512", cpu_has_avx512, &avx512::kTable}, ...,
//                                  {"portable", true, &plain::kTable}};
//   const Table& table = *static_cast<const Table*>(choose_isa(variants).table);
//
// The environment variable TESSERA_ISA (avx512, avx2 or portable) forces one variant. It is read in every call, so set
// it before components are created.
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <span>
#include <string_view>

#include "tessera/sdk/error.h"

namespace tessera::sdk {
inline namespace v1 {

struct IsaVariant {
  const char* name;  // "avx512", "avx2", "portable"
  bool runs_here;    // this processor supports the variant
  const void* table;
};

// The value of TESSERA_ISA; empty: not set.
inline std::string_view forced_isa() {
  const char* variable = std::getenv("TESSERA_ISA");
  return variable == nullptr ? "" : variable;
}

// Returns the first of `best_first` that runs here, or the one named by TESSERA_ISA. Failure(TSR_INVALID_ARGUMENT):
// TESSERA_ISA has another name. Failure(TSR_UNAVAILABLE): the processor or the build lacks it.
inline const IsaVariant& choose_isa(std::span<const IsaVariant> best_first) {
  const std::string_view forced = forced_isa();
  for (const IsaVariant& variant : best_first) {
    if (variant.runs_here && (forced.empty() || forced == variant.name)) return variant;
  }
  for (std::string_view known : {"avx512", "avx2", "portable"}) {
    if (forced == known) {
      fail(TSR_UNAVAILABLE, "TESSERA_ISA=", forced, ": this processor or this build lacks ", forced,
           "; unset TESSERA_ISA to use the best variant for this processor");
    }
  }
  if (forced.empty()) fail(TSR_UNAVAILABLE, "no variant of this component runs on this processor");
  fail(TSR_INVALID_ARGUMENT, "TESSERA_ISA=", forced, " is not avx512, avx2 or portable");
}

}  // namespace v1
}  // namespace tessera::sdk
