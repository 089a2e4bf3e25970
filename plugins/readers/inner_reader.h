// Calls a reader component that another reader wraps (tessera.reader/draft-1).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/sdk/draft/reader.h"
#include "tessera/sdk/error.h"

namespace tessera_readers {

class InnerReader {
 public:
  // `part` outlives this.
  explicit InnerReader(const tsr_instance& part)
      : part_(&part), api_(static_cast<const tsr_reader*>(part.component->api)) {}

  void open(const std::string& path, int64_t block_bytes = int64_t{1} << 18) {
    const tsr_reader_source source{sizeof(source), 0, path.c_str(), block_bytes};
    tessera::sdk::Call call;
    call.check(api_->open(part_->self, &source, call.err()));
  }
  std::vector<tessera::sdk::ReaderColumn> columns() const {
    std::vector<tessera::sdk::ReaderColumn> out;
    list([&](int64_t i, tsr_error* err) {
      tsr_reader_column c{sizeof(c), 0, nullptr, 0, 0, nullptr};
      const tsr_code code = api_->column(part_->self, i, &c, err);
      if (code == TSR_OK)
        out.push_back({c.name, c.type, (c.flags & TSR_READER_LIST) != 0, (c.flags & TSR_READER_WEIGHTED) != 0,
                       c.about != nullptr ? c.about : ""});
      return code;
    });
    return out;
  }
  std::vector<std::string> files() const {
    std::vector<std::string> out;
    list([&](int64_t i, tsr_error* err) {
      const char* path = nullptr;
      const tsr_code code = api_->file(part_->self, i, &path, err);
      if (code == TSR_OK) out.emplace_back(path);
      return code;
    });
    return out;
  }
  std::vector<tessera::sdk::ReaderBlock> whole_blocks() const {
    std::vector<tessera::sdk::ReaderBlock> out;
    list([&](int64_t i, tsr_error* err) {
      tsr_reader_block b{sizeof(b), 0, 0, 0, 0, 0};
      const tsr_code code = api_->block(part_->self, i, &b, err);
      if (code == TSR_OK) out.push_back({b.file, b.first_row, b.rows, b.bytes, (b.flags & TSR_READER_BEHIND) != 0});
      return code;
    });
    return out;
  }
  // The number of rows of each block.
  std::vector<int64_t> blocks() const {
    std::vector<int64_t> out;
    for (const tessera::sdk::ReaderBlock& b : whole_blocks()) out.push_back(b.rows);
    return out;
  }
  void select(const std::vector<tessera::sdk::ReaderWant>& wants) {
    std::vector<tsr_reader_want> raw;
    for (const tessera::sdk::ReaderWant& w : wants) {
      const uint32_t flags =
          (w.list ? uint32_t{TSR_READER_LIST} : 0u) | (w.weighted ? uint32_t{TSR_READER_WEIGHTED} : 0u);
      raw.push_back({sizeof(tsr_reader_want), flags, w.name.c_str(), w.type, w.separator, w.weight_separator, {0, 0}});
    }
    tessera::sdk::Call call;
    call.check(
        api_->select(part_->self, static_cast<int64_t>(raw.size()), sizeof(tsr_reader_want), raw.data(), call.err()));
    values_.resize(wants.size());
  }
  // Valid until the next call.
  const std::vector<tsr_reader_values>& read(int64_t block) {
    for (tsr_reader_values& v : values_) v = {sizeof(v), 0, nullptr, nullptr, nullptr, nullptr, nullptr};
    tessera::sdk::Call call;
    call.check(api_->read(part_->self, block, sizeof(tsr_reader_values), values_.data(), call.err()));
    return values_;
  }

 private:
  // Calls ask(i) for i = 0, 1, ... until it says that there are no more.
  template <class Ask>
  static void list(const Ask& ask) {
    for (int64_t i = 0;; ++i) {
      tessera::sdk::Call call;
      const tsr_code code = ask(i, call.err());
      if (code == TSR_OUT_OF_RANGE) return;
      call.check(code);
    }
  }

  const tsr_instance* part_;
  const tsr_reader* api_;
  std::vector<tsr_reader_values> values_;
};

}  // namespace tessera_readers
