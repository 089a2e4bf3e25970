#include "history/log.h"

namespace tessera_readers {
void HistoryLog::start(const HistoryOptions& options, size_t cells, size_t item) {
  options_ = &options;
  stride_ = cells + 1;
  item_ = item;
  clear();
}

int64_t HistoryLog::size(size_t user) const {
  return user < users_.size() ? static_cast<int64_t>(users_[user].size() / stride_) : 0;
}

void HistoryLog::add(size_t user, uint64_t pool, const uint64_t* cells) {
  if (user >= users_.size()) users_.resize(user + 1);
  users_[user].push_back(pool);
  users_[user].insert(users_[user].end(), cells, cells + stride_ - 1);
}

void HistoryLog::put(size_t user, int64_t place, int64_t count, uint64_t pool, const uint64_t* cells) {
  if (user >= users_.size()) users_.resize(user + 1);
  std::vector<uint64_t>& log = users_[user];
  if (log.empty()) log.resize(static_cast<size_t>(count) * stride_);
  uint64_t* const event = log.data() + static_cast<size_t>(place) * stride_;
  event[0] = pool;
  std::copy(cells, cells + stride_ - 1, event + 1);
}

void HistoryLog::trim(size_t user) {
  if (size(user) < most_of(options_->longest())) return;
  std::vector<uint64_t>& log = users_[user];
  size_t to = 0;
  for (const int64_t event : history(user, size(user))) {
    const uint64_t* const from = at(user, event);
    std::copy(from, from + stride_, log.data() + to);
    to += stride_;
  }
  log.resize(to);
}

void HistoryLog::keep_last(size_t user, int64_t events) {
  if (size(user) < most_of(events)) return;
  std::vector<uint64_t>& log = users_[user];
  log.erase(log.begin(), log.end() - static_cast<std::ptrdiff_t>(static_cast<size_t>(events) * stride_));
}

const std::vector<int64_t>& HistoryLog::history(size_t user, int64_t end) {
  return picker_.pick(
      *options_, end, [&](int64_t event) { return pool(user, event); },
      [&](int64_t event) { return cell(user, event, item_); });
}

}  // namespace tessera_readers
