#include "distributed/host_sums.h"

#include <bit>

namespace tessera {
namespace {

class HostSums {
 public:
  HostSums(const RankWiring& own, const ReceivedBatch& received, const WireLayout& wire, RowMoves& moves)
      : wiring_(own.wiring),
        host_(own.host),
        first_sum_(wiring_.host_sum_begin(host_)),
        num_sums_(wiring_.host_sum_begin(host_ + 1) - first_sum_),
        received_(received),
        wire_(wire),
        moves_(moves) {}

  void list() {
    moves_.clear();
    if (wiring_.hosts().count == 1) return;
    int64_t bags = 0;
    each_sum([&](const HostSum& sum, int home_host, int64_t) {
      for (int row_route : sum.row_routes) bags += presence(row_route, home_host).full_bags;
    });
    moves_.own_bags.resize(static_cast<size_t>(bags));
    int32_t* order = moves_.own_bags.data();
    each_sum([&](const HostSum& sum, int home_host, int64_t begin) {
      const int64_t rows = bags_present(wiring_, received_, sum, home_host);
      moves_.add(RowTarget{rows, sum.cols, begin, sum.cols});
      for (int row_route : sum.row_routes) {
        RowRun run{relayed_begin(row_route, home_host), sum.cols, order, presence(row_route, home_host).full_bags};
        run.cols = sum.cols;
        moves_.add(run);
        order = list_bags(sum, home_host, presence(row_route, home_host), order);
      }
    });
  }

 private:
  // Calls body(sum, home's host, its first row) for each sum of this host and each home elsewhere.
  template <class Body>
  void each_sum(const Body& body) const {
    for (int host = 0; host < wiring_.hosts().count; ++host) {
      if (host == host_) continue;
      for (int s = 0; s < num_sums_; ++s)
        body(wiring_.host_sums()[first_sum_ + s], host, wire_.sum_begin[static_cast<size_t>(host) * num_sums_ + s]);
    }
  }

  const Presence& presence(int row_route, int home_host) const {
    return presence_of(wiring_, received_, wiring_.row_routes()[row_route].id_route, home_host);
  }

  int64_t relayed_begin(int row_route, int home_host) const {
    const int begin = wiring_.row_route_begin(host_ * wiring_.hosts().ranks);
    const int row_routes = wiring_.row_route_begin((host_ + 1) * wiring_.hosts().ranks) - begin;
    return wire_.relayed_begin[static_cast<size_t>(home_host) * row_routes + row_route - begin];
  }

  // Lists every bag that has ids at one of the sum's row routes: these have a row in the sum. Returns the end of the
  // list.
  int32_t* list_bags(const HostSum& sum, int home_host, const Presence& of_row_route, int32_t* order) const {
    int32_t row = 0;
    for (int64_t word = 0; word < (of_row_route.bags + 31) / 32; ++word) {
      uint32_t any = 0;
      for (int row_route : sum.row_routes) any |= presence(row_route, home_host).bits[word];
      for (uint32_t left = of_row_route.bits[word]; left != 0; left &= left - 1) {
        const uint32_t before = (left & -left) - 1;  // bags of this word before the row route's next one
        *order++ = row + std::popcount(any & before);
      }
      row += std::popcount(any);
    }
    return order;
  }

  const Wiring& wiring_;
  const int host_, first_sum_, num_sums_;
  const ReceivedBatch& received_;
  const WireLayout& wire_;
  RowMoves& moves_;
};

}  // namespace

void list_host_sums(const RankWiring& own, const ReceivedBatch& received, const WireLayout& wire, RowMoves& moves) {
  HostSums(own, received, wire, moves).list();
}

}  // namespace tessera
