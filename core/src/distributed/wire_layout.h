// The places of a step's rows on the wire, known once the inputs were exchanged.
//
// The tensor of rows (float32) holds three parts: the rows of the own lanes for the own samples, which do not travel,
// but for those that the lookup writes to the output (RankWiring::stays); as owner, the rows of the own lanes by home;
// as home, those of the others' lanes by owner. That is all with one hop (HostGrid::count == 1). With two hops it holds
// for the ranks of one host, and:
//   inside the host  a rank also gets, for the homes of other hosts that have its local index, the rows of lanes that
//                    are summed (by owner, then by home's host);
//   across hosts     it sends to each rank elsewhere the rows of its lanes that are not summed, and the sums, if that
//                    rank has its local index.
// Every lane's rows cross between two hosts at most once, and those of a host sum as one row per bag.
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
  std::vector<int64_t> owner_begin;     // owner: by peer, then own lanes; -1: they stay
  std::vector<int64_t> lane_begin;      // home: of each lane; -1: they stay
  std::vector<int64_t> host_sum_begin;  // home: of each host sum of other hosts
  std::vector<int64_t> kept_begin;      // home: of each of Wiring::kept(), behind all others; these do not travel
  // Home, of host sums elsewhere:
  std::vector<int64_t> host_lengths_begin;  // of each in the next two
  std::vector<int32_t> host_lengths;        // ids per bag at all of its lanes
  std::vector<int32_t> host_bag_order;      // bags with ids, ascending
  std::vector<int64_t> host_full_bags;      // how many
  // Between two hosts:
  std::vector<int64_t> relayed_begin;  // by home's host, then lanes of the own host
  std::vector<int64_t> sum_begin;      // by home's host, then sums of the own host
};

void lay_out_rows(const RankWiring& own, const RoutedBatch& routed, const ReceivedBatch& received, WireLayout& out);

}  // namespace tessera
