#include "distributed/exchange.h"

#include "distributed/host_row_moves.h"

namespace tessera {

RowExchange::RowExchange(std::shared_ptr<ProcessGroup> group, const RankWiring& own)
    : group_(std::move(group)),
      host_group_(own.wiring.hosts().count > 1 ? group_->in_host() : group_),
      wiring_(own.wiring) {}

Work RowExchange::to_home(const ProcessGroup& group, const Hop& hop, Step& step, const char* label) const {
  return group.all_to_all_v(step.rows.tensor().narrow(hop.owner_begin, hop.owner_total), hop.owner_counts,
                            step.rows.tensor().narrow(hop.home_begin, hop.home_total), hop.home_counts, label);
}

Work RowExchange::to_owner(const ProcessGroup& group, const Hop& hop, Step& step, const char* label) const {
  return group.all_to_all_v(step.rows.tensor().narrow(hop.home_begin, hop.home_total), hop.home_counts,
                            step.rows.tensor().narrow(hop.owner_begin, hop.owner_total), hop.owner_counts, label);
}

Work RowExchange::start_rows_to_home(Step& step) {
  if (wiring_.world_size() == 1) return {};
  return to_home(*host_group_, step.wire.in_host, step, wiring_.hosts().count > 1 ? "rows inside the host" : "rows");
}

void RowExchange::finish_rows_to_home(Step& step, Work first_hop, Stopwatch& watch) {
  watch.wait(std::move(first_hop));
  if (wiring_.hosts().count == 1) return;
  sum_on_the_way(step);
  watch.wait(to_home(*group_, step.wire.across, step, "rows across hosts"));
}

void RowExchange::rows_to_owner(Step& step, Stopwatch& watch) {
  if (wiring_.world_size() == 1) return;
  if (wiring_.hosts().count > 1) {
    watch.wait(to_owner(*group_, step.wire.across, step, "gradients across hosts"));
    spread_on_the_way(step);
  }
  watch.wait(to_owner(*host_group_, step.wire.in_host, step,
                      wiring_.hosts().count > 1 ? "gradients inside the host" : "gradients"));
}

void RowExchange::sum_on_the_way(Step& step) const {
  const Tensor& rows = step.rows.tensor();
  if (step.device) return step.device->host_sums.combine(rows, rows);
  combine_rows(step.host_sums, rows.data<float>(), rows.data<float>());
}

void RowExchange::spread_on_the_way(Step& step) const {
  const Tensor& rows = step.rows.tensor();
  if (step.device) return step.device->host_sums.split(rows, rows);
  split_rows(step.host_sums, rows.data<float>(), rows.data<float>());
}

void RowExchange::abort(const std::string& reason) const { group_->abort(reason); }

}  // namespace tessera
