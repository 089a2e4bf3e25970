#include "data/reader_component.h"

#include "tessera/abi/draft/arriving.h"
#include "tessera/abi/draft/histories.h"
#include "tessera/calls.h"
#include "tessera/sdk/structs.h"

namespace tessera::data {
namespace {

// Calls ask(i) for i = 0, 1, ... until it says that there are no more.
template <class Ask>
void list(const Component& part, const char* what, const Ask& ask) {
  for (int64_t i = 0;; ++i) {
    AbiError error;
    const plugin::CallScope call(part, what);
    const tsr_code code = ask(i, error.out());
    if (code == TSR_OUT_OF_RANGE) return;
    error.check(code);
  }
}

std::vector<FileColumn> listed_columns(const Component& reader, bool readable) {
  std::vector<FileColumn> out;
  list(reader, "column", [&](int64_t i, tsr_error* err) {
    tsr_reader_column c{sizeof(c), 0, nullptr, 0, 0, nullptr};
    const tsr_code code = reader.api<tsr_reader>().column(reader.self(), i, &c, err);
    if (code == TSR_OK && (c.type != TSR_READER_UNREADABLE) == readable)
      out.push_back({c.name, c.type, (c.flags & TSR_READER_LIST) != 0, (c.flags & TSR_READER_WEIGHTED) != 0,
                     c.about != nullptr ? c.about : ""});
    return code;
  });
  return out;
}

}  // namespace

tsr_reader_want raw_want(const WantedColumn& w) {
  const uint32_t flags = (w.list ? uint32_t{TSR_READER_LIST} : 0) | (w.weighted ? uint32_t{TSR_READER_WEIGHTED} : 0);
  return {sizeof(tsr_reader_want), flags, w.name.c_str(), w.type, w.separator, ':', {0, 0}};
}

std::vector<FileColumn> columns_of(const Component& reader) { return listed_columns(reader, true); }

std::vector<FileColumn> ReaderComponent::unreadable_columns() const { return listed_columns(*part_, false); }

ReaderComponent::ReaderComponent(const Runtime& runtime, const std::string& reader, const std::string& path,
                                 int64_t block_bytes)
    : part_(runtime.create(TSR_READER_KIND, reader)) {
  if (part_->extension<tsr_reader_arriving>(TSR_READER_ARRIVING) != nullptr)
    fail(Code::kInvalidArgument, "the rows that \"", reader,
         "\" reads have no end: only tessera train takes them as they arrive");
  const tsr_reader_source source{sizeof(source), 0, path.c_str(), block_bytes};
  plugin::call({*part_, "open", path}, api().open, part_->self(), &source);
  list(*part_, "file", [&](int64_t i, tsr_error* err) {
    const char* path = nullptr;
    const tsr_code code = api().file(part_->self(), i, &path, err);
    files_ += code == TSR_OK ? 1 : 0;
    return code;
  });
  int64_t before = 0;
  list(*part_, "block", [&](int64_t i, tsr_error* err) {
    tsr_reader_block b{sizeof(b), 0, 0, 0, 0, 0};
    const tsr_code code = api().block(part_->self(), i, &b, err);
    if (code != TSR_OK) return code;
    blocks_.push_back({b.file, b.first_row, b.rows, b.bytes, (b.flags & TSR_READER_BEHIND) != 0, before});
    before += b.rows;
    return code;
  });
}

std::string ReaderComponent::file(int64_t i) const {
  const std::lock_guard lock(mutex_);
  const char* path = nullptr;
  AbiError error;
  error.check(api().file(part_->self(), i, &path, error.out()));
  return path;
}

std::string ReaderComponent::settled() const {
  const auto* const histories = part_->extension<tsr_reader_histories>(TSR_READER_HISTORIES);
  if (histories == nullptr || sdk::read_struct(*histories).settled == nullptr) return "";
  const std::lock_guard lock(mutex_);
  const char* option = nullptr;
  plugin::call({*part_, "settled"}, histories->settled, part_->self(), &option);
  return option;
}

void ReaderComponent::select(const std::vector<WantedColumn>& wants) {
  std::vector<tsr_reader_want> raw;
  for (const WantedColumn& w : wants) raw.push_back(raw_want(w));
  plugin::call({*part_, "select"}, api().select, part_->self(), std::ssize(raw), sizeof(tsr_reader_want), raw.data());
  values_.resize(wants.size());
}

void ReaderComponent::read(int64_t block, const Body& body) const {
  const std::lock_guard lock(mutex_);
  for (tsr_reader_values& v : values_) v = {sizeof(v), 0, nullptr, nullptr, nullptr, nullptr, nullptr};
  {
    AbiError error;
    const plugin::CallScope call(*part_, "read");
    error.check(api().read(part_->self(), block, sizeof(tsr_reader_values), values_.data(), error.out()));
  }
  body(values_);
}

}  // namespace tessera::data
