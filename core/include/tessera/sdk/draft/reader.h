// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/draft/reader.h - base class of a reader: reads columns from files, block by block.
//
// abi/draft/reader.h is the specification. A class C : Reader finds files, columns and blocks in open(), and reads the
// columns selected by select(). It knows no ranks and keeps no position.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/abi/draft/reader.h"
#include "tessera/sdk/plugin.h"
#include "tessera/sdk/structs.h"

namespace tessera::sdk {
inline namespace v1 {

// A column of the files: its type TSR_READER_TEXT, ..., and whether a row has a list of values, maybe with weights.
struct ReaderColumn {
  std::string name;
  int32_t type = TSR_READER_TEXT;
  bool list = false, weighted = false;
  std::string about = {};  // the type in the format's words; empty: the format has no types
};

// A column to read, and its type.
struct ReaderWant {
  std::string name;
  int32_t type = TSR_READER_TEXT;
  bool list = false, weighted = false;
  char separator = ' ', weight_separator = ':';
};

struct ReaderBlock {
  int64_t file = 0;  // index
  int64_t first_row = 0, rows = 0;
  int64_t bytes = 0;    // approximate size in memory
  bool behind = false;  // TSR_READER_BEHIND
};

class Reader {
 public:
  virtual ~Reader() = default;
  // Finds the results of files() and the other getters. Sizes of blocks are a hint.
  virtual void open(std::string_view path, int64_t block_bytes) = 0;
  virtual const std::vector<std::string>& files() const = 0;  // paths
  virtual const std::vector<ReaderColumn>& columns() const = 0;
  virtual const std::vector<ReaderBlock>& blocks() const = 0;
  virtual void select(std::span<const ReaderWant> wants) = 0;
  // Returns one element for each selected column. Its arrays are valid until the next call.
  virtual std::span<const tsr_reader_values> read(int64_t block) = 0;

  static constexpr const char* kKind = TSR_READER_KIND;
  template <class C>
  static const tsr_reader table;

 private:
  template <class C>
  static Reader& of(void* self) {
    return *static_cast<C*>(self);
  }
  template <class T>
  static const T& at(const std::vector<T>& all, int64_t i, const char* what) {
    if (i < 0 || i >= static_cast<int64_t>(all.size())) fail(TSR_OUT_OF_RANGE, "there are ", all.size(), " ", what);
    return all[static_cast<size_t>(i)];
  }
  static uint32_t flags_of(bool list, bool weighted) {
    return (list ? uint32_t{TSR_READER_LIST} : 0u) | (weighted ? uint32_t{TSR_READER_WEIGHTED} : 0u);
  }
  template <class C>
  static tsr_code open_slot(void* self, const tsr_reader_source* given, tsr_error* err) noexcept {
    return guard(err, [&] {
      const tsr_reader_source source = read_struct(*given);
      check_flags(source.flags, 0, "what is to be read");
      of<C>(self).open(source.path, source.block_bytes);
    });
  }
  template <class C>
  static tsr_code file_slot(void* self, int64_t i, const char** path, tsr_error* err) noexcept {
    return guard(err, [&] { *path = at(of<C>(self).files(), i, "files").c_str(); });
  }
  template <class C>
  static tsr_code column_slot(void* self, int64_t i, tsr_reader_column* out, tsr_error* err) noexcept {
    return guard(err, [&] {
      const ReaderColumn& c = at(of<C>(self).columns(), i, "columns");
      const char* const about = c.about.empty() ? nullptr : c.about.c_str();
      write_struct(
          tsr_reader_column{sizeof(tsr_reader_column), flags_of(c.list, c.weighted), c.name.c_str(), c.type, 0, about},
          out);
    });
  }
  template <class C>
  static tsr_code block_slot(void* self, int64_t i, tsr_reader_block* out, tsr_error* err) noexcept {
    return guard(err, [&] {
      const ReaderBlock& b = at(of<C>(self).blocks(), i, "blocks");
      const uint32_t flags = b.behind ? uint32_t{TSR_READER_BEHIND} : 0u;
      write_struct(tsr_reader_block{sizeof(tsr_reader_block), flags, b.file, b.first_row, b.rows, b.bytes}, out);
    });
  }
  template <class C>
  static tsr_code select_slot(void* self, int64_t count, uint32_t stride, const tsr_reader_want* wants,
                              tsr_error* err) noexcept {
    return guard(err, [&] {
      std::vector<ReaderWant> all;
      for (int64_t k = 0; k < count; ++k) {
        const auto* place = reinterpret_cast<const char*>(wants) + static_cast<size_t>(k) * stride;
        const tsr_reader_want w = read_struct(*reinterpret_cast<const tsr_reader_want*>(place));
        check_flags(w.flags, TSR_READER_LIST | TSR_READER_WEIGHTED, "a wanted column");
        all.push_back({w.name, w.type, (w.flags & TSR_READER_LIST) != 0, (w.flags & TSR_READER_WEIGHTED) != 0,
                       w.separator, w.weight_separator});
      }
      of<C>(self).select(all);
    });
  }
  template <class C>
  static tsr_code read_slot(void* self, int64_t block, uint32_t stride, tsr_reader_values* out,
                            tsr_error* err) noexcept {
    return guard(err, [&] {
      Reader& reader = of<C>(self);
      (void)at(reader.blocks(), block, "blocks");
      for (const tsr_reader_values& values : reader.read(block)) {
        write_struct(values, out);
        out = reinterpret_cast<tsr_reader_values*>(reinterpret_cast<char*>(out) + stride);
      }
    });
  }
};

template <class C>
constexpr tsr_reader Reader::table = {
    sizeof(tsr_reader), 0, &open_slot<C>, &file_slot<C>, &column_slot<C>, &block_slot<C>, &select_slot<C>,
    &read_slot<C>};

}  // namespace v1
}  // namespace tessera::sdk
