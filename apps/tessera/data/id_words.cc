#include "data/id_words.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "data/toml_text.h"
#include "tessera/error.h"
#include "tessera/sdk/number_text.h"
#include "tessera/sdk/values.h"

namespace tessera::cli {
namespace {

bool is_written_digit(char c) { return c >= '0' && c <= '9'; }

// True for 007; false for 7, 0 and 0.5.
bool has_zeros_in_front(std::string_view text) {
  return text.size() > 1 && text[0] == '0' && std::all_of(text.begin(), text.end(), is_written_digit);
}

// Names two values that are one number and two words.
std::string notations_note(const ColumnSeen& c) {
  const auto is_plain =
      [](const std::string& word) {  // two of these are two numbers, even if a double has one for both
        return !word.empty() && std::all_of(word.begin(), word.end(), is_written_digit);
      };
  std::map<double, std::string> words;
  for (const ListText::Value& v : c.values) {
    const std::string_view text = sdk::trimmed(v.text);
    const auto number = sdk::number_of(text);
    std::string word;
    sdk::append_word(word, text);
    if (!number || word == "true" || word == "false") continue;
    const auto [first, fresh] = words.try_emplace(*number, word);
    if (!fresh && first->second != word && !(is_plain(first->second) && is_plain(word)))
      return comment(str_cat(quoted(first->second), " and ", quoted(word),
                             " are one number and two ids. Write one notation into the file if they mean the same."));
  }
  return {};
}

// Names the word of a category that other programs read as a missing value.
std::string null_word_note(const ColumnSeen& c) {
  for (const ListText::Value& v : c.values) {
    const std::string_view text = sdk::trimmed(v.text);
    const bool letters = text.find_first_of("aA") != std::string_view::npos || text.size() > 2;
    if (!letters || !sdk::is_missing_word(text)) continue;
    return comment(str_cat(quoted(v.text), " is a category of its own, in ", v.count, " of ", c.fields,
                           " rows. pandas reads such a word as a null, which has no id here: if it stands for a "
                           "missing value, leave these fields empty."));
  }
  return {};
}

}  // namespace

bool is_padded(const ColumnSeen& c) {
  if (c.form != Form::kNumbers || c.list || c.values.empty()) return false;
  const size_t width = sdk::trimmed(c.values.front().text).size();
  bool same_width = true;
  int64_t all = 0, padded = 0;
  for (const ListText::Value& v : c.values) {
    const std::string_view text = sdk::trimmed(v.text);
    if (!std::all_of(text.begin(), text.end(), is_written_digit)) return false;
    same_width = same_width && text.size() == width;
    all += v.count;
    padded += has_zeros_in_front(text) ? v.count : 0;
  }
  return padded > 0 && (same_width || 2 * padded >= all);
}

std::string id_words_note(const ColumnSeen& c) {
  if (const std::string& word = c.items.missing_word(); c.form == Form::kLists && !word.empty())
    return comment(str_cat(quoted(word),
                           " is an item of its own in these lists. If it stands for a missing one, leave "
                           "it out of the file."));
  if (c.list) return {};
  if (c.form == Form::kTexts && c.numbers_among == 0 && c.times_among == 0) return null_word_note(c);
  if (c.form != Form::kNumbers) return {};
  if (!is_padded(c)) return notations_note(c);
  const auto first = std::find_if(c.values.begin(), c.values.end(),
                                  [](const ListText::Value& v) { return has_zeros_in_front(sdk::trimmed(v.text)); });
  return comment(str_cat("An id such as ", quoted(first->text),
                         " has its zeros. As a number, in a request or read by pandas without dtype = str, it loses "
                         "them and is another id."));
}

}  // namespace tessera::cli
