#include "distributed/output_moves.h"

#include <algorithm>

namespace tessera {
namespace {

// The rows of an arrival on the wire, and their bags.
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
    for (size_t s = 0; s < wiring_.table_features().size(); ++s) {
      if (wiring_.table_features()[s].data_parallel) continue;
      target->rows = output.rows[s];
      target->begin = output.offset[s];
      target->stride = output.stride[s];
      target->scale = wiring_.sequence() ? -1 : routed_.mean_begin[s];
      ++target;
    }
    for (size_t i = 0; i < own_.arrivals.size(); ++i) {
      const ArrivedRows rows = arrived(own_.arrivals[i]);
      RowRun& run = moves.runs[i];
      run.begin = rows.begin;
      run.bags = rows.bags;
      run.rows = rows.rows;
      run.index = nullptr;
      if (!routed_.once.empty() && own_.arrivals[i].row_route >= 0) list_once(own_.arrivals[i].row_route, run);
    }
  }

 private:
  // Points a run at the rows of the id route that has the distinct ids.
  void list_once(int row_route, RowRun& run) const {
    const int id_route = wiring_.row_routes()[row_route].id_route;
    const OnceSent& once = routed_.once[id_route];
    if (once.id_route < 0) return;
    const auto first = [&](int of) {
      const auto& all = wiring_.row_routes();
      return std::partition_point(all.begin(), all.end(), [&](const RowRoute& r) { return r.id_route < of; }) -
             all.begin();
    };
    run.begin = wire_.row_route_begin[first(once.id_route) + row_route - first(id_route)];
    run.rows = once.rows;
    run.index = routed_.once_index.data() + once.index_begin;
    run.fresh = once.fresh;
  }

  ArrivedRows arrived(const Arrival& a) const {
    if (a.host_sum >= 0) {
      return {wire_.host_sum_begin[a.host_sum], wire_.host_bag_order.data() + wire_.host_lengths_begin[a.host_sum],
              wire_.host_full_bags[a.host_sum]};
    }
    const size_t id_route = a.replicated_rows >= 0 ? wiring_.replicated_route(a.replicated_rows)
                                                   : wiring_.row_routes()[a.row_route].id_route;
    const int64_t begin =
        a.replicated_rows >= 0 ? wire_.replicated_begin[a.replicated_rows] + a.col : wire_.row_route_begin[a.row_route];
    const IdBlock& sent = routed_.sent[id_route];
    if (wiring_.sequence()) return {begin, routed_.positions.data() + routed_.positions_begin[id_route], sent.ids};
    return {begin, routed_.bag_order.data() + routed_.lengths_begin[id_route], sent.full_bags};
  }

  const RankWiring& own_;
  const Wiring& wiring_;
  const RoutedBatch& routed_;
  const WireLayout& wire_;
};

RowsMeet meet(const Wiring& wiring, const TableFeature& table_feature) {
  if (wiring.sequence()) return RowsMeet::kNever;
  return table_feature.starts_at_zero ? RowsMeet::kAllAdd : RowsMeet::kFirstWrites;
}

}  // namespace

RowMoves output_moves(const RankWiring& own) {
  RowMoves moves;
  auto arrival = own.arrivals.begin();
  for (size_t s = 0; s < own.wiring.table_features().size(); ++s) {
    const TableFeature& table_feature = own.wiring.table_features()[s];
    if (table_feature.data_parallel) continue;
    RowTarget target{.cols = table_feature.dim, .meet = meet(own.wiring, table_feature)};
    moves.add(target);
    for (; arrival != own.arrivals.end() && arrival->table_feature == static_cast<int>(s); ++arrival) {
      RowRun& run = moves.add_run();
      run.cols = arrival->cols;
      run.stride = arrival->replicated_rows >= 0 ? table_feature.dim : run.cols;
      run.col = arrival->col;
      run.is_local = arrival->is_local;
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
  moves.own_bags.resize(wiring.table_features().size() * static_cast<size_t>(batch.output_batch));
  int32_t* bags = moves.own_bags.data();
  for (size_t s = 0; s < wiring.table_features().size(); ++s) {
    const TableFeature& table_feature = wiring.table_features()[s];
    RowTarget target{output.rows[s], table_feature.dim, output.offset[s], output.stride[s]};
    target.meet = RowsMeet::kAllAdd;
    target.repeats = true;
    moves.add(target);
    RowRun run{table_feature.col, wiring.output_width(), bags, batch.output_batch};
    run.cols = table_feature.dim;
    moves.add(run);
    bags = std::transform(batch.inverse[s], batch.inverse[s] + batch.output_batch, bags,
                          [](int64_t row) { return static_cast<int32_t>(row); });
  }
}

}  // namespace tessera
