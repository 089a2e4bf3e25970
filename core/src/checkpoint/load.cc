// load_checkpoint(): the ranks first agree that everything fits, then each reads the rows that it holds.
#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <set>

#include "checkpoint/checksum.h"
#include "checkpoint/dense.h"
#include "checkpoint/opened.h"
#include "checkpoint/row_blocks.h"
#include "checkpoint/together.h"
#include "tessera/abi/draft/on_demand.h"
#include "tessera/checkpoint.h"
#include "tessera/device.h"

namespace tessera {
namespace checkpoint {
namespace {

TensorFiles open_checked(const ProcessGroup& group, const OpenCheckpoint& source, const char* kind) {
  TensorFiles out;
  for (const Manifest::File& listed : source.manifest.files_of(kind, str_cat(source.directory, '/', kManifestFile))) {
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

// Opens a checkpoint that is whole and undamaged, on every rank.
OpenCheckpoint open_held(const ProcessGroup& group, const std::function<HeldCheckpoint()>& hold) {
  OpenCheckpoint source;
  // Rank 0 chooses the directory, so that all ranks read the same one, and holds it.
  const auto texts = together(group, "checkpoint.json", [&]() -> std::string {
    if (group.rank() != 0) return "";
    source.held = hold();
    return source.held.path + '\0' + read_text(str_cat(source.held.path, '/', kManifestFile));
  });
  const size_t end = texts[0].find('\0');
  source.directory = texts[0].substr(0, end);
  source.manifest = Manifest::from_json(texts[0].substr(end + 1), str_cat(source.directory, '/', kManifestFile));
  source.model = open_checked(group, source, kModel);
  source.optimizer = open_checked(group, source, kOptimizer);
  return source;
}

// Checks everything that can be checked before anything changes.
class FitCheck {
 public:
  FitCheck(const OpenCheckpoint& source, const std::vector<ModelTable>& tables, const ParameterList& dense)
      : source_(source), tables_(tables), dense_(dense) {}

  void run() const {
    std::set<std::string> wanted;
    for (const ModelTable& t : tables_) {
      check_table(t);
      wanted.insert(t.stored.parameter);
      const TableEntry& entry = *source_.manifest.find(t.stored.parameter);
      if (entry.keys) wanted.insert(entry.keys_name());
      if (entry.removed) wanted.insert(entry.removed_name());
      if (entry.changes) FitCheck(*source_.base, tables_, dense_).check_table(t);
      (void)parts_of(source_, t.stored.parameter);
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
           stored->on_demand() ? "were created on demand" : "are all there", " in ", where(), ", and ",
           mine.keys ? "come on demand" : "are all there",
           " in this model: load the table with the compute kernel that saved it");
    }
    const bool rows_fit = mine.on_demand() || stored->rows == mine.rows;
    if (!rows_fit || stored->dim != mine.dim || stored->dtype != mine.dtype) {
      fail(Code::kInvalidArgument, "table \"", mine.name, "\" is ", describe(all_rows(*stored)), " in ", where(),
           ", and ", describe(all_rows(mine)), " in this model");
    }
    if (stored->optimizer.name != mine.optimizer.name || stored->state_list() != mine.state_list()) {
      if (!stored->states.empty() || !mine.states.empty()) {
        fail(Code::kInvalidArgument, "table \"", mine.name, "\" was trained with ", optimizer_of(*stored), " in ",
             where(), ", but this model trains it with ", optimizer_of(mine));
      }
    }
    for (size_t s = 0; s < stored->table_extras.size(); ++s) {
      if (const int64_t bytes = stored->table_extras[s])
        source_.check(source_.optimizer, stored->table_extra_name(s), {DType::kUInt8, {bytes}, 0});
    }
    for (size_t k = 0; k < stored->states.size(); ++k)
      source_.check(source_.optimizer, stored->state_name(k), stored->state(k));
    if (stored->extra_words == 0 || mine.extra_words == 0) return;  // another kernel may keep more or less
    if (stored->extra_words != mine.extra_words) {
      const std::string kernel = stored->kernel.empty() ? "another one, or other options" : quoted(stored->kernel);
      fail(Code::kInvalidArgument, "table \"", mine.name, "\" has the kernel ", quoted(mine.kernel),
           " in this model, which keeps ", 4 * mine.extra_words, " additional bytes for each row; it had ", kernel,
           " in ", where(), ", which kept ", 4 * stored->extra_words,
           ": load it with that kernel and its options, or begin a new run with its weights (--start)");
    }
    source_.check(source_.optimizer, stored->extra_name(), stored->extra());
  }

  static StoredTensor all_rows(const TableEntry& t) {
    return {t.dtype, {t.on_demand() ? t.stored_rows() : t.rows, t.dim}, 0};
  }
  static std::string quoted(const std::string& kernel) { return str_cat('"', kernel, '"'); }
  static std::string optimizer_of(const TableEntry& t) {
    return str_cat(t.optimizer.name.empty() ? "no optimizer" : t.optimizer.name, " (states: ", t.state_list(), ")");
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

  const OpenCheckpoint& source_;
  const std::vector<ModelTable>& tables_;
  const ParameterList& dense_;
};

// Fills the shards that this rank holds, a block of rows at a time.
class ShardLoader {
 public:
  ShardLoader(const OpenCheckpoint& source, const std::vector<ModelTable>& tables, int rank) : source_(source) {
    for (const ModelTable& t : tables) {
      for (const TablePart& part : parts_of(source, t.stored.parameter)) {
        parts_.push_back(part);
        for (size_t s = 0; s < t.sharding->shards.size(); ++s) {
          if (t.sharding->shards[s].rank != rank) continue;
          if (t.stored.keys && part.in == &source && t.sharding->shards[s].rows > 0)
            on_demand_.push_back({&t, s, 0, 0});
          add_blocks(blocks_, t, s, part.entry->keys.value_or(t.sharding->shards[s].rows));
        }
        part_of_.resize(blocks_.size(), parts_.size() - 1);
      }
    }
  }

  // Loads one block; false: there are no more.
  bool next() {
    if (begun_ < on_demand_.size()) {
      begin(on_demand_[begun_++]);
      return true;
    }
    if (done_ == blocks_.size()) return false;
    load(parts_[part_of_[done_]], blocks_[done_]);
    ++done_;
    return true;
  }

 private:
  // Clears an on-demand shard and gives its kernel the extra bytes that it stored.
  void begin(const RowBlock& b) {
    const ModelTable& table = *b.table;
    table.collection->clear_rows(table.held(b.shard));
    const TableEntry& entry = *source_.manifest.find(table.stored.parameter);
    for (size_t s = 0; s < entry.table_extras.size(); ++s) {
      if (entry.table_extras[s] == 0) continue;
      const Tensor bytes = source_.optimizer.read(entry.table_extra_name(s));
      table.collection->add_table_extra(table.held(b.shard),
                                        {static_cast<const char*>(bytes.raw()), static_cast<size_t>(bytes.numel())});
    }
  }

  // Selects the rows stored by id that belong to the shard. Sets their ids and their places in the file.
  static RowSet own_rows(const TablePart& part, const RowBlock& b, std::vector<int64_t>& ids,
                         std::vector<int64_t>& places) {
    const ModelTable& table = *b.table;
    ids = part.ids(b.first, b.count);
    for (const int64_t id : ids) {
      if (id < 0 || (id >= table.id_bound && id != TSR_SHARED_ROW_ID))
        fail(Code::kInvalidArgument, "table \"", table.stored.name, "\" has the row of id ", id, " in ",
             part.in->directory, ", and takes ids below ", table.id_bound, " in this model");
    }
    const std::vector<bool> owned = table.collection->owns_rows(table.held(b.shard), ids);
    size_t n = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (!owned[i] || !part.counts(ids[i])) continue;
      places.push_back(b.first + static_cast<int64_t>(i));
      ids[n++] = ids[i];
    }
    ids.resize(n);
    return {0, static_cast<int64_t>(n), places.data()};
  }

  void load(const TablePart& part, const RowBlock& given) {
    RowBlock b = given;
    const ModelTable& table = *b.table;
    const TableEntry& stored = *part.entry;
    std::vector<int64_t> ids, places;
    const RowSet rows = stored.keys ? own_rows(part, b, ids, places) : table_rows(b, ids);
    if (rows.count == 0) return;
    b.count = rows.count;
    values_.resize(static_cast<size_t>(b.floats()));
    BlockValues values = values_at(b, values_.data());
    columns(part.in->model, stored.parameter, rows, {stored.dim, b.where()}, values.weights);
    for (size_t k = 0; k < stored.states.size(); ++k) {
      if (stored.states[k].per_row)
        merged(part, k, rows, b.where(), values.states[k]);
      else
        columns(part.in->optimizer, stored.state_name(k), rows, {stored.dim, b.where()}, values.states[k]);
    }
    if (stored.extra_words == 0) values.extra = nullptr;
    if (values.extra) extra(part, rows, b.where(), values.extra);
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

  // A stored tensor's width, and the shard that has some of its columns.
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

  // Merges state k of the shard's columns from the states of the stored cuts.
  void merged(const TablePart& part, size_t k, const RowSet& rows, const ShardMetadata& w, float* out) {
    const std::vector<int64_t>& stored = part.entry->cuts;
    const auto cuts = static_cast<int64_t>(stored.size());
    const float* whole = read(part.in->optimizer, part.entry->state_name(k), rows, cuts);
    for (int64_t i = 0; i < rows.count; ++i) out[i] = merged_state(stored, whole + i * cuts, w.col, w.cols);
  }

  // Reads the kernel's extra words per row from the stored cut in which the shard begins.
  void extra(const TablePart& part, const RowSet& rows, const ShardMetadata& w, float* out) {
    const TableEntry& stored = *part.entry;
    const float* whole = read(part.in->optimizer, stored.extra_name(), rows, stored.extra_width());
    int64_t cut = 0;
    for (int64_t end = stored.cuts[0]; end <= w.col; end += stored.cuts[static_cast<size_t>(cut)]) ++cut;
    for (int64_t i = 0; i < rows.count; ++i)
      std::copy_n(whole + i * stored.extra_width() + cut * stored.extra_words, stored.extra_words,
                  out + i * stored.extra_words);
  }

  const OpenCheckpoint& source_;
  std::vector<TablePart> parts_;
  std::vector<RowBlock> on_demand_;  // one for each shard whose rows come on demand
  std::vector<RowBlock> blocks_;
  std::vector<size_t> part_of_;  // indices into parts_, one for each block
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

FoundCheckpoints find_checkpoints(const std::string& directory, const ProcessGroup& group,
                                  const checkpoint::DirectoryLock* held) {
  FoundCheckpoints out;
  const std::array<std::pair<char, std::vector<std::string>*>, 4> lists = {
      {{'+', &out.whole}, {'-', &out.broken}, {'?', &out.unreadable}, {'<', &out.older}}};
  const auto texts = checkpoint::together_at_length(group, "checkpoints", [&] {
    std::string all;  // for each text: its list's sign, the text, and '\0'
    if (group.rank() != 0) return all;
    out = checkpoint::find_checkpoints(directory, held);
    for (const auto& [sign, list] : lists) {
      for (const std::string& text : *list) all += sign + text + '\0';
    }
    return all;
  });
  if (group.rank() == 0) return out;
  for (const char *at = texts[0].data(), *end = at + texts[0].size(); at < end;) {
    const auto list = std::find_if(lists.begin(), lists.end(), [&](const auto& l) { return l.first == *at; });
    at += list->second->emplace_back(at + 1).size() + 2;
  }
  return out;
}

std::string load_checkpoint(const std::string& directory, DistributedModelParallel& model,
                            KeyedOptimizer& dense_optimizer) {
  using namespace checkpoint;
  const ProcessGroup& group = model.group();
  const std::vector<ModelTable> tables = model_tables(model);
  const ParameterList dense = dense_tensors(model);
  const OpenCheckpoint source = open_with_base(directory, [&](const auto& hold) { return open_held(group, hold); });

  StateChange dense_state(dense_optimizer);
  together(group, "fit of a checkpoint", [&] {
    check_steps(source.manifest, model);
    FitCheck(source, tables, dense).run();
    check_settings(source.manifest.dense_optimizer, dense_optimizer);
    dense_state.apply(read_dense_states(source.optimizer, source.manifest.tables));
    return "";
  });
  dense_state.keep();

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
