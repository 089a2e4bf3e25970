// A step whose shards live on a device: the owner's batch there, and how rows move between the wire and the output.
#pragma once

#include <memory>
#include <vector>

#include "distributed/buffer.h"
#include "distributed/device_row_lists.h"
#include "distributed/inverse_moves.h"

namespace tessera {

// The ids that replicas look up, on a device: those of their slots, one slot behind the other.
struct ReplicaBatch {
  explicit ReplicaBatch(const DeviceStreamPtr& stream) {
    for (Buffer* buffer : {&host_ids, &host_offsets, &host_weights}) buffer->pinned(stream);
    for (Buffer* buffer : {&ids, &offsets, &weights}) buffer->on_device(stream);
  }
  Buffer host_ids{DType::kInt64}, host_offsets{DType::kInt64}, host_weights{DType::kFloat32};
  Buffer ids{DType::kInt64}, offsets{DType::kInt64}, weights{DType::kFloat32};
  int64_t num_ids = 0, num_bags = 0;
  bool weighted = false;
  std::vector<int64_t> first_offset;  // by slot
};

// Where shards live on a device: copies there of what the owner received, and how rows move.
struct DeviceStep {
  explicit DeviceStep(const DeviceStreamPtr& s) : stream(s), output(s), host_sums(s), replicas(s), uploaded(s) {
    for (Buffer* buffer : {&ids, &offsets, &weights, &grad}) buffer->on_device(s);
    host_grad.pinned(s);
  }
  DeviceStreamPtr stream;
  Buffer ids{DType::kInt64}, offsets{DType::kInt64}, weights{DType::kFloat32};
  Buffer host_grad{DType::kFloat32}, grad{DType::kFloat32};  // of the output, where the caller has it in host memory
  DeviceRowLists output, host_sums;                          // as Step has them
  std::unique_ptr<InverseMoves> inverse;                     // once a batch had inverse indices
  ReplicaBatch replicas;
  DeviceStream::Event uploaded;  // behind it the host may write its side again
};

struct Step;

// Places the step's buffers: rows on the device, what is copied there in pinned memory. Once, before its first use.
void place_on_device(Step& step, const DeviceStreamPtr& stream);

// Copies the owner's ids there, and the lists that combine and split need. Enqueues only.
void upload_step(Step& step);

// The output's gradient there, laid out as it was. Enqueues only.
Tensor gradient_on_device(const Tensor& grad, Step& step);

}  // namespace tessera
