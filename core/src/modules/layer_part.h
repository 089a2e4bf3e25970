// The component that computes a dense layer where a model is (abi/module.h).
#pragma once

#include <string>

#include "tessera/device.h"
#include "tessera/runtime.h"

namespace tessera {

// `layer` as in a config; for host memory also a stack, or an id with options behind it. kNotFound where no plugin
// computes it there.
PartPtr create_layer(const Runtime& runtime, const std::string& layer, const std::string& options,
                     const DeviceStreamPtr& stream);

}  // namespace tessera
