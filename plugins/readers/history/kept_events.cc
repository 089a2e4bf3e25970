#include "history/kept_events.h"

#include <algorithm>

#include "history/column.h"

namespace tessera_readers {
namespace {

template <class T>
T read_at(const std::string& bytes, size_t at) {
  T out;
  std::memcpy(&out, bytes.data() + at, sizeof(out));
  return out;
}

void append(std::string& bytes, const void* value, size_t size) { bytes.append(static_cast<const char*>(value), size); }

}  // namespace

void KeptEvents::start(const HistoryOptions& options, size_t cells, size_t item, bool all, int64_t most_bytes) {
  *this = KeptEvents();
  options_ = &options;
  cells_ = cells;
  item_ = item;
  all_ = all;
  most_bytes_ = most_bytes;
}

// Counts the bytes of a user. The nodes of the list and of the map count with this size.
int64_t KeptEvents::bytes_of(const User& user) {
  constexpr size_t kNodes = 192;
  return static_cast<int64_t>(kNodes + user.name.capacity() + user.events.capacity());
}

KeptEvents::Head KeptEvents::head(size_t at) const { return read_at<Head>(chosen_->events, at); }

uint64_t KeptEvents::pool(int64_t event) const { return head(begins_[static_cast<size_t>(event)]).pool; }

std::string_view KeptEvents::cell(int64_t event, size_t cell) const {
  size_t at = begins_[static_cast<size_t>(event)] + sizeof(Head);
  for (;; --cell) {
    const auto size = read_at<uint32_t>(chosen_->events, at);
    at += sizeof(size);
    if (cell == 0) return std::string_view(chosen_->events).substr(at, size);
    at += size;
  }
}

void KeptEvents::choose(const User& user) {
  chosen_ = &user;
  begins_.clear();
  for (size_t at = 0; at < user.events.size();) {
    begins_.push_back(at);
    at += sizeof(Head);
    for (size_t c = 0; c < cells_; ++c) at += sizeof(uint32_t) + read_at<uint32_t>(user.events, at);
  }
}

int64_t KeptEvents::choose(std::string_view user) {
  const auto found = places_.find(user);
  begins_.clear();
  if (found != places_.end()) choose(*found->second);
  return static_cast<int64_t>(begins_.size());
}

const std::vector<int64_t>& KeptEvents::history() {
  std::unordered_map<std::string, uint64_t> items;
  TextWord word;
  return picker_.pick(
      *options_, static_cast<int64_t>(begins_.size()), [&](int64_t event) { return pool(event); },
      [&](int64_t event) { return items.emplace(word.of(cell(event, item_)), items.size()).first->second; });
}

bool KeptEvents::is_late(std::string_view user, const TimeKey& time) const {
  const auto found = places_.find(user);
  return found != places_.end() && !options_->sort && time < found->second->last;
}

bool KeptEvents::add(std::string_view name, const TimeKey& time, uint64_t pool,
                     const std::vector<std::string_view>& cells) {
  if (is_late(name, time)) return false;
  auto found = places_.find(name);
  if (found == places_.end()) {
    if (pool == HistoryPicker::kNoPool) return true;
    users_.push_back({std::string(name), {}, time});
    found = places_.emplace(users_.back().name, std::prev(users_.end())).first;
  } else {
    users_.splice(users_.end(), users_, found->second);
    bytes_ -= bytes_of(*found->second);
  }
  User& user = *found->second;
  if (user.last < time) user.last = time;
  if (pool != HistoryPicker::kNoPool) {
    std::string event;
    const Head head{pool, time};
    append(event, &head, sizeof(head));
    for (const std::string_view cell : cells) {
      const auto size = static_cast<uint32_t>(cell.size());
      append(event, &size, sizeof(size));
      event += cell;
    }
    choose(user);
    size_t place = begins_.size();
    while (options_->sort && place > 0 && time < this->head(begins_[place - 1]).time) --place;
    user.events.insert(place == begins_.size() ? user.events.size() : begins_[place], event);
    trim(user);
  }
  bytes_ += bytes_of(user);
  forget_users();
  return true;
}

// Forgets events that no later history has.
void KeptEvents::trim(User& user) {
  choose(user);
  if (all_ || static_cast<int64_t>(begins_.size()) < most_of(options_->longest())) return;
  std::string kept;
  for (const int64_t event : history()) {
    const auto next = static_cast<size_t>(event) + 1;
    const size_t begin = begins_[next - 1], end = next < begins_.size() ? begins_[next] : user.events.size();
    kept.append(user.events, begin, end - begin);
  }
  user.events = std::move(kept);
}

void KeptEvents::forget_users() {
  chosen_ = nullptr;
  begins_.clear();
  while (bytes_ > most_bytes_ && !users_.empty()) {
    bytes_ -= bytes_of(users_.front());
    places_.erase(users_.front().name);
    users_.pop_front();
    ++forgotten_;
  }
}

}  // namespace tessera_readers
