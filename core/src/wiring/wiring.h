// The plan, turned into what a step needs: which ids go to which rank (streams), and which rows come back (lanes).
//
// Made of tables, plan and hosts alone, so that a step can be executed, priced and counted from the same object. Equal
// on every rank; RankWiring is what one rank sees of it. Data-parallel tables take no part.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tessera/embedding_configs.h"
#include "tessera/sharding_plan.h"
#include "wiring/row_router.h"

namespace tessera {

// One output of the collection: a feature of a table. In the unsharded order: tables, then their features.
struct Slot {
  int table = 0;
  std::string feature;  // key of the input
  std::string name;     // key of the output: "feature" or "feature@table"
  PoolingType pooling = PoolingType::kSum;
  int64_t rows = 0, dim = 0;    // of the table
  bool any_id = false;          // its ids are not bounded by them
  int64_t col = 0;              // first column in the pooled output
  bool replicated = false;      // data parallel: looked up where the batch is
  int kept = -1;                // index into Wiring::kept(): so are some rows of the table
  bool starts_at_zero = false;  // no lane writes all rows of its columns: all add to zeros
};

// Ids of one slot on their way to one rank: those in [row, row + rows), sent as id - row. Column shards of a rank that
// hold the same rows share a stream.
struct Stream {
  int slot = 0;
  int rank = 0;
  int64_t row = 0, rows = 0;
  int cut = 0;    // index into Wiring::cuts
  int range = 0;  // which range of the cut
};

// Rows of one shard on their way back: columns [col, col + cols) of the slot.
struct Lane {
  int stream = 0;
  int table = 0;
  int shard = 0;  // index into the table's ParameterSharding::shards
  int64_t col = 0, cols = 0;
  bool first = false;  // writes its columns; later lanes of the same columns add to them
  int host_sum = -1;   // index into Wiring::host_sums where its rows are summed inside the host before they leave it
};

// Lanes of the same columns on one host whose rows are added there before they cross to another host. The sum is made
// by the rank of that host whose local index is that of the batch's rank.
struct HostSum {
  int slot = 0;
  int host = 0;
  int64_t col = 0, cols = 0;
  bool first = false;      // one of its lanes is
  std::vector<int> lanes;  // ascending
};

// A part of the rows that come back to a rank: a lane, the sum of a host's lanes, or what it has looked up itself.
struct Arrival {
  int slot = 0;
  int64_t col = 0, cols = 0;
  bool first = false;
  int lane = -1;       // or
  int host_sum = -1;   // of another host, or
  int kept = -1;       // these columns of rows that were looked up here
  bool stays = false;  // its rows do not move: see RankWiring::stays
};
// [begin, the result) of arrivals cover the same columns.
size_t end_of_columns(const std::vector<Arrival>& arrivals, size_t begin);

// Ids of a slot that stay where the batch is, because every rank has a copy of their rows. To its home it is like one
// more stream, with a number behind those of the streams (Wiring::kept_stream).
struct Kept {
  int slot = 0;
  int64_t rows = 0;  // of the copy
};

// How the exchange sees the ranks: rank r is number r % ranks on host r / ranks. Without host sums all ranks are taken
// for one host, and everything travels in one hop.
struct HostGrid {
  int count = 1;
  int ranks = 1;  // per host
  int of(int rank) const { return rank / ranks; }
  int local(int rank) const { return rank % ranks; }
};

// How the rows of a slot are cut: range k gets ids in [begins[k], begins[k + 1]), or what `router` says.
struct Cut {
  int slot = 0;
  std::vector<int64_t> begins;            // ascending, the last one is the row count
  int64_t block = 0;                      // all ranges but the last have this size: id / block; 0: search
  uint64_t reciprocal = 0;                // of block: id / block is (id * reciprocal) >> 64; 0: divide
  std::vector<std::vector<int>> streams;  // of each range
  std::vector<int> single;  // of each range, where all have one stream at most (-1: no rows); otherwise empty
  int kept = -1;            // the range whose ids stay here: its stream is Wiring::kept_stream
  bool routed = false;      // instead of by range: the sharder says which shard holds an id
  RowRouterPtr router;      // that asks it; null where the wiring was given none
  // Every id of the slot goes to all streams, as it is.
  bool copies() const { return begins.size() == 2 && !routed; }
};

struct WiringOptions {
  bool sequence = false;  // rows are not pooled, so that there is nothing to sum inside a host
  // Routers by table; null if rows are ranges. Empty: the wiring is not for routing ids.
  std::vector<RowRouterPtr> routers = {};
};

class Wiring {
 public:
  // kInvalidArgument where the plan does not fit the tables or the world: the sentence names the table.
  Wiring(const std::vector<EmbeddingBagConfig>& tables, const EmbeddingModuleShardingPlan& plan, HostGrid hosts,
         const WiringOptions& options = {});

  const std::vector<Slot>& slots() const { return slots_; }
  const std::vector<Cut>& cuts() const { return cuts_; }
  // Ordered by rank; those of rank r are [stream_begin(r), stream_begin(r + 1)). Likewise lanes.
  const std::vector<Stream>& streams() const { return streams_; }
  const std::vector<Lane>& lanes() const { return lanes_; }
  int stream_begin(int rank) const { return stream_begin_[rank]; }
  int lane_begin(int rank) const { return lane_begin_[rank]; }
  const HostGrid& hosts() const { return hosts_; }
  int world_size() const { return hosts_.count * hosts_.ranks; }
  const std::vector<Kept>& kept() const { return kept_; }
  size_t kept_stream(int kept) const { return streams_.size() + static_cast<size_t>(kept); }
  // Ordered by host; those of host h are [host_sum_begin(h), host_sum_begin(h + 1)).
  const std::vector<HostSum>& host_sums() const { return host_sums_; }
  int host_sum_begin(int host) const { return host_sum_begin_[host]; }
  // Streams that feed the sums of a host, ascending.
  const std::vector<int>& summed_streams(int host) const { return summed_streams_[host]; }
  // The arrivals at `rank`, by slot, then columns, then rows: a `first` arrival comes before those that add to it.
  std::vector<Arrival> arrivals(int rank) const;
  bool sequence() const { return sequence_; }
  int64_t output_width() const { return output_width_; }
  // The width of every row that travels; 0: they are not of one width.
  int64_t row_elements() const;

 private:
  void add_slots(const std::vector<EmbeddingBagConfig>& tables, const EmbeddingModuleShardingPlan& plan);
  void add_slot_streams(int slot, const ParameterSharding& sharding, const RowRouterPtr& router, int64_t table_rows);
  void order_by_rank();
  void number_kept();
  void find_single_streams();
  void find_host_sums(const std::vector<EmbeddingBagConfig>& tables, const EmbeddingModuleShardingPlan& plan);
  void order_arrivals();

  bool sequence_;
  std::vector<Slot> slots_;
  std::vector<Cut> cuts_;
  std::vector<Stream> streams_;
  std::vector<Lane> lanes_;
  std::vector<Kept> kept_;
  std::vector<std::pair<int, Arrival>> kept_arrivals_;  // by the range of their cut
  std::vector<int> stream_begin_, lane_begin_;
  HostGrid hosts_;
  std::vector<HostSum> host_sums_;
  std::vector<int> host_sum_begin_;
  std::vector<std::vector<int>> summed_streams_;  // by host
  std::vector<Arrival> in_order_;                 // all that reaches any rank
  int64_t output_width_ = 0;
};

// The wiring as one rank sees it, which is owner of its shards and home of its batch.
struct RankWiring {
  // Tells if the kernel of an own lane can write rows to the output, and read gradients there; null: none can.
  using PlacesRows = std::function<bool(const Lane&)>;
  RankWiring(const Wiring& wiring, int rank, const PlacesRows& places_rows = nullptr);

  const Wiring& wiring;
  const int rank;
  const int host;                       // of HostGrid
  const int first_stream, num_streams;  // as owner
  const int first_lane, num_lanes;      // as owner
  std::vector<Arrival> arrivals;        // as home, in their order
  // One flag for each own stream: the rows for the own samples need not move. The lookup writes them to the output,
  // others of the same columns are added there, which must not change the order of a sum in any bit; the update reads
  // their gradients where the caller has them. Lanes of a stream stay together or not at all.
  std::vector<bool> stays;
};

// Throws kInvalidArgument unless the shards tile the table exactly (replicas: each is the whole table) on ranks below
// world_size.
void check_tiling(const EmbeddingBagConfig& table, const ParameterSharding& sharding, int world_size);

}  // namespace tessera
