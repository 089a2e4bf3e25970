// The core's demands on a component: the slots that each interface must fill.
#pragma once

#include <string>
#include <string_view>

#include "tessera/abi/kernel.h"
#include "tessera/abi/plugin.h"

namespace tessera::plugin {

// The error of a plugin's table, or of one of its components, as one sentence; "" if there is none. Reads only
// what struct_size covers. A component of a kind that this core does not know is accepted: nobody will ask for it.
std::string check_plugin(const tsr_plugin* plugin);
std::string check_component(const tsr_component* component);

// True if a kernel lists this compute kernel.
bool serves(const tsr_kernel& kernel, std::string_view compute_kernel);

// True if the component works around another one of its kind, and that may be `inner`.
bool wraps(const tsr_component& component);
bool can_wrap(const tsr_component& component, const tsr_component& inner);

}  // namespace tessera::plugin
