#include "distributed/joined_exchange.h"

#include <cstring>
#include <numeric>

namespace tessera {
namespace {

int64_t sum_of(const std::vector<int64_t>& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

char* bytes_at(const Tensor& tensor, int64_t element) {
  return static_cast<char*>(tensor.raw()) + element * size_of(tensor.dtype());
}

}  // namespace

void JoinedExchange::prepare(const RankGrid& grid, int rank, const std::vector<int64_t>& as_home,
                             const std::vector<int64_t>& as_owner) {
  sizes.grid = grid;
  sizes.rank = rank;
  sizes.as_home = as_home;
  sizes.as_owner = as_owner;
  sizes.relayed[sizes.relayed_at(grid.column_of(rank), grid.row_of(rank))] = as_home[static_cast<size_t>(rank)];
  sizes.add_up(ranks_);
  relayed_ = sum_of(sizes.relayed);
  as_home_ = sum_of(sizes.as_home);
  const auto begins = [](const std::vector<int64_t>& counts, std::vector<int64_t>& out) {
    out.resize(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), out.begin(), int64_t{0});
  };
  begins(sizes.as_home, begins_);
  begins(sizes.relayed, relayed_begins_);
  packed_.ensure(as_home_);
  by_home_.ensure(relayed_);
  by_owner_.ensure(relayed_);
}

template <class Move>
void JoinedExchange::each_packed(const Tensor& home, const Move& move) const {
  int64_t packed = 0;
  for (int column = 0; column < sizes.grid.columns; ++column) {
    for (int row = 0; row < sizes.grid.rows; ++row) {
      const auto owner = static_cast<size_t>(sizes.grid.rank_at(row, column));
      const int64_t n = sizes.as_home[owner];
      if (n > 0)
        move(bytes_at(packed_.tensor(), packed), bytes_at(home, begins_[owner]),
             static_cast<size_t>(n * size_of(home.dtype())));
      packed += n;
    }
  }
}

template <class Move>
void JoinedExchange::each_relayed(const Move& move) const {
  const Tensor &by_home = by_home_.tensor(), &by_owner = by_owner_.tensor();
  int64_t at = 0;  // in by_owner
  for (int row = 0; row < sizes.grid.rows; ++row) {
    for (int column = 0; column < sizes.grid.columns; ++column) {
      const size_t block = sizes.relayed_at(column, row);
      const int64_t n = sizes.relayed[block];
      if (n > 0)
        move(bytes_at(by_home, relayed_begins_[block]), bytes_at(by_owner, at),
             static_cast<size_t>(n * size_of(by_home.dtype())));
      at += n;
    }
  }
}

Work JoinedExchange::start_to_owner(const ProcessGroup& group, const Tensor& home, const CallSite& site) {
  each_packed(home, [](char* packed, const char* from, size_t bytes) { std::memcpy(packed, from, bytes); });
  return group.all_to_all_v(packed_.tensor().first({as_home_}), ranks_.home_and_relay,
                            by_home_.tensor().first({relayed_}), ranks_.relay_and_home, site);
}

void JoinedExchange::finish_to_owner(const ProcessGroup& group, Work first_hop, const Tensor& owner,
                                     const CallSite& site, Stopwatch& watch) {
  watch.wait(std::move(first_hop));
  each_relayed([](const char* by_home, char* by_owner, size_t bytes) { std::memcpy(by_owner, by_home, bytes); });
  watch.wait(group.all_to_all_v(by_owner_.tensor().first({relayed_}), ranks_.relay_and_owner, owner,
                                ranks_.owner_and_relay, site));
}

Work JoinedExchange::start_to_home(const ProcessGroup& group, const Tensor& owner, const CallSite& site) {
  return group.all_to_all_v(owner, ranks_.owner_and_relay, by_owner_.tensor().first({relayed_}), ranks_.relay_and_owner,
                            site);
}

void JoinedExchange::finish_to_home(const ProcessGroup& group, Work first_hop, const Tensor& home, const CallSite& site,
                                    Stopwatch& watch) {
  watch.wait(std::move(first_hop));
  each_relayed([](char* by_home, const char* by_owner, size_t bytes) { std::memcpy(by_home, by_owner, bytes); });
  watch.wait(group.all_to_all_v(by_home_.tensor().first({relayed_}), ranks_.relay_and_home,
                                packed_.tensor().first({as_home_}), ranks_.home_and_relay, site));
  each_packed(home, [](const char* packed, char* to, size_t bytes) { std::memcpy(to, packed, bytes); });
}

}  // namespace tessera
