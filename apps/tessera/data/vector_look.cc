#include "data/vector_look.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "data/list_text.h"
#include "tessera/sdk/fields.h"
#include "tessera/sdk/printed_list.h"
#include "tessera/sdk/values.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kBetween = " \t\r\n";

// The next item of a list. Consecutive blanks count as one; another separator has an item on both sides.
std::string_view next_item(std::string_view& rest, char separator) {
  if (separator == ' ') rest.remove_prefix(std::min(rest.find_first_not_of(kBetween), rest.size()));
  const size_t end = std::min(separator == ' ' ? rest.find_first_of(kBetween) : rest.find(separator), rest.size());
  std::string_view item = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  item.remove_prefix(std::min(item.find_first_not_of(kBetween), item.size()));
  item = item.substr(0, item.find_last_not_of(kBetween) + 1);
  return sdk::item_inside(item);
}

}  // namespace

// Adds the numbers of one row. Returns false if an item is something else.
bool VectorLook::take(std::string_view text, char separator) {
  int64_t items = 0, pointed = 0, parts = 0, broken = 0;
  double smallest = seen_.smallest, largest = seen_.largest;
  bool any = any_;
  while (!text.empty()) {
    const bool ends = text.find_first_not_of(kBetween) == std::string_view::npos;
    if (separator == ' ' && ends) break;
    std::string_view item = next_item(text, separator);
    ++items;
    if (item.starts_with('+')) item.remove_prefix(1);
    double value = 0;
    if (!sdk::parse_number(item, value)) {
      if (!sdk::is_missing_word(item)) return false;  // one of them is inf
      ++broken;
      continue;
    }
    if (std::abs(value) > std::numeric_limits<float>::max()) {
      ++broken;
      continue;
    }
    pointed += item.find_first_of(".eE") != std::string_view::npos ? 1 : 0;
    parts += value != std::floor(value) ? 1 : 0;
    smallest = any ? std::min(smallest, value) : value;
    largest = any ? std::max(largest, value) : value;
    any = true;
    seen_.numbers.add(value);
  }
  if (items == 0) {
    ++seen_.empty;
    return true;
  }
  seen_.least = seen_.rows == 0 ? items : std::min(seen_.least, items);
  seen_.most = std::max(seen_.most, items);
  ++seen_.rows;
  seen_.smallest = smallest, seen_.largest = largest, any_ = any;
  seen_.broken += broken;
  items_ += items, pointed_ += pointed, parts_ += parts;
  return true;
}

// Chooses the notation by the first field.
bool VectorLook::begin(std::string_view field) {
  std::string_view inside;
  seen_.bracketed = list_in_brackets(field, inside);
  if (seen_.bracketed) return take(inside, inside.find(',') != std::string_view::npos ? ',' : ' ');
  for (const char separator : {'|', ';', ',', ' ', '\x01', '\x02', '~', '^'}) {
    if (field.find(separator) == std::string_view::npos) continue;
    seen_.separator = separator;
    return take(field, separator);
  }
  return false;
}

void VectorLook::add(std::string_view field) {
  if (failed_) return;
  field = trimmed(field);
  if (field.empty() || sdk::is_missing_word(field)) {
    field.empty() ? ++seen_.empty : ++seen_.broken;
    return;
  }
  if (seen_.rows == 0) {
    failed_ = !begin(field);
    return;
  }
  std::string_view inside = field;
  failed_ = list_in_brackets(field, inside) != seen_.bracketed ||
            !take(inside, !seen_.bracketed                             ? seen_.separator
                          : inside.find(',') != std::string_view::npos ? ','
                                                                       : ' ');
}

VectorSeen VectorLook::seen() const {
  constexpr int64_t kFewest = 2;  // rows and values from which a list is more than a coincidence
  if (failed_ || seen_.rows < kFewest || seen_.most < kFewest || parts_ == 0) return {};
  // Without brackets, "1,234.5" is one number.
  if (!seen_.bracketed && 2 * pointed_ <= items_) return {};
  return seen_;
}

}  // namespace tessera::cli
