// An exchange between homes and owners along the rows and columns of a RankGrid: of ids and gradients to the owners, of
// rows back to the homes. The relays in between know all sizes, because a home's header for an owner, which states
// them, has passed them on its way. Each rank gets the same data as in a direct exchange, at the same places.
#pragma once

#include "distributed/buffer.h"
#include "distributed/stopwatch.h"
#include "tessera/process_group.h"
#include "wiring/rank_grid.h"

namespace tessera {

class JoinedExchange {
 public:
  explicit JoinedExchange(DType dtype) : packed_(dtype), by_home_(dtype), by_owner_(dtype) {}

  // Elements of one step. The caller fills in those that the rank relays, then calls prepare() with its own.
  JoinedSizes<int64_t> sizes;
  void prepare(const RankGrid& grid, int rank, const std::vector<int64_t>& as_home,
               const std::vector<int64_t>& as_owner);

  // `home`: what this rank has for the owners, in their order; `owner`: what the homes have for it. Other work fits
  // between start and finish. `site`: of the first hop.
  Work start_to_owner(const ProcessGroup& group, const Tensor& home, const CallSite& site);
  void finish_to_owner(const ProcessGroup& group, Work first_hop, const Tensor& owner, const CallSite& site,
                       Stopwatch& watch);
  // The way back.
  Work start_to_home(const ProcessGroup& group, const Tensor& owner, const CallSite& site);
  void finish_to_home(const ProcessGroup& group, Work first_hop, const Tensor& home, const CallSite& site,
                      Stopwatch& watch);

  // Elements between this rank and each other one in the two hops.
  const JoinedSizes<int64_t>::ByRank& by_rank() const { return ranks_; }

 private:
  // Blocks of the home's data by the owner's column, then row, in packed_.
  template <class Move>
  void each_packed(const Tensor& home, const Move& move) const;
  // Blocks of a relay, in by_home_ and by_owner_.
  template <class Move>
  void each_relayed(const Move& move) const;

  JoinedSizes<int64_t>::ByRank ranks_;
  int64_t relayed_ = 0, as_home_ = 0;
  std::vector<int64_t> begins_;          // of the home's blocks, by owner
  std::vector<int64_t> relayed_begins_;  // of the relay's blocks in by_home_
  Buffer packed_;                        // of the home: by the owner's column, then row
  Buffer by_home_;                       // of the relay: by the home's column, then the owner's row
  Buffer by_owner_;                      // of the relay: by the owner's row, then the home's column
};

}  // namespace tessera
