#include "distributed/exchange.h"

namespace tessera {
namespace {

Tensor of_owner(const Hop& hop, const Tensor& rows) { return rows.narrow(hop.owner_begin, hop.owner_total); }
Tensor of_home(const Hop& hop, const Tensor& rows) { return rows.narrow(hop.home_begin, hop.home_total); }

Work to_home(const ProcessGroup& group, const Hop& hop, const Tensor& rows, const CallSite& site) {
  return group.all_to_all_v(of_owner(hop, rows), hop.owner_counts, of_home(hop, rows), hop.home_counts, site);
}

Work to_owner(const ProcessGroup& group, const Hop& hop, const Tensor& rows, const CallSite& site) {
  return group.all_to_all_v(of_home(hop, rows), hop.home_counts, of_owner(hop, rows), hop.owner_counts, site);
}

}  // namespace

RowExchange::RowExchange(std::shared_ptr<ProcessGroup> group, const RankWiring& own, uint64_t place)
    : group_(std::move(group)),
      host_group_(own.wiring.hosts().count > 1 ? group_->in_host() : group_),
      wiring_(own.wiring),
      place_(place),
      row_elements_(own.wiring.row_elements()) {}

Work RowExchange::start_to_home(const RowsOnWire& wire, const char* label) const {
  const Hop& hop = wire.layout.last(two_hops());
  if (!wire.joined) return to_home(*group_, hop, wire.rows, rows(label));
  return wire.joined->start_to_home(*group_, of_owner(hop, wire.rows), rows(label));
}

void RowExchange::finish_to_home(const RowsOnWire& wire, Work started, Stopwatch& watch) const {
  if (!wire.joined) return watch.wait(std::move(started));
  wire.joined->finish_to_home(*group_, std::move(started), of_home(wire.layout.last(two_hops()), wire.rows),
                              rows("rows of a column"), watch);
}

Work RowExchange::start_to_owner(const RowsOnWire& wire, const char* label) const {
  const Hop& hop = wire.layout.last(two_hops());
  if (!wire.joined) return to_owner(*group_, hop, wire.rows, gradients(label));
  return wire.joined->start_to_owner(*group_, of_home(hop, wire.rows), gradients(label));
}

void RowExchange::finish_to_owner(const RowsOnWire& wire, Work started, Stopwatch& watch) const {
  if (!wire.joined) return watch.wait(std::move(started));
  wire.joined->finish_to_owner(*group_, std::move(started), of_owner(wire.layout.last(two_hops()), wire.rows),
                               gradients("gradients of a row"), watch);
}

Work RowExchange::start_rows_to_home(const RowsOnWire& wire) const {
  if (wiring_.world_size() == 1) return {};
  if (!two_hops()) return start_to_home(wire, "rows");
  return to_home(*host_group_, wire.layout.in_host, wire.rows, rows("rows inside the host"));
}

void RowExchange::finish_rows_to_home(const RowsOnWire& wire, Work first_hop, Stopwatch& watch) const {
  if (!two_hops()) return finish_to_home(wire, std::move(first_hop), watch);
  watch.wait(std::move(first_hop));
  wire.host_sums.combine(wire.rows, wire.rows);
  finish_to_home(wire, start_to_home(wire, "rows across hosts"), watch);
}

Work RowExchange::start_rows_to_owner(const RowsOnWire& wire) const {
  if (wiring_.world_size() == 1) return {};
  return start_to_owner(wire, two_hops() ? "gradients across hosts" : "gradients");
}

void RowExchange::finish_rows_to_owner(const RowsOnWire& wire, Work first_hop, Stopwatch& watch) const {
  finish_to_owner(wire, std::move(first_hop), watch);
  if (!two_hops()) return;
  wire.host_sums.split(wire.rows, wire.rows);
  watch.wait(to_owner(*host_group_, wire.layout.in_host, wire.rows, gradients("gradients inside the host")));
}

void RowExchange::abort(const std::string& reason) const { group_->abort(reason); }

}  // namespace tessera
