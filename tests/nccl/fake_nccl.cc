// Imitates NCCL's behaviour as far as the plugin relies on it, between processes of one machine. Ranks meet in a shared
// file. Operations run in the order of an emulated stream and hang until all ranks take part or the communicator is
// aborted. Calls answer ncclInProgress for a while. It imitates NCCL's worst case: no error is ever reported for a rank
// that died, and an aborted operation still writes for a while after the abort has returned, like a kernel that has not
// seen the flag yet.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "fake_nccl.h"
#include "nccl.h"

namespace {

constexpr size_t kRing = 1 << 16;
constexpr int kBusyAnswers = 2;  // how often ncclInProgress is returned after each call
constexpr std::chrono::microseconds kPause{50};
constexpr std::chrono::milliseconds kAbortIsSeenAfter{50};

// One direction between two ranks.
struct Channel {
  std::atomic<uint64_t> written, read;
  char ring[kRing];
};
struct Shared {
  std::atomic<int> attached;
  Channel channels[1];  // [from * ranks + to]
};

struct Transfer {
  bool send;
  int peer;
  char* data;
  size_t bytes;
  size_t done = 0;
};
// Transfers, and the work to do when they are done; an aborted task does it with the data received so far.
struct Task {
  std::deque<Transfer> transfers;
  std::function<void()> finish;
};

}  // namespace

struct FakeComm {
  struct State {
    std::string name;
    int rank = 0, ranks = 0;
    Shared* shared = nullptr;
    size_t bytes = 0;
    std::atomic<bool> aborted{false};
    std::atomic<bool> ready{false};
    std::atomic<int> busy{0};
    std::atomic<uint64_t> turn{0};
    uint64_t tickets = 0;
    int splits = 0;
    ~State() {
      if (shared) munmap(shared, bytes);
    }
    void attach();
    bool transfer(std::deque<Transfer>& list);
    void in_turn(uint64_t ticket, const std::function<void()>& body);
  };
  std::shared_ptr<State> state = std::make_shared<State>();
  std::vector<std::thread> helpers;  // threads of init and split
  FakeComm() { ++fake_nccl().open; }
  ~FakeComm() { --fake_nccl().open; }
};

FakeNccl& fake_nccl() {
  static FakeNccl fake;
  return fake;
}

namespace {

struct Pending {
  FakeComm* comm;
  cudaStream_t stream;
  Task task;
};
struct OpenGroup {
  int depth = 0;
  std::vector<Pending> pending;
};
OpenGroup& open_group() {
  static thread_local OpenGroup group;
  return group;
}

size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

template <class T>
void reduce_as(void* into, const void* from, size_t count, ncclRedOp_t op) {
  auto* a = static_cast<T*>(into);
  const auto* b = static_cast<const T*>(from);
  for (size_t i = 0; i < count; ++i)
    a[i] = op == ncclSum ? static_cast<T>(a[i] + b[i]) : op == ncclMax ? std::max(a[i], b[i]) : std::min(a[i], b[i]);
}

void reduce(void* into, const void* from, size_t count, ncclDataType_t type, ncclRedOp_t op) {
  if (type == ncclFloat32) return reduce_as<float>(into, from, count, op);
  if (type == ncclFloat64) return reduce_as<double>(into, from, count, op);
  if (type == ncclInt32) return reduce_as<int32_t>(into, from, count, op);
  if (type == ncclInt64) return reduce_as<int64_t>(into, from, count, op);
}

void attach_in_background(FakeComm* comm) {
  comm->helpers.emplace_back([state = comm->state] {
    state->attach();
    while (!state->aborted && state->shared->attached < state->ranks) std::this_thread::sleep_for(kPause);
    if (state->rank == 0) unlink(state->name.c_str());
    state->ready = true;
  });
}

// Fills the part that an aborted operation has not received with garbage whose sums fit into its type.
void write_late(const std::deque<Transfer>& list) {
  std::this_thread::sleep_for(kAbortIsSeenAfter);
  for (const Transfer& t : list) {
    if (!t.send) std::memset(t.data + t.done, 1, t.bytes - t.done);
  }
}

ncclResult_t submit(FakeComm* comm, cudaStream_t stream, Task task) {
  OpenGroup& group = open_group();
  group.pending.push_back({comm, stream, std::move(task)});
  if (group.depth > 0) return ncclSuccess;
  ++group.depth;
  return ncclGroupEnd();
}

}  // namespace

void FakeComm::State::attach() {
  bytes = sizeof(Shared) + sizeof(Channel) * static_cast<size_t>(ranks) * static_cast<size_t>(ranks);
  const int file = open(name.c_str(), O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) std::abort();
  shared = static_cast<Shared*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  close(file);
  ++shared->attached;
}

// Moves what can be moved; returns true when all is done. Only the first unfinished transfer of each channel is active.
bool FakeComm::State::transfer(std::deque<Transfer>& list) {
  bool all = true;
  std::vector<bool> taken(2 * static_cast<size_t>(ranks), false);
  for (Transfer& t : list) {
    if (t.done == t.bytes) continue;
    const size_t way = 2 * static_cast<size_t>(t.peer) + t.send;
    if (taken[way]) {
      all = false;
      continue;
    }
    taken[way] = true;
    Channel& c = shared->channels[t.send ? rank * ranks + t.peer : t.peer * ranks + rank];
    const uint64_t written = c.written, read = c.read;
    const size_t room = t.send ? kRing - (written - read) : written - read;
    const size_t at = (t.send ? written : read) % kRing;
    const size_t n = std::min({room, t.bytes - t.done, kRing - at});
    if (t.send) {
      std::memcpy(c.ring + at, t.data + t.done, n);
      c.written += n;
    } else {
      std::memcpy(t.data + t.done, c.ring + at, n);
      c.read += n;
    }
    t.done += n;
    all = all && t.done == t.bytes;
  }
  return all;
}

void FakeComm::State::in_turn(uint64_t ticket, const std::function<void()>& body) {
  while (turn < ticket && !aborted) std::this_thread::sleep_for(kPause);
  if (!aborted) body();
  if (turn == ticket) ++turn;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : result == ncclInProgress ? "in progress" : "fake NCCL error";
}
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::random_device random;
  std::memset(id, 0, sizeof(*id));
  std::snprintf(id->internal, sizeof(id->internal), "/dev/shm/tessera_fake_nccl_%08x%08x", random(), random());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0 || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  *comm = new FakeComm;
  (*comm)->state->name = id.internal;
  (*comm)->state->rank = rank;
  (*comm)->state->ranks = ranks;
  attach_in_background(*comm);
  return ncclInProgress;
}

// Every rank sends its color to all; then those of one color meet in a file of their own.
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child, ncclConfig_t*) {
  *child = color == NCCL_SPLIT_NOCOLOR ? nullptr : new FakeComm;
  auto parent = comm->state;
  auto made = *child ? (*child)->state : nullptr;
  const uint64_t ticket = parent->tickets++;
  const int number = parent->splits++;
  parent->ready = false;
  comm->helpers.emplace_back([=] {
    while (fake_nccl().split_hangs && !parent->aborted) std::this_thread::sleep_for(kPause);
    std::vector<int> mine{color, key}, all(2 * static_cast<size_t>(parent->ranks));
    parent->in_turn(ticket, [&] {
      std::deque<Transfer> list;
      for (int peer = 0; peer < parent->ranks; ++peer) {
        list.push_back({true, peer, reinterpret_cast<char*>(mine.data()), 2 * sizeof(int)});
        list.push_back({false, peer, reinterpret_cast<char*>(&all[2 * static_cast<size_t>(peer)]), 2 * sizeof(int)});
      }
      while (!parent->aborted && !parent->transfer(list)) std::this_thread::sleep_for(kPause);
    });
    parent->ready = true;
    if (!made || parent->aborted) return;
    for (int peer = 0; peer < parent->ranks; ++peer) {
      if (all[2 * static_cast<size_t>(peer)] != color) continue;
      made->rank += peer < parent->rank;
      ++made->ranks;
    }
    made->name = parent->name + "_" + std::to_string(number) + "_" + std::to_string(color);
    made->attach();
    while (!made->aborted && made->shared->attached < made->ranks) std::this_thread::sleep_for(kPause);
    if (made->rank == 0) unlink(made->name.c_str());
    made->ready = true;
  });
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  FakeComm::State& state = *comm->state;
  *result = !state.ready || (state.busy > 0 && state.busy-- > 0) ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  while (fake_nccl().abort_hangs) std::this_thread::sleep_for(kPause);
  comm->state->aborted = true;
  for (std::thread& helper : comm->helpers) helper.join();
  delete comm;  // operations on a stream keep the state alive
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++open_group().depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  OpenGroup& group = open_group();
  if (--group.depth > 0) return ncclSuccess;
  if (group.pending.empty()) return ncclSuccess;
  FakeComm* comm = group.pending.front().comm;
  const cudaStream_t stream = group.pending.front().stream;
  auto tasks = std::make_shared<std::vector<Task>>();
  for (Pending& p : group.pending) {
    if (p.comm != comm || p.stream != stream) return ncclInvalidUsage;
    tasks->push_back(std::move(p.task));
  }
  group.pending.clear();
  auto state = comm->state;
  state->busy = kBusyAnswers;
  emulator::launch("fake NCCL", dim3(1), dim3(1), 0, stream, [state, tasks, ticket = state->tickets++] {
    state->in_turn(ticket, [&] {
      std::deque<Transfer> all;
      for (Task& task : *tasks) all.insert(all.end(), task.transfers.begin(), task.transfers.end());
      while (!state->aborted && !state->transfer(all)) std::this_thread::sleep_for(kPause);
      if (state->aborted) write_late(all);
      for (Task& task : *tasks) {
        if (task.finish) task.finish();
      }
    });
  });
  return ncclInProgress;
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  char* data = const_cast<char*>(static_cast<const char*>(from));
  return submit(comm, stream, {{{true, peer, data, count * size_of(type)}}, {}});
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, stream, {{{false, peer, static_cast<char*>(to), count * size_of(type)}}, {}});
}

// Sums in rank order, so that all ranks get the same bits.
ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * size_of(type);
  char* data = const_cast<char*>(static_cast<const char*>(from));
  Task task;
  if (comm->state->rank != root) {
    task.transfers.push_back({true, root, data, bytes});
    return submit(comm, stream, std::move(task));
  }
  const int ranks = comm->state->ranks;
  auto pieces = std::make_shared<std::vector<std::vector<char>>>(static_cast<size_t>(ranks), std::vector<char>(bytes));
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer != root) task.transfers.push_back({false, peer, (*pieces)[static_cast<size_t>(peer)].data(), bytes});
  }
  task.finish = [=] {
    std::memcpy((*pieces)[static_cast<size_t>(root)].data(), from, bytes);
    for (int peer = 1; peer < ranks; ++peer)
      reduce((*pieces)[0].data(), (*pieces)[static_cast<size_t>(peer)].data(), count, type, op);
    std::memcpy(to, (*pieces)[0].data(), bytes);
  };
  return submit(comm, stream, std::move(task));
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * size_of(type);
  const int ranks = comm->state->ranks, rank = comm->state->rank;
  char* data = const_cast<char*>(static_cast<const char*>(from));
  auto pieces = std::make_shared<std::vector<std::vector<char>>>(static_cast<size_t>(ranks), std::vector<char>(bytes));
  Task task;
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    task.transfers.push_back({true, peer, data, bytes});
    task.transfers.push_back({false, peer, (*pieces)[static_cast<size_t>(peer)].data(), bytes});
  }
  task.finish = [=] {
    std::memcpy((*pieces)[static_cast<size_t>(rank)].data(), from, bytes);
    for (int peer = 1; peer < ranks; ++peer)
      reduce((*pieces)[0].data(), (*pieces)[static_cast<size_t>(peer)].data(), count, type, op);
    std::memcpy(to, (*pieces)[0].data(), bytes);
  };
  return submit(comm, stream, std::move(task));
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t bytes = count * size_of(type);
  const int ranks = comm->state->ranks;
  Task task;
  if (comm->state->rank != root) {
    task.transfers.push_back({false, root, static_cast<char*>(to), bytes});
  } else {
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != root)
        task.transfers.push_back({true, peer, const_cast<char*>(static_cast<const char*>(from)), bytes});
    }
    task.finish = [=] {
      if (to != from) std::memcpy(to, from, bytes);
    };
  }
  return submit(comm, stream, std::move(task));
}
