// A model that is spread over ranks. Rank 0 has the server; the others have nothing to do but to look up their shards.
//
// Every load of the model forms a group of its own. The other ranks knock at rank 0's door all the time, whether they
// serve a model already or not: so a model is loaded beside the one that is served, and a rank that was lost and
// started again takes its place, both in the same way: rank 0 forms a new group with whoever knocks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/log.h"
#include "tessera/online.h"
#include "tessera/process_group.h"
#include "tessera/sharding_plan.h"

namespace tessera::serve {

struct ShardOptions {
  std::string model;   // directory of a packed model
  std::string follow;  // or of publications
  RankEnvironment where;
  std::string backend = "auto";
  double timeout_s = 10;   // for ranks to meet, and for one answer of a rank
  double patience_s = 60;  // of a rank without rank 0
  std::string kernel = "auto";
  std::optional<EmbeddingModuleShardingPlan> plan;
  MakeSharded make = make_sharded_predictor;
  std::vector<std::string> whole_tables;  // FollowRanks'
};

// Rank 0: meets the other ranks and opens the model. Errors of ProcessGroup::connect() and open_sharded_predictor().
std::shared_ptr<Predictor> open_sharded(const Runtime& runtime, const ShardOptions& options);

// Rank 0: how a ModelFollower of options.follow has the other ranks. Both live longer.
FollowRanks follow_ranks(const Runtime& runtime, const ShardOptions& options);

// Every other rank: serves its shards of what rank 0 opens, as often as it does. Returns the process's exit status once
// rank 0 has ended, or has not been there for patience_s. SIGTERM and SIGINT end it when rank 0 needs it no more; call
// it before there are other threads, which would get these signals.
// The process has to end then: a thread may still be knocking.
int serve_shards(const RuntimeOptions& runtime, const ShardOptions& options, Log& log);

}  // namespace tessera::serve
