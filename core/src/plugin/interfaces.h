// Checks that a component has all functions that its interface requires.
#pragma once

#include <string>
#include <string_view>

#include "tessera/abi/kernel.h"
#include "tessera/abi/plugin.h"

namespace tessera::plugin {

// Returns the error of a plugin's table, or of one of its components, as one sentence; "" if there is none. It reads
// only members inside struct_size. A component of an unknown kind is accepted, because nobody will create it.
std::string check_plugin(const tsr_plugin* plugin);
std::string check_component(const tsr_component* component);

// Returns an error if a table has must-understand flags besides the known ones (abi/base.h); "" if there are none.
std::string unknown_flags(const std::string& what, const void* table, uint32_t known = 0);

// True if a kernel lists this compute kernel.
bool serves(const tsr_kernel& kernel, std::string_view compute_kernel);

// True if the component wraps another one of its kind, and may wrap `inner`.
bool wraps(const tsr_component& component);
bool can_wrap(const tsr_component& component, const tsr_component& inner);

}  // namespace tessera::plugin
