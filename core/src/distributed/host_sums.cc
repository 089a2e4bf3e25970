#include "distributed/host_sums.h"

#include <algorithm>
#include <utility>

namespace tessera {
namespace {

// Calls body(walks, sum, sum's first row, home's host) for each sum of this host and home elsewhere; a
// walk per lane.
template <class Body>
void for_each_sum(const HostSums& all, const Body& body) {
  const Wiring& wiring = all.own.wiring;
  const HostGrid& hosts = wiring.hosts();
  const int own = all.own.host;
  const int first = wiring.host_sum_begin(own), sums = wiring.host_sum_begin(own + 1) - first;
  const int host_lanes_begin = wiring.lane_begin(own * hosts.ranks);
  const int host_lanes = wiring.lane_begin((own + 1) * hosts.ranks) - host_lanes_begin;
  std::vector<LaneWalk>& walks = all.walks;
  for (int host = 0; host < hosts.count; ++host) {
    if (host == own) continue;
    for (int s = 0; s < sums; ++s) {
      const HostSum& sum = wiring.host_sums()[first + s];
      walks.clear();
      for (int lane : sum.lanes) {
        const int64_t begin = all.wire.relayed_begin[static_cast<size_t>(host) * host_lanes + lane - host_lanes_begin];
        walks.push_back({&presence_of(wiring, all.received, wiring.lanes()[lane].stream, host), begin});
      }
      body(walks, sum, all.wire.sum_begin[static_cast<size_t>(host) * sums + s], host);
    }
  }
}

}  // namespace

void list_host_sums(const HostSums& sums, RowMoves& moves) {
  for_each_sum(sums, [&](std::vector<LaneWalk>& walks, const HostSum& sum, int64_t to, int host) {
    const int64_t rows = bags_present(sums.own.wiring, sums.received, sum, host);
    moves.add_target(rows, sum.cols, to, sum.cols);
    const int64_t first = moves.add_index(rows * static_cast<int64_t>(walks.size()));
    for (size_t lane = 0; lane < walks.size(); ++lane)
      moves.add_run(walks[lane].at, first + static_cast<int64_t>(lane) * rows, 0, sum.cols);
    std::vector<int32_t> next(walks.size(), 0);
    int64_t row = 0;
    for (int64_t b = 0; b < walks[0].presence->bags; ++b) {
      bool any = false;
      for (size_t lane = 0; lane < walks.size(); ++lane) {
        if (!walks[lane].presence->has(b)) continue;
        any = true;
        moves.index(first)[static_cast<int64_t>(lane) * rows + row] = next[lane]++;
      }
      row += any;
    }
  });
}

void sum_in_host(const HostSums& sums, float* rows) {
  for_each_sum(sums, [&](std::vector<LaneWalk>& walks, const HostSum& sum, int64_t at, int) {
    float* to = rows + at;
    for (int64_t b = 0; b < walks[0].presence->bags; ++b) {
      bool any = false;
      for (LaneWalk& walk : walks) {
        if (!walk.presence->has(b)) continue;
        const float* row = rows + walk.at;
        if (!std::exchange(any, true)) {
          std::copy_n(row, sum.cols, to);
        } else {
          for (int64_t i = 0; i < sum.cols; ++i) to[i] += row[i];
        }
        walk.at += sum.cols;
      }
      if (any) to += sum.cols;
    }
  });
}

void spread_in_host(const HostSums& sums, float* rows) {
  for_each_sum(sums, [&](std::vector<LaneWalk>& walks, const HostSum& sum, int64_t at, int) {
    const float* from = rows + at;
    for (int64_t b = 0; b < walks[0].presence->bags; ++b) {
      bool any = false;
      for (LaneWalk& walk : walks) {
        if (!walk.presence->has(b)) continue;
        any = true;
        std::copy_n(from, sum.cols, rows + walk.at);
        walk.at += sum.cols;
      }
      if (any) from += sum.cols;
    }
  });
}

}  // namespace tessera
