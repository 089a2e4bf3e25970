#include "communicator.h"

#include <cstring>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace tessera::nccl {
namespace {

constexpr std::chrono::microseconds kPause{50};

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

// Rank 0's id, distributed over the side channel.
ncclUniqueId shared_id(const Side& side, double timeout_s) {
  ncclUniqueId id{};
  static_assert(sizeof(id) % sizeof(int64_t) == 0);
  std::vector<int64_t> words(sizeof(id) / sizeof(int64_t));
  if (side.rank() == 0) {
    check(ncclGetUniqueId(&id), nullptr, "cannot make an id");
    std::memcpy(words.data(), &id, sizeof(id));
  }
  const auto all = side.all_gather(words, "nccl id", timeout_s);
  std::memcpy(&id, all.data(), sizeof(id));
  return id;
}

std::shared_future<void> abort_in_background(ncclComm_t comm) {
  std::promise<void> promise;
  std::shared_future<void> returned = promise.get_future().share();
  try {
    std::thread([comm, promise = std::move(promise)]() mutable {
      ncclCommAbort(comm);
      promise.set_value();
    }).detach();
  } catch (const std::system_error&) {  // no thread is available
    ncclCommAbort(comm);
    promise = {};
    promise.set_value();
    returned = promise.get_future().share();
  }
  return returned;
}

bool came_within(double seconds, const std::shared_future<void>& future) {
  return future.wait_until(after(seconds)) == std::future_status::ready;
}

}  // namespace

void check(ncclResult_t result, ncclComm_t comm, const char* what) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* more = ncclGetLastError(comm);
  sdk::fail(result == ncclInvalidArgument ? TSR_INVALID_ARGUMENT : TSR_INTERNAL, what, ": ", ncclGetErrorString(result),
            more && *more ? std::string(" (") + more + ")" : std::string());
}

std::unique_ptr<Communicator> Communicator::connect(const Side& side, double timeout_s, double patience_s) {
  const Clock::time_point deadline = after(timeout_s);
  const ncclUniqueId id = shared_id(side, timeout_s);
  ncclConfig_t config = non_blocking();
  ncclComm_t comm = nullptr;
  const ncclResult_t result = ncclCommInitRankConfig(&comm, side.world_size(), id, side.rank(), &config);
  std::unique_ptr<Communicator> made(new Communicator(comm, patience_s));
  made->settle(result, deadline, "cannot connect");
  return made;
}

Communicator::~Communicator() {
  // Nothing is in flight. Unlike ncclCommDestroy, an abort does not wait for other ranks.
  if (comm_) came_within(patience_s_, abort_in_background(comm_));
}

std::unique_ptr<Communicator> Communicator::split(int32_t color, int32_t rank, double timeout_s) {
  const Clock::time_point deadline = after(timeout_s);
  ncclConfig_t config = non_blocking();
  auto child = std::make_unique<ncclComm_t>(nullptr);  // NCCL may write to it until the split has ended
  ncclResult_t result = ncclSuccess;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) throw sdk::Failure(*stopped_);
    result = ncclCommSplit(comm_, color < 0 ? NCCL_SPLIT_NOCOLOR : color, rank, child.get(), &config);
  }
  try {
    settle(result, deadline, "cannot split");
  } catch (const sdk::Failure& failure) {
    if (!stop(failure)) {
      (void)child.release();  // leaks it, because NCCL may still write to it
    } else if (*child) {
      came_within(patience_s_, abort_in_background(*child));
    }
    throw;
  }
  if (!*child) return nullptr;
  std::unique_ptr<Communicator> made(new Communicator(*child, patience_s_));
  made->settle(ncclInProgress, deadline, "cannot split");
  return made;
}

void Communicator::settle(ncclResult_t result, Clock::time_point deadline, const char* what) {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) throw sdk::Failure(*stopped_);
      check(result, comm_, what);
      if (result == ncclSuccess) return;
      check(ncclCommGetAsyncError(comm_, &result), comm_, what);
      check(result, comm_, what);
      if (result == ncclSuccess) return;
    }
    if (Clock::now() > deadline) sdk::fail(TSR_DEADLINE_EXCEEDED, what, ": not all ranks came in time");
    std::this_thread::sleep_for(kPause);
  }
}

void Communicator::enqueue(const std::function<void(ncclComm_t)>& body, Clock::time_point deadline) {
  ncclResult_t result = ncclSuccess;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) throw sdk::Failure(*stopped_);
    check(ncclGroupStart(), comm_, "cannot begin an operation");
    try {
      body(comm_);
    } catch (...) {
      ncclGroupEnd();
      throw;
    }
    result = ncclGroupEnd();
  }
  settle(result, deadline, "cannot start an operation");
}

std::string Communicator::broken() {
  const std::lock_guard lock(mutex_);
  if (stopped_ || !comm_) return {};
  ncclResult_t result = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
  if (asked != ncclSuccess) result = asked;
  if (result == ncclSuccess || result == ncclInProgress) return {};
  const char* more = ncclGetLastError(comm_);
  return std::string(ncclGetErrorString(result)) + (more && *more ? std::string(" (") + more + ")" : "");
}

bool Communicator::stop(const sdk::Failure& why) {
  std::shared_future<void> aborted;
  {
    const std::lock_guard lock(mutex_);
    if (!stopped_) {
      stopped_ = std::make_unique<sdk::Failure>(why);
      aborted_ = abort_in_background(std::exchange(comm_, nullptr));
    }
    aborted = aborted_;
  }
  return came_within(patience_s_, aborted);
}

}  // namespace tessera::nccl
