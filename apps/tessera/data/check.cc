#include "data/check.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "data/columns_toml.h"
#include "data/profile_page.h"
#include "data/toml_text.h"
#include "tessera/error.h"
#include "tessera/sdk/nearest.h"
#include "tessera/sdk/values.h"

namespace tessera::cli {
namespace {

// Shares from which a difference is said. Fewer rows than kLeastRows say nothing of a distribution.
constexpr double kMissing = 0.05, kUnseen = 0.05, kOutside = 0.01, kMoved = 0.2;
constexpr int64_t kLeastRows = 50;

std::string percent(double share) {
  const double of_hundred = 100 * share;
  return str_cat(short_number(of_hundred < 1 ? std::ceil(10 * of_hundred) / 10 : std::round(of_hundred)), " %");
}

bool are_lists(const ColumnSeen& c) { return c.list || c.form == Form::kLists; }

const char* in_words(const ColumnSeen& c) {
  if (c.list) return "lists";
  switch (c.form) {
    case Form::kEmpty:
      return "no values";
    case Form::kNumbers:
      return "numbers";
    case Form::kWritten:
      return "numbers as people write them";
    case Form::kTimes:
      return "times";
    case Form::kTexts:
      return "texts";
    case Form::kLists:
      return "lists";
    case Form::kVectors:
      return "vectors";
    case Form::kNested:
      return "nested values";
  }
  return "values";
}

// A column's values as a model looks them up: 42 and 42.0 are one.
std::vector<ListText::Value> words_in(const ColumnSeen& c) {
  std::vector<ListText::Value> out;
  std::unordered_map<std::string, size_t> places;
  for (const ListText::Value& v : c.values) {
    std::string word;
    sdk::append_word(word, std::string_view(v.text));
    const auto [place, fresh] = places.try_emplace(word, out.size());
    if (fresh) out.push_back({word});
    out[place->second].count += v.count;
  }
  return out;
}

double share_missing(const ColumnSeen& c) {
  return c.fields == 0 ? 0 : static_cast<double>(c.missing) / static_cast<double>(c.fields);
}

// The largest distance between the distribution functions of two ascending samples (Kolmogorov and Smirnov's).
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const double x = std::min(a[i], b[j]);
    while (i < a.size() && a[i] == x) ++i;
    while (j < b.size() && b[j] == x) ++j;
    most = std::max(most, std::abs(static_cast<double>(i) / static_cast<double>(a.size()) -
                                   static_cast<double>(j) / static_cast<double>(b.size())));
  }
  return most;
}

class Comparison {
 public:
  Comparison(const ColumnSeen& train, const ColumnSeen& now, std::vector<Difference>& out)
      : train_(train), now_(now), out_(out) {}

  void compare() {
    if (now_.in_some_files) return say("only some of the files have the column");
    if (now_.form == Form::kEmpty && train_.form != Form::kEmpty) return say("no row has a value");
    const auto fits = std::find(now_.time_formats.begin(), now_.time_formats.end(), train_.time_format);
    if (!train_.time_format.empty() && fits != now_.time_formats.end()) return missing();
    const bool lists = are_lists(train_) && are_lists(now_);
    if (!lists && (now_.form != train_.form || now_.list != train_.list) && train_.form != Form::kEmpty)
      return say(str_cat("the training files have ", in_words(train_), ", these have ", in_words(now_), example()));
    missing();
    if (lists && now_.list != train_.list) return;  // items on one side, and whole fields of text on the other
    words();
    if (now_.form == Form::kWritten) notation();
    if (now_.form == Form::kVectors) return vectors();
    if (now_.form == Form::kTimes) return times();
    const bool number = now_.form == Form::kNumbers || now_.form == Form::kWritten;
    number && !counts_things() ? numbers(train_.numbers, now_.numbers) : values();
  }

 private:
  void say(std::string sentence) { out_.push_back({train_.name, std::move(sentence)}); }
  std::string example() const { return now_.values.empty() ? "" : str_cat(", such as ", quoted(now_.values[0].text)); }

  // True for whole numbers that repeat, as ids do.
  bool counts_things() const {
    constexpr int64_t kOften = 10;
    return train_.form == Form::kNumbers && train_.exact && train_.numbers.whole() == train_.numbers.count() &&
           kOften * train_.distinct <= train_.fields;
  }

  void missing() {
    const double before = share_missing(train_), after = share_missing(now_);
    if (after > before + kMissing)
      say(str_cat(percent(after), " of the values are missing, ", percent(before), " in the training files"));
  }

  // Words in place of numbers or times that no training row has, so a job does not know them.
  void words() {
    const auto known = [&](const std::string& word) {
      return std::find(train_.own_words.begin(), train_.own_words.end(), word) != train_.own_words.end();
    };
    for (const std::string& word : now_.own_words) {
      if (!known(word))
        say(str_cat("the word ", quoted(word), " is not in the training files, which have ", in_words(train_)));
    }
  }

  // Later rows have later times, so only the form of times is compared.
  void times() {
    const auto form = [](const ColumnSeen& c) { return c.time_format.empty() ? "ISO 8601" : c.time_format.c_str(); };
    if (now_.time_format != train_.time_format)
      say(str_cat("the training files have times in the form ", form(train_), ", these in the form ", form(now_)));
  }

  // A model reads numbers as people write them by the keys of its job.
  void notation() {
    const auto name = [](const WrittenNumber& w) {
      return str_cat("decimal sign ", quoted(w.decimal.empty() ? "." : w.decimal), " and ", quoted(w.strip),
                     " left out");
    };
    // A file without cents has no decimal sign, and one of small numbers no sign between groups.
    const bool reads = std::all_of(now_.values.begin(), now_.values.end(), [&](const ListText::Value& v) {
      const std::optional<double> number = now_.written.read(v.text);
      return !number || train_.written.read(v.text) == number;
    });
    if (!reads)
      say(str_cat("the training files have numbers with the ", name(train_.written), ", these with the ",
                  name(now_.written), example()));
  }

  void vectors() {
    if (now_.vector.width() != train_.vector.width())
      say(str_cat("the training files have vectors of ", train_.vector.width(), " numbers, these of ",
                  now_.vector.width()));
    if (now_.vector.broken > 0 && train_.vector.broken == 0)
      say(str_cat(now_.vector.broken, " values of the vectors are missing or infinite"));
    numbers(train_.vector.numbers, now_.vector.numbers);
  }

  void numbers(const NumberSummary& trained, const NumberSummary& found) {
    const std::vector<double> before = trained.sample(), after = found.sample();
    if (after.empty() || before.empty()) return;
    const auto low = std::lower_bound(after.begin(), after.end(), trained.least());
    const auto high = std::upper_bound(after.begin(), after.end(), trained.most());
    const double outside = 1 - static_cast<double>(high - low) / static_cast<double>(after.size());
    if (outside > kOutside)
      say(str_cat(percent(outside), " of the numbers are outside the ", short_number(trained.least()), " to ",
                  short_number(trained.most()), " of the training files: ", short_number(found.least()), " to ",
                  short_number(found.most())));
    const double moved = distance(before, after);
    if (moved > kMoved && found.count() >= kLeastRows)
      say(str_cat("the numbers have moved: their median is ", short_number(quantile(after, 0.5)), ", and was ",
                  short_number(quantile(before, 0.5)), " (distance of the distributions ", short_number(moved), ")"));
  }

  // Values that the training files do not have, and how the shares of the others have changed.
  void values() {
    const bool keys = static_cast<double>(train_.distinct) > 0.9 * static_cast<double>(train_.fields - train_.missing);
    if (!train_.exact || !now_.exact || keys) return;  // what names each row is new in each file
    std::unordered_map<std::string, int64_t> before;
    int64_t all_before = 0, all = 0, unseen = 0;
    for (const ListText::Value& v : words_in(train_)) before[v.text] = v.count, all_before += v.count;
    const std::vector<ListText::Value> after = words_in(now_);
    for (const ListText::Value& v : after) all += v.count;
    if (all == 0 || all_before == 0) return;
    std::vector<std::string> names;
    double moved = 0, most_gained = 0;
    std::string gainer;  // the value with the largest gain
    for (const ListText::Value& v : after) {
      const auto known = before.find(v.text);
      const double share = static_cast<double>(v.count) / static_cast<double>(all);
      const double was =
          known == before.end() ? 0 : static_cast<double>(known->second) / static_cast<double>(all_before);
      if (share - was > most_gained)
        most_gained = share - was,
        gainer = str_cat(quoted(v.text), ", ", percent(share), " now, ", percent(was), " before");
      if (known == before.end()) {
        unseen += v.count;
        names.push_back(v.text);
        moved += share;
        continue;
      }
      moved += std::max(0.0, share - was);
    }
    const double share = static_cast<double>(unseen) / static_cast<double>(all);
    const bool lists = train_.form == Form::kLists;
    if (share > kUnseen)
      return say(str_cat(percent(share), lists ? " of the lists" : " of the values",
                         " are not in the training files: ", listed(names, 5)));
    constexpr int64_t kFew = 50;
    if (!lists && moved > kMoved && all >= kLeastRows && static_cast<int64_t>(train_.values.size()) <= kFew)
      say(str_cat(percent(moved), " of the rows have moved to other values than in the training files, most to ",
                  gainer));
  }

  const ColumnSeen &train_, &now_;
  std::vector<Difference>& out_;
};

const ColumnSeen* find(const FilesSeen& files, const std::string& name) {
  const auto at =
      std::find_if(files.columns.begin(), files.columns.end(), [&](const ColumnSeen& c) { return c.name == name; });
  return at == files.columns.end() ? nullptr : &*at;
}

}  // namespace

std::vector<Difference> differences(const FilesSeen& train, const FilesSeen& now,
                                    const std::vector<std::string>& labels) {
  std::vector<Difference> out;
  for (const std::string& label : labels) {
    std::vector<std::string> names;
    for (const ColumnSeen& c : train.columns) names.push_back(c.name);
    if (find(train, label) == nullptr)
      fail(Code::kInvalidArgument, "--label: the training files have no column \"", label, '"',
           sdk::nearest_text(label, names));
  }
  const auto component = [](const std::string& reader) { return reader.substr(0, reader.find('?')); };
  if (train.reader != now.reader && component(train.reader) == component(now.reader))
    out.push_back({"", str_cat("a model of the training files reads ", quoted(train.reader), ", and these are ",
                               quoted(now.reader), ": name it with --reader, or write them alike")});
  for (const ColumnSeen& c : train.columns) {
    const ColumnSeen* other = find(now, c.name);
    const bool label = std::find(labels.begin(), labels.end(), c.name) != labels.end();
    if (other == nullptr && !label) out.push_back({c.name, "the column is missing"});
    if (other != nullptr && c.unknown_type.empty() && !c.in_some_files) Comparison(c, *other, out).compare();
  }
  for (const ColumnSeen& c : now.columns) {
    if (find(train, c.name) == nullptr) out.push_back({c.name, "the column is new; a model does not look at it"});
  }
  return out;
}

std::string copies_sentence(const FilesSeen& train, const FilesSeen& now) {
  constexpr double kFewCopies = 0.95, kMany = 0.2;
  if (train.row_hashes.empty() || now.row_hashes.empty()) return {};
  if (train.distinct_rows < kFewCopies * static_cast<double>(train.rows)) return {};
  const auto copies = std::count_if(now.row_hashes.begin(), now.row_hashes.end(), [&](uint64_t hash) {
    return std::binary_search(train.row_hashes.begin(), train.row_hashes.end(), hash);
  });
  if (static_cast<double>(copies) < kMany * static_cast<double>(now.rows)) return {};
  return str_cat(copies, " of ", now.rows,
                 " rows are also in the training files: a test on them says nothing about rows "
                 "that a model has not seen");
}

PageParts differences_page(const FilesSeen& train, const FilesSeen& now, const std::vector<Difference>& all,
                           const std::string& about) {
  PageParts out = PageParts::array({{{"text", about}}});
  for (const Difference& d : all) {
    if (d.column.empty()) out.push_back({{"text", d.sentence + "."}});
  }
  const auto section = [&](const std::string& name) {
    std::string text;
    for (const Difference& d : all) {
      if (d.column == name) text += (text.empty() ? "" : "; ") + d.sentence;
    }
    if (!text.empty() && !text.ends_with('.')) text += '.';
    PageParts cards = PageParts::array();
    for (const FilesSeen* files : {&train, &now}) {
      const ColumnSeen* c = find(*files, name);
      if (c == nullptr) continue;
      PageParts parts = PageParts::array({{{"text", summary(*c) + "."}}});
      add_histograms(&parts, *c);
      cards.push_back({{"title", files == &train ? "Training files" : "New files"}, {"parts", parts}});
    }
    const bool same = text.empty();
    add_section(&out, name, same ? "No difference worth a word." : text, PageParts::array({{{"cards", cards}}}));
  };
  // Columns with a difference come first.
  for (const bool different : {true, false}) {
    for (const FilesSeen* files : {&train, &now}) {
      for (const ColumnSeen& c : files->columns) {
        const bool found = std::any_of(all.begin(), all.end(), [&](const Difference& d) { return d.column == c.name; });
        if (found == different && (files == &train || find(train, c.name) == nullptr)) section(c.name);
      }
    }
  }
  return out;
}

}  // namespace tessera::cli
