// A model that is spread over ranks. Rank 0 runs the server; the other ranks only look up their shards.
//
// Every load of the model forms a group of its own. The other ranks knock at rank 0's door all the time, even while
// they
// serve a model. Rank 0 forms a new group with the ranks that knock. This is how a new model is loaded while the old
// one
// serves, and how a rank that was lost and restarted takes its place again.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/log.h"
#include "tessera/online.h"
#include "tessera/process_group.h"
#include "tessera/sharding.h"

namespace tessera::serve {

struct ShardOptions {
  std::string model;   // folder of a packed model
  std::string follow;  // or folder of publications
  RankEnvironment where;
  std::string backend = "auto";
  double timeout_s = 10;   // for ranks to meet, and for one answer of a rank
  double patience_s = 60;  // how long a rank waits without rank 0
  std::string kernel = "auto";
  std::string dense_precision = {};
  std::optional<EmbeddingModuleShardingPlan> plan;
  MakeSharded make = make_sharded_predictor;
  std::vector<std::string> whole_tables;  // see FollowRanks
};

// On rank 0: meets the other ranks and opens the model. Throws errors of ProcessGroup::connect() and
// open_sharded_predictor().
std::shared_ptr<Predictor> open_sharded(const Runtime& runtime, const ShardOptions& options);

// On rank 0: gives a ModelFollower of options.follow access to the other ranks. Both arguments outlive it.
FollowRanks follow_ranks(const Runtime& runtime, const ShardOptions& options);

// On every other rank: serves its shards of whatever rank 0 opens. Returns the process's exit status once rank 0 has
// ended, or has been absent for patience_s. SIGTERM and SIGINT end it once rank 0 no longer needs it. Call it before
// other threads exist, because they would get these signals. The process must end afterwards, because a thread may
// still be knocking.
int serve_shards(const RuntimeOptions& runtime, const ShardOptions& options, Log& log);

}  // namespace tessera::serve
