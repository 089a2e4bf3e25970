#include "data/label_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "data/odd_texts.h"
#include "data/toml_text.h"
#include "tessera/error.h"
#include "tessera/sdk/nearest.h"
#include "tessera/sdk/values.h"

namespace tessera::cli {
namespace {

constexpr int64_t kFewGrades = 20;
constexpr int64_t kFewWords = 20;

bool zero_or_one(const ColumnSeen& c) {
  return c.form == Form::kNumbers && !c.list && c.numbers.whole() == c.numbers.count() && c.numbers.least() >= 0 &&
         c.numbers.most() <= 1;
}

// True if all numbers are whole or halves.
bool in_steps(const ColumnSeen& c) {
  const std::vector<double> sample = c.numbers.sample();
  return std::all_of(sample.begin(), sample.end(), [](double x) { return 2 * x == std::floor(2 * x); });
}

std::string word_of(const std::string& text) {
  std::string out;
  sdk::append_word(out, text);
  return out;
}

std::string some_values(const ColumnSeen& c) {
  constexpr size_t kSome = 3;
  std::string out;
  for (size_t i = 0; i < std::min(kSome, c.values.size()); ++i)
    out += str_cat(i == 0 ? "" : ", ", quoted(c.values[i].text));
  return out + (c.values.size() > kSome ? ", ..." : "");
}

// The reason why a column that the user named cannot be a label.
std::string why_not(const ColumnSeen& c) {
  if (c.in_some_files)
    return str_cat("column ", quoted(c.name), " is in some of the files only, but each row needs a label");
  if (!c.unknown_type.empty())
    return str_cat("column ", quoted(c.name), " has the type ", c.unknown_type, ", of which no values can be read");
  if (c.form == Form::kEmpty) return str_cat("column ", quoted(c.name), " is empty: each row needs a label");
  if (c.form == Form::kLists || c.form == Form::kVectors)
    return str_cat("column ", quoted(c.name), " has lists, but a label is a number or a word");
  if (c.form == Form::kTimes)
    return str_cat("column ", quoted(c.name), " has times (", some_values(c), "), but a label is a number or a word");
  if (is_number(c))
    return str_cat("column ", quoted(c.name), " has the value ", plain_number(c.numbers.least()),
                   " in each row: nothing can be learned from one value; name another column with --label");
  return str_cat("column ", quoted(c.name), " has ", c.exact ? "" : "about ", c.distinct, " different texts (",
                 some_values(c), "), but a label is a number or one of at most ", kFewWords,
                 " words: write 0 and 1 into the file, or name another column with --label");
}

// Throws if some rows have no label, or one that may mean something else.
void require_usable(const ColumnSeen& c) {
  if (c.missing > 0)
    fail(Code::kInvalidArgument, "column ", quoted(c.name), " has no value in ", c.missing, " of ", c.fields,
         " rows, but each row needs a label: leave these rows out of the file, or name another column with --label");
  check_label_values(c);
}

size_t named(const std::vector<ColumnSeen>& columns, const std::string& name) {
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].name == name) return i;
  }
  std::vector<std::string> names;
  for (const ColumnSeen& c : columns) names.push_back(c.name);
  const std::string nearest = sdk::nearest_name(name, names);
  if (columns.size() == 1)
    fail(Code::kInvalidArgument, "there is no column ", quoted(name), "; the only one is ", quoted(columns[0].name),
         ": if its parts are columns, name the delimiter, as in --reader \"csv?delimiter=:\"");
  fail(Code::kInvalidArgument, "there is no column ", quoted(name),
       nearest.empty() ? "" : str_cat("; did you mean ", quoted(nearest), "?"), " The files have the columns ",
       names_of(columns));
}

// How good a label each column would be, higher is better; 0 if it cannot be guessed as one.
int rank_of(const ColumnSeen& c) {
  const LabelForm form = label_form(c);
  if (form == LabelForm::kNone || c.name.empty()) return 0;
  const bool two = form == LabelForm::kBinary || (form == LabelForm::kWords && c.distinct == 2);
  const bool complete = c.missing == 0;
  if (named_as_label(c)) return complete ? (two ? 6 : 5) : (two ? 4 : 3);
  if (form != LabelForm::kBinary || c.distinct < 2) return 0;
  return complete ? 2 : 1;
}

Labels guess(const std::vector<ColumnSeen>& columns) {
  Labels out;
  out.guessed = true;
  int best = 0;
  size_t at = 0;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (const int rank = rank_of(columns[i]); rank > best) best = rank, at = i;
  }
  for (size_t i = 0; i < columns.size(); ++i) {
    const ColumnSeen& c = columns[i];
    const LabelForm form = label_form(c);
    const bool two = form == LabelForm::kBinary || (form == LabelForm::kWords && c.distinct == 2);
    if (best > 0 && i != at && c.missing == 0 && !c.name.empty() && (rank_of(c) > 0 || (two && c.distinct == 2)))
      out.candidates.push_back(i);
  }
  if (best > 0) {
    out.columns = {at};
    return out;
  }
  for (const ColumnSeen& c : columns) {
    if (named_as_label(c) && label_form(c) == LabelForm::kNone)
      fail(Code::kInvalidArgument, why_not(c), "; there are the columns ", names_of(columns));
  }
  fail(Code::kInvalidArgument,
       "no column has a name like a label, or only zeros and ones: name the label with --label, out of ",
       names_of(columns));
}

}  // namespace

LabelForm label_form(const ColumnSeen& c) {
  if (c.list || c.form == Form::kEmpty) return LabelForm::kNone;
  if (zero_or_one(c)) return LabelForm::kBinary;
  if (is_number(c)) {
    if (c.numbers.least() == c.numbers.most()) return LabelForm::kNone;
    const bool few = c.exact && c.distinct <= kFewGrades && (c.distinct == 2 || in_steps(c));
    return few ? LabelForm::kThreshold : LabelForm::kReal;
  }
  const bool words = c.form == Form::kTexts || (c.form == Form::kLists && !c.items.bracketed());
  return words && c.exact && c.distinct >= 1 && std::ssize(c.values) <= kFewWords ? LabelForm::kWords
                                                                                  : LabelForm::kNone;
}

bool named_as_label(const ColumnSeen& c) {
  static constexpr std::array<std::string_view, 13> kNames = {"label",   "labels",     "click",     "clicked", "target",
                                                              "y",       "conversion", "converted", "rating",  "stars",
                                                              "outcome", "churn",      "survived"};
  const std::string name = lower(c.name);
  if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) return false;
  return name != "y" || label_form(c) != LabelForm::kReal;  // next to columns x and z, a real y is a coordinate
}

double threshold_of(const ColumnSeen& c) {
  if (c.distinct == 2) return c.numbers.most();
  const double mean = c.numbers.mean();
  return c.numbers.whole() == c.numbers.count() ? std::floor(mean) + 1 : std::floor(2 * mean) / 2 + 0.5;
}

std::string positive_of(const ColumnSeen& c) {
  static const std::set<std::string> kPositive = {"yes",  "y",   "true",    "t",   "1",    "positive", "pos",
                                                  "good", "won", "success", "win", "pass", "passed",   "on"};
  for (const ListText::Value& v : c.values) {
    if (kPositive.contains(lower(v.text))) return word_of(v.text);
  }
  if (c.values.empty()) return {};
  if (c.values.size() == 1) {  // the other word has not been seen
    for (const auto& [negative, positive] : {std::pair{"false", "true"},
                                             {"no", "yes"},
                                             {"No", "Yes"},
                                             {"NO", "YES"},
                                             {"n", "y"},
                                             {"N", "Y"},
                                             {"f", "t"},
                                             {"F", "T"}})
      if (word_of(c.values[0].text) == negative) return positive;
  }
  return word_of(c.values.size() == 2 ? c.values[1].text : c.values[0].text);
}

Labels choose_labels(const std::vector<ColumnSeen>& columns, const std::string& wanted) {
  if (std::all_of(columns.begin(), columns.end(), [](const ColumnSeen& c) { return c.fields == 0; }))
    fail(Code::kInvalidArgument, "there are no rows");
  if (wanted.empty()) {
    Labels out = guess(columns);
    require_usable(columns[out.columns.front()]);
    return out;
  }
  Labels out;
  std::string rest = wanted;
  // A name that itself contains a comma is one column.
  const bool whole = std::any_of(columns.begin(), columns.end(), [&](const ColumnSeen& c) { return c.name == wanted; });
  while (!rest.empty()) {
    const size_t comma = whole ? std::string::npos : rest.find(',');
    const size_t at = named(columns, rest.substr(0, comma));
    if (label_form(columns[at]) == LabelForm::kNone) fail(Code::kInvalidArgument, why_not(columns[at]));
    require_usable(columns[at]);
    if (std::find(out.columns.begin(), out.columns.end(), at) != out.columns.end())
      fail(Code::kInvalidArgument, "--label names the column ", quoted(columns[at].name), " twice");
    out.columns.push_back(at);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
  }
  return out;
}

std::string names_of(const std::vector<ColumnSeen>& columns) {
  constexpr size_t kMost = 20;
  std::string out;
  for (size_t i = 0; i < std::min(kMost, columns.size()); ++i) out += str_cat(i == 0 ? "" : ", ", columns[i].name);
  return out + (columns.size() > kMost ? str_cat(", ... (", columns.size(), " in all)") : "");
}

}  // namespace tessera::cli
