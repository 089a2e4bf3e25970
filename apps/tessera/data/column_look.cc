#include "data/column_look.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "data/line_reader.h"

namespace tessera::cli {
namespace {

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// What programs write where they have no number; the text readers take these with missing_words=true.
bool is_missing_word(std::string_view text) {
  constexpr std::array<std::string_view, 7> kWords = {"na", "n/a", "nan", "null", "none", "?", "-"};
  constexpr size_t kLongest = 4;
  if (text.size() > kLongest) return false;
  std::string lower(text);
  std::transform(text.begin(), text.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::find(kWords.begin(), kWords.end(), lower) != kWords.end();
}

// The id of "id:0.5"; empty: it has no weight.
std::string_view id_with_weight(std::string_view item) {
  const size_t colon = item.rfind(':');
  double weight = 0;
  if (colon == item.npos || !data::parse_number(trimmed(item.substr(colon + 1)), weight)) return {};
  return item.substr(0, colon);
}

// False where it is new, and there is no place.
bool count(std::string_view text, std::unordered_map<std::string, int64_t>& counts, int64_t times = 1) {
  std::string key(text);
  if (counts.size() >= ColumnSeen::kMostDistinct && !counts.contains(key)) return false;
  counts[std::move(key)] += times;
  return true;
}

void count_ids(const std::unordered_map<std::string, int64_t>& counts, ColumnSeen& seen) {
  const auto once = std::count_if(counts.begin(), counts.end(), [](const auto& c) { return c.second == 1; });
  seen.ids = counts.size(), seen.once = static_cast<size_t>(once);
}

}  // namespace

ColumnLook::ColumnLook(std::string name, bool list, bool weighted) {
  seen_.name = std::move(name), seen_.list = list, seen_.weighted = weighted;
}

void ColumnLook::add(std::string_view field) {
  ++seen_.fields;
  if (field.empty()) {
    ++seen_.missing;
  } else if (is_missing_word(field)) {
    ++missing_words_[std::string(field)];
  } else {
    if (double value = 0; data::parse_number(field, value)) add_number(value);
    seen_.more = !count(field, fields_) || seen_.more;
    for (Items& items : items_) add_items(field, items);
  }
}

void ColumnLook::add_number(double value) {
  if (seen_.numbers++ == 0) seen_.least = seen_.most = value;
  seen_.least = std::min(seen_.least, value);
  seen_.most = std::max(seen_.most, value);
  seen_.sum += value;
  seen_.whole += value == std::floor(value) ? 1 : 0;
}

// As the readers cut: several blanks are one, another separator has an item on both sides.
void ColumnLook::add_items(std::string_view field, Items& items) {
  if (field.find(items.separator) == field.npos) {
    items.weighted_alone += id_with_weight(field).empty() ? 0 : 1;
    return;
  }
  ++items.fields;
  for (std::string_view rest = field; !data::finished(rest);) {
    const std::string_view item = trimmed(data::cut(rest, items.separator));
    if (item.empty()) {
      items.empty += items.separator == ' ' ? 0 : 1;
      continue;
    }
    const std::string_view id = id_with_weight(item);
    if (!id.empty() && items.weighted++ == items.all) count(id, items.ids);
    ++items.all;
    count(item, items.distinct);
  }
}

// A list's items come again, where a sentence's whole does not: with others, in other fields. Between blanks and commas
// there may be words of a name: of those there are far fewer than names, and whole names do not come again and again.
ColumnLook::Reading ColumnLook::reading(const Items& items, const ColumnSeen& seen, size_t wholes) {
  constexpr size_t kFarFewer = 4;
  constexpr size_t kAgain = 10;
  const int64_t there = seen.fields - seen.missing;
  if (items.fields == 0 || items.empty > 0) return Reading::kWhole;
  if (items.weighted == items.all && items.weighted_alone == there - items.fields) return Reading::kWeighted;
  if (4 * items.fields < there || 2 * items.distinct.size() > items.all) return Reading::kWhole;
  if (items.separator == '|' || items.separator == ';') return Reading::kList;
  if (kFarFewer * items.distinct.size() > wholes) return Reading::kWhole;
  const bool again = !seen.more && static_cast<size_t>(items.fields) >= kAgain * wholes;
  return items.separator == ' ' && again ? Reading::kEither : Reading::kList;
}

void ColumnLook::cut_into_items(ColumnSeen& seen, const Counts& fields) const {
  for (const Items& items : items_) {
    const auto wholes = static_cast<size_t>(std::count_if(
        fields.begin(), fields.end(), [&](const auto& f) { return f.first.find(items.separator) != f.first.npos; }));
    const Reading as = reading(items, seen, wholes);
    if (as == Reading::kEither) seen.other_separator = items.separator;
    if (as != Reading::kList && as != Reading::kWeighted) continue;
    seen.separator = items.separator;
    seen.wholes = wholes;
    seen.weighted = as == Reading::kWeighted;
    count_ids(seen.weighted ? items.ids : items.distinct, seen);
    return;
  }
}

ColumnSeen ColumnLook::seen(bool words_may_miss) const {
  ColumnSeen out = seen_;
  Counts fields = fields_;
  int64_t words = 0;
  for (const auto& [word, times] : missing_words_) words += times;
  if (words_may_miss && !out.list && out.numbers > 0 && out.numbers + words == out.fields - out.missing) {
    out.missing += words;
    for (const auto& [word, times] : missing_words_) out.missing_words.push_back(word);
  } else {
    for (const auto& [word, times] : missing_words_) out.more = !count(word, fields, times) || out.more;
  }
  for (const auto& [field, times] : fields) out.distinct.push_back(field);
  std::sort(out.distinct.begin(), out.distinct.end());
  count_ids(fields, out);
  if (!out.list && out.numbers < out.fields - out.missing) cut_into_items(out, fields);
  return out;
}

}  // namespace tessera::cli
