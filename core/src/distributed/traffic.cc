#include "distributed/traffic.h"

#include <algorithm>

#include "tessera/step_figures.h"
#include "wiring/expected_step.h"
#include "wiring/messages.h"

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

class ExpectedTraffic : public StepVisitor {
 public:
  ExpectedTraffic(int rank, const TrafficInput& input)
      : rank_(rank),
        meter_(rank, input.local_world_size),
        rows_(static_cast<size_t>(input.world_size)),
        gradients_(rows_) {}
  void ids(const IdRoute& id_route, const ExpectedIdBlock& id_block) override {
    if (id_route.rank == rank_) return;
    out_.ids_wanted += id_block.ids;
    out_.ids_sent += id_block.once().ids;
  }
  void payload(int owner, double bytes) override {
    meter_.send(out_.ids, owner, static_cast<double>(kHeaderBytes) + bytes);
  }
  void rows_to(int home, const RowHop& hop) override { rows_[static_cast<size_t>(home)] += hop.elements(); }
  void rows_from(int owner, const RowHop& hop) override { gradients_[static_cast<size_t>(owner)] += hop.elements(); }
  // Between two ranks all rows of a step travel as one piece.
  ExchangeBytes<double> bytes(const WireBytes& wire, int64_t row_elements) const {
    ExchangeBytes<double> out = out_;
    for (size_t peer = 0; peer < rows_.size(); ++peer) {
      const int rank = static_cast<int>(peer);
      meter_.send(out.rows, rank, expected_on_wire(wire, false, rows_[peer], row_elements));
      meter_.send(out.gradients, rank, expected_on_wire(wire, true, gradients_[peer], row_elements));
    }
    return out;
  }

 private:
  const int rank_;
  const Meter<double> meter_;
  ExchangeBytes<double> out_;             // of ids
  std::vector<double> rows_, gradients_;  // elements, by rank
};

}  // namespace

WireBytes wire_bytes_of(const ProcessGroup& group) {
  return [&group](bool gradients, int64_t elements, int64_t row_elements) {
    const Carries carries = gradients ? Carries::kRowGradients : Carries::kRows;
    return group.wire_bytes({nullptr, 0, carries, row_elements}, DType::kFloat32, elements);
  };
}

void count_traffic(const Wiring& wiring, const ProcessGroup& group, const Sent& sent, StepTraffic& out) {
  const auto& [routed, messages, rows] = sent;
  const int rank = group.rank();
  out.first_message = kHeaderBytes + messages.inline_payload;
  out.ids_in_second = messages.in_second;
  out.ids_sent = routed.payload_bytes;
  out.ids_received = messages.payload_recv_bytes;
  by_rank(wiring, rank, rows.in_host.owner_counts, rows.across.owner_counts, out.rows_sent);
  by_rank(wiring, rank, rows.in_host.home_counts, rows.across.home_counts, out.rows_received);
  out.bytes = {};
  out.bytes.ids_wanted = routed.ids, out.bytes.ids_sent = routed.ids_sent;
  const Meter<int64_t> meter(rank, group.local_world_size());
  const WireBytes wire = wire_bytes_of(group);
  const int64_t row_elements = wiring.row_elements();
  for (int peer = 0; peer < group.world_size(); ++peer) {
    const int64_t ids = kHeaderBytes + out.ids_sent[peer];
    meter.send(out.bytes.ids, peer, ids);
    meter.send(out.bytes.unused_inline, peer, messages.bytes_to(routed, rank, peer) - ids);
    meter.send(out.bytes.rows, peer, bytes_on_wire(wire, false, out.rows_sent[peer], row_elements));
    meter.send(out.bytes.gradients, peer, bytes_on_wire(wire, true, out.rows_received[peer], row_elements));
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
  std::vector<ExpectedTableFeature> table_features;
  for (const TableFeature& table_feature : wiring.table_features()) {
    const auto known = input.ids_per_bag.find(table_feature.feature);
    const double ids_per_bag = known == input.ids_per_bag.end() ? 1 : known->second;
    const auto distinct = input.distinct.find(tables[static_cast<size_t>(table_feature.table)].name);
    table_features.push_back({input.batch, input.batch * ids_per_bag, input.is_weighted,
                              distinct == input.distinct.end() ? 1 : distinct->second});
  }
  ExpectedTraffic traffic(rank, input);
  ExpectedStep(wiring, table_features).visit(RankWiring(wiring, rank), traffic);
  return traffic.bytes(input.wire, wiring.row_elements());
}

}  // namespace tessera
