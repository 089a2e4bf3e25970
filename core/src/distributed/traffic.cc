#include "distributed/traffic.h"

#include <algorithm>
#include <array>

#include "tessera/step_figures.h"
#include "wiring/expected_step.h"
#include "wiring/messages.h"

namespace tessera {
namespace {

// Adds up the bytes to each rank, by the location of that rank.
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

int64_t first_message(const Sent& sent) { return kHeaderBytes + sent.messages.inline_payload; }

// Lists the exchanges of a step in their order.
class ExchangeList {
 public:
  ExchangeList(const Sent& sent, int rank) : sent_(sent), rank_(rank) {}

  std::vector<StepExchange> run(const HostGrid& hosts) {
    add_headers();
    if (sent_.messages.in_second) {
      if (sent_.messages.joins_ids)
        add_joined(sent_.messages.joined, true, 1, {"ids", "ids of a row"});
      else
        add("ids", sent_.routed.payload_bytes, sent_.messages.payload_recv_bytes, 1);
    }
    const Hop& last = sent_.wire.last(hosts.count > 1);
    const int first = hosts.of(rank_) * hosts.ranks;
    if (hosts.count > 1)
      add("rows inside the host", sent_.wire.in_host.owner_counts, sent_.wire.in_host.home_counts, kFloat, first);
    if (sent_.messages.joins_rows) {
      add_joined(sent_.joined, false, kFloat, {"rows", "rows of a column"});
      add_joined(sent_.joined, true, kFloat, {"gradients", "gradients of a row"});
    } else {
      add("rows", last.owner_counts, last.home_counts, kFloat);
      add("gradients", last.home_counts, last.owner_counts, kFloat);
    }
    if (hosts.count > 1)
      add("gradients inside the host", sent_.wire.in_host.home_counts, sent_.wire.in_host.owner_counts, kFloat, first);
    return std::move(out_);
  }

 private:
  static constexpr int64_t kFloat = sizeof(float);

  StepExchange& next(const char* name) {
    const std::vector<int64_t> none(sent_.routed.payload_bytes.size());
    return out_.emplace_back(StepExchange{name, none, none});
  }
  // Adds counts of elements; the first one is rank `first`'s.
  void add(const char* name, const std::vector<int64_t>& sent, const std::vector<int64_t>& received, int64_t element,
           int first = 0) {
    StepExchange& to = next(name);
    for (size_t i = 0; i < sent.size(); ++i) {
      to.sent[static_cast<size_t>(first) + i] = sent[i] * element;
      to.received[static_cast<size_t>(first) + i] = received[i] * element;
    }
  }
  void add_joined(const JoinedExchange& joined, bool to_owners, int64_t element, std::array<const char*, 2> names) {
    const auto& hops = joined.by_rank();
    if (to_owners) {
      add(names[0], hops.home_and_relay, hops.relay_and_home, element);
      add(names[1], hops.relay_and_owner, hops.owner_and_relay, element);
    } else {
      add(names[0], hops.owner_and_relay, hops.relay_and_owner, element);
      add(names[1], hops.relay_and_home, hops.home_and_relay, element);
    }
  }
  void add_headers() {
    const RankGrid& grid = sent_.messages.grid;
    const auto hop = [&](const char* name, int blocks, const auto& reaches) {
      StepExchange& to = next(name);
      for (int peer = 0; peer < grid.world(); ++peer) {
        if (peer != rank_ && reaches(peer)) to.sent[peer] = to.received[peer] = blocks * first_message(sent_);
      }
    };
    hop("step header", grid.rows, [&](int peer) { return grid.same_row(rank_, peer); });
    if (grid.is_direct()) return;
    hop("step headers of a row", grid.columns, [&](int peer) { return grid.same_column(rank_, peer); });
  }

  const Sent& sent_;
  const int rank_;
  std::vector<StepExchange> out_;
};

// Sizes of the data between one rank and each other one: bytes of ids, and elements of rows. For rows it has the hop
// that may be joined and, with two hops, the one inside the host.
class ExpectedPairs : public StepVisitor {
 public:
  ExpectedPairs(const Wiring& wiring, const ExpectedStep& step, int rank) : hosts_(wiring.hosts()), rank_(rank) {
    for (std::vector<double>* of : {&payloads, &rows_to_homes, &rows_from_owners, &in_host_to, &in_host_from})
      of->resize(static_cast<size_t>(wiring.world_size()));
    step.visit(RankWiring(wiring, rank), *this);
  }
  void ids(const IdRoute& id_route, const ExpectedIdBlock& id_block) override {
    if (id_route.rank == rank_) return;
    ids_wanted += id_block.ids;
    ids_sent += id_block.once().ids;
  }
  void payload(int owner, double bytes) override { payloads[static_cast<size_t>(owner)] = bytes; }
  void rows_to(int home, const RowHop& hop) override {
    (in_first_hop(home) ? in_host_to : rows_to_homes)[static_cast<size_t>(home)] += hop.elements();
  }
  void rows_from(int owner, const RowHop& hop) override {
    (in_first_hop(owner) ? in_host_from : rows_from_owners)[static_cast<size_t>(owner)] += hop.elements();
  }

  double ids_wanted = 0, ids_sent = 0;
  std::vector<double> payloads;  // by owner
  std::vector<double> rows_to_homes, rows_from_owners, in_host_to, in_host_from;

 private:
  bool in_first_hop(int rank) const { return hosts_.count > 1 && hosts_.of(rank) == hosts_.of(rank_); }

  const HostGrid& hosts_;
  const int rank_;
};

// The bytes that a rank sends: its own data and, if rows are joined, those of the homes in its row of the grid.
class ExpectedTraffic {
 public:
  ExpectedTraffic(const Wiring& wiring, const ExpectedStep& step, const TrafficInput& input, int rank)
      : wiring_(wiring),
        step_(step),
        input_(input),
        rank_(rank),
        own_(wiring, step, rank),
        grid_(RankGrid::of(input.world_size, input.local_world_size, input.joins.ids)) {}

  ExchangeBytes<double> bytes() {
    const auto most = [](const std::vector<double>& of) { return *std::max_element(of.begin(), of.end()); };
    const double rows = std::max(most(own_.rows_to_homes), most(own_.rows_from_owners));
    joins_rows_ = !grid_.is_direct() && is_joined(input_.joins.rows, rows * sizeof(float));
    if (joins_rows_) pass_on();
    ExchangeBytes<double> out;
    out.ids_wanted = own_.ids_wanted, out.ids_sent = own_.ids_sent;
    const Meter<double> meter(rank_, input_.local_world_size);
    const auto on_wire = [&](bool gradients, double elements) {
      return expected_on_wire(input_.wire, gradients, elements, wiring_.row_elements());
    };
    for (int rank = 0; rank < input_.world_size; ++rank) {
      const auto peer = static_cast<size_t>(rank);
      const double to_home =
          joins_rows_ ? rows_.owner_and_relay[peer] + rows_.relay_and_home[peer] : own_.rows_to_homes[peer];
      const double to_owner =
          joins_rows_ ? rows_.home_and_relay[peer] + rows_.relay_and_owner[peer] : own_.rows_from_owners[peer];
      meter.send(out.ids, rank, static_cast<double>(kHeaderBytes) + own_.payloads[peer]);
      meter.send(out.rows, rank, on_wire(false, to_home + own_.in_host_to[peer]));
      meter.send(out.gradients, rank, on_wire(true, to_owner + own_.in_host_from[peer]));
    }
    return out;
  }

 private:
  void pass_on() {
    JoinedSizes<double> rows{grid_, rank_, own_.rows_from_owners, own_.rows_to_homes, {}};
    rows.relayed.resize(own_.payloads.size());
    for (int column = 0; column < grid_.columns; ++column) {
      const ExpectedPairs home(wiring_, step_, grid_.rank_at(grid_.row_of(rank_), column));
      for (int row = 0; row < grid_.rows; ++row) {
        const auto owner = static_cast<size_t>(grid_.rank_at(row, grid_.column_of(rank_)));
        rows.relayed[rows.relayed_at(column, row)] = home.rows_from_owners[owner];
      }
    }
    rows.add_up(rows_);
  }

  const Wiring& wiring_;
  const ExpectedStep& step_;
  const TrafficInput& input_;
  const int rank_;
  const ExpectedPairs own_;
  const RankGrid grid_;
  bool joins_rows_ = false;
  JoinedSizes<double>::ByRank rows_;
};

}  // namespace

WireBytes wire_bytes_of(const ProcessGroup& group) {
  return [&group](bool gradients, int64_t elements, int64_t row_elements) {
    const Carries carries = gradients ? Carries::kRowGradients : Carries::kRows;
    return group.wire_bytes({nullptr, 0, carries, row_elements}, DType::kFloat32, elements);
  };
}

int64_t messages_of(const std::vector<StepExchange>& exchanges, int own_rank) {
  int64_t count = 0;
  for (const StepExchange& exchange : exchanges) {
    for (size_t rank = 0; rank < exchange.sent.size(); ++rank)
      count += static_cast<int>(rank) != own_rank && exchange.sent[rank] > 0;
  }
  return count;
}

std::vector<StepExchange> exchanges_of(const HostGrid& hosts, int rank, const Sent& sent) {
  return ExchangeList(sent, rank).run(hosts);
}

void count_traffic(const Wiring& wiring, const ProcessGroup& group, const Sent& sent, StepTraffic& out) {
  const auto& [routed, messages, rows, joined] = sent;
  const int rank = group.rank();
  out.first_message = first_message(sent);
  out.ids_in_second = messages.in_second;
  out.ids_sent = routed.payload_bytes;
  out.bytes = {};
  out.bytes.ids_wanted = routed.ids, out.bytes.ids_sent = routed.ids_sent;
  const Meter<int64_t> meter(rank, group.local_world_size());
  const WireBytes wire = wire_bytes_of(group);
  const int64_t row_elements = wiring.row_elements();
  const bool two_hops = wiring.hosts().count > 1;
  const Hop& last = rows.last(two_hops);
  const auto& hops = joined.by_rank();
  for (int peer = 0; peer < group.world_size(); ++peer) {
    const int64_t ids = kHeaderBytes + out.ids_sent[peer];
    meter.send(out.bytes.ids, peer, ids);
    meter.send(out.bytes.unused_inline, peer, messages.bytes_to(routed, rank, peer) - ids);
    int64_t to_home =
        messages.joins_rows ? hops.owner_and_relay[peer] + hops.relay_and_home[peer] : last.owner_counts[peer];
    int64_t to_owner =
        messages.joins_rows ? hops.home_and_relay[peer] + hops.relay_and_owner[peer] : last.home_counts[peer];
    if (two_hops && wiring.hosts().of(peer) == wiring.hosts().of(rank)) {
      to_home += rows.in_host.owner_counts[wiring.hosts().local(peer)];
      to_owner += rows.in_host.home_counts[wiring.hosts().local(peer)];
    }
    meter.send(out.bytes.rows, peer, bytes_on_wire(wire, false, to_home, row_elements));
    meter.send(out.bytes.gradients, peer, bytes_on_wire(wire, true, to_owner, row_elements));
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
  const ExpectedStep step(wiring, table_features);
  return ExpectedTraffic(wiring, step, input, rank).bytes();
}

}  // namespace tessera
