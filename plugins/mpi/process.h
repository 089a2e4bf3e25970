// MPI in this process: initialised once, one communicator for everything, one lock around every call.
//
// A process has only one MPI, so this is the plugin's only global object. MPI runs with MPI_THREAD_SERIALIZED: a thread
// that calls it, or touches the state of an Engine, holds mutex(). No call made under the lock blocks.
//
// Groups do not have their own communicators, because making one blocks without a deadline. Tags distinguish them: a
// group has an id that is unique among all groups that two processes share, and each id has its own tags.
#pragma once

#include <mpi.h>
#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "message.h"

namespace tessera::mpi {

class Engine;
struct Op;
using Clock = std::chrono::steady_clock;

// The kinds of messages of one operation.
enum class Channel { kHeader, kData, kDataReady, kResult, kResultReady, kNotice, kCount };
// The most operations of a group in flight at one rank, and the number of tag sets that operations rotate through.
// There are more tag sets, so that a rank that is ahead does not reuse a tag while another rank still waits for a
// message with it.
inline constexpr uint64_t kInFlight = 16;
inline constexpr uint64_t kTagSlots = 32;

class Process {
 public:
  static Process& instance();

  // Initialises MPI unless that was already done. MPI_Init waits for all ranks of the job without a limit, so it runs
  // in its own thread. Throws Failure(TSR_DEADLINE_EXCEEDED) if it does not return in time.
  void initialise(double timeout_s);

  std::mutex& mutex() { return mutex_; }
  MPI_Comm comm() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  // The first rank on the same machine as `rank`.
  int host_of(int rank) const { return hosts_[static_cast<size_t>(rank)]; }

  // [under mutex()] The id of a new group whose rank 0 is this process, and the tag of one of its messages. Throws
  // Failure(TSR_RESOURCE_EXHAUSTED) if MPI has no tags left.
  uint64_t new_group_id();
  int tag(uint64_t group, uint64_t sequence, Channel channel) const;

  // [under mutex()] Registers an engine. progress() advances the operations of all engines, so that a rank that waits
  // for one group still does its part in the others.
  void add(Engine* engine) { engines_.push_back(engine); }
  void remove(Engine* engine);
  void progress();

  // [under mutex()] Sends a notice to a rank of the communicator; neither fails nor waits.
  void post(const Notice& notice, int to, int tag) noexcept;

  // [under mutex()] Notes that a group has failed, so that the process does not wait without a limit at its end.
  void note_failure() { failed_ = true; }
  // [under mutex()] Call this if MPI may still write to a caller's memory; MPI must then not be called again.
  void give_up(const std::string& why);
  bool usable() const { return unusable_.empty(); }
  // [under mutex()] Throws if give_up() was called, with its text.
  void check_usable() const;
  // [under mutex()] Keeps memory that MPI may still read or write as long as the process lives, or an operation until
  // its messages have been sent.
  void keep(std::shared_ptr<void> memory) { kept_.push_back(std::move(memory)); }
  void retire(std::shared_ptr<Op> op) { retired_.push_back(std::move(op)); }
  // [under mutex()] True if all messages of a finished operation have been sent. Drops the requests that are complete.
  static bool sent(Op& op);

 private:
  Process() = default;
  void start_up() noexcept;
  std::string initialise_once();
  void promote_libmpi() const;
  void find_hosts();
  static void at_exit(int status, void* self);
  void finalise(int status);
  void wait_for_launcher(Clock::duration finalised_in) const;

  std::mutex mutex_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  std::vector<int> hosts_;  // per rank
  uint64_t tag_limit_ = 0;
  uint64_t groups_ = 0;  // made by this process
  std::vector<Engine*> engines_;
  struct Posted {
    Notice notice;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  std::vector<std::unique_ptr<Posted>> posted_;
  std::vector<std::shared_ptr<Op>> retired_;
  std::vector<std::shared_ptr<void>> kept_;
  std::string unusable_;
  bool failed_ = false;
  pid_t initialised_by_ = 0;

  std::mutex starting_;  // guards the members below
  std::condition_variable started_;
  enum class State { kNot, kStarting, kReady, kBroken } state_ = State::kNot;
  std::string broken_;
};

// Throws Failure(TSR_INTERNAL) with MPI's own text unless `code` is MPI_SUCCESS.
void check(int code, const char* what);

}  // namespace tessera::mpi
