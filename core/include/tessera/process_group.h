// tessera/process_group.h - the ranks of a job and what they do together, over any collective/1 plugin.
//
// Every call has a deadline; a failure poisons the group (abi/collective.h). Operations start in the same order on all
// ranks. An object is used by one thread at a time, abort() aside.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/abi/collective.h"
#include "tessera/runtime.h"
#include "tessera/tensor.h"

namespace tessera {

// The identity of this process. from_environment() understands, in this order, torchrun's variables (RANK, WORLD_SIZE,
// LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT; also set by `tessera launch`), Open MPI's and Slurm's;
// without any: one rank. A variable that is no number is kInvalidArgument and named.
struct RankEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;  // ranks on this host; 0: the launcher does not say, ProcessGroup asks the transport
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  std::string token;   // TESSERA_JOB_TOKEN
  std::string source;  // "torchrun", "mpirun", "slurm", "single": for messages
  static RankEnvironment from_environment();
  // Takes what launchers have said about this process out of the environment: for one that is about to play a rank of
  // another job than the one it was started in. Not while other threads run.
  static void clear_environment();
};

struct ProcessGroupOptions {
  // comm.backend: a collective's id, with options as in "tcp?shm=false", a stack such as "codec:int8(tcp)", or "auto":
  // nccl where the tables are on a CUDA device, else the launcher's own transport under it (mpi under mpirun), else the
  // usable one of the highest priority.
  std::string backend = "auto";
  std::string options = "{}";  // JSON for the backend
  double timeout_s = 30;       // for connecting, and the default of every operation
  Device device = {};          // of this rank: where the tensors of most exchanges are
  // comm.lossy: what a transport may send with less precision (TSR_CALL_LOSSY).
  bool lossy_rows = false, lossy_gradients = false;
};

// The contents of an exchange of a step, which also tell its direction.
enum class Carries {
  kOther,         // of no step, or of neither direction
  kIds,           // forward
  kRows,          // forward: looked-up rows, which comm.lossy may name
  kRowGradients,  // backward: theirs, likewise
  kGradients,     // backward: of dense parameters and data-parallel tables
};

// The place of a call in the program, which transports are told beside its tensors (tsr_collective_call). A text
// alone is a label.
struct CallSite {
  CallSite(const char* text = nullptr, uint64_t number = 0, Carries what = Carries::kOther, int64_t width = 0)
      : label(text), place(number), carries(what), row_elements(width) {}
  const char* label;  // for messages and traces
  uint64_t place;     // tells exchanges of one label apart; equal on all ranks and in all steps
  Carries carries;
  int64_t row_elements;  // the tensors are rows of so many elements; 0: they are not, or of several widths
};

enum class ReduceOp : int32_t { kSum = 0, kMax = 1, kMin = 2 };  // TSR_REDUCE_*

struct StagedExchange;

// An operation in flight; must be waited for while its group lives. The destructor waits and drops the error.
class Work {
 public:
  Work() = default;
  Work(Work&& other) noexcept
      : transport_(other.transport_),
        raw_(std::exchange(other.raw_, nullptr)),
        staged_(std::exchange(other.staged_, nullptr)) {}
  Work& operator=(Work&& other) noexcept;
  ~Work();
  void wait();  // throws what went wrong
  bool pending() const { return raw_ != nullptr; }

 private:
  friend class ProcessGroup;
  Work(const tsr_component* transport, tsr_work* raw, StagedExchange* staged = nullptr)
      : transport_(transport), raw_(raw), staged_(staged) {}
  const tsr_component* transport_ = nullptr;
  tsr_work* raw_ = nullptr;
  StagedExchange* staged_ = nullptr;  // host memory that stands for tensors on a device
};

class ProcessGroup {
 public:
  // Meets the other ranks. World size 1 needs no backend and no network: everything is local.
  static std::shared_ptr<ProcessGroup> connect(const Runtime& runtime, const RankEnvironment& where,
                                               const ProcessGroupOptions& options = {});
  ~ProcessGroup();

  int rank() const;
  int world_size() const;
  // Rank r is local rank r % local_world_size() of host r / local_world_size(), and all hosts have as many ranks.
  // connect() takes this from the launcher's variables or else from the transport; where it cannot be so, every rank
  // gets kInvalidArgument. In a group from split() whose hosts are uneven each rank counts as a host.
  int local_rank() const;
  int local_world_size() const;
  const std::string& backend() const;

  // Ranks with equal color >= 0 form a group, in the order of `key`, then of their ranks here; nullptr for color -1.
  // All ranks call it.
  std::shared_ptr<ProcessGroup> split(int color, int key = 0) const;
  // The ranks of this host, by local rank. All ranks of all hosts make the first call; it is kept for further ones.
  std::shared_ptr<ProcessGroup> in_host() const;
  // The ranks with this rank's local rank, one on each host, by host. Called like in_host().
  std::shared_ptr<ProcessGroup> across_hosts() const;

  // Counts are elements per rank, pieces in rank order (abi/collective.h). Buffers live until wait(). Tensors on a
  // device are exchanged in the order of their stream; where the transport knows host memory only, they make the detour
  // over it, and the start of the operation waits for what it sends.
  Work all_to_all_v(const Tensor& send, std::span<const int64_t> send_counts, const Tensor& recv,
                    std::span<const int64_t> recv_counts, const CallSite& site = {}) const;
  Work all_reduce(const Tensor& inout, ReduceOp op = ReduceOp::kSum, const CallSite& site = {}) const;
  Work reduce_scatter_v(const Tensor& send, std::span<const int64_t> counts, const Tensor& recv,
                        ReduceOp op = ReduceOp::kSum, const CallSite& site = {}) const;
  Work all_gather_v(const Tensor& send, const Tensor& recv, std::span<const int64_t> counts,
                    const CallSite& site = {}) const;
  Work broadcast(const Tensor& inout, int root, const CallSite& site = {}) const;
  void barrier(const char* label = nullptr) const;

  // Everybody's text, in rank order. For plans, names, errors: not for the hot path.
  std::vector<std::string> all_gather_text(const std::string& text, const char* label = nullptr) const;

  uint64_t bytes_sent() const;  // to other ranks, since connect
  // [any-thread] Seconds that this rank has waited for each rank, its own 0 (abi/draft/waits.h); since connect, in
  // groups from split(), too. Empty: the transport does not say, or there is one rank.
  std::vector<double> waited_s() const;
  // The bytes that the transport sends for a piece of `elements` between two ranks in an all_to_all_v at such a site.
  int64_t wire_bytes(const CallSite& site, DType dtype, int64_t elements) const;
  // [any-thread] Also of in_host() and across_hosts(), where they have been made.
  void abort(const std::string& reason) const;

 private:
  struct Impl;
  explicit ProcessGroup(std::unique_ptr<Impl> impl);
  void find_hosts();
  std::vector<int32_t> hosts_by_transport() const;
  int local_ranks_of(int color, int key) const;
  std::shared_ptr<ProcessGroup> part(std::shared_ptr<ProcessGroup>& kept, int color) const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
