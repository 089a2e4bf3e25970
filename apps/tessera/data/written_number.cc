#include "data/written_number.h"

#include <algorithm>
#include <array>

#include "tessera/sdk/fields.h"

namespace tessera::cli {
namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }

// Signs of currency and of fractions. A blank or an apostrophe groups digits, or stands next to a sign.
constexpr std::array<std::string_view, 12> kSigns = {
    "$", "€", "£", "¥", "₹", "%", "‰", "\xc2\xa0", "\xe2\x80\xaf", "\xe2\x80\x89", "'", "\xe2\x80\x99"};

// Removes the signs from `text` and returns them.
std::string take_signs(std::string& text) {
  std::string out;
  for (const std::string_view sign : kSigns) {
    for (size_t at = 0; (at = text.find(sign)) != std::string::npos;) {
      text.erase(at, sign.size());
      if (out.find(sign) == std::string::npos) out += sign;
    }
  }
  return out;
}

// True if each `separator` follows one to three digits or a group, and precedes exactly three digits.
bool groups_in_threes(std::string_view text, char separator) {
  if (text.starts_with("-") || text.starts_with("+")) text.remove_prefix(1);
  size_t before = 0;
  while (before < text.size() && digit(text[before])) ++before;
  if (before < 1 || before > 3 || text[0] == '0') return false;  // 0,238 has a decimal comma
  text.remove_prefix(before);
  bool any = false;
  while (text.starts_with(separator)) {
    text.remove_prefix(1);
    size_t group = 0;
    while (group < text.size() && digit(text[group])) ++group;
    if (group != 3) return false;
    text.remove_prefix(group);
    any = true;
  }
  return any && (text.empty() || text[0] == '.' || text[0] == ',');
}

void take_out(std::string& text, char c) { text.erase(std::remove(text.begin(), text.end(), c), text.end()); }

void trim(std::string& text) {
  text.erase(0, text.find_first_not_of(" \t"));
  text.erase(text.find_last_not_of(" \t") + 1);
}

// The marks that the texts have between their digits.
struct Marks {
  std::string signs;
  bool blanks = false, commas = false, points = false;
  bool comma_groups = true, point_groups = true;  // true if every such mark separates groups of three
  bool one_comma = true;
  bool many_points = false;  // a text has several
};

// Finds out if texts with a decimal comma could be two ids each. Ids have no zeros in front.
void look_for_ids(const std::vector<std::string>& texts, WrittenNumber& out) {
  size_t shortest = std::string::npos, longest = 0;
  bool zero_at_end = false;
  for (const std::string& text : texts) {
    const size_t comma = text.find(',');
    const std::string_view after = comma == std::string::npos ? "" : std::string_view(text).substr(comma + 1);
    if (comma == 0 || after.empty() || text.find_first_not_of("0123456789,") != std::string::npos) return;
    if ((after.size() > 1 && after[0] == '0') || (comma > 1 && text[0] == '0')) return;
    shortest = std::min(shortest, after.size()), longest = std::max(longest, after.size());
    zero_at_end = zero_at_end || (after.size() > 1 && after.back() == '0');
  }
  out.two_ids = true;
  out.likely_ids = zero_at_end && shortest < longest;
}

// Returns false if a text is not a number.
bool look(std::string text, Marks& m) {
  const std::string signs = take_signs(text);
  for (const std::string_view sign : kSigns) {
    if (signs.find(sign) != std::string::npos && m.signs.find(sign) == std::string::npos) m.signs += sign;
  }
  if (!signs.empty() && text.find(' ') != std::string::npos) m.blanks = true;
  trim(text);
  if (text.find(' ') != std::string::npos) {
    if (!groups_in_threes(text, ' ')) return false;
    m.blanks = true;
    take_out(text, ' ');
  }
  const auto commas = std::count(text.begin(), text.end(), ',');
  const auto points = std::count(text.begin(), text.end(), '.');
  if (commas > 0) {
    m.commas = true;
    m.comma_groups = m.comma_groups && groups_in_threes(text, ',');
    m.one_comma = m.one_comma && commas == 1;
  }
  if (points > 0) {
    m.points = true;
    m.point_groups = m.point_groups && groups_in_threes(text, '.');
    m.many_points = m.many_points || points > 1;
  }
  return std::any_of(text.begin(), text.end(), digit) && std::all_of(text.begin(), text.end(), [](char c) {
           return digit(c) || c == ',' || c == '.' || c == '-' || c == '+' || c == 'e' || c == 'E';
         });
}

}  // namespace

std::optional<double> WrittenNumber::read(std::string_view text) const {
  std::string plain;
  for (const char c : text) {
    if (strip.find(c) != std::string::npos) continue;
    if (c == '.' && !decimal.empty()) return std::nullopt;
    plain += !decimal.empty() && c == decimal[0] ? '.' : c;
  }
  trim(plain);
  if (plain.starts_with("+")) plain.erase(0, 1);
  double value = 0;
  if (!sdk::parse_number(plain, value)) return std::nullopt;
  return value;
}

std::optional<WrittenNumber> written_numbers(const std::vector<std::string>& texts) {
  Marks marks;
  for (const std::string& text : texts) {
    if (!look(text, marks)) return std::nullopt;
  }
  WrittenNumber out;
  out.strip = marks.signs;
  if (marks.blanks) out.strip += ' ';
  // 45,300 beside 45.300: one of the two is no grouped number, and nothing tells which.
  if (marks.commas && marks.comma_groups && marks.points && marks.point_groups) return std::nullopt;
  if (marks.commas && marks.comma_groups) {
    out.strip += ',';
    out.ambiguous = marks.one_comma && !marks.points;
  } else if (marks.commas) {
    if (!marks.point_groups) return std::nullopt;  // points and commas both separate fractions: two notations
    out.decimal = ",";
    if (marks.points) out.strip += '.';
    if (out.strip.empty()) look_for_ids(texts, out);
  } else if (marks.many_points && marks.point_groups) {
    out.decimal = ",";
    out.strip += '.';
  }
  if (out.strip.empty() && out.decimal.empty()) return std::nullopt;
  const bool all = !texts.empty() && std::all_of(texts.begin(), texts.end(),
                                                 [&](const std::string& t) { return out.read(t).has_value(); });
  return all ? std::optional(out) : std::nullopt;
}

}  // namespace tessera::cli
