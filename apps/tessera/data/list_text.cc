#include "data/list_text.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "tessera/sdk/fields.h"
#include "tessera/sdk/printed_list.h"
#include "tessera/sdk/values.h"

namespace tessera::cli {
namespace {

constexpr size_t kMostItems = 200000;  // bound on the different items that are counted

// The id in "id:0.5"; empty if the item has no weight.
std::string_view id_with_weight(std::string_view item) {
  const size_t colon = item.rfind(':');
  double weight = 0;
  if (colon == std::string_view::npos || !sdk::parse_number(trimmed(item.substr(colon + 1)), weight)) return {};
  return item.substr(0, colon);
}

void count(std::string_view text, int64_t times, std::unordered_map<std::string, int64_t>& counts) {
  std::string key(text);
  if (counts.size() >= kMostItems && !counts.contains(key)) return;
  counts[std::move(key)] += times;
}

// True for "[3, 17]" and for a set, "{3, 17}". Parentheses are a tuple's only if a blank follows a comma, because
// "(3,170)" is a negative number.
bool opens_list(std::string_view text) {
  const bool tuple = text == "()" || text.find(", ") != std::string_view::npos || text.ends_with(",)");
  return text.starts_with('[') || text.starts_with('{') || (text.starts_with('(') && text.ends_with(')') && tuple) ||
         !sdk::list_inside(text).empty();
}

std::string_view without_blanks(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::string_view without_quotes(std::string_view item) {
  item = sdk::item_inside(item);
  const bool prefixed = item.size() > 2 && std::string_view("uUbB").find(item[0]) != std::string_view::npos;
  if (prefixed && (item[1] == '"' || item[1] == '\'')) item.remove_prefix(1);
  if (item.size() > 1 && item.front() == item.back() && (item.front() == '"' || item.front() == '\''))
    return item.substr(1, item.size() - 2);
  return item;
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool list_in_brackets(std::string_view text, std::string_view& out) {
  text = trimmed(text);
  if (text.size() < 2 || !opens_list(text)) return false;
  if (const std::string_view list = sdk::list_inside(text); !list.empty()) text = list;
  if (text.back() != (text.front() == '[' ? ']' : text.front() == '{' ? '}' : ')')) return false;
  out = without_blanks(text.substr(1, text.size() - 2));
  const bool pairs = text.front() == '{' && out.find(':') != std::string_view::npos;
  return !pairs && out.find_first_of("[]{}") == std::string_view::npos;
}

namespace {

bool opens_bracket(std::string_view text) {
  const auto count = [&](std::string_view any) {
    return std::count_if(text.begin(), text.end(), [&](char c) { return any.find(c) != std::string_view::npos; });
  };
  return count("([{<") > count(")]}>");
}

// True for text with characters as HTML writes them, caf&eacute;, whose semicolons separate nothing.
bool has_entity(std::string_view text) {
  const size_t begin = text.find('&'), end = text.find(';', begin == std::string_view::npos ? text.size() : begin);
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin + 3 || end > begin + 9)
    return false;
  return std::all_of(text.begin() + static_cast<std::ptrdiff_t>(begin) + 1,
                     text.begin() + static_cast<std::ptrdiff_t>(end),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '#'; });
}

}  // namespace

// Splits as the readers do: consecutive blanks count as one, any other separator has an item on both sides.
ListText::Items ListText::cut(const std::vector<Value>& values, char separator) {
  Items out;
  for (const auto& [field, times, tail] : values) {
    if (field.find(separator) == std::string::npos || (separator == ';' && has_entity(field))) {
      out.weighted_alone += id_with_weight(field).empty() ? 0 : times;
      out.lengths.add(1, times);
      continue;
    }
    out.fields += times;
    ++out.wholes;
    out.unbalanced += opens_bracket(field.substr(0, field.find(separator))) ? times : 0;
    int64_t length = 0;
    for (std::string_view rest = field; !sdk::finished(rest);) {
      const std::string_view item = trimmed(sdk::cut(rest, separator));
      if (item.empty()) {
        out.empty += separator == ' ' ? 0 : times;
        continue;
      }
      ++length;
      const std::string_view id = id_with_weight(item);
      if (!id.empty()) {
        if (out.weighted == out.all) count(id, times, out.ids);
        out.weighted += times;
      }
      out.all += times;
      count(item, times, out.distinct);
    }
    out.lengths.add(static_cast<double>(length), times);
  }
  return out;
}

// Tells lists from sentences and names. A list's items occur again with others in other fields, while a whole sentence
// does not. The words of names are far fewer than the names, and whole names do not repeat often.
ListText::Reading ListText::reading(const Items& items, char separator, int64_t there, bool exact) {
  constexpr int64_t kFarFewer = 4;
  constexpr int64_t kAgain = 10;
  if (items.fields == 0 || items.empty > 0 || 2 * items.unbalanced > items.fields) return Reading::kWhole;
  if (items.weighted == items.all && items.weighted_alone == there - items.fields) return Reading::kWeighted;
  const auto distinct = std::ssize(items.distinct);
  if (4 * items.fields < there || 2 * distinct > items.all) return Reading::kWhole;
  if (separator == '|' || separator == ';') return Reading::kList;
  if (kFarFewer * distinct > items.wholes) return Reading::kWhole;
  const bool again = exact && items.fields >= kAgain * items.wholes;
  return separator == ' ' && again ? Reading::kEither : Reading::kList;
}

// Keeps a field whose list in brackets the readers refuse because of this item.
void ListText::look_for_no_item(std::string_view item, const std::string& field) {
  static constexpr std::array<std::string_view, 4> kNone = {"None", "null", "nan", "NaN"};
  if (std::find(kNone.begin(), kNone.end(), sdk::item_inside(item)) != kNone.end()) with_missing_ = field;
  if (item == "..." || item.find(" ... ") != std::string_view::npos) cut_off_ = field;
}

// Returns true if most fields begin with a bracket.
bool ListText::take_brackets(const std::vector<Value>& values) {
  int64_t all = 0, opened = 0, lists = 0, several = 0, commas = 0;
  for (const auto& [text, times, tail] : values) {
    const std::string_view field = trimmed(text);
    all += times;
    opened += opens_list(field) ? times : 0;
    std::string_view inside;
    if (!list_in_brackets(field, inside)) continue;
    lists += times;
    commas += inside.find(',') != std::string_view::npos ? times : 0;
    several += inside.find_first_of(", ") != std::string_view::npos ? times : 0;
  }
  if (2 * opened <= all) return false;
  if (lists < opened) {
    nested_ = true;
    return true;
  }
  bracketed_ = true;
  const char separator = commas == 0 && several > 0 ? ' ' : ',';  // numpy separates by blanks
  Items items;
  for (const auto& [text, times, tail] : values) {
    std::string_view inside = text;
    list_in_brackets(text, inside);
    int64_t length = 0;
    for (std::string_view rest = inside; !sdk::finished(rest);) {
      const std::string_view written = without_blanks(sdk::cut(rest, separator)), item = without_quotes(written);
      look_for_no_item(written, text);
      const bool quoted_nothing = item.empty() && !written.empty(), ends = sdk::finished(rest);
      if (quoted_nothing || (written.empty() && separator == ',' && !ends)) with_missing_ = text;
      if (item.empty()) continue;
      ++length;
      items.all += times;
      count(item, times, items.distinct);
    }
    items.wholes += length > 1 ? 1 : 0;
    items.lengths.add(static_cast<double>(length), times);
  }
  take(items, separator, false);
  return true;
}

void ListText::take(const Items& items, char separator, bool weighted) {
  const Counts& counts = weighted ? items.ids : items.distinct;
  separator_ = separator;
  weighted_ = weighted;
  wholes_ = items.wholes;
  distinct_ = std::ssize(counts);
  once_ = std::count_if(counts.begin(), counts.end(), [](const auto& c) { return c.second == 1; });
  lengths_ = items.lengths;
  for (const auto& [item, rows] : counts) {
    const bool letters = item.find_first_of("aA") != std::string::npos || item.size() > 2;
    if (!bracketed_ && letters && sdk::is_missing_word(item)) missing_word_ = std::max(missing_word_, item);
  }
}

ListText::ListText(const std::vector<Value>& values, int64_t there, bool exact) {
  if (take_brackets(values)) return;
  int64_t seen = 0;
  for (const Value& v : values) seen += v.count;
  if (seen == 0) return;
  there = std::min(there, seen);
  // The last ones are what Hive and exports of databases put between items.
  constexpr std::array<char, 10> kSeparators = {'|', ';', ',', ' ', '\x01', '\x02', '\t', '\n', '~', '^'};
  for (const char separator : kSeparators) {
    const Items items = cut(values, separator);
    const Reading as = reading(items, separator, there, exact);
    if (as == Reading::kEither) other_separator_ = separator;
    if (as != Reading::kList && as != Reading::kWeighted) continue;
    take(items, separator, as == Reading::kWeighted);
    return;
  }
  if (other_separator_ == 0) find_parts(values, there);
}

// Looks for parts that repeat in most fields, as in a/b/c, a+b, a||b and a;b; with an empty part at its end.
void ListText::find_parts(const std::vector<Value>& values, int64_t there) {
  constexpr int64_t kFarFewer = 4;
  for (const std::string_view separator : {"||", "|", ";", "/", "+", "&", ":", "-", "_"}) {
    int64_t fields = 0, wholes = 0;
    bool gaps = false;
    Counts parts;
    for (const auto& [field, times, tail] : values) {
      const std::string_view text = field;
      if (text.find(separator) == std::string_view::npos || has_entity(text)) continue;
      fields += times;
      ++wholes;
      for (size_t at = 0; at <= text.size();) {
        const size_t end = std::min(text.find(separator, at), text.size());
        const std::string_view part = trimmed(text.substr(at, end - at));
        gaps = gaps || part.empty();
        if (!part.empty()) count(part, 1, parts);
        at = end + separator.size();
      }
    }
    constexpr int64_t kMany = 50;
    if (4 * fields < there || wholes < kMany || kFarFewer * std::ssize(parts) > wholes) continue;
    parts_separator_ = separator;
    gaps_ = gaps;
    return;
  }
}

}  // namespace tessera::cli
