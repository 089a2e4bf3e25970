#include "distributed/output_moves.h"

#include <algorithm>

namespace tessera {
namespace {

class OutputMoves {
 public:
  OutputMoves(const RankWiring& own, const RoutedBatch& routed, const WireLayout& wire, RowMoves& moves)
      : own_(own), wiring_(own.wiring), routed_(routed), wire_(wire), moves_(moves) {}

  void list(const OutputLayout& output) {
    moves_.clear();
    moves_.scales = routed_.mean_scale;
    auto arrival = own_.arrivals.begin();
    for (size_t s = 0; s < wiring_.slots().size(); ++s) {
      const Slot& slot = wiring_.slots()[s];
      if (slot.replicated) continue;
      RowTarget target{output.rows[s], slot.dim, output.offset[s], output.stride[s]};
      if (wiring_.sequence()) {
        target.meet = RowsMeet::kNever;
      } else {
        target.scale = routed_.mean_begin[s];
        target.meet = slot.starts_at_zero ? RowsMeet::kAllAdd : RowsMeet::kFirstWrites;
      }
      moves_.add(target);
      for (; arrival != own_.arrivals.end() && arrival->slot == static_cast<int>(s); ++arrival)
        describe(*arrival, moves_.add_run());
    }
  }

 private:
  void describe(const Arrival& a, RowRun& run) const {
    run.stride = a.cols;
    run.col = a.col;
    run.cols = a.cols;
    run.stays = a.stays;
    if (a.lane < 0) {
      run.begin = wire_.host_sum_begin[a.host_sum];
      run.bags = wire_.host_bag_order.data() + wire_.host_lengths_begin[a.host_sum];
      run.rows = wire_.host_full_bags[a.host_sum];
      return;
    }
    const int stream = wiring_.lanes()[a.lane].stream;
    run.begin = wire_.lane_begin[a.lane];
    if (wiring_.sequence()) {
      run.bags = routed_.positions.data() + routed_.positions_begin[stream];
      run.rows = routed_.sent[stream].ids;
    } else {
      run.bags = routed_.bag_order.data() + routed_.lengths_begin[stream];
      run.rows = routed_.sent[stream].full_bags;
    }
  }

  const RankWiring& own_;
  const Wiring& wiring_;
  const RoutedBatch& routed_;
  const WireLayout& wire_;
  RowMoves& moves_;
};

}  // namespace

void list_output(const RankWiring& own, const RoutedBatch& routed, const WireLayout& wire, const OutputLayout& output,
                 RowMoves& moves) {
  OutputMoves(own, routed, wire, moves).list(output);
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
