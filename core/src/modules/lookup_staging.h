// A call of a device's kernel with tensors of which some are in host memory: those are copied there, and results back.
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
  ~LookupStaging();  // waits, where finish() did not
  LookupStaging(const LookupStaging&) = delete;

  // The batch as the kernel can read it; valid while both objects live.
  const tsr_lookup* batch(const tsr_lookup& lookup);
  // A tensor that is read; null stays null.
  const DLTensor* input(const DLTensor* tensor);
  // A tensor of which the kernel writes some elements: the others stay as they are.
  const DLTensor* output(const DLTensor* tensor);
  // After the call: waits for what was copied, if anything was.
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
  std::list<Copy> copies_;  // addresses stay; an empty one holds no memory
};

// Memory that a kernel handed out, as a tensor that borrows it; on the stream's device if it is there.
Tensor view_of(const DLTensor& view, DeviceStream* stream);
// A copy in host memory of a view that a kernel handed out.
Tensor host_copy_of(const DLTensor& view, DeviceStream* stream);

}  // namespace tessera
