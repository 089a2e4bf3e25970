// What the core expects of a component: the slots that each interface must fill.
#pragma once

#include <string>
#include <string_view>

#include "tessera/abi/kernel.h"
#include "tessera/abi/plugin.h"

namespace tessera::plugin {

// What is wrong with a plugin's table, or with one of its components, as one sentence; "" when nothing is. Only reads
// what struct_size covers. A component of a kind that this core does not know is accepted: nobody will ask for it.
std::string check_plugin(const tsr_plugin* plugin);
std::string check_component(const tsr_component* component);

// Whether a kernel lists this compute kernel.
bool serves(const tsr_kernel& kernel, std::string_view compute_kernel);

// Whether the component works around another one of its kind, and whether that may be `inner`.
bool wraps(const tsr_component& component);
bool can_wrap(const tsr_component& component, const tsr_component& inner);

}  // namespace tessera::plugin
