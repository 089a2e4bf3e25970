// CheckpointWriter: rank 0 makes the files, every rank writes its rows into them, and rank 0 commits the checkpoint.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <map>
#include <optional>
#include <sstream>

#include "checkpoint/dense.h"
#include "checkpoint/directory.h"
#include "checkpoint/manifest.h"
#include "checkpoint/row_blocks.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/together.h"
#include "planner/system_memory.h"
#include "sparse/finite.h"
#include "tessera/checkpoint.h"
#include "tessera/device.h"

namespace tessera {
namespace checkpoint {
namespace {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// A checkpoint without the rows of tables.
struct Rest {
  NamedTensors parameters, states;  // of the dense part; rank 0 has their values
  Manifest manifest;                // without files
};

StoredTensors announced(const NamedTensors& tensors) {
  StoredTensors out;
  for (const auto& [name, value] : tensors) {
    if (!out.emplace(name, StoredTensor{value.dtype(), value.shape(), 0}).second)
      fail(Code::kInvalidArgument, "two tensors of the model have the name \"", name, "\"");
  }
  return out;
}

// The files of a checkpoint, of kModel and kOptimizer.
struct Layout {
  std::vector<TensorFile> model, optimizer;
};

Layout layout_of(const std::vector<ModelTable>& tables, const Rest& rest) {
  std::vector<StoredTensors> weights, states;
  for (const ModelTable& t : tables) {
    weights.push_back({{t.stored.parameter, t.stored.weight()}});
    if (t.stored.keys) weights.back().emplace(t.stored.keys_name(), t.stored.key_list());
    if (t.stored.removed) weights.back().emplace(t.stored.removed_name(), t.stored.removed_list());
    StoredTensors& of_table = states.emplace_back();
    for (size_t k = 0; k < t.stored.states.size(); ++k) of_table.emplace(t.stored.state_name(k), t.stored.state(k));
    if (t.stored.extra_words > 0) of_table.emplace(t.stored.extra_name(), t.stored.extra());
    for (size_t s = 0; s < t.stored.table_extras.size(); ++s) {
      if (const int64_t bytes = t.stored.table_extras[s])
        of_table.emplace(t.stored.table_extra_name(s), StoredTensor{DType::kUInt8, {bytes}, 0});
    }
  }
  return {split_by_table(kModel, announced(rest.parameters), weights),
          split_by_table(kOptimizer, announced(rest.states), states)};
}

// The tensor files of a checkpoint as one rank writes them.
class Files {
 public:
  enum Role { kMake, kJoin };  // rank 0 makes them, then the others join
  Files(const std::string& directory, const Layout& layout, Role role) {
    for (const auto* kind : {&layout.model, &layout.optimizer}) {
      for (const TensorFile& file : *kind) {
        const std::string path = str_cat(directory, '/', file.name);
        for (const auto& [name, tensor] : file.tensors) by_tensor_[name] = files_.size();
        files_.push_back(role == kMake ? SafetensorsWriter(path, file.tensors)
                                       : SafetensorsWriter::join(path, file.tensors));
        sizes_.push_back({file.name, files_.back().file().size(), 0});
      }
    }
  }

  void write(const std::string& name, const Tensor& value) { file_of(name).write(name, value); }
  void write(const std::string& name, const Slab& slab, const float* values) {
    SafetensorsWriter& file = file_of(name);
    write_slab(file.file(), file.at(name), slab, values);
  }
  void sync() {
    for (SafetensorsWriter& file : files_) file.file().sync();
  }

  // sums(): this rank's parts of the files' checksums as text. The other function makes the files' entries from all
  // texts.
  std::string sums() {
    std::ostringstream out;
    for (SafetensorsWriter& file : files_) out << file.file().sum_part() << ' ';
    return out.str();
  }
  std::vector<Manifest::File> listed(const std::vector<std::string>& sums) const {
    std::vector<Manifest::File> out = sizes_;
    for (const std::string& text : sums) {
      std::istringstream in(text);
      for (Manifest::File& file : out) {
        uint32_t part = 0;
        in >> part;
        file.crc ^= part;
      }
    }
    for (Manifest::File& file : out) file.crc = PieceSum::crc32(file.crc, file.bytes);
    return out;
  }

 private:
  SafetensorsWriter& file_of(const std::string& name) { return files_[by_tensor_.at(name)]; }

  std::vector<SafetensorsWriter> files_;
  std::vector<Manifest::File> sizes_;
  std::map<std::string, size_t> by_tensor_;
};

void check_finite(const NamedTensors& parameters) {
  for (const auto& [name, value] : parameters) {
    if (value.dtype() != DType::kFloat32) continue;
    const int64_t at = first_not_finite(value.span<float>());
    if (at < 0) continue;
    fail(Code::kFailedPrecondition, "parameter \"", name, "\" holds ", std::abs(value.data<float>()[at]),
         ": nothing was saved, and earlier checkpoints are unchanged");
  }
}

// Only rank 0 calls this.
void write_index(const StagedCheckpoint& staged, const std::string& kind, const std::vector<TensorFile>& files,
                 Manifest& manifest) {
  if (files.size() == 1) return;
  const std::string text = index_of(files), name = index_name(kind);
  manifest.files.push_back({name, static_cast<int64_t>(text.size()), write_text(staged.file(name), text)});
}

}  // namespace
}  // namespace checkpoint

using namespace checkpoint;

struct CheckpointWriter::Impl {
  Impl(std::string where, int kept, CheckpointContent what, DistributedModelParallel& of, const KeyedOptimizer& dense)
      : directory(std::move(where)), keep(kept), content(what), model(of), optimizer(dense) {
    look(CheckpointRows::kAll);
  }

  // Reads the tables' current state: counts on-demand or changed rows, and gets the learning rates. Collective.
  void look(CheckpointRows asked) {
    known_blocks.clear();
    rows = asked == CheckpointRows::kChanged && base_is_there() ? CheckpointRows::kChanged : CheckpointRows::kAll;
    tables = model_tables(model, rows == CheckpointRows::kChanged ? Rows::kChanged : Rows::kAll);
    if (content == CheckpointContent::kAll) return;
    for (ModelTable& t : tables) {
      t.stored.states.clear();
      t.stored.extra_words = 0;
      t.stored.table_extras.clear();
      t.table_extras.clear();
    }
  }
  // Computed when something is written. Before that a table may have no bound on its rows.
  const std::vector<RowBlock>& blocks() {
    if (known_blocks.empty()) known_blocks = blocks_to_store(tables, model.group().rank());
    return known_blocks;
  }
  int64_t floats() {
    int64_t sum = 0;
    for (const RowBlock& block : blocks()) sum += block.floats();
    return sum;
  }
  // True if the number of stored rows does not follow from the plan.
  bool counted() const {
    return std::any_of(tables.begin(), tables.end(), [](const ModelTable& t) { return t.stored.keys.has_value(); });
  }
  // Returns the same on every rank. Collective if there may be a base.
  bool base_is_there() const {
    if (!base) return false;
    const auto there = values_together(model.group(), "base of a checkpoint", [&]() -> char {
      try {
        return model.group().rank() == 0 && has_base(str_cat(directory, "/save"), *base);
      } catch (const Error&) {  // unknown, so all rows are written
        return false;
      }
    });
    return there[0] != 0;
  }
  // Mark after all rows are copied, so that later updates go into the next delta.
  void mark() const {
    if (!follows || rows != CheckpointRows::kAll) return;
    for (const auto& [path, collection] : model.sharded()) collection->mark_changes(ModelTable::kFollower);
  }
  // Returns the same on every rank. Collective if rows come on demand.
  bool copies_have_room() {
    if (!counted()) return true;
    const auto enough = values_together(model.group(), "room for rows",
                                        [&]() -> char { return copies.defined() && copies.numel() >= floats(); });
    return std::find(enough.begin(), enough.end(), 0) == enough.end();
  }
  Rest rest(const std::string& progress, bool copied) const;
  void write(const ProcessGroup& of, Rest rest, const Tensor& from);
  void write_table_extras(Files& files) const {
    for (const ModelTable& t : tables) {
      for (size_t s = 0; s < t.table_extras.size(); ++s) {
        const std::string& bytes = t.table_extras[s];
        if (bytes.empty()) continue;
        files.write(t.stored.table_extra_name(s),
                    Tensor::borrow(const_cast<char*>(bytes.data()), {std::ssize(bytes)}, DType::kUInt8));
      }
    }
  }
  void write_removed(Files& files) const {
    for (const ModelTable& t : tables) {
      if (!t.stored.removed) continue;
      for (const size_t s : t.sharding->distinct()) {
        if (s >= t.removed.size() || t.removed[s].empty()) continue;
        const Slab slab{{t.before(s, t.num_removed), std::ssize(t.removed[s])}, 1, 0, 1};
        files.write(t.stored.removed_name(), slab, reinterpret_cast<const float*>(t.removed[s].data()));
      }
    }
  }
  void write_block(const RowBlock& block, float* values, Files& files) const {
    for_each_slab(block, values,
                  [&](const std::string& name, const Slab& slab, const float* from) { files.write(name, slab, from); });
  }

  std::string directory;
  std::shared_ptr<const DirectoryLock> lock;  // null: lock for each save
  bool replaces = false;                      // the next checkpoint replaces all that were there
  int keep;
  CheckpointContent content;
  DistributedModelParallel& model;
  const KeyedOptimizer& optimizer;
  bool follows = false;                        // changes are marked
  std::optional<Manifest::Base> base;          // the last full checkpoint that was written; the base of changes
  CheckpointRows rows = CheckpointRows::kAll;  // of the checkpoint begun last
  std::vector<ModelTable> tables;
  std::vector<RowBlock> known_blocks;
  // Used by the background thread: its process group, and the copied rows, block by block.
  std::shared_ptr<ProcessGroup> group;
  Tensor copies;
  std::atomic<bool> given_up = false;
  std::future<void> running;
};

// `copied`: the checkpoint may be written while the model changes. Collective.
Rest CheckpointWriter::Impl::rest(const std::string& progress, bool copied) const {
  const bool writes = model.group().rank() == 0;
  const auto kept = [&](const Tensor& value) {
    if (!writes) return value;
    const Tensor here = in_host_memory(value);
    return copied ? here.clone() : here;
  };
  Rest out;
  for (const ParameterPtr& p : dense_tensors(model)) out.parameters.emplace_back(p->name, kept(p->value));
  if (content == CheckpointContent::kAll) {
    for (const auto& [key, state] : optimizer.state()) {
      for (const auto& [name, value] : state) out.states.emplace_back(str_cat(key, '/', name), kept(value));
    }
  }
  Manifest& m = out.manifest;
  m.world_size = model.group().world_size();
  m.progress = progress;
  for (const ModelTable& t : tables) m.tables.push_back(t.stored);
  for (const auto& [path, collection] : model.sharded()) m.steps.emplace_back(path, collection->step());
  m.dense_optimizer = settings_of(optimizer);
  if (rows == CheckpointRows::kChanged) m.base = base;
  return out;
}

// `from`: the blocks' values; undefined: they are read while they are written. Collective in `of`.
void CheckpointWriter::Impl::write(const ProcessGroup& of, Rest rest, const Tensor& from) {
  const bool first = of.rank() == 0, all = rows == CheckpointRows::kAll;
  if (all) base.reset();
  const Layout layout = layout_of(tables, rest);
  std::optional<StagedCheckpoint> staged;  // only rank 0's
  std::optional<Files> files;
  const std::string place = together_at_length(of, "start of a checkpoint", [&]() -> std::string {
    if (!first) return "";
    check_finite(rest.parameters);
    (void)rest.manifest.json();  // throws if it cannot be written
    staged.emplace(directory, lock.get());
    files.emplace(staged->path(), layout, Files::kMake);
    return staged->path();
  })[0];

  Tensor one;  // values of one block
  BlockReader reader;
  size_t next = 0;
  int64_t at = 0;
  together_in_turns(of, "writing of table rows", [&] {
    if (given_up) fail(Code::kCancelled, "given up for a later checkpoint");
    if (!files) files.emplace(place, layout, Files::kJoin);
    if (next == blocks().size()) return false;
    const RowBlock& block = blocks()[next++];
    if (from.defined()) {
      write_block(block, from.data<float>() + at, *files);
    } else {
      if (!one.defined() || one.numel() < block.floats()) one = Tensor::empty({block.floats()});
      reader.read(block, one.data<float>());
      write_block(block, one.data<float>(), *files);
    }
    at += block.floats();
    return true;
  });
  const auto sums = together_at_length(of, "rest of a checkpoint", [&] {
    if (first) {
      for (const auto& [name, value] : rest.parameters) files->write(name, value);
      for (const auto& [name, value] : rest.states) files->write(name, value);
    }
    write_table_extras(*files);
    write_removed(*files);
    files->sync();
    return files->sums();
  });
  const auto ends = together_at_length(of, "end of a checkpoint", [&]() -> std::string {
    if (!first) return "";
    rest.manifest.files = files->listed(sums);
    write_index(*staged, kModel, layout.model, rest.manifest);
    write_index(*staged, kOptimizer, layout.optimizer, rest.manifest);
    const uint32_t crc = write_text(staged->file(kManifestFile), rest.manifest.json());
    staged->commit(replaces ? 1 : keep);
    replaces = false;
    return str_cat(crc, ' ', staged->name());
  });
  if (!all || !follows) return;
  const size_t space = ends[0].find(' ');
  base = Manifest::Base{ends[0].substr(space + 1), static_cast<uint32_t>(std::stoul(ends[0]))};
}

CheckpointWriter::CheckpointWriter(std::string directory, DistributedModelParallel& model,
                                   const KeyedOptimizer& dense_optimizer, int keep, CheckpointContent content)
    : impl_(std::make_unique<Impl>(std::move(directory), keep, content, model, dense_optimizer)) {}

CheckpointWriter::~CheckpointWriter() {
  if (!impl_->running.valid()) return;
  impl_->given_up = true;
  impl_->group->abort("a rank has left a checkpoint unfinished");
  impl_->running.wait();
}

void CheckpointWriter::hold(std::shared_ptr<const checkpoint::DirectoryLock> lock, bool replaces) {
  impl_->lock = std::move(lock);
  impl_->replaces = replaces;
}

void CheckpointWriter::check_place(int64_t saves) {
  const Rest rest = impl_->rest("", false);
  together_at_length(impl_->model.group(), "place of a checkpoint", [&] {
    if (impl_->model.group().rank() != 0) return "";
    const Layout layout = layout_of(impl_->tables, rest);
    int64_t bytes = 0;
    for (const auto* kind : {&layout.model, &layout.optimizer}) {
      for (const TensorFile& file : *kind) bytes += bytes_of(file.tensors);
    }
    const StagedCheckpoint staged(impl_->directory, impl_->lock.get());
    OutputFile(staged.file(kManifestFile), 0).sync();
    // one more, because a base stays for its changes
    staged.check_space(bytes, saves, impl_->keep + (impl_->follows ? 1 : 0));
    return "";
  });
}

bool CheckpointWriter::follow_changes() {
  impl_->follows = true;
  impl_->mark();
  const std::vector<ModelTable> tables = model_tables(impl_->model, Rows::kChanged);
  return std::any_of(tables.begin(), tables.end(), [](const ModelTable& t) { return t.stored.changes; });
}

CheckpointRows CheckpointWriter::rows() const { return impl_->rows; }

void CheckpointWriter::save(const std::string& progress, CheckpointRows rows) {
  finish();
  impl_->given_up = false;
  impl_->look(rows);
  impl_->write(impl_->model.group(), impl_->rest(progress, false), Tensor());
  impl_->mark();
}

int64_t CheckpointWriter::copy_bytes() const { return 4 * impl_->floats(); }

bool CheckpointWriter::reserve_copies() {
  constexpr double kShare = 0.8;  // fraction of the free memory that the ranks of a host may use
  const ProcessGroup& ranks = impl_->model.group();
  struct Memory {
    double copies, available;
  };
  const std::vector<Memory> all = values_together(ranks, "room for rows", [&] {
    return Memory{static_cast<double>(copy_bytes()), static_cast<double>(system_memory().available)};
  });
  const auto local = static_cast<size_t>(ranks.local_world_size());
  for (size_t rank = 0; rank < all.size(); ++rank) {
    double copies = 0;
    for (size_t r = rank / local * local; r < all.size() && r / local == rank / local; ++r) copies += all[r].copies;
    if (copies > kShare * all[rank].available) return false;
  }
  together(ranks, "room for rows", [&] {
    const int64_t more = impl_->counted() ? impl_->floats() / 4 : 0;  // rows that are still to come
    // touched now, so that no step waits for page faults
    impl_->copies = Tensor::zeros({std::max<int64_t>(1, impl_->floats() + more)});
    return "";
  });
  if (!impl_->group) impl_->group = ranks.split(0);
  return true;
}

void CheckpointWriter::start(const std::string& progress, CheckpointRows rows) {
  TESSERA_CHECK(impl_->group, "reserve_copies() comes first");
  finish();
  impl_->look(rows);
  if (!impl_->copies_have_room()) {  // more on-demand rows have come
    impl_->copies = {};
    if (!reserve_copies()) {  // save synchronously; finish() reports the result
      std::promise<void> done;
      try {
        save(progress, rows);
        done.set_value();
      } catch (const Error&) {
        done.set_exception(std::current_exception());
      }
      impl_->running = done.get_future();
      return;
    }
  }
  Rest rest = impl_->rest(progress, true);
  together(impl_->model.group(), "copying of table rows", [&] {
    float* to = impl_->copies.data<float>();
    BlockReader reader;
    for (const RowBlock& block : impl_->blocks()) {
      reader.read(block, to);
      to += block.floats();
    }
    return "";
  });
  impl_->mark();
  impl_->given_up = false;
  impl_->running = std::async(std::launch::async, [impl = impl_.get(), rest = std::move(rest)]() mutable {
    give_way();
    impl->write(*impl->group, std::move(rest), impl->copies);
  });
}

bool CheckpointWriter::busy() const {
  return impl_->running.valid() && impl_->running.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

void CheckpointWriter::finish() {
  if (impl_->running.valid()) impl_->running.get();
}

void CheckpointWriter::give_up() {
  impl_->given_up = true;
  if (impl_->running.valid()) impl_->running.wait();
  impl_->running = {};
}

void save_checkpoint(const std::string& directory, DistributedModelParallel& model,
                     const KeyedOptimizer& dense_optimizer, const std::string& progress, int keep) {
  CheckpointWriter(directory, model, dense_optimizer, keep).save(progress);
}

}  // namespace tessera
