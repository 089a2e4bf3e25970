// tessera/device.h - a device that a plugin serves (abi/device.h), with the stream in whose order the core works there.
//
//   DeviceStreamPtr device = open_device(runtime, "cuda", /*local_rank=*/0);   // null for "cpu"
//   Tensor x = device->empty({batch, dim});
//   device->copy(host, x);      // enqueued: `host` stays as it is until synchronize() or an event behind it
//   Tensor y = device->to_host(x);
//
// One stream serves the tables, the exchanges and the dense part of a model, so that they are ordered without any
// waiting on the host. One thread at a time uses an object; [any-thread] beside it, and tensors may be dropped on any.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/abi/draft/device_ops.h"
#include "tessera/runtime.h"
#include "tessera/tensor.h"

namespace tessera {

class DeviceStream;
using DeviceStreamPtr = std::shared_ptr<DeviceStream>;

class DeviceStream : public std::enable_shared_from_this<DeviceStream> {
 public:
  // A new stream on device `index` of the part. kInvalidArgument where there are fewer.
  static DeviceStreamPtr open(ComponentPtr part, int index);
  ~DeviceStream();  // waits for what is enqueued
  DeviceStream(const DeviceStream&) = delete;

  Device device() const { return device_; }
  const std::string& id() const { return part_->id(); }  // of the part: "cuda"
  tsr_stream raw() const { return stream_; }
  tsr_device_info info() const;
  tsr_device_stats stats() const;

  // On the device, not initialised; freed in the order of the stream.
  Tensor empty(const Shape& shape, DType dtype = DType::kFloat32);
  // Memory of this device that somebody else keeps.
  Tensor borrow(void* memory, const Shape& shape, DType dtype);
  // [any-thread] 1-D in host memory from which copies overlap with work (pinned). To be kept: making it may wait for
  // the device, and freeing it waits for what the stream has enqueued.
  Tensor host_1d(int64_t n, DType dtype);

  // Enqueues. Same number of bytes; each side on this device or in host memory. A host side must live and stay as it is
  // until the stream has come so far; where both sides are in host memory it is done at once.
  void copy(const Tensor& from, const Tensor& to);
  void fill(const Tensor& tensor, uint8_t byte);  // every byte
  void synchronize();

  // [any-thread] Copies that wait: for what is rare.
  Tensor to_device(const Tensor& host);
  Tensor to_host(const Tensor& tensor);  // a tensor in host memory is shared

  // A copy there of what the host may change as soon as this returns: for short lists. Waits only where several of them
  // are under way.
  Tensor upload(const Tensor& host);

  // Jagged features (abi/draft/device_ops.h), where the part can: else they make the detour over the host.
  // jagged_tensor.h and bounds.h are the calls for applications.
  bool handles_jagged() const;
  void sum_lengths(const Tensor& lengths, const Tensor& offsets);
  void check_bounds(const tsr_jagged& input, const Tensor& rows, const Tensor& report);  // uint8, a tsr_bounds_report
  void permute(const tsr_jagged& input, const Tensor& order, const tsr_jagged_output& output);
  void bucketize(const tsr_jagged& input, int32_t blocks, const Tensor& block_rows, const tsr_jagged_output& output);

  void set(const Tensor& to, const Tensor& values);  // copy(), done when it returns

  // Rows between packed and spread form (likewise), where the part can: else the caller does it on the host.
  bool moves_rows() const;
  void combine_rows(const tsr_row_moves& moves);
  void split_rows(const tsr_row_moves& moves);

  // The arithmetic of training between a model's layers (likewise), where the part can: else the dense part of a
  // model is computed in host memory.
  bool trains() const;
  void update_parameters(const tsr_parameter_updates& updates);
  void binary_cross_entropy(const tsr_binary_cross_entropy& loss);

  // Gradients by their norm or value (likewise), where the part can: else they are clipped in host memory.
  bool clips() const;
  void clip_gradients(const tsr_clipping& clipping);

  // A point in this stream.
  class Event {
   public:
    explicit Event(DeviceStreamPtr stream);
    ~Event();
    Event(const Event&) = delete;
    void record();
    void wait();  // [any-thread] blocks the caller until the last record() was reached

   private:
    DeviceStreamPtr stream_;
    tsr_event raw_ = nullptr;
  };

 private:
  DeviceStream(ComponentPtr part, Device device);
  const tsr_device& api() const { return part_->api<tsr_device>(); }
  const tsr_device_ops& ops() const { return *ops_; }
  void* self() const { return part_->self(); }
  template <class Call>
  void enqueue(const Call& call) const;

  // Pinned memory of upload(), and behind what it may be written again.
  struct Staging {
    void* memory = nullptr;
    uint64_t bytes = 0;
    tsr_event copied = nullptr;
  };
  Staging& next_staging(uint64_t bytes);

  ComponentPtr part_;
  const tsr_device_ops* ops_;  // null: the part has none
  Device device_;
  tsr_stream stream_ = nullptr;
  std::array<Staging, 4> staging_;
  size_t next_ = 0;
};

// For code that takes tensors from anywhere; what crosses between host and device waits.
Tensor in_host_memory(const Tensor& tensor);          // shares where it is there already
void assign(const Tensor& to, const Tensor& values);  // same type and size
Tensor zeros_like(const Tensor& tensor);              // beside it

// job.device: "cpu" is null. "auto": the device plugin of the highest priority that works here and for whose devices
// there is a kernel plugin (`kernel`, where that names one); null where there is none. Otherwise the part of that id;
// kNotFound, or what its probe said. Ranks of one host take its devices in turn.
DeviceStreamPtr open_device(const Runtime& runtime, const std::string& name, int local_rank = 0,
                            const std::string& kernel = "auto");

// The first device of a DLDeviceType; kUnavailable with each device plugin's reason.
DeviceStreamPtr open_device_type(const Runtime& runtime, int32_t device_type);

}  // namespace tessera
