// The component that computes a dense layer where a model is (abi/module.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tessera/abi/module.h"
#include "tessera/device.h"
#include "tessera/runtime.h"

namespace tessera {

// `layer` as in a config; for host memory also a stack, or an id with options behind it. kNotFound where no plugin
// computes it there.
ComponentPtr create_layer(const Runtime& runtime, const std::string& layer, const std::string& options,
                          const DeviceStreamPtr& stream);

// The description of the layer `name` by itself, which is checked: nothing of it is trusted.
std::vector<tsr_parameter> layer_parameters(const Component& part, const std::string& name);
std::vector<tsr_parameter> layer_buffers(const Component& part, const std::string& name);
std::vector<tsr_value> layer_outputs(const Component& part, const std::string& name, std::span<const tsr_value> inputs);
// True for an output that is a sequence with offsets of its own.
bool has_own_rows(const tsr_value& value);
// float32 [batch, width].
tsr_value dense_value(int64_t width);

}  // namespace tessera
