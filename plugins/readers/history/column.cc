#include "history/column.h"

#include <bit>

#include "tessera/sdk/values.h"

namespace tessera_readers {

std::string_view TextWord::of(std::string_view text) {
  // Only a text that begins with one of these can have a word other than itself.
  const auto begins_value = [](char c) { return c == '-' || c == 'T' || c == 'F' || (c >= '0' && c <= '9'); };
  if (text.empty() || !begins_value(text[0])) return text;
  word_.clear();
  tessera::sdk::append_word(word_, text);
  return word_;
}

uint32_t TextNumbers::number(std::string_view text) {
  const auto found = numbers_.find(text);
  if (found != numbers_.end()) return found->second;
  const auto number = static_cast<uint32_t>(texts_.size());
  numbers_.emplace(texts_.emplace_back(text), number);
  return number;
}

void HistoryColumn::start(bool lists) {
  lists_ = lists;
  weighted_ = false;
  floats_.clear();
  weights_.clear();
  doubles_.clear();
  integers_.clear();
  text_.clear();
  present_.clear();
  list_ends_.assign(1, 0);
  text_ends_.assign(1, 0);
}

int64_t HistoryColumn::size() const {
  if (type_ == TSR_READER_TEXT) return static_cast<int64_t>(text_ends_.size()) - 1;
  if (type_ == TSR_READER_FLOAT32) return static_cast<int64_t>(floats_.size());
  return static_cast<int64_t>(type_ == TSR_READER_FLOAT64 ? doubles_.size() : integers_.size());
}

void HistoryColumn::add(std::string_view text) {
  text_ += text;
  text_ends_.push_back(static_cast<int64_t>(text_.size()));
}

void HistoryColumn::copy_value(const tsr_reader_values& v, int64_t i) {
  if (type_ == TSR_READER_TEXT)
    add(text_at(v, i));
  else if (type_ == TSR_READER_FLOAT32)
    floats_.push_back(static_cast<const float*>(v.values)[i]);
  else if (type_ == TSR_READER_FLOAT64)
    doubles_.push_back(static_cast<const double*>(v.values)[i]);
  else
    integers_.push_back(static_cast<const int64_t*>(v.values)[i]);
  if (v.weights != nullptr) weights_.push_back(v.weights[i]);
}

void HistoryColumn::copy(const tsr_reader_values& v, int64_t row) {
  weighted_ = v.weights != nullptr;
  if (!lists_) {
    copy_value(v, row);
    present_.push_back(v.present == nullptr ? uint8_t{1} : v.present[row]);
    return;
  }
  for (int64_t i = v.lists[row]; i < v.lists[row + 1]; ++i) copy_value(v, i);
  end_list();
}

void HistoryColumn::add_cell(uint64_t cell, const TextNumbers& texts) {
  if (type_ == TSR_READER_TEXT)
    add(texts.text(static_cast<uint32_t>(cell)));
  else if (type_ == TSR_READER_FLOAT32)
    floats_.push_back(std::bit_cast<float>(static_cast<uint32_t>(cell)));
  else if (type_ == TSR_READER_FLOAT64)
    doubles_.push_back(std::bit_cast<double>(cell));
  else
    integers_.push_back(static_cast<int64_t>(cell));
}

tsr_reader_values HistoryColumn::values() const {
  const bool text = type_ == TSR_READER_TEXT;
  const void* const values = text                          ? static_cast<const void*>(text_.data())
                             : type_ == TSR_READER_FLOAT32 ? static_cast<const void*>(floats_.data())
                             : type_ == TSR_READER_FLOAT64 ? static_cast<const void*>(doubles_.data())
                                                           : static_cast<const void*>(integers_.data());
  return {sizeof(tsr_reader_values),
          0,
          values,
          text ? text_ends_.data() : nullptr,
          lists_ ? list_ends_.data() : nullptr,
          weighted_ ? weights_.data() : nullptr,
          lists_ || present_.empty() ? nullptr : present_.data()};
}

uint64_t cell_of(const tsr_reader_values& v, int32_t type, int64_t i, TextNumbers& texts) {
  if (type == TSR_READER_TEXT) return texts.number(text_at(v, i));
  if (type == TSR_READER_FLOAT32) return std::bit_cast<uint32_t>(static_cast<const float*>(v.values)[i]);
  if (type == TSR_READER_FLOAT64) return std::bit_cast<uint64_t>(static_cast<const double*>(v.values)[i]);
  return static_cast<uint64_t>(static_cast<const int64_t*>(v.values)[i]);
}

}  // namespace tessera_readers
