#include "data/columns_toml.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "command.h"
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

// The column of the wanted name; one named as labels are; or the first of zeros and ones.
const ColumnSeen* label_among(const std::vector<ColumnSeen>& columns, const std::string& wanted) {
  const auto first = [&](const auto& suits) -> const ColumnSeen* {
    const auto found = std::find_if(columns.begin(), columns.end(), suits);
    return found == columns.end() ? nullptr : &*found;
  };
  if (!wanted.empty()) return first([&](const ColumnSeen& c) { return c.name == wanted && all_numbers(c) && !c.list; });
  const std::vector<std::string> names = {"label", "click", "clicked", "target", "y", "conversion", "rating", "stars"};
  if (const auto* c = first([&](const ColumnSeen& o) { return named(o, names) && all_numbers(o) && !o.list; }))
    return c;
  if (const auto* c = first([](const ColumnSeen& o) { return is_binary(o) && o.missing == 0; })) return c;
  return first(is_binary);
}

std::string label_toml(const ColumnSeen& c) {
  std::string out = "as = \"label\"\n";
  if (is_binary(c)) return out;
  const double mean = c.sum / static_cast<double>(c.numbers);
  const double threshold = all_whole(c) ? std::floor(mean) + 1 : mean;
  return out + cat("threshold = ", threshold, "                        # 1 from here on; the mean is ", mean, "\n") +
         "# real = true                        # instead of the threshold: the number itself, with the loss below\n";
}

std::string dense_toml(const ColumnSeen& c) {
  std::string out = "as = \"dense\"\n";
  if (c.missing > 0) out += "missing = 0\n";
  const double mean = c.sum / static_cast<double>(c.numbers);
  constexpr double kSkewed = 10;  // the largest of the mean
  const bool skewed = c.least >= 0 && c.most > kSkewed * mean;
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

std::string why_no_label(const std::vector<ColumnSeen>& columns, const std::string& wanted) {
  std::string names;
  bool any_rows = false;
  for (const ColumnSeen& c : columns) {
    names += cat(names.empty() ? "" : ", ", c.name);
    any_rows = any_rows || c.fields > 0;
    if (c.name != wanted || c.distinct.empty()) continue;
    if (c.list) return cat("column ", quoted(wanted), " has lists, and a label is a number");
    const std::string other = c.distinct.size() > 1 ? ", " + quoted(c.distinct[1]) : "";
    return cat("column ", quoted(wanted), " has texts (", quoted(c.distinct[0]), other,
               c.distinct.size() > 2 ? ", ..." : "", "), and a label is a number: write 0 and 1 into the file, say");
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
  const auto any_dense = [&](bool few_too) {
    return std::any_of(columns.begin(), columns.end(),
                       [&](const ColumnSeen& c) { return &c != label && is_dense(c, few_too); });
  };
  const bool few_too = !any_dense(false);
  const bool mean = std::none_of(columns.begin(), columns.end(), [](const ColumnSeen& c) { return c.weighted; });
  ColumnsToml out;
  for (const ColumnSeen& c : columns) {
    if (out.time.empty() && is_time(c)) out.time = c.name;
    const bool dense = is_dense(c, few_too);
    out.text += cat("\n# ", summary(c), "\n");
    if (&c != label && (c.distinct.empty() || (!dense && is_unique(c)))) {
      out.text +=
          cat("# left out, as ",
              c.distinct.empty() ? "it is empty: " : "nearly every row has another one: ", quoted(c.name), "\n");
      continue;
    }
    const bool ids = &c != label && !dense;
    out.missing_words = out.missing_words || (dense && !c.missing_words.empty());
    out.text += cat(ids ? ids_note(c) : "", "[[column]]\nname = ", quoted(c.name), "\n",
                    &c == label ? label_toml(c)
                    : dense     ? dense_toml(c)
                                : ids_toml(c, mean));
  }
  const bool dense = any_dense(true);
  if (!dense || !is_binary(*label)) out.text += deepfm(dense, !is_binary(*label));
  return out;
}

}  // namespace tessera::cli
