// ModelPublisher: the first base is a packed checkpoint of weights. A delta has the changed rows, packed in the same
// way. Later bases are made from these, so they cost training nothing.
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <optional>

#include "checkpoint/changes.h"
#include "checkpoint/dense.h"
#include "checkpoint/together.h"
#include "inference/packed_model.h"
#include "inference/table_file.h"
#include "publishing/patched_model.h"
#include "publishing/publication.h"
#include "publishing/publish_directory.h"
#include "sparse/finite.h"
#include "tessera/checkpoint.h"
#include "tessera/device.h"
#include "tessera/online.h"

namespace tessera {

using namespace publishing;
using checkpoint::together_at_length;

namespace {

constexpr const char* kRows = ".rows";  // suffix of the float rows that a publication is made from

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

struct ModelPublisher::Impl {
  Impl(PublishOptions o, DistributedModelParallel& of, const KeyedOptimizer& dense)
      : options(std::move(o)), model(of), optimizer(dense) {}

  bool first_rank() const { return model.group().rank() == 0; }
  void mark() {
    checkpoint::together(model.group(), "mark of changes", [&] {
      for (const auto& [path, collection] : model.sharded())
        collection->mark_changes(checkpoint::ChangedRows::kFollower);
      return "";
    });
  }
  Publication next(Publication::Kind kind, int64_t number, int64_t step) const {
    return {kind, number, chain, hash, hash, step, seconds_since_1970(), {}, {}};
  }
  void check_formats() const;
  void write_first_base(int64_t step, const std::string& progress);
  void check_inputs() const;
  void pack_first_base(const std::string& rows, int64_t step);
  // A copy of the state to publish, because the model changes further.
  struct Aside {
    int64_t step = 0;
    std::map<std::string, Tensor> dense;  // only on rank 0
    bool base = false;
  };
  Published write(const ProcessGroup& group, const Aside& aside);
  void write_delta(const ProcessGroup& group, const Aside& aside, Published& out);
  void write_later_base(int64_t step);
  Delta packed(const std::string& path, std::map<std::string, Tensor> dense) const;
  std::map<std::string, Tensor> dense_now() const;

  PublishOptions options;
  DistributedModelParallel& model;
  const KeyedOptimizer& optimizer;
  bool has_base = false;  // false: start a new chain, also if the last base or a delta was damaged
  int64_t deltas = 0;     // since the last base
  // Rows that changed up to the last mark and are not published yet.
  std::optional<checkpoint::ChangedRows> rows;
  // The process group of the background thread.
  std::shared_ptr<ProcessGroup> group;
  std::future<Published> running;
  // Only on rank 0; while a publication runs, only its thread uses these.
  std::optional<PublishDirectory> directory;
  std::optional<InferenceModel> served;  // the last base: names and formats
  std::vector<Publication> behind_base;  // the deltas since the last base
  int64_t number = 0;
  std::string chain, hash, base_path;
};

ModelPublisher::ModelPublisher(PublishOptions options, DistributedModelParallel& model,
                               const KeyedOptimizer& dense_optimizer)
    : impl_(std::make_unique<Impl>(std::move(options), model, dense_optimizer)) {
  Impl& i = *impl_;
  TESSERA_CHECK(i.options.base_every > 0 && i.options.keep_bases > 0, "a base now and then");
  i.check_formats();
  i.mark();  // throws an error that names a kernel that cannot
  together_at_length(model.group(), "place of publications", [&] {
    if (!i.first_rank()) return "";
    i.directory.emplace(i.options.directory);
    i.number = i.directory->last();
    if (i.options.pack.name.empty()) {
      std::filesystem::path path = std::filesystem::absolute(i.options.directory).lexically_normal();
      if (!path.has_filename()) path = path.parent_path();
      i.options.pack.name = path.filename().string();
    }
    return "";
  });
  if (i.options.beside) i.group = model.group().split(0);
}

ModelPublisher::~ModelPublisher() {
  if (!impl_->running.valid()) return;
  if (impl_->group) impl_->group->abort("a rank has left a publication unfinished");
  impl_->running.wait();
}

void ModelPublisher::start(const Progress& progress, int64_t step) {
  Impl& i = *impl_;
  if (i.running.valid()) (void)finish();
  std::promise<Published> done;
  if (!i.has_base) {
    i.write_first_base(step, progress());
    i.mark();
    i.has_base = true;
    i.deltas = 0;
    done.set_value({.number = i.number, .base = true});
    i.running = done.get_future();
    return;
  }
  Impl::Aside aside{step, {}, i.deltas + 1 >= i.options.base_every};
  checkpoint::together(i.model.group(), "layers of a delta", [&] {
    if (i.first_rank()) aside.dense = i.dense_now();
    return "";
  });
  i.rows = checkpoint::ChangedRows(i.model, i.rows ? &*i.rows : nullptr);
  i.mark();
  if (i.options.beside) {
    i.running = std::async(std::launch::async, [&i, aside = std::move(aside)] {
      checkpoint::give_way();
      return i.write(*i.group, aside);
    });
    return;
  }
  try {
    done.set_value(i.write(i.model.group(), aside));
  } catch (const Error&) {
    done.set_exception(std::current_exception());
  }
  i.running = done.get_future();
}

bool ModelPublisher::busy() const {
  return impl_->running.valid() && impl_->running.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

Published ModelPublisher::finish() { return impl_->running.valid() ? impl_->running.get() : Published{}; }

// Checks the formats that packing would refuse, before there is anything to pack.
void ModelPublisher::Impl::check_formats() const {
  std::map<std::string, RowFormat> named = options.pack.formats;
  for (const auto& [path, collection] : model.sharded()) {
    for (const EmbeddingBagConfig& table : collection->tables()) {
      const auto own = named.find(table.name);
      (void)quantize_rows(Tensor::empty({0, table.embedding_dim}),
                          own == named.end() ? options.pack.format : own->second, table.name);
      if (own != named.end()) named.erase(own);
    }
  }
  if (!named.empty())
    fail(Code::kNotFound, "there is no table \"", named.begin()->first,
         "\" in the model, whose rows are to be published as ", sdk::to_string(named.begin()->second));
}

void ModelPublisher::Impl::write_first_base(int64_t step, const std::string& progress) {
  const ProcessGroup& of = model.group();
  const std::string path = together_at_length(of, "start of a base", [&]() -> std::string {
    if (!first_rank()) return "";
    const std::string name = Publication::name_of(Publication::kBase, number + 1) + kRows;
    directory->clear(name);
    return directory->at(name);
  })[0];
  CheckpointWriter(path, model, optimizer, 1, CheckpointContent::kWeights).save(progress);
  together_at_length(of, "end of a base", [&] {
    if (first_rank()) pack_first_base(path, step);
    return "";
  });
}

// Called before the first base becomes visible. Fails if its inputs differ from an earlier base's, because servers send
// requests for that model.
void ModelPublisher::Impl::check_inputs() const {
  const auto inputs = [](const ModelDescription& of) {
    std::string out = str_cat(of.dense_inputs, of.dense_inputs == 1 ? " dense input" : " dense inputs");
    for (const ModelFeature& feature : of.features) out += ", " + feature.name;
    return out;
  };
  const std::vector<int64_t> earlier = publications_in(directory->path(), Publication::kBase);
  if (earlier.empty()) return;
  std::string before;
  try {
    const std::string path = directory->at(Publication::name_of(Publication::kBase, earlier.back()));
    before = inputs(open_packed_model(path).description);
  } catch (const Error&) {
    return;  // damaged; this one replaces it
  }
  const std::string now = inputs(served->description);
  if (before == now) return;
  directory->clear(Publication::name_of(Publication::kBase, number + 1));
  fail(Code::kInvalidArgument, directory->path(), " has publications of another model, with ", before,
       "; this one has ", now, ": publish to another directory");
}

void ModelPublisher::Impl::pack_first_base(const std::string& floats, int64_t step) {
  Publication base = next(Publication::kBase, number + 1, step);
  base_path = directory->at(base.name());
  directory->clear(base.name());  // from an earlier attempt that ran out of disk
  pack_model(open_float_model(floats).model, base_path, options.pack);
  directory->clear(base.name() + kRows);
  served = open_packed_model(base_path);
  check_inputs();
  base.chain = hash_of(str_cat(served->description.version, ' ', base.time, ' ', ::getpid()));
  base.hash = hash_of(base.chain + served->description.version);
  hash = write_publication(directory->path(), base);
  chain = base.chain;
  number = base.number;
  behind_base.clear();
  directory->prune(options.keep_bases);
}

Published ModelPublisher::Impl::write(const ProcessGroup& of, const Aside& aside) {
  Published out{.delta = true};
  write_delta(of, aside, out);
  rows.reset();
  ++deltas;
  out.number = number;
  if (!aside.base) return out;
  try {
    together_at_length(of, "base of what was published", [&] {
      if (first_rank()) write_later_base(aside.step);
      return "";
    });
  } catch (const Error& e) {
    // Followers already have the delta. `lost`: the files that the base is made from are gone or damaged.
    const bool lost = e.code() == Code::kDataLoss || e.code() == Code::kNotFound;
    if (!lost && e.code() != Code::kUnavailable && e.code() != Code::kResourceExhausted) throw;
    out.base_error = e.what();
    has_base = !lost;
    return out;
  }
  deltas = 0;
  out.base = true;
  return out;
}

// Applies the deltas to the last base. The result is exact, so no rank has to send its rows.
void ModelPublisher::Impl::write_later_base(int64_t step) {
  const Publication base = next(Publication::kBase, number, step);
  const std::string path = directory->at(base.name());
  directory->clear(base.name());
  {
    PatchedModel whole(base_path);
    for (const Publication& delta : behind_base) {
      const Delta content = read_delta(directory->path(), delta);
      whole.check(content, directory->at(delta.file->name));
      whole.apply(content);
    }
    inference::copy_packed_model(whole.model(), path);
  }
  served = open_packed_model(path);
  (void)write_publication(directory->path(), base);
  base_path = path;
  behind_base.clear();
  directory->prune(options.keep_bases);
}

void ModelPublisher::Impl::write_delta(const ProcessGroup& of, const Aside& aside, Published& out) {
  for (const checkpoint::ChangedTable& t : rows->tables()) {
    out.changed += std::ssize(t.ids);
    out.removed += std::ssize(t.removed);
  }
  std::optional<checkpoint::SafetensorsWriter> file;
  const std::string path = together_at_length(of, "start of a delta", [&]() -> std::string {
    if (!first_rank()) return "";
    std::string at = directory->at(Publication::name_of(Publication::kDelta, number + 1) + kRows);
    file.emplace(at, rows->announced());
    return at;
  })[0];
  together_at_length(of, "rows of a delta", [&] {
    if (!file) file.emplace(checkpoint::SafetensorsWriter::join(path, rows->announced()));
    rows->write(*file);
    file->file().sync();  // rank 0 reads them next
    file.reset();
    return "";
  });
  const std::string bytes = together_at_length(of, "end of a delta", [&]() -> std::string {
    if (!first_rank()) return "";
    Publication delta = next(Publication::kDelta, number + 1, aside.step);
    const Delta content = packed(path, aside.dense);
    for (const DeltaTable& t : content.tables) delta.tables.push_back({t.name, t.ids.numel(), t.removed.numel()});
    delta.file = publishing::write_delta(directory->path(), delta.name(), content);
    hash = write_publication(directory->path(), delta);
    ++number;
    behind_base.push_back(delta);
    directory->clear(delta.name() + kRows);
    return str_cat(delta.file->bytes);
  })[0];
  out.bytes = std::stoll(bytes);
}

Delta ModelPublisher::Impl::packed(const std::string& path, std::map<std::string, Tensor> dense) const {
  const checkpoint::SafetensorsReader floats{checkpoint::InputFile(path)};
  Delta out;
  for (const checkpoint::ChangedTable& changed : rows->tables()) {
    const auto table = std::find_if(served->tables.begin(), served->tables.end(),
                                    [&](const QuantizedTable& t) { return t.config.name == changed.name; });
    if (table == served->tables.end())
      fail(Code::kInternal, "table \"", changed.name, "\" is not in the base that was published");
    const Tensor values = floats.read(checkpoint::ChangedRows::tensor_of(changed.name)).to(DType::kFloat32);
    out.tables.push_back({changed.name, Tensor::from(changed.ids),
                          quantize_rows(values, *table->config.row_format, changed.name, inference::kRowAlignment),
                          Tensor::from(changed.removed)});
  }
  out.dense = std::move(dense);
  return out;
}

// Returns copies under the names that the base uses.
std::map<std::string, Tensor> ModelPublisher::Impl::dense_now() const {
  std::map<std::string, Tensor> out;
  for (const ParameterPtr& p : checkpoint::dense_tensors(model)) {
    for (const auto& [name, value] : served->dense) {
      if (p->name != name && !p->name.ends_with("." + name)) continue;
      out[name] = in_host_memory(p->value).clone();
      if (out[name].dtype() != DType::kFloat32) continue;
      if (first_not_finite(out[name].span<float>()) >= 0)
        fail(Code::kFailedPrecondition, "parameter \"", name,
             "\" has a value that is infinite or no number: nothing was published, and earlier publications are "
             "unchanged");
    }
  }
  if (out.size() != served->dense.size())
    fail(Code::kInternal, "the model has ", out.size(), " of the base's ", served->dense.size(), " dense parameters");
  return out;
}

}  // namespace tessera
