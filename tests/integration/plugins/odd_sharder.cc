// test.odd: a sharder that places id (id + shift) mod rows where acme.stripe places id, with one of the faults below,
// or none.
#include <signal.h>
#include <unistd.h>

#include <string>

#include "tessera/sdk/sharder.h"

namespace tessera::test {
namespace {

using namespace tessera::sdk;

class Odd final : public Sharder {
 public:
  explicit Odd(Options& options) : fault_(options.string("fault", "")), shift_(options.integer("shift", 0)) {
    if (fault_ == "other_on_each_rank") shift_ = getpid();
  }

  std::vector<Layout> propose(const Table& table, const Topology& topology, const Constraints&) const override {
    if (fault_ == "propose_never_ends") {
      while (true) usleep(1000);
    }
    if (fault_ == "propose_crashes") raise(SIGSEGV);
    if (fault_ == "propose_overflows_the_stack") overflow(1);
    const int64_t n = topology.world_size;
    if (fault_ == "other_layout_on_each_rank") {
      LayoutPart part{TSR_PLACE_EVERY_RANK, TSR_COMBINE_SUM, TSR_ROWS_RANGE, {}};
      const int64_t border = 1 + getpid() % (table.rows - 1);
      for (int64_t rank = 0; rank < n; ++rank) {
        const int64_t begin = rank == 0 ? 0 : rank == 1 ? border : table.rows;
        const int64_t end = rank == 0 && n > 1 ? border : table.rows;
        part.rectangles.push_back({begin, end - begin, 0, table.cols});
      }
      return {Layout{{part}}};
    }
    LayoutPart part{.placement = TSR_PLACE_EVERY_RANK, .combine = TSR_COMBINE_SUM, .row_set = TSR_ROWS_ROUTED};
    for (int64_t rank = 0; rank < n; ++rank)
      part.rectangles.push_back({.row = 0, .rows = (table.rows - rank + n - 1) / n, .col = 0, .cols = table.cols});
    return {Layout{{part}}};
  }

  void route(const Routed& layout, std::span<const int64_t> ids, std::span<int32_t> row_sets,
             std::span<int64_t> rows) const override {
    const int64_t n = layout.num_row_sets;
    for (size_t i = 0; i < ids.size(); ++i) {
      const int64_t at = (ids[i] + shift_) % layout.table.rows;
      if (fault_ == "leaves_outputs" && ids[i] == 3) continue;
      row_sets[i] = static_cast<int32_t>(at % n);
      rows[i] = fault_ == "many_on_one_row" ? 0 : at / n;
    }
  }

  void unroute(const Routed& layout, std::span<const int32_t> row_sets, std::span<const int64_t> rows,
               std::span<int64_t> ids) const override {
    if (fault_ == "leaves_ids") return;
    const int64_t total = layout.table.rows;
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t at = rows[i] * layout.num_row_sets + row_sets[i];
      ids[i] = fault_ == "wrong_inverse" ? at : (at + total - shift_ % total) % total;
    }
  }

 private:
  static int overflow(int depth) {
    volatile char page[4096];
    page[0] = static_cast<char>(depth);
    return depth < 0 ? 0 : overflow(depth + 1) + page[0];
  }

  std::string fault_;
  int64_t shift_;
};

}  // namespace
}  // namespace tessera::test

TESSERA_PLUGIN("test.odd", "0.1.0",
               tessera::sdk::component<tessera::test::Odd>(
                   {.id = "test.odd", .version = "0.1.0", .about = "a sharder with a fault"}));
