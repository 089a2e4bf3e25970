// Copies the dense part of a batch, its numbers and labels, to a device.
#pragma once

#include <array>
#include <memory>

#include "tessera/data.h"
#include "tessera/device.h"

namespace tessera {

class DeviceBatch {
 public:
  explicit DeviceBatch(DeviceStreamPtr stream) : stream_(std::move(stream)) {}

  struct Inputs {
    Tensor dense;   // [B, dense]
    Tensor labels;  // [B], Batch::label(label)
  };
  // Enqueues one copy from pinned memory. Waits only for the copy before the previous one. The result is valid until
  // the next call, in stream order.
  Inputs take(const Batch& batch, size_t label = 0);

 private:
  struct Pinned {
    Tensor memory;
    std::unique_ptr<DeviceStream::Event> copied;
  };
  DeviceStreamPtr stream_;
  std::array<Pinned, 2> pinned_;  // used in turn
  size_t next_ = 0;
  Tensor memory_;
};

}  // namespace tessera
