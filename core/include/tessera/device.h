// tessera/device.h - a device of a plugin (abi/draft/device.h), with the stream in whose order the core works on it.
//
//   DeviceStreamPtr device = open_device(runtime, "cuda", /*local_rank=*/0);   // null for "cpu"
//   Tensor x = device->empty({batch, dim});
//   device->copy(host, x);      // enqueued: `host` stays as it is until synchronize() or a later event
//   Tensor y = device->to_host(x);
//
// One stream serves the tables, the exchanges and the dense part of a model, so they are ordered without waits on the
// host. One thread at a time uses an object, except for [any-thread] calls. Tensors may be dropped on any thread.
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
  // Opens a new stream on device `index` of the component. kInvalidArgument: there are fewer devices.
  static DeviceStreamPtr open(ComponentPtr part, int index);
  ~DeviceStream();  // waits for everything enqueued
  DeviceStream(const DeviceStream&) = delete;

  Device device() const { return device_; }
  const std::string& id() const { return part_->id(); }  // of the component: "cuda"
  tsr_stream raw() const { return stream_; }
  tsr_device_info info() const;
  tsr_device_stats stats() const;

  // Memory on the device, not initialised; freed in the order of the stream.
  Tensor empty(const Shape& shape, DType dtype = DType::kFloat32);
  // Wraps memory of this device that somebody else owns.
  Tensor borrow(void* memory, const Shape& shape, DType dtype);
  // [any-thread] Pinned 1-D host memory, from which copies overlap with work. Keep it: allocating it may wait for the
  // device, and freeing it waits for everything enqueued on the stream.
  Tensor host_1d(int64_t n, DType dtype);

  // Enqueues a copy of equally many bytes. Each side is on this device or in host memory. A host side must stay alive
  // and unchanged until the stream has done the copy. If both sides are in host memory, the copy is done on return.
  void copy(const Tensor& from, const Tensor& to);
  void fill(const Tensor& tensor, uint8_t byte);  // every byte
  void synchronize();

  // [any-thread] Copies that wait, for rare use.
  Tensor to_device(const Tensor& host);
  Tensor to_host(const Tensor& tensor);  // shares a tensor that is in host memory

  // Copies a short list to the device; the host may change it on return. Waits only if several uploads are in flight.
  Tensor upload(const Tensor& host);

  // Operations on jagged features (abi/draft/device_ops.h), if the component has them; otherwise they go through host
  // memory. Applications call jagged_tensor.h and bounds.h.
  bool handles_jagged() const;
  void sum_lengths(const Tensor& lengths, const Tensor& offsets);
  void check_bounds(const tsr_jagged& input, const Tensor& rows, const Tensor& report);  // uint8, a tsr_bounds_report
  void permute(const tsr_jagged& input, const Tensor& order, const tsr_jagged_output& output);
  void bucketize(const tsr_jagged& input, int32_t blocks, const Tensor& block_rows, const tsr_jagged_output& output);

  void set(const Tensor& to, const Tensor& values);  // a copy() that is done on return

  // Rows between packed and spread form (same header), if the component has them; otherwise the caller works on the
  // host.
  bool moves_rows() const;
  void combine_rows(const tsr_row_moves& moves);
  void split_rows(const tsr_row_moves& moves);

  // Arithmetic of training between a model's layers (same header), if the component has it; otherwise the dense part of
  // a model is computed in host memory.
  bool trains() const;
  void update_parameters(const tsr_parameter_updates& updates);
  void binary_cross_entropy(const tsr_binary_cross_entropy& loss);

  // Clips gradients by norm or value (same header), if the component can; otherwise they are clipped in host memory.
  bool clips() const;
  void clip_gradients(const tsr_clipping& clipping);

  // A point in this stream.
  class Event {
   public:
    explicit Event(DeviceStreamPtr stream);
    ~Event();
    Event(const Event&) = delete;
    void record();
    void wait();  // [any-thread] blocks the caller until the last record() is reached

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

  // Pinned memory of upload(), and the event after which it may be written again.
  struct Staging {
    void* memory = nullptr;
    uint64_t bytes = 0;
    tsr_event copied = nullptr;
  };
  Staging& next_staging(uint64_t bytes);

  ComponentPtr part_;
  const tsr_device_ops* ops_;  // null: the component has none
  Device device_;
  tsr_stream stream_ = nullptr;
  std::array<Staging, 4> staging_;
  size_t next_ = 0;
};

// For code that takes tensors from anywhere. Copies between host and device wait.
Tensor in_host_memory(const Tensor& tensor);          // shares a tensor that is there already
void assign(const Tensor& to, const Tensor& values);  // same type and size
Tensor zeros_like(const Tensor& tensor);              // on the same device

// Opens the device of job.device. "cpu": null. "auto": the device component of the highest priority that works here and
// has a kernel plugin (`kernel`, if it names one); null: there is none. Otherwise the component of that id; kNotFound,
// or its probe's error. Ranks of one host take its devices in turn.
DeviceStreamPtr open_device(const Runtime& runtime, const std::string& name, int local_rank = 0,
                            const std::string& kernel = "auto");

// Opens the first device of a DLDeviceType; kUnavailable: the error has each device plugin's reason.
DeviceStreamPtr open_device_type(const Runtime& runtime, int32_t device_type);

}  // namespace tessera
