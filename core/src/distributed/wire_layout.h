// The places of a step's rows on the wire. They are known once the inputs were exchanged.
//
// The tensor of rows (float32) has three parts:
//   1. rows of this rank's row routes for its own samples, except local rows (RankWiring::local_rows), which the lookup
//      writes to the output;
//   2. as owner: the rows of its row routes, by home;
//   3. as home: the rows of the other ranks' row routes, by owner.
// With one hop (HostGrid::count == 1) that is all. With two hops it holds for the ranks of one host, and in addition:
//   * Inside the host, a rank also receives rows of row routes that are summed. They are for the homes on other hosts
//     that have its local index, and are ordered by owner, then by the home's host.
//   * Across hosts, a rank sends to each rank elsewhere the rows of its row routes that are not summed and, if that
//     rank has its local index, the sums.
// So each row crosses between two hosts at most once, and the rows of a host sum cross as one row per bag.
#pragma once

#include <cstdint>
#include <vector>

#include "distributed/received_batch.h"
#include "distributed/routed_batch.h"
#include "wiring/wiring.h"

namespace tessera {

// Rows travel in hops from owners to homes, and gradients travel back the same way. Counts are elements of float32, by
// rank of the hop's group: all ranks across hosts, local ranks inside the host.
struct Hop {
  int64_t owner_begin = 0, home_begin = 0;         // first element in the tensor of rows
  std::vector<int64_t> owner_counts, home_counts;  // by rank of the hop's group
  int64_t owner_total = 0, home_total = 0;
};

// Begins are elements of the tensor of rows.
struct WireLayout {
  int64_t elements = 0;  // size of the tensor
  Hop in_host, across;
  // The hop with rows for any rank: across hosts if there are two hops. It may be joined.
  const Hop& last(bool two_hops) const { return two_hops ? across : in_host; }
  std::vector<int64_t> owner_begin;      // as owner: by peer, then this rank's row routes; -1: local rows
  std::vector<int64_t> row_route_begin;  // as home: by row route; -1: local rows
  std::vector<int64_t> host_sum_begin;   // as home: by host sum of other hosts
  // Begins of Wiring::replicated_rows() at the home, after all other rows; these rows are not sent.
  std::vector<int64_t> replicated_begin;
  // The home uses these for host sums elsewhere:
  std::vector<int64_t> host_lengths_begin;  // by host sum: begin in the next two
  std::vector<int32_t> host_lengths;        // ids per bag, over all row routes of the sum
  std::vector<int32_t> host_bag_order;      // bags with ids, ascending
  std::vector<int64_t> host_full_bags;      // number of bags with ids
  // The rank that sums rows of its host for homes elsewhere uses these:
  std::vector<int64_t> relayed_begin;  // by the home's host, then row routes of this host
  std::vector<int64_t> sum_begin;      // by the home's host, then sums of this host
};

// Fills the lengths of host sums, which the home knows from its own batch. Call this first.
void add_host_lengths(const RankWiring& own, const RoutedBatch& routed, WireLayout& out);
// Counts the elements of rows that each rank will send to this home: across hosts if rows are summed inside them,
// otherwise in the only hop.
void rows_wanted(const RankWiring& own, const RoutedBatch& routed, const WireLayout& lengths,
                 std::vector<int64_t>& by_rank);

void lay_out_rows(const RankWiring& own, const RoutedBatch& routed, const ReceivedBatch& received, WireLayout& out);

}  // namespace tessera
