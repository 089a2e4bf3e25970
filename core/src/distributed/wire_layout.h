// The places of a step's rows on the wire, known once the inputs were exchanged.
//
// The tensor of rows (float32) holds three parts. First the rows of the own row routes for the own samples, except
// local rows (RankWiring::local_rows), which the lookup writes to the output. Then, as owner, the rows of the own row
// routes by home; then, as home, those of the others' row routes by owner. That is all with one hop (HostGrid::count ==
// 1). With two hops it holds for the ranks of one host, and:
//   inside the host  a rank also gets, for the homes of other hosts that have its local index, the rows of row routes
//                    that are summed (by owner, then by home's host);
//   across hosts     it sends to each rank elsewhere the rows of its row routes that are not summed, and the sums, if
//                    that rank has its local index.
// Every row route's rows cross between two hosts at most once, and those of a host sum as one row per bag.
#pragma once

#include <cstdint>
#include <vector>

#include "distributed/received_batch.h"
#include "distributed/routed_batch.h"
#include "wiring/wiring.h"

namespace tessera {

// Rows travel from owners to homes in hops, gradients the same way back. In the hop across hosts counts are by rank, in
// the hop inside the host by local rank. Elements of float32.
struct Hop {
  int64_t owner_begin = 0, home_begin = 0;         // in the tensor
  std::vector<int64_t> owner_counts, home_counts;  // per rank of the hop's group
  int64_t owner_total = 0, home_total = 0;
};

// Begins are elements of the tensor.
struct WireLayout {
  int64_t elements = 0;  // of the tensor
  Hop in_host, across;
  // The hop with rows for any rank: across hosts, or the only one. It may be joined.
  const Hop& last(bool two_hops) const { return two_hops ? across : in_host; }
  std::vector<int64_t> owner_begin;       // owner: by peer, then own row routes; -1: local rows
  std::vector<int64_t> row_route_begin;   // home: of each row route; -1: local rows
  std::vector<int64_t> host_sum_begin;    // home: of each host sum of other hosts
  std::vector<int64_t> replicated_begin;  // home: of each of Wiring::replicated_rows(), after all others; not sent
  // Home, of host sums elsewhere:
  std::vector<int64_t> host_lengths_begin;  // of each in the next two
  std::vector<int32_t> host_lengths;        // ids per bag at all of its row routes
  std::vector<int32_t> host_bag_order;      // bags with ids, ascending
  std::vector<int64_t> host_full_bags;      // how many
  // Between two hosts:
  std::vector<int64_t> relayed_begin;  // by home's host, then row routes of the own host
  std::vector<int64_t> sum_begin;      // by home's host, then sums of the own host
};

// Fills the lengths of host sums, which the home knows from its own batch. Call it first.
void add_host_lengths(const RankWiring& own, const RoutedBatch& routed, WireLayout& out);
// Elements of rows that each rank will send to this home: across hosts if rows are summed inside them, or in the only
// hop.
void rows_wanted(const RankWiring& own, const RoutedBatch& routed, const WireLayout& lengths,
                 std::vector<int64_t>& by_rank);

void lay_out_rows(const RankWiring& own, const RoutedBatch& routed, const ReceivedBatch& received, WireLayout& out);

}  // namespace tessera
