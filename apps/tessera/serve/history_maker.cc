#include "serve/history_maker.h"

#include <algorithm>
#include <limits>

#include "serve/infer_json.h"
#include "tessera/calls.h"
#include "tessera/error.h"
#include "tessera/sdk/structs.h"
#include "tessera/sdk/values.h"

namespace tessera::serve {
namespace {

// Users are compared as the values of requests are: 4, 4.0 and "4" are one.
std::string user_word(std::string_view text) {
  std::string out;
  sdk::append_word(out, text);
  return out;
}

std::string_view text_of_row(const tsr_reader_values& texts, int64_t row) {
  if (texts.present != nullptr && texts.present[row] == 0) return {};
  return {static_cast<const char*>(texts.values) + texts.texts[row],
          static_cast<size_t>(texts.texts[row + 1] - texts.texts[row])};
}

}  // namespace

std::unique_ptr<HistoryMaker> HistoryMaker::of(const Runtime& runtime, const std::string& reader) {
  ComponentPtr part;
  try {
    part = runtime.create(TSR_READER_KIND, reader);
  } catch (const Error&) {  // requests need it only if they bring events
    return nullptr;
  }
  if (part->extension<tsr_reader_histories>(TSR_READER_HISTORIES) == nullptr) return nullptr;
  return std::unique_ptr<HistoryMaker>(new HistoryMaker(std::move(part)));
}

HistoryMaker::HistoryMaker(ComponentPtr part)
    : part_(std::move(part)), api_(part_->extension<tsr_reader_histories>(TSR_READER_HISTORIES)) {
  event_columns_ = names(api_->event_column);
  lists_ = names(api_->list);
  if (tessera::sdk::read_struct(*api_).most == nullptr) return;
  for (size_t i = 0; i < lists_.size(); ++i) {
    Bound& bound = bounds_[lists_[i]];
    plugin::call({*part_, "most"}, api_->most, part_->self(), static_cast<int64_t>(i), &bound.most, &bound.which);
  }
}

const HistoryMaker::Bound* HistoryMaker::bound_of(const std::string& list) const {
  const auto found = bounds_.find(list);
  return found == bounds_.end() ? nullptr : &found->second;
}

std::vector<std::string> HistoryMaker::names(tsr_code (*name)(void*, int64_t, const char**, tsr_error*)) const {
  std::vector<std::string> out;
  while (true) {
    const char* text = nullptr;
    AbiError error;
    const tsr_code code = name(part_->self(), std::ssize(out), &text, error.out());
    if (code == TSR_OUT_OF_RANGE) return out;
    error.check(code);
    out.emplace_back(text);
  }
}

void HistoryMaker::begin(const std::vector<std::string>& lists, int64_t most_bytes) {
  const std::lock_guard lock(mutex_);
  begin_locked(lists, most_bytes);
}

void HistoryMaker::begin_locked(const std::vector<std::string>& lists, int64_t most_bytes) {
  std::vector<const char*> texts;
  places_.clear();
  for (const std::string& list : lists) {
    texts.push_back(list.c_str());
    places_.push_back(static_cast<size_t>(std::find(lists_.begin(), lists_.end(), list) - lists_.begin()));
  }
  plugin::call({*part_, "begin"}, api_->begin, part_->self(), std::ssize(texts), texts.data(), most_bytes);
}

bool HistoryMaker::keeps(const std::string& list) const {
  return std::any_of(places_.begin(), places_.end(), [&](size_t place) { return lists_[place] == list; });
}

HistoryMaker::Added HistoryMaker::add(int64_t rows, std::span<const tsr_reader_values> values) {
  const std::lock_guard lock(mutex_);
  return add_locked(rows, values);
}

HistoryMaker::Added HistoryMaker::add_locked(int64_t rows, std::span<const tsr_reader_values> values,
                                             const std::string& user) {
  std::string users;
  std::vector<int64_t> ends = {0};
  for (int64_t row = 0; row < rows; ++row) {
    const std::string_view given = text_of_row(values.front(), row);
    users += given.empty() ? user : user_word(given);
    ends.push_back(std::ssize(users));
  }
  std::vector<tsr_reader_values> all(values.begin(), values.end());
  all.front().values = users.data();
  all.front().texts = ends.data();
  if (!user.empty()) all.front().present = nullptr;  // all events have a user now
  Added out;
  try {
    plugin::call({*part_, "add"}, api_->add, part_->self(), rows, uint32_t{sizeof(tsr_reader_values)}, all.data(),
                 &out.rows);
  } catch (const Error& e) {
    if (e.code() != Code::kInvalidArgument) throw;
    out.why = e.what();
  }
  return out;
}

HistoryMaker::Taken HistoryMaker::take(std::string_view user) {
  const std::lock_guard lock(mutex_);
  return take_locked(user_word(user));
}

HistoryMaker::Taken HistoryMaker::take_locked(const std::string& user) {
  std::vector<tsr_reader_values> values(
      places_.size(), tsr_reader_values{sizeof(tsr_reader_values), 0, nullptr, nullptr, nullptr, nullptr, nullptr});
  Taken out;
  out.lists.resize(lists_.size());
  plugin::call({*part_, "take"}, api_->take, part_->self(), user.data(), uint64_t{user.size()},
               uint32_t{sizeof(tsr_reader_values)}, values.data(), &out.events);
  for (size_t k = 0; k < places_.size(); ++k) {
    const tsr_reader_values& v = values[k];
    for (int64_t i = v.lists[0]; i < v.lists[1]; ++i)
      out.lists[places_[k]].emplace_back(static_cast<const char*>(v.values) + v.texts[i],
                                         static_cast<size_t>(v.texts[i + 1] - v.texts[i]));
  }
  return out;
}

HistoryMaker::Taken HistoryMaker::after(const EventRows& events, std::string_view user) {
  const std::lock_guard lock(mutex_);
  begin_locked(lists_, std::numeric_limits<int64_t>::max());
  const std::vector<tsr_reader_values> values = events.values();
  std::string own = user.empty() ? "" : user_word(user);
  for (int64_t row = 0; row < events.size(); ++row) {
    const std::string_view given = text_of_row(values.front(), row);
    if (own.empty() && !given.empty()) own = user_word(given);
    if (!user.empty() && !given.empty() && user_word(given) != own)
      fail(Code::kInvalidArgument, "event ", row + 1, ", column \"", user_column(), "\": the event is of the user \"",
           shown(given), "\", and the row of the user \"", shown(user), "\": a row's events are those of its user");
  }
  if (own.empty()) own = "the row's";  // nobody has a name
  const Added added = add_locked(events.size(), values, own);
  if (!added.why.empty()) fail(Code::kInvalidArgument, "event ", added.rows + 1, ", ", added.why);
  tsr_history_counts users{sizeof(users), 0, 0, 0, 0};
  plugin::call({*part_, "counts"}, api_->counts, part_->self(), &users);
  if (users.users > 1)
    fail(Code::kInvalidArgument, "the events have ", users.users, " users, but a row's events are those of one");
  Taken out = take_locked(own);
  begin_locked(lists_, std::numeric_limits<int64_t>::max());
  return out;
}

tsr_history_counts HistoryMaker::counts() {
  const std::lock_guard lock(mutex_);
  tsr_history_counts out{sizeof(out), 0, 0, 0, 0};
  plugin::call({*part_, "counts"}, api_->counts, part_->self(), &out);
  return out;
}

}  // namespace tessera::serve
