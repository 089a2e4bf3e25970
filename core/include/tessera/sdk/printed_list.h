// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/printed_list.h - lists as programs print them: array([3, 17]), List(3, 17), [np.int64(3)].
//
// Everything here is [any-thread], and nothing allocates.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace tessera::sdk {
inline namespace v1 {

// The list in brackets inside a text such as array([3, 17], dtype=int64), deque([3]), set(), List(3, 17) of Scala or
// c("a", "b") of R. Empty: the text is something else.
inline std::string_view list_inside(std::string_view text) {
  constexpr std::array<std::string_view, 18> kNames = {
      "array", "np.array", "numpy.array", "deque",  "frozenset", "set",    "tuple",        "list",     "List",
      "Array", "Seq",      "Set",         "Vector", "c",         "Series", "WrappedArray", "ArraySeq", "ArrayBuffer"};
  const size_t open = text.find('(');
  if (open == std::string_view::npos || !text.ends_with(')')) return {};
  if (std::find(kNames.begin(), kNames.end(), text.substr(0, open)) == kNames.end()) return {};
  const std::string_view in_parentheses = text.substr(open);
  std::string_view inside = in_parentheses.substr(1, in_parentheses.size() - 2);
  const size_t first = inside.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || (inside[first] != '[' && inside[first] != '{' && inside[first] != '('))
    return in_parentheses;
  const size_t last = inside.rfind(inside[first] == '[' ? ']' : inside[first] == '{' ? '}' : ')');
  if (last == std::string_view::npos || last < first) return {};
  // After the list, NumPy and Python print dtype=int64 and maxlen=3.
  const std::string_view rest = inside.substr(last + 1);
  if (rest.find_first_not_of(" \t\r\n") != std::string_view::npos && rest.find('=') == std::string_view::npos)
    return in_parentheses;
  return inside.substr(first, last + 1 - first);
}

// The value inside an item such as np.int64(3), np.str_('a') or Decimal('1.5'); otherwise the item itself.
inline std::string_view item_inside(std::string_view item) {
  constexpr std::array<std::string_view, 4> kNames = {"np.", "numpy.", "Decimal(", "UUID("};
  const bool known = item.ends_with(')') && std::any_of(kNames.begin(), kNames.end(),
                                                        [&](std::string_view name) { return item.starts_with(name); });
  const size_t open = item.find('(');
  if (!known || open == std::string_view::npos) return item;
  return item.substr(open + 1, item.size() - open - 2);
}

}  // namespace v1
}  // namespace tessera::sdk
