#include "distributed/route_once.h"

#include <algorithm>
#include <bit>

namespace tessera {
namespace {

constexpr int64_t kFewestIds = 32;  // fewer ids are not searched for repeats
constexpr int64_t kAtOnce = 1024;   // ids between two checks of how many are distinct
constexpr int64_t kEmpty = -1;      // an empty slot
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

class OnceFinder {
 public:
  OnceFinder(const RankWiring& own, std::span<const uint8_t> tables, OnceScratch& scratch, RoutedBatch& out)
      : own_(own), wiring_(own.wiring), tables_(tables), scratch_(scratch), out_(out) {}

  bool run(const Workers& workers) {
    if (scratch_.first_route.size() != wiring_.id_routes().size()) number_groups();
    for (OnceGroup& g : scratch_.groups) g.id_routes.clear(), g.ids = 0;
    out_.once.assign(wiring_.id_routes().size(), {});
    int64_t ids = 0, slots = 0;
    for (int i = 0; i < std::ssize(wiring_.id_routes()); ++i) {
      if (!takes_part(i)) continue;
      const int64_t n = out_.sent[i].ids;
      OnceGroup& g = scratch_.groups[scratch_.first_route[i]];
      if (g.ids + n > INT32_MAX) continue;
      g.id_routes.push_back(i);
      g.ids += n;
      out_.once[i] = {-1, 0, n, ids};
      ids += n;
    }
    int64_t begin = 0;
    for (OnceGroup& g : scratch_.groups) {
      g.slots_begin = slots, g.distinct_begin = begin;
      if (g.ids < kFewestIds) g.id_routes.clear(), g.ids = 0;
      g.slots = g.ids ? static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(g.ids) * 3 / 2)) : 0;
      slots += g.slots, begin += g.ids;
    }
    if (begin == 0) return false;
    grow(scratch_.slots, slots);
    grow(scratch_.distinct, begin);
    grow(out_.once_index, ids);
    workers.run(std::ssize(scratch_.groups), begin * 32, [&](int64_t g) { find(scratch_.groups[g]); });
    bool any = false;
    for (const OnceGroup& g : scratch_.groups) {
      if (g.distinct == g.ids) continue;
      any = true;
      send(g);
    }
    return any;
  }

 private:
  template <class T>
  static void grow(std::vector<T>& v, int64_t n) {
    if (std::ssize(v) < n) v.resize(n + n / 4);
  }

  // Features of a table have equal id routes to each rank, in the same order.
  void number_groups() {
    scratch_.first_route.clear();
    scratch_.groups.resize(wiring_.id_routes().size());
    const auto feature = [&](int i) { return wiring_.id_routes()[i].table_feature; };
    const auto table = [&](int i) { return wiring_.table_features()[feature(i)].table; };
    for (int i = 0, of_table = 0, of_feature = 0; i < std::ssize(wiring_.id_routes()); ++i) {
      const bool new_rank = i == 0 || wiring_.id_routes()[i].rank != wiring_.id_routes()[i - 1].rank;
      if (new_rank || table(i) != table(i - 1)) of_table = i;
      if (new_rank || feature(i) != feature(i - 1)) of_feature = i;
      scratch_.first_route.push_back(of_table + i - of_feature);
      scratch_.groups[scratch_.first_route.back()].id_routes.push_back(i);  // so that later batches allocate nothing
    }
  }

  // True if another rank owns the rows and sends a row for each id.
  bool takes_part(int i) const {
    const IdRoute& id_route = wiring_.id_routes()[i];
    const IdBlock& sent = out_.sent[i];
    if (sent.ids == 0 || !tables_[wiring_.table_features()[id_route.table_feature].table]) return false;
    if (id_route.rank == own_.rank) return false;
    if (wiring_.sequence()) return true;
    const std::vector<int>& summed = wiring_.summed_routes(wiring_.hosts().of(id_route.rank));
    return sent.ids == sent.full_bags && !std::binary_search(summed.begin(), summed.end(), i);
  }

  // Numbers the group's distinct ids, unless there are nearly as many as ids.
  void find(OnceGroup& g) const {
    g.distinct = g.ids;
    if (g.ids == 0) return;
    int32_t* const slots = scratch_.slots.data() + g.slots_begin;
    int64_t* const distinct = scratch_.distinct.data() + g.distinct_begin;
    std::fill_n(slots, g.slots, static_cast<int32_t>(kEmpty));
    const int shift = 64 - std::countr_zero(static_cast<uint64_t>(g.slots));
    int64_t n = 0, seen = 0, next_look = std::max(g.ids / 4, kAtOnce);
    for (const int i : g.id_routes) {
      OnceSent& once = out_.once[i];
      once.fresh = static_cast<int32_t>(n);
      const int64_t* ids = scratch_.ids[i];
      int32_t* index = out_.once_index.data() + once.index_begin;
      for (int64_t k = 0; k < once.rows;) {
        const int64_t last = std::min(once.rows, k + kAtOnce);
        seen += last - k;
        for (; k < last; ++k) index[k] = number(ids[k], slots, g.slots - 1, shift, distinct, n);
        if (seen < next_look) continue;
        if (n * 100 > seen * 99) return;  // after a quarter of the ids: few of all ids would be left out
        next_look = g.ids;
      }
    }
    if (n * 16 <= g.ids * 15) g.distinct = n;
  }

  static int32_t number(int64_t id, int32_t* slots, int64_t mask, int shift, int64_t* distinct, int64_t& n) {
    auto at = static_cast<int64_t>(static_cast<uint64_t>(id) * kGolden >> shift);
    for (; slots[at] != kEmpty; at = (at + 1) & mask) {
      if (distinct[slots[at]] == id) return slots[at];
    }
    distinct[n] = id;
    return slots[at] = static_cast<int32_t>(n++);
  }

  void send(const OnceGroup& g) const {
    const int first = g.id_routes.front();
    for (const int i : g.id_routes) {
      out_.once[i].id_route = first;
      out_.sent[i] = {};
    }
    IdBlock& sent = out_.sent[first];
    sent.ids = g.distinct;
    sent.bags = sent.full_bags = wiring_.sequence() ? 1 : g.distinct;
    scratch_.ids[first] = scratch_.distinct.data() + g.distinct_begin;
  }

  const RankWiring& own_;
  const Wiring& wiring_;
  const std::span<const uint8_t> tables_;
  OnceScratch& scratch_;
  RoutedBatch& out_;
};

}  // namespace

bool find_once(const RankWiring& own, std::span<const uint8_t> tables, const Workers& workers, OnceScratch& scratch,
               RoutedBatch& out) {
  return OnceFinder(own, tables, scratch, out).run(workers);
}

}  // namespace tessera
