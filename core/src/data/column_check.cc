#include "data/column_check.h"

#include <algorithm>
#include <utility>

#include "data/column_numbers.h"
#include "data/time_format.h"
#include "tessera/sdk/number_text.h"

namespace tessera::data {
namespace {

void check_cross(const std::string& name, const ColumnConfig& c) {
  if (c.cross.empty()) return;
  const ColumnConfig unset;
  const auto refuse = [&](const char* key, bool given) {
    if (given)
      fail(Code::kInvalidArgument, "[[column]] \"", name, "\" is a cross of others, so its \"", key,
           "\" has no effect: leave it out");
  };
  refuse("ids", c.ids != unset.ids);
  refuse("bounds", !c.bounds.empty());
  refuse("separator", !c.separator.empty());
  refuse("weighted", c.weighted);
  refuse("column", !c.column.empty());
  refuse("take", c.take != unset.take);
  refuse("missing_words", !c.missing_words.empty());
  refuse("time_format", !c.time_format.empty());
  refuse("since", !c.since.empty());
  if (c.cross.size() < 2)
    fail(Code::kInvalidArgument, "[[column]] \"", name, "\" is a cross of one column: name two or more");
}

// `number`: the column reads numbers.
void check_missing_words(const std::string& name, const ColumnConfig& c, bool number) {
  if (c.missing_words.empty()) return;
  const auto wrong = [&](const auto&... why) { fail(Code::kInvalidArgument, "[[column]] \"", name, "\"", why...); };
  if (c.as == "label")
    wrong(
        " is a label, which no row may lack, so its \"missing_words\" has no effect: leave such rows out of the files");
  if (c.take == "value" && !number)
    wrong(" reads no number or time, so its \"missing_words\" has no effect: leave it out");
  for (const std::string& word : c.missing_words) {
    if (sdk::trimmed(word).empty())
      wrong(": an empty field is missing without its being in missing_words: leave it out");
    const std::optional<double> as_number = sdk::number_of(word);
    const bool never = as_number && takes_time(c) && !time_of_number(*as_number);  // 0 and -1 among times since 1970
    if (as_number && !never)
      wrong(": missing_words has \"", word, "\", which is a number: leave such fields empty in the files");
  }
}

void check_time_format(const std::string& name, const ColumnConfig& c) {
  if (c.time_format.empty()) return;
  if (!takes_time(c))
    fail(Code::kInvalidArgument, "[[column]] \"", name,
         "\" takes no part of a time, so its \"time_format\" has no effect: leave it out, or set take");
  if (const std::string why = wrong_time_format(c.time_format); !why.empty())
    fail(Code::kInvalidArgument, "[[column]] \"", name, "\": time_format \"", c.time_format, "\" ", why);
}

void check_since(const std::string& name, const ColumnConfig& c) {
  if (c.since.empty()) return;
  if (!counts_time(c))
    fail(Code::kInvalidArgument, "[[column]] \"", name, "\" counts no time, so its \"since\" has no effect: leave it ",
         "out, or set take = \"days\", \"hours\" or \"minutes\"");
  if (!sdk::time_of(c.since))
    fail(Code::kInvalidArgument, "[[column]] \"", name, "\": since is ", sdk::shown_text(c.since),
         ", but must be a date as 2024-01-31, with or without a time after it as 12:34:56");
}

}  // namespace

// Checks the keys that describe a field's text.
void check_field(const std::string& name, const ColumnConfig& c) {
  const auto wrong = [&](const auto&... why) { fail(Code::kInvalidArgument, "[[column]] \"", name, "\"", why...); };
  const bool number = c.as != "ids" || (c.ids == "bucket" && c.cross.empty());
  if (!c.column.empty() && c.name.size() > 1)
    wrong(" is one of several names, but column = \"", c.column, "\" is one column: give each its own [[column]]");
  if (c.take != "value" && c.as == "ids" && c.ids != "row" && c.ids != "bucket")
    wrong(": take = \"", c.take, "\" gives numbers, so ids must be \"row\" or \"bucket\"");
  if (c.take == "missing" && !c.separator.empty())
    wrong(": take = \"missing\" needs one value in each row: leave separator out");
  if (c.take == "missing" && c.missing) wrong(": take = \"missing\" is never missing: leave missing out");
  for (const auto& [key, given] : {std::pair("decimal", !c.decimal.empty()), std::pair("strip", !c.strip.empty())}) {
    if (given && (!number || c.take != "value" || !c.positive.empty()))
      wrong(" reads no number, so its \"", key, "\" has no effect: leave it out");
  }
  if (c.decimal.size() > 1) wrong(": decimal is \"", c.decimal, "\", but must be one character");
  const std::string decimal = c.decimal.empty() ? "." : c.decimal;
  if (c.decimal.find_first_of("0123456789+-eE ") != std::string::npos)
    wrong(": decimal is \"", c.decimal, "\", which is another part of numbers");
  if (c.strip.find_first_of("0123456789+-" + decimal) != std::string::npos)
    wrong(": strip is \"", c.strip, "\", but digits, signs and the decimal sign \"", decimal,
          "\" are part of the number");
  check_missing_words(name, c, number);
  check_time_format(name, c);
  check_since(name, c);
  if (c.positive.empty()) return;
  if (c.threshold) wrong(" has positive, so it has no threshold: leave one of them out");
  if (c.real) wrong(" has positive, so it is not real: leave one of them out");
}

void check_column(const std::string& name, const ColumnConfig& c) {
  const ColumnConfig unset;
  const bool label = c.as == "label", weight = c.as == "weight", dense = c.as == "dense", ids = c.as == "ids",
             vector = c.as == "vector";
  const auto refuse = [&](const char* key, bool given, bool taken) {
    if (given && !taken)
      fail(Code::kInvalidArgument, "[[column]] \"", name, "\" is ",
           label    ? "a label"
           : weight ? "the samples' weight"
           : dense  ? "dense"
           : vector ? "a vector"
                    : "of ids",
           ", so its \"", key, "\" has no effect: leave it out");
  };
  refuse("take", c.take != unset.take, dense || ids);
  refuse("positive", !c.positive.empty(), label);
  refuse("missing", c.missing.has_value(), dense || weight || vector);
  refuse("transform", !c.transform.empty(), dense);
  refuse("threshold", c.threshold.has_value(), label);
  refuse("real", c.real, label);
  if (c.real && c.threshold)
    fail(Code::kInvalidArgument, "[[column]] \"", name, "\" is real, so it has no threshold: leave one of them out");
  refuse("ids", c.ids != unset.ids, ids);
  refuse("rows", c.rows != 0, ids);
  refuse("separator", !c.separator.empty(), ids || vector);
  refuse("width", c.width != 0, vector);
  if (vector && c.width == 0)
    fail(Code::kInvalidArgument, "[[column]] \"", name, "\" is a vector: set width, the number of its values");
  if (vector && c.missing && !c.missing->word.empty())
    fail(Code::kInvalidArgument, "[[column]] \"", name, "\" is a vector, so its missing must be a number, not ",
         c.missing->word);
  refuse("longest", c.longest != 0, ids);
  refuse("weighted", c.weighted, ids);
  refuse("cross", !c.cross.empty(), ids);
  refuse("pooling", c.pooling != unset.pooling, ids);
  if (c.separator.size() > 1)
    fail(Code::kInvalidArgument, "[[column]] \"", name, "\": separator is \"", c.separator, "\", but must be one byte");
  if (!c.bounds.empty() && c.ids != "bucket")
    fail(Code::kInvalidArgument, "[[column]] \"", name, "\" has bounds, which need ids = \"bucket\"");
  if (ids && c.ids == "bucket" && (c.bounds.empty() || !std::is_sorted(c.bounds.begin(), c.bounds.end())))
    fail(Code::kInvalidArgument, "[[column]] \"", name, "\" needs bounds, in ascending order, for ids = \"bucket\"");
  if (c.min_count > 1 && c.ids != "vocabulary")
    fail(Code::kInvalidArgument, "[[column]] \"", name, "\" has a min_count, which needs ids = \"vocabulary\"");
  if (ids && c.rows != 0 && c.cross.empty() && (c.ids == "vocabulary" || c.ids == "bucket"))
    fail(Code::kInvalidArgument, "[[column]] \"", name, "\" has rows = ", c.rows, ", but ",
         c.ids == "bucket" ? "its bounds say how many there are: leave rows out"
                           : "a vocabulary has a row for each text of the training rows: leave rows out; min_count "
                             "leaves out rare texts, and ids = \"hash\" takes rows");
  check_cross(name, c);
  check_field(name, c);
  if (c.transform == std::vector<std::string>{"standardise", "log1p"})
    fail(Code::kInvalidArgument, "[[column]] \"", name, "\": log1p comes before standardise");
}

}  // namespace tessera::data
