// The plugin component that computes a dense layer on the model's device (abi/module.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tessera/abi/module.h"
#include "tessera/device.h"
#include "tessera/runtime.h"

namespace tessera {

// Creates the component for `layer`, the name in a config. For host memory it may also be a stack, or an id followed by
// options. kNotFound: no plugin computes it on this device.
ComponentPtr create_layer(const Runtime& runtime, const std::string& layer, const std::string& options,
                          const DeviceStreamPtr& stream);

// Returns the parameters that the layer `name` describes. The description is checked, because plugins are not trusted.
std::vector<tsr_parameter> layer_parameters(const Component& part, const std::string& name);
std::vector<tsr_parameter> layer_buffers(const Component& part, const std::string& name);
std::vector<tsr_value> layer_outputs(const Component& part, const std::string& name, std::span<const tsr_value> inputs);
// True for an output that is a sequence with its own offsets.
bool has_own_rows(const tsr_value& value);
// Describes a value float32 [batch, width].
tsr_value dense_value(int64_t width);

}  // namespace tessera
