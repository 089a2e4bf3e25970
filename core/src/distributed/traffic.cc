#include "distributed/traffic.h"

#include <algorithm>
#include <cmath>

#include "tessera/traffic.h"

namespace tessera {
namespace {

// Adds up what goes to each rank, by where that rank is.
template <class Number>
class Meter {
 public:
  Meter(int rank, int ranks_per_host) : rank_(rank), ranks_per_host_(ranks_per_host) {}
  void send(HostBytes<Number>& to, int rank, Number bytes) const {
    if (rank == rank_) return;
    (rank / ranks_per_host_ == rank_ / ranks_per_host_ ? to.in_host : to.across_hosts) += bytes;
  }

 private:
  int rank_, ranks_per_host_;
};

// Elements by rank of both hops.
void by_rank(const Wiring& wiring, int rank, const std::vector<int64_t>& in_host, const std::vector<int64_t>& across,
             std::vector<int64_t>& out) {
  out.assign(wiring.world_size(), 0);
  const int first = wiring.hosts().of(rank) * wiring.hosts().ranks;
  std::copy(in_host.begin(), in_host.end(), out.begin() + first);
  if (wiring.hosts().count > 1) {
    for (size_t r = 0; r < out.size(); ++r) out[r] += across[r];
  }
}

// The step of TrafficInput. Counts are per pair of home and owner, the same for all homes.
class Expectation {
 public:
  Expectation(const Wiring& wiring, const std::vector<EmbeddingBagConfig>& tables, const TrafficInput& input, int rank)
      : wiring_(wiring), tables_(tables), input_(input), rank_(rank), meter_(rank, input.local_world_size) {}

  ExchangeBytes<double> run() {
    for (int peer = 0; peer < wiring_.world_size(); ++peer) {
      if (peer == rank_) continue;
      meter_.send(out_.ids, peer, id_bytes(peer));
      // Rows for homes and gradients for owners travel the same hops in opposite directions.
      meter_.send(out_.rows, peer, row_bytes(rank_, peer));
      meter_.send(out_.gradients, peer, row_bytes(peer, rank_));
    }
    return out_;
  }

 private:
  double ids_per_bag(int stream) const {
    const auto found = input_.ids_per_bag.find(wiring_.slots()[wiring_.streams()[stream].slot].feature);
    return found == input_.ids_per_bag.end() ? 1 : found->second;
  }
  double share(int stream) const {
    const Stream& s = wiring_.streams()[stream];
    return static_cast<double>(s.rows) / static_cast<double>(tables_[wiring_.slots()[s.slot].table].num_embeddings);
  }
  double ids(int stream) const { return input_.batch * ids_per_bag(stream) * share(stream); }
  // Rows that stand for the ids of a share of the table: bags that have any, or ids.
  double rows(int stream, double share) const {
    if (input_.sequence) return ids(stream);
    return input_.batch * (1 - std::pow(1 - std::min(share, 1.0), ids_per_bag(stream)));
  }

  double id_bytes(int owner) const {
    const HostGrid& hosts = wiring_.hosts();
    double values = 0;
    double words = 0;
    for (int s = wiring_.stream_begin(owner); s < wiring_.stream_begin(owner + 1); ++s) {
      values += ids(s);
      words += 1 + input_.batch;
    }
    if (hosts.of(owner) != hosts.of(rank_) && hosts.local(owner) == hosts.local(rank_)) {
      const auto streams = static_cast<double>(wiring_.summed_streams(hosts.of(owner)).size());
      words += streams * (1 + std::ceil(input_.batch / 32));
    }
    const double bytes = values * (input_.is_weighted ? 12 : 8) + words * 4;
    return static_cast<double>(sizeof(PeerHeader)) + std::ceil(bytes / 8) * 8;
  }

  // What `owner` sends towards `home` itself: its own lanes' rows, and as a neighbour of one of them, others'.
  double row_bytes(int owner, int home) const {
    const HostGrid& hosts = wiring_.hosts();
    const bool same_host = hosts.of(owner) == hosts.of(home);
    double elements = 0;
    for (int i = wiring_.lane_begin(owner); i < wiring_.lane_begin(owner + 1); ++i) {
      const Lane& lane = wiring_.lanes()[i];
      // To a rank of its host a summed lane also hands the rows for that rank's counterparts on all other hosts.
      const int homes = same_host ? (lane.host_sum < 0 ? 1 : hosts.count) : (lane.host_sum < 0 ? 1 : 0);
      elements += homes * rows(lane.stream, share(lane.stream)) * static_cast<double>(lane.cols);
    }
    if (!same_host && hosts.local(owner) == hosts.local(home)) {
      for (int s = wiring_.host_sum_begin(hosts.of(owner)); s < wiring_.host_sum_begin(hosts.of(owner) + 1); ++s) {
        const HostSum& sum = wiring_.host_sums()[s];
        double held = 0;
        for (int lane : sum.lanes) held += share(wiring_.lanes()[lane].stream);
        elements += rows(wiring_.lanes()[sum.lanes[0]].stream, held) * static_cast<double>(sum.cols);
      }
    }
    return elements * static_cast<double>(sizeof(float));
  }

  const Wiring& wiring_;
  const std::vector<EmbeddingBagConfig>& tables_;
  const TrafficInput& input_;
  const int rank_;
  const Meter<double> meter_;
  ExchangeBytes<double> out_;
};

}  // namespace

void count_traffic(const Wiring& wiring, const ProcessGroup& group, const Step& step, StepTraffic& out) {
  const int rank = group.rank();
  out.first_message = static_cast<int64_t>(sizeof(PeerHeader)) + step.room;
  out.ids_in_second = step.in_second;
  out.ids_sent = step.payload_send_bytes;
  out.ids_received = step.payload_recv_bytes;
  by_rank(wiring, rank, step.in_host.owner_counts, step.across.owner_counts, out.rows_sent);
  by_rank(wiring, rank, step.in_host.home_counts, step.across.home_counts, out.rows_received);
  out.bytes = {};
  const Meter<int64_t> meter(rank, group.local_world_size());
  for (int peer = 0; peer < group.world_size(); ++peer) {
    const int64_t ids = static_cast<int64_t>(sizeof(PeerHeader)) + out.ids_sent[peer];
    meter.send(out.bytes.ids, peer, ids);
    meter.send(out.bytes.room, peer, step.id_bytes_to(peer) - ids);
    meter.send(out.bytes.rows, peer, out.rows_sent[peer] * static_cast<int64_t>(sizeof(float)));
    meter.send(out.bytes.gradients, peer, out.rows_received[peer] * static_cast<int64_t>(sizeof(float)));
  }
}

ExchangeBytes<double> expected_traffic(const std::vector<EmbeddingBagConfig>& tables,
                                       const EmbeddingModuleShardingPlan& plan, const TrafficInput& input, int rank) {
  if (input.local_world_size < 1 || input.world_size < 1 || input.world_size % input.local_world_size != 0) {
    fail(Code::kInvalidArgument, "a world of ", input.world_size, " ranks cannot have ", input.local_world_size,
         " ranks on every host");
  }
  if (rank < 0 || rank >= input.world_size)
    fail(Code::kOutOfRange, "rank ", rank, " is outside the world of ", input.world_size);
  const HostGrid hosts{input.world_size / input.local_world_size, input.local_world_size};
  const Wiring wiring(tables, plan, hosts, {.sequence = input.sequence});
  return Expectation(wiring, tables, input, rank).run();
}

}  // namespace tessera
