#include "data/decisions.h"

#include <algorithm>
#include <map>
#include <utility>

#include "data/column_names.h"
#include "data/id_words.h"
#include "data/odd_texts.h"
#include "data/toml_text.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

constexpr double kRowsPerDate = 50;  // mean rows per date from which a date can be learned as a category
constexpr int64_t kEnough = 100;     // rows needed before "each row has a different value" means something

bool all_whole(const ColumnSeen& c) { return is_number(c) && c.numbers.whole() == c.numbers.count(); }

double there(const ColumnSeen& c) { return static_cast<double>(c.fields - c.missing); }

bool nearly_all_differ(const ColumnSeen& c) {
  constexpr double kNearlyAll = 0.9;
  return c.fields - c.missing >= kEnough && static_cast<double>(c.distinct) > kNearlyAll * there(c);
}

// True for whole numbers that are all different, and are named or close together as keys are. They number the rows and
// say nothing about other rows.
bool is_key(const ColumnSeen& c) {
  constexpr double kClose = 10;  // mean distance of the keys
  if (!all_differ(c)) return false;
  const double range = c.numbers.most() - c.numbers.least() + 1;
  return c.counts || named_as_id(c.name) || range < kClose * static_cast<double>(c.distinct);
}

// The first column with each content.
class Contents {
 public:
  // Returns the earlier column of which this one is a copy, or null.
  const ColumnSeen* original_of(const ColumnSeen& c) {
    if (c.list || c.form == Form::kEmpty || c.name.empty()) return nullptr;
    const auto [first, fresh] = first_.try_emplace({c.words_hash, c.fields}, &c);
    return fresh ? nullptr : first->second;
  }

 private:
  std::map<std::pair<uint64_t, int64_t>, const ColumnSeen*> first_;
};

std::string why_left_out(const ColumnSeen& c, Contents& contents) {
  if (c.in_some_files) return "only some of the files have it: write it into all of them to use it";
  if (!c.unknown_type.empty()) return str_cat("no values of its type can be read, ", c.unknown_type);
  if (c.form == Form::kEmpty) return "it is empty";
  if (c.name.empty()) return "it has no name, like an index that a program writes next to the columns";
  if (c.name.starts_with("__index_level_") && c.name.ends_with("__"))
    return "it is the index that pandas writes beside the columns";
  if (const ColumnSeen* original = contents.original_of(c)) return str_cat("it is a copy of ", quoted(original->name));
  if (c.distinct == 1 && c.missing == 0) return str_cat("each row has the same value, ", quoted(c.values.front().text));
  if (c.form == Form::kNested) return "its fields begin with a bracket and are not lists of items";
  if (!c.items.cut_off().empty())
    return str_cat("only a part of its lists was printed, as in ", quoted(c.items.cut_off()),
                   ": write all items, for example with json.dumps(x.tolist())");
  if (!c.items.with_missing().empty())
    return str_cat("there is no item for a missing one, as in ", quoted(c.items.with_missing()),
                   ": leave None, null, nan and empty items out of the lists");
  if (c.form == Form::kVectors && c.vector.broken > 0)
    return str_cat("its lists of ", c.vector.width(), " numbers are a vector, but ", c.vector.broken,
                   c.vector.broken == 1 ? " of their values is" : " of their values are",
                   " missing or infinite, such as NaN: write numbers there, or leave these rows out");
  if (c.form == Form::kTimes || c.form == Form::kVectors || epoch_unit(c) != nullptr) return {};
  if (c.form == Form::kTexts && c.vector.most > 0)
    return str_cat("its rows have lists of ", c.vector.least, " to ", c.vector.most,
                   " numbers, and a vector has as many in each row");
  if (is_key(c))
    return c.counts ? "it counts the rows: each has a larger whole number than the one before"
                    : "it numbers the rows: each has a different whole number";
  if (c.form == Form::kWritten && c.written.likely_ids && c.points_elsewhere)
    return str_cat("a field such as ", quoted(c.values.front().text),
                   " seems to be two ids, and could be a number. Add a [[column]] with separator = \",\" for ids, or "
                   "with as = \"dense\" and decimal = \",\" for numbers");
  if (is_accounting(c)) return "its negative numbers are in parentheses, but are read only with a minus";
  if (are_other_dates(c) && kRowsPerDate * static_cast<double>(c.distinct) > there(c))
    return "it has many dates, and they are read only as YYYY-MM-DD: a category of single days knows no other day";
  if (c.form == Form::kTexts && nearly_all_differ(c)) return "nearly every row has a different value";
  if (all_whole(c) && named_as_id(c.name) && nearly_all_differ(c))
    return "it is named as an id, and nearly every row has a different value";
  if (exceeds_doubles(c) && nearly_all_differ(c))
    return "nearly every row has a different whole number, too large for a double";
  return {};
}

// The reason why a column tells the label of its own row; empty if it does not.
std::string why_reveals(const ColumnSeen& c, const std::vector<ColumnSeen>& columns, const Labels& labels) {
  for (const size_t l : labels.columns) {
    const ColumnSeen& label = columns[l];
    if (c.list || !c.exact || !label.exact || c.distinct < 2 || c.fields < kEnough) continue;
    if (c.distinct == label.distinct && c.missing == 0 && c.pattern_hash == label.pattern_hash)
      return str_cat("each of its values always comes with the same value of ", quoted(label.name),
                     ", so it gives the label away");
  }
  return {};
}

// The name without digits at its end; labels that belong together share it.
std::string stem(const std::string& name) {
  const size_t end = name.find_last_not_of("0123456789_-. ");
  return end == std::string::npos ? "" : lower(name.substr(0, end + 1));
}

// The reason why a column seems to be another label; empty if it does not.
std::string why_label(const ColumnSeen& c, const std::vector<ColumnSeen>& columns, const Labels& labels) {
  if (named_as_label(c) && (label_form(c) == LabelForm::kBinary || label_form(c) == LabelForm::kThreshold ||
                            label_form(c) == LabelForm::kReal))
    return "it has a name like a label";
  for (const size_t l : labels.columns) {
    const ColumnSeen& label = columns[l];
    const bool numbered = stem(label.name) != lower(label.name) && stem(c.name) != lower(c.name);
    if (numbered && !stem(c.name).empty() && stem(c.name) == stem(label.name) && label_form(c) == LabelForm::kBinary)
      return str_cat("it is 0 and 1, and has a name like the label ", quoted(label.name));
  }
  return {};
}

// True for whole numbers that count something from 0 or 1 on and leave few of them out, as codes do that a program has
// given to users or items.
bool is_numbering(const ColumnSeen& c) {
  constexpr double kFilled = 0.5;
  constexpr int64_t kRows = 10;  // mean rows per code from which it can be learned
  const double range = c.numbers.most() - c.numbers.least() + 1;
  return all_whole(c) && (c.numbers.least() == 0 || c.numbers.least() == 1) &&
         static_cast<double>(c.distinct) >= kFilled * range && kRows * c.distinct <= c.fields - c.missing;
}

void as_feature(const ColumnSeen& c, Decision& d) {
  constexpr double kMany = 0.05;
  constexpr int64_t kOrdered = 2;  // from more values than this, their order means something
  constexpr int64_t kOften = 200;  // mean rows per number from which it can be learned as an id
  if (c.form == Form::kTimes || epoch_unit(c) != nullptr) {
    d.times = true;
    return;
  }
  if (c.form == Form::kVectors) {
    d.vector = true;
    return;
  }
  const bool as_doubles = is_number(c) && (c.distinct == 1 || c.numbers.least() < c.numbers.most());
  if (!as_doubles || exceeds_doubles(c) || ids_by_name(c)) {  // a double holds 53 bits of an id
    d.ids = true;
    return;
  }
  const bool few = all_whole(c) && c.exact && c.distinct <= kFewNumbers;
  d.ids = few || (all_whole(c) && kOften * c.distinct <= c.fields - c.missing) || is_numbering(c) || is_padded(c);
  d.dense = !few || c.distinct > kOrdered;
  d.buckets = !few;
  d.was_missing = d.dense && c.missing > 0 && static_cast<double>(c.missing) > kMany * static_cast<double>(c.fields);
}

}  // namespace

bool ids_by_name(const ColumnSeen& c) { return all_whole(c) && named_as_id(c.name); }

bool all_differ(const ColumnSeen& c) {
  return all_whole(c) && c.fields - c.missing >= kEnough && !c.repeated &&
         static_cast<double>(c.distinct) > 0.97 * there(c);
}

std::vector<Decision> decide(const std::vector<ColumnSeen>& columns, const Labels& labels) {
  std::vector<Decision> out(columns.size());
  Contents contents;
  // Wherever a label is in the file, a copy of it is one.
  for (const size_t l : labels.columns) (void)contents.original_of(columns[l]);
  for (size_t i = 0; i < columns.size(); ++i) {
    Decision& d = out[i];
    if (std::find(labels.columns.begin(), labels.columns.end(), i) != labels.columns.end()) {
      d.kind = Decision::Kind::kLabel;
      continue;
    }
    d.reason = why_left_out(columns[i], contents);
    if (d.reason.empty()) d.reason = why_reveals(columns[i], columns, labels);
    if (!d.reason.empty()) {
      d.kind = Decision::Kind::kLeftOut;
      continue;
    }
    d.reason = why_label(columns[i], columns, labels);
    if (!d.reason.empty()) d.kind = Decision::Kind::kOtherLabel;
    as_feature(columns[i], d);
  }
  return out;
}

}  // namespace tessera::cli
