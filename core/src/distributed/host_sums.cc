#include "distributed/host_sums.h"

#include <algorithm>
#include <utility>

namespace tessera {
namespace {

// Calls body(walks, sum, sum's first row in Step::rows, home's host) for each sum of this host and home elsewhere; a
// walk per lane.
template <class Body>
void for_each_sum(const RankWiring& of, Step& step, const Body& body) {
  const Wiring& wiring = of.wiring;
  const HostGrid& hosts = wiring.hosts();
  const int own = of.host;
  const int first = wiring.host_sum_begin(own), sums = wiring.host_sum_begin(own + 1) - first;
  const int host_lanes_begin = wiring.lane_begin(own * hosts.ranks);
  const int host_lanes = wiring.lane_begin((own + 1) * hosts.ranks) - host_lanes_begin;
  std::vector<LaneWalk>& walks = step.walks;
  for (int host = 0; host < hosts.count; ++host) {
    if (host == own) continue;
    for (int s = 0; s < sums; ++s) {
      const HostSum& sum = wiring.host_sums()[first + s];
      walks.clear();
      for (int lane : sum.lanes) {
        const int64_t begin = step.relayed_begin[static_cast<size_t>(host) * host_lanes + lane - host_lanes_begin];
        walks.push_back({&presence_of(wiring, step, wiring.lanes()[lane].stream, host), begin});
      }
      body(walks, sum, step.sum_begin[static_cast<size_t>(host) * sums + s], host);
    }
  }
}

}  // namespace

const Presence& presence_of(const Wiring& wiring, const Step& step, int stream, int home_host) {
  const int own = wiring.hosts().of(wiring.streams()[stream].rank);
  const std::vector<int>& streams = wiring.summed_streams(own);
  const auto at = std::lower_bound(streams.begin(), streams.end(), stream) - streams.begin();
  return step.presence[static_cast<size_t>(home_host) * streams.size() + at];
}

int64_t bags_present(const Wiring& wiring, const Step& step, const HostSum& sum, int home_host) {
  const int64_t bags = presence_of(wiring, step, wiring.lanes()[sum.lanes[0]].stream, home_host).bags;
  int64_t count = 0;
  for (int64_t word = 0; word < (bags + 31) / 32; ++word) {
    uint32_t any = 0;
    for (int lane : sum.lanes) any |= presence_of(wiring, step, wiring.lanes()[lane].stream, home_host).bits[word];
    count += __builtin_popcount(any);
  }
  return count;
}

void list_host_sums(const RankWiring& own, Step& step, RowMoves& moves) {
  for_each_sum(own, step, [&](std::vector<LaneWalk>& walks, const HostSum& sum, int64_t to, int host) {
    const int64_t rows = bags_present(own.wiring, step, sum, host);
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

void sum_in_host(const RankWiring& own, Step& step) {
  if (step.device) return step.device->host_sums.combine(step.rows.tensor(), step.rows.tensor());
  for_each_sum(own, step, [&](std::vector<LaneWalk>& walks, const HostSum& sum, int64_t at, int) {
    float* to = step.rows.data<float>() + at;
    for (int64_t b = 0; b < walks[0].presence->bags; ++b) {
      bool any = false;
      for (LaneWalk& walk : walks) {
        if (!walk.presence->has(b)) continue;
        const float* row = step.rows.data<float>() + walk.at;
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

void spread_in_host(const RankWiring& own, Step& step) {
  if (step.device) return step.device->host_sums.split(step.rows.tensor(), step.rows.tensor());
  for_each_sum(own, step, [&](std::vector<LaneWalk>& walks, const HostSum& sum, int64_t at, int) {
    const float* from = step.rows.data<float>() + at;
    for (int64_t b = 0; b < walks[0].presence->bags; ++b) {
      bool any = false;
      for (LaneWalk& walk : walks) {
        if (!walk.presence->has(b)) continue;
        any = true;
        std::copy_n(from, sum.cols, step.rows.data<float>() + walk.at);
        walk.at += sum.cols;
      }
      if (any) from += sum.cols;
    }
  });
}

}  // namespace tessera
