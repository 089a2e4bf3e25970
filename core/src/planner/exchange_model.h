// The seconds and bytes of a step's exchanges, direct or joined along the rows and columns of a RankGrid.
#pragma once

#include <vector>

#include "tessera/machine.h"
#include "tessera/sharding.h"
#include "wiring/rank_grid.h"

namespace tessera {

// The bytes of one exchange, by rank and link.
struct Crossing {
  std::vector<double> in_host, across;
  std::vector<double> from_across;  // received from other hosts
  double largest = 0;               // between two ranks, of what may be joined
  bool two_hops = false;            // of rows: those inside a host are summed there, in a hop of their own
};

// Seconds of exchanges, by link.
struct Exchanged {
  double in_host = 0, across = 0;
  double seconds() const { return in_host + across; }
  Exchanged& operator+=(const Exchanged& other) {
    in_host += other.in_host;
    across += other.across;
    return *this;
  }
};

class ExchangeModel {
 public:
  // Both outlive the object.
  ExchangeModel(const Topology& topology, const Machine& machine, const Joins& joins);

  // All ranks exchange. The rank that sends most decides inside hosts, and the host that sends or receives most decides
  // between them, because its ranks share a link. Nothing takes no time.
  Exchanged direct(const Crossing& sent) const;
  // Collections whose exchanges are in flight together: those that go the same way count as one message for each rank.
  using Together = std::vector<const Crossing*>;
  // Headers, with inline payloads if those are small; otherwise the payloads follow.
  Exchanged ids(const Together& all) const;
  // Rows, by their owner, or gradients, which take the same links the other way.
  Exchanged rows(const Together& all) const;
  Exchanged all_reduce(double bytes) const;
  double wait() const;

  // Adds the bytes that each rank sends to other hosts.
  void add_ids_across(const Crossing& ids, std::vector<double>& by_rank) const;
  void add_rows_across(const Crossing& sent, std::vector<double>& by_rank) const;

 private:
  struct Hops {
    std::vector<double> row, column;  // bytes that a rank sends along its row and its column, by rank
  };
  // Ranks to which a rank sends along its row or its column, by link.
  struct Reach {
    double in_host = 0, across = 0;
    double across_share() const { return in_host + across > 0 ? across / (in_host + across) : 0; }
  };
  Exchanged headers(double block) const;
  int64_t inline_payload(const Crossing& ids) const;  // 0: payloads follow, if there are any
  bool joins(JoinExchanges join, const Crossing& sent) const;
  double busiest_host(const std::vector<double>& bytes) const;  // bytes of one of its ranks, on the mean
  // Adds up what goes the same way, by `join`.
  std::vector<Crossing> by_way(const Together& all, JoinExchanges join) const;
  Exchanged rows_one_way(const Crossing& sent) const;
  Hops hops(const Crossing& sent, bool from_homes) const;
  Exchanged along(const Reach& reach, const std::vector<double>& bytes) const;
  Exchanged joined(const Hops& hops) const { return along(row_, hops.row) += along(column_, hops.column); }
  void add_across(const Hops& hops, std::vector<double>& by_rank) const;

  const Topology& topology_;
  const Machine& machine_;
  const Joins joins_;
  const RankGrid grid_;
  Reach row_, column_;
};

}  // namespace tessera
