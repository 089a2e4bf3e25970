// Inputs that a layer takes, and its outputs for them.
#pragma once

#include <optional>
#include <vector>

#include "tessera/abi/module.h"

namespace tessera::cli::verify {

using Values = std::vector<tsr_value>;

tsr_value value_of(int64_t width, DLDataType type = {kDLFloat, 32, 1}, uint32_t flags = 0);
inline bool is_sequence(const tsr_value& value) { return (value.flags & TSR_VALUE_JAGGED) != 0; }
inline bool has_own_rows(const tsr_value& value) { return is_sequence(value) && value.rows_like == TSR_ROWS_OWN; }

// The outputs for such inputs; unset if they are refused.
std::optional<Values> outputs_of(const tsr_module& api, void* self, const Values& inputs);
// Inputs that a layer accepts. They are found by trying, because a layer's options can mean anything.
Values find_inputs(const tsr_module& api, void* self);

}  // namespace tessera::cli::verify
