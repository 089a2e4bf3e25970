#include "checkpoint/opened.h"

#include <algorithm>
#include <numeric>

namespace tessera::checkpoint {

void OpenCheckpoint::check(const TensorFiles& files, const std::string& name, const StoredTensor& expected) const {
  const TensorFiles::Place* found = files.find(name);
  if (!found) fail(Code::kDataLoss, directory, " has no tensor \"", name, "\"");
  if (found->tensor->dtype != expected.dtype || found->tensor->shape != expected.shape) {
    fail(Code::kDataLoss, "tensor \"", name, "\" of ", found->file->file().path(), " is ", describe(*found->tensor),
         ", not ", describe(expected));
  }
}

OpenCheckpoint open_with_base(const std::string& directory, const OpenHeld& open) {
  OpenCheckpoint out = open([&] { return hold_checkpoint(directory); });
  if (!out.manifest.base) return out;
  out.base = std::make_unique<OpenCheckpoint>(open([&] { return hold_base(out.directory, *out.manifest.base); }));
  if (out.base->manifest.base)
    fail(Code::kDataLoss, out.base->directory, " lacks rows, but ", out.directory, " is based on it");
  return out;
}

namespace {

std::vector<int64_t> read_ids(const TensorFiles::Place& list, int64_t first, int64_t count) {
  std::vector<int64_t> out(static_cast<size_t>(count));
  list.file->file().read_at(list.tensor->offset + first * size_of(DType::kInt64), out.data(),
                            count * size_of(DType::kInt64));
  return out;
}

}  // namespace

bool TablePart::counts(int64_t id) const { return !std::binary_search(without.begin(), without.end(), id); }

std::vector<int64_t> TablePart::ids(int64_t first, int64_t count) const {
  if (entry->keys) return read_ids(in->model.at(entry->keys_name()), first, count);
  std::vector<int64_t> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), first);
  return out;
}

std::vector<TablePart> parts_of(const OpenCheckpoint& checkpoint, const std::string& parameter) {
  const TableEntry* entry = checkpoint.manifest.find(parameter);
  TESSERA_CHECK(entry != nullptr, "the checkpoint has the table");
  std::vector<TablePart> out;
  if (entry->changes) {
    const TableEntry* before = checkpoint.base->manifest.find(parameter);
    if (before == nullptr || before->changes || before->on_demand() != entry->on_demand() ||
        before->rows != entry->rows || before->dim != entry->dim || before->dtype != entry->dtype)
      fail(Code::kDataLoss, checkpoint.directory, " has changed rows of table \"", entry->name, "\", and ",
           checkpoint.base->directory, before == nullptr ? " lacks it" : " has another one");
    out.push_back({checkpoint.base.get(), before});
  }
  out.push_back({&checkpoint, entry});
  for (const TablePart& part : out) {
    part.in->check(part.in->model, part.entry->parameter, part.entry->weight());
    if (part.entry->keys) part.in->check(part.in->model, part.entry->keys_name(), part.entry->key_list());
  }
  if (!entry->removed) return out;
  checkpoint.check(checkpoint.model, entry->removed_name(), entry->removed_list());
  std::vector<int64_t>& without = out[0].without;
  without = out[1].ids(0, *entry->keys);
  const std::vector<int64_t> gone = read_ids(checkpoint.model.at(entry->removed_name()), 0, *entry->removed);
  without.insert(without.end(), gone.begin(), gone.end());
  std::sort(without.begin(), without.end());
  return out;
}

}  // namespace tessera::checkpoint
