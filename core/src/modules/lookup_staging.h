// Lets a device's kernel be called with tensors in host memory: inputs are copied to the device, and results back.
#pragma once

#include <list>
#include <vector>

#include "tessera/abi/kernel.h"
#include "tessera/device.h"

namespace tessera {

class LookupStaging {
 public:
  // Without a stream nothing is staged.
  explicit LookupStaging(DeviceStream* stream) : stream_(stream) {}
  ~LookupStaging();  // waits, if finish() was not called
  LookupStaging(const LookupStaging&) = delete;

  // Returns the batch with tensors that the kernel can read. It is valid while both objects live.
  const tsr_lookup* batch(const tsr_lookup& lookup);
  // Returns a tensor that the kernel can read; null for null.
  const DLTensor* input(const DLTensor* tensor);
  // Returns a tensor of which the kernel writes some elements. The other elements stay as they are.
  const DLTensor* output(const DLTensor* tensor);
  // Call this after the kernel's call. It waits for copies, if there are any.
  void finish();

  tsr_stream raw_stream() const { return stream_ ? stream_->raw() : nullptr; }

 private:
  DeviceStream* stream_;
  tsr_lookup batch_{};
  struct Copy {
    Tensor host, device;
    DLTensor view;
    bool back;
  };
  std::list<Copy> copies_;  // a list, because addresses must stay the same; an empty copy has no memory
};

// Returns a tensor that borrows memory of a kernel. It is on the stream's device if the memory is there.
Tensor view_of(const DLTensor& view, DeviceStream* stream);
// Copies a view that a kernel returned to host memory.
Tensor host_copy_of(const DLTensor& view, DeviceStream* stream);

}  // namespace tessera
