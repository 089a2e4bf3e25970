#include "data/label_toml.h"

#include <algorithm>

#include "data/odd_texts.h"
#include "data/toml_text.h"
#include "tessera/error.h"
#include "tessera/sdk/values.h"

namespace tessera::cli {
namespace {

std::string words_note(const ColumnSeen& c, const std::string& positive) {
  std::vector<std::string> others;
  for (const ListText::Value& v : c.values) {
    std::string word;
    sdk::append_word(word, v.text);
    if (word != positive) others.push_back(word);
  }
  if (c.values.size() == 1)
    return comment("Only one value was seen: nothing can be learned from it. Look at more rows.");
  return comment(str_cat(
      quoted(positive), " is 1, ", listed(others, 8),
      others.size() == 1 ? " is 0. To reverse it, name the other word." : " are 0. To predict another word, name it."));
}

// Says if one of two labels is in so few rows that nothing can be learned.
std::string rare_note(const ColumnSeen& c) {
  constexpr int64_t kFew = 20, kRows = 200;
  if (!c.exact || c.values.size() != 2 || c.fields < kRows) return {};
  const ListText::Value& rare =
      std::min(c.values[0], c.values[1], [](const auto& a, const auto& b) { return a.count < b.count; });
  if (rare.count >= kFew) return {};
  return comment(str_cat("Only ", rare.count, " of ", c.fields, " rows ", rare.count == 1 ? "has" : "have",
                         " the label ", quoted(rare.text),
                         ": too few to learn from, and the test part may have none."));
}

// Says if a number is most likely not a label.
std::string counts_note(const ColumnSeen& c) {
  return c.counts && !c.repeated ? comment("It counts the rows: each number is larger than the one before.") : "";
}

}  // namespace

std::string words_key(const ColumnSeen& c) {
  return c.own_words.empty() ? "" : str_cat("missing_words = [", listed(c.own_words, c.own_words.size()), "]\n");
}

std::string written_keys(const ColumnSeen& c) {
  if (c.form != Form::kWritten) return words_key(c);
  return words_key(c) + str_cat(c.written.decimal.empty() ? "" : str_cat("decimal = ", quoted(c.written.decimal), "\n"),
                                c.written.strip.empty() ? "" : str_cat("strip = ", quoted(c.written.strip), "\n"));
}

std::string written_note(const ColumnSeen& c) {
  if (c.form != Form::kWritten) return {};
  const auto with_comma = std::find_if(c.values.begin(), c.values.end(),
                                       [](const ListText::Value& v) { return v.text.find(',') != std::string::npos; });
  if (with_comma == c.values.end()) return {};
  if (c.written.ambiguous)
    return comment(
        str_cat("The comma in ", quoted(with_comma->text),
                " is taken for one that groups digits. If it is the decimal sign, write decimal = \",\" instead of "
                "strip."));
  if (c.written.two_ids && c.points_elsewhere)
    return comment(str_cat("A guess: the comma in ", quoted(with_comma->text),
                           " is taken for the decimal sign. If these are two ids, write ids = \"vocabulary\" and "
                           "separator = \",\" in place of the lines below the name."));
  return {};
}

std::string label_toml(const ColumnSeen& c) {
  const std::string notes = is_number(c) ? odd_texts_note(c) + written_note(c) : "";
  const std::string head = str_cat("[[column]]\nname = ", quoted(c.name), "\nas = \"label\"\n", written_keys(c));
  switch (label_form(c)) {
    case LabelForm::kWords: {
      const std::string positive = positive_of(c);
      return words_note(c, positive) + rare_note(c) + head + str_cat("positive = ", quoted(positive), "\n");
    }
    case LabelForm::kThreshold:
      return comment(str_cat("1 from ", plain_number(threshold_of(c)), " on, otherwise 0; the mean is ",
                             short_number(c.numbers.mean()),
                             ". To predict the number itself, write real = true instead of the threshold, and loss = "
                             "\"mse\" in [[head]].")) +
             notes + rare_note(c) + head + str_cat("threshold = ", plain_number(threshold_of(c)), "\n");
    case LabelForm::kReal:
      return notes + counts_note(c) +
             comment(
                 str_cat("The number itself is predicted. To predict whether it is above its mean, write threshold = ",
                         short_number(c.numbers.mean()), " instead of real, and take the model of another label.")) +
             head + "real = true\n";
    case LabelForm::kBinary:
    case LabelForm::kNone:
      break;
  }
  const bool one = c.numbers.least() == c.numbers.most();
  return (one ? comment(str_cat("Only the value ", plain_number(c.numbers.least()),
                                " was seen in all rows: nothing can be learned from it. Is the file sorted or "
                                "incomplete?"))
              : rare_note(c)) +
         head;
}

std::string guess_note(const std::vector<ColumnSeen>& columns, const Labels& labels) {
  if (!labels.guessed) return {};
  std::vector<std::string> others;
  for (const size_t i : labels.candidates) others.push_back(columns[i].name);
  return comment(str_cat("This label is a guess, because there was no --label.",
                         others.empty() ? "" : str_cat(" It could also be ", listed(others, 10), ".")));
}

}  // namespace tessera::cli
