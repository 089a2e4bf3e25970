// The data path of one group: operations in flight, which advance whenever any of them is waited for.
//
// Operations are exchanges between pairs of ranks by MPI_Isend and MPI_Irecv, in one step or, for a large all_reduce,
// in two. MPI's own collectives are not used: one that a rank does not join can neither be ended nor say which rank is
// missing, and one that ranks call with different sizes damages memory. Here the first message between two ranks
// describes the operation and includes small data. Larger data follows in separate messages, which are received in
// place. Reductions happen in rank order: the same bits on all ranks, in every run.
//
// MPI cannot take a send back. Therefore the caller's memory is given to MPI only if the peer has said that it is
// receiving. If a peer never comes, nothing is in flight to it, and the caller may free its buffers once wait() has
// failed. Smaller data is sent from a copy, without asking.
//
// This engine does not use sdk/pair_engine.h. Its links are streams, which are read into the data's place. MPI has
// messages, whose receives must be posted beforehand with their place and size. A stream over them would be messages
// of fixed size through buffers at both ends, which means two more copies of all large data; MPI otherwise fetches it
// out of the other process, or its network card writes it in place. MPI also has no descriptor to sleep on, and no call
// that says that a peer is gone. Only the texts of failures are shared (sdk/pair_failures.h).
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "message.h"
#include "process.h"
#include "tessera/sdk/collective.h"
#include "tessera/sdk/host_reductions.h"

namespace tessera::mpi {

struct PeerTransfer : sdk::PeerTransfer {
  // State of the transfer, set and used by the engine.
  int sending = 0;      // messages of `send` in flight that are not copies; 1 if the first is still to be sent
  int handing_out = 0;  // the same for the reduced block
  int arriving = 0;     // messages of the other rank's data that have not arrived
  int results = 0;      // messages of its reduced block that have not arrived
  bool heard = false;   // its header has arrived
  bool wants = false;   // it is ready to receive the reduced block
  bool asked = false;   // its reduced block is being received
};

struct Reduction : sdk::ReducedPiece {
  sdk::ReduceFn function = nullptr;  // null if the operation does not reduce

  bool exists() const { return function != nullptr; }
};

class Engine;

// One operation. It belongs to its engine and is reused after wait().
struct Op final : sdk::PairwiseOp {
  Engine* engine = nullptr;
  std::vector<PeerTransfer> transfers;  // per rank
  Reduction reduction;

  enum class Role : uint8_t { kSend, kHandOut, kOwn, kHeader, kData, kDataReady, kResult, kResultReady };
  struct Part {
    Role role;
    int32_t rank;
    bool lent;         // true: memory of the caller; false: the operation's own
    size_t bytes = 0;  // bytes to receive; for a header, the largest number
    bool receives() const { return role >= Role::kHeader; }
  };
  std::vector<MPI_Request> requests;
  std::vector<Part> parts;                // one per request
  std::vector<Message> out, in;           // per rank
  std::vector<std::vector<char>> copies;  // copies of data, per receiving rank
  std::vector<char> result;               // a copy of the reduced block
  std::vector<char> contributions;        // per rank, a contribution too large for a header's message
  int contributions_left = 0;             // ranks left
  int sends_left = 0;                     // transfers left
  int receives_left = 0;
  // True if the caller's memory is no longer used. Messages in the operation's own memory may still be in flight.
  bool done() const { return sends_left == 0 && receives_left == 0; }

  void wait() override;
  void recycle() noexcept override;
};

struct EngineOptions {
  uint64_t id = 0;
  int32_t rank = 0;
  std::vector<int> ranks;  // the members' ranks in MPI's communicator
  double timeout_s = 30;   // for operations that do not set their own
  double spin_us = 0;      // how long to poll before sleeping
  // bytes; larger data is split into several messages, because MPI counts with an int
  size_t max_message = size_t{1} << 30;
};

class Engine {  // used by sdk::PairwiseGroup
 public:
  static constexpr const char* kName = "mpi";
  static constexpr size_t kExchangedWhole = kInline;

  explicit Engine(EngineOptions options);
  ~Engine();  // tells the other ranks that this one leaves
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int32_t rank() const { return options_.rank; }
  int32_t name() const { return name(rank()); }
  int32_t world_size() const { return static_cast<int32_t>(options_.ranks.size()); }
  const EngineOptions& options() const { return options_; }

  // A cleared operation with its name and deadline, to be filled in and started, or given up with recycle().
  Op& prepare(sdk::OpKind kind, const sdk::CollectiveCall& call);
  static void reduces(Op& op, DLDataType dtype, int32_t reduce);
  static void keep(Op&, char* to, const char* from, size_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
  }
  void start(Op& op);
  void wait(Op& op);
  void recycle(Op& op) noexcept;

  // Poisons the group, tells all others, and throws `code` with that text. The others also report `code`.
  [[noreturn]] void refuse(tsr_code code, const sdk::Blame& blame);
  // [any-thread] Poisons the group. This rank reports TSR_CANCELLED, the others TSR_ABORTED.
  void abort(const std::string& reason) noexcept;
  void throw_if_failed() const { failure_.throw_if_set(); }

  uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }

  // [under the process's mutex] Advances all operations in flight. An error poisons the group.
  void progress() noexcept;

 private:
  // All of these are called under the process's mutex.
  void begin(Op& op);
  void send_first(Op& op, int32_t rank);
  void send(Op& op, Op::Part part, Channel channel, const char* data, size_t bytes, int* count);
  void receive(Op& op, Op::Part part, char* to, size_t bytes, int* count);
  void send_message(Op& op, Op::Part part, Channel channel, const void* data, size_t bytes);
  void receive_message(Op& op, Op::Part part, Channel channel, void* to, size_t bytes);
  void signal(Op& op, Channel channel, int32_t rank);
  void hand_out_if_due(Op& op, int32_t rank);
  void move(Op& op);
  void ended(Op& op, Op::Part part, const MPI_Status& status);
  void heard(Op& op, int32_t rank, size_t bytes);
  void receive_result_if_due(Op& op, int32_t rank);
  void end_receive_if_complete(Op& op, int32_t rank);
  void end_send_if_complete(Op& op, int32_t rank);
  void contributed(Op& op);
  void reduce(Op& op);
  char* contribution(Op& op, int32_t rank);
  bool wait_once(Op& op, Clock::time_point deadline);

  // Failures (failures.cc). These are also called under the process's mutex.
  int32_t name(int32_t rank) const { return options_.ranks[static_cast<size_t>(rank)]; }  // for messages
  static sdk::Blame named(const sdk::Blame& blame);
  [[noreturn]] void fail(tsr_code code, const sdk::Blame& blame);
  void poison(tsr_code code, const sdk::Blame& blame, bool tell = true) noexcept;
  void tell_all(Notice::Kind kind, tsr_code code, const sdk::Blame& blame) noexcept;
  void listen();
  void read_notices();
  void check_left(const Op& op);
  [[noreturn]] void damaged(const Op& op, int32_t rank);
  [[noreturn]] void late(const Op& op);
  void abandon(Op& op) noexcept;
  void stop_listening() noexcept;
  void reclaim();
  [[noreturn]] void congested(const Op& op, double timeout_s);

  Process& process_;
  EngineOptions options_;
  uint64_t next_sequence_ = 0;
  std::vector<Op*> in_flight_;
  std::vector<std::shared_ptr<Op>> ops_;
  std::vector<Op*> free_ops_;
  std::vector<Op*> resting_;          // recycled operations with messages in flight
  std::vector<int> ended_;            // result of MPI_Testsome
  std::vector<MPI_Status> statuses_;  // statuses from MPI_Testsome
  std::atomic<uint64_t> bytes_sent_{0};

  std::shared_ptr<Notice> notice_;
  MPI_Request notice_request_ = MPI_REQUEST_NULL;
  // per rank: how many operations it had started when it left; the largest number if it has not left
  std::vector<uint64_t> left_at_;
  sdk::FirstFailure failure_;
};

}  // namespace tessera::mpi
