// ModelPublisher: a base is a checkpoint of weights, packed; a delta is the rows that changed, packed in the same way.
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <optional>

#include "checkpoint/changes.h"
#include "checkpoint/dense.h"
#include "checkpoint/together.h"
#include "inference/table_file.h"
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

constexpr const char* kRows = ".rows";  // behind a publication's name: the floats that it is made of

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
      for (const auto& [path, collection] : model.sharded()) collection->mark_changes();
      return "";
    });
  }
  Publication next(Publication::Kind kind, int64_t number, int64_t step) const {
    return {kind, number, chain, hash, hash, step, seconds_since_1970(), {}, {}};
  }
  void check_formats() const;
  void write_base(int64_t step, const std::string& progress);
  void write_delta(int64_t step, Published& out);
  void pack_base(const std::string& rows, int64_t step);
  Delta packed(const checkpoint::ChangedRows& rows, const std::string& path) const;
  std::map<std::string, Tensor> dense_now() const;

  PublishOptions options;
  DistributedModelParallel& model;
  const KeyedOptimizer& optimizer;
  bool has_base = false;  // and so a chain
  int64_t deltas = 0;     // since the last base
  // Of rank 0.
  std::optional<PublishDirectory> directory;
  std::optional<InferenceModel> served;  // the last base: names and formats
  int64_t number = 0;
  std::string chain, hash;
};

ModelPublisher::ModelPublisher(PublishOptions options, DistributedModelParallel& model,
                               const KeyedOptimizer& dense_optimizer)
    : impl_(std::make_unique<Impl>(std::move(options), model, dense_optimizer)) {
  Impl& i = *impl_;
  TESSERA_CHECK(i.options.base_every > 0 && i.options.keep_bases > 0, "a base now and then");
  i.check_formats();
  i.mark();  // says which kernel cannot
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
}

ModelPublisher::~ModelPublisher() = default;

Published ModelPublisher::publish(const Progress& progress, int64_t step) {
  Impl& i = *impl_;
  Published out;
  if (i.has_base) {
    i.write_delta(step, out);
    i.mark();
    ++i.deltas;
    out.delta = true;
  }
  if (!i.has_base || i.deltas >= i.options.base_every) {
    i.write_base(step, progress());
    if (!i.has_base) i.mark();
    i.has_base = out.base = true;
    i.deltas = 0;
  }
  out.number = i.number;
  return out;
}

// What packing would refuse, before there is anything to pack.
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

void ModelPublisher::Impl::write_base(int64_t step, const std::string& progress) {
  const ProcessGroup& group = model.group();
  const std::string rows = together_at_length(group, "start of a base", [&]() -> std::string {
    if (!first_rank()) return "";
    const std::string name = Publication::name_of(Publication::kBase, has_base ? number : number + 1) + kRows;
    directory->clear(name);
    return directory->at(name);
  })[0];
  CheckpointWriter(rows, model, optimizer, 1, CheckpointContent::kWeights).save(progress);
  together_at_length(group, "end of a base", [&] {
    if (first_rank()) pack_base(rows, step);
    return "";
  });
}

void ModelPublisher::Impl::pack_base(const std::string& rows, int64_t step) {
  Publication base = next(Publication::kBase, has_base ? number : number + 1, step);
  const std::string path = directory->at(base.name());
  directory->clear(base.name());  // of an attempt before, which the disk did not take
  pack_model(open_float_model(rows).model, path, options.pack);
  directory->clear(base.name() + kRows);
  served = open_packed_model(path);
  if (!has_base) {
    base.chain = hash_of(cat(served->description.version, ' ', base.time, ' ', ::getpid()));
    base.hash = hash_of(base.chain + served->description.version);
  }
  hash = write_publication(directory->path(), base);
  chain = base.chain;
  number = base.number;
  directory->prune(options.keep_bases);
}

void ModelPublisher::Impl::write_delta(int64_t step, Published& out) {
  const ProcessGroup& group = model.group();
  const checkpoint::ChangedRows rows(model);
  for (const checkpoint::ChangedTable& t : rows.tables()) {
    out.changed += std::ssize(t.ids);
    out.removed += std::ssize(t.removed);
  }
  std::optional<checkpoint::SafetensorsWriter> file;
  const std::string path = together_at_length(group, "start of a delta", [&]() -> std::string {
    if (!first_rank()) return "";
    std::string at = directory->at(Publication::name_of(Publication::kDelta, number + 1) + kRows);
    file.emplace(at, rows.announced());
    return at;
  })[0];
  together_at_length(group, "rows of a delta", [&] {
    if (!file) file.emplace(checkpoint::SafetensorsWriter::join(path, rows.announced()));
    rows.write(*file);
    file->file().sync();  // rank 0 reads them, from wherever it is
    file.reset();
    return "";
  });
  const std::string bytes = together_at_length(group, "end of a delta", [&]() -> std::string {
    if (!first_rank()) return "";
    Publication delta = next(Publication::kDelta, number + 1, step);
    const Delta content = packed(rows, path);
    for (const DeltaTable& t : content.tables) delta.tables.push_back({t.name, t.ids.numel(), t.removed.numel()});
    delta.file = publishing::write_delta(directory->path(), delta.name(), content);
    hash = write_publication(directory->path(), delta);
    ++number;
    directory->clear(delta.name() + kRows);
    return cat(delta.file->bytes);
  })[0];
  out.bytes = std::stoll(bytes);
}

Delta ModelPublisher::Impl::packed(const checkpoint::ChangedRows& rows, const std::string& path) const {
  const checkpoint::SafetensorsReader floats{checkpoint::InputFile(path)};
  Delta out;
  for (const checkpoint::ChangedTable& changed : rows.tables()) {
    const auto table = std::find_if(served->tables.begin(), served->tables.end(),
                                    [&](const QuantizedTable& t) { return t.config.name == changed.name; });
    if (table == served->tables.end())
      fail(Code::kInternal, "table \"", changed.name, "\" is not in the base that was published");
    const Tensor values = floats.read(checkpoint::ChangedRows::tensor_of(changed.name)).to(DType::kFloat32);
    out.tables.push_back({changed.name, Tensor::from(changed.ids),
                          quantize_rows(values, *table->config.row_format, changed.name, inference::kRowAlignment),
                          Tensor::from(changed.removed)});
  }
  out.dense = dense_now();
  return out;
}

// Under the names that the base has for them.
std::map<std::string, Tensor> ModelPublisher::Impl::dense_now() const {
  std::map<std::string, Tensor> out;
  for (const ParameterPtr& p : checkpoint::dense_tensors(model)) {
    for (const auto& [name, value] : served->dense) {
      if (p->name != name && !p->name.ends_with("." + name)) continue;
      out[name] = in_host_memory(p->value);
      if (out[name].dtype() != DType::kFloat32) continue;
      if (first_not_finite(out[name].span<float>()) >= 0)
        fail(Code::kFailedPrecondition, "parameter \"", name,
             "\" has a value that is infinite or no number: nothing was published, and what was before is as it was");
    }
  }
  if (out.size() != served->dense.size())
    fail(Code::kInternal, "the model has ", out.size(), " of the base's ", served->dense.size(), " dense parameters");
  return out;
}

}  // namespace tessera
