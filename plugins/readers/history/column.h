// The values of one column, which the reader histories collects one by one.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/sdk/draft/reader.h"

namespace tessera_readers {

inline std::string_view text_at(const tsr_reader_values& v, int64_t i) {
  return {static_cast<const char*>(v.values) + v.texts[i], static_cast<size_t>(v.texts[i + 1] - v.texts[i])};
}

// The word of a text (tessera/sdk/values.h), by which users, items and actions are compared: 4, 4.0 and "4" are one.
class TextWord {
 public:
  // Valid until the next call, and as long as `text` is.
  std::string_view of(std::string_view text);

 private:
  std::string word_;
};

// Texts and their numbers 0, 1, ... in order of arrival.
class TextNumbers {
 public:
  uint32_t number(std::string_view text);
  std::string_view text(uint32_t number) const { return texts_[number]; }
  size_t size() const { return texts_.size(); }

 private:
  std::deque<std::string> texts_;  // the keys of numbers_ are views of these
  std::unordered_map<std::string_view, uint32_t> numbers_;
};

class HistoryColumn {
 public:
  explicit HistoryColumn(int32_t type) : type_(type) {}

  // Forgets all rows. `lists`: the next ones have lists of values.
  void start(bool lists);
  // Adds row `row` of `v`, which has the same type.
  void copy(const tsr_reader_values& v, int64_t row);
  // Adds a value that cell_of() made. After the values of a list comes end_list().
  void add_cell(uint64_t cell, const TextNumbers& texts);
  void add(std::string_view text);
  void add(int64_t value) { integers_.push_back(value); }
  void end_list() { list_ends_.push_back(size()); }
  tsr_reader_values values() const;

 private:
  int64_t size() const;
  void copy_value(const tsr_reader_values& v, int64_t i);

  int32_t type_;
  bool lists_ = false, weighted_ = false;
  std::vector<float> floats_, weights_;
  std::vector<double> doubles_;
  std::vector<int64_t> integers_, list_ends_, text_ends_;
  std::string text_;
  std::vector<uint8_t> present_;
};

// Returns value i in 64 bits; for a text its number.
uint64_t cell_of(const tsr_reader_values& v, int32_t type, int64_t i, TextNumbers& texts);

}  // namespace tessera_readers
