// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/draft/reader_paths.h - readers that know their files, and the columns in them.
//
// abi/draft/reader_paths.h is the specification. A class that is a Reader declares
//
//   const char* opens(const std::string& path);     // optional; text as tsr_reader_paths::opens gives it
//   const char* describe(const std::string& path);  // optional; text as tsr_reader_paths::describe gives it
//   const void* extension(std::string_view id) const { return paths_extension<Mine>(id); }
#pragma once

#include <string>
#include <string_view>

#include "tessera/abi/draft/reader_paths.h"
#include "tessera/sdk/error.h"

namespace tessera::sdk {
inline namespace v1 {

// True for s3://bucket/file and the like. Readers of files refuse such a path.
inline bool is_url(std::string_view path) { return path.find("://") != path.npos; }

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
