// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/other_columns.h - a reader's message about a missing column: it lists the columns that exist.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/sdk/nearest.h"

namespace tessera::sdk {
inline namespace v1 {

// Returns `; the nearest is "film", and there are "film", "user" and 3 others`, nearest first, a dozen at most.
inline std::string other_columns(std::string_view name, const std::vector<std::string>& known) {
  constexpr size_t kMost = 12;
  if (known.empty()) return "; it has none at all";
  std::vector<std::string> left = known;
  const std::string nearest = nearest_name(name, left);
  std::stable_sort(left.begin(), left.end(), [&, many = left.size() > 1000](const auto& a, const auto& b) {
    if ((a == nearest) != (b == nearest)) return a == nearest;
    return !many && name_distance(name, a) < name_distance(name, b);
  });
  std::string out = "; the nearest is \"" + nearest + "\", and there are ";
  const size_t shown = std::min(left.size(), kMost);
  for (size_t i = 0; i < shown; ++i) out += (i == 0 ? "\"" : ", \"") + left[i] + '"';
  if (left.size() > shown) out += " and " + std::to_string(left.size() - shown) + " others";
  return out;
}

}  // namespace v1
}  // namespace tessera::sdk
