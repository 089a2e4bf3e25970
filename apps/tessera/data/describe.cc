#include "data/describe.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "command.h"
#include "data/line_reader.h"
#include "data/reader_part.h"
#include "model_presets.h"

namespace tessera::cli {
namespace {

constexpr size_t kMostDistinct = 20000;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// TOML's strings have JSON's escapes.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Counts fields of a column.
class Look {
 public:
  Look(std::string name, bool list) { seen_.name = std::move(name), seen_.list = list; }

  void add(std::string_view field) {
    ++seen_.fields;
    if (field.empty()) {
      ++seen_.missing;
      return;
    }
    if (double value = 0; data::parse_number(field, value)) add_number(value);
    seen_.more = !count(field, distinct_) || seen_.more;
    for (auto& [separator, items] : items_) {
      if (field.find(separator) == std::string_view::npos) continue;
      ++items.fields;
      for (std::string_view rest = field; !data::finished(rest);) {
        ++items.all;
        const std::string_view item = data::cut(rest, separator);
        count(item, items.distinct);
      }
    }
  }

  ColumnSeen seen() {
    for (const auto& [field, times] : distinct_) seen_.distinct.push_back(field);
    count_ids(distinct_);
    std::sort(seen_.distinct.begin(), seen_.distinct.end());
    // A list's items come again, where a sentence's whole does not: with others, in other fields.
    for (const auto& [separator, items] : items_) {
      if (seen_.list) break;  // of a format that has them
      const bool often = 4 * items.fields >= seen_.fields - seen_.missing && items.fields > 0;
      const bool fewer = items.distinct.size() < distinct_.size() || separator == '|' || separator == ';';
      const bool again = 2 * items.distinct.size() <= items.all && fewer;
      if (often && again && seen_.numbers < seen_.fields - seen_.missing) {
        seen_.separator = separator;
        count_ids(items.distinct);
        break;
      }
    }
    return seen_;
  }

 private:
  using Counts = std::unordered_map<std::string, int64_t>;
  struct Items {
    int64_t fields = 0;  // that have the separator
    size_t all = 0;
    Counts distinct;
  };

  // False where it is new, and there is no place.
  static bool count(std::string_view text, Counts& counts) {
    std::string key(text);
    if (counts.size() >= kMostDistinct && !counts.contains(key)) return false;
    ++counts[std::move(key)];
    return true;
  }
  void count_ids(const Counts& counts) {
    const auto once = std::count_if(counts.begin(), counts.end(), [](const auto& c) { return c.second == 1; });
    seen_.ids = counts.size(), seen_.once = static_cast<size_t>(once);
  }

  void add_number(double value) {
    if (seen_.numbers++ == 0) seen_.least = seen_.most = value;
    seen_.least = std::min(seen_.least, value);
    seen_.most = std::max(seen_.most, value);
    seen_.sum += value;
    seen_.whole += value == std::floor(value) ? 1 : 0;
  }

  ColumnSeen seen_;
  Counts distinct_;
  std::vector<std::pair<char, Items>> items_ = {{'|', {}}, {';', {}}, {',', {}}, {' ', {}}};
};

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
  const std::vector<std::string> names = {"label", "click", "clicked", "target", "y", "conversion", "rating"};
  if (const auto* c = first([&](const ColumnSeen& o) { return named(o, names) && all_numbers(o) && !o.list; }))
    return c;
  return first(is_binary);
}

std::string label_toml(const ColumnSeen& c) {
  std::string out = "as = \"label\"\n";
  if (is_binary(c)) return out;
  const double mean = c.sum / static_cast<double>(c.numbers);
  const double threshold = all_whole(c) ? std::floor(mean) + 1 : mean;
  return out + cat("threshold = ", threshold, "                        # 1 from here on; the mean is ", mean, "\n");
}

std::string dense_toml(const ColumnSeen& c) {
  std::string out = "as = \"dense\"\n";
  if (c.missing > 0) out += "missing = 0\n";
  const double mean = c.sum / static_cast<double>(c.numbers);
  constexpr double kSkewed = 10;  // the largest of the mean
  const bool skewed = c.least >= 0 && c.most > kSkewed * mean;
  return out + (skewed ? "transform = [\"log1p\", \"standardise\"]\n" : "transform = \"standardise\"\n");
}

std::string ids_toml(const ColumnSeen& c) {
  // Where many texts are rare, others will come that are not there: then rare ones teach what those mean.
  constexpr size_t kMany = 10;  // one in so many
  std::string out = "ids = \"vocabulary\"\n";
  if (kMany * c.once >= c.ids && c.once > 1)
    out += cat("min_count = 2                         # ", c.once, " of ", c.ids,
               " came once: rare and new ones share a row\n");
  if (c.more) out = "ids = \"hash\"\nrows = 1000000\n";
  if (c.list) out += "pooling = \"mean\"\n";
  if (c.separator != 0) out += cat("separator = \"", c.separator, "\"\npooling = \"mean\"\n");
  return out;
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

// The model of a job without dense values, which a DLRM needs: the preset's layers, from what there is.
std::string model_without_dense() {
  const auto presets = model_presets();
  const auto deepfm = std::find_if(presets.begin(), presets.end(),
                                   [](const ModelPreset& p) { return p.name == std::string_view("deepfm"); });
  TESSERA_CHECK(deepfm != presets.end(), "a preset of the program");
  std::string text = deepfm->text;
  const size_t begin = text.find("[model]");
  text = text.substr(begin, text.find("[table_defaults]") - begin);
  constexpr std::string_view kDense = "\"dense\", ";
  for (size_t at = 0; (at = text.find(kDense, at)) != text.npos;) text.erase(at, kDense.size());
  return "\n# No column is dense, as a DLRM needs one: a factorization machine beside an mlp (`tessera model new "
         "deepfm`).\n" +
         text;
}

}  // namespace

std::string columns_toml(const std::vector<ColumnSeen>& columns, const std::string& wanted) {
  const ColumnSeen* label = label_among(columns, wanted);
  if (label == nullptr) fail(Code::kInvalidArgument, why_no_label(columns, wanted));
  const auto any_dense = [&](bool few_too) {
    return std::any_of(columns.begin(), columns.end(),
                       [&](const ColumnSeen& c) { return &c != label && is_dense(c, few_too); });
  };
  const bool few_too = !any_dense(false);
  std::string out;
  for (const ColumnSeen& c : columns) {
    const bool dense = is_dense(c, few_too);
    out += cat("\n# ", summary(c), "\n");
    if (&c != label && (c.distinct.empty() || (!dense && is_unique(c)))) {
      out += cat("# left out, as ",
                 c.distinct.empty() ? "it is empty: " : "nearly every row has another one: ", quoted(c.name), "\n");
      continue;
    }
    out += cat("[[column]]\nname = ", quoted(c.name), "\n");
    out += &c == label ? label_toml(c) : dense ? dense_toml(c) : ids_toml(c);
  }
  return any_dense(true) ? out : out + model_without_dense();
}

std::string describe_files(const Runtime& runtime, const DescribeOptions& options) {
  constexpr int64_t kBlock = int64_t{256} << 10;
  data::ReaderPart part(runtime, options.reader, options.path, kBlock);
  std::vector<Look> looks;
  std::vector<data::WantedColumn> wants;
  for (const data::FileColumn& c : part.columns()) {
    looks.emplace_back(c.name, c.list);
    wants.push_back({c.name, TSR_READER_TEXT, c.list});
  }
  part.select(wants);
  int64_t rows = 0, seen = 0;
  const int64_t blocks = std::ssize(part.blocks());
  bool anywhere = true;
  for (const data::FileBlock& b : part.blocks()) rows += b.rows, anywhere = anywhere && !b.behind;
  // Of a large file some blocks, as far from each other as can be; behind what cannot be skipped, the first ones.
  const int64_t some = anywhere && rows > options.rows ? std::max<int64_t>(1, blocks * options.rows / rows) : blocks;
  for (int64_t i = 0; i < some && seen < options.rows; ++i) {
    const int64_t block = i * blocks / some;
    const int64_t here = std::min(options.rows - seen, part.blocks()[static_cast<size_t>(block)].rows);
    part.read(block, [&](std::span<const tsr_reader_values> values) {
      for (size_t c = 0; c < looks.size(); ++c) {
        const auto* bytes = static_cast<const char*>(values[c].values);
        const int64_t* texts = values[c].texts;
        const int64_t fields = values[c].lists != nullptr ? values[c].lists[here] : here;
        for (int64_t i = 0; i < fields; ++i)
          looks[c].add({bytes + texts[i], static_cast<size_t>(texts[i + 1] - texts[i])});
      }
    });
    seen += here;
  }
  std::vector<ColumnSeen> columns;
  for (Look& look : looks) columns.push_back(look.seen());
  const auto time = std::find_if(columns.begin(), columns.end(), is_time);
  const std::string order =
      time == columns.end() ? "" : cat("# order_by = ", quoted(time->name), "   # the newest rows are the test then\n");
  return cat("# Made by `tessera data describe` out of ", seen, " of ", rows,
             " rows: look at it before you train.\n"
             "#   tessera train --config THIS_FILE\n\n[data]\nreader = ",
             quoted(options.reader), "\npath = ", quoted(options.path),
             "\nbatch = 256\nepochs = 1\ntest_fraction = 0.1                   # the last rows\n", order,
             columns_toml(columns, options.label));
}

}  // namespace tessera::cli
