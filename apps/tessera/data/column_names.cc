#include "data/column_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "data/odd_texts.h"
#include "data/toml_text.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

constexpr double kDaySeconds = 86400;

struct NamedUnit {
  EpochUnit unit;
  std::array<std::string_view, 6> words;  // that a name ends in
};
constexpr std::array<NamedUnit, 4> kUnits = {{
    {{1, "seconds"}, {"s", "sec", "secs", "second", "seconds", "unix"}},
    {{1e3, "milliseconds"}, {"ms", "msec", "milli", "millis", "millisecond", "milliseconds"}},
    {{1e6, "microseconds"}, {"us", "usec", "micro", "micros", "microsecond", "microseconds"}},
    {{1e9, "nanoseconds"}, {"ns", "nsec", "nano", "nanos", "nanosecond", "nanoseconds"}},
}};

bool among(const auto& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The unit in which all numbers lie within the years; null if there is none. Bounds are in seconds since 1970.
const EpochUnit* unit_within(const std::string& name, double least, double most, double first, double last) {
  const std::vector<std::string> words = words_of(name);
  const std::string end = words.empty() ? "" : words.back();
  const bool names_unit = std::any_of(kUnits.begin(), kUnits.end(), [&](const auto& u) { return among(u.words, end); });
  for (const NamedUnit& u : kUnits) {
    if (names_unit && !among(u.words, end)) continue;
    if (least >= first * u.unit.per_second && most <= last * u.unit.per_second) return &u.unit;
  }
  return nullptr;
}

std::string years_of(const ColumnSeen& c, const EpochUnit& unit) {
  const double per_day = kDaySeconds * unit.per_second;
  return str_cat(unit.name, " since 1970: ", date_text(c.numbers.least() / per_day), " to ",
                 date_text(c.numbers.most() / per_day));
}

}  // namespace

std::vector<std::string> words_of(const std::string& name) {
  std::vector<std::string> out(1);
  for (size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    const bool begins = std::isupper(c) != 0 && i > 0 && std::islower(static_cast<unsigned char>(name[i - 1])) != 0;
    if (std::isalnum(c) == 0 || begins) out.emplace_back();
    if (std::isalnum(c) != 0) out.back() += static_cast<char>(std::tolower(c));
  }
  std::erase_if(out, [](const std::string& word) { return word.empty(); });
  return out;
}

bool named_as_id(const std::string& name) {
  static constexpr std::array<std::string_view, 7> kThings = {"user",    "item", "film", "movie",
                                                              "product", "zip",  "code"};
  // Words that end in "id" and are no ids, unlike userid and sessionid.
  static constexpr std::array<std::string_view, 40> kWords = {
      "bid",   "paid",  "prepaid", "unpaid", "repaid",  "overpaid", "underpaid", "valid",   "invalid",   "humid",
      "grid",  "covid", "acid",    "amid",   "mid",     "kid",      "lid",       "aid",     "raid",      "void",
      "avoid", "solid", "liquid",  "fluid",  "hybrid",  "rapid",    "rigid",     "vivid",   "android",   "centroid",
      "ovoid", "plaid", "maid",    "squid",  "thyroid", "steroid",  "asteroid",  "sigmoid", "trapezoid", "pyramid"};
  const std::string letters = name.substr(0, name.find_last_not_of("0123456789") + 1);  // user_id2
  const std::vector<std::string> words = words_of(letters);
  if (words.empty()) return false;
  const std::string_view word = words.back();
  if (words.front() == "id" || among(kThings, word) || word == "ids" || word.ends_with("code")) return true;
  return word.ends_with("id") && !among(kWords, word);
}

bool named_as_time(const std::string& name) {
  static constexpr std::array<std::string_view, 7> kWords = {"ts",       "at",    "created", "updated",
                                                             "modified", "epoch", "unix"};
  static constexpr std::array<std::string_view, 4> kEnds = {"time", "date", "day", "stamp"};
  const std::vector<std::string> words = words_of(name);
  return std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return among(kWords, word) ||
           std::any_of(kEnds.begin(), kEnds.end(), [&](std::string_view end) { return word.ends_with(end); });
  });
}

const EpochUnit* epoch_unit(const std::string& name, double least, double most) {
  constexpr double kFirst = 788918400, kLast = 4102444800;  // 1995 to 2099
  return named_as_time(name) ? unit_within(name, least, most, kFirst, kLast) : nullptr;
}

const EpochUnit* epoch_unit(const ColumnSeen& c) {
  if (!is_number(c) || c.form != Form::kNumbers || c.numbers.count() == 0 || are_compact_dates(c)) return nullptr;
  return epoch_unit(c.name, c.numbers.least(), c.numbers.most());
}

std::string epoch_note(const ColumnSeen& c) {
  if (!is_number(c) || c.form != Form::kNumbers || c.numbers.count() == 0 || !named_as_time(c.name)) return {};
  if (are_compact_dates(c)) return {};
  if (const EpochUnit* unit = epoch_unit(c))
    return comment(str_cat("Because of the name, these numbers are read as ", years_of(c, *unit),
                           ". If they are no times, write as = \"dense\" without take."));
  constexpr double kFirst = 1e8, kLast = 9.2e9;  // the times that `take` reads: the years 1973 and 2261
  const EpochUnit* unit = unit_within(c.name, c.numbers.least(), c.numbers.most(), kFirst, kLast);
  if (unit == nullptr) return {};
  return comment(
      str_cat("These numbers are not taken for times, because few times are as early or late. They would be ",
              years_of(c, *unit),
              ". If they count from another year, as Windows' FILETIME and the ticks of .NET do, write "
              "YYYY-MM-DD HH:MM:SS into the file."));
}

}  // namespace tessera::cli
