// tessera/online.h - the model of this hour: a trainer publishes what has changed, servers follow it while they answer.
//
//   ModelPublisher publisher({.directory = "published"}, model, optimizer);   // every rank
//   publisher.publish(progress);                                              // the first: a base; then deltas
//
//   ModelFollower follower(runtime, "published");                             // elsewhere
//   if (follower.update()) use(follower.current());
//
// Over ranks each version has a group of its own: rank 0 has the ModelFollower, with FollowOptions::ranks, the others a
// ShardFollower each.
//
// A directory holds bases, which are packed models (tessera/packed_model.h), and deltas: rows that changed since the
// publication before, packed in the same way, ids of rows that were given up, and the dense part. Each names the one
// before it by a hash. Format: docs/online.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/distributed_model_parallel.h"
#include "tessera/optim.h"
#include "tessera/packed_model.h"

namespace tessera {

struct PublishOptions {
  std::string directory;    // on a file system that all ranks see
  PackOptions pack;         // formats of rows; the name of the model: empty: the directory's
  int64_t base_every = 60;  // deltas between bases
  int keep_bases = 2;       // with the deltas behind the oldest; ones that are being followed stay, too
  // start() leaves the writing to a thread of its own, over a process group of its own. Without it, it writes at once:
  // for transports between devices, which are not to be asked by two threads.
  bool beside = true;
};

// The result of one call that publishes.
struct Published {
  int64_t number = 0;
  bool base = false, delta = false;
  int64_t changed = 0, removed = 0;  // rows of the delta, and ids
  int64_t bytes = 0;                 // of the delta
  // Why the base that was due behind the delta is not there (the disk, or what it would be made of was damaged): the
  // next call writes one. Empty: it is there, or none was due.
  std::string base_error;
};

// All but the destructor is collective, and used by the thread that trains, between steps.
class ModelPublisher {
 public:
  // Model and optimizer live longer. kAlreadyExists: the directory holds something else; kUnavailable: another job
  // publishes there.
  ModelPublisher(PublishOptions options, DistributedModelParallel& model, const KeyedOptimizer& dense_optimizer);
  ~ModelPublisher();
  ModelPublisher(const ModelPublisher&) = delete;
  ModelPublisher& operator=(const ModelPublisher&) = delete;

  using Progress = std::function<std::string()>;
  // Publishes the model as it is now. The first of an object is a base of a chain of its own, behind whatever the
  // directory had; those after it are deltas, and every base_every-th a base, too, which is made of the base before and
  // the deltas behind it. `progress()`, asked for the first: as for a checkpoint, with what open_float_model() needs to
  // know of the model; `step`: of the training, for people. kUnimplemented: a kernel does not know which rows change
  // (abi/draft/changes.h). kFailedPrecondition: a weight is infinite or no number; nothing is published.
  // start() copies the rows that changed aside, and they are written while the model changes further; the first base is
  // written before it returns. It finishes what runs before.
  void start(const Progress& progress, int64_t step);
  bool busy() const;  // [any-thread] what was started is not written yet
  // Waits for it; nothing where nothing was started. kUnavailable, kResourceExhausted name the path: what was there is
  // whole, and the next publication has all that this one would have had.
  Published finish();
  Published publish(const Progress& progress, int64_t step) {
    start(progress, step);
    return finish();
  }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The model that a follower answers with, and the follower's state.
struct FollowStatus {
  int64_t number = 0;       // of the publication
  std::string version;      // its hash
  double published_at = 0;  // seconds since 1970, by the trainer's clock
  int64_t updates = 0;      // times that another version took the place of the one before
  int64_t refused = 0;      // publications that could not be taken
};

// Makes a version's predictor over ranks: make_sharded_predictor(), or what is around it. Collective.
using MakeSharded = std::function<std::unique_ptr<ShardedPredictor>(
    const Runtime& runtime, const std::function<InferenceModel()>& open, std::shared_ptr<ProcessGroup> group,
    const ShardedPredictorOptions& options)>;

// A followed model over ranks: the same on all of them, but for `meet`.
struct FollowRanks {
  std::function<std::shared_ptr<ProcessGroup>()> meet;  // rank 0: forms a new group with the others, which open() in it
  ShardedPredictorOptions sharded = {};
  MakeSharded make = make_sharded_predictor;
  // Tables of which ranks read other rows than their shards': all ranks write all rows of theirs that deltas have.
  std::vector<std::string> whole_tables = {};
};

struct FollowOptions {
  PredictorOptions predictor;
  using Open = std::function<std::unique_ptr<Predictor>(InferenceModel)>;
  // Makes of a version's model what current() gives, by `open` and around what that gives; by the one thread that
  // updates. Unset: `open` itself.
  std::function<std::unique_ptr<Predictor>(InferenceModel model, const Open& open)> make = nullptr;
  // Set on rank 0 of several: `predictor` and `make` are not used then. A publication is taken when all ranks can take
  // it; what one of them cannot take is refused. update() throws what keeps ranks from meeting (kUnavailable, kAborted,
  // kDeadlineExceeded, kCancelled, kResourceExhausted).
  std::optional<FollowRanks> ranks = std::nullopt;
};

class ModelFollower {
 public:
  // Takes the newest base, and the deltas behind it. kNotFound: there is no base. Other errors as open_packed_model().
  ModelFollower(const Runtime& runtime, std::string directory, FollowOptions options = {});
  ~ModelFollower();
  ModelFollower(const ModelFollower&) = delete;
  ModelFollower& operator=(const ModelFollower&) = delete;

  // [any-thread] One version, as long as it is held. Its description's version is the publication's hash; its stats()
  // are of all versions so far.
  std::shared_ptr<Predictor> current() const;
  FollowStatus status() const;  // [any-thread]

  // [any-thread], one thread at a time does it. Takes what was published since: true where current() is another then.
  // Readers never wait: rows are written where no predictor reads; a delta waits until the last holder of the version
  // before the current one has let go, and a later call takes it then. What cannot be taken (damaged, of another chain,
  // with one missing before it) is left out, and the next base behind it taken when there is one: never half of a
  // delta. A publication that cannot be read is tried again, after 0.2 s at first and each minute at last. Where a
  // directory was emptied and a new run publishes there, its newest base is taken, whatever its number.
  bool update();
  // [any-thread] As update(), and tries again what was refused. If the directory no longer has the version that is
  // shown (it was emptied, or restored from a backup), the newest that it has is taken instead. kNotFound: it has no
  // base; other errors as the constructor.
  std::shared_ptr<Predictor> reload();
  // [any-thread] Begins anew with the newest base: for a model that is usable() no more.
  std::shared_ptr<Predictor> reopen();
  // [any-thread] Why publications were not taken since the last call, one sentence each.
  std::vector<std::string> refusals();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A rank beside rank 0: has the versions that rank 0's ModelFollower shows, each of its own tables: of a delta it
// writes the rows that the plan gives it. Two copies, as there. Used by one thread at a time.
class ShardFollower {
 public:
  // Reads nothing yet. The runtime lives longer.
  ShardFollower(const Runtime& runtime, std::string directory, FollowRanks options);
  ~ShardFollower();
  ShardFollower(const ShardFollower&) = delete;
  ShardFollower& operator=(const ShardFollower&) = delete;

  // Collective with rank 0, whose `meet` has formed `group`: the version that it is about to show, to serve_shard().
  // An error of one rank is thrown on all of them; the next version is then put together from its base, if need
  // be.
  std::shared_ptr<ShardedPredictor> open(const std::shared_ptr<ProcessGroup>& group);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
