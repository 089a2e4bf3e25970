// Exchanges rows and their gradients between owners and homes. There is one exchange per phase for all tables and all
// strategies.
#pragma once

#include <string>

#include "distributed/joined_exchange.h"
#include "distributed/row_executor.h"
#include "distributed/stopwatch.h"
#include "distributed/wire_layout.h"
#include "tessera/process_group.h"
#include "wiring/wiring.h"

namespace tessera {

// The rows of a step in the places that `layout` gives them, with room for the sums that are made between its hops.
struct RowsOnWire {
  const WireLayout& layout;
  const Tensor& rows;
  RowMover& host_sums;
  JoinedExchange* joined;  // exchange of the last hop; null: all ranks exchange directly
};

class RowExchange {
 public:
  // `place` identifies the collection and is equal on all ranks (CallSite::place).
  RowExchange(std::shared_ptr<ProcessGroup> group, const RankWiring& own, uint64_t place);

  // Sends rows from owners to homes: first inside the host and then, if the plan sums rows there, across hosts. All
  // counts are known from the inputs. Other work may be done between start and finish.
  Work start_rows_to_home(const RowsOnWire& wire) const;
  void finish_rows_to_home(const RowsOnWire& wire, Work first_hop, Stopwatch& watch) const;
  // Sends the rows' gradients back, in the reverse order.
  Work start_rows_to_owner(const RowsOnWire& wire) const;
  void finish_rows_to_owner(const RowsOnWire& wire, Work first_hop, Stopwatch& watch) const;
  // Fails the operations in which other ranks wait for this one.
  void abort(const std::string& reason) const;

 private:
  Work start_to_home(const RowsOnWire& wire, const char* label) const;
  void finish_to_home(const RowsOnWire& wire, Work started, Stopwatch& watch) const;
  Work start_to_owner(const RowsOnWire& wire, const char* label) const;
  void finish_to_owner(const RowsOnWire& wire, Work started, Stopwatch& watch) const;
  bool two_hops() const { return wiring_.hosts().count > 1; }
  CallSite rows(const char* label) const { return {label, place_, Carries::kRows, row_elements_}; }
  CallSite gradients(const char* label) const { return {label, place_, Carries::kRowGradients, row_elements_}; }

  std::shared_ptr<ProcessGroup> group_;
  std::shared_ptr<ProcessGroup> host_group_;  // of the first hop; equal to the group if there is only one hop
  const Wiring& wiring_;
  const uint64_t place_;
  const int64_t row_elements_;  // width of every row; 0: rows differ
};

}  // namespace tessera
