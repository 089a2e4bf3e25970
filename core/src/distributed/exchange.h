// Rows and their gradients between owners and homes; one exchange per phase for all tables and all strategies.
#pragma once

#include <string>

#include "distributed/step.h"
#include "distributed/stopwatch.h"
#include "tessera/process_group.h"
#include "wiring/wiring.h"

namespace tessera {

class RowExchange {
 public:
  RowExchange(std::shared_ptr<ProcessGroup> group, const RankWiring& own);

  // Pooled or sequence rows from the owners to the homes: first inside the host, then, where a plan sums rows there,
  // across hosts. Counts are known from the inputs. Other work fits between start and finish.
  Work start_rows_to_home(Step& step);
  void finish_rows_to_home(Step& step, Work first_hop, Stopwatch& watch);
  // Their gradients back.
  void rows_to_owner(Step& step, Stopwatch& watch);
  // Ends what other ranks wait for here.
  void abort(const std::string& reason) const;

 private:
  void sum_on_the_way(Step& step) const;
  void spread_on_the_way(Step& step) const;
  Work to_home(const ProcessGroup& group, const Hop& hop, Step& step, const char* label) const;
  Work to_owner(const ProcessGroup& group, const Hop& hop, Step& step, const char* label) const;

  std::shared_ptr<ProcessGroup> group_;
  std::shared_ptr<ProcessGroup> host_group_;  // of the first hop; the same where there is only one
  const Wiring& wiring_;
};

}  // namespace tessera
