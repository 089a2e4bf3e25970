// load_checkpoint(): every rank reads what it holds, after all have agreed that everything fits.
#include <algorithm>
#include <optional>
#include <set>

#include "checkpoint/checksum.h"
#include "checkpoint/dense.h"
#include "checkpoint/directory.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tables.h"
#include "checkpoint/together.h"
#include "tessera/checkpoint.h"
#include "tessera/device.h"

namespace tessera {
namespace checkpoint {
namespace {

constexpr int64_t kReadFloats = int64_t{4} << 20;  // 16 MiB are read at a time

// A whole, undamaged checkpoint, open on every rank.
struct Source {
  HeldCheckpoint held;  // rank 0's
  std::string directory;
  Manifest manifest;
  std::optional<SafetensorsReader> model, optimizer;
};

SafetensorsReader open_checked(const ProcessGroup& group, const Source& source, const char* name) {
  const std::string path = cat(source.directory, '/', name), manifest = cat(source.directory, '/', kManifestFile);
  const auto& files = source.manifest.files;
  const auto entry = std::find_if(files.begin(), files.end(), [&](const auto& f) { return f.name == name; });
  std::optional<InputFile> file;
  together(group, "opening of a checkpoint", [&] {
    if (entry == files.end()) fail(Code::kDataLoss, manifest, " lists no file ", name);
    try {
      file.emplace(path);
    } catch (const Error& e) {
      if (e.code() == Code::kNotFound) fail(Code::kDataLoss, e.what());
      throw;
    }
    if (file->size() != entry->bytes)
      fail(Code::kDataLoss, path, " has ", file->size(), " bytes, and ", manifest, " says ", entry->bytes);
    return "";
  });
  if (shared_checksum(group, *file).crc != entry->crc)
    fail(Code::kDataLoss, path, " is damaged: its checksum is not the one in ", manifest);
  std::optional<SafetensorsReader> reader;
  together(group, "opening of a checkpoint", [&] {
    reader.emplace(std::move(*file));
    return "";
  });
  return std::move(*reader);
}

Source open_checkpoint(const ProcessGroup& group, const std::string& directory) {
  Source source;
  // Rank 0 says which directory, so that all read the same one, and sees to it that it stays.
  const auto texts = together(group, "checkpoint.json", [&]() -> std::string {
    if (group.rank() != 0) return "";
    source.held = hold_checkpoint(directory);
    return source.held.path + '\0' + read_text(cat(source.held.path, '/', kManifestFile));
  });
  const size_t end = texts[0].find('\0');
  source.directory = texts[0].substr(0, end);
  source.manifest = Manifest::from_json(texts[0].substr(end + 1), cat(source.directory, '/', kManifestFile));
  source.model.emplace(open_checked(group, source, kModelFile));
  source.optimizer.emplace(open_checked(group, source, kOptimizerFile));
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
    }
    for (const ParameterPtr& p : dense_) {
      check_dense(*p);
      wanted.insert(p->name);
    }
    for (const auto& [name, tensor] : source_.model->tensors()) {
      if (!wanted.contains(name))
        fail(Code::kInvalidArgument, where(), " has a parameter \"", name, "\", ", describe(tensor),
             ", that this model lacks");
    }
  }

 private:
  const std::string& where() const { return source_.directory; }

  void check_table(const ModelTable& table) const {
    const TableEntry& mine = table.stored;
    const TableEntry* stored = source_.manifest.find(mine.parameter);
    if (!stored) fail(Code::kInvalidArgument, where(), " has no table \"", mine.name, "\" (", mine.parameter, ")");
    if (stored->weight() != mine.weight()) {
      fail(Code::kInvalidArgument, "table \"", mine.name, "\" is ", describe(stored->weight()), " in ", where(),
           ", and ", describe(mine.weight()), " in this model");
    }
    if (stored->optimizer.name != mine.optimizer.name || stored->state_list() != mine.state_list()) {
      if (!stored->states.empty() || !mine.states.empty()) {
        fail(Code::kInvalidArgument, "table \"", mine.name, "\" was trained with ", optimizer_of(*stored), " in ",
             where(), ", and this model trains it with ", optimizer_of(mine));
      }
    }
    check_tensor(*source_.model, stored->parameter, stored->weight());
    for (size_t k = 0; k < stored->states.size(); ++k)
      check_tensor(*source_.optimizer, stored->state_name(k), stored->state(k));
    if (stored->extra_words == 0 || mine.extra_words == 0)
      return;  // a kernel may keep more, or less, than the other one
    if (stored->extra_words != mine.extra_words) {
      fail(Code::kInvalidArgument, "the kernel of table \"", mine.name, "\" kept ", 4 * stored->extra_words,
           " bytes of each row besides in ", where(), ", and keeps ", 4 * mine.extra_words,
           " in this model: load it with the same kernel");
    }
    check_tensor(*source_.optimizer, stored->extra_name(), stored->extra());
  }

  static std::string optimizer_of(const TableEntry& t) {
    return cat(t.optimizer.name.empty() ? "no optimizer" : t.optimizer.name, " (states: ", t.state_list(), ")");
  }

  // A file must have what its manifest says.
  static void check_tensor(const SafetensorsReader& file, const std::string& name, const StoredTensor& expected) {
    const StoredTensor* found = file.find(name);
    if (!found) fail(Code::kDataLoss, file.file().path(), " has no tensor \"", name, "\"");
    if (found->dtype != expected.dtype || found->shape != expected.shape) {
      fail(Code::kDataLoss, "tensor \"", name, "\" of ", file.file().path(), " is ", describe(*found), ", not ",
           describe(expected));
    }
  }

  void check_dense(const Parameter& parameter) const {
    const StoredTensor mine{parameter.value.dtype(), parameter.value.shape(), 0};
    const StoredTensor* stored = source_.model->find(parameter.name);
    if (!stored) fail(Code::kInvalidArgument, where(), " has no parameter \"", parameter.name, "\" ", describe(mine));
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
      const TableEntry* stored = source.manifest.find(t.stored.parameter);
      int64_t width = stored->dim + stored->extra_width();
      for (size_t k = 0; k < stored->states.size(); ++k) width += stored->state_width(k);
      const int64_t step = std::max<int64_t>(1, kReadFloats / width);
      for (size_t s = 0; s < t.sharding->shards.size(); ++s) {
        const ShardMetadata& w = t.sharding->shards[s];
        if (w.rank != rank) continue;
        for (int64_t first = 0; first < w.rows; first += step)
          blocks_.push_back({&t, stored, s, first, std::min(step, w.rows - first)});
      }
    }
  }

  // One block; false when there are no more.
  bool next() {
    if (done_ == blocks_.size()) return false;
    load(blocks_[done_++]);
    return true;
  }

 private:
  struct Block {
    const ModelTable* table;
    const TableEntry* stored;
    size_t shard;
    int64_t first, count;
  };

  void load(const Block& b) {
    const HeldShard held = b.table->held(b.shard);
    const ShardMetadata& w = held.where;
    RowSet rows{w.row + b.first, b.count};
    std::vector<int64_t> ids;
    if (b.table->sharding->routed) {
      ids = b.table->collection->table_rows(held, b.first, b.count);
      rows.ids = ids.data();
      for (const int64_t id : ids) {
        if (id < 0 || id >= b.stored->rows)
          fail(Code::kInternal, "the sharder of table \"", held.table, "\" names row ", id, " of ", b.stored->rows);
      }
    }
    values_.resize(b.stored->states.size() + 1);
    columns(*source_.model, b.stored->parameter, rows, b.stored->dim, w, values_[0]);
    std::vector<const float*> states;
    for (size_t k = 0; k < b.stored->states.size(); ++k) {
      const std::string name = b.stored->state_name(k);
      if (b.stored->states[k].per_row)
        merged(*b.stored, name, rows, w, values_[k + 1]);
      else
        columns(*source_.optimizer, name, rows, b.stored->dim, w, values_[k + 1]);
      states.push_back(values_[k + 1].data());
    }
    const bool kept = b.stored->extra_words > 0 && b.table->stored.extra_words > 0;
    if (kept) extra(*b.stored, rows, w);
    b.table->collection->write_rows(held, b.first, b.count, values_[0].data(), states, kept ? extra_.data() : nullptr);
  }

  void read(const SafetensorsReader& file, const std::string& name, const RowSet& rows, int64_t width) {
    whole_.resize(rows.count * width);
    read_rows(file.file(), *file.find(name), rows, width, whole_.data());
  }

  // The shard's columns of some rows.
  void columns(const SafetensorsReader& file, const std::string& name, const RowSet& rows, int64_t width,
               const ShardMetadata& w, std::vector<float>& out) {
    read(file, name, rows, width);
    if (w.cols == width) return out.swap(whole_);
    out.resize(rows.count * w.cols);
    for (int64_t i = 0; i < rows.count; ++i)
      std::copy_n(whole_.data() + i * width + w.col, w.cols, out.data() + i * w.cols);
  }

  // The state of the shard's columns, from one per stored cut.
  void merged(const TableEntry& stored, const std::string& name, const RowSet& rows, const ShardMetadata& w,
              std::vector<float>& out) {
    const auto cuts = static_cast<int64_t>(stored.cuts.size());
    read(*source_.optimizer, name, rows, cuts);
    out.resize(rows.count);
    for (int64_t i = 0; i < rows.count; ++i)
      out[i] = merged_state(stored.cuts, whole_.data() + i * cuts, w.col, w.cols);
  }

  // What the kernel kept of rows besides: of the stored cut in which the shard begins.
  void extra(const TableEntry& stored, const RowSet& rows, const ShardMetadata& w) {
    read(*source_.optimizer, stored.extra_name(), rows, stored.extra_width());
    int64_t cut = 0;
    for (int64_t end = stored.cuts[0]; end <= w.col; end += stored.cuts[static_cast<size_t>(cut)]) ++cut;
    extra_.resize(rows.count * stored.extra_words);
    for (int64_t i = 0; i < rows.count; ++i)
      std::copy_n(whole_.data() + i * stored.extra_width() + cut * stored.extra_words, stored.extra_words,
                  extra_.data() + i * stored.extra_words);
  }

  const Source& source_;
  std::vector<Block> blocks_;
  size_t done_ = 0;
  std::vector<float> whole_, extra_;
  std::vector<std::vector<float>> values_;  // weights, then each state
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
  const std::string path = cat(held.path, "/", checkpoint::kManifestFile);
  return checkpoint::Manifest::from_json(checkpoint::read_text(path), path).progress;
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
    dense_state.apply(read_dense_states(*source.optimizer, source.manifest.tables));
    return "";
  });
  dense_state.keep();

  ShardLoader shards(source, tables, group.rank());
  together_in_turns(group, "loading of table rows", [&] { return shards.next(); });
  together(group, "loading of dense parameters", [&] {
    for (const ParameterPtr& p : dense) {
      const StoredTensor* t = source.model->find(p->name);
      Tensor host = p->value.stream() ? Tensor::empty(p->value.shape(), p->value.dtype()) : p->value;
      source.model->file().read_at(t->offset, host.raw(), host.bytes());
      if (p->value.stream()) assign(p->value, host);
    }
    return "";
  });
  set_steps(source.manifest, model);
  return source.manifest.progress;
}

}  // namespace tessera
