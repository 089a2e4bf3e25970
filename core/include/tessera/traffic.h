// tessera/traffic.h - bytes that a rank sends in a step of a sharded collection: what a plan lets expect, and the words
// for what was counted (StepTraffic in sharded_modules.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/embedding_configs.h"
#include "tessera/sharding_plan.h"
#include "tessera/wire_bytes.h"

namespace tessera {

class ProcessGroup;
class Runtime;
struct ProcessGroupOptions;

// Sent to other ranks of the own host, and to ranks of other hosts.
template <class Number>
struct HostBytes {
  Number in_host = 0, across_hosts = 0;
  HostBytes& operator+=(const HostBytes& other) {
    in_host += other.in_host;
    across_hosts += other.across_hosts;
    return *this;
  }
  HostBytes& operator-=(const HostBytes& other) {
    in_host -= other.in_host;
    across_hosts -= other.across_hosts;
    return *this;
  }
  bool operator==(const HostBytes&) const = default;
};

// The exchanges of a step: headers and ids with their lengths; pooled or sequence rows; their gradients.
// `unused_inline`: inline payload that was sent after headers and that the ids of the step did not fill.
template <class Number>
struct ExchangeBytes {
  HostBytes<Number> ids, rows, gradients, unused_inline;
  ExchangeBytes& operator+=(const ExchangeBytes& other) {
    ids += other.ids;
    rows += other.rows;
    gradients += other.gradients;
    unused_inline += other.unused_inline;
    return *this;
  }
  ExchangeBytes& operator-=(const ExchangeBytes& other) {
    ids -= other.ids;
    rows -= other.rows;
    gradients -= other.gradients;
    unused_inline -= other.unused_inline;
    return *this;
  }
  bool operator==(const ExchangeBytes&) const = default;
};

WireBytes wire_bytes_of(const ProcessGroup& group);  // which outlives it
// The traffic of the transport that connect() would take, for plans that are made without ranks. Null if nothing may be
// lossy, and where this process cannot make that transport.
WireBytes wire_bytes_of(const Runtime& runtime, const ProcessGroupOptions& options);

// A step as the plan's reader imagines it: every rank has `batch` samples, every bag of a feature as many ids, spread
// evenly over the rows.
struct TrafficInput {
  int world_size = 1;
  int local_world_size = 1;
  double batch = 0;                           // of each rank; the mean, where they differ
  std::map<std::string, double> ids_per_bag;  // by feature; 1 where absent
  bool is_weighted = false;
  bool sequence = false;  // EmbeddingCollection
  WireBytes wire = nullptr;
};

// The bytes that rank `rank` sends. They are exact if all bags have as many ids as said and no rows are split; of rows
// and gradients that cross hosts also where rows are summed inside a host that holds all of them. Otherwise an
// expectation, because bags without ids on a shard send nothing. Unused inline payload depends on the batches: 0 here,
// though small payloads have an eighth of it. The all-reduce of data-parallel tables is not part of it.
// kInvalidArgument where the plan does not fit.
ExchangeBytes<double> expected_traffic(const std::vector<EmbeddingBagConfig>& tables,
                                       const EmbeddingModuleShardingPlan& plan, const TrafficInput& input, int rank);

}  // namespace tessera
