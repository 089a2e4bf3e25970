// test.hot: the first `hot` rows are on every rank, the others striped or in blocks. With hot=0, rows are striped and
// columns are divided as well.
#include "tessera/sdk/sharder.h"

namespace tessera::test {
namespace {

using namespace tessera::sdk;

class Hot final : public Sharder {
 public:
  static constexpr uint32_t kFlags = TSR_SHARDER_WHEN_ASKED;

  explicit Hot(Options& options)
      : hot_(options.integer("hot", 3)),
        routed_(options.flag("routed", false)),
        columns_(options.flag("columns", false)) {}

  std::vector<Layout> propose(const Table& table, const Topology& topology, const Constraints& limits) const override {
    const int64_t n = topology.world_size, most_parts = columns_ ? 3 : 2;
    if (limits.max_shards > 0 && n * most_parts > limits.max_shards) return {};
    const int64_t hot = std::min(hot_, table.rows);
    Layout layout{.parts = {}, .cookie = 1 + hot};
    const int32_t row_set = routed_ ? TSR_ROWS_ROUTED : TSR_ROWS_RANGE;
    if (hot_ > 0) {
      layout.parts.push_back({TSR_PLACE_EVERY_RANK, TSR_COMBINE_REPLICA, row_set,
                              std::vector<Rectangle>(topology.world_size, Rectangle{0, hot, 0, table.cols})});
    }
    const bool in_one_part = hot_ == 0;
    const int64_t width = columns_ && table.cols >= 8 ? table.cols / 2 : table.cols;
    for (int64_t col = 0; col < table.cols; col += width) {
      if (col == 0 || !in_one_part)
        layout.parts.push_back({in_one_part ? TSR_PLACE_ANY_RANK : TSR_PLACE_EVERY_RANK, TSR_COMBINE_SUM, row_set, {}});
      const int64_t cols = std::min(width, table.cols - col);
      int64_t rank = 0;
      for (const Range& block : cut_blocks(table.rows - hot, n)) {
        const int64_t dealt = (table.rows - hot - rank++ + n - 1) / n;
        layout.parts.back().rectangles.push_back(routed_ ? Rectangle{0, dealt, col, cols}
                                                         : Rectangle{hot + block.start, block.count, col, cols});
      }
    }
    return {layout};
  }

  // Hot rows, if there are any, are row set 0; the cookie says how many.
  void route(const Routed& layout, std::span<const int64_t> ids, std::span<int32_t> row_sets,
             std::span<int64_t> rows) const override {
    const int64_t hot = hot_of(layout), copies = hot_ > 0, n = layout.num_row_sets - copies;
    for (size_t i = 0; i < ids.size(); ++i) {
      const int64_t cold = ids[i] - hot;
      row_sets[i] = static_cast<int32_t>(cold < 0 ? 0 : copies + cold % n);
      rows[i] = cold < 0 ? ids[i] : cold / n;
    }
  }

  void unroute(const Routed& layout, std::span<const int32_t> row_sets, std::span<const int64_t> rows,
               std::span<int64_t> ids) const override {
    const int64_t hot = hot_of(layout), copies = hot_ > 0, n = layout.num_row_sets - copies;
    for (size_t i = 0; i < rows.size(); ++i)
      ids[i] = row_sets[i] < copies ? rows[i] : hot + rows[i] * n + row_sets[i] - copies;
  }

 private:
  static int64_t hot_of(const Routed& layout) {
    if (layout.cookie < 1)
      fail(TSR_INVALID_ARGUMENT, "the cookie is ", layout.cookie, ", and this sharder gave another");
    return layout.cookie - 1;
  }

  int64_t hot_;
  bool routed_, columns_;
};

}  // namespace
}  // namespace tessera::test

TESSERA_PLUGIN("test.hot", "0.1.0",
               tessera::sdk::component<tessera::test::Hot>(
                   {.id = "test.hot", .version = "0.1.0", .about = "copies of some rows, and the others cut"}));
