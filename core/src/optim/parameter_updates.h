// One step of dense parameters, by the formulas of abi/draft/device_ops.h. Parameters on a device are updated by its
// component, others here.
#pragma once

#include <vector>

#include "tessera/abi/draft/device_ops.h"
#include "tessera/device.h"

namespace tessera::optim {

// Updates parameters in host memory. The loops are written so that compilers vectorize them: restrict pointers, no
// branches, and settings in float as in PyTorch.
void update_in_host_memory(const tsr_parameter_updates& updates);

// Parameters of one formula, on any devices. There is one call for each device. It keeps its memory between steps.
class ParameterUpdates {
 public:
  void begin();
  void add(DeviceStream* stream, const tsr_parameter_update& parameter);  // null: host memory
  void run(tsr_parameter_updates settings);                               // fills in device_index and parameters

 private:
  struct Place {
    DeviceStream* stream;
    std::vector<tsr_parameter_update> parameters;
  };
  std::vector<Place> places_;
};

}  // namespace tessera::optim
