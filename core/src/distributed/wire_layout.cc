#include "distributed/wire_layout.h"

#include "distributed/bag_order.h"

namespace tessera {
namespace {

int64_t rows_of(const Wiring& wiring, const IdBlock& id_block) {
  return wiring.sequence() ? id_block.ids : id_block.full_bags;
}

class RowLayout {
 public:
  RowLayout(const RankWiring& own, const RoutedBatch& routed, const ReceivedBatch& received, WireLayout& out)
      : own_(own),
        wiring_(own.wiring),
        hosts_(wiring_.hosts()),
        rank_(own.rank),
        host_(own.host),
        host_row_routes_begin_(wiring_.row_route_begin(host_ * hosts_.ranks)),
        host_row_routes_(wiring_.row_route_begin((host_ + 1) * hosts_.ranks) - host_row_routes_begin_),
        routed_(routed),
        received_(received),
        out_(out) {}

  void run() {
    lay_out_owner();
    lay_out_home();
    lay_out_replicated();
    out_.elements = at_;
  }

 private:
  int64_t rows_of(const IdBlock& id_block) const { return tessera::rows_of(wiring_, id_block); }

  // Calls body(home's host, row route) for all rows that travel inside the host from `owner` to one of its ranks, in
  // their order.
  template <class Body>
  void each_in_host(int owner, const Body& body) const {
    const int first = wiring_.row_route_begin(owner), last = wiring_.row_route_begin(owner + 1);
    for (int host = 0; host < hosts_.count; ++host) {
      for (int i = first; i < last; ++i) {
        if (host == host_ || wiring_.row_routes()[i].host_sum >= 0) body(host, i);
      }
    }
  }

  void lay_out_owner() {
    const int own = own_.first_row_route, row_routes = own_.num_row_routes;
    const int id_routes = own_.num_id_routes;
    out_.owner_begin.assign(static_cast<size_t>(wiring_.world_size()) * row_routes, -1);
    const auto put = [&](int home, int k) {
      const RowRoute& row_route = wiring_.row_routes()[own + k];
      const int id_route = row_route.id_route - own_.first_id_route;
      if (home == rank_ && own_.local_rows[id_route]) return;
      const IdBlock& id_block = received_.id_blocks[static_cast<size_t>(home) * id_routes + id_route];
      out_.owner_begin[static_cast<size_t>(home) * row_routes + k] = at_;
      at_ += rows_of(id_block) * row_route.cols;
    };
    const auto put_for = [&](int local) {
      each_in_host(rank_, [&](int host, int i) { put(host * hosts_.ranks + local, i - own); });
    };
    put_for(hosts_.local(rank_));
    Hop& hop = out_.in_host;
    hop.owner_begin = at_;
    hop.owner_counts.clear();
    for (int local = 0; local < hosts_.ranks; ++local) {
      const int64_t begin = at_;
      if (local != hosts_.local(rank_)) put_for(local);
      hop.owner_counts.push_back(at_ - begin);
    }
    hop.owner_total = at_ - hop.owner_begin;
    if (hosts_.count > 1) lay_out_owner_across(put, row_routes);
  }

  template <class Put>
  void lay_out_owner_across(const Put& put, int row_routes) {
    Hop& hop = out_.across;
    hop.owner_begin = at_;
    hop.owner_counts.clear();
    const int first = wiring_.host_sum_begin(host_), last = wiring_.host_sum_begin(host_ + 1);
    out_.sum_begin.assign(static_cast<size_t>(hosts_.count) * (last - first), -1);
    for (int home = 0; home < wiring_.world_size(); ++home) {
      const int64_t begin = at_;
      const int host = hosts_.of(home);
      if (host != host_) {
        for (int k = 0; k < row_routes; ++k) {
          if (wiring_.row_routes()[own_.first_row_route + k].host_sum < 0) put(home, k);
        }
      }
      if (host != host_ && hosts_.local(home) == hosts_.local(rank_)) {
        for (int s = first; s < last; ++s) {
          out_.sum_begin[static_cast<size_t>(host) * (last - first) + s - first] = at_;
          at_ += bags_present(wiring_, received_, wiring_.host_sums()[s], host) * wiring_.host_sums()[s].cols;
        }
      }
      hop.owner_counts.push_back(at_ - begin);
    }
    hop.owner_total = at_ - hop.owner_begin;
  }

  void lay_out_home() {
    out_.row_route_begin.assign(wiring_.row_routes().size(), -1);
    out_.host_sum_begin.assign(wiring_.host_sums().size(), -1);
    out_.relayed_begin.assign(hosts_.count > 1 ? static_cast<size_t>(hosts_.count) * host_row_routes_ : 0, -1);
    const auto begin_of = [&](int host, int row_route) -> int64_t& {
      if (host == host_) return out_.row_route_begin[row_route];
      return out_.relayed_begin[static_cast<size_t>(host) * host_row_routes_ + row_route - host_row_routes_begin_];
    };
    const int own = own_.first_row_route, row_routes = own_.num_row_routes;
    each_in_host(rank_, [&](int host, int i) {
      const int home = host * hosts_.ranks + hosts_.local(rank_);
      begin_of(host, i) = out_.owner_begin[static_cast<size_t>(home) * row_routes + i - own];
    });
    Hop& hop = out_.in_host;
    hop.home_begin = at_;
    hop.home_counts.clear();
    for (int local = 0; local < hosts_.ranks; ++local) {
      const int64_t begin = at_;
      const int owner = host_ * hosts_.ranks + local;
      if (owner != rank_) {
        each_in_host(owner, [&](int host, int i) {
          const RowRoute& row_route = wiring_.row_routes()[i];
          begin_of(host, i) = at_;
          at_ += row_route.cols * (host == host_ ? rows_of(routed_.sent[row_route.id_route])
                                                 : presence_of(wiring_, received_, row_route.id_route, host).full_bags);
        });
      }
      hop.home_counts.push_back(at_ - begin);
    }
    hop.home_total = at_ - hop.home_begin;
    if (hosts_.count > 1) lay_out_home_across();
  }

  void lay_out_replicated() {
    out_.replicated_begin.clear();
    for (int k = 0; k < std::ssize(wiring_.replicated_rows()); ++k) {
      out_.replicated_begin.push_back(at_);
      at_ += rows_of(routed_.sent[wiring_.replicated_route(k)]) *
             wiring_.table_features()[wiring_.replicated_rows()[k].table_feature].dim;
    }
  }

  void lay_out_home_across() {
    Hop& hop = out_.across;
    hop.home_begin = at_;
    hop.home_counts.clear();
    for (int owner = 0; owner < wiring_.world_size(); ++owner) {
      const int64_t begin = at_;
      const int host = hosts_.of(owner);
      for (int i = wiring_.row_route_begin(owner); host != host_ && i < wiring_.row_route_begin(owner + 1); ++i) {
        if (wiring_.row_routes()[i].host_sum >= 0) continue;
        out_.row_route_begin[i] = at_;
        at_ += rows_of(routed_.sent[wiring_.row_routes()[i].id_route]) * wiring_.row_routes()[i].cols;
      }
      if (host != host_ && hosts_.local(owner) == hosts_.local(rank_)) {
        for (int s = wiring_.host_sum_begin(host); s < wiring_.host_sum_begin(host + 1); ++s) {
          out_.host_sum_begin[s] = at_;
          at_ += out_.host_full_bags[s] * wiring_.host_sums()[s].cols;
        }
      }
      hop.home_counts.push_back(at_ - begin);
    }
    hop.home_total = at_ - hop.home_begin;
  }

  const RankWiring& own_;
  const Wiring& wiring_;
  const HostGrid& hosts_;
  const int rank_;
  const int host_;
  const int host_row_routes_begin_, host_row_routes_;
  const RoutedBatch& routed_;
  const ReceivedBatch& received_;
  WireLayout& out_;
  int64_t at_ = 0;  // elements that are placed so far
};

}  // namespace

// Counts ids per bag over all row routes of each host sum elsewhere.
void add_host_lengths(const RankWiring& own, const RoutedBatch& routed, WireLayout& out) {
  const Wiring& wiring = own.wiring;
  const auto& sums = wiring.host_sums();
  out.host_lengths_begin.assign(sums.size() + 1, 0);
  int64_t at = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    out.host_lengths_begin[i] = at;
    if (sums[i].host != own.host) at += routed.sent[wiring.row_routes()[sums[i].row_routes[0]].id_route].bags;
  }
  out.host_lengths_begin.back() = at;
  out.host_lengths.assign(at, 0);
  out.host_bag_order.resize(at);
  out.host_full_bags.assign(sums.size(), 0);
  for (size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].host == own.host) continue;
    int32_t* total = out.host_lengths.data() + out.host_lengths_begin[i];
    for (int row_route : sums[i].row_routes) {
      const int id_route = wiring.row_routes()[row_route].id_route;
      const int32_t* lengths = routed.lengths.data() + routed.lengths_begin[id_route];
      for (int64_t b = 0; b < routed.sent[id_route].bags; ++b) total[b] += lengths[b];
    }
    const int64_t begin = out.host_lengths_begin[i], bags = out.host_lengths_begin[i + 1] - begin;
    out.host_full_bags[i] = order_bags(total, bags, out.host_bag_order.data() + begin).full;
  }
}

void rows_wanted(const RankWiring& own, const RoutedBatch& routed, const WireLayout& lengths,
                 std::vector<int64_t>& by_rank) {
  const Wiring& wiring = own.wiring;
  const HostGrid& hosts = wiring.hosts();
  by_rank.assign(static_cast<size_t>(wiring.world_size()), 0);
  for (const RowRoute& route : wiring.row_routes()) {
    const int owner = wiring.id_routes()[route.id_route].rank;
    if (owner == own.rank || (hosts.count > 1 && (route.host_sum >= 0 || hosts.of(owner) == own.host))) continue;
    by_rank[owner] += rows_of(wiring, routed.sent[route.id_route]) * route.cols;
  }
  for (size_t s = 0; s < wiring.host_sums().size(); ++s) {
    const HostSum& sum = wiring.host_sums()[s];
    if (sum.host == own.host) continue;
    by_rank[sum.host * hosts.ranks + hosts.local(own.rank)] += lengths.host_full_bags[s] * sum.cols;
  }
}

void lay_out_rows(const RankWiring& own, const RoutedBatch& routed, const ReceivedBatch& received, WireLayout& out) {
  RowLayout(own, routed, received, out).run();
}

}  // namespace tessera
