// An exchange between homes and owners along the rows and columns of a RankGrid: ids and gradients go to the owners,
// rows go back to the homes. The relays in between know all sizes, because each home's headers pass through them and
// state the sizes. Each rank gets the same data as in a direct exchange, at the same places.
#pragma once

#include "distributed/buffer.h"
#include "distributed/stopwatch.h"
#include "tessera/process_group.h"
#include "wiring/rank_grid.h"

namespace tessera {

class JoinedExchange {
 public:
  explicit JoinedExchange(DType dtype) : packed_(dtype), by_home_(dtype), by_owner_(dtype) {}

  // Elements of one step. The caller fills in the sizes that this rank relays, then calls prepare(), which adds the
  // rank's own.
  JoinedSizes<int64_t> sizes;
  void prepare(const RankGrid& grid, int rank, const std::vector<int64_t>& as_home,
               const std::vector<int64_t>& as_owner);

  // `home`: this rank's data for the owners, in their order. `owner`: receives the homes' data for this rank. Other
  // work may be done between start and finish. `site` is that of the first hop.
  Work start_to_owner(const ProcessGroup& group, const Tensor& home, const CallSite& site);
  void finish_to_owner(const ProcessGroup& group, Work first_hop, const Tensor& owner, const CallSite& site,
                       Stopwatch& watch);
  // Sends data from the owners back to the homes.
  Work start_to_home(const ProcessGroup& group, const Tensor& owner, const CallSite& site);
  void finish_to_home(const ProcessGroup& group, Work first_hop, const Tensor& home, const CallSite& site,
                      Stopwatch& watch);

  // Elements between this rank and each other rank, over both hops.
  const JoinedSizes<int64_t>::ByRank& by_rank() const { return ranks_; }

 private:
  // Visits blocks of the home's data by the owner's column, then row, in packed_.
  template <class Move>
  void each_packed(const Tensor& home, const Move& move) const;
  // Visits blocks of a relay, in by_home_ and by_owner_.
  template <class Move>
  void each_relayed(const Move& move) const;

  JoinedSizes<int64_t>::ByRank ranks_;
  int64_t relayed_ = 0, as_home_ = 0;
  std::vector<int64_t> begins_;          // begins of the home's blocks, by owner
  std::vector<int64_t> relayed_begins_;  // begins of the relay's blocks in by_home_
  Buffer packed_;                        // the home's data, by the owner's column, then row
  Buffer by_home_;                       // the relay's data, by the home's column, then the owner's row
  Buffer by_owner_;                      // the relay's data, by the owner's row, then the home's column
};

}  // namespace tessera
