#include "distributed/same_routes.h"

#include <algorithm>
#include <cstring>

#include "config/fnv1a.h"

namespace tessera {

std::string other_routes(const std::vector<RowRouterPtr>& routers, const ProcessGroup& group) {
  struct Record {
    uint64_t table, routes;
  };
  std::vector<const RowRouter*> all;
  std::vector<Record> mine;
  for (const RowRouterPtr& router : routers) {
    if (!router) continue;
    all.push_back(router.get());
    mine.push_back({fnv1a(cat(router->table().name, ' ', router->table().num_embeddings)), router->fingerprint()});
  }
  const std::string text(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(Record));
  size_t differs = all.size();
  for (const std::string& theirs : group.all_gather_text(text, "routes")) {
    if (theirs.size() != text.size()) return "";  // they have other tables
    for (size_t t = 0; t < mine.size(); ++t) {
      Record record{};
      std::memcpy(&record, theirs.data() + t * sizeof(record), sizeof(record));
      if (record.table != mine[t].table) return "";
      if (record.routes != mine[t].routes) differs = std::min(differs, t);
    }
  }
  if (differs == all.size()) return "";
  const RowRouter& router = *all[differs];
  const RowRouter::Sample here = router.sample();
  std::vector<int64_t> places;  // row set and row of each id
  for (size_t i = 0; i < here.ids.size(); ++i) places.insert(places.end(), {here.row_sets[i], here.rows[i]});
  const Tensor of_rank_0 = Tensor::from(places);
  group.broadcast(of_rank_0, 0, "routes").wait();
  const int64_t* there = of_rank_0.data<int64_t>();
  std::string found;
  for (size_t i = 0; i < here.ids.size() && found.empty(); ++i, there += 2) {
    if (here.row_sets[i] == there[0] && here.rows[i] == there[1]) continue;
    found =
        cat(router.who(), ": route takes id ", here.ids[i], " to row ", here.rows[i], " of row set ", here.row_sets[i],
            " on rank ", group.rank(), ", but to row ", there[1], " of row set ", there[0], " on rank 0");
  }
  for (const std::string& theirs : group.all_gather_text(found, "routes")) {
    if (!theirs.empty()) return theirs + ": it must give the same on every rank";
  }
  return cat(router.who(), ": route gives something else from call to call");
}

}  // namespace tessera
