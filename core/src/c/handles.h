// Contents of tessera.h's handles. Each keeps alive what it was made from, so they may be closed in any order.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "c/call.h"
#include "tessera/device.h"
#include "tessera/distributed_model_parallel.h"
#include "tessera/embedding_modules.h"
#include "tessera/process_group.h"
#include "tessera/runtime.h"
#include "tessera/tessera_draft.h"

namespace tessera::c {

// A runtime and the process that opened it. A forked child does not have its threads and connections.
class OpenRuntime {
 public:
  explicit OpenRuntime(RuntimeOptions options) : runtime(std::move(options)), process_(getpid()) {}
  bool elsewhere() const { return process_ != getpid(); }
  void check_process() const {
    if (elsewhere()) {
      fail(Code::kFailedPrecondition,
           "this process was forked from the one that opened the runtime: start a new "
           "process instead (Python: multiprocessing's \"spawn\"), or open a runtime here");
    }
  }

  const Runtime runtime;

 private:
  const pid_t process_;
};

// Returns a caller's log function as a runtime takes it.
inline std::function<void(int32_t level, const char* text)> log_of(void (*log)(void*, int32_t, const char*),
                                                                   void* user) {
  return [log, user](int32_t level, const char* text) { log(user, level, text); };
}

// The result of a forward that was started, of either kind. It owns its collection, but no handle.
using StartedStep =
    std::variant<Awaitable<ShardedEmbeddingBagCollection::Output>, Awaitable<ShardedEmbeddingCollection::Output>>;

// A group and everything that works over it. One thread at a time may use it.
class Session {
 public:
  Session(std::shared_ptr<const OpenRuntime> runtime, std::shared_ptr<ProcessGroup> group)
      : opened(std::move(runtime)), group(std::move(group)) {}
  ~Session() { finish_deferred(std::numeric_limits<int64_t>::max()); }  // no handle is left, and so no other thread
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const std::shared_ptr<const OpenRuntime> opened;  // must outlive the group
  const std::shared_ptr<ProcessGroup> group;

  // Frees what a step kept for its backward while no thread is in the group: now, or in the next call.
  void drop(StepHandle step);
  // Keeps a step that was started and closed, until this rank's part in it can be done. Never blocks.
  void defer(int64_t number, StartedStep step);
  // Does this rank's part in the deferred steps with lower numbers, in order. The thread must be in the session.
  void finish_deferred(int64_t before);
  // Numbers the steps as they are started, the same on all ranks. The thread must be in the session.
  int64_t next_step() { return steps_++; }

 private:
  friend class Use;
  std::atomic<bool> used_{false};
  int64_t steps_ = 0;
  std::mutex dropping_;
  std::vector<StepHandle> dropped_;
  std::map<int64_t, StartedStep> deferred_;  // by number
};

// The session of a group. A null group stands for this rank only.
std::shared_ptr<Session> session_of(const std::shared_ptr<const OpenRuntime>& runtime, tsr_process_group* group);

// Marks a session as used by this thread during a call.
class Use {
 public:
  explicit Use(Session& session);
  ~Use() { session_.used_.store(false, std::memory_order_release); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  Session& session_;
};

// The same for a collective call. It first does this rank's part in steps that were closed before they were waited
// for: all of them, or those that were started before step number `step`, which the call is about.
class Collective {
 public:
  explicit Collective(Session& session, int64_t step = std::numeric_limits<int64_t>::max());

 private:
  Use use_;
};

struct Model {
  std::shared_ptr<Session> session;
  DistributedModelParallel parallel;
  std::set<std::string> weighted;  // paths of collections whose ids have weights
  DeviceStreamPtr device;          // of the shards; null: host memory
};

// One collection of a model, of either kind.
struct Collection {
  std::shared_ptr<Model> model;
  std::variant<ShardedEmbeddingBagCollection*, ShardedEmbeddingCollection*> sharded;
  std::vector<std::string> features;
  std::vector<tsr_output_info> outputs;  // the names belong to the members below
  std::vector<std::string> output_names, keys;
  std::vector<HeldShard> shards;
  std::string without_optimizer;  // a table that would not be trained; empty: none
  bool weighted = false;          // ids have weights
  int64_t width = 0;

  ShardedEmbeddings& any() const {
    return std::visit([](auto* c) -> ShardedEmbeddings& { return *c; }, sharded);
  }
  bool bags() const { return sharded.index() == 0; }
  Session& session() const { return *model->session; }
  DeviceStream* device() const { return model->device.get(); }
};

// Frees a handle. In a forked child its contents stay, because they belong to the parent.
template <class Handle>
void close(Handle* handle) noexcept {
  if (handle != nullptr && !handle->opened().elsewhere()) delete handle;
}

// Wraps a caller's tensor, which must be compact, and in host memory or on `device`. kInvalidArgument: the error names
// it.
Tensor borrowed(const DLTensor* tensor, const char* name, DeviceStream* device = nullptr);
Tensor borrowed(const DLTensor* tensor, const char* name, DType dtype, DeviceStream* device = nullptr);

// Wraps a caller's batch. `features`: its keys if it has none of its own.
KeyedJaggedTensor batch_of(const std::vector<std::string>& features, const tsr_batch& in);

// Sends a table's rows from `first` on to every rank: float32 [any, dim]. Collective.
void gather_rows(const Collection& collection, const char* table, int64_t first, const Tensor& out);

}  // namespace tessera::c

struct tsr_text {
  std::string text;
};

struct tsr_runtime {
  std::shared_ptr<const tessera::c::OpenRuntime> shared;
  const tessera::c::OpenRuntime& opened() const { return *shared; }
};

struct tsr_process_group {
  std::shared_ptr<tessera::c::Session> session;
  const tessera::c::OpenRuntime& opened() const { return *session->opened; }
};

struct tsr_model_parallel {
  std::shared_ptr<tessera::c::Model> model;
  const tessera::c::OpenRuntime& opened() const { return *model->session->opened; }
};

struct tsr_collection {
  std::shared_ptr<const tessera::c::Collection> collection;
  const tessera::c::OpenRuntime& opened() const { return *collection->session().opened; }
};

namespace tessera::c {

// Runs a call on a collection while no other thread is in its group. `Used` is Collective for a collective call.
template <class Used = Use, class Body>
tsr_code with(const tsr_collection* collection, tsr_error* err, const Body& body) {
  return guarded(err, [&] {
    need(collection, "collection");
    const Used use(collection->collection->session());
    body(*collection->collection);
  });
}

}  // namespace tessera::c
