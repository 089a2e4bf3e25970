// tessera/sdk/nearest.h - finds the known name that was probably meant, for errors about unknown names.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace tessera::sdk {
inline namespace v1 {

// Returns the least number of letters to insert, delete, replace or swap with their neighbour.
inline size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

// True if `whole` has the letters of `name` in order, starting with the first: "lr" shortens "learning_rate".
inline bool shortens(std::string_view name, std::string_view whole) {
  if (name.empty() || !whole.starts_with(name[0])) return false;
  size_t found = 0;
  for (const char c : whole) found += found < name.size() && c == name[found];
  return found == name.size();
}

// Letters to change, or 1 more than those that turn it into a prefix: "cash" is 2 from "cache_mib", and 4 from "io".
inline size_t name_distance(std::string_view name, std::string_view known) {
  return std::min(edit_distance(name, known), edit_distance(name, known.substr(0, name.size())) + 1);
}

inline bool shares_letters(std::string_view name, std::string_view known) {
  return name.find_first_of(known) != std::string_view::npos;
}

// Returns the first of the nearest names; "": there are no names. A slip ("mpl", "mlp") is nearer than an abbreviation,
// and that is nearer than other names. Names without a common letter are farthest.
inline std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  const auto distance = [&](const std::string& to) {
    const bool slip = name.size() > 2 && edit_distance(name, to) < 2;
    return std::tuple(!slip, !shortens(name, to), !shares_letters(name, to), name_distance(name, to));
  };
  const auto best = std::min_element(known.begin(), known.end(),
                                     [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  return best == known.end() ? std::string() : *best;
}

// Returns "a, b, c". `text` takes an item's text, as &Table::name does.
template <class Items, class Text = std::identity>
std::string joined(const Items& items, Text text = {}) {
  std::string out;
  for (const auto& item : items) (out += out.empty() ? "" : ", ") += std::invoke(text, item);
  return out;
}

// Returns `; the nearest is "auc"`, the end of a sentence about an unknown name; "": no name is known.
inline std::string nearest_text(std::string_view name, const std::vector<std::string>& known) {
  return known.empty() ? "" : "; the nearest is \"" + nearest_name(name, known) + '"';
}

// Returns `there is no metric "acu"; the nearest is "auc"`.
inline std::string unknown_name(std::string_view kind, std::string_view name, const std::vector<std::string>& known) {
  return ((("there is no " + std::string(kind) + " \"") += name) += '"') + nearest_text(name, known);
}

}  // namespace v1
}  // namespace tessera::sdk
