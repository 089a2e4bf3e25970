#include "group.h"

#include <cstdlib>
#include <sstream>

#include "tessera/sdk/collective_checks.h"

namespace tessera::nccl {
namespace {

// NCCL may take this much longer than the operation's timeout, so that the watch, which can name ranks, reports first.
constexpr double kPatience_s = 2;
constexpr std::chrono::microseconds kGroupPause{200};

ncclDataType_t type_of(const DLTensor& tensor) {
  const DLDataType t = tensor.dtype;
  if (t.lanes == 1 && t.code == kDLFloat && t.bits == 32) return ncclFloat32;
  if (t.lanes == 1 && t.code == kDLFloat && t.bits == 64) return ncclFloat64;
  if (t.lanes == 1 && t.code == kDLFloat && t.bits == 16) return ncclFloat16;
  if (t.lanes == 1 && t.code == kDLBfloat && t.bits == 16) return ncclBfloat16;
  if (t.lanes == 1 && t.code == kDLInt && t.bits == 32) return ncclInt32;
  if (t.lanes == 1 && t.code == kDLInt && t.bits == 64) return ncclInt64;
  sdk::fail(TSR_UNIMPLEMENTED,
            "nccl: reductions take float32, float64, float16, bfloat16, int32 and int64, not DLPack ", "type ",
            int{t.code}, " with ", int{t.bits}, " bits");
}

ncclRedOp_t reduction_of(int32_t op) {
  if (op == TSR_REDUCE_SUM) return ncclSum;
  if (op == TSR_REDUCE_MAX) return ncclMax;
  if (op == TSR_REDUCE_MIN) return ncclMin;
  sdk::fail(TSR_UNIMPLEMENTED, "nccl: reduction ", op, " is not known");
}

bool in_host_memory(const DLTensor& tensor) { return tensor.device.device_type == kDLCPU; }
size_t bytes_of(const DLTensor& tensor, int64_t count) {
  return static_cast<size_t>(count * sdk::element_bytes(tensor));
}

}  // namespace

// An operation on the device. The watch says when it is done; on a caller's stream, the stream orders it.
class NcclGroup::DeviceWork : public sdk::Work {
 public:
  DeviceWork(NcclGroup& group, uint64_t number, bool blocks) : group_(group), number_(number), blocks_(blocks) {}
  void wait() override {
    if (!blocks_) return group_.watch_->check();
    try {
      group_.watch_->wait(number_);
    } catch (const sdk::Failure&) {
      group_.let_own_stream_end();
      throw;
    }
  }

 private:
  NcclGroup& group_;
  uint64_t number_;
  bool blocks_;
};

class NcclGroup::SideWork : public sdk::Work {
 public:
  SideWork(NcclGroup& group, tsr_work* work) : group_(group), work_(work) {}
  void wait() override {
    try {
      group_.side_->wait(work_);
    } catch (const sdk::Failure& failure) {
      group_.side_failed(failure);
    }
  }

 private:
  NcclGroup& group_;
  tsr_work* work_;
};

NcclGroup::NcclGroup(std::unique_ptr<Side> side, std::unique_ptr<Communicator> communicator, GroupOptions options)
    : side_(std::move(side)), communicator_(std::move(communicator)), options_(std::move(options)) {
  watch_ = std::make_unique<Watch>(side_->split(0, 0, sdk::named_call("connect", options_.timeout_s)), *communicator_,
                                   options_.name, options_.device);
  const gpu::DeviceScope scope(options_.device);
  own_ = gpu::stream_create();
}

NcclGroup::~NcclGroup() {
  watch_.reset();  // waits for operations in flight
  gpu::stream_destroy(own_);
}

// A failed split ends the group on all ranks, because they would wait for each other.
std::unique_ptr<sdk::Group> NcclGroup::split(int32_t color, int32_t key, const sdk::CollectiveCall& call) {
  watch_->check();
  const gpu::DeviceScope scope(options_.device);
  try {
    std::unique_ptr<Side> side = side_->split(color, key, call);
    auto communicator = communicator_->split(color, key, call.timeout_s > 0 ? call.timeout_s : options_.timeout_s);
    std::unique_ptr<NcclGroup> child;
    if (side) child = std::make_unique<NcclGroup>(std::move(side), std::move(communicator), options_);
    side_->wait(side_->barrier(call));  // a child that is closed at once must not end the split of a slower rank
    return child;
  } catch (const sdk::Failure& failure) {
    side_->abort(failure.what());
    watch_->fail(sdk::Failure(failure.code(), in_the_name_of(options_.name, failure.what()), failure.rank()));
    watch_->check();
    throw;
  }
}

Description NcclGroup::described(const char* op, const DLTensor& tensor, const sdk::CollectiveCall& call) const {
  Description d;
  d.op = op;
  d.label = call.label ? call.label : "";
  d.dtype = tensor.dtype.code << 16 | tensor.dtype.bits << 8 | tensor.dtype.lanes;
  return d;
}

// Called after a failure, when the communicator is stopped. Waits until no operation on the group's own stream touches
// its buffers. A further error of the device is ignored, because the failure says more. It does not wait for a device
// that does not answer.
void NcclGroup::let_own_stream_end() noexcept {
  try {
    const gpu::Event end = watch_->take_event();
    gpu::event_record(end, own_);
    const Clock::time_point deadline = after(communicator_->patience_s());
    while (!gpu::event_done(end) && Clock::now() < deadline) std::this_thread::sleep_for(kGroupPause);
    gpu::event_destroy(end);
  } catch (const sdk::Failure&) {
  }
}

// Runs body(checks), which throws if this rank's arguments are wrong. The exception ends the operation on all ranks.
template <class Body>
void NcclGroup::checked(const Description& what, const DLTensor& tensor, const Body& body) {
  try {
    body(sdk::CallChecks(options_.name, *this, tensor.device.device_type));
  } catch (const sdk::Failure& refusal) {
    std::ostringstream text;
    text << refusal.what() << " (rank " << rank() << ", " << what.op;
    if (!what.label.empty()) text << " \"" << what.label << '"';
    text << ')';
    watch_->fail(sdk::Failure(refusal.code(), text.str()));
    throw sdk::Failure(refusal.code(), text.str());
  }
}

template <class Body>
sdk::Work* NcclGroup::on_device(Description what, const sdk::CollectiveCall& call, const Body& body) {
  watch_->check();
  const gpu::DeviceScope scope(options_.device);
  const double timeout_s = call.timeout_s > 0 ? call.timeout_s : options_.timeout_s;
  const gpu::Stream stream = call.stream ? static_cast<gpu::Stream>(call.stream) : own_;
  const gpu::Event event = watch_->take_event();
  // This precedes the NCCL call, which may wait for other ranks: meanwhile the watch finds out which rank is missing.
  const uint64_t number = watch_->started(std::move(what), timeout_s);
  try {
    communicator_->enqueue([&](ncclComm_t comm) { body(comm, stream); }, after(timeout_s + kPatience_s));
    gpu::event_record(event, stream);
  } catch (const sdk::Failure& failure) {
    gpu::event_destroy(event);
    watch_->fail(sdk::Failure(failure.code(), options_.name + ": " + failure.what()));
    if (!call.stream) let_own_stream_end();  // NCCL may have started a part of the operation
    watch_->check();
    throw;
  }
  watch_->enqueued(number, event);
  return new DeviceWork(*this, number, call.stream == nullptr);
}

template <class Start>
sdk::Work* NcclGroup::on_side(const Start& start) {
  watch_->check();
  try {
    return new SideWork(*this, start(*side_));
  } catch (const sdk::Failure& failure) {
    side_failed(failure);
  }
}

void NcclGroup::side_failed(const sdk::Failure& failure) {
  watch_->ask_why();  // others may have closed their groups because an operation on the device failed
  watch_->fail(sdk::Failure(failure.code(), in_the_name_of(options_.name, failure.what()), failure.rank()));
  watch_->check();
  std::abort();  // unreachable, because there was a failure
}

sdk::Work* NcclGroup::all_to_all_v(const DLTensor& send, sdk::Counts send_counts, const DLTensor& recv,
                                   sdk::Counts recv_counts, const sdk::CollectiveCall& call) {
  if (in_host_memory(send)) {
    return on_side([&](const Side& side) { return side.all_to_all_v(send, send_counts, recv, recv_counts, call); });
  }
  Description what = described("all_to_all_v", send, call);
  checked(what, send,
          [&](const sdk::CallChecks& checks) { checks.all_to_all_v(send, send_counts, recv, recv_counts); });
  what.to.assign(send_counts.begin(), send_counts.end());
  what.from.assign(recv_counts.begin(), recv_counts.end());
  return on_device(std::move(what), call, [&](ncclComm_t comm, gpu::Stream stream) {
    const char* from = sdk::data_as<char>(send);
    char* to = sdk::data_as<char>(recv);
    for (int32_t peer = 0; peer < world_size(); ++peer) {
      const size_t out = bytes_of(send, send_counts[static_cast<size_t>(peer)]);
      const size_t in = bytes_of(recv, recv_counts[static_cast<size_t>(peer)]);
      if (out) check(ncclSend(from, out, ncclInt8, peer, comm, stream), comm, "cannot send");
      if (in) check(ncclRecv(to, in, ncclInt8, peer, comm, stream), comm, "cannot receive");
      if (peer != rank()) sent_ += out;
      from += out;
      to += in;
    }
  });
}

sdk::Work* NcclGroup::all_reduce(const DLTensor& inout, int32_t op, const sdk::CollectiveCall& call) {
  if (in_host_memory(inout)) {
    return on_side([&](const Side& side) { return side.all_reduce(inout, op, call); });
  }
  Description what = described("all_reduce", inout, call);
  ncclDataType_t type{};
  ncclRedOp_t reduction{};
  checked(what, inout, [&](const sdk::CallChecks& checks) {
    checks.all_reduce(inout);
    type = type_of(inout);
    reduction = reduction_of(op);
  });
  const auto count = static_cast<size_t>(sdk::numel(inout));
  what.reduce = op;
  what.bytes = static_cast<int64_t>(bytes_of(inout, sdk::numel(inout)));
  return on_device(std::move(what), call, [&](ncclComm_t comm, gpu::Stream stream) {
    if (!count) return;
    check(ncclAllReduce(sdk::raw(inout), sdk::raw(inout), count, type, reduction, comm, stream), comm,
          "cannot all-reduce");
    sent_ += bytes_of(inout, sdk::numel(inout));
  });
}

sdk::Work* NcclGroup::reduce_scatter_v(const DLTensor& send, sdk::Counts counts, const DLTensor& recv, int32_t op,
                                       const sdk::CollectiveCall& call) {
  if (in_host_memory(send)) {
    return on_side([&](const Side& side) { return side.reduce_scatter_v(send, counts, recv, op, call); });
  }
  Description what = described("reduce_scatter_v", send, call);
  ncclDataType_t type{};
  ncclRedOp_t reduction{};
  checked(what, send, [&](const sdk::CallChecks& checks) {
    checks.reduce_scatter_v(send, counts, recv);
    type = type_of(send);
    reduction = reduction_of(op);
  });
  what.reduce = op;
  what.bytes = static_cast<int64_t>(bytes_of(send, sdk::numel(send)));
  return on_device(std::move(what), call, [&](ncclComm_t comm, gpu::Stream stream) {
    const char* from = sdk::data_as<char>(send);
    for (int32_t root = 0; root < world_size(); ++root) {
      const int64_t count = counts[static_cast<size_t>(root)];
      if (count) {
        check(ncclReduce(from, sdk::raw(recv), static_cast<size_t>(count), type, reduction, root, comm, stream), comm,
              "cannot reduce");
      }
      if (root != rank()) sent_ += bytes_of(send, count);
      from += bytes_of(send, count);
    }
  });
}

sdk::Work* NcclGroup::all_gather_v(const DLTensor& send, const DLTensor& recv, sdk::Counts counts,
                                   const sdk::CollectiveCall& call) {
  if (in_host_memory(send)) {
    return on_side([&](const Side& side) { return side.all_gather_v(send, recv, counts, call); });
  }
  Description what = described("all_gather_v", send, call);
  checked(what, send, [&](const sdk::CallChecks& checks) { checks.all_gather_v(send, recv, counts); });
  what.bytes = static_cast<int64_t>(bytes_of(recv, sdk::numel(recv)));
  return on_device(std::move(what), call, [&](ncclComm_t comm, gpu::Stream stream) {
    char* to = sdk::data_as<char>(recv);
    for (int32_t root = 0; root < world_size(); ++root) {
      const size_t n = bytes_of(recv, counts[static_cast<size_t>(root)]);
      if (n) check(ncclBroadcast(sdk::raw(send), to, n, ncclInt8, root, comm, stream), comm, "cannot gather");
      if (root == rank()) sent_ += n * static_cast<size_t>(world_size() - 1);
      to += n;
    }
  });
}

sdk::Work* NcclGroup::broadcast(const DLTensor& inout, int32_t root, const sdk::CollectiveCall& call) {
  if (in_host_memory(inout)) {
    return on_side([&](const Side& side) { return side.broadcast(inout, root, call); });
  }
  Description what = described("broadcast", inout, call);
  checked(what, inout, [&](const sdk::CallChecks& checks) { checks.broadcast(inout, root); });
  const size_t n = bytes_of(inout, sdk::numel(inout));
  what.reduce = root;
  what.bytes = static_cast<int64_t>(n);
  return on_device(std::move(what), call, [&](ncclComm_t comm, gpu::Stream stream) {
    if (n) check(ncclBroadcast(sdk::raw(inout), sdk::raw(inout), n, ncclInt8, root, comm, stream), comm, "cannot send");
    if (root == rank()) sent_ += n * static_cast<size_t>(world_size() - 1);
  });
}

sdk::Work* NcclGroup::barrier(const sdk::CollectiveCall& call) {
  return on_side([&](const Side& side) { return side.barrier(call); });
}

void NcclGroup::abort(const char* reason) noexcept {
  side_->abort(reason);  // tells the others first, because ending operations here may take time
  watch_->abort(reason);
}

}  // namespace tessera::nccl
