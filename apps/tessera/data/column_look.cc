#include "data/column_look.h"

#define XXH_INLINE_ALL  // header only: nothing is linked
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "data/column_names.h"
#include "data/odd_texts.h"
#include "data/time_format.h"
#include "tessera/sdk/fields.h"
#include "tessera/sdk/values.h"

namespace tessera::cli {
namespace {

constexpr double kDay = 86400e9;  // nanoseconds per day
constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u;

// True for the numbers that stand for "never" among times since 1970.
bool is_never(double number) { return number == 0 || number == -1; }

}  // namespace

ColumnLook::ColumnLook(std::string name, bool list, bool weighted, Room room)
    : name_(std::move(name)), list_(list), weighted_(weighted), room_(room), named_as_time_(named_as_time(name_)) {}

ColumnLook::Kind ColumnLook::kind_of(std::string_view field, double& number) {
  const std::string_view text = trimmed(field);
  const std::string_view unsigned_text = text.starts_with("+") && !text.starts_with("+-") ? text.substr(1) : text;
  if (sdk::parse_number(unsigned_text, number)) return Kind::kNumber;
  if (sdk::is_missing_word(text)) return Kind::kWord;
  if (const auto time = sdk::time_of(text)) {
    number = static_cast<double>(time->nanoseconds) / kDay;
    return Kind::kTime;
  }
  return Kind::kText;
}

void ColumnLook::end_list(int64_t length) {
  lengths_.add(static_cast<double>(length));
  if (length == 0)
    ++empty_lists_;
  else
    shortest_ = shortest_ == 0 ? length : std::min(shortest_, length);
}

uint64_t ColumnLook::add(std::string_view field, bool tail) {
  ++fields_;
  tail_fields_ += tail ? 1 : 0;
  const uint64_t hash = XXH64(field.data(), field.size(), 0);
  words_hash_ = words_hash_ * kOdd + hash;
  if (field.empty()) {
    ++empty_;
    pattern_hash_ = pattern_hash_ * kOdd;
    return hash;
  }
  if (!list_) vectors_.add(field);
  if (const auto found = found_.find(hash); found != found_.end()) {
    Entry& entry = entries_[found->second];
    pattern_hash_ = pattern_hash_ * kOdd + found->second + 1;
    ++entry.value.count;
    entry.value.tail += tail ? 1 : 0;
    repeated_ = true;
    count(entry, tail);
    remember(found->second);
    return hash;
  }
  Entry entry{{"", 1, tail ? 1 : 0}, Kind::kText, 0};
  entry.kind = kind_of(field, entry.number);
  count(entry, tail);
  if (estimate_) {
    estimate_->add(hash);
  } else if (found_.size() < room_.values && field.size() <= room_.bytes) {
    room_.bytes -= field.size();
    entry.value.text = field;
    found_.emplace(hash, entries_.size());
    pattern_hash_ = pattern_hash_ * kOdd + entries_.size() + 1;
    entries_.push_back(std::move(entry));
    remember(entries_.size() - 1);
  } else {
    estimate_.emplace();
    for (const auto& [known, at] : found_) estimate_->add(known);
    estimate_->add(hash);
  }
  return hash;
}

void ColumnLook::count(const Entry& entry, bool tail) {
  switch (entry.kind) {
    case Kind::kWord:
      ++words_;
      return;
    case Kind::kText:
      ++texts_;
      return;
    case Kind::kTime:
      ++times_;
      days_.add(entry.number);
      hours_ = hours_ || entry.number != static_cast<double>(static_cast<int64_t>(entry.number));
      follow(entry.number);
      return;
    case Kind::kNumber:
      numbers_.add(entry.number);
      if (named_as_time_ && !is_never(entry.number)) dated_.add(entry.number);
      follow(entry.number);
      if (!tail) return;
      ++tail_numbers_;
      tail_sum_ += entry.number;
      return;
  }
}

void ColumnLook::remember(size_t entry) {
  constexpr size_t kMost = 1024;
  if (entries_[entry].kind != Kind::kText || fields_ % trail_step_ != 0) return;
  trail_.push_back(static_cast<uint32_t>(entry));
  if (trail_.size() < kMost) return;
  for (size_t i = 0; 2 * i < trail_.size(); ++i) trail_[i] = trail_[2 * i];
  trail_.resize(trail_.size() / 2);
  trail_step_ *= 2;
}

void ColumnLook::follow(double number) {
  counts_ = counts_ && (!any_before_ || number > previous_);
  sorted_ = sorted_ && (!any_before_ || number >= previous_);
  any_before_ = true;
  previous_ = number;
}

// Finds the form that all values of a column share.
void ColumnLook::forms(ColumnSeen& out, bool words_may_miss) const {
  const int64_t there = fields_ - empty_, numbers = numbers_.count();
  const int64_t words = words_may_miss && !list_ ? words_ : 0;
  if (there == 0) return;
  out.form = Form::kTexts;
  if (numbers > 0 && numbers + words == there) out.form = Form::kNumbers;
  if (!list_ && times_ > 0 && times_ + words_ == there) out.form = Form::kTimes;
  if (out.form == Form::kNumbers || out.form == Form::kTimes) {
    out.missing += out.form == Form::kTimes ? words_ : words;
    out.numbers = out.form == Form::kTimes ? days_ : numbers_;
    if (take_vectors(out)) return;
    if (out.form == Form::kNumbers) take_never(out);
    for (const Entry& e : entries_) {
      if (e.kind == Kind::kWord) out.missing_words.push_back(e.value.text);
    }
    return;
  }
  if (take_vectors(out)) return;
  if (list_) {
    out.form = Form::kLists;
    return;
  }
  if (take_own_words(out, words_may_miss) || take_other_times(out)) return;
  ListText items(out.values, there, out.exact);
  // Dates with times, even if a few fields are other words, are no lists of parts.
  if ((items.separator() == ' ' && 2 * times_ > there) || are_other_dates(out)) return;
  out.items = std::move(items);
  if (out.items.nested()) out.form = Form::kNested;
  if (out.items.separator() != 0) out.form = Form::kLists;
  if (out.form == Form::kTexts || (out.form == Form::kLists && out.items.separator() == ',' && !out.items.bracketed()))
    take_written(out);
}

// Takes 0 and -1 among times since 1970 for missing ones.
void ColumnLook::take_never(ColumnSeen& out) const {
  const int64_t never = numbers_.count() - dated_.count();
  if (list_ || never == 0 || never > dated_.count()) return;
  if (epoch_unit(name_, dated_.least(), dated_.most()) == nullptr) return;
  out.numbers = dated_;
  out.missing += never;
  for (const Entry& e : entries_) {
    if (e.kind == Kind::kNumber && is_never(e.number)) out.own_words.push_back(e.value.text);
  }
}

// Recognises lists of numbers, and sets the form if all rows have equally many.
bool ColumnLook::take_vectors(ColumnSeen& out) const {
  constexpr int64_t kCategory = 10;  // mean rows of each text from which two numbers, "5.5 6.5", may be a name
  VectorSeen& v = out.vector;
  if (list_) {
    const int64_t rows = lengths_.count() - empty_lists_;
    if (weighted_ || texts_ > 0 || times_ > 0 || rows < 2 || numbers_.whole() == numbers_.count()) return false;
    v.least = shortest_, v.most = static_cast<int64_t>(lengths_.most());
    v.rows = rows, v.empty = empty_lists_, v.broken = words_ + empty_;
    constexpr double kMost = std::numeric_limits<float>::max();
    if (numbers_.least() < -kMost || numbers_.most() > kMost) v.broken = std::max<int64_t>(v.broken, 1);
    v.smallest = numbers_.least(), v.largest = numbers_.most(), v.bracketed = true;
    v.numbers = numbers_;
  } else {
    v = vectors_.seen();
    const bool repeats = !estimate_ && kCategory * std::ssize(entries_) <= v.rows;
    if (v.most == 2 && !v.bracketed && repeats) v = VectorSeen();
    v.empty += v.most > 0 ? empty_ : 0;
  }
  if (v.width() < 2) return false;
  out.form = Form::kVectors;
  return true;
}

namespace {

// True for a text that may stand for a missing value: one without a digit, #DIV/0!, 0000-00-00 and 9999-99-99.
bool is_filler(std::string_view text) {
  const bool zeros = text.find_first_of("123456789") == std::string_view::npos && text.starts_with("0000");
  const bool nines = text.find_first_of("012345678") == std::string_view::npos && text.starts_with("9999");
  return text.find_first_of("0123456789") == std::string_view::npos || text.starts_with('#') || zeros || nines;
}

}  // namespace

// The few texts among a column's other values that may stand for missing ones.
std::vector<ColumnLook::Entry> ColumnLook::own_words() const {
  constexpr size_t kFew = 3, kLongest = 30;
  std::vector<Entry> out;
  for (const Entry& e : entries_) {
    const std::string& text = e.value.text;
    if (e.kind != Kind::kText || !is_filler(text) || text.size() > kLongest || trimmed(text).empty()) continue;
    out.push_back(e);
    if (out.size() > kFew) return {};
  }
  return out;
}

// Recognises numbers or times with a few words among them, such as "unknown" and "#DIV/0!", that stand for a missing
// one.
bool ColumnLook::take_own_words(ColumnSeen& out, bool words_may_miss) const {
  constexpr int64_t kVaried = 20;  // fewer distinct numbers may be categories, as the words are then
  int64_t own = 0, known = 0, distinct = 0;
  const std::vector<Entry> words = own_words();
  for (const Entry& e : words) own += e.value.count;
  for (const Entry& e : entries_) {
    known += e.kind == Kind::kText ? e.value.count : 0;
    distinct += e.kind == Kind::kNumber || e.kind == Kind::kTime ? 1 : 0;
  }
  const bool times = times_ > 0, numbers = numbers_.count() > 0;
  const int64_t values = times ? times_ : numbers_.count();
  if (words.empty() || times == numbers || own != texts_ || known != texts_) return false;
  if (numbers && distinct <= kVaried) return false;
  if (2 * values < fields_ - empty_) return false;
  out.form = times ? Form::kTimes : Form::kNumbers;
  out.numbers = times ? days_ : numbers_;
  out.missing += own + words_;
  for (const Entry& e : words) out.own_words.push_back(e.value.text);
  for (const Entry& e : entries_) {
    if (e.kind == Kind::kWord) (words_may_miss ? out.missing_words : out.own_words).push_back(e.value.text);
  }
  return true;
}

// Recognises dates and times that are not ISO 8601, if one form fits all of them.
bool ColumnLook::take_other_times(ColumnSeen& out) const {
  if (texts_ == 0 || list_ || 2 * (texts_ + times_) < fields_ - empty_ || numbers_.count() > 0) return false;
  const std::vector<Entry> words = own_words();
  const auto is_own = [&](const Entry& e) {
    return std::any_of(words.begin(), words.end(), [&](const Entry& w) { return w.value.text == e.value.text; });
  };
  std::vector<std::string> texts;
  for (const Entry& e : entries_) {
    if (e.kind != Kind::kWord && !is_own(e)) texts.emplace_back(trimmed(e.value.text));
  }
  std::vector<std::string> formats = data::time_formats_of(texts);
  if (formats.size() != 1) {
    out.time_formats = std::move(formats);
    return false;
  }
  out.form = Form::kTimes;
  out.time_format = formats.front();
  std::vector<std::optional<int64_t>> times;  // of the entries
  for (const Entry& e : entries_) {
    times.push_back(data::time_by(out.time_format, trimmed(e.value.text)));
    if (e.kind == Kind::kWord || is_own(e)) {
      out.own_words.push_back(e.value.text);
      out.missing += e.value.count;
      continue;
    }
    const double days = static_cast<double>(times.back().value_or(0)) / kDay;
    out.numbers.add(days, e.value.count);
    out.other_hours = out.other_hours || days != std::floor(days);
  }
  std::vector<int64_t> in_order;
  for (const uint32_t entry : trail_) {
    if (times[entry]) in_order.push_back(*times[entry]);
  }
  out.sorted = !in_order.empty() && std::is_sorted(in_order.begin(), in_order.end());
  return true;
}

// Recognises texts that are numbers with a currency sign, grouped digits or a decimal comma.
void ColumnLook::take_written(ColumnSeen& out) const {
  std::vector<std::string> texts;
  std::vector<std::string> own;
  int64_t without = 0;  // fields that are words
  for (const Entry& e : own_words()) {
    own.push_back(e.value.text);
    without += e.value.count;
  }
  if (2 * without > fields_ - empty_) return;
  const auto is_own = [&](const Entry& e) { return std::find(own.begin(), own.end(), e.value.text) != own.end(); };
  for (const Entry& e : entries_) {
    if (e.kind != Kind::kWord && !is_own(e)) texts.push_back(e.value.text);
  }
  const std::optional<WrittenNumber> written = written_numbers(texts);
  if (!written) return;
  out.form = Form::kWritten;
  out.items = ListText();
  out.written = *written;
  out.own_words = own;
  for (const Entry& e : entries_) {
    if (e.kind == Kind::kWord || is_own(e)) {
      if (!is_own(e)) out.missing_words.push_back(e.value.text);
      out.missing += e.value.count;
    } else if (const auto number = written->read(e.value.text)) {
      out.numbers.add(*number, e.value.count);
    }
  }
}

ColumnSeen ColumnLook::seen(bool words_may_miss) const {
  ColumnSeen out;
  out.name = name_;
  out.list = list_, out.weighted = weighted_;
  out.fields = fields_, out.missing = empty_;
  out.exact = !estimate_;
  for (const Entry& e : entries_) out.values.push_back(e.value);
  std::sort(out.values.begin(), out.values.end(),
            [](const auto& a, const auto& b) { return a.count != b.count ? a.count > b.count : a.text < b.text; });
  forms(out, words_may_miss);
  std::erase_if(out.values, [&](const ListText::Value& v) {
    const auto has = [&](const std::vector<std::string>& words) {
      return std::find(words.begin(), words.end(), v.text) != words.end();
    };
    return has(out.missing_words) || has(out.own_words);
  });
  const auto kept = std::ssize(out.values);
  // An estimate may exceed what is possible.
  out.distinct =
      estimate_ ? std::max(kept, std::min(static_cast<int64_t>(estimate_->count()), fields_ - out.missing)) : kept;
  out.once = std::count_if(out.values.begin(), out.values.end(), [](const auto& v) { return v.count == 1; });
  if (out.form == Form::kLists && !list_) {
    out.distinct = out.items.distinct(), out.once = out.items.once();
    out.weighted = out.items.weighted();
  }
  out.lengths = list_ ? lengths_ : out.items.lengths();
  out.numbers_among = numbers_.count(), out.times_among = times_;
  out.repeated = repeated_;
  out.counts = counts_ && out.form == Form::kNumbers && numbers_.count() > 1,
  out.sorted = out.time_format.empty() ? sorted_ : out.sorted, out.hours = hours_ || out.other_hours;
  out.words_hash = words_hash_, out.pattern_hash = pattern_hash_;
  out.tail_fields = tail_fields_;
  const int64_t head = numbers_.count() - tail_numbers_;
  if (tail_numbers_ > 0) out.tail_mean = tail_sum_ / static_cast<double>(tail_numbers_);
  if (head > 0)
    out.head_mean = (numbers_.mean() * static_cast<double>(numbers_.count()) - tail_sum_) / static_cast<double>(head);
  return out;
}

bool exceeds_doubles(const ColumnSeen& c) {
  if (c.form != Form::kNumbers || c.list || c.numbers.whole() != c.numbers.count()) return false;
  return std::any_of(c.values.begin(), c.values.end(), [](const ListText::Value& v) {
    const std::string_view text = trimmed(v.text);
    const char* const end = text.data() + text.size();
    int64_t whole = 0;
    const auto [at, error] = std::from_chars(text.data(), end, whole);
    if (at != end || text.empty()) return false;
    if (error == std::errc::result_out_of_range) return true;
    constexpr auto kBeyond = static_cast<double>(std::numeric_limits<int64_t>::max());  // 2^63
    const auto nearest = static_cast<double>(whole);
    return nearest >= kBeyond || static_cast<int64_t>(nearest) != whole;
  });
}

}  // namespace tessera::cli
