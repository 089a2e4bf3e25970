// tessera/online.h - a trainer publishes its changes, and servers follow them while they answer requests.
//
//   ModelPublisher publisher({.directory = "published"}, model, optimizer);   // every rank
//   publisher.publish(progress);                                              // the first: a base; then deltas
//
//   ModelFollower follower(runtime, "published");                             // elsewhere
//   if (follower.update()) use(follower.current());
//
// Over several ranks each version has its own process group. Rank 0 has the ModelFollower, with FollowOptions::ranks;
// each of the others has a ShardFollower.
//
// A directory holds bases and deltas. A base is a packed model (tessera/predictor.h). A delta has the rows that
// changed since the previous publication, packed in the same way, the ids of removed rows, and the dense part. Each
// names the previous publication by a hash. docs/online.md describes the format.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/distributed_model_parallel.h"
#include "tessera/optim.h"
#include "tessera/predictor.h"

namespace tessera {

struct PublishOptions {
  std::string directory;    // on a file system that all ranks share
  PackOptions pack;         // formats of rows, and the model's name; empty: the directory's
  int64_t base_every = 60;  // deltas between bases
  int keep_bases = 2;       // with the deltas after the oldest; bases that are being followed also stay
  // True: start() writes in a background thread with its own process group. False: it writes at once, for transports
  // between devices that two threads must not use.
  bool beside = true;
};

// The result of one publication.
struct Published {
  int64_t number = 0;
  bool base = false, delta = false;
  int64_t changed = 0, removed = 0;  // rows and ids of the delta
  int64_t bytes = 0;                 // of the delta
  // The reason why a base that was due after the delta is missing: a disk error, or damage to what it is made from. The
  // next call writes one. Empty: it exists, or none was due.
  std::string base_error;
};

// Everything except the destructor is collective, and must be called by the training thread between steps.
class ModelPublisher {
 public:
  // Model and optimizer must outlive it. kAlreadyExists: the directory holds something else. kUnavailable: another job
  // publishes there.
  ModelPublisher(PublishOptions options, DistributedModelParallel& model, const KeyedOptimizer& dense_optimizer);
  ~ModelPublisher();
  ModelPublisher(const ModelPublisher&) = delete;
  ModelPublisher& operator=(const ModelPublisher&) = delete;

  using Progress = std::function<std::string()>;
  // Publishes the current model. The first publication of an object is a base that begins a new chain. Later ones are
  // deltas; after every base_every-th of them there is also a new base, made from the previous base and the deltas
  // since. `progress()` is called for the first one: a checkpoint's text, with the model's description for
  // open_float_model(). `step` is the training step, for people. kUnimplemented: a kernel does not know which rows
  // change (abi/draft/changes.h). kFailedPrecondition: a weight is infinite or no number, and nothing was published.
  // start() copies the changed rows, which are then written while training continues. The first base is written before
  // it returns. It finishes the previous publication first.
  void start(const Progress& progress, int64_t step);
  bool busy() const;  // [any-thread] a started publication is not written yet
  // Waits for the started publication, if there is one. kUnavailable, kResourceExhausted name the path: earlier
  // publications are intact, and the next one will include these changes.
  Published finish();
  Published publish(const Progress& progress, int64_t step) {
    start(progress, step);
    return finish();
  }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The served model and the follower's state.
struct FollowStatus {
  int64_t number = 0;       // of the publication
  std::string version;      // its hash
  double published_at = 0;  // seconds since 1970, by the trainer's clock
  int64_t updates = 0;      // times that a new version replaced the previous one
  int64_t refused = 0;      // publications that were refused
};

// Makes a version's predictor over ranks: make_sharded_predictor(), or a wrapper around it. Collective.
using MakeSharded = std::function<std::unique_ptr<ShardedPredictor>(
    const Runtime& runtime, const std::function<InferenceModel()>& open, std::shared_ptr<ProcessGroup> group,
    const ShardedPredictorOptions& options)>;

// Options of a followed model over ranks. Everything except `meet` is the same on all ranks.
struct FollowRanks {
  std::function<std::shared_ptr<ProcessGroup>()> meet;  // rank 0: forms a new group with the others, which open() in it
  ShardedPredictorOptions sharded = {};
  MakeSharded make = make_sharded_predictor;
  // Tables of which ranks read more than their own shards: every rank writes all of their rows from deltas.
  std::vector<std::string> whole_tables = {};
};

struct FollowOptions {
  PredictorOptions predictor;
  using Open = std::function<std::unique_ptr<Predictor>(InferenceModel)>;
  // Makes the predictor that current() returns, by calling `open` and possibly wrapping its result. The updating thread
  // calls it. Unset: only `open`.
  std::function<std::unique_ptr<Predictor>(InferenceModel model, const Open& open)> make = nullptr;
  // Set on rank 0 of several; `predictor` and `make` are then not used. A publication is taken only if all ranks can
  // take it, and is refused otherwise. update() throws errors that keep ranks from meeting (kUnavailable, kAborted,
  // kDeadlineExceeded, kCancelled, kResourceExhausted).
  std::optional<FollowRanks> ranks = std::nullopt;
};

class ModelFollower {
 public:
  // Takes the newest base and the deltas after it. kNotFound: there is no base. Other errors are those of
  // open_packed_model().
  ModelFollower(const Runtime& runtime, std::string directory, FollowOptions options = {});
  ~ModelFollower();
  ModelFollower(const ModelFollower&) = delete;
  ModelFollower& operator=(const ModelFollower&) = delete;

  // [any-thread] Returns one version, which stays as long as it is held. Its description's version is the publication's
  // hash. Its stats() cover all versions so far.
  std::shared_ptr<Predictor> current() const;
  FollowStatus status() const;  // [any-thread]

  // [any-thread] Takes new publications; only one thread at a time does the work. Returns true if current() has
  // changed.
  //
  // Readers never wait, because rows are written where no predictor reads. A delta waits until the last holder of the
  // version before the current one has released it; a later call takes it then. A publication that is damaged, of
  // another chain or after a missing one is skipped, and the next base after it is taken. A delta is never taken in
  // part. A publication that cannot be read is tried again, first after 0.2 s and finally once a minute. If a directory
  // was emptied and a new run publishes there, its newest base is taken, whatever its number.
  bool update();
  // [any-thread] Does the same as update(), and retries refused publications. If the directory no longer has the shown
  // version (it was emptied or restored from a backup), it takes the newest one there. kNotFound: there is no base.
  // Other errors are those of the constructor.
  std::shared_ptr<Predictor> reload();
  // [any-thread] Starts again with the newest base, for a model that is no longer usable().
  std::shared_ptr<Predictor> reopen();
  // [any-thread] Reasons why publications were refused since the last call, one sentence each.
  std::vector<std::string> refusals();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A rank other than 0. It has the versions that rank 0's ModelFollower shows, for its own tables, and writes only the
// rows of deltas that the plan gives it. It keeps two copies, as rank 0 does. Used by one thread at a time.
class ShardFollower {
 public:
  // Reads nothing yet. The runtime must outlive it.
  ShardFollower(const Runtime& runtime, std::string directory, FollowRanks options);
  ~ShardFollower();
  ShardFollower(const ShardFollower&) = delete;
  ShardFollower& operator=(const ShardFollower&) = delete;

  // Collective with rank 0, whose `meet` has formed `group`. Returns the version that rank 0 is about to show, for
  // serve_shard(). An error of one rank is thrown on all. The next version is then built from its base if necessary.
  std::shared_ptr<ShardedPredictor> open(const std::shared_ptr<ProcessGroup>& group);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
