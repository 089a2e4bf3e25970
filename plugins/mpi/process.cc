#include "process.h"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "engine.h"
#include "tessera/sdk/error.h"

namespace tessera::mpi {
namespace {

constexpr uint64_t kChannels = static_cast<uint64_t>(Channel::kCount);
constexpr uint64_t kTagsOfGroup = kTagSlots * kChannels;
// How long a rank that survived a failure waits, before it exits, for the others to exit.
constexpr double kFarewell_s = 5;
constexpr useconds_t kShortestSleep_us = 100, kLongestSleep_us = 3200;
constexpr std::chrono::seconds kAnswered{2}, kLongestWait{30};

}  // namespace

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  sdk::fail(TSR_INTERNAL, "mpi: ", what, ": ", text);
}

Process& Process::instance() {
  // never destroyed, because MPI's threads and exit handlers outlive everything
  static Process* const process = new Process;
  return *process;
}

// --- start -----------------------------------------------------------------------------------------------------------

void Process::initialise(double timeout_s) {
  std::unique_lock lock(starting_);
  if (state_ == State::kNot) {
    state_ = State::kStarting;
    std::thread([this] { start_up(); }).detach();
  }
  if (!started_.wait_until(lock, sdk::seconds_from_now(timeout_s), [&] { return state_ != State::kStarting; })) {
    sdk::fail(TSR_DEADLINE_EXCEEDED, "mpi: MPI_Init did not return within ", timeout_s,
              " s: not all ranks that the launcher started have called it (one may still be busy, or run another "
              "program)");
  }
  if (state_ == State::kBroken) sdk::fail(TSR_UNAVAILABLE, broken_);
}

void Process::start_up() noexcept {
  std::string problem;
  try {
    problem = initialise_once();
  } catch (const std::exception& e) {
    problem = e.what();
  }
  const std::lock_guard lock(starting_);
  broken_ = problem;
  state_ = problem.empty() ? State::kReady : State::kBroken;
  started_.notify_all();
}

// Open MPI opens components of its own, which look for its symbols among the global ones. The core opens plugins with
// RTLD_LOCAL, so the symbols must be made global.
void Process::promote_libmpi() const {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&MPI_Init_thread), &info) == 0 || info.dli_fname == nullptr) return;
  dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

// Returns "", or the reason why MPI cannot be used.
std::string Process::initialise_once() {
  promote_libmpi();
  int initialised = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialised);
  if (initialised != 0) {
    MPI_Query_thread(&level);
  } else {
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS) return "mpi: MPI_Init failed";
    initialised_by_ = getpid();
    on_exit(&at_exit, this);
  }
  if (level < MPI_THREAD_SERIALIZED) {
    return "mpi: MPI was initialised without thread support; ask MPI_Init_thread for MPI_THREAD_SERIALIZED";
  }
  check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
  check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  int* limit = nullptr;
  int found = 0;
  check(MPI_Comm_get_attr(comm_, MPI_TAG_UB, &limit, &found), "MPI_TAG_UB");
  tag_limit_ = found != 0 ? static_cast<uint64_t>(*limit) : 32767;
  find_hosts();
  return "";
}

void Process::find_hosts() {
  MPI_Comm here = MPI_COMM_NULL;
  check(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &here), "MPI_Comm_split_type");
  int first = rank_;
  check(MPI_Bcast(&first, 1, MPI_INT, 0, here), "MPI_Bcast");
  hosts_.resize(static_cast<size_t>(size_));
  check(MPI_Allgather(&first, 1, MPI_INT, hosts_.data(), 1, MPI_INT, comm_), "MPI_Allgather");
  check(MPI_Comm_free(&here), "MPI_Comm_free");
}

// --- end -------------------------------------------------------------------------------------------------------------

void Process::at_exit(int status, void* self) { static_cast<Process*>(self)->finalise(status); }

// MPI_Finalize waits for all ranks, but a failed rank never comes. So a process that ends with an error skips it, and
// the launcher sees the status and ends the job. A process that survived a failure waits up to kFarewell_s.
void Process::finalise(int status) {
  if (getpid() != initialised_by_) return;  // true in a child that this process has forked
  const std::lock_guard lock(mutex_);
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (finalised != 0 || status != 0 || comm_ == MPI_COMM_NULL || !usable()) return;
  MPI_Request all_ended = MPI_REQUEST_NULL;
  if (MPI_Ibarrier(comm_, &all_ended) != MPI_SUCCESS) return;
  const Clock::time_point deadline = failed_ ? sdk::seconds_from_now(kFarewell_s) : Clock::time_point::max();
  int ended = 0;
  useconds_t sleep_us = kShortestSleep_us;
  while (MPI_Test(&all_ended, &ended, MPI_STATUS_IGNORE) == MPI_SUCCESS && ended == 0 && Clock::now() < deadline) {
    usleep(sleep_us);
    sleep_us = std::min(2 * sleep_us, kLongestSleep_us);
  }
  if (ended == 0) return;
  const Clock::time_point began = Clock::now();
  MPI_Finalize();
  wait_for_launcher(Clock::now() - began);
}

// A rank in MPI_Finalize tells the launcher that it ends, and waits kAnswered for the answer (PMIx_Finalize). If many
// ranks share few processors with the launcher, the launcher may read this only after the rank has exited, and then
// reports that the rank has not called MPI_Finalize. So a rank that may not have got an answer sleeps before it exits,
// and leaves the processors to the launcher.
void Process::wait_for_launcher(Clock::duration finalised_in) const {
  if (finalised_in < kAnswered) return;
  std::this_thread::sleep_for(std::min<Clock::duration>(finalised_in, kLongestWait));
}

// --- groups ----------------------------------------------------------------------------------------------------------

uint64_t Process::new_group_id() {
  // Group 0 has all ranks. No two ranks choose the same number, and no rank chooses one twice.
  const uint64_t id = 1 + groups_ * static_cast<uint64_t>(size_) + static_cast<uint64_t>(rank_);
  if ((id + 1) * kTagsOfGroup > tag_limit_) {
    sdk::fail(TSR_RESOURCE_EXHAUSTED, "mpi: no more groups: rank ", rank_, " has made ", groups_,
              ", and MPI has no tags for another");
  }
  ++groups_;
  return id;
}

int Process::tag(uint64_t group, uint64_t sequence, Channel channel) const {
  return static_cast<int>((group * kTagSlots + sequence % kTagSlots) * kChannels + static_cast<uint64_t>(channel));
}

void Process::remove(Engine* engine) { std::erase(engines_, engine); }

void Process::progress() {
  check_usable();
  for (Engine* engine : engines_) engine->progress();
  std::erase_if(retired_, [](const std::shared_ptr<Op>& op) { return sent(*op); });
  std::erase_if(posted_, [](const std::unique_ptr<Posted>& posted) {
    int done = 0;
    return MPI_Test(&posted->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
  });
}

bool Process::sent(Op& op) {
  size_t left = 0;
  for (size_t i = 0; i < op.requests.size(); ++i) {
    int done = op.requests[i] == MPI_REQUEST_NULL ? 1 : 0;
    if (done == 0) check(MPI_Test(&op.requests[i], &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) continue;
    op.requests[left] = op.requests[i];
    op.parts[left++] = op.parts[i];
  }
  op.requests.resize(left);
  op.parts.resize(left);
  return left == 0;
}

void Process::post(const Notice& notice, int to, int tag) noexcept {
  if (!usable()) return;
  try {
    posted_.push_back(std::make_unique<Posted>());
  } catch (const std::bad_alloc&) {
    return;  // the other side has its own deadline
  }
  Posted& posted = *posted_.back();
  posted.notice = notice;
  if (MPI_Isend(&posted.notice, sizeof(Notice), MPI_BYTE, to, tag, comm_, &posted.request) != MPI_SUCCESS) {
    posted_.pop_back();
  }
}

void Process::give_up(const std::string& why) {
  failed_ = true;
  if (usable()) unusable_ = why;
}

void Process::check_usable() const {
  if (!usable()) sdk::fail(TSR_FAILED_PRECONDITION, unusable_);
}

}  // namespace tessera::mpi
