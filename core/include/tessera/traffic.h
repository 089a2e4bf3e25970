// tessera/traffic.h - bytes that a rank sends in a step of a sharded collection: the estimate from a plan, and the
// types for measured bytes (StepTraffic in sharded_modules.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/embedding_configs.h"
#include "tessera/sharding.h"

namespace tessera {

class ProcessGroup;
class Runtime;
struct ProcessGroupOptions;

// Bytes sent to other ranks of the same host, and to ranks of other hosts.
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

// The exchanges of a step: headers and ids with their lengths, pooled or sequence rows, and their gradients.
// `unused_inline`: inline payload that was sent after headers but not filled by the step's ids.
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

WireBytes wire_bytes_of(const ProcessGroup& group);  // `group` must outlive it
// Wire sizes of the transport that connect() would choose, for plans made without ranks. Null: nothing may be lossy, or
// this process cannot create that transport.
WireBytes wire_bytes_of(const Runtime& runtime, const ProcessGroupOptions& options);

// A step as the estimate assumes it: every rank has `batch` samples, and every bag of a feature has the same number of
// ids, spread evenly over the rows.
struct TrafficInput {
  int world_size = 1;
  int local_world_size = 1;
  double batch = 0;                           // of each rank; the mean if they differ
  std::map<std::string, double> ids_per_bag;  // by feature; default 1
  bool is_weighted = false;
  bool sequence = false;  // EmbeddingCollection
  WireBytes wire = nullptr;
};

// The bytes that rank `rank` sends. They are exact if all bags have the given number of ids and rows are not split. For
// rows and gradients between hosts they are also exact if rows are summed inside a host that holds all of them.
// Otherwise they are an expectation, because bags without ids on a shard send nothing. Unused inline payload depends on
// the batches and is 0 here; for small payloads it is an eighth of their size. The all-reduce of data-parallel tables
// is not included. kInvalidArgument: the plan does not fit.
ExchangeBytes<double> expected_traffic(const std::vector<EmbeddingBagConfig>& tables,
                                       const EmbeddingModuleShardingPlan& plan, const TrafficInput& input, int rank);

}  // namespace tessera
