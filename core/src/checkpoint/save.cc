// save_checkpoint(): owners send their rows to rank 0 block by block, and rank 0 writes.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "checkpoint/checksum.h"
#include "checkpoint/dense.h"
#include "checkpoint/directory.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tables.h"
#include "checkpoint/together.h"
#include "sparse/finite.h"
#include "tessera/checkpoint.h"
#include "tessera/device.h"

namespace tessera {
namespace checkpoint {
namespace {

constexpr int64_t kSentFloats = int64_t{4} << 20;  // 16 MiB travel at a time

// Rows of one shard, weights and states: what one rank contributes to a block.
struct Piece {
  size_t shard = 0;
  int64_t first = 0, count = 0;  // rows of the shard
  int64_t floats = 0;
};

// Brings the rows of one table to rank 0.
class TableSender {
 public:
  TableSender(const ProcessGroup& group, const ModelTable& table) : group_(group), table_(table) {}

  // Pieces must be in rank order. Returns on rank 0 where each piece's values are: weights [count, cols], then each
  // state. Valid until the next call. Collective.
  std::vector<const float*> gather(const std::vector<Piece>& pieces) {
    std::vector<int64_t> send(group_.world_size(), 0), recv(group_.world_size(), 0);
    int64_t total = 0;
    for (const Piece& p : pieces) {
      if (rank_of(p) == group_.rank()) send[0] += p.floats;
      if (group_.rank() == 0) recv[rank_of(p)] += p.floats;
      total += p.floats;
    }
    if (group_.rank() != 0) total = 0;
    Tensor mine;
    together(group_, "reading of table rows", [&] {
      mine = read(pieces, send[0]);
      return "";
    });
    if (group_.world_size() == 1) {
      received_ = mine;
    } else {
      received_ = Tensor::empty({total});
      group_.all_to_all_v(mine, send, received_, recv, "table rows").wait();
    }
    std::vector<const float*> out;
    for (int64_t at = 0; const Piece& p : pieces) {
      out.push_back(received_.data<float>() + (group_.rank() == 0 ? at : 0));
      at += p.floats;
    }
    return out;
  }

  // The table's row ids behind a piece, on rank 0. Collective.
  std::vector<int64_t> gather_ids(const Piece& piece) {
    std::vector<int64_t> send(group_.world_size(), 0), recv(group_.world_size(), 0), ids;
    if (rank_of(piece) == group_.rank()) send[0] = piece.count;
    if (group_.rank() == 0) recv[rank_of(piece)] = piece.count;
    together(group_, "rows of a routed shard", [&] {
      if (send[0]) ids = table_.collection->table_rows(table_.held(piece.shard), piece.first, piece.count);
      return "";
    });
    const Tensor all = Tensor::empty({group_.rank() == 0 ? piece.count : 0}, DType::kInt64);
    group_.all_to_all_v(Tensor::from(ids), send, all, recv, "row ids").wait();
    return all.to_vector<int64_t>();
  }

 private:
  int rank_of(const Piece& piece) const { return table_.sharding->shards[piece.shard].rank; }

  Tensor read(const std::vector<Piece>& pieces, int64_t floats) const {
    Tensor out = Tensor::empty({floats});
    float* at = out.data<float>();
    for (const Piece& p : pieces) {
      if (rank_of(p) != group_.rank()) continue;
      const int64_t cols = table_.sharding->shards[p.shard].cols;
      float* const weights = at;
      at += p.count * cols;
      std::vector<float*> states;
      for (const Lookup::State& s : table_.stored.states) {
        states.push_back(at);
        at += p.count * (s.per_row ? 1 : cols);
      }
      float* const extra = table_.stored.extra_words > 0 ? at : nullptr;
      at += p.count * table_.stored.extra_words;
      table_.collection->read_rows(table_.held(p.shard), p.first, p.count, weights, states, extra);
      check_finite(p, {weights, static_cast<size_t>(p.count * cols)});
    }
    return out;
  }

  // A model that has come apart must not take the place of one that has not.
  void check_finite(const Piece& p, std::span<const float> weights) const {
    const int64_t at = first_not_finite(weights);
    if (at < 0) return;
    const int64_t row = p.first + at / table_.sharding->shards[p.shard].cols;
    fail(Code::kFailedPrecondition, "table \"", table_.stored.name, "\" holds ", std::abs(weights[at]), " in row ",
         table_.collection->table_rows(table_.held(p.shard), row, 1).at(0),
         ": nothing was saved, and the checkpoints before are as they were");
  }

  const ProcessGroup& group_;
  const ModelTable& table_;
  Tensor received_;
};

// The two tensor files of a checkpoint, on rank 0.
struct Files {
  SafetensorsWriter model, optimizer;
};

// Writes one table, all ranks taking part.
class TableSaver {
 public:
  TableSaver(const ProcessGroup& group, const ModelTable& table, Files* files)
      : group_(group), table_(table), entry_(table.stored), files_(files), sender_(group, table) {
    int64_t width = entry_.dim + entry_.extra_width();
    for (size_t k = 0; k < entry_.states.size(); ++k) width += entry_.state_width(k);
    rows_per_block_ = std::max<int64_t>(1, kSentFloats / width);
  }

  void save() {
    if (table_.sharding->routed)
      save_routed();
    else
      save_ranges();
  }

 private:
  const ShardMetadata& where(const Piece& piece) const { return table_.sharding->shards[piece.shard]; }

  Piece piece(size_t shard, int64_t first, int64_t count) const {
    const int64_t cols = table_.sharding->shards[shard].cols;
    int64_t width = cols;
    for (const Lookup::State& s : entry_.states) width += s.per_row ? 1 : cols;
    width += entry_.extra_words;
    return {shard, first, count, count * width};
  }

  // Rows [first, last) of the table in every shard that has some.
  std::vector<Piece> pieces(int64_t first, int64_t last) const {
    std::vector<Piece> out;
    for (const size_t s : table_.sharding->distinct()) {
      const ShardMetadata& w = table_.sharding->shards[s];
      const int64_t begin = std::max(first, w.row), end = std::min(last, w.row + w.rows);
      if (begin < end) out.push_back(piece(s, begin - w.row, end - begin));
    }
    std::stable_sort(out.begin(), out.end(),
                     [&](const Piece& a, const Piece& b) { return where(a).rank < where(b).rank; });
    return out;
  }

  void save_ranges() {
    for (int64_t first = 0; first < entry_.rows; first += rows_per_block_) {
      const int64_t last = std::min(entry_.rows, first + rows_per_block_);
      const std::vector<Piece> parts = pieces(first, last);
      const auto values = sender_.gather(parts);
      together_at_length(group_, "writing of table rows", [&] {
        if (files_) write_whole(first, last - first, parts, values);
        return "";
      });
    }
  }

  void save_routed() {
    for (const size_t s : table_.sharding->distinct()) {
      const int64_t rows = table_.sharding->shards[s].rows;
      for (int64_t first = 0; first < rows; first += rows_per_block_) {
        const Piece p = piece(s, first, std::min(rows_per_block_, rows - first));
        const std::vector<int64_t> ids = sender_.gather_ids(p);
        const auto values = sender_.gather({p});
        together_at_length(group_, "writing of table rows", [&] {
          if (files_) write_scattered(p, ids, values[0]);
          return "";
        });
      }
    }
  }

  // Calls f(k, slab, values) for the weights (k = -1), every state and what the kernel keeps besides (the last k) of a
  // piece; its rows are left to f.
  template <class F>
  void for_each_slab(const Piece& p, const float* values, const F& f) {
    const ShardMetadata& w = where(p);
    f(-1, Slab{{}, entry_.dim, w.col, w.cols}, values);
    values += p.count * w.cols;
    for (size_t k = 0; k < entry_.states.size(); ++k) {
      const int index = static_cast<int>(k);
      if (entry_.states[k].per_row) {
        const Slab slab = cuts_of(w);
        f(index, slab, repeated(values, p.count, 1, slab.cols));
        values += p.count;
      } else {
        f(index, Slab{{}, entry_.dim, w.col, w.cols}, values);
        values += p.count * w.cols;
      }
    }
    if (const int64_t words = entry_.extra_words; words > 0) {
      const Slab cuts = cuts_of(w);
      f(static_cast<int>(entry_.states.size()), Slab{{}, cuts.width * words, cuts.col * words, cuts.cols * words},
        repeated(values, p.count, words, cuts.cols));
    }
  }

  // Which cuts a shard covers.
  Slab cuts_of(const ShardMetadata& w) const {
    Slab slab{{}, static_cast<int64_t>(entry_.cuts.size()), 0, 0};
    int64_t begin = 0;
    for (int64_t width : entry_.cuts) {
      if (begin < w.col) ++slab.col;
      if (begin >= w.col && begin < w.col + w.cols) ++slab.cols;
      begin += width;
    }
    return slab;
  }

  // Each of `count` groups of values so many times.
  const float* repeated(const float* values, int64_t count, int64_t group, int64_t times) {
    if (times == 1) return values;
    repeated_.resize(count * group * times);
    float* to = repeated_.data();
    for (int64_t i = 0; i < count * times; ++i) to = std::copy_n(values + i / times * group, group, to);
    return repeated_.data();
  }

  void write(int k, const Slab& slab, const float* values) {
    SafetensorsWriter& file = k < 0 ? files_->model : files_->optimizer;
    const bool state = k < static_cast<int>(entry_.states.size());
    const std::string name = k < 0 ? entry_.parameter : state ? entry_.state_name(k) : entry_.extra_name();
    write_slab(file.file(), file.at(name), slab, values);
  }
  // Of the whole row, as for_each_slab counts.
  int64_t width_of(size_t k) const {
    return k == 0 ? entry_.dim : k <= entry_.states.size() ? entry_.state_width(k - 1) : entry_.extra_width();
  }

  // Puts the pieces of some rows together, and writes whole rows.
  void write_whole(int64_t first, int64_t count, const std::vector<Piece>& parts,
                   const std::vector<const float*>& values) {
    rows_.resize(entry_.states.size() + (entry_.extra_words > 0 ? 2 : 1));
    for (size_t k = 0; k < rows_.size(); ++k) rows_[k].resize(count * width_of(k));
    for (size_t p = 0; p < parts.size(); ++p) {
      const int64_t row = where(parts[p]).row + parts[p].first - first;
      for_each_slab(parts[p], values[p], [&](int k, const Slab& slab, const float* from) {
        float* to = rows_[k + 1].data() + row * slab.width + slab.col;
        for (int64_t i = 0; i < parts[p].count; ++i) std::copy_n(from + i * slab.cols, slab.cols, to + i * slab.width);
      });
    }
    for (size_t k = 0; k < rows_.size(); ++k) {
      const int64_t width = width_of(k);
      write(static_cast<int>(k) - 1, {{first, count}, width, 0, width}, rows_[k].data());
    }
  }

  void write_scattered(const Piece& p, const std::vector<int64_t>& ids, const float* values) {
    for (const int64_t id : ids) {
      if (id < 0 || id >= entry_.rows)
        fail(Code::kInternal, "the sharder of table \"", entry_.name, "\" names row ", id, " of ", entry_.rows);
    }
    for_each_slab(p, values, [&](int k, Slab slab, const float* from) {
      slab.rows = {0, p.count, ids.data()};
      write(k, slab, from);
    });
  }

  const ProcessGroup& group_;
  const ModelTable& table_;
  const TableEntry& entry_;
  Files* files_;  // on rank 0
  TableSender sender_;
  int64_t rows_per_block_ = 1;
  std::vector<std::vector<float>> rows_;  // weights, then each state, then what the kernel keeps besides
  std::vector<float> repeated_;
};

void announce(StoredTensors& tensors, const std::string& name, StoredTensor tensor) {
  if (!tensors.emplace(name, std::move(tensor)).second)
    fail(Code::kInvalidArgument, "two tensors of the model have the name \"", name, "\"");
}

// What the two files will hold.
struct Announced {
  StoredTensors model, states;
};

Announced announced(const std::vector<ModelTable>& tables, const ParameterList& dense,
                    const KeyedOptimizer& optimizer) {
  Announced out;
  auto& [model, states] = out;
  for (const ModelTable& t : tables) {
    announce(model, t.stored.parameter, t.stored.weight());
    for (size_t k = 0; k < t.stored.states.size(); ++k) announce(states, t.stored.state_name(k), t.stored.state(k));
    if (t.stored.extra_words > 0) announce(states, t.stored.extra_name(), t.stored.extra());
  }
  for (const ParameterPtr& p : dense) announce(model, p->name, {p->value.dtype(), p->value.shape(), 0});
  for (const auto& [key, state] : optimizer.state()) {
    for (const auto& [name, value] : state) announce(states, cat(key, '/', name), {value.dtype(), value.shape(), 0});
  }
  return out;
}

void check_finite(const ParameterList& dense) {
  for (const ParameterPtr& p : dense) {
    if (p->value.dtype() != DType::kFloat32) continue;
    const Tensor value = in_host_memory(p->value);
    const int64_t at = first_not_finite(value.span<float>());
    if (at < 0) continue;
    fail(Code::kFailedPrecondition, "parameter \"", p->name, "\" holds ", std::abs(value.data<float>()[at]),
         ": nothing was saved, and the checkpoints before are as they were");
  }
}

void write_dense(Files& files, const ParameterList& dense, const KeyedOptimizer& optimizer) {
  for (const ParameterPtr& p : dense) files.model.write(p->name, in_host_memory(p->value));
  for (const auto& [key, state] : optimizer.state()) {
    for (const auto& [name, value] : state) files.optimizer.write(cat(key, '/', name), value);
  }
  files.model.file().sync();
  files.optimizer.file().sync();
}

Manifest manifest_of(DistributedModelParallel& model, const std::vector<ModelTable>& tables,
                     const KeyedOptimizer& optimizer, const std::string& progress) {
  Manifest m;
  m.world_size = model.group().world_size();
  m.progress = progress;
  for (const ModelTable& t : tables) m.tables.push_back(t.stored);
  for (const auto& [path, collection] : model.sharded()) m.steps.emplace_back(path, collection->step());
  m.dense_optimizer = settings_of(optimizer);
  return m;
}

void write_manifest(const StagedCheckpoint& staged, const Manifest& manifest) {
  const std::string text = manifest.json();
  OutputFile file(staged.file(kManifestFile), static_cast<int64_t>(text.size()));
  file.write_at(0, text.data(), static_cast<int64_t>(text.size()));
  file.sync();
}

}  // namespace
}  // namespace checkpoint

void save_checkpoint(const std::string& directory, DistributedModelParallel& model,
                     const KeyedOptimizer& dense_optimizer, const std::string& progress, int keep) {
  using namespace checkpoint;
  const ProcessGroup& group = model.group();
  const bool writes = group.rank() == 0;
  const std::vector<ModelTable> tables = model_tables(model);
  const ParameterList dense = dense_tensors(model);

  std::optional<StagedCheckpoint> staged;  // rank 0's
  std::unique_ptr<Files> files;
  together_at_length(group, "start of a checkpoint", [&] {
    if (!writes) return "";
    check_finite(dense);
    Announced tensors = announced(tables, dense, dense_optimizer);
    staged.emplace(directory);
    files.reset(new Files{SafetensorsWriter(staged->file(kModelFile), std::move(tensors.model)),
                          SafetensorsWriter(staged->file(kOptimizerFile), std::move(tensors.states))});
    return "";
  });
  for (const ModelTable& table : tables) TableSaver(group, table, files.get()).save();
  together_at_length(group, "dense parameters of a checkpoint", [&] {
    if (writes) write_dense(*files, dense, dense_optimizer);
    return "";
  });
  files.reset();

  Manifest manifest;
  if (writes) manifest = manifest_of(model, tables, dense_optimizer, progress);
  for (const char* name : {kModelFile, kOptimizerFile}) {
    const std::string path = writes ? staged->file(name) : "";
    const FileSum sum = checksum_by_rank_0(group, path);
    manifest.files.push_back({name, sum.bytes, sum.crc});
  }
  together_at_length(group, "end of a checkpoint", [&] {
    if (!writes) return "";
    write_manifest(*staged, manifest);
    staged->commit(keep);
    return "";
  });
}

void check_checkpoint_target(const std::string& directory, DistributedModelParallel& model,
                             const KeyedOptimizer& dense_optimizer, int64_t saves, int keep) {
  using namespace checkpoint;
  const std::vector<ModelTable> tables = model_tables(model);
  together_at_length(model.group(), "place of a checkpoint", [&] {
    if (model.group().rank() != 0) return "";
    const Announced tensors = announced(tables, dense_tensors(model), dense_optimizer);
    int64_t bytes = 0;
    for (const StoredTensors* file : {&tensors.model, &tensors.states}) {
      for (const auto& [name, tensor] : *file) bytes += tensor.bytes();
    }
    const StagedCheckpoint staged(directory);
    OutputFile(staged.file(kManifestFile), 0).sync();
    staged.check_space(bytes, saves, keep);
    return "";
  });
}

}  // namespace tessera
