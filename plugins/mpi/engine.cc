#include "engine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "tessera/sdk/error.h"

namespace tessera::mpi {
namespace {

// Bytes that are reduced at a time, few enough to stay in the cache.
constexpr size_t kChunk = size_t{256} << 10;
// An operation whose data arrived in time is not late because wait() was called late.
constexpr std::chrono::milliseconds kWaitGrace{100};
// The most recycled operations whose messages some rank has not received. It limits how far a rank can be ahead.
constexpr size_t kMostResting = 64;
constexpr int kShortSleep_us = 20, kLongSleep_us = 500;

}  // namespace

void Op::wait() { engine->wait(*this); }
void Op::recycle() noexcept { engine->recycle(*this); }

Engine::Engine(EngineOptions options) : process_(Process::instance()), options_(std::move(options)) {
  if (world_size() == 1) return;
  left_at_.assign(options_.ranks.size(), std::numeric_limits<uint64_t>::max());
  notice_ = std::make_shared<Notice>();
  const std::lock_guard lock(process_.mutex());
  process_.check_usable();
  listen();
  process_.add(this);
}

Engine::~Engine() {
  if (world_size() == 1) return;
  const std::lock_guard lock(process_.mutex());
  process_.remove(this);
  while (!in_flight_.empty()) abandon(*in_flight_.back());
  for (std::shared_ptr<Op>& op : ops_) {
    if (!op->requests.empty()) process_.retire(std::move(op));
  }
  if (!failure_.is_set()) tell_all(Notice::kGoodbye, TSR_OK, {});
  stop_listening();
}

// --- operations ------------------------------------------------------------------------------------------------------

Op& Engine::prepare(sdk::OpKind kind, const sdk::CollectiveCall& call) {
  const double timeout_s = call.timeout_s > 0 ? call.timeout_s : options_.timeout_s;
  const Clock::time_point deadline = sdk::seconds_from_now(timeout_s);
  while (free_ops_.empty() && !resting_.empty()) {
    {
      const std::lock_guard lock(process_.mutex());
      reclaim();
      throw_if_failed();
      if (resting_.size() < kMostResting) break;
      if (Clock::now() >= deadline) congested(*resting_.front(), timeout_s);
    }
    usleep(kShortSleep_us);
  }
  if (free_ops_.empty()) {
    free_ops_.reserve(ops_.size() + 1);  // recycle() must not fail
    resting_.reserve(ops_.size() + 1);
    ops_.push_back(std::make_shared<Op>());
    Op& made = *ops_.back();
    made.engine = this;
    if (world_size() > 1) {
      made.out.resize(options_.ranks.size());
      made.in.resize(options_.ranks.size());
      made.copies.resize(options_.ranks.size());
    }
    free_ops_.push_back(&made);
  }
  Op& op = *free_ops_.back();
  free_ops_.pop_back();
  op.begin(kind, call, options_.timeout_s);
  op.deadline = deadline;
  op.transfers.assign(options_.ranks.size(), PeerTransfer{});
  op.reduction = Reduction{};
  op.requests.clear();
  op.parts.clear();
  op.contributions_left = op.sends_left = op.receives_left = 0;
  return op;
}

void Engine::recycle(Op& op) noexcept { (op.requests.empty() ? free_ops_ : resting_).push_back(&op); }

// Reuses operations whose messages have all been sent.
void Engine::reclaim() {
  if (failure_.is_set() || !process_.usable()) return;  // no further operation starts
  process_.progress();
  std::erase_if(resting_, [&](Op* op) {
    if (!Process::sent(*op)) return false;
    free_ops_.push_back(op);
    return true;
  });
}

void Engine::start(Op& op) {
  if (world_size() == 1) return;
  while (true) {
    std::unique_lock lock(process_.mutex());
    if (in_flight_.size() < kInFlight) break;
    Op& oldest = *in_flight_.front();
    lock.unlock();
    wait(oldest);
  }
  try {
    const std::lock_guard lock(process_.mutex());
    begin(op);
  } catch (...) {
    recycle(op);
    throw;
  }
}

void Engine::begin(Op& op) {
  try {
    throw_if_failed();
    process_.check_usable();
    read_notices();
    op.header.sequence = next_sequence_++;
    check_left(op);
    if (op.reduction.exists()) op.contributions_left = world_size() - 1;
    // Starts with the next rank, so that not all ranks send to rank 0 first.
    for (int32_t k = 1; k < world_size(); ++k) {
      const int32_t rank = (options_.rank + k) % world_size();
      PeerTransfer& transfer = op.transfers[rank];
      op.sends_left += transfer.sends;
      op.receives_left += transfer.receives;
      if (transfer.receives) {
        receive_message(op, {Op::Role::kHeader, rank, false}, Channel::kHeader, &op.in[rank], sizeof(Message));
      }
      if (transfer.sends) send_first(op, rank);
      end_send_if_complete(op, rank);
    }
    if (!op.done()) in_flight_.push_back(&op);
  } catch (const sdk::Failure& failure) {
    poison(failure.code(), {failure.what(), failure.rank()});
    abandon(op);
    failure_.rethrow();
  }
}

void Engine::wait(Op& op) {
  if (world_size() == 1) return;
  const Clock::time_point begin = Clock::now();
  const Clock::time_point deadline = std::max(op.deadline, begin + kWaitGrace);
  const auto spin = std::chrono::duration<double, std::micro>(options_.spin_us);
  int sleep_us = kShortSleep_us;
  while (!wait_once(op, deadline)) {
    if (Clock::now() - begin < spin) {
      sched_yield();  // ranks may share a core, which the rank that is waited for may need
    } else {
      usleep(static_cast<useconds_t>(sleep_us));
      sleep_us = std::min(sleep_us * 2, kLongSleep_us);
    }
  }
}

// Returns true when the operation is done.
bool Engine::wait_once(Op& op, Clock::time_point deadline) {
  const std::lock_guard lock(process_.mutex());
  if (op.done()) return true;
  try {
    throw_if_failed();
    process_.progress();
    if (op.done()) return true;
    throw_if_failed();
    if (Clock::now() >= deadline) late(op);
  } catch (const sdk::Failure& failure) {
    poison(failure.code(), {failure.what(), failure.rank()});
    abandon(op);
    failure_.rethrow();
  }
  return false;
}

// --- messages --------------------------------------------------------------------------------------------------------

void Engine::send(Op& op, Op::Part part, Channel channel, const char* data, size_t bytes, int* count) {
  for (size_t done = 0; done < bytes;) {
    const size_t n = std::min(bytes - done, options_.max_message);
    send_message(op, part, channel, data + done, n);
    ++*count;
    done += n;
  }
}

void Engine::receive(Op& op, Op::Part part, char* to, size_t bytes, int* count) {
  const Channel channel = part.role == Op::Role::kResult ? Channel::kResult : Channel::kData;
  for (size_t done = 0; done < bytes;) {
    const size_t n = std::min(bytes - done, options_.max_message);
    receive_message(op, part, channel, to + done, n);
    ++*count;
    done += n;
  }
}

void Engine::send_message(Op& op, Op::Part part, Channel channel, const void* data, size_t bytes) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, options_.ranks[part.rank],
                  process_.tag(options_.id, op.header.sequence, channel), process_.comm(), &request),
        "MPI_Isend");
  op.requests.push_back(request);
  op.parts.push_back(part);
  bytes_sent_.fetch_add(bytes, std::memory_order_relaxed);
}

void Engine::receive_message(Op& op, Op::Part part, Channel channel, void* to, size_t bytes) {
  MPI_Request request = MPI_REQUEST_NULL;
  part.bytes = bytes;
  check(MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, options_.ranks[part.rank],
                  process_.tag(options_.id, op.header.sequence, channel), process_.comm(), &request),
        "MPI_Irecv");
  op.requests.push_back(request);
  op.parts.push_back(part);
}

// Tells a rank that it may send its data or its reduced block, because the receive is posted.
void Engine::signal(Op& op, Channel channel, int32_t rank) {
  send_message(op, {Op::Role::kOwn, rank, false}, channel, nullptr, 0);
}

// Sends the header. Small data is in its message; larger data follows in a copy; the largest follows from its place
// when the other rank is ready.
void Engine::send_first(Op& op, int32_t rank) {
  PeerTransfer& transfer = op.transfers[rank];
  Message& message = op.out[rank];
  message.header = op.header;
  message.header.bytes = transfer.send_bytes + (op.reduction.hands_out ? op.reduction.bytes : 0);
  const size_t within = transfer.send_bytes <= kInline ? transfer.send_bytes : 0;
  if (within > 0) std::memcpy(message.data, transfer.send, within);
  send_message(op, {Op::Role::kOwn, rank, false}, Channel::kHeader, &message, sizeof(sdk::OpHeader) + within);
  if (transfer.send_bytes > kCopied) {
    ++transfer.sending;  // it is sent when the other rank is ready
    receive_message(op, {Op::Role::kDataReady, rank, false}, Channel::kDataReady, nullptr, 0);
  } else if (within < transfer.send_bytes) {
    op.copies[rank].assign(transfer.send, transfer.send + transfer.send_bytes);
    int own = 0;
    send(op, {Op::Role::kOwn, rank, false}, Channel::kData, op.copies[rank].data(), transfer.send_bytes, &own);
  }
  if (!op.reduction.hands_out || op.reduction.bytes == 0) return;
  transfer.handing_out = 1;  // it is sent when the reduction is done and the other rank is ready
  transfer.wants = op.reduction.bytes <= kCopied;
  if (!transfer.wants) receive_message(op, {Op::Role::kResultReady, rank, false}, Channel::kResultReady, nullptr, 0);
}

void Engine::progress() noexcept {
  if (failure_.is_set()) return;
  try {
    read_notices();
    for (size_t i = 0; i < in_flight_.size();) {
      Op& op = *in_flight_[i];
      move(op);
      if (op.done()) {
        in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(i));
        Process::sent(op);
      } else {
        ++i;
      }
    }
  } catch (const sdk::Failure& failure) {
    poison(failure.code(), {failure.what(), failure.rank()});
  } catch (const std::exception& e) {
    poison(TSR_RESOURCE_EXHAUSTED, {e.what()});
  }
}

// Handles the requests that MPI has completed.
void Engine::move(Op& op) {
  const int n = static_cast<int>(op.requests.size());
  if (ended_.size() < op.requests.size()) {
    ended_.resize(op.requests.size());
    statuses_.resize(op.requests.size());
  }
  int count = 0;
  const int code = MPI_Testsome(n, op.requests.data(), &count, ended_.data(), statuses_.data());
  if (code != MPI_ERR_IN_STATUS) check(code, "MPI_Testsome");
  if (count == MPI_UNDEFINED) return;
  for (int i = 0; i < count; ++i) {
    if (code == MPI_ERR_IN_STATUS) check(statuses_[i].MPI_ERROR, name_of(op.header).c_str());
    ended(op, op.parts[ended_[i]], statuses_[i]);
  }
}

void Engine::ended(Op& op, Op::Part part, const MPI_Status& status) {
  PeerTransfer& transfer = op.transfers[part.rank];
  int bytes = 0;
  if (part.receives()) check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  if (part.receives() && part.role != Op::Role::kHeader && static_cast<size_t>(bytes) != part.bytes) {
    damaged(op, part.rank);  // for example, ranks have different max_message
  }
  switch (part.role) {
    case Op::Role::kSend:
      --transfer.sending;
      receive_result_if_due(op, part.rank);
      break;
    case Op::Role::kHandOut:
      --transfer.handing_out;
      break;
    case Op::Role::kOwn:
      break;
    case Op::Role::kHeader:
      heard(op, part.rank, static_cast<size_t>(bytes));
      break;
    case Op::Role::kData:
      if (--transfer.arriving == 0 && op.reduction.exists()) contributed(op);
      break;
    case Op::Role::kDataReady:
      --transfer.sending;
      send(op, {Op::Role::kSend, part.rank, true}, Channel::kData, transfer.send, transfer.send_bytes,
           &transfer.sending);
      break;
    case Op::Role::kResult:
      --transfer.results;
      break;
    case Op::Role::kResultReady:
      transfer.wants = true;
      hand_out_if_due(op, part.rank);
      break;
  }
  end_receive_if_complete(op, part.rank);
  end_send_if_complete(op, part.rank);
}

void Engine::heard(Op& op, int32_t rank, size_t bytes) {
  PeerTransfer& transfer = op.transfers[rank];
  const bool reduces = op.reduction.exists();
  const size_t first = reduces ? op.reduction.bytes : transfer.recv_bytes;
  sdk::OpHeader mine = op.header;
  mine.bytes = transfer.recv_bytes + (reduces ? op.reduction.bytes : 0);
  const sdk::OpHeader& its = op.in[rank].header;
  const bool same = agree(its, mine);
  if (bytes < sizeof(sdk::OpHeader) || its.sequence != mine.sequence ||
      (same && first <= kInline && bytes - sizeof(sdk::OpHeader) != first)) {
    damaged(op, rank);
  }
  if (!same) fail(TSR_INVALID_ARGUMENT, sdk::says::disagree(name(rank), its, name(), mine));
  transfer.heard = true;
  if (first > kInline) {
    char* to = reduces ? contribution(op, rank) : transfer.recv;
    receive(op, {Op::Role::kData, rank, !reduces}, to, first, &transfer.arriving);
    if (first > kCopied) signal(op, Channel::kDataReady, rank);
  } else if (reduces) {
    contributed(op);
  } else if (first > 0) {
    std::memcpy(transfer.recv, op.in[rank].data, first);
  }
  receive_result_if_due(op, rank);
}

// The reduced block may overwrite the data, but only after the data has been sent.
void Engine::receive_result_if_due(Op& op, int32_t rank) {
  PeerTransfer& transfer = op.transfers[rank];
  if (!op.reduction.exists() || !transfer.heard || transfer.asked || transfer.sending > 0) return;
  transfer.asked = true;
  receive(op, {Op::Role::kResult, rank, true}, transfer.recv, transfer.recv_bytes, &transfer.results);
  if (transfer.recv_bytes > kCopied) signal(op, Channel::kResultReady, rank);
}

void Engine::end_receive_if_complete(Op& op, int32_t rank) {
  PeerTransfer& transfer = op.transfers[rank];
  if (!transfer.receives || !transfer.heard || transfer.arriving > 0 || transfer.results > 0) return;
  if (op.reduction.exists() && (!transfer.asked || op.contributions_left > 0)) return;
  transfer.receives = false;
  --op.receives_left;
}

void Engine::end_send_if_complete(Op& op, int32_t rank) {
  PeerTransfer& transfer = op.transfers[rank];
  if (!transfer.sends || transfer.sending > 0 || transfer.handing_out > 0) return;
  transfer.sends = false;
  --op.sends_left;
}

// --- reductions ------------------------------------------------------------------------------------------------------

char* Engine::contribution(Op& op, int32_t rank) {
  const size_t bytes = op.reduction.bytes;
  if (bytes <= kInline) return op.in[rank].data;
  const size_t wanted = bytes * (options_.ranks.size() - 1);
  if (op.contributions.size() < wanted) op.contributions.resize(wanted);
  return op.contributions.data() + bytes * static_cast<size_t>(rank < options_.rank ? rank : rank - 1);
}

void Engine::contributed(Op& op) {
  if (--op.contributions_left > 0) return;
  reduce(op);
  const Reduction& r = op.reduction;
  if (r.hands_out && r.bytes <= kCopied) op.result.assign(r.target, r.target + r.bytes);
  for (int32_t rank = 0; rank < world_size(); ++rank) {
    if (rank == options_.rank) continue;
    hand_out_if_due(op, rank);
    end_receive_if_complete(op, rank);
  }
}

void Engine::hand_out_if_due(Op& op, int32_t rank) {
  PeerTransfer& transfer = op.transfers[rank];
  if (op.contributions_left > 0 || !transfer.wants) return;
  transfer.handing_out = 0;
  transfer.wants = false;
  int own = 0;
  if (op.reduction.bytes > kCopied) {
    send(op, {Op::Role::kHandOut, rank, true}, Channel::kResult, op.reduction.target, op.reduction.bytes,
         &transfer.handing_out);
  } else {
    send(op, {Op::Role::kOwn, rank, false}, Channel::kResult, op.result.data(), op.reduction.bytes, &own);
  }
  end_send_if_complete(op, rank);
}

void Engine::reduces(Op& op, DLDataType dtype, int32_t reduce) {
  op.reduction.function = sdk::reduce_function(kName, dtype, reduce);
}

void Engine::reduce(Op& op) {
  const Reduction& r = op.reduction;
  for (size_t at = 0; at < r.bytes; at += kChunk) {
    const size_t bytes = std::min(kChunk, r.bytes - at);
    sdk::reduce_in_rank_order(r.function, world_size(), options_.rank, r.target + at, bytes, [&](int32_t rank) {
      return at + (rank == options_.rank ? const_cast<char*>(r.own) : contribution(op, rank));
    });
  }
}

}  // namespace tessera::mpi
