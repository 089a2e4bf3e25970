// Places hot rows on every rank, and divides the other rows among the ranks in turn.
//
// The hot rows of a table are looked up on the batch's own rank, so no rank serves them for all others. The remaining
// rows are far less skewed: cold row r, counted in the order of the table, is on rank r mod N. `tessera stats --hot
// FILE` writes the list, a line per table: its name, then its hot rows, the most popular first.
#pragma once

#include <tessera/sdk/sharder.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace extras {

using namespace tessera::sdk;

// The hot rows of one table, and the numbers of its cold rows.
class HotList {
 public:
  HotList() = default;
  explicit HotList(std::vector<int64_t> rows) : rows_(std::move(rows)) {
    std::sort(rows_.begin(), rows_.end());
    for (size_t i = 0; i < rows_.size(); ++i) {
      cold_before_.push_back(rows_[i] - static_cast<int64_t>(i));
      fingerprint_ = (fingerprint_ ^ static_cast<uint64_t>(rows_[i])) * 0x100000001b3u;
    }
  }
  int64_t size() const { return static_cast<int64_t>(rows_.size()); }
  int64_t largest() const { return rows_.empty() ? -1 : rows_.back(); }
  bool repeats() const { return std::adjacent_find(rows_.begin(), rows_.end()) != rows_.end(); }
  // The tag of a layout that was made with this list; never 0.
  int64_t cookie() const { return static_cast<int64_t>(fingerprint_ >> 1 | 1); }

  // The number of hot rows below `id`; for a hot row, its index among them.
  int64_t below(int64_t id) const { return std::lower_bound(rows_.begin(), rows_.end(), id) - rows_.begin(); }
  bool is_hot(int64_t id, int64_t below) const { return below < size() && rows_[static_cast<size_t>(below)] == id; }
  int64_t hot(int64_t place) const { return rows_[static_cast<size_t>(place)]; }
  // The id of the cold row with this number.
  int64_t cold(int64_t number) const {
    return number + (std::upper_bound(cold_before_.begin(), cold_before_.end(), number) - cold_before_.begin());
  }

 private:
  std::vector<int64_t> rows_, cold_before_;
  uint64_t fingerprint_ = 0xcbf29ce484222325u;
};

class HotRows : public Sharder {
 public:
  static constexpr uint32_t kFlags = TSR_SHARDER_WHEN_ASKED;

  explicit HotRows(Options& options) {
    const std::string path = options.string("file", "");
    const int64_t most = options.integer("rows", int64_t{1} << 40);
    if (most < 0) fail(TSR_INVALID_ARGUMENT, "option \"rows\" is ", most, " but cannot be negative");
    if (!path.empty()) read(path, most);
  }

  // The row sets are the hot rows, if there are any, then the cold rows of each rank.
  std::vector<Layout> propose(const Table& table, const Topology& topology, const Constraints& limits) const override {
    const HotList& hot = list_of(table);
    if (hot.largest() >= table.rows)
      fail(TSR_INVALID_ARGUMENT, "hot_rows: the file says that row ", hot.largest(), " of \"", table.name,
           "\" is hot, which has ", table.rows, " rows");
    const int64_t n = topology.world_size, cold = table.rows - hot.size();
    const bool copies = hot.size() > 0;
    if (limits.max_shards > 0 && n * (copies ? 2 : 1) > limits.max_shards) return {};
    Layout layout{.parts = {}, .cookie = hot.cookie()};
    if (copies) {
      layout.parts.push_back({TSR_PLACE_EVERY_RANK, TSR_COMBINE_REPLICA, TSR_ROWS_ROUTED,
                              std::vector<Rectangle>(topology.world_size, Rectangle{0, hot.size(), 0, table.cols})});
    }
    layout.parts.push_back({TSR_PLACE_EVERY_RANK, TSR_COMBINE_SUM, TSR_ROWS_ROUTED, {}});
    for (int64_t rank = 0; rank < n; ++rank)
      layout.parts.back().rectangles.push_back({0, (cold - rank + n - 1) / n, 0, table.cols});
    return {layout};
  }

  void route(const Routed& layout, std::span<const int64_t> ids, std::span<int32_t> row_sets,
             std::span<int64_t> rows) const override {
    const HotList& hot = chosen(layout);
    const int64_t copies = hot.size() > 0, n = layout.num_row_sets - copies;
    for (size_t i = 0; i < ids.size(); ++i) {
      const int64_t below = hot.below(ids[i]), cold = ids[i] - below;
      const bool is_hot = hot.is_hot(ids[i], below);
      row_sets[i] = static_cast<int32_t>(is_hot ? 0 : copies + cold % n);
      rows[i] = is_hot ? below : cold / n;
    }
  }

  void unroute(const Routed& layout, std::span<const int32_t> row_sets, std::span<const int64_t> rows,
               std::span<int64_t> ids) const override {
    const HotList& hot = chosen(layout);
    const int64_t copies = hot.size() > 0, n = layout.num_row_sets - copies;
    for (size_t i = 0; i < ids.size(); ++i)
      ids[i] = row_sets[i] < copies ? hot.hot(rows[i]) : hot.cold(rows[i] * n + row_sets[i] - copies);
  }

 private:
  void read(const std::string& path, int64_t most) {
    std::ifstream file(path);
    if (!file) fail(TSR_NOT_FOUND, "hot_rows: cannot read ", path, ": tessera stats --hot writes it");
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string name;
      std::vector<int64_t> rows;
      if (!(words >> name)) continue;
      for (int64_t row = 0; words >> row;) {
        if (row < 0) fail(TSR_INVALID_ARGUMENT, "hot_rows: ", path, " has row ", row, " of \"", name, "\"");
        if (static_cast<int64_t>(rows.size()) < most) rows.push_back(row);
      }
      HotList list(std::move(rows));
      if (!words.eof() || list.repeats())
        fail(TSR_INVALID_ARGUMENT, "hot_rows: ", path, ": the line of \"", name,
             "\" must be its name and then rows, each once");
      lists_.insert_or_assign(name, std::move(list));
    }
  }

  const HotList& list_of(const Table& table) const {
    static const HotList none;
    const auto known = lists_.find(table.name);
    return known == lists_.end() ? none : known->second;
  }
  const HotList& chosen(const Routed& layout) const {
    const HotList& hot = list_of(layout.table);
    if (layout.cookie != hot.cookie())
      fail(TSR_FAILED_PRECONDITION, "hot_rows: table \"", layout.table.name,
           "\" was planned with another list of hot rows: give it the file of the plan, or plan again");
    return hot;
  }

  std::map<std::string, HotList, std::less<>> lists_;  // per table
};

}  // namespace extras
