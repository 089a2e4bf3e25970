#include "data/columns_toml.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "command.h"
#include "data/line_reader.h"
#include "model_presets.h"

namespace tessera::cli {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool all_numbers(const ColumnSeen& c) { return c.numbers > 0 && c.numbers == c.fields - c.missing; }
bool all_whole(const ColumnSeen& c) { return all_numbers(c) && c.whole == c.numbers; }

bool named(const ColumnSeen& c, const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), lower(c.name)) != names.end();
}

bool is_binary(const ColumnSeen& c) {
  return all_numbers(c) && !c.list && !c.more && c.distinct == std::vector<std::string>{"0", "1"};
}

bool named_as_label(const ColumnSeen& c) {
  return named(c, {"label", "click", "clicked", "target", "y", "conversion", "rating", "stars"});
}

// The column of the wanted name; one named as labels are; or one of zeros and ones. Of several the first that has a
// number in every row, of those named one of zeros and ones before others.
const ColumnSeen* label_among(const std::vector<ColumnSeen>& columns, const std::string& wanted) {
  const auto first = [&](const auto& suits) -> const ColumnSeen* {
    const auto found = std::find_if(columns.begin(), columns.end(),
                                    [&](const ColumnSeen& c) { return all_numbers(c) && !c.list && suits(c); });
    return found == columns.end() ? nullptr : &*found;
  };
  if (!wanted.empty()) return first([&](const ColumnSeen& c) { return c.name == wanted; });
  using Suits = bool (*)(const ColumnSeen&);
  constexpr std::array<Suits, 6> kBestFirst = {
      [](const ColumnSeen& c) { return named_as_label(c) && c.missing == 0 && is_binary(c); },
      [](const ColumnSeen& c) { return named_as_label(c) && c.missing == 0; },
      [](const ColumnSeen& c) { return named_as_label(c) && is_binary(c); },
      named_as_label,
      [](const ColumnSeen& c) { return c.missing == 0 && is_binary(c); },
      is_binary,
  };
  for (const Suits suits : kBestFirst) {
    if (const ColumnSeen* c = first(suits)) return c;
  }
  return nullptr;
}

double mean_of(const ColumnSeen& c) { return c.sum / static_cast<double>(c.numbers); }

// From where on a number is a 1.
double threshold_of(const ColumnSeen& c) { return all_whole(c) ? std::floor(mean_of(c)) + 1 : mean_of(c); }

std::string label_toml(const ColumnSeen& c) {
  std::string out = "as = \"label\"\n";
  if (is_binary(c)) return out;
  return out +
         cat("threshold = ", threshold_of(c), "                        # 1 from here on; the mean is ", mean_of(c),
             "\n") +
         "# real = true                        # instead of the threshold: the number itself, with the loss below\n";
}

std::string dense_toml(const ColumnSeen& c) {
  std::string out = "as = \"dense\"\n";
  if (c.missing > 0) out += "missing = 0\n";
  constexpr double kSkewed = 10;  // the largest of the mean
  const bool skewed = c.least >= 0 && c.most > kSkewed * mean_of(c);
  return out + (skewed ? "transform = [\"log1p\", \"standardise\"]\n" : "transform = \"standardise\"\n");
}

// `mean`: of lists without weights, which no table can be beside one whose ids have weights.
std::string ids_toml(const ColumnSeen& c, bool mean) {
  // Where many texts are rare, others will come that are not there: then rare ones teach what those mean.
  constexpr size_t kMany = 10;  // one in so many
  std::string out = "ids = \"vocabulary\"\n";
  if (c.ids >= ColumnSeen::kMostDistinct)
    out = "ids = \"hash\"\nrows = 1000000\n";
  else if (kMany * c.once >= c.ids && c.once > 1)
    out += cat("min_count = 2                         # ", c.once, " of ", c.ids,
               " came once: rare and new ones share a row\n");
  if (c.separator != 0) out += cat("separator = \"", c.separator, "\"\n");
  if (c.weighted) return out + "weighted = true\n";
  return out + ((c.list || c.separator != 0) && mean ? "pooling = \"mean\"\n" : "");
}

// What is not sure of ids, and what to write where it is otherwise.
std::string ids_note(const ColumnSeen& c) {
  if (c.separator != 0 && c.weighted)
    return cat("# ", c.ids,
               " ids, each with a number behind \":\" that weighs its row. Where that is a part of the id, "
               "leave weighted out.\n");
  if (c.separator != 0)
    return cat("# ", c.ids, " items in ", c.wholes,
               " different fields: a list. Where a whole field is one id, leave "
               "separator and pooling out.\n");
  if (c.other_separator != 0)
    return cat(
        "# Whole fields come again and again: one id each. Where their words mean something by themselves, "
        "add separator = \"",
        c.other_separator, "\" and pooling = \"mean\".\n");
  return "";
}

// Nearly every row has a text of its own: nothing can be learned for it.
bool is_unique(const ColumnSeen& c) {
  constexpr double kNearlyAll = 0.95;
  constexpr int64_t kEnough = 100;
  return c.separator == 0 && !c.list && c.fields >= kEnough && !c.more &&
         static_cast<double>(c.distinct.size()) > kNearlyAll * static_cast<double>(c.fields - c.missing);
}

// Numbers that are no ids. Whole numbers of few values are rather categories, unless nothing else is dense.
bool is_dense(const ColumnSeen& c, bool few_too) {
  constexpr size_t kFew = 50;
  const std::string name = lower(c.name);
  const bool id = name == "id" || name.ends_with("id") || named(c, {"user", "item", "film", "movie", "product", "zip"});
  return all_numbers(c) && !c.list && !id && (few_too || !all_whole(c) || c.distinct.size() > kFew);
}

// Whole numbers in all their digits, where a double has them.
std::string plain(double value) {
  constexpr double kExact = 9007199254740992;  // 2^53
  const bool whole = value == std::floor(value) && std::abs(value) <= kExact;
  return whole ? cat(static_cast<int64_t>(value)) : cat(value);
}

std::string summary(const ColumnSeen& c) {
  std::string out = cat(c.more ? "more than " : "", c.distinct.size(), " distinct");
  if (all_numbers(c)) out += cat(", ", plain(c.least), " to ", plain(c.most));
  if (c.missing > 0) out += cat(", ", c.missing, " of ", c.fields, " missing");
  for (const std::string& word : c.missing_words)
    out += cat(word == c.missing_words[0] ? ", as \"" : ", \"", word, "\"");
  return out;
}

// A number but for its comma: "3,5".
bool has_decimal_comma(std::string text) {
  const size_t comma = text.find(',');
  if (comma == text.npos || comma == 0 || comma + 1 == text.size()) return false;
  text[comma] = '.';
  double value = 0;
  return data::parse_number(text, value);
}

// The first such number of a column whose texts seem to be numbers; empty: they are none. What has no digit may stand
// for no number.
std::string decimal_comma(const ColumnSeen& c) {
  if (c.list) return {};
  std::string out;
  size_t numbers = 0;
  for (const std::string& text : c.distinct) {
    double value = 0;
    const bool comma = has_decimal_comma(text);
    if (comma || data::parse_number(text, value))
      ++numbers;
    else if (text.find_first_of("0123456789") != text.npos)
      return {};
    if (comma && out.empty()) out = text;
  }
  return 2 * numbers > c.distinct.size() ? out : "";
}

std::string decimal_comma_note(const ColumnSeen& c) {
  const std::string number = decimal_comma(c);
  if (number.empty()) return {};
  std::string pointed = number;
  std::replace(pointed.begin(), pointed.end(), ',', '.');
  return cat("# Where these are numbers with decimal commas, as ", quoted(number), ": written with points, ",
             quoted(pointed), ", they are dense values.\n");
}

// The first of its texts that are no numbers, in brackets; empty: only others were counted.
std::string some_texts(const ColumnSeen& c) {
  constexpr size_t kSome = 2;
  std::vector<std::string> texts;
  for (const std::string& text : c.distinct) {
    double value = 0;
    if (!data::parse_number(text, value)) texts.push_back(quoted(text));
  }
  if (texts.empty()) return {};
  std::string out;
  for (size_t i = 0; i < std::min(kSome, texts.size()); ++i) out += cat(i == 0 ? "" : ", ", texts[i]);
  return cat(" (", out, texts.size() > kSome ? ", ..." : "", ")");
}

std::string why_no_label(const std::vector<ColumnSeen>& columns, const std::string& wanted) {
  std::string names;
  bool any_rows = false;
  for (const ColumnSeen& c : columns) {
    names += cat(names.empty() ? "" : ", ", c.name);
    any_rows = any_rows || c.fields > 0;
    const bool meant = wanted.empty() ? named_as_label(c) && !c.list : c.name == wanted;
    if (!meant || c.distinct.empty()) continue;
    if (c.list) return cat("column ", quoted(wanted), " has lists, and a label is a number");
    const std::string has = cat(" has texts", some_texts(c), ", ");
    if (!decimal_comma(c).empty())
      return cat("column ", quoted(c.name), has,
                 "and a label is a number: write decimal points instead of commas into the file");
    if (!wanted.empty())
      return cat("column ", quoted(wanted), has, "and a label is a number: write 0 and 1 into the file, say");
    return cat("column ", quoted(c.name), " is named as a label, but", has,
               "which have to be 0 and 1: write these into the file, or name another column by --label");
  }
  if (!any_rows) return "there are no rows";
  return cat(wanted.empty() ? "no column is named as a label or has zeros and ones alone"
                            : cat("there is no column ", quoted(wanted)),
             ": --label NAME says which one of ", names, " it is");
}

// Seconds, or finer: what the newest rows can be told by.
bool is_time(const ColumnSeen& c) {
  constexpr double kLongAgo = 1e8;  // seconds of 1970 to 1973
  return named(c, {"timestamp", "time", "unix_time", "event_time", "ts"}) && all_numbers(c) && !c.list &&
         c.least >= kLongAgo;
}

void replace_all(std::string& text, std::string_view what, std::string_view with) {
  for (size_t at = 0; (at = text.find(what, at)) != text.npos; at += with.size()) text.replace(at, what.size(), with);
}

// DeepFM, from the preset: where nothing is dense, which a DLRM needs, and where the loss may be another one.
std::string deepfm(bool any_dense, bool any_loss) {
  const auto presets = model_presets();
  const auto preset = std::find_if(presets.begin(), presets.end(),
                                   [](const ModelPreset& p) { return p.name == std::string_view("deepfm"); });
  TESSERA_CHECK(preset != presets.end(), "a preset of the program");
  std::string text = preset->text;
  const size_t begin = text.find("[model]");
  text = text.substr(begin, text.find("[table_defaults]") - begin);
  if (!any_dense) replace_all(text, "\"dense\", ", "");
  if (any_loss) {
    replace_all(text, "name = \"click\"", "name = \"prediction\"");
    replace_all(text, "loss = \"binary_cross_entropy\"\n",
                "loss = \"binary_cross_entropy\"\n"
                "# loss = \"mse\"                        # instead, where the label is real\n");
  }
  return cat("\n# ", any_dense ? "A DLRM has one loss" : "No column is dense, as a DLRM needs one",
             ": a factorization machine beside an mlp (`tessera model new deepfm`).\n", text);
}

enum class Kind { kLabel, kOtherLabel, kEmpty, kUnique, kDense, kIds };

Kind kind_of(const ColumnSeen& c, const ColumnSeen& label, bool few_too) {
  if (&c == &label) return Kind::kLabel;
  if (c.distinct.empty()) return Kind::kEmpty;
  if (named_as_label(c)) return Kind::kOtherLabel;
  if (is_dense(c, few_too)) return Kind::kDense;
  return is_unique(c) ? Kind::kUnique : Kind::kIds;
}

struct Job {
  bool few_too;  // whole numbers of few values are dense
  bool dense;    // a column is
  bool mean;     // no list has weights
};

std::string feature_toml(const ColumnSeen& c, bool dense, bool mean) {
  return cat("[[column]]\nname = ", quoted(c.name), "\n", dense ? dense_toml(c) : ids_toml(c, mean));
}

// A column that would tell the label, most likely: what to write where it is not so.
std::string other_label_note(const ColumnSeen& c, const Job& job) {
  const bool dense = is_dense(c, job.few_too);
  std::string feature = feature_toml(c, dense, job.mean);
  feature.pop_back();
  replace_all(feature, "\n", "\n# ");
  if (dense && !job.dense)
    feature += "\n# The inputs of the layers \"first\" and \"deep\" are [\"dense\", \"pooled\"] then.";
  std::string label = "# It can be no label as it is: each row needs a number.\n";
  if (all_numbers(c) && !c.list && c.missing == 0)
    label = cat("# For a second [[head]] write as = \"label\"",
                is_binary(c) ? "" : cat(" and threshold = ", threshold_of(c)),
                " below its name instead; each head then says which label is its own.\n");
  return cat("# left out, as it looks like another label: ", quoted(c.name),
             ". Where it is a feature, known before the label is:\n# ", feature, "\n", label);
}

std::string column_toml(const ColumnSeen& c, Kind kind, const Job& job) {
  switch (kind) {
    case Kind::kLabel:
      return cat("[[column]]\nname = ", quoted(c.name), "\n", label_toml(c));
    case Kind::kOtherLabel:
      return other_label_note(c, job);
    case Kind::kEmpty:
      return cat("# left out, as it is empty: ", quoted(c.name), "\n");
    case Kind::kUnique:
      return cat("# left out, as nearly every row has another one: ", quoted(c.name), "\n");
    case Kind::kDense:
      return feature_toml(c, true, job.mean);
    case Kind::kIds:
      break;
  }
  return ids_note(c) + feature_toml(c, false, job.mean);
}

}  // namespace

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

ColumnsToml columns_toml(const std::vector<ColumnSeen>& columns, const std::string& wanted) {
  const ColumnSeen* label = label_among(columns, wanted);
  if (label == nullptr) fail(Code::kInvalidArgument, why_no_label(columns, wanted));
  if (label->missing > 0)
    fail(Code::kInvalidArgument, "column ", quoted(label->name), " has no number in ", label->missing, " of ",
         label->fields,
         " rows, and each row needs a label: leave these rows out of the file, or name another column "
         "by --label");
  const auto any = [&](Kind kind, bool few_too) {
    return std::any_of(columns.begin(), columns.end(),
                       [&](const ColumnSeen& c) { return kind_of(c, *label, few_too) == kind; });
  };
  const bool few_too = !any(Kind::kDense, false) && any(Kind::kIds, true);
  if (!any(Kind::kIds, few_too))
    fail(Code::kInvalidArgument, "no column beside the label ", quoted(label->name),
         " seems to be ids, which come again and again and of which a job needs one: add a user, an item or a category "
         "to the file, or write the [[column]]s by hand, a number with ids = \"bucket\", say");
  const bool mean = std::none_of(columns.begin(), columns.end(), [&](const ColumnSeen& c) {
    return c.weighted && kind_of(c, *label, few_too) == Kind::kIds;
  });
  const Job job = {.few_too = few_too, .dense = any(Kind::kDense, few_too), .mean = mean};
  ColumnsToml out;
  for (const ColumnSeen& c : columns) {
    const Kind kind = kind_of(c, *label, few_too);
    if (out.time.empty() && is_time(c)) out.time = c.name;
    out.missing_words = out.missing_words || (kind == Kind::kDense && !c.missing_words.empty());
    out.text += cat("\n# ", summary(c), "\n", decimal_comma_note(c), column_toml(c, kind, job));
  }
  if (!job.dense || !is_binary(*label)) out.text += deepfm(job.dense, !is_binary(*label));
  return out;
}

}  // namespace tessera::cli
