#include "wiring/expected_step.h"

#include <algorithm>
#include <cmath>

#include "wiring/messages.h"

namespace tessera {

int64_t bytes_on_wire(const WireBytes& wire, bool gradients, int64_t elements, int64_t row_elements) {
  if (wire) return wire(gradients, elements, row_elements);
  return elements * static_cast<int64_t>(sizeof(float));
}

double expected_on_wire(const WireBytes& wire, bool gradients, double elements, int64_t row_elements) {
  const auto unit = static_cast<double>(std::max<int64_t>(1, row_elements));
  const double below = std::floor(elements / unit) * unit, above = below + unit;
  const auto bytes = [&](double n) {
    return static_cast<double>(bytes_on_wire(wire, gradients, static_cast<int64_t>(n), row_elements));
  };
  return bytes(below) + (elements == below ? 0 : (elements - below) / unit * (bytes(above) - bytes(below)));
}

// Walks along one rank's part of the step.
struct ExpectedStep::Walk {
  void run() {
    send_ids();
    for (int peer = 0; peer < wiring_.world_size(); ++peer) {
      if (peer == own_.rank) continue;
      each_hop(own_.rank, peer, [&](const RowHop& hop) { visitor_.rows_to(peer, hop); });
      each_hop(peer, own_.rank, [&](const RowHop& hop) { visitor_.rows_from(peer, hop); });
    }
    for (const Arrival& a : own_.arrivals) {
      if (a.is_local) continue;
      visitor_.put_together(a.cols, a.replicated_rows >= 0 ? step_.replicated_blocks_[a.replicated_rows]
                                    : a.row_route >= 0     ? id_block(a.row_route)
                                                           : step_.sums_[a.host_sum]);
    }
    for (int home = 0; home < wiring_.world_size(); ++home) {
      if (counterparts(own_.rank, home)) sum_for_counterpart();
    }
  }

  void sum_for_counterpart() {
    for (int s = wiring_.host_sum_begin(own_.host); s < wiring_.host_sum_begin(own_.host + 1); ++s) {
      const HostSum& sum = wiring_.host_sums()[s];
      for (const int row_route : sum.row_routes) visitor_.put_together(sum.cols, id_block(row_route));
    }
  }
  bool counterparts(int a, int b) const { return hosts_.of(a) != hosts_.of(b) && hosts_.local(a) == hosts_.local(b); }

  void send_ids() {
    for (int owner = 0; owner < wiring_.world_size(); ++owner) {
      double ids = 0, weights = 0, words = 0;
      for (int s = wiring_.id_route_begin(owner); s < wiring_.id_route_begin(owner + 1); ++s) {
        visitor_.ids(wiring_.id_routes()[s], step_.id_blocks_[s]);
        const ExpectedIdBlock id_block = step_.id_blocks_[s].once();
        ids += id_block.ids;
        if (id_block.weighted) weights += id_block.ids;
        words += 1 + id_block.bags;
      }
      if (owner == own_.rank) continue;
      if (counterparts(own_.rank, owner)) {
        for (const int s : wiring_.summed_routes(hosts_.of(owner))) words += presence_words(step_.id_blocks_[s].bags);
      }
      visitor_.payload(owner, payload_bytes(ids, weights, words));
    }
  }

  // Visits the rows that `owner` sends towards `home`: rows of its row routes, and sums of its host. If both are on one
  // host, a summed row route also sends the rows for the homes on other hosts that have this home's local index.
  template <class Body>
  void each_hop(int owner, int home, const Body& body) const {
    const bool same_host = hosts_.of(owner) == hosts_.of(home);
    for (int i = wiring_.row_route_begin(owner); i < wiring_.row_route_begin(owner + 1); ++i) {
      const RowRoute& row_route = wiring_.row_routes()[i];
      const int homes = row_route.host_sum < 0 ? 1 : same_host ? hosts_.count : 0;
      if (homes)
        body(RowHop{i, -1, wiring_.id_routes()[row_route.id_route].table_feature, homes * id_block(i).once().rows,
                    row_route.cols});
    }
    if (!counterparts(owner, home)) return;
    for (int s = wiring_.host_sum_begin(hosts_.of(owner)); s < wiring_.host_sum_begin(hosts_.of(owner) + 1); ++s) {
      const HostSum& sum = wiring_.host_sums()[s];
      body(RowHop{-1, s, sum.table_feature, step_.sums_[s].rows, sum.cols});
    }
  }

  const ExpectedIdBlock& id_block(int row_route) const {
    return step_.id_blocks_[wiring_.row_routes()[row_route].id_route];
  }

  const ExpectedStep& step_;
  const RankWiring& own_;
  StepVisitor& visitor_;
  const Wiring& wiring_ = step_.wiring_;
  const HostGrid& hosts_ = wiring_.hosts();
};

double ExpectedIdBlock::uncertain_bags() const { return pooled ? std::min(full_bags, bags - full_bags) : 0; }

ExpectedIdBlock ExpectedIdBlock::once() const {
  ExpectedIdBlock out = *this;
  if (distinct >= 1) return out;
  out.ids *= distinct, out.rows *= distinct;
  out.bags = out.full_bags = pooled ? out.rows : 1;
  return out;
}

double ExpectedIdBlock::bytes() const {
  return ids * static_cast<double>(kIdBytes + (weighted ? kWeightBytes : 0)) +
         (1 + bags) * static_cast<double>(kWordBytes);
}

ExpectedIdBlock expected_id_block(const ExpectedTableFeature& feature, double row_share, bool sequence) {
  ExpectedIdBlock out;
  const double share = std::min(row_share, 1.0);
  out.bags = feature.bags;
  out.ids = feature.ids * share;
  out.weighted = feature.weighted;
  out.pooled = !sequence;
  out.distinct = feature.distinct;
  if (feature.ids > 0 && feature.bags > 0) {
    out.full_bags = share >= 1 ? feature.bags : feature.bags * (1 - std::pow(1 - share, feature.ids / feature.bags));
  }
  out.rows = sequence ? out.ids : out.full_bags;
  return out;
}

ExpectedStep::ExpectedStep(const Wiring& wiring, const std::vector<ExpectedTableFeature>& table_features)
    : wiring_(wiring) {
  const auto id_block = [&](int table_feature, int64_t rows) {
    const auto of = static_cast<double>(std::max<int64_t>(1, wiring.table_features()[table_feature].rows));
    return expected_id_block(table_features[table_feature], static_cast<double>(rows) / of, wiring.sequence());
  };
  for (const IdRoute& route : wiring.id_routes()) id_blocks_.push_back(id_block(route.table_feature, route.rows));
  for (int host = 0; host < wiring.hosts().count; ++host) {
    for (const int s : wiring.summed_routes(host)) id_blocks_[s].distinct = 1;
  }
  for (const ReplicatedRows& r : wiring.replicated_rows())
    replicated_blocks_.push_back(id_block(r.table_feature, r.rows));
  for (const HostSum& sum : wiring.host_sums()) {
    int64_t rows = 0;
    for (const int row_route : sum.row_routes) rows += wiring.id_routes()[wiring.row_routes()[row_route].id_route].rows;
    sums_.push_back(id_block(sum.table_feature, rows));
  }
}

void ExpectedStep::visit(const RankWiring& own, StepVisitor& visitor) const { Walk{*this, own, visitor}.run(); }

}  // namespace tessera
