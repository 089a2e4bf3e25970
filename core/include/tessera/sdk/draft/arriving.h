// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/draft/arriving.h - readers of endless arriving rows.
//
// abi/draft/arriving.h is the specification. A class derives from ArrivingReader, which is a Reader without blocks, and
// declares
//
//   const void* extension(std::string_view id) const { return arriving_extension<Mine>(id); }
//
// A reader of files that can also read a pipe derives from it too, keeps its blocks, and returns
// pipe_extension<Mine>(id). One that may leave out rows has skip(row, why), and adds skips_extension<Mine>(id).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/abi/draft/arriving.h"
#include "tessera/sdk/draft/reader.h"

namespace tessera::sdk {
inline namespace v1 {

// The result of one call. Its memory belongs to the reader and is valid until the next call.
struct Arrived {
  int64_t rows = 0, first_row = 0;
  bool last = false;
  const char* where = "";
  const double* times = nullptr;
  std::span<const tsr_reader_values> values;  // one for each selected column; empty: no rows
};

namespace detail {
template <class C>
struct ArrivingTable;
}

class ArrivingReader : public Reader {
 public:
  // `position` is empty at the beginning.
  virtual void follow(std::string_view path, std::string_view position) = 0;
  virtual Arrived next(int64_t most, double wait_s) = 0;
  virtual std::string position() const = 0;

  // Rows without an end have no list of blocks.
  void open(std::string_view, int64_t) override {
    fail(TSR_UNIMPLEMENTED, "its rows arrive without end: only tessera train reads them");
  }
  const std::vector<std::string>& files() const override { return no_files_; }
  const std::vector<ReaderBlock>& blocks() const override { return no_blocks_; }
  std::span<const tsr_reader_values> read(int64_t) override { return {}; }

 private:
  template <class C>
  friend struct detail::ArrivingTable;
  std::string position_text_;  // for the C table
  std::vector<std::string> no_files_;
  std::vector<ReaderBlock> no_blocks_;
};

namespace detail {

template <class C>
struct ArrivingTable {
  static ArrivingReader& of(void* self) { return *static_cast<C*>(self); }
  static tsr_code follow(void* self, const tsr_reader_source* given, const char* position, tsr_error* err) noexcept {
    return guard(err, [&] {
      const tsr_reader_source source = read_struct(*given);
      check_flags(source.flags, 0, "what is to be read");
      of(self).follow(source.path, position == nullptr ? "" : position);
    });
  }
  static tsr_code next(void* self, int64_t most, double wait_s, uint32_t stride, tsr_reader_values* values,
                       tsr_reader_arrived* out, tsr_error* err) noexcept {
    return guard(err, [&] {
      if (most < 1) fail(TSR_INVALID_ARGUMENT, "at most ", most, " rows are asked for");
      const Arrived got = of(self).next(most, wait_s);
      for (const tsr_reader_values& v : got.values) {
        write_struct(v, values);
        values = reinterpret_cast<tsr_reader_values*>(reinterpret_cast<char*>(values) + stride);
      }
      const uint32_t flags = got.last ? uint32_t{TSR_ARRIVED_LAST} : 0u;
      write_struct(tsr_reader_arrived{sizeof(tsr_reader_arrived), flags, got.rows, got.first_row, got.where, got.times},
                   out);
    });
  }
  static tsr_code position(void* self, const char** text, tsr_error* err) noexcept {
    return guard(err, [&] {
      ArrivingReader& reader = of(self);
      reader.position_text_ = reader.position();
      *text = reader.position_text_.c_str();
    });
  }
  static constexpr tsr_reader_arriving kTable{sizeof(tsr_reader_arriving), 0, &follow, &next, &position};
};

template <class C>
struct SkipsTable {
  static tsr_code skip(void* self, int64_t row, const char* why, tsr_error* err) noexcept {
    return guard(err, [&] { static_cast<C*>(self)->skip(row, why); });
  }
  static constexpr tsr_reader_skips kTable{sizeof(tsr_reader_skips), 0, &skip};
};

}  // namespace detail

// The result of a reader's extension(); NULL: another id.
template <class C>
const void* arriving_extension(std::string_view id) {
  return id == TSR_READER_ARRIVING ? &detail::ArrivingTable<C>::kTable : nullptr;
}
template <class C>
const void* pipe_extension(std::string_view id) {
  return id == TSR_READER_PIPE ? &detail::ArrivingTable<C>::kTable : nullptr;
}
template <class C>
const void* skips_extension(std::string_view id) {
  return id == TSR_READER_SKIPS ? &detail::SkipsTable<C>::kTable : nullptr;
}

}  // namespace v1
}  // namespace tessera::sdk
