// A group of NCCL ranks: NCCL moves tensors on the device; the side channel moves tensors in host memory and small
// messages.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "communicator.h"
#include "watch.h"

namespace tessera::nccl {

struct GroupOptions {
  std::string name = "nccl";  // prefix of every message
  double timeout_s = 30;      // for operations that do not set their own
  int device = 0;
};

class NcclGroup : public sdk::Group {
 public:
  NcclGroup(std::unique_ptr<Side> side, std::unique_ptr<Communicator> communicator, GroupOptions options);
  ~NcclGroup() override;

  int32_t rank() const override { return side_->rank(); }
  int32_t world_size() const override { return side_->world_size(); }
  std::unique_ptr<sdk::Group> split(int32_t color, int32_t key, const sdk::CollectiveCall& call) override;
  sdk::Work* all_to_all_v(const DLTensor& send, sdk::Counts send_counts, const DLTensor& recv, sdk::Counts recv_counts,
                          const sdk::CollectiveCall& call) override;
  sdk::Work* all_reduce(const DLTensor& inout, int32_t op, const sdk::CollectiveCall& call) override;
  sdk::Work* reduce_scatter_v(const DLTensor& send, sdk::Counts counts, const DLTensor& recv, int32_t op,
                              const sdk::CollectiveCall& call) override;
  sdk::Work* all_gather_v(const DLTensor& send, const DLTensor& recv, sdk::Counts counts,
                          const sdk::CollectiveCall& call) override;
  sdk::Work* broadcast(const DLTensor& inout, int32_t root, const sdk::CollectiveCall& call) override;
  sdk::Work* barrier(const sdk::CollectiveCall& call) override;
  void abort(const char* reason) noexcept override;
  void status() const override { watch_->status(); }
  uint64_t bytes_sent() const override { return side_->bytes_sent() + sent_; }
  int32_t host_of(int32_t rank) const override { return side_->host_of(rank); }

 private:
  class DeviceWork;
  class SideWork;
  template <class Body>
  sdk::Work* on_device(Description what, const sdk::CollectiveCall& call, const Body& body);
  template <class Start>
  sdk::Work* on_side(const Start& start);
  Description described(const char* op, const DLTensor& tensor, const sdk::CollectiveCall& call) const;
  void let_own_stream_end() noexcept;
  [[noreturn]] void side_failed(const sdk::Failure& failure);
  template <class Body>
  void checked(const Description& what, const DLTensor& tensor, const Body& body);

  std::unique_ptr<Side> side_;
  std::unique_ptr<Communicator> communicator_;
  GroupOptions options_;
  std::unique_ptr<Watch> watch_;
  gpu::Stream own_;  // for calls without a stream
  std::atomic<uint64_t> sent_{0};
};

}  // namespace tessera::nccl
