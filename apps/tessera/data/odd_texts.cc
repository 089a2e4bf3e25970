#include "data/odd_texts.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <functional>
#include <map>

#include "data/column_names.h"
#include "data/date_texts.h"
#include "data/toml_text.h"
#include "tessera/error.h"
#include "tessera/sdk/fields.h"
#include "tessera/sdk/number_text.h"
#include "tessera/sdk/values.h"

namespace tessera::cli {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool has_point(std::string_view text) { return text.find('.') != std::string_view::npos; }
bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

// The share of the fields with a value, among those that were kept, that `is` holds for.
double share_of(const ColumnSeen& c, const std::function<bool(std::string_view)>& is) {
  double all = 0, such = 0;
  for (const ListText::Value& v : c.values) {
    all += static_cast<double>(v.count);
    such += is(sdk::trimmed(v.text)) ? static_cast<double>(v.count) : 0;
  }
  return all > 0 ? such / all : 0;
}

// True for 3:51 AM and 05:42:00.
bool like_time(std::string_view text) {
  const size_t colon = text.find(':');
  return (colon == 1 || colon == 2) && text.size() >= colon + 3 && text.size() <= 11 && is_digit(text[0]) &&
         is_digit(text[colon + 1]) && is_digit(text[colon + 2]);
}

// True for 0.23 ct, 2.4km, USD 2.38, 214.2k, 5.20- and \u22125.20: one number, and letters or a minus on one side.
bool like_measure(std::string_view text) {
  constexpr std::string_view kMinus = "\xe2\x88\x92";  // U+2212
  const size_t first = text.find_first_of("0123456789"), last = text.find_last_of("0123456789");
  if (first == std::string_view::npos || !sdk::number_of(text.substr(first, last - first + 1))) return false;
  const std::string_view before = sdk::trimmed(text.substr(0, first)), after = sdk::trimmed(text.substr(last + 1));
  const auto letters = [](std::string_view s) { return s.size() <= 6 && std::all_of(s.begin(), s.end(), is_letter); };
  return (letters(before) || before == kMinus) && (letters(after) || after == "-") && before.empty() != after.empty();
}

// True for 21.416 and 1.234.567: each point follows a digit and precedes exactly three.
bool grouped_by_points(std::string_view text) {
  if (text.starts_with("-")) text.remove_prefix(1);
  const size_t point = text.find('.');
  if (point == std::string_view::npos || point == 0 || point > 3 || text[0] == '0') return false;
  for (size_t at = point; at < text.size(); at += 4) {
    if (text[at] != '.' || at + 4 > text.size()) return false;
    if (!std::all_of(text.begin() + static_cast<int64_t>(at) + 1, text.begin() + static_cast<int64_t>(at) + 4,
                     is_digit))
      return false;
  }
  return true;
}

// True for the numbers that programs write in place of a missing one: -1, -9, 99, -999, 99999999, 1e30, ...
bool is_code(double number) {
  constexpr double kLeast = 99, kHuge = 1e15;
  if (number == -1 || number == -9 || std::abs(number) >= kHuge) return true;
  double nines = kLeast;
  while (nines < std::abs(number)) nines = 10 * nines + 9;
  return std::abs(number) == nines;
}

// A number that usually stands for a missing value, is at an end of the numbers and far from the next one; else empty.
std::string likely_code(const ColumnSeen& c) {
  constexpr double kRare = 0.002;
  for (const ListText::Value& v : c.values) {
    const auto number = sdk::number_of(v.text);
    if (!number || !is_code(*number)) continue;
    if (*number != c.numbers.least() && *number != c.numbers.most()) continue;
    if (v.count < 3 || static_cast<double>(v.count) < kRare * static_cast<double>(c.fields)) continue;
    double least = HUGE_VAL, most = -HUGE_VAL;  // of the other numbers
    for (const double other : c.numbers.sample()) {
      if (other != *number) least = std::min(least, other), most = std::max(most, other);
    }
    if (least > most) continue;
    const double gap = *number > most ? *number - most : least - *number;
    if (gap >= most - least && gap > 1)
      return str_cat(v.text, " is in ", v.count, " of ", c.fields, " rows, far from all other numbers");
    if (*number < 0 && least >= 0 && most > 1)
      return str_cat(v.text, " is in ", v.count, " of ", c.fields, " rows, and no other number is negative");
  }
  return {};
}

// True for 2024-W08, 2012Q1, 3/16, 1.5D-01, 5'11", PT13M and 0x1f: several groups of digits with at most two letters,
// or a notation of programs.
bool like_notation(std::string_view text) {
  constexpr size_t kLongest = 20;
  constexpr std::string_view kMarks = " -/.:,'\"+_<>~x*";
  if (text.size() > kLongest || sdk::number_of(text)) return false;
  if (text.starts_with("0x")) return text.find_first_not_of("0123456789abcdefABCDEF", 2) == std::string_view::npos;
  if (text.starts_with("P"))  // a duration of ISO 8601
    return text.size() > 2 && text.find_first_not_of("0123456789.PYMWDTHS") == std::string_view::npos &&
           is_digit(text[text.size() - 2]);
  int groups = 0, letters = 0;
  bool in_group = false;
  for (const char c : text) {
    const bool other = is_letter(c) || static_cast<unsigned char>(c) >= 0x80;
    if (!is_digit(c) && !other && kMarks.find(c) == std::string_view::npos) return false;
    letters += is_letter(c) ? 1 : 0;
    groups += is_digit(c) && !in_group ? 1 : 0;
    in_group = is_digit(c);
  }
  return groups >= 2 && letters <= 2;
}

// A date that programs write in place of a missing one, at an end of the dates and far from the next one; else empty.
std::string likely_date_code(const ColumnSeen& c) {
  constexpr double kRare = 0.002;
  static constexpr std::array<std::string_view, 6> kCodes = {"1900-01-01", "1970-01-01", "1899-12-30",
                                                             "1899-12-31", "1901-01-01", "2099-12-31"};
  for (const ListText::Value& v : c.values) {
    const std::string date = v.text.substr(0, 10);
    if (std::find(kCodes.begin(), kCodes.end(), date) == kCodes.end()) continue;
    if (v.count < 3 || static_cast<double>(v.count) < kRare * static_cast<double>(c.fields)) continue;
    const std::vector<double> days = c.numbers.sample();
    const double code = date == "2099-12-31" ? c.numbers.most() : c.numbers.least();
    double least = HUGE_VAL, most = -HUGE_VAL;  // of the other days
    for (const double day : days) {
      if (std::floor(day) != std::floor(code)) least = std::min(least, day), most = std::max(most, day);
    }
    if (least <= most && std::max(least - code, code - most) >= most - least)
      return str_cat(date, " is in ", v.count, " of ", c.fields, " rows, far from all other dates");
  }
  return {};
}

// Says if some times have a zone and others do not.
std::string zones_note(const ColumnSeen& c) {
  constexpr size_t kDate = 10;  // characters of 2024-01-31
  std::string with, without;
  for (const ListText::Value& v : c.values) {
    const std::string_view text = sdk::trimmed(v.text);
    if (!c.time_format.empty() || text.size() <= kDate) continue;
    const bool zone = text.find_first_of("+-ZU", kDate) != std::string_view::npos;
    (zone ? with : without) = text;
  }
  if (with.empty() || without.empty()) return {};
  return comment(str_cat("Some of these times have a zone, as ", quoted(with), ", and others have none, as ",
                         quoted(without), ": these are taken for UTC."));
}

// The comment on a column named as a date or time whose numbers may be days of a spreadsheet, or seconds among
// milliseconds; else empty.
std::string time_numbers_note(const ColumnSeen& c) {
  if (!named_as_time(c.name) || c.numbers.count() == 0) return {};
  constexpr double kFirstDay = 20000, kLastDay = 80000;            // 1954 to 2119, of a spreadsheet
  constexpr double kFirstSecond = 1e8, kLastMillisecond = 9.2e12;  // 1973 to 2261
  if (c.numbers.least() >= kFirstDay && c.numbers.most() <= kLastDay)
    return comment(
        "These are numbers. If they are days as spreadsheets count them, write them as YYYY-MM-DD: they "
        "then give weekdays and an age.");
  if (c.numbers.least() >= kFirstSecond && c.numbers.least() < 1e10 && c.numbers.most() > 1e11 &&
      c.numbers.most() <= kLastMillisecond)
    return comment(
        "Some of these numbers may be seconds since 1970, and others milliseconds: write one unit into the "
        "file.");
  return {};
}

// The comment on texts that look like dates, with one that is not read.
std::string other_dates_note(const ColumnSeen& c) {
  const auto other = std::find_if(c.values.begin(), c.values.end(), [](const ListText::Value& v) {
    return like_date(sdk::trimmed(v.text)) && !sdk::time_of(sdk::trimmed(v.text));
  });
  const std::string example = other == c.values.end() ? c.values.front().text : std::string(sdk::trimmed(other->text));
  constexpr size_t kYear = 4, kDate = 10;
  if (example.size() >= kDate && example.find_first_not_of("0123456789") == kYear && example[kYear] == '-')
    return comment(str_cat("These are texts, because some are no dates, such as ", quoted(example),
                           ". If these stand for missing values, leave the fields empty."));
  return comment(str_cat("These are texts, but they look like dates, such as ", quoted(example),
                         ". Written as YYYY-MM-DD they give weekdays and an age."));
}

// Says if only some of the numbers have a sign such as % or $.
std::string units_note(const ColumnSeen& c) {
  for (const std::string_view sign : {"%", "$", "€", "£", "¥"}) {
    if (c.written.strip.find(sign) == std::string::npos) continue;
    std::string with, without;
    for (const ListText::Value& v : c.values) {
      std::string& first = v.text.find(sign) == std::string::npos ? without : with;
      if (first.empty()) first = v.text;
    }
    if (!with.empty() && !without.empty())
      return comment(str_cat(quoted(with), " has the sign ", sign, " and ", quoted(without),
                             " has not: both are read as numbers of one unit. If they are not, write one unit into "
                             "the file."));
  }
  return {};
}

// A text in lower case, with plain blanks, and without characters of no width.
std::string folded(std::string text) {
  const auto replace = [&](std::string_view what, std::string_view with) {
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
      text.replace(at, what.size(), with);
  };
  for (const std::string_view blank : {"\xc2\xa0", "\xe2\x80\xaf", "\xe2\x80\x89", "\t"}) replace(blank, " ");
  for (const std::string_view none : {"\xe2\x80\x8b", "\xef\xbb\xbf", "\xc2\xad"}) replace(none, "");
  while (text.find("  ") != std::string::npos) replace("  ", " ");
  return lower(std::string(sdk::trimmed(text)));
}

[[noreturn]] void refuse_label(const ColumnSeen& c, const std::string& why) {
  fail(Code::kInvalidArgument, "column ", quoted(c.name), " ", why);
}

// Throws if nearly all labels are numbers, or most are 0 and 1, and some are words.
void check_notation(const ColumnSeen& c) {
  constexpr double kMost = 0.5, kNearlyAll = 0.9;
  double number = 0;
  const auto reads = [&](std::string_view text) { return sdk::parse_number(text, number); };
  const double numbers = share_of(c, reads);
  const double bits = share_of(c, [&](std::string_view text) { return reads(text) && (number == 0 || number == 1); });
  if (bits < kMost && numbers < kNearlyAll) return;
  for (const ListText::Value& v : c.values) {
    if (reads(sdk::trimmed(v.text))) continue;
    refuse_label(c, str_cat("has numbers, and ", quoted(v.text), " in ", v.count, " of ", c.fields,
                            " rows: write all labels in one notation into the file, or leave these rows out"));
  }
}

bool is_foreign_digit(std::string_view text) {
  // Arabic, Persian, Devanagari and full-width digits in UTF-8.
  for (const std::string_view first : {"\xd9\xa0", "\xdb\xb0", "\xe0\xa5\xa6", "\xef\xbc\x90"}) {
    const size_t at = text.find(first.substr(0, first.size() - 1));
    if (at == std::string_view::npos || at + first.size() > text.size()) continue;
    const int digit =
        static_cast<unsigned char>(text[at + first.size() - 1]) - static_cast<unsigned char>(first.back());
    if (digit >= 0 && digit <= 9) return true;
  }
  return false;
}

// True for 23.96*, 24,0, ="23.96", np.float64(23.96), \u2265 23 and 3 days 04:00:00: a quantity in another notation.
bool like_quantity(std::string_view text) {
  if (is_foreign_digit(text)) return true;
  const size_t first = text.find_first_of("0123456789");
  if (first == std::string_view::npos) return false;
  for (const std::string_view sign : {"\xe2\x89\xa5", "\xe2\x89\xa4", "<", ">", "~"}) {
    if (text.starts_with(sign)) return true;
  }
  if (text.find(" day") != std::string_view::npos && first == 0) return true;
  for (size_t at = 1; at + 1 < text.size(); ++at) {
    if ((text[at] == '.' || text[at] == ',') && is_digit(text[at - 1]) && is_digit(text[at + 1])) return true;
  }
  return false;
}

// True for a text such as Foo(13, 19) or <a, b>: a list in a notation that is not read.
bool like_list(std::string_view text) {
  if (text.find(',') == std::string_view::npos || !is_letter(text[0]))
    return text.starts_with('<') && text.ends_with('>');
  return text.find('(') != std::string_view::npos && text.ends_with(')');
}

}  // namespace

void refuse_repeated_header(const std::vector<ColumnSeen>& columns) {
  std::vector<std::string> names;
  for (const ColumnSeen& c : columns) {
    const bool has = !c.name.empty() && std::any_of(c.values.begin(), c.values.end(),
                                                    [&](const ListText::Value& v) { return v.text == c.name; });
    if (has) names.push_back(c.name);
  }
  if (names.size() < 2) return;
  fail(Code::kInvalidArgument, "the fields of the first line occur again among the rows, as ", listed(names, 3),
       ": if the file has no header, add a line with the names of its columns; if it has several, take the others out");
}

void check_label_values(const ColumnSeen& c) {
  const auto several = std::find_if(c.values.begin(), c.values.end(), [&](const ListText::Value& v) {
    return c.items.separator() != ' ' && v.text.find(c.items.separator()) != std::string::npos;
  });
  if (c.form == Form::kLists && several != c.values.end())
    refuse_label(c, str_cat("has several items in a row, such as ", quoted(several->text),
                            ", but a label is a number or one word: write a column of 0 and 1 for each item into the "
                            "file, and name them with --label A,B"));
  if (!c.own_words.empty())
    refuse_label(c, str_cat("has numbers, and ", quoted(c.own_words.front()),
                            " in other rows: write all labels in one notation into the file, or leave these rows out"));
  if (is_number(c)) {
    const bool codes = !exceeds_doubles(c) && !(c.exact && c.values.size() == 2);  // -1 and 1 are two labels
    if (const std::string code = codes ? likely_code(c) : ""; !code.empty())
      refuse_label(c,
                   str_cat("may have a code for a missing label, because ", code,
                           ": if it is one, leave these rows out of the file; if not, write the [[column]] by hand"));
    if (!units_note(c).empty())
      refuse_label(c, str_cat("has numbers with a sign out of ", quoted(c.written.strip),
                              ", and numbers without it: write all labels in one unit into the file"));
    constexpr double kLeastCode = 8, kRare = 0.02;
    if (!c.exact || c.values.size() != 3) return;
    std::vector<double> others;
    double share = 0;  // of the rows with the last of these
    for (const ListText::Value& v : c.values) {
      const auto number = sdk::number_of(v.text);
      if (!number || *number == 0 || *number == 1) continue;
      others.push_back(*number);
      share = static_cast<double>(v.count) / static_cast<double>(c.fields);
    }
    if (others.size() != 1) return;
    const double other = others.front();
    if (std::abs(other) >= kLeastCode || other < 0 || share < kRare)
      refuse_label(c, str_cat("has 0, 1 and ", plain_number(other), ": if ", plain_number(other),
                              " stands for a missing label, leave these rows out of the file; if not, write the "
                              "[[column]] by hand, with a threshold"));
    return;
  }
  std::map<std::string, std::string> spelled;
  for (const ListText::Value& v : c.values) {
    const std::string word = lower(std::string(sdk::trimmed(v.text)));
    if (sdk::is_missing_word(v.text) || word == "." || word == "unknown" || word == "missing" || word == "none")
      refuse_label(
          c,
          str_cat("has the value ", quoted(v.text), " in ", v.count, " of ", c.fields,
                  " rows, which seems to stand for a missing label: leave these rows out of the file, or write another "
                  "word if it is a label"));
    const auto [other, fresh] = spelled.try_emplace(word, v.text);
    if (!fresh)
      refuse_label(c, str_cat("spells one word in several ways, ", quoted(other->second), " and ", quoted(v.text),
                              ": write one spelling into the file"));
  }
  check_notation(c);
}

std::string spellings_note(const ColumnSeen& c) {
  std::map<std::string, std::string> spelled;
  std::vector<std::string> pair;
  int64_t others = -1;
  if (c.form != Form::kTexts || c.list) return {};
  const auto word_of = [](const std::string& text) {
    std::string out;
    sdk::append_word(out, text);
    return out;
  };
  for (const ListText::Value& v : c.values) {
    const auto [first, fresh] = spelled.try_emplace(folded(v.text), v.text);
    if (fresh || word_of(first->second) == word_of(v.text)) continue;  // True, true and TRUE are one word
    if (pair.empty()) pair = {first->second, v.text};
    ++others;
  }
  if (pair.empty()) return {};
  return comment(str_cat(quoted(pair[0]), " and ", quoted(pair[1]),
                         " differ only in case or in blanks, and are two categories",
                         others > 0 ? str_cat("; so are ", others, " others") : "",
                         ". Write one spelling into the file if they mean the same."));
}

bool are_compact_dates(const ColumnSeen& c) {
  constexpr double kFirst = 1900, kLast = 2100;
  constexpr int64_t kEnough = 20;
  if (c.numbers.whole() != c.numbers.count() || c.distinct < kEnough) return false;
  const std::vector<double> sample = c.numbers.sample();
  for (const int64_t unit :
       {int64_t{100}, int64_t{10000}, int64_t{1000000}, int64_t{100000000}, int64_t{10000000000}}) {
    const auto of_year = static_cast<double>(unit);  // what a year counts
    if (c.numbers.least() < kFirst * of_year || c.numbers.most() > (kLast + 1) * of_year) continue;
    return std::all_of(sample.begin(), sample.end(), [&](double number) {
      const int64_t rest = static_cast<int64_t>(number) % unit;  // month, day, hour, minute, second, two digits each
      const int64_t month = rest / (unit / 100), day = unit >= 10000 ? rest / (unit / 10000) % 100 : 1,
                    hour = unit >= 1000000 ? rest / (unit / 1000000) % 100 : 0;
      return month >= 1 && month <= 12 && day >= 1 && day <= 31 && hour <= 23;
    });
  }
  return false;
}

bool are_other_dates(const ColumnSeen& c) {
  constexpr double kMost = 0.9;
  return c.form == Form::kTexts && !c.list && share_of(c, like_date) > kMost;
}

bool is_accounting(const ColumnSeen& c) {
  if (c.form != Form::kTexts || c.list) return false;
  bool any = false;
  const double share = share_of(c, [&](std::string_view text) {
    any = any || (text.starts_with("(") && text.ends_with(")"));
    return text.find_first_of("0123456789") != std::string_view::npos &&
           text.find_first_not_of("0123456789.,()$ -") == std::string_view::npos;
  });
  return any && share > 0.9;
}

std::string odd_texts_note(const ColumnSeen& c) {
  constexpr double kMost = 0.9, kHalf = 0.5, kSome = 0.1;
  if (c.list || c.values.empty()) return {};
  const std::string first = quoted(c.values.front().text);
  if (c.form == Form::kTexts) {
    if (c.time_formats.size() > 1)
      return comment(str_cat("These are texts, but they look like dates, such as ", first,
                             ", in which days and months cannot be told apart. With take = \"weekday\" or \"days\" "
                             "and time_format = ",
                             quoted(c.time_formats[0]), " or ", quoted(c.time_formats[1]), " they are read."));
    if (are_other_dates(c)) return other_dates_note(c);
    if (share_of(c, like_time) > kMost)
      return comment(str_cat("These are texts, but they look like times of the day, such as ", first,
                             ". Written as YYYY-MM-DD HH:MM:SS they give the hour."));
    // Codes such as A12 have no decimal point.
    std::string measure;
    const double numbers = share_of(c, [&](std::string_view text) {
      const bool is = like_measure(text);
      if (is && measure.empty()) measure = text;
      return is || sdk::number_of(text);
    });
    if (numbers > kMost && !measure.empty() && share_of(c, has_point) > kSome)
      return comment(str_cat("These are texts, but they look like numbers with a unit or sign, such as ",
                             quoted(measure), ". Without it, or with a minus in front, they are read as numbers."));
    if (share_of(c, like_notation) > kMost)
      return comment(str_cat("These are texts: values such as ", first,
                             " have no order. If they are quantities or dates, write numbers or YYYY-MM-DD into the "
                             "file."));
    if (share_of(c, like_list) > kHalf)
      return comment(str_cat("These are texts. If ", first,
                             " is a list, write it as [3, 17] or with one character between its items."));
    if (share_of(c, like_quantity) > kHalf && c.items.parts_separator().empty()) {
      std::string other;
      for (const ListText::Value& v : c.values) {
        if (other.empty() && !sdk::number_of(v.text)) other = v.text;
      }
      return comment(str_cat("These are texts, because ", quoted(other),
                             " and others like it are not read as "
                             "numbers. If they are quantities, write them with digits and a decimal point only."));
    }
    return {};
  }
  if (c.form == Form::kWritten) return units_note(c);
  if (c.form == Form::kTimes) {
    const std::string date = likely_date_code(c);
    return zones_note(c) +
           (date.empty() ? "" : comment(date + ": if it stands for a missing value, leave these fields empty."));
  }
  if (c.form != Form::kNumbers) return {};
  if (are_compact_dates(c))
    return comment(str_cat("These are numbers, but they look like dates, such as ", c.values.front().text,
                           ". Written as YYYY-MM-DD they give weekdays and an age."));
  if (std::string note = time_numbers_note(c); !note.empty()) return note;
  const double points = share_of(c, has_point);
  if (points > 0 && points < 1 && share_of(c, grouped_by_points) == points)
    return comment(
        "Each point stands before three digits. If points group digits, write decimal = \",\" and strip = \".\".");
  const std::string code = exceeds_doubles(c) ? "" : likely_code(c);
  return code.empty() ? "" : comment(code + ": if it stands for a missing value, leave these fields empty.");
}

}  // namespace tessera::cli
