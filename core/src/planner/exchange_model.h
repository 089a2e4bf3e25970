// The seconds and bytes of a step's exchanges. Messages are direct, or joined along rows and columns of a RankGrid.
#pragma once

#include <vector>

#include "tessera/machine.h"
#include "tessera/sharding.h"
#include "wiring/rank_grid.h"

namespace tessera {

// The bytes of one exchange, by rank: inside the host, and to other hosts.
struct Crossing {
  std::vector<double> in_host, across;
  std::vector<double> from_across;  // received from other hosts
  double largest = 0;               // the most bytes between two ranks in messages that may be joined
  bool two_hops = false;            // rows are summed inside the host first, in a hop of its own
};

// Seconds of exchanges, by kind of link.
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
  // `topology` and `machine` must outlive the object.
  ExchangeModel(const Topology& topology, const Machine& machine, const Joins& joins);

  // All ranks exchange directly. Inside hosts, the rank that sends most decides. Between hosts, the host that sends or
  // receives most decides, because its ranks share a link. An exchange of no bytes takes no time.
  Exchanged direct(const Crossing& sent) const;
  // Exchanges of several collections that run at the same time. Those that go the same way count as one message for
  // each rank.
  using Together = std::vector<const Crossing*>;
  // The exchange of headers, with inline payloads if they are small; otherwise the payloads follow.
  Exchanged ids(const Together& all) const;
  // The exchange of rows, given by their owners, or of gradients, which take the same links in the other direction.
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
  // The number of ranks to which a rank sends along its row or its column, by kind of link.
  struct Reach {
    double in_host = 0, across = 0;
    double across_share() const { return in_host + across > 0 ? across / (in_host + across) : 0; }
  };
  Exchanged headers(double block) const;
  int64_t inline_payload(const Crossing& ids) const;  // bytes; 0 if the payloads follow the headers
  bool joins(JoinExchanges join, const Crossing& sent) const;
  double busiest_host(const std::vector<double>& bytes) const;  // bytes per rank of the host with the most bytes
  // Sums the exchanges that go the same way under the rule `join`.
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
