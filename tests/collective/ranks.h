// The transport under test, and the ranks of which this process is one.
//
// A launcher (`tessera launch`, mpirun) starts a program of this suite as several ranks with --backend=ID; all of them
// run the same tests in the same order. Tests use the transport like the core does: through its C functions, from a
// plugin that the Runtime opened.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/abi/collective.h"
#include "tessera/process_group.h"
#include "tessera/runtime.h"
#include "tessera/sdk/collective.h"
#include "tessera/sdk/error.h"
#include "tessera/sdk/tensor.h"

namespace tessera::test {

// The device of tensors. For a device transport, it is an emulated device whose memory is the host's.
inline DLDeviceType& tensor_device() {
  static DLDeviceType type = kDLCPU;
  return type;
}

// A vector as a one-dimensional tensor.
template <class T>
class View {
 public:
  explicit View(std::vector<T>& data) : size_(static_cast<int64_t>(data.size())) {
    tensor_ = {data.data(), {tensor_device(), 0}, 1, sdk::dtype_of<T>(), &size_, nullptr, 0};
  }
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  operator const DLTensor&() const { return tensor_; }

 private:
  int64_t size_;
  DLTensor tensor_;
};

// An operation in flight.
using Pending = tsr_work*;
using Counts = std::span<const int64_t>;

inline tsr_collective_call call(const char* label = nullptr, double timeout_s = 0) {
  return sdk::named_call(label, timeout_s);
}

// A group of the transport. Failures are thrown as sdk::Failure.
class Group {
 public:
  Group(const tsr_collective& api, tsr_group* raw) : api_(api), raw_(raw) {}
  ~Group() { api_.close(raw_); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return api_.rank(raw_); }
  int world_size() const { return api_.world_size(raw_); }
  std::unique_ptr<Group> split(int color, int key = 0) const;
  Pending all_to_all_v(const DLTensor& send, Counts send_counts, const DLTensor& recv, Counts recv_counts,
                       const tsr_collective_call& how) const;
  Pending all_reduce(const DLTensor& inout, int32_t op, const tsr_collective_call& how) const;
  Pending reduce_scatter_v(const DLTensor& send, Counts counts, const DLTensor& recv, int32_t op,
                           const tsr_collective_call& how) const;
  Pending all_gather_v(const DLTensor& send, const DLTensor& recv, Counts counts, const tsr_collective_call& how) const;
  Pending broadcast(const DLTensor& inout, int32_t root, const tsr_collective_call& how) const;
  Pending barrier(const tsr_collective_call& how) const;
  void finish(Pending work) const;
  void abort(const char* reason) const { api_.abort(raw_, reason); }
  uint64_t bytes_sent() const { return api_.bytes_sent(raw_); }
  int32_t host_of(int rank) const { return api_.host_of(raw_, rank); }

 private:
  const tsr_collective& api_;
  tsr_group* raw_;
};

// The result or exception of a rank's body.
struct Outcome {
  tsr_code code = TSR_OK;
  int rank = -1;  // the rank that the error blames
  std::string text;
};

struct JobOptions {
  std::string backend;
  std::string part_options = "{}";  // JSON for the backend
  double timeout_s = 20;            // for connecting, and for operations that do not set their own
  std::string speaker = {};         // component that words failures; empty: the backend
};

// All ranks of the job, connected.
class Job {
 public:
  explicit Job(const JobOptions& options);

  const std::string& speaker() const { return speaker_; }
  int rank() const { return all_->rank(); }
  int world_size() const { return all_->world_size(); }

  // Runs `body` on the first `world` ranks, in a group that is closed when it returns. Every rank of the job gets the
  // outcomes of all, including the idle ranks.
  std::vector<Outcome> run(int world, const std::function<std::string(Group&)>& body) const;

 private:
  Outcome run_here(Group* group, const std::function<std::string(Group&)>& body) const;

  Runtime runtime_;
  ComponentPtr part_;
  std::string speaker_;
  std::unique_ptr<Group> all_;
};

// The job of this process, once main() has connected it.
Job& job();

// Runs `body` on the job's ranks [0, world); the test fails if one of them throws.
void with_groups(int world, const std::function<void(Group&)>& body);
// The same, but returns what they threw. `body` may return a text.
std::vector<Outcome> outcomes_of(int world, const std::function<void(Group&)>& body);
std::vector<Outcome> texts_of(int world, const std::function<std::string(Group&)>& body);

}  // namespace tessera::test
