// One table: which ids have rows (sdk/managed_collisions.h), and the rows, in the inner kernel.
#pragma once

#include <tessera/abi/draft/shared_row.h>
#include <tessera/sdk/inner_kernel.h>
#include <tessera/sdk/managed_collisions.h>
#include <tessera/sdk/options.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace flagships {

namespace sdk = tessera::sdk;

// What a table is, of its config and its options.
struct TableShape {
  explicit TableShape(const tsr_kernel_table& table);

  std::string name;
  int64_t ids;  // are below
  int64_t dim;
  sdk::MchOptions mch;
  bool reset = true;  // a row that gets another id begins anew
};

class ManagedTable {
 public:
  // In export_rows and import_rows, the id of the row that ids without one share. No id is as large.
  static constexpr int64_t kSharedId = TSR_SHARED_ROW_ID;
  // Of tsr_rows::extra: what Mch keeps of an id.
  struct Extra {
    int64_t count, last;
  };

  ManagedTable(TableShape shape, uint32_t number, const sdk::OptimizerRef& optimizer, sdk::StartValues start,
               sdk::InnerInstance inner);

  const TableShape& shape() const { return shape_; }
  const sdk::InnerInstance& inner() const { return inner_; }
  // The inner rows of ids, before a lookup. One that trains sights them.
  void find(std::span<const int64_t> ids, bool trains, int64_t* rows);

  void export_rows(uint64_t& cursor, tsr_rows& rows);
  void import_rows(const tsr_rows& rows);
  void save(const tsr_stream_io& io) const;
  void load(const tsr_stream_io& io);
  void save_memory(const tsr_stream_io& io) const;
  void add_memory(const tsr_stream_io& io);
  tsr_kernel_stats stats() const;

 private:
  struct Block;
  void clear();
  void begin_all();
  void begin(std::span<const int64_t> ids, std::span<const int64_t> rows);
  bool has_shared_row() const { return shared_; }

  TableShape shape_;
  uint32_t number_;
  sdk::OptimizerRef optimizer_;
  sdk::StartValues start_;
  sdk::InnerInstance inner_;
  sdk::Mch mch_;
  bool shared_ = false;  // an id without a row was trained
  uint64_t lookups_ = 0, hits_ = 0;
};

}  // namespace flagships
