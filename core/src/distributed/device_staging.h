// Exchanges of device tensors over a transport that knows only host memory. Pinned copies of the tensors are exchanged.
#pragma once

#include <memory>
#include <vector>

#include "distributed/buffer.h"
#include "tessera/device.h"

namespace tessera {

// The pinned buffers of one operation. They are in use from its start until the result is copied to the device.
struct StagedExchange {
  explicit StagedExchange(const DeviceStreamPtr& s) : stream(s), copied(s) {
    send.pinned(s);
    recv.pinned(s);
  }
  DeviceStreamPtr stream;
  Buffer send{DType::kUInt8}, recv{DType::kUInt8};
  Tensor target;  // on the device; undefined: nothing is received
  DeviceStream::Event copied;
  bool busy = false;

  // Called after the operation: starts the copy of what was received to the device.
  void finish();
  void drop() { busy = false, target = {}; }
};

// The tensors that the transport gets.
struct HostSides {
  Tensor send, recv;
  StagedExchange* staged = nullptr;  // null: the caller's own tensors
};

class DeviceStaging {
 public:
  // Waits until the data to send are copied from the device. `in_place`: `recv` also holds the data to send.
  HostSides sides(const Tensor& send, const Tensor& recv, bool in_place);

 private:
  StagedExchange& take(const DeviceStreamPtr& stream);

  std::vector<std::unique_ptr<StagedExchange>> exchanges_;  // grows to the largest number that was in flight at once
};

}  // namespace tessera
