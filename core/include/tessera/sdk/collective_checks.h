// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/collective_checks.h - checks of an operation's arguments, with the same wording for all transports.
//
// A call may be wrong on one rank only. The rank that refuses it must end the operation for the others
// (abi/collective.h), so the transport makes these checks, and not its caller.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/sdk/collective.h"

namespace tessera::sdk {
inline namespace v1 {

// Checks the arguments of connect(): ranks and timeout.
inline void check_rendezvous(std::string_view transport, const tsr_rendezvous& where) {
  if (where.world_size < 1 || where.rank < 0 || where.rank >= where.world_size) {
    fail(TSR_INVALID_ARGUMENT, transport, ": rank ", where.rank, " of ", where.world_size,
         " does not exist: ranks go from 0 to WORLD_SIZE - 1");
  }
  if (!(where.timeout_s > 0)) fail(TSR_INVALID_ARGUMENT, transport, ": the timeout must be above 0 s");
}

// Each check throws Failure(TSR_INVALID_ARGUMENT) with a sentence that begins with `name`, which must outlive this.
// Tensors must be in memory of `device_type`.
class CallChecks {
 public:
  CallChecks(std::string_view name, const Group& group, int32_t device_type = kDLCPU)
      : name_(name), rank_(group.rank()), world_size_(group.world_size()), device_type_(device_type) {}

  void all_to_all_v(const DLTensor& send, Counts send_counts, const DLTensor& recv, Counts recv_counts) const {
    pair(send, recv);
    counts(send_counts, send, "send");
    counts(recv_counts, recv, "receive");
    const int64_t sent = send_counts[own()], received = recv_counts[own()];
    if (sent != received) refuse("this rank sends itself ", sent, " elements, but expects ", received);
  }
  void all_reduce(const DLTensor& inout) const { memory(inout, "the buffer"); }
  void reduce_scatter_v(const DLTensor& send, Counts send_counts, const DLTensor& recv) const {
    pair(send, recv);
    counts(send_counts, send, "send");
    own_piece(send_counts, recv, "receive");
  }
  void all_gather_v(const DLTensor& send, const DLTensor& recv, Counts recv_counts) const {
    pair(send, recv);
    counts(recv_counts, recv, "receive");
    own_piece(recv_counts, send, "send");
  }
  void broadcast(const DLTensor& inout, int32_t root) const {
    memory(inout, "the buffer");
    if (root < 0 || root >= world_size_) refuse("root ", root, " is not a rank of a group of ", world_size_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(TSR_INVALID_ARGUMENT, name_, ": ", parts...);
  }
  size_t own() const { return static_cast<size_t>(rank_); }

  void memory(const DLTensor& tensor, const char* what) const {
    if (tensor.device.device_type != device_type_)
      refuse(what, device_type_ == kDLCPU ? " is not in host memory" : " is not in memory of the device");
    if (tensor.data == nullptr && numel(tensor) > 0) refuse(what, " has no data");
  }
  void pair(const DLTensor& send, const DLTensor& recv) const {
    memory(send, "the send buffer");
    memory(recv, "the receive buffer");
    if (!same_dtype(send.dtype, recv.dtype)) refuse("the send and receive buffers have different element types");
  }
  void counts(Counts of_ranks, const DLTensor& tensor, const char* what) const {
    int64_t sum = 0;
    for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
      if (of_ranks[rank] < 0) refuse("the ", what, " count for rank ", rank, " is negative");
      if (__builtin_add_overflow(sum, of_ranks[rank], &sum)) refuse("the ", what, " counts sum up to more than 2^63");
    }
    if (sum != numel(tensor))
      refuse("the ", what, " counts sum up to ", sum, ", but the ", what, " buffer has ", numel(tensor), " elements");
  }
  void own_piece(Counts of_ranks, const DLTensor& tensor, const char* what) const {
    if (of_ranks[own()] == numel(tensor)) return;
    refuse("this rank's count is ", of_ranks[own()], ", but its ", what, " buffer has ", numel(tensor), " elements");
  }

  std::string_view name_;
  int32_t rank_, world_size_, device_type_;
};

}  // namespace v1
}  // namespace tessera::sdk
