// One step of dense parameters, by the formulas of abi/draft/device_ops.h: in host memory here, on a device by its
// part.
#pragma once

#include <vector>

#include "tessera/abi/draft/device_ops.h"
#include "tessera/device.h"

namespace tessera::optim {

// The same for memory of the host. The loops are written to vectorise: restrict pointers, no branches inside, settings
// in float as PyTorch applies them.
void update_in_host_memory(const tsr_parameter_updates& updates);

// Parameters of one formula, wherever they are: one call for each device. Keeps its memory between steps.
class ParameterUpdates {
 public:
  void begin();
  void add(DeviceStream* stream, const tsr_parameter_update& parameter);  // null: host memory
  void run(tsr_parameter_updates settings);                               // device_index and parameters are filled in

 private:
  struct Place {
    DeviceStream* stream;
    std::vector<tsr_parameter_update> parameters;
  };
  std::vector<Place> places_;
};

}  // namespace tessera::optim
