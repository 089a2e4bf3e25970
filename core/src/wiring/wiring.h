// The wiring: the plan in the form that a step needs. Id routes say which ids go to which rank, row routes say which
// rows come back.
//
// The wiring depends only on tables, plan and hosts. So the same object serves to run a step, to estimate its cost, and
// to count its bytes. It is equal on every rank; RankWiring is one rank's view of it. Data-parallel tables take no
// part.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tessera/embedding_configs.h"
#include "tessera/sharding.h"
#include "wiring/row_router.h"

namespace tessera {

// A feature of a table: one output of the collection. The order is the unsharded one: tables, then their features.
struct TableFeature {
  int table = 0;
  std::string feature;  // key of the input
  std::string name;     // key of the output: "feature" or "feature@table"
  PoolingType pooling = PoolingType::kSum;
  int64_t rows = 0, dim = 0;    // of the table
  bool any_id = false;          // its ids are not bounded by `rows`
  int64_t col = 0;              // first column in the pooled output
  bool data_parallel = false;   // the table is data-parallel: it is looked up where the batch is
  int replicated_rows = -1;     // index into Wiring::replicated_rows(); -1: the table has none
  bool starts_at_zero = false;  // no row route writes all rows of its columns, so all of them add to zeros
};

// The ids of one table feature on their way to one rank: those in [row, row + rows), sent as id - row. Column shards of
// a rank that hold the same rows share an id route.
struct IdRoute {
  int table_feature = 0;
  int rank = 0;
  int64_t row = 0, rows = 0;
  int row_split = 0;  // index into Wiring::row_splits
  int range = 0;      // which range of the row split
};

// The rows of one shard on their way back: columns [col, col + cols) of the table feature.
struct RowRoute {
  int id_route = 0;
  int table = 0;
  int shard = 0;  // index into the table's ParameterSharding::shards
  int64_t col = 0, cols = 0;
  bool first = false;  // writes its columns; later row routes of the same columns add to them
  int host_sum = -1;   // index into Wiring::host_sums if its rows are summed inside the host before they leave it
};

// Row routes of the same columns on one host whose rows are added up there before they cross to another host. The sum
// for a home is made by the rank of that host that has the home's local index.
struct HostSum {
  int table_feature = 0;
  int host = 0;
  int64_t col = 0, cols = 0;
  bool first = false;           // one of its row routes is `first`
  std::vector<int> row_routes;  // ascending
};

// A part of the rows that come back to a rank: a row route, the sum of a host's row routes, or replicated rows that the
// rank has looked up itself.
struct Arrival {
  int table_feature = 0;
  int64_t col = 0, cols = 0;
  bool first = false;
  int row_route = -1;        // or
  int host_sum = -1;         // of another host, or
  int replicated_rows = -1;  // these columns of rows that were looked up here
  bool is_local = false;     // its rows are local rows: see RankWiring::local_rows
};
// Returns the end of the arrivals from `begin` on that cover the same columns.
size_t end_of_columns(const std::vector<Arrival>& arrivals, size_t begin);

// The rows of a table that every rank has. Their ids stay at the home. Each home has one more id route for such a table
// feature, which Wiring::replicated_route numbers after the others.
struct ReplicatedRows {
  int table_feature = 0;
  int64_t rows = 0;  // on each rank
};

// The exchange's view of the ranks: rank r is number r % ranks on host r / ranks. Without host sums all ranks are
// treated as one host, and everything travels in one hop.
struct HostGrid {
  int count = 1;
  int ranks = 1;  // per host
  int of(int rank) const { return rank / ranks; }
  int local(int rank) const { return rank % ranks; }
};

// The division of a table feature's rows: range k has the ids in [begins[k], begins[k + 1]), or those that `router`
// sends there.
struct RowSplit {
  int table_feature = 0;
  std::vector<int64_t> begins;  // ascending; the last one is the number of rows
  int64_t block = 0;  // if all ranges except the last have this size, an id's range is id / block; 0: search `begins`
  uint64_t reciprocal = 0;  // replaces the division by `block`: id / block is (id * reciprocal) >> 64; 0: divide
  std::vector<std::vector<int>> id_routes;  // by range
  std::vector<int> single;    // by range: its only id route, or -1 without rows; empty if some range has several
  int replicated_range = -1;  // the range of the replicated rows: its id route is Wiring::replicated_route
  bool routed = false;        // the sharder says which shard has an id; ranges do not
  RowRouterPtr router;        // calls the sharder; null if the wiring was made without routers
  // True if every id of the table feature goes to all id routes unchanged.
  bool is_whole() const { return begins.size() == 2 && !routed; }
};

struct WiringOptions {
  bool sequence = false;  // rows are not pooled, so nothing is summed inside a host
  // Routers by table; null if rows are ranges. Empty: the wiring is not for routing ids.
  std::vector<RowRouterPtr> routers = {};
};

class Wiring {
 public:
  // kInvalidArgument: the plan does not fit the tables or the world. The error names the table.
  Wiring(const std::vector<EmbeddingBagConfig>& tables, const EmbeddingModuleShardingPlan& plan, HostGrid hosts,
         const WiringOptions& options = {});

  const std::vector<TableFeature>& table_features() const { return table_features_; }
  const std::vector<RowSplit>& row_splits() const { return row_splits_; }
  // Id routes are ordered by rank: those of rank r are [id_route_begin(r), id_route_begin(r + 1)). Row routes are
  // ordered in the same way.
  const std::vector<IdRoute>& id_routes() const { return id_routes_; }
  const std::vector<RowRoute>& row_routes() const { return row_routes_; }
  int id_route_begin(int rank) const { return id_route_begin_[rank]; }
  int row_route_begin(int rank) const { return row_route_begin_[rank]; }
  const HostGrid& hosts() const { return hosts_; }
  int world_size() const { return hosts_.count * hosts_.ranks; }
  const std::vector<ReplicatedRows>& replicated_rows() const { return replicated_rows_; }
  size_t replicated_route(int replicated_rows) const {
    return id_routes_.size() + static_cast<size_t>(replicated_rows);
  }
  // Host sums are ordered by host: those of host h are [host_sum_begin(h), host_sum_begin(h + 1)).
  const std::vector<HostSum>& host_sums() const { return host_sums_; }
  int host_sum_begin(int host) const { return host_sum_begin_[host]; }
  // Returns the id routes whose rows a host sums, ascending.
  const std::vector<int>& summed_routes(int host) const { return summed_routes_[host]; }
  // Returns the arrivals at `rank`, by table feature, then columns, then rows. A `first` arrival comes before those
  // that add to it.
  std::vector<Arrival> arrivals(int rank) const;
  bool sequence() const { return sequence_; }
  int64_t output_width() const { return output_width_; }
  // Returns the width of the rows that travel; 0: widths differ.
  int64_t row_elements() const;

 private:
  void add_table_features(const std::vector<EmbeddingBagConfig>& tables, const EmbeddingModuleShardingPlan& plan);
  void add_id_routes(int table_feature, const ParameterSharding& sharding, const RowRouterPtr& router,
                     int64_t table_rows);
  void order_by_rank();
  void number_replicated_rows();
  void find_single_routes();
  void find_host_sums(const std::vector<EmbeddingBagConfig>& tables, const EmbeddingModuleShardingPlan& plan);
  void order_arrivals();

  bool sequence_;
  std::vector<TableFeature> table_features_;
  std::vector<RowSplit> row_splits_;
  std::vector<IdRoute> id_routes_;
  std::vector<RowRoute> row_routes_;
  std::vector<ReplicatedRows> replicated_rows_;
  std::vector<std::pair<int, Arrival>> replicated_arrivals_;  // by the range of their row split
  std::vector<int> id_route_begin_, row_route_begin_;
  HostGrid hosts_;
  std::vector<HostSum> host_sums_;
  std::vector<int> host_sum_begin_;
  std::vector<std::vector<int>> summed_routes_;  // by host
  std::vector<Arrival> in_order_;                // the arrivals at any rank
  int64_t output_width_ = 0;
};

// One rank's view of the wiring. The rank is owner of its shards and home of its batch.
struct RankWiring {
  // True if the kernel of one of this rank's row routes can write rows to the output, and read gradients there; null:
  // no kernel can.
  using PlacesRows = std::function<bool(const RowRoute&)>;
  RankWiring(const Wiring& wiring, int rank, const PlacesRows& places_rows = nullptr);

  const Wiring& wiring;
  const int rank;
  const int host;                             // of HostGrid
  const int first_id_route, num_id_routes;    // as owner
  const int first_row_route, num_row_routes;  // as owner
  std::vector<Arrival> arrivals;              // as home, in their order
  // One flag for each of this rank's id routes: its rows for this rank's samples are local rows, which need not travel.
  // The lookup writes them to the output, and arrivals of the same columns are added there. That must not change the
  // order of a sum in any bit. The update reads their gradients from the caller's memory. The row routes of one id
  // route are either all local or none is.
  std::vector<bool> local_rows;
};

// Throws kInvalidArgument unless the shards tile the table exactly (each is the whole table if it is data-parallel)
// on ranks below world_size.
void check_tiling(const EmbeddingBagConfig& table, const ParameterSharding& sharding, int world_size);

}  // namespace tessera
