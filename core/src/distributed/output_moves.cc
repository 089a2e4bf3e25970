#include "distributed/output_moves.h"

#include <algorithm>

namespace tessera {
namespace {

// Rows of an arrival on the wire, and their bags.
struct ArrivedRows {
  int64_t begin;
  const int32_t* bags;
  int64_t rows;
};

class OutputMoves {
 public:
  OutputMoves(const RankWiring& own, const RoutedBatch& routed, const WireLayout& wire)
      : own_(own), wiring_(own.wiring), routed_(routed), wire_(wire) {}

  void list(const OutputLayout& output, RowMoves& moves) const {
    moves.scales = routed_.mean_scale;
    auto target = moves.targets.begin();
    for (size_t s = 0; s < wiring_.slots().size(); ++s) {
      if (wiring_.slots()[s].replicated) continue;
      target->rows = output.rows[s];
      target->begin = output.offset[s];
      target->stride = output.stride[s];
      target->scale = wiring_.sequence() ? -1 : routed_.mean_begin[s];
      ++target;
    }
    for (size_t i = 0; i < own_.arrivals.size(); ++i) {
      const ArrivedRows rows = arrived(own_.arrivals[i]);
      moves.runs[i].begin = rows.begin;
      moves.runs[i].bags = rows.bags;
      moves.runs[i].rows = rows.rows;
    }
  }

 private:
  ArrivedRows arrived(const Arrival& a) const {
    if (a.host_sum >= 0) {
      return {wire_.host_sum_begin[a.host_sum], wire_.host_bag_order.data() + wire_.host_lengths_begin[a.host_sum],
              wire_.host_full_bags[a.host_sum]};
    }
    const size_t stream = a.kept >= 0 ? wiring_.kept_stream(a.kept) : wiring_.lanes()[a.lane].stream;
    const int64_t begin = a.kept >= 0 ? wire_.kept_begin[a.kept] + a.col : wire_.lane_begin[a.lane];
    const StreamPiece& sent = routed_.sent[stream];
    if (wiring_.sequence()) return {begin, routed_.positions.data() + routed_.positions_begin[stream], sent.ids};
    return {begin, routed_.bag_order.data() + routed_.lengths_begin[stream], sent.full_bags};
  }

  const RankWiring& own_;
  const Wiring& wiring_;
  const RoutedBatch& routed_;
  const WireLayout& wire_;
};

RowsMeet meet(const Wiring& wiring, const Slot& slot) {
  if (wiring.sequence()) return RowsMeet::kNever;
  return slot.starts_at_zero ? RowsMeet::kAllAdd : RowsMeet::kFirstWrites;
}

}  // namespace

RowMoves output_moves(const RankWiring& own) {
  RowMoves moves;
  auto arrival = own.arrivals.begin();
  for (size_t s = 0; s < own.wiring.slots().size(); ++s) {
    const Slot& slot = own.wiring.slots()[s];
    if (slot.replicated) continue;
    RowTarget target;
    target.cols = slot.dim;
    target.meet = meet(own.wiring, slot);
    moves.add(target);
    for (; arrival != own.arrivals.end() && arrival->slot == static_cast<int>(s); ++arrival) {
      RowRun& run = moves.add_run();
      run.cols = arrival->cols;
      run.stride = arrival->kept >= 0 ? slot.dim : run.cols;
      run.col = arrival->col;
      run.stays = arrival->stays;
    }
  }
  return moves;
}

void list_output(const RankWiring& own, const RoutedBatch& routed, const WireLayout& wire, const OutputLayout& output,
                 RowMoves& moves) {
  OutputMoves(own, routed, wire).list(output, moves);
}

void list_inverse(const Wiring& wiring, const CheckedBatch& batch, const OutputLayout& output, RowMoves& moves) {
  moves.clear();
  moves.own_bags.resize(wiring.slots().size() * static_cast<size_t>(batch.output_batch));
  int32_t* bags = moves.own_bags.data();
  for (size_t s = 0; s < wiring.slots().size(); ++s) {
    const Slot& slot = wiring.slots()[s];
    RowTarget target{output.rows[s], slot.dim, output.offset[s], output.stride[s]};
    target.meet = RowsMeet::kAllAdd;
    target.repeats = true;
    moves.add(target);
    RowRun run{slot.col, wiring.output_width(), bags, batch.output_batch};
    run.cols = slot.dim;
    moves.add(run);
    bags = std::transform(batch.inverse[s], batch.inverse[s] + batch.output_batch, bags,
                          [](int64_t row) { return static_cast<int32_t>(row); });
  }
}

}  // namespace tessera
