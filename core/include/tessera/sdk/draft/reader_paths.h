// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/draft/reader_paths.h - tessera.reader.paths/draft-1: a reader that knows its files, and their columns.
//
//   1. A job has a path but no reader. The host asks each reader opens(). The one that opens the path reads it.
//   2. A job has no [[column]]. The host asks its reader describe(), and takes the columns as the answer says.
//
// This is an extension of tessera.reader/draft-1. Both functions may be called before tsr_reader::open. A class that is
// a Reader declares
//
//   const char* opens(const std::string& path);     // optional; text as tsr_reader_paths::opens gives it
//   const char* describe(const std::string& path);  // optional; text as tsr_reader_paths::describe gives it
//   const void* extension(std::string_view id) const { return paths_extension<Mine>(id); }
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/abi/draft/reader.h"
#include "tessera/sdk/error.h"

#define TSR_READER_PATHS "tessera.reader.paths/draft-1"

extern "C" {

// Texts are valid until the next call on the object. A function may be NULL, which answers NULL to every question.
struct tsr_reader_paths {
  uint32_t struct_size;
  uint32_t flags;  // none is defined: 0
  // Looks at the path's name, and at most at the first bytes of a file. *options is NULL if the reader does not read
  // such files. Otherwise it has the options that read them, as after a component's name: "delimiter=;", or "".
  tsr_code (*opens)(void* self, const char* path, const char** options, tsr_error* err);
  // *json is NULL if the job must describe the columns. Otherwise it is an object:
  //   "columns": a list of objects with the keys of a [[column]] and "table", the name of its table. All are learned.
  //     With ids = "hash" the row is sdk::row_of(table + "=", text, rows). Without "rows" data.rows says them.
  //   "name": optional; the data set's name
  //   "test_files": optional; the last so many of the reader's files are the test part
  //   "validation_files": optional; the so many files before those are rows for validation.split = "data"
  tsr_code (*describe)(void* self, const char* path, const char** json, tsr_error* err);
};

}  // extern "C"

namespace tessera::sdk {
inline namespace v1 {
namespace detail {

template <class C>
struct PathsTable {
  static tsr_code opens(void* self, const char* path, const char** options, tsr_error* err) noexcept {
    return guard(err, [&] {
      *options = nullptr;
      if constexpr (requires(C reader) { reader.opens(path); }) *options = static_cast<C*>(self)->opens(path);
    });
  }
  static tsr_code describe(void* self, const char* path, const char** json, tsr_error* err) noexcept {
    return guard(err, [&] {
      *json = nullptr;
      if constexpr (requires(C reader) { reader.describe(path); }) *json = static_cast<C*>(self)->describe(path);
    });
  }
  static constexpr tsr_reader_paths kTable{sizeof(tsr_reader_paths), 0, &opens, &describe};
};

}  // namespace detail

// The result of a reader's extension(); NULL: another id.
template <class C>
const void* paths_extension(std::string_view id) {
  return id == TSR_READER_PATHS ? &detail::PathsTable<C>::kTable : nullptr;
}

}  // namespace v1
}  // namespace tessera::sdk
