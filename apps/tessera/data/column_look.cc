#include "data/column_look.h"

#define XXH_INLINE_ALL  // header only: nothing is linked
#include <xxhash.h>

#include <algorithm>

#include "data/odd_texts.h"
#include "tessera/sdk/fields.h"
#include "tessera/sdk/values.h"

namespace tessera::cli {
namespace {

constexpr double kDay = 86400e9;  // nanoseconds per day
constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u;

}  // namespace

ColumnLook::ColumnLook(std::string name, bool list, bool weighted, Room room)
    : name_(std::move(name)), list_(list), weighted_(weighted), room_(room) {}

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
  if (const auto found = found_.find(hash); found != found_.end()) {
    Entry& entry = entries_[found->second];
    pattern_hash_ = pattern_hash_ * kOdd + found->second + 1;
    ++entry.value.count;
    entry.value.tail += tail ? 1 : 0;
    repeated_ = true;
    count(entry, tail);
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
      follow(entry.number);
      if (!tail) return;
      ++tail_numbers_;
      tail_sum_ += entry.number;
      return;
  }
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
    for (const Entry& e : entries_) {
      if (e.kind == Kind::kWord) out.missing_words.push_back(e.value.text);
    }
    return;
  }
  if (list_) {
    out.form = Form::kLists;
    return;
  }
  ListText items(out.values, there, out.exact);
  // Dates with times, even if a few fields are other words, are no lists of parts.
  if (items.separator() == ' ' && (2 * times_ > there || are_other_dates(out))) return;
  out.items = std::move(items);
  if (out.items.nested()) out.form = Form::kNested;
  if (out.items.separator() != 0) out.form = Form::kLists;
  if (out.form == Form::kTexts || (out.form == Form::kLists && out.items.separator() == ',' && !out.items.bracketed()))
    take_written(out);
}

// Recognises texts that are numbers with a currency sign, grouped digits or a decimal comma.
void ColumnLook::take_written(ColumnSeen& out) const {
  std::vector<std::string> texts;
  for (const Entry& e : entries_) {
    if (e.kind != Kind::kWord) texts.push_back(e.value.text);
  }
  const std::optional<WrittenNumber> written = written_numbers(texts);
  if (!written) return;
  out.form = Form::kWritten;
  out.items = ListText();
  out.written = *written;
  for (const Entry& e : entries_) {
    if (e.kind == Kind::kWord) {
      out.missing_words.push_back(e.value.text);
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
    return std::find(out.missing_words.begin(), out.missing_words.end(), v.text) != out.missing_words.end();
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
  out.counts = counts_, out.sorted = sorted_, out.hours = hours_;
  out.words_hash = words_hash_, out.pattern_hash = pattern_hash_;
  out.tail_fields = tail_fields_;
  const int64_t head = numbers_.count() - tail_numbers_;
  if (tail_numbers_ > 0) out.tail_mean = tail_sum_ / static_cast<double>(tail_numbers_);
  if (head > 0)
    out.head_mean = (numbers_.mean() * static_cast<double>(numbers_.count()) - tail_sum_) / static_cast<double>(head);
  return out;
}

}  // namespace tessera::cli
