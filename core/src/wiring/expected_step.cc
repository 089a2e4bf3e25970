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

// One rank's part, as the visitor is told it.
struct ExpectedStep::Walk {
  void run() {
    send_ids();
    for (int peer = 0; peer < wiring_.world_size(); ++peer) {
      if (peer == own_.rank) continue;
      each_hop(own_.rank, peer, [&](const RowHop& hop) { visitor_.rows_to(peer, hop); });
      each_hop(peer, own_.rank, [&](const RowHop& hop) { visitor_.rows_from(peer, hop); });
    }
    for (const Arrival& a : own_.arrivals) {
      if (a.stays) continue;
      visitor_.put_together(a.cols, a.kept >= 0   ? step_.kept_[a.kept]
                                    : a.lane >= 0 ? piece(a.lane)
                                                  : step_.sums_[a.host_sum]);
    }
    for (int home = 0; home < wiring_.world_size(); ++home) {
      if (counterparts(own_.rank, home)) sum_for_counterpart();
    }
  }

  void sum_for_counterpart() {
    for (int s = wiring_.host_sum_begin(own_.host); s < wiring_.host_sum_begin(own_.host + 1); ++s) {
      const HostSum& sum = wiring_.host_sums()[s];
      for (const int lane : sum.lanes) visitor_.put_together(sum.cols, piece(lane));
    }
  }
  bool counterparts(int a, int b) const { return hosts_.of(a) != hosts_.of(b) && hosts_.local(a) == hosts_.local(b); }

  void send_ids() {
    for (int owner = 0; owner < wiring_.world_size(); ++owner) {
      double ids = 0, weights = 0, words = 0;
      for (int s = wiring_.stream_begin(owner); s < wiring_.stream_begin(owner + 1); ++s) {
        const ExpectedPiece& piece = step_.pieces_[s];
        visitor_.ids(wiring_.streams()[s], piece);
        ids += piece.ids;
        if (piece.weighted) weights += piece.ids;
        words += 1 + piece.bags;
      }
      if (owner == own_.rank) continue;
      if (counterparts(own_.rank, owner)) {
        for (const int s : wiring_.summed_streams(hosts_.of(owner))) words += presence_words(step_.pieces_[s].bags);
      }
      visitor_.payload(owner, payload_bytes(ids, weights, words));
    }
  }

  // The rows that `owner` sends towards `home` itself: rows of its lanes, and sums of its host's. To a rank of its host
  // a summed lane also hands the rows for that rank's counterparts on all other hosts.
  template <class Body>
  void each_hop(int owner, int home, const Body& body) const {
    const bool same_host = hosts_.of(owner) == hosts_.of(home);
    for (int i = wiring_.lane_begin(owner); i < wiring_.lane_begin(owner + 1); ++i) {
      const Lane& lane = wiring_.lanes()[i];
      const int homes = lane.host_sum < 0 ? 1 : same_host ? hosts_.count : 0;
      if (homes) body(RowHop{i, -1, wiring_.streams()[lane.stream].slot, homes * piece(i).rows, lane.cols});
    }
    if (!counterparts(owner, home)) return;
    for (int s = wiring_.host_sum_begin(hosts_.of(owner)); s < wiring_.host_sum_begin(hosts_.of(owner) + 1); ++s) {
      const HostSum& sum = wiring_.host_sums()[s];
      body(RowHop{-1, s, sum.slot, step_.sums_[s].rows, sum.cols});
    }
  }

  const ExpectedPiece& piece(int lane) const { return step_.pieces_[wiring_.lanes()[lane].stream]; }

  const ExpectedStep& step_;
  const RankWiring& own_;
  StepVisitor& visitor_;
  const Wiring& wiring_ = step_.wiring_;
  const HostGrid& hosts_ = wiring_.hosts();
};

double ExpectedPiece::uncertain_bags() const { return pooled ? std::min(full_bags, bags - full_bags) : 0; }

double ExpectedPiece::bytes() const {
  return ids * static_cast<double>(kIdBytes + (weighted ? kWeightBytes : 0)) +
         (1 + bags) * static_cast<double>(kWordBytes);
}

ExpectedPiece expected_piece(const ExpectedSlot& slot, double row_share, bool sequence) {
  ExpectedPiece out;
  const double share = std::min(row_share, 1.0);
  out.bags = slot.bags;
  out.ids = slot.ids * share;
  out.weighted = slot.weighted;
  out.pooled = !sequence;
  if (slot.ids > 0 && slot.bags > 0) {
    out.full_bags = share >= 1 ? slot.bags : slot.bags * (1 - std::pow(1 - share, slot.ids / slot.bags));
  }
  out.rows = sequence ? out.ids : out.full_bags;
  return out;
}

ExpectedStep::ExpectedStep(const Wiring& wiring, const std::vector<ExpectedSlot>& slots) : wiring_(wiring) {
  const auto piece = [&](int slot, int64_t rows) {
    const auto of = static_cast<double>(std::max<int64_t>(1, wiring.slots()[slot].rows));
    return expected_piece(slots[slot], static_cast<double>(rows) / of, wiring.sequence());
  };
  for (const Stream& stream : wiring.streams()) pieces_.push_back(piece(stream.slot, stream.rows));
  for (const Kept& kept : wiring.kept()) kept_.push_back(piece(kept.slot, kept.rows));
  for (const HostSum& sum : wiring.host_sums()) {
    int64_t rows = 0;
    for (const int lane : sum.lanes) rows += wiring.streams()[wiring.lanes()[lane].stream].rows;
    sums_.push_back(piece(sum.slot, rows));
  }
}

void ExpectedStep::visit(const RankWiring& own, StepVisitor& visitor) const { Walk{*this, own, visitor}.run(); }

}  // namespace tessera
