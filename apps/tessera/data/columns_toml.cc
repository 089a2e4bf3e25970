#include "data/columns_toml.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "data/column_names.h"
#include "data/id_words.h"
#include "data/label_toml.h"
#include "data/odd_texts.h"
#include "data/toml_text.h"
#include "tessera/error.h"
#include "tessera/sdk/number_text.h"
#include "wrapped.h"

namespace tessera::cli {
namespace {

// Writes the [[column]] sections of one job; all names are different.
class Writer {
 public:
  Writer(const std::vector<ColumnSeen>& columns, bool mean) : mean_(mean) {
    for (const ColumnSeen& c : columns) taken_.insert(c.name);
  }

  std::string feature(const ColumnSeen& c, const Decision& d);
  // The same text for a column that the job leaves out.
  std::string left_out(const ColumnSeen& c, const Decision& d);

  std::vector<std::string> tables, vectors;
  size_t dense = 0;

 private:
  // Starts a section: the column itself, or a further one that reads the same column of the files.
  std::string section(const ColumnSeen& c, const std::string& what);
  std::string table(const ColumnSeen& c, const std::string& what, const std::string& keys);
  std::string number(const ColumnSeen& c, const std::string& what, const std::string& keys);
  std::string ids(const ColumnSeen& c) const;
  std::string vector(const ColumnSeen& c);

  bool mean_;
  bool first_ = true;  // no section of the column has been written yet
  std::set<std::string> taken_;
  std::string name_;  // name of the last section
};

std::string Writer::section(const ColumnSeen& c, const std::string& what) {
  name_ = c.name;
  const bool reserved = c.name == "dense" || c.name == "pooled";  // inputs of layers have these names
  if (!what.empty() || reserved) {
    const std::string wanted = str_cat(c.name, " ", what.empty() ? "column" : what);
    name_ = wanted;
    for (int i = 2; taken_.contains(name_); ++i) name_ = str_cat(wanted, " ", i);
    taken_.insert(name_);
  }
  std::string out = str_cat(first_ ? "" : "\n", "[[column]]\nname = ", quoted(name_), "\n");
  first_ = false;
  return name_ == c.name ? out : str_cat(out, "column = ", quoted(c.name), "\n");
}

std::string Writer::table(const ColumnSeen& c, const std::string& what, const std::string& keys) {
  std::string out = section(c, what) + keys;
  tables.push_back(name_);
  return out;
}

std::string Writer::number(const ColumnSeen& c, const std::string& what, const std::string& keys) {
  ++dense;
  return str_cat(section(c, what), "as = \"dense\"\n", keys);
}

std::string Writer::ids(const ColumnSeen& c) const {
  // If many texts are rare, unknown texts will also come later. Rare ones then share the row of unknown texts, to train
  // it.
  constexpr int64_t kMany = 10;            // one in ten
  constexpr int64_t kMostWords = 2000000;  // size of a vocabulary
  std::string out = "ids = \"vocabulary\"\n";
  if (c.distinct > kMostWords) {
    out = str_cat("ids = \"hash\"\nrows = ", c.distinct, "\n");
  } else if (kMany * c.once >= c.distinct && c.once > 1) {
    out += "min_count = 2\n";
  }
  const char separator = c.form == Form::kLists ? c.items.separator() : '\0';
  if (separator != 0) out += str_cat("separator = ", quoted(std::string(1, separator)), "\n");
  if (c.weighted) return out + "weighted = true\n";
  return out + ((c.form == Form::kLists || c.list) && mean_ ? "pooling = \"mean\"\n" : "");
}

std::string Writer::vector(const ColumnSeen& c) {
  // Layers name a vector, and some names mean something else there.
  const bool free = c.name != "dense" && c.name != "pooled" && c.name.find(':') == std::string::npos;
  std::string out = free ? section(c, "") : "";
  for (int i = 1; !free && out.empty(); ++i) {
    name_ = str_cat("vector_", i);
    if (taken_.insert(name_).second)
      out = str_cat("[[column]]\nname = ", quoted(name_), "\ncolumn = ", quoted(c.name), "\n");
  }
  vectors.push_back(name_);
  out += str_cat("as = \"vector\"\nwidth = ", c.vector.width(), "\n");
  if (!c.vector.bracketed && c.vector.separator != ' ')
    out += str_cat("separator = ", quoted(std::string(1, c.vector.separator)), "\n");
  return str_cat(out, "missing = 0", c.vector.empty > 0 ? "" : "  # here no row needs it", '\n');
}

bool is_skewed(const ColumnSeen& c) {
  constexpr double kSkewed = 10;  // largest number divided by the mean
  return c.numbers.least() >= 0 && c.numbers.most() > kSkewed * c.numbers.mean();
}

// The key `missing`, which rows to be scored need even if every row of this file has a number.
std::string missing_key(const ColumnSeen& c, const char* word) {
  return str_cat("missing = \"", word, '"', c.missing > 0 ? "" : "  # here no row needs it", '\n');
}

std::string dense_keys(const ColumnSeen& c) {
  const std::string out = written_keys(c) + missing_key(c, is_skewed(c) ? "median" : "mean");
  return out + (is_skewed(c) ? "transform = [\"log1p\", \"standardise\"]\n" : "transform = \"standardise\"\n");
}

// Bounds of ranges with about the same number of rows each; empty if there are too few different numbers.
std::string bounds(const ColumnSeen& c) {
  constexpr int kRanges = 32;
  const std::vector<double> sample = c.numbers.sample();
  std::string out, last;
  for (int i = 1; i < kRanges; ++i) {
    const double bound = quantile(sample, static_cast<double>(i) / kRanges);
    const std::string text = rounded(bound, c.numbers.deviation() / 100);
    if (bound <= c.numbers.least() || text == last) continue;
    out += str_cat(out.empty() ? "" : ", ", text);
    last = text;
  }
  return out;
}

std::string Writer::feature(const ColumnSeen& c, const Decision& d) {
  first_ = true;
  std::string out;
  if (d.times) {
    const std::string keys =
        words_key(c) + (c.time_format.empty() ? "" : str_cat("time_format = ", quoted(c.time_format), "\n"));
    const bool days = c.time_format.empty() || c.time_format.find("%d") != std::string::npos;
    if (c.hours || c.form == Form::kNumbers)
      out += table(c, "hour", str_cat("take = \"hour\"\n", keys, "ids = \"row\"\nrows = 24\n"));
    out += days ? table(c, "weekday", str_cat("take = \"weekday\"\n", keys, "ids = \"row\"\nrows = 7\n"))
                : table(c, "month", str_cat("take = \"month\"\n", keys, "ids = \"row\"\nrows = 12\n"));
    return out + number(c, "days",
                        str_cat("take = \"days\"\n", keys, missing_key(c, "mean"), "transform = \"standardise\"\n"));
  }
  if (d.vector) return vector(c);
  if (d.dense) out += number(c, "", dense_keys(c));
  if (d.ids) out += table(c, d.dense ? "value" : "", ids(c));
  if (d.was_missing) out += number(c, "missing", "take = \"missing\"\n" + words_key(c));
  if (const std::string ranges = d.buckets ? bounds(c) : ""; !ranges.empty())
    out += table(c, "range", str_cat("ids = \"bucket\"\n", written_keys(c), wrapped(ranges + "]", "bounds = [", "  ")));
  return out;
}

std::string Writer::left_out(const ColumnSeen& c, const Decision& d) {
  const size_t tables_before = tables.size(), vectors_before = vectors.size(), dense_before = dense;
  std::string out = feature(c, d);
  tables.resize(tables_before), vectors.resize(vectors_before), dense = dense_before;
  return out;
}

// True for a column of words such as train and test, which says which rows are the test.
bool is_split(const ColumnSeen& c) {
  static const std::set<std::string> kParts = {"train", "training",   "test",    "testing", "val",
                                               "valid", "validation", "holdout", "dev",     "eval"};
  const auto names_part = [&](const ListText::Value& v) { return kParts.contains(lower(v.text)); };
  const bool parts = c.form == Form::kTexts && c.exact && c.values.size() > 1 &&
                     std::all_of(c.values.begin(), c.values.end(), names_part);
  const std::string name = lower(c.name);
  return parts || (c.distinct == 2 && (name == "is_test" || name == "is_train" || name == "is_training"));
}

std::string other_note(const ColumnSeen& c, const Decision& d) {
  if (is_split(c))
    return comment(
        "An input. If it says which rows are the test, leave the column out, write those rows to a file of their own, "
        "and name it as test = \"file:PATH\" without test_fraction.");
  if (d.vector)
    return comment(
        str_cat("A guess: the ", c.vector.width(),
                " numbers of each row are taken for a vector, which the layers "
                "\"first\" and \"deep\" have among their inputs. If they are ids, write ids = \"vocabulary\" "
                "instead of as, width and missing, and take the name out of these inputs."));
  if ((c.form == Form::kLists || c.list) && c.vector.most > 0)
    return comment(str_cat("The items are numbers, ", c.vector.least, " to ", c.vector.most,
                           " in a row, and are taken for ids. A vector would have as many in each row."));
  if (std::string note = written_note(c); !note.empty()) return note;
  if (c.form == Form::kLists && !c.list && c.items.weighted())
    return comment(str_cat(c.distinct,
                           " ids, each with the weight of its row after \":\". If the number is part of the id, "
                           "leave weighted out."));
  if (c.form == Form::kLists && !c.list)
    return comment(str_cat(c.distinct, " items in ", c.items.wholes(),
                           " different fields: a list. If a whole field is one id, leave separator and pooling out."));
  if (c.items.other_separator() != 0)
    return comment(
        str_cat("Whole fields repeat, so each is one id. If their words mean something by themselves, add separator "
                "= \"",
                c.items.other_separator(), "\" and pooling = \"mean\"."));
  if (!c.list && c.form == Form::kTexts && !c.items.parts_separator().empty())
    return comment(str_cat("The parts between ", quoted(c.items.parts_separator()),
                           " repeat in other fields. If a field is a list, ",
                           c.items.gaps() ? "leave empty parts out of the file, and " : "",
                           c.items.parts_separator().size() > 1 ? "write one character between parts, and " : "",
                           "add separator = \"", c.items.parts_separator()[0], "\" and pooling = \"mean\"."));
  const std::string name = lower(c.name);
  if (d.dense && c.numbers.least() >= 0 && (name == "weight" || name == "weights" || name == "sample_weight"))
    return comment("An input. If it says how much each sample counts, write as = \"weight\" and nothing else of it.");
  if (d.ids && !d.dense && ids_by_name(c) && !exceeds_doubles(c))
    return comment(
        "Because of the name, these numbers are ids. If they are quantities, write as = \"dense\", missing = \"mean\" "
        "and transform = \"standardise\" in place of the lines below the name.");
  if (d.dense && all_differ(c))
    return comment("Each row has a different whole number. If it is a key of the row, leave the column out.");
  if (d.dense && d.ids)
    return comment("Whole numbers that repeat often: the column is both a number and an id. Leave out the wrong one.");
  return {};
}

// A comment on what is uncertain about a feature, and what to write instead if the guess is wrong.
std::string feature_note(const ColumnSeen& c, const Decision& d) {
  const std::string words =
      c.own_words.empty() || !(d.dense || d.times)
          ? ""
          : comment(str_cat(listed(c.own_words, c.own_words.size()),
                            c.own_words.size() > 1 ? " are taken for missing values. If they mean something,"
                                                   : " is taken for a missing value. If it means something,",
                            " add a [[column]] with ids = \"vocabulary\"."));
  return words + other_note(c, d);
}

// A comment on a column of texts of which most are numbers or dates, and the others are words, or are few.
std::string strangers_note(const ColumnSeen& c) {
  if (c.form != Form::kTexts || c.list) return {};
  const auto has_digit = [](const std::string& text) { return text.find_first_of("0123456789") != std::string::npos; };
  const bool dates = c.times_among > c.numbers_among;
  const int64_t there = c.fields - c.missing, among = dates ? c.times_among : c.numbers_among, others = there - among;
  constexpr int64_t kFewWords = 20;
  std::vector<std::string> strangers;
  int64_t distinct = 0;  // of the others
  for (const ListText::Value& v : c.values) {
    const bool is = dates ? sdk::time_of(v.text).has_value() : sdk::number_of(v.text).has_value();
    if (is) continue;
    ++distinct;
    if (dates || !has_digit(v.text)) strangers.push_back(v.text);
  }
  if (among == 0 || 2 * others > there || (distinct > kFewWords && 10 * others > there)) return {};
  const char* const what = dates ? "dates" : "numbers";
  return comment(
      str_cat(among, " of ", there, " fields are ", what, ", but ", others, others == 1 ? " is not" : " are not",
              strangers.empty() ? "" : str_cat(", as ", listed(strangers, 3)),
              ": so all are texts. If these stand for missing values, leave the fields empty, or list them in "
              "missing_words of a [[column]] with ",
              dates ? "take = \"days\"." : "as = \"dense\"."));
}

// Comments a column out that most likely gives the label away, and says what to write if it does not.
std::string other_label(const ColumnSeen& c, const Decision& d, Writer& writer, bool any_dense) {
  const std::string feature = writer.left_out(c, d);
  const LabelForm form = label_form(c);
  std::string out = comment(str_cat("left out because ", d.reason, ": ", quoted(c.name),
                                    ". If it is a feature that is known before the label, "
                                    "use:"));
  out += commented(feature);
  if (d.dense && !any_dense) out += comment("Then add \"dense\" to the inputs of the layers \"first\" and \"deep\".");
  if (form == LabelForm::kNone || c.missing > 0) return out;
  return out + comment("To predict it as well, name both with --label, separated by a comma.");
}

std::string column_text(const ColumnSeen& c, const Decision& d, Writer& writer, bool any_dense) {
  switch (d.kind) {
    case Decision::Kind::kLeftOut:
      return strangers_note(c) +
             ((c.form == Form::kNumbers || c.form == Form::kTexts) && !is_accounting(c) ? odd_texts_note(c) : "") +
             epoch_note(c) + comment(str_cat("left out because ", d.reason, ": ", quoted(c.name)));
    case Decision::Kind::kOtherLabel:
      return other_label(c, d, writer, any_dense);
    case Decision::Kind::kLabel:
      return label_toml(c);
    case Decision::Kind::kFeature:
      break;
  }
  return strangers_note(c) + odd_texts_note(c) + spellings_note(c) + epoch_note(c) + (d.ids ? id_words_note(c) : "") +
         feature_note(c, d) + writer.feature(c, d);
}

}  // namespace

std::string summary(const ColumnSeen& c) {
  if (c.in_some_files) return "only in some of the files";
  if (!c.unknown_type.empty()) return str_cat("of the type ", c.unknown_type);
  if (c.form == Form::kEmpty) return str_cat(c.fields, " rows, all empty");
  if (c.form == Form::kVectors)
    return str_cat("lists of ", c.vector.width(), " numbers, ", short_number(c.vector.smallest), " to ",
                   short_number(c.vector.largest),
                   c.vector.empty > 0
                       ? str_cat(", ", c.vector.empty, " of ", c.vector.rows + c.vector.empty, " rows without any")
                       : "");
  std::string out =
      str_cat(c.exact ? "" : "about ", c.distinct, c.form == Form::kLists ? " different items" : " different");
  if (is_number(c) && !exceeds_doubles(c))
    out += str_cat(", ", plain_number(c.numbers.least()), " to ", plain_number(c.numbers.most()), ", mean ",
                   short_number(c.numbers.mean()), ", deviation ", short_number(c.numbers.deviation()));
  if (c.lengths.count() > 0)
    out += str_cat(", ", short_number(c.lengths.mean()), " a row, half of the rows up to ",
                   short_number(quantile(c.lengths.sample(), 0.5)), ", at most ", plain_number(c.lengths.most()));
  const bool few = (c.form == Form::kTexts || c.form == Form::kLists) && !c.values.empty() && c.repeated;
  if (few && !c.list) {
    const double share = 100.0 * static_cast<double>(c.values.front().count) / static_cast<double>(c.fields);
    out += str_cat(", most often ", quoted(c.values.front().text), " (", short_number(std::round(share)), " %)");
  }
  if (c.form == Form::kTimes && !c.values.empty()) out += str_cat(", times as ", quoted(c.values.front().text));
  if (c.missing > 0) {
    out += str_cat(", ", c.missing, " of ", c.fields, " missing");
    std::vector<std::string> words = c.missing_words;
    words.insert(words.end(), c.own_words.begin(), c.own_words.end());
    if (!words.empty()) out += str_cat(", as ", listed(words, 8));
  }
  return out;
}

ColumnsToml columns_toml(const std::vector<ColumnSeen>& columns, const std::vector<Decision>& decisions,
                         const Labels& labels) {
  bool weighted = false, any_dense = false;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (decisions[i].kind != Decision::Kind::kFeature) continue;
    weighted = weighted || columns[i].weighted;
    any_dense = any_dense || decisions[i].dense || decisions[i].times;
  }
  Writer writer(columns, !weighted);
  ColumnsToml out;
  for (size_t i = 0; i < columns.size(); ++i) {
    const ColumnSeen& c = columns[i];
    const Decision& d = decisions[i];
    const bool left = d.kind == Decision::Kind::kLeftOut || d.kind == Decision::Kind::kOtherLabel;
    out.missing_words = out.missing_words || (!left && !c.missing_words.empty() && is_number(c));
    out.text += str_cat("\n", comment(summary(c)));
    if (d.kind == Decision::Kind::kLabel) out.text += guess_note(columns, labels);
    out.text += column_text(c, d, writer, any_dense);
    const LabelForm form = label_form(c);
    if (d.kind == Decision::Kind::kFeature && form == LabelForm::kBinary && c.distinct == 2)
      out.text +=
          comment(str_cat("If ", quoted(c.name), " is another label, or is known only after the label, leave it out."));
  }
  out.tables = writer.tables, out.vectors = writer.vectors, out.dense = writer.dense;
  return out;
}

}  // namespace tessera::cli
