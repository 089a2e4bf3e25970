// Exchanges of device tensors over a transport that knows host memory only: pinned memory stands for them.
#pragma once

#include <memory>
#include <vector>

#include "distributed/buffer.h"
#include "tessera/device.h"

namespace tessera {

// One operation's stand-ins, from its start to the end of the copies behind it.
struct StagedExchange {
  explicit StagedExchange(const DeviceStreamPtr& s) : stream(s), copied(s) {
    send.pinned(s);
    recv.pinned(s);
  }
  DeviceStreamPtr stream;
  Buffer send{DType::kUInt8}, recv{DType::kUInt8};
  Tensor target;  // on the device; undefined: nothing comes back
  DeviceStream::Event copied;
  bool busy = false;

  // The operation is done: what arrived is on its way to the device.
  void finish();
  void drop() { busy = false, target = {}; }
};

// The tensors that the transport is handed.
struct HostSides {
  Tensor send, recv;
  StagedExchange* staged = nullptr;  // null: the caller's own tensors
};

class DeviceStaging {
 public:
  // `in_place`: recv is sent too. Waits until the device has given what is sent.
  HostSides sides(const Tensor& send, const Tensor& recv, bool in_place);

 private:
  StagedExchange& take(const DeviceStreamPtr& stream);

  std::vector<std::unique_ptr<StagedExchange>> exchanges_;  // as many as were ever in flight together
};

}  // namespace tessera
