// tessera/process_group.h - the ranks of a job and their collectives, over any collective/1 plugin.
//
// Every call has a deadline, and a failure poisons the group (abi/collective.h). All ranks must start operations in the
// same order. One thread at a time uses an object, except for abort().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/abi/collective.h"
#include "tessera/runtime.h"
#include "tessera/sharding.h"
#include "tessera/tensor.h"

namespace tessera {

// The identity of this process. from_environment() reads, in this order, torchrun's variables (RANK, WORLD_SIZE,
// LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT; `tessera launch` sets these too), Open MPI's and Slurm's.
// Without any there is one rank. kInvalidArgument: a variable is no number; the error names it.
struct RankEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;  // ranks on this host; 0: unknown, ProcessGroup asks the transport
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  std::string token;   // TESSERA_JOB_TOKEN
  std::string source;  // "torchrun", "mpirun", "slurm", "single": for messages
  static RankEnvironment from_environment();
  // Removes launchers' variables from the environment, for a process that will be a rank of another job. Do not call it
  // while other threads run.
  static void clear_environment();
};

struct ProcessGroupOptions {
  // comm.backend: a collective's id, with options as in "tcp?shm=false", a stack such as "codec:int8(tcp)", or "auto".
  // "auto" takes nccl if the tables are on a CUDA device, else the launcher's own transport (mpi under mpirun), else
  // the usable one of the highest priority.
  std::string backend = "auto";
  std::string options = "{}";  // JSON for the backend
  double timeout_s = 30;       // for connecting, and the default of every operation
  Device device = {};          // of this rank: location of most exchanges' tensors
  // comm.lossy: the data that a transport may send with less precision (TSR_CALL_LOSSY).
  bool lossy_rows = false, lossy_gradients = false;
  JoinExchanges join_exchanges = JoinExchanges::kAuto;
  Joins joins() const {
    return {join_exchanges, lossy_rows || lossy_gradients ? JoinExchanges::kNever : join_exchanges};
  }
};

// The contents of a step's exchange, which also give its direction.
enum class Carries {
  kOther,         // not in a step, or in neither direction
  kIds,           // forward
  kRows,          // forward: looked-up rows; comm.lossy may name them
  kRowGradients,  // backward: gradients of these; comm.lossy may name them
  kGradients,     // backward: gradients of dense parameters and data-parallel tables
};

// The place of a call in the program, which transports get beside its tensors (tsr_collective_call). A plain text is a
// label.
struct CallSite {
  CallSite(const char* text = nullptr, uint64_t number = 0, Carries what = Carries::kOther, int64_t width = 0)
      : label(text), place(number), carries(what), row_elements(width) {}
  const char* label;  // for messages and traces
  uint64_t place;     // distinguishes exchanges with the same label; equal on all ranks and in all steps
  Carries carries;
  int64_t row_elements;  // the tensors are rows of this many elements; 0: no rows, or several widths
};

enum class ReduceOp : int32_t { kSum = 0, kMax = 1, kMin = 2 };  // TSR_REDUCE_*

struct StagedExchange;

// An operation in flight. Wait for it while its group lives; the destructor waits and drops the error.
class Work {
 public:
  Work() = default;
  Work(Work&& other) noexcept
      : transport_(other.transport_),
        raw_(std::exchange(other.raw_, nullptr)),
        staged_(std::exchange(other.staged_, nullptr)) {}
  Work& operator=(Work&& other) noexcept;
  ~Work();
  void wait();  // throws the operation's error
  bool pending() const { return raw_ != nullptr; }

 private:
  friend class ProcessGroup;
  Work(const tsr_component* transport, tsr_work* raw, StagedExchange* staged = nullptr)
      : transport_(transport), raw_(raw), staged_(staged) {}
  const tsr_component* transport_ = nullptr;
  tsr_work* raw_ = nullptr;
  StagedExchange* staged_ = nullptr;  // host memory in place of tensors on a device
};

class ProcessGroup {
 public:
  // Meets the other ranks. With one rank everything is local, without backend or network.
  static std::shared_ptr<ProcessGroup> connect(const Runtime& runtime, const RankEnvironment& where,
                                               const ProcessGroupOptions& options = {});
  ~ProcessGroup();

  int rank() const;
  int world_size() const;
  // Rank r is local rank r % local_world_size() of host r / local_world_size(), and all hosts have equally many ranks.
  // connect() gets this from the launcher's variables or the transport; kInvalidArgument on every rank: it is not so.
  // If hosts in a group from split() are uneven, each rank counts as a host.
  int local_rank() const;
  int local_world_size() const;
  const std::string& backend() const;
  Joins joins() const;  // what is joined of a step in host memory

  // Ranks with the same color >= 0 form a group, ordered by `key`, then by their ranks here. Color -1 gives nullptr.
  // All ranks must call it.
  std::shared_ptr<ProcessGroup> split(int color, int key = 0) const;
  // The ranks of this host, by local rank. All ranks of all hosts must make the first call; later calls return the
  // same.
  std::shared_ptr<ProcessGroup> in_host() const;
  // The ranks with this rank's local rank, one on each host, by host. As with in_host(), all ranks must make the first
  // call.
  std::shared_ptr<ProcessGroup> across_hosts() const;

  // Counts are elements per rank, with data in rank order (abi/collective.h). Buffers must live until wait(). Tensors
  // on a device are exchanged in stream order. If the transport only knows host memory, they go through it, and the
  // start of the operation waits for the data to send.
  Work all_to_all_v(const Tensor& send, std::span<const int64_t> send_counts, const Tensor& recv,
                    std::span<const int64_t> recv_counts, const CallSite& site = {}) const;
  Work all_reduce(const Tensor& inout, ReduceOp op = ReduceOp::kSum, const CallSite& site = {}) const;
  Work reduce_scatter_v(const Tensor& send, std::span<const int64_t> counts, const Tensor& recv,
                        ReduceOp op = ReduceOp::kSum, const CallSite& site = {}) const;
  Work all_gather_v(const Tensor& send, const Tensor& recv, std::span<const int64_t> counts,
                    const CallSite& site = {}) const;
  Work broadcast(const Tensor& inout, int root, const CallSite& site = {}) const;
  void barrier(const char* label = nullptr) const;

  // Gathers a value of each rank, in rank order, byte by byte.
  template <class T>
  std::vector<T> all_gather(const T& mine, const char* label = nullptr) const {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<size_t>(world_size()));
    gather_bytes(&mine, all.data(), sizeof(T), label);
    return all;
  }
  // Gathers the same number of values of each rank.
  template <class T>
  std::vector<std::vector<T>> all_gather(const std::vector<T>& mine, const char* label = nullptr) const {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> flat(mine.size() * static_cast<size_t>(world_size()));
    gather_bytes(mine.data(), flat.data(), static_cast<int64_t>(mine.size() * sizeof(T)), label);
    std::vector<std::vector<T>> all;
    for (auto at = flat.begin(); std::ssize(all) < world_size(); at += std::ssize(mine))
      all.emplace_back(at, at + std::ssize(mine));
    return all;
  }
  // Gathers all ranks' texts, in rank order. Use it for plans, names and errors, not in the hot path.
  std::vector<std::string> all_gather_text(const std::string& text, const char* label = nullptr) const;

  uint64_t bytes_sent() const;  // to other ranks, since connect
  // [any-thread] Seconds that this rank has waited for each rank since connect, including groups from split(); its own
  // entry is 0 (abi/draft/waits.h). Empty: the transport does not say, or there is one rank.
  std::vector<double> waited_s() const;
  // Bytes that the transport sends for `elements` elements between two ranks, in an all_to_all_v at such a site.
  int64_t wire_bytes(const CallSite& site, DType dtype, int64_t elements) const;
  // [any-thread] Also aborts in_host() and across_hosts(), if they exist.
  void abort(const std::string& reason) const;

 private:
  struct Impl;
  explicit ProcessGroup(std::unique_ptr<Impl> impl);
  // `all` has room for `bytes` of each rank.
  void gather_bytes(const void* mine, void* all, int64_t bytes, const char* label) const;
  void find_hosts();
  std::vector<int32_t> hosts_by_transport() const;
  int local_ranks_of(int color, int key) const;
  std::shared_ptr<ProcessGroup> part(std::shared_ptr<ProcessGroup>& kept, int color) const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
