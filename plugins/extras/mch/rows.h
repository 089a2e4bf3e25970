// One table: the ids that have rows (sdk/managed_collisions.h), and their rows, which are in the inner kernel.
#pragma once

#include <tessera/sdk/draft/changes.h>
#include <tessera/sdk/draft/on_demand.h>
#include <tessera/sdk/draft/row_marks.h>
#include <tessera/sdk/inner_kernel.h>
#include <tessera/sdk/managed_collisions.h>
#include <tessera/sdk/options.h>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace extras {

namespace sdk = tessera::sdk;

// The description of a table, from its config and its options.
struct TableShape {
  explicit TableShape(const tsr_kernel_table& table);

  std::string name;
  int64_t ids;  // ids are below this
  int64_t dim;
  sdk::MchOptions mch;
  bool reset = true;  // a row that gets another id starts anew
};

class ManagedTable {
 public:
  // The id of the shared row in export_rows and import_rows. No real id is as large.
  static constexpr int64_t kSharedId = TSR_SHARED_ROW_ID;
  // The content of tsr_rows::extra: the state that Mch keeps for an id.
  struct Extra {
    int64_t count, last;
  };

  ManagedTable(TableShape shape, uint32_t number, const sdk::OptimizerRef& optimizer, sdk::StartValues start,
               sdk::InnerInstance inner);

  const TableShape& shape() const { return shape_; }
  const sdk::InnerInstance& inner() const { return inner_; }
  // Finds the inner rows of ids before a lookup. A training lookup also sights them.
  void find(std::span<const int64_t> ids, bool trains, int64_t* rows);

  // These implement abi/draft/changes.h.
  void mark(uint32_t follower);
  void note_changes(std::span<const int64_t> inner_rows) {
    if (marks_) marks_.add(inner_rows.data(), std::ssize(inner_rows));
  }
  sdk::RowChanges changes(uint32_t follower) const;
  void export_changed(uint32_t follower, uint64_t& cursor, tsr_rows& rows);
  void export_removed(uint32_t follower, uint64_t& cursor, tsr_rows& rows) const;

  void export_rows(uint64_t& cursor, tsr_rows& rows);
  void import_rows(const tsr_rows& rows);
  void save_memory(const sdk::ExtraBytes& to) const;
  void add_memory(const sdk::ExtraBytes& from);
  tsr_kernel_stats stats() const;

 private:
  struct Block;
  void clear();
  void begin_all();
  void begin(std::span<const int64_t> ids, std::span<const int64_t> rows);
  // The id of a slot's row in export_rows; kNoRow if it has none.
  static constexpr int64_t kNoRow = -1;
  int64_t id_of(const sdk::Mch::Slot& slot) const;
  bool is_gone(int64_t id) const;
  template <class Wanted>
  void export_some(uint64_t& cursor, tsr_rows& rows, const Wanted& wanted);

  TableShape shape_;
  uint32_t number_;
  sdk::OptimizerRef optimizer_;
  sdk::StartValues start_;
  sdk::InnerInstance inner_;
  sdk::Mch mch_;
  bool shared_ = false;  // true if the shared row has values, because it was trained or has start values
  sdk::RowMarks marks_;  // changes of inner rows
  std::array<std::vector<int64_t>, sdk::kFollowers> ids_at_mark_;  // ids that had rows at the mark, ascending
  uint64_t lookups_ = 0, hits_ = 0;
  int64_t given_up_ = 0;  // evictions by imported rows
};

}  // namespace extras
