// load_checkpoint(): every rank reads what it holds, after all have agreed that everything fits.
#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <set>

#include "checkpoint/checksum.h"
#include "checkpoint/dense.h"
#include "checkpoint/directory.h"
#include "checkpoint/manifest.h"
#include "checkpoint/row_blocks.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/together.h"
#include "tessera/abi/draft/shared_row.h"
#include "tessera/checkpoint.h"
#include "tessera/device.h"

namespace tessera {
namespace checkpoint {
namespace {

// A whole, undamaged checkpoint, open on every rank.
struct Source {
  HeldCheckpoint held;  // rank 0's
  std::string directory;
  Manifest manifest;
  TensorFiles model, optimizer;
  std::unique_ptr<Source> base;  // where some tables have all their rows

  bool changes_of(const ModelTable& table) const { return manifest.find(table.stored.parameter)->changes; }
};

TensorFiles open_checked(const ProcessGroup& group, const Source& source, const char* kind) {
  TensorFiles out;
  for (const Manifest::File& listed : source.manifest.files_of(kind, cat(source.directory, '/', kManifestFile))) {
    std::optional<InputFile> file;
    together(group, "opening of a checkpoint", [&] {
      file.emplace(open_listed(source.directory, listed));
      return "";
    });
    if (shared_checksum(group, *file) != listed.crc) fail_wrong_sum(source.directory, listed);
    together(group, "opening of a checkpoint", [&] {
      out.add(SafetensorsReader(std::move(*file)));
      return "";
    });
  }
  return out;
}

Source open_held(const ProcessGroup& group, const std::function<HeldCheckpoint()>& hold) {
  Source source;
  // Rank 0 says which directory, so that all read the same one, and sees to it that it stays.
  const auto texts = together(group, "checkpoint.json", [&]() -> std::string {
    if (group.rank() != 0) return "";
    source.held = hold();
    return source.held.path + '\0' + read_text(cat(source.held.path, '/', kManifestFile));
  });
  const size_t end = texts[0].find('\0');
  source.directory = texts[0].substr(0, end);
  source.manifest = Manifest::from_json(texts[0].substr(end + 1), cat(source.directory, '/', kManifestFile));
  source.model = open_checked(group, source, kModel);
  source.optimizer = open_checked(group, source, kOptimizer);
  return source;
}

Source open_checkpoint(const ProcessGroup& group, const std::string& directory) {
  Source source = open_held(group, [&] { return hold_checkpoint(directory); });
  if (!source.manifest.base) return source;
  source.base =
      std::make_unique<Source>(open_held(group, [&] { return hold_base(source.directory, *source.manifest.base); }));
  if (source.base->manifest.base)
    fail(Code::kDataLoss, source.base->directory, " lacks rows itself, and ", source.directory, " goes on from it");
  return source;
}

// Everything that can be found out before anything changes.
class FitCheck {
 public:
  FitCheck(const Source& source, const std::vector<ModelTable>& tables, const ParameterList& dense)
      : source_(source), tables_(tables), dense_(dense) {}

  void run() const {
    std::set<std::string> wanted;
    for (const ModelTable& t : tables_) {
      check_table(t);
      wanted.insert(t.stored.parameter);
      if (source_.manifest.find(t.stored.parameter)->keys) wanted.insert(t.stored.keys_name());
      if (source_.changes_of(t)) FitCheck(*source_.base, tables_, dense_).check_table(t);
    }
    for (const ParameterPtr& p : dense_) {
      check_dense(*p);
      wanted.insert(p->name);
    }
    for (const auto& [name, place] : source_.model.tensors()) {
      if (!wanted.contains(name))
        fail(Code::kInvalidArgument, where(), " has a parameter \"", name, "\", ", describe(*place.tensor),
             ", that this model lacks");
    }
  }

 private:
  const std::string& where() const { return source_.directory; }

  void check_table(const ModelTable& table) const {
    const TableEntry& mine = table.stored;
    const TableEntry* stored = source_.manifest.find(mine.parameter);
    if (!stored) fail(Code::kInvalidArgument, where(), " has no table \"", mine.name, "\" (", mine.parameter, ")");
    if (stored->on_demand() != mine.on_demand()) {
      fail(Code::kInvalidArgument, "the rows of table \"", mine.name, "\" ",
           stored->on_demand() ? "have come on demand" : "are all there", " in ", where(), ", and ",
           mine.keys ? "come on demand" : "are all there",
           " in this model: load it with the compute kernel that saved it");
    }
    const bool rows_fit = mine.on_demand() || stored->rows == mine.rows;
    if (!rows_fit || stored->dim != mine.dim || stored->dtype != mine.dtype) {
      fail(Code::kInvalidArgument, "table \"", mine.name, "\" is ", describe(all_rows(*stored)), " in ", where(),
           ", and ", describe(all_rows(mine)), " in this model");
    }
    if (stored->optimizer.name != mine.optimizer.name || stored->state_list() != mine.state_list()) {
      if (!stored->states.empty() || !mine.states.empty()) {
        fail(Code::kInvalidArgument, "table \"", mine.name, "\" was trained with ", optimizer_of(*stored), " in ",
             where(), ", and this model trains it with ", optimizer_of(mine));
      }
    }
    check_tensor(source_.model, stored->parameter, stored->weight());
    if (stored->keys) check_tensor(source_.model, stored->keys_name(), stored->key_list());
    for (size_t s = 0; s < stored->table_extras.size(); ++s) {
      if (const int64_t bytes = stored->table_extras[s])
        check_tensor(source_.optimizer, stored->table_extra_name(s), {DType::kUInt8, {bytes}, 0});
    }
    for (size_t k = 0; k < stored->states.size(); ++k)
      check_tensor(source_.optimizer, stored->state_name(k), stored->state(k));
    if (stored->extra_words == 0 || mine.extra_words == 0)
      return;  // a kernel may keep more, or less, than the other one
    if (stored->extra_words != mine.extra_words) {
      fail(Code::kInvalidArgument, "the kernel of table \"", mine.name, "\" kept ", 4 * stored->extra_words,
           " bytes of each row besides in ", where(), ", and keeps ", 4 * mine.extra_words,
           " in this model: load it with the same kernel");
    }
    check_tensor(source_.optimizer, stored->extra_name(), stored->extra());
  }

  static StoredTensor all_rows(const TableEntry& t) {
    return {t.dtype, {t.on_demand() ? t.stored_rows() : t.rows, t.dim}, 0};
  }
  static std::string optimizer_of(const TableEntry& t) {
    return cat(t.optimizer.name.empty() ? "no optimizer" : t.optimizer.name, " (states: ", t.state_list(), ")");
  }

  // Files must have what their manifest says.
  void check_tensor(const TensorFiles& files, const std::string& name, const StoredTensor& expected) const {
    const TensorFiles::Place* found = files.find(name);
    if (!found) fail(Code::kDataLoss, where(), " has no tensor \"", name, "\"");
    if (found->tensor->dtype != expected.dtype || found->tensor->shape != expected.shape) {
      fail(Code::kDataLoss, "tensor \"", name, "\" of ", found->file->file().path(), " is ", describe(*found->tensor),
           ", not ", describe(expected));
    }
  }

  void check_dense(const Parameter& parameter) const {
    const StoredTensor mine{parameter.value.dtype(), parameter.value.shape(), 0};
    const TensorFiles::Place* place = source_.model.find(parameter.name);
    if (!place) fail(Code::kInvalidArgument, where(), " has no parameter \"", parameter.name, "\" ", describe(mine));
    const StoredTensor* stored = place->tensor;
    if (stored->dtype != mine.dtype || stored->shape != mine.shape) {
      fail(Code::kInvalidArgument, "parameter \"", parameter.name, "\" is ", describe(*stored), " in ", where(),
           ", and ", describe(mine), " in this model");
    }
  }

  const Source& source_;
  const std::vector<ModelTable>& tables_;
  const ParameterList& dense_;
};

// Fills the shards that this rank holds, a block of rows at a time.
class ShardLoader {
 public:
  ShardLoader(const Source& source, const std::vector<ModelTable>& tables, int rank) : source_(source) {
    for (const ModelTable& t : tables) {
      for (size_t s = 0; s < t.sharding->shards.size(); ++s) {
        if (t.sharding->shards[s].rank != rank) continue;
        if (t.stored.keys && t.sharding->shards[s].rows > 0) on_demand_.push_back({&t, s, 0, 0});
        add_blocks(blocks_, t, s, stored(t).keys.value_or(t.sharding->shards[s].rows));
      }
    }
  }

  // One block; false when there are no more.
  bool next() {
    if (begun_ < on_demand_.size()) {
      begin(on_demand_[begun_++]);
      return true;
    }
    if (done_ == blocks_.size()) return false;
    load(blocks_[done_++]);
    return true;
  }

 private:
  const TableEntry& stored(const ModelTable& table) const { return *source_.manifest.find(table.stored.parameter); }

  // Of a shard whose rows come on demand: none yet, and what its kernel kept besides.
  void begin(const RowBlock& b) {
    const ModelTable& table = *b.table;
    table.collection->clear_rows(table.held(b.shard));
    const TableEntry& entry = stored(table);
    for (size_t s = 0; s < entry.table_extras.size(); ++s) {
      if (entry.table_extras[s] == 0) continue;
      const Tensor bytes = source_.optimizer.read(entry.table_extra_name(s));
      table.collection->add_table_extra(table.held(b.shard),
                                        {static_cast<const char*>(bytes.raw()), static_cast<size_t>(bytes.numel())});
    }
  }

  // Of rows that are stored by their ids, those that belong to the shard; ids of the rows, and where they are stored.
  RowSet own_rows(const RowBlock& b, std::vector<int64_t>& ids, std::vector<int64_t>& places) {
    const ModelTable& table = *b.table;
    const TensorFiles::Place& keys = source_.model.at(stored(table).keys_name());
    ids.resize(static_cast<size_t>(b.count));
    keys.file->file().read_at(keys.tensor->offset + b.first * size_of(DType::kInt64), ids.data(),
                              b.count * size_of(DType::kInt64));
    for (const int64_t id : ids) {
      if (id < 0 || (id >= table.id_bound && id != TSR_SHARED_ROW_ID))
        fail(Code::kInvalidArgument, "table \"", table.stored.name, "\" has the row of id ", id, " in ",
             source_.directory, ", and takes ids below ", table.id_bound, " in this model");
    }
    const std::vector<bool> owned = table.collection->owns_rows(table.held(b.shard), ids);
    size_t n = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (!owned[i]) continue;
      places.push_back(b.first + static_cast<int64_t>(i));
      ids[n++] = ids[i];
    }
    ids.resize(n);
    return {0, static_cast<int64_t>(n), places.data()};
  }

  void load(const RowBlock& given) {
    RowBlock b = given;
    const ModelTable& table = *b.table;
    const TableEntry& stored = this->stored(table);
    std::vector<int64_t> ids, places;
    const RowSet rows = stored.keys ? own_rows(b, ids, places) : table_rows(b, ids);
    if (rows.count == 0) return;
    b.count = rows.count;
    values_.resize(static_cast<size_t>(b.floats()));
    BlockValues values = values_at(b, values_.data());
    columns(source_.model, stored.parameter, rows, {stored.dim, b.where()}, values.weights);
    for (size_t k = 0; k < stored.states.size(); ++k) {
      const std::string name = stored.state_name(k);
      if (stored.states[k].per_row)
        merged(stored, name, rows, b.where(), values.states[k]);
      else
        columns(source_.optimizer, name, rows, {stored.dim, b.where()}, values.states[k]);
    }
    if (stored.extra_words == 0) values.extra = nullptr;
    if (values.extra) extra(stored, rows, b.where(), values.extra);
    if (!stored.keys) return write_values(b, values);
    const std::vector<const float*> states(values.states.begin(), values.states.end());
    table.collection->import_rows(table.held(b.shard), ids, values.weights, states, values.extra);
  }

  void read(const TensorFiles& files, const std::string& name, const RowSet& rows, int64_t width, float* into) {
    const TensorFiles::Place& place = files.at(name);
    read_rows(place.file->file(), *place.tensor, rows, width, into);
  }
  const float* read(const TensorFiles& files, const std::string& name, const RowSet& rows, int64_t width) {
    whole_.resize(static_cast<size_t>(rows.count * width));
    read(files, name, rows, width, whole_.data());
    return whole_.data();
  }

  // Rows of so many columns, and a shard that has some of them.
  struct Columns {
    int64_t width;
    const ShardMetadata& shard;
  };
  void columns(const TensorFiles& files, const std::string& name, const RowSet& rows, const Columns& of, float* out) {
    const auto [width, w] = of;
    if (w.cols == width) return read(files, name, rows, width, out);
    const float* whole = read(files, name, rows, width);
    for (int64_t i = 0; i < rows.count; ++i) std::copy_n(whole + i * width + w.col, w.cols, out + i * w.cols);
  }

  // The state of the shard's columns, from one per stored cut.
  void merged(const TableEntry& stored, const std::string& name, const RowSet& rows, const ShardMetadata& w,
              float* out) {
    const auto cuts = static_cast<int64_t>(stored.cuts.size());
    const float* whole = read(source_.optimizer, name, rows, cuts);
    for (int64_t i = 0; i < rows.count; ++i) out[i] = merged_state(stored.cuts, whole + i * cuts, w.col, w.cols);
  }

  // What the kernel kept of rows besides: of the stored cut in which the shard begins.
  void extra(const TableEntry& stored, const RowSet& rows, const ShardMetadata& w, float* out) {
    const float* whole = read(source_.optimizer, stored.extra_name(), rows, stored.extra_width());
    int64_t cut = 0;
    for (int64_t end = stored.cuts[0]; end <= w.col; end += stored.cuts[static_cast<size_t>(cut)]) ++cut;
    for (int64_t i = 0; i < rows.count; ++i)
      std::copy_n(whole + i * stored.extra_width() + cut * stored.extra_words, stored.extra_words,
                  out + i * stored.extra_words);
  }

  const Source& source_;
  std::vector<RowBlock> on_demand_;  // shards, to begin with
  std::vector<RowBlock> blocks_;
  size_t begun_ = 0, done_ = 0;
  std::vector<float> whole_, values_;  // of a block
};

void check_steps(const Manifest& manifest, DistributedModelParallel& model) {
  for (const auto& [path, collection] : model.sharded()) {
    const auto same = [&p = path](const auto& s) { return s.first == p; };
    if (std::none_of(manifest.steps.begin(), manifest.steps.end(), same))
      fail(Code::kInvalidArgument, "the checkpoint has no collection \"", path, "\"");
  }
}

void set_steps(const Manifest& manifest, DistributedModelParallel& model) {
  for (const auto& [path, collection] : model.sharded()) {
    for (const auto& [name, step] : manifest.steps) {
      if (name == path) collection->set_step(step);
    }
  }
}

}  // namespace
}  // namespace checkpoint

std::string saved_progress(const std::string& directory) {
  const checkpoint::HeldCheckpoint held = checkpoint::hold_checkpoint(directory);
  return checkpoint::manifest_in(held.path).progress;
}

std::vector<std::string> whole_checkpoints(const std::string& directory, const ProcessGroup& group) {
  const auto texts = checkpoint::together_at_length(group, "checkpoints", [&] {
    std::string all;  // each with a '\0' behind it
    if (group.rank() == 0) {
      for (const std::string& path : checkpoint::whole_checkpoints(directory)) all += path + '\0';
    }
    return all;
  });
  std::vector<std::string> out;
  for (size_t at = 0; at < texts[0].size(); at += out.back().size() + 1) out.emplace_back(texts[0].c_str() + at);
  return out;
}

std::string load_checkpoint(const std::string& directory, DistributedModelParallel& model,
                            KeyedOptimizer& dense_optimizer) {
  using namespace checkpoint;
  const ProcessGroup& group = model.group();
  const std::vector<ModelTable> tables = model_tables(model);
  const ParameterList dense = dense_tensors(model);
  const Source source = open_checkpoint(group, directory);

  StateChange dense_state(dense_optimizer);
  together(group, "fit of a checkpoint", [&] {
    check_steps(source.manifest, model);
    FitCheck(source, tables, dense).run();
    check_settings(source.manifest.dense_optimizer, dense_optimizer);
    dense_state.apply(read_dense_states(source.optimizer, source.manifest.tables));
    return "";
  });
  dense_state.keep();

  if (source.base) {
    std::vector<ModelTable> changed;
    std::copy_if(tables.begin(), tables.end(), std::back_inserter(changed),
                 [&](const ModelTable& t) { return source.changes_of(t); });
    ShardLoader before(*source.base, changed, group.rank());
    together_in_turns(group, "loading of table rows", [&] { return before.next(); });
  }
  ShardLoader shards(source, tables, group.rank());
  together_in_turns(group, "loading of table rows", [&] { return shards.next(); });
  together(group, "loading of dense parameters", [&] {
    for (const ParameterPtr& p : dense) {
      const TensorFiles::Place& stored = source.model.at(p->name);
      Tensor host = p->value.stream() ? Tensor::empty(p->value.shape(), p->value.dtype()) : p->value;
      stored.file->file().read_at(stored.tensor->offset, host.raw(), host.bytes());
      if (p->value.stream()) assign(p->value, host);
    }
    return "";
  });
  set_steps(source.manifest, model);
  return source.manifest.progress;
}

}  // namespace tessera
