#include "data/describe.h"

#include <algorithm>
#include <cmath>

#include "data/columns_toml.h"
#include "data/decisions.h"
#include "data/history_note.h"
#include "data/label_choice.h"
#include "data/model_toml.h"
#include "data/odd_texts.h"
#include "data/profile_page.h"
#include "data/test_choice.h"
#include "data/toml_text.h"

namespace tessera::cli {
namespace {

constexpr double kTested = 0.1;  // share of the rows

void require_features(const ColumnsToml& features, const std::vector<ColumnSeen>& columns, const Labels& labels) {
  if (!features.tables.empty()) return;
  fail(Code::kInvalidArgument, "no column except the label ", quoted(columns[labels.columns.front()].name),
       " seems to hold ids that repeat, and a job needs at least one: add a user, an item or a category to the "
       "file, or write the [[column]]s by hand, for example a number with ids = \"bucket\"");
}

// The comment on rows that occur several times; empty if few do.
std::string copies_of(const FilesSeen& looked) {
  constexpr double kWorthSaying = 0.05;
  const double copies = 1 - looked.distinct_rows / static_cast<double>(looked.rows);
  if (copies < kWorthSaying) return {};
  return comment(str_cat("About ", std::lround(100 * copies),
                         " % of the rows are copies of other rows. If one event was written several times, remove the "
                         "copies: a test row that is also a training row makes the test look too good."));
}

// Events often have no label: then the refusal names a way without one.
Labels labels_of(const std::vector<ColumnSeen>& columns, const std::string& wanted) {
  try {
    return choose_labels(columns, wanted);
  } catch (const Error& e) {
    const std::string history = wanted.empty() ? history_sentence(columns, decide(columns, {})) : "";
    if (history.empty()) throw;
    fail(e.code(), e.what(), ". ", history);
  }
}

// Shows a value if the bytes are not UTF-8, because an encoding of single bytes fits any file.
std::string encoding_note(const FilesSeen& looked) {
  const size_t at = looked.reader.find("encoding=");
  if (at == std::string::npos || looked.reader.find("encoding=utf") != std::string::npos) return {};
  const std::string encoding = looked.reader.substr(at + 9, looked.reader.find('&', at) - at - 9);
  const auto is_wide = [](const std::string& text) {
    return std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
  };
  std::string example;
  for (const ColumnSeen& c : looked.columns) {
    for (const ListText::Value& v : c.values) {
      if (example.empty() && is_wide(v.text))
        example = str_cat(", in which one value is ", quoted(v.text.substr(0, 60)));
    }
  }
  return comment(str_cat("The files are not UTF-8, and are read as ", encoding, example,
                         ". If that is wrong, write them in UTF-8, for example with iconv."));
}

// The first thing to say if nobody named the label.
std::string guess_of(const std::vector<ColumnSeen>& columns, const Labels& labels) {
  if (!labels.guessed) return {};
  return str_cat("a guess: ", quoted(columns[labels.columns.front()].name),
                 " is taken as the label; name another one with --label");
}

}  // namespace

Description describe_files(const Runtime& runtime, const DescribeOptions& options) {
  const FilesSeen looked = look_at_files(runtime, options);
  const std::vector<ColumnSeen>& columns = looked.columns;
  refuse_repeated_header(columns);
  const Labels labels = labels_of(columns, options.label);
  const std::vector<Decision> decisions = decide(columns, labels);
  const ColumnsToml features = columns_toml(columns, decisions, labels);
  require_features(features, columns, labels);
  const TestSplit test = test_split(columns, decisions, labels);
  const ModelFacts facts = {looked.of, kTested};
  const std::string rows = looked.rows == looked.of ? str_cat("all ", looked.rows, " rows")
                                                    : str_cat(looked.rows, " of ", looked.of, " rows");
  Description out;
  out.guess = guess_of(columns, labels);
  out.job = str_cat("# Made by `tessera data describe` from ", rows, ": look at it before you train.\n",
                    "#   tessera train --config THIS_FILE --save DIR    # DIR gets the model that is tested\n",
                    out.guess.empty() ? "" : comment(out.guess), encoding_note(looked),
                    "\n[data]\nreader = ", quoted(features.missing_words ? looked.missing_words_reader : looked.reader),
                    "\npath = ", quoted(options.path), "\n", data_sizes(facts), copies_of(looked), test.text,
                    "test_fraction = ", kTested, "\n", history_note(columns, decisions), features.text,
                    model_toml(columns, labels, features, facts, test.in_time));
  out.page = profile_page(columns, decisions, str_cat(options.path, ": ", rows, "."), out.job);
  return out;
}

}  // namespace tessera::cli
