#include "checkpoint/changes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "checkpoint/tables.h"
#include "checkpoint/together.h"
#include "sparse/finite.h"

namespace tessera::checkpoint {
namespace {

void sort_ids(std::vector<int64_t>& ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

// Appends the numbers to the text as raw bytes.
void append(std::string& text, const std::vector<int64_t>& numbers) {
  const auto count = static_cast<int64_t>(numbers.size());
  text.append(reinterpret_cast<const char*>(&count), sizeof(count));
  text.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int64_t));
}
std::vector<int64_t> take(const std::string& text, size_t& at) {
  int64_t count = 0;
  TESSERA_CHECK(at + sizeof(count) <= text.size(), "a rank's ids end early");
  std::memcpy(&count, text.data() + at, sizeof(count));
  at += sizeof(count);
  std::vector<int64_t> out(static_cast<size_t>(count));
  TESSERA_CHECK(at + out.size() * sizeof(int64_t) <= text.size(), "a rank's ids end early");
  std::copy_n(text.data() + at, out.size() * sizeof(int64_t), reinterpret_cast<char*>(out.data()));
  at += out.size() * sizeof(int64_t);
  return out;
}

}  // namespace

ChangedRows::ChangedRows(DistributedModelParallel& model, const ChangedRows* before) {
  const int rank = model.group().rank();
  const auto ids = together(model.group(), "rows that changed", [&] {
    for (const auto& [path, collection] : model.sharded()) {
      for (const EmbeddingBagConfig& config : collection->tables()) {
        tables_.push_back({config.name, config.embedding_dim, config.data_type, {}, {}});
        const ParameterSharding& sharding = collection->plan().at(config.name);
        for (const size_t s : sharding.distinct()) {
          const ShardMetadata& where = sharding.shards[s];
          if (where.rank != rank || where.rows == 0) continue;
          read(*collection, {config.name, where, static_cast<int>(s)}, tables_.size() - 1);
        }
      }
    }
    for (size_t i = 0; i < pieces_.size(); ++i) {
      Piece& piece = pieces_[i];
      if (before != nullptr) piece.add_older(before->pieces_[i]);
      std::vector<int64_t>& all = tables_[piece.table].removed;
      all.insert(all.end(), piece.removed.begin(), piece.removed.end());
    }
    return ids_here();
  });
  together(model.group(), "rows that changed", [&] {
    merge(ids);
    return "";
  });
}

void ChangedRows::read(ShardedEmbeddings& collection, const HeldShard& shard, size_t table) {
  const Lookup::RowChanges there = collection.changes(kFollower, shard);
  const int64_t cols = shard.where.cols;
  Piece piece{table,
              shard.where.col,
              cols,
              std::vector<int64_t>(static_cast<size_t>(there.changed)),
              std::vector<float>(static_cast<size_t>(there.changed * cols)),
              {}};
  uint64_t cursor = 0;
  for (int64_t done = 0, count = 0; done < there.changed; done += count) {
    count = collection.export_changed(kFollower, shard, cursor, std::span(piece.ids).subspan(static_cast<size_t>(done)),
                                      piece.weights.data() + done * cols);
    if (count == 0)
      fail(Code::kInternal, "table \"", shard.table, "\" gives fewer changed rows than its kernel says that it has");
  }
  if (const int64_t at = first_not_finite(piece.weights); at >= 0) {
    fail(Code::kFailedPrecondition, "table \"", shard.table, "\" holds ",
         std::abs(piece.weights[static_cast<size_t>(at)]), " in row ", piece.ids[static_cast<size_t>(at / cols)],
         ": nothing was published, and earlier publications are unchanged");
  }
  std::vector<int64_t>& removed = piece.removed;
  removed.resize(static_cast<size_t>(there.removed));
  cursor = 0;
  for (int64_t done = 0, count = 0; done < there.removed; done += count) {
    count = collection.export_removed(kFollower, shard, cursor, std::span(removed).subspan(static_cast<size_t>(done)));
    if (count == 0) fail(Code::kInternal, "table \"", shard.table, "\" names fewer removed rows than it counts");
  }
  pieces_.push_back(std::move(piece));
}

// Adds the earlier rows that have not changed since.
void ChangedRows::Piece::add_older(const Piece& before) {
  std::unordered_set<int64_t> newer(ids.begin(), ids.end());
  for (const int64_t id : before.removed) {
    if (!newer.contains(id)) removed.push_back(id);
  }
  newer.insert(removed.begin(), removed.end());
  for (size_t i = 0; i < before.ids.size(); ++i) {
    if (newer.contains(before.ids[i])) continue;
    ids.push_back(before.ids[i]);
    const auto row = before.weights.begin() + static_cast<std::ptrdiff_t>(i) * cols;
    weights.insert(weights.end(), row, row + cols);
  }
}

// Serializes this rank's number of values and its ids, for each table.
std::string ChangedRows::ids_here() const {
  std::string out;
  for (size_t t = 0; t < tables_.size(); ++t) {
    std::vector<int64_t> values(1), ids;
    for (const Piece& piece : pieces_) {
      if (piece.table != t) continue;
      values[0] += std::ssize(piece.weights);
      ids.insert(ids.end(), piece.ids.begin(), piece.ids.end());
    }
    sort_ids(ids);
    append(out, values);
    append(out, ids);
    append(out, tables_[t].removed);
  }
  return out;
}

void ChangedRows::merge(const std::vector<std::string>& of_ranks) {
  std::vector<size_t> at(of_ranks.size());
  for (ChangedTable& table : tables_) {
    table.removed.clear();
    int64_t values = 0;
    for (size_t r = 0; r < of_ranks.size(); ++r) {
      values += take(of_ranks[r], at[r])[0];
      for (std::vector<int64_t>* list : {&table.ids, &table.removed}) {
        const std::vector<int64_t> more = take(of_ranks[r], at[r]);
        list->insert(list->end(), more.begin(), more.end());
      }
    }
    sort_ids(table.ids);
    sort_ids(table.removed);
    std::vector<int64_t> gone;  // rows that no rank has any more
    std::set_difference(table.removed.begin(), table.removed.end(), table.ids.begin(), table.ids.end(),
                        std::back_inserter(gone));
    table.removed = std::move(gone);
    if (values == std::ssize(table.ids) * table.dim) continue;
    fail(Code::kFailedPrecondition, "table \"", table.name,
         "\" is sharded by columns, and its ranks have changed different rows: a delta needs whole rows, so shard "
         "it by rows");
  }
}

StoredTensors ChangedRows::announced() const {
  StoredTensors out;
  for (const ChangedTable& t : tables_) out[tensor_of(t.name)] = {t.dtype, {std::ssize(t.ids), t.dim}, 0};
  return out;
}

void ChangedRows::write(SafetensorsWriter& file) const {
  std::vector<int64_t> places;
  for (const Piece& piece : pieces_) {
    const ChangedTable& table = tables_[piece.table];
    places.clear();
    for (const int64_t id : piece.ids)
      places.push_back(std::lower_bound(table.ids.begin(), table.ids.end(), id) - table.ids.begin());
    const Slab slab{{0, std::ssize(places), places.data()}, table.dim, piece.col, piece.cols};
    write_slab(file.file(), file.at(tensor_of(table.name)), slab, piece.weights.data());
  }
}

}  // namespace tessera::checkpoint
