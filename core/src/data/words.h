// Turns texts of a column into words (tessera/sdk/values.h), which vocabularies and hashes look up.
#pragma once

#include <string>
#include <string_view>

#include "tessera/sdk/values.h"

namespace tessera::data {

class Words {
 public:
  // `canonical` is false for models that were trained before words existed. They look texts up unchanged.
  explicit Words(bool canonical) : canonical_(canonical) {}

  // The result is valid until the next call, and as long as `text` is.
  std::string_view of(std::string_view text) {
    if (!canonical_ || is_word(text)) return text;
    scratch_.clear();
    sdk::append_word(scratch_, text);
    return scratch_;
  }

 private:
  // True for nearly all texts that append_word() does not change.
  static bool is_word(std::string_view text) {
    if (text.empty()) return true;
    if (text[0] == 'T' || text[0] == 'F') return text.size() > 5;
    if (text[0] != '-' && !sdk::values_detail::digit(text[0])) return true;
    if (text == "-0") return false;
    const size_t begin = text[0] == '-' ? 1 : 0, end = begin + sdk::values_detail::digits_at(text, begin);
    return end == text.size() || (text[end] != '.' && text[end] != 'e' && text[end] != 'E' && text[end] != '-');
  }

  bool canonical_;
  std::string scratch_;
};

}  // namespace tessera::data
