#include "distributed/exchange.h"

namespace tessera {
namespace {

Work to_home(const ProcessGroup& group, const Hop& hop, const Tensor& rows, const CallSite& site) {
  return group.all_to_all_v(rows.narrow(hop.owner_begin, hop.owner_total), hop.owner_counts,
                            rows.narrow(hop.home_begin, hop.home_total), hop.home_counts, site);
}

Work to_owner(const ProcessGroup& group, const Hop& hop, const Tensor& rows, const CallSite& site) {
  return group.all_to_all_v(rows.narrow(hop.home_begin, hop.home_total), hop.home_counts,
                            rows.narrow(hop.owner_begin, hop.owner_total), hop.owner_counts, site);
}

}  // namespace

RowExchange::RowExchange(std::shared_ptr<ProcessGroup> group, const RankWiring& own, uint64_t place)
    : group_(std::move(group)),
      host_group_(own.wiring.hosts().count > 1 ? group_->in_host() : group_),
      wiring_(own.wiring),
      place_(place),
      row_elements_(own.wiring.row_elements()) {}

Work RowExchange::start_rows_to_home(const RowsOnWire& wire) const {
  if (wiring_.world_size() == 1) return {};
  const bool two_hops = wiring_.hosts().count > 1;
  return to_home(*host_group_, wire.layout.in_host, wire.rows, rows(two_hops ? "rows inside the host" : "rows"));
}

void RowExchange::finish_rows_to_home(const RowsOnWire& wire, Work first_hop, Stopwatch& watch) const {
  watch.wait(std::move(first_hop));
  if (wiring_.hosts().count == 1) return;
  wire.host_sums.combine(wire.rows, wire.rows);
  watch.wait(to_home(*group_, wire.layout.across, wire.rows, rows("rows across hosts")));
}

Work RowExchange::start_rows_to_owner(const RowsOnWire& wire) const {
  if (wiring_.world_size() == 1) return {};
  if (wiring_.hosts().count > 1)
    return to_owner(*group_, wire.layout.across, wire.rows, gradients("gradients across hosts"));
  return to_owner(*host_group_, wire.layout.in_host, wire.rows, gradients("gradients"));
}

void RowExchange::finish_rows_to_owner(const RowsOnWire& wire, Work first_hop, Stopwatch& watch) const {
  watch.wait(std::move(first_hop));
  if (wiring_.hosts().count == 1) return;
  wire.host_sums.split(wire.rows, wire.rows);
  watch.wait(to_owner(*host_group_, wire.layout.in_host, wire.rows, gradients("gradients inside the host")));
}

void RowExchange::abort(const std::string& reason) const { group_->abort(reason); }

}  // namespace tessera
