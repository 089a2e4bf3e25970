// The events of each user that later histories may need.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "history/options.h"

namespace tessera_readers {

// Chooses the events of a history.
class HistoryPicker {
 public:
  static constexpr uint64_t kNoPool = HistoryOptions::kNoPool;  // the event is in no history

  // Returns the events in the history of the event `end`, in order of time. pool(event) returns an event's pool, and
  // item(event) the number of its item; it is called only if repeats are left out. The result is valid until the next
  // call.
  template <class Pool, class Item>
  const std::vector<int64_t>& pick(const HistoryOptions& options, int64_t end, const Pool& pool, const Item& item) {
    picked_.clear();
    items_.clear();
    counts_.assign(static_cast<size_t>(options.pools()), 0);
    size_t full = 0;
    const auto take = [&](int64_t event) {  // returns false if all pools are full
      const uint64_t of = pool(event);
      if (of == kNoPool || counts_[of] == options.length) return true;
      if (!options.repeats) {
        constexpr unsigned kPoolBits = 6;
        if (!items_.insert(item(event) << kPoolBits | of).second) return true;
      }
      picked_.push_back(event);
      full += ++counts_[of] == options.length ? 1 : 0;
      return full < counts_.size();
    };
    if (options.newest) {
      for (int64_t event = end; event > 0 && take(event - 1);) --event;
      std::reverse(picked_.begin(), picked_.end());
    } else {
      for (int64_t event = 0; event < end && take(event);) ++event;
    }
    return picked_;
  }

 private:
  std::vector<int64_t> picked_, counts_;  // events, and how many of them each pool has
  std::unordered_set<uint64_t> items_;    // items of the picked events, with their pools
};

// The number of events at which a log is cut to the `needed` ones. It is so much larger that each event is copied only
// a few times.
constexpr int64_t most_of(int64_t needed) {
  constexpr int64_t kLeast = 16;
  return needed + needed / 2 + kLeast;
}

class HistoryLog {
 public:
  static constexpr uint64_t kNoPool = HistoryPicker::kNoPool;

  // An event has `cells` values. `item` is the index of the cell with the item, by which repeats are found; it is not
  // used if repeats are kept.
  void start(const HistoryOptions& options, size_t cells, size_t item);
  // Adds the user's next event.
  void add(size_t user, uint64_t pool, const uint64_t* cells);
  // Stores an event of a user out of order: it is event number `place` of the user's `count` events, all of which must
  // be stored.
  void put(size_t user, int64_t place, int64_t count, uint64_t pool, const uint64_t* cells);
  // Forgets events that no later history has. Only for users whose events are added in order. It costs a constant time
  // per added event.
  void trim(size_t user);
  // Keeps only the user's last `events` events, if there are many more.
  void keep_last(size_t user, int64_t events);
  void clear() { users_.clear(); }

  int64_t size(size_t user) const;  // number of the user's events in the log
  uint64_t pool(size_t user, int64_t event) const { return at(user, event)[0]; }
  uint64_t cell(size_t user, int64_t event, size_t cell) const { return at(user, event)[1 + cell]; }
  // Returns the events in the history of the user's event `end`, in order of time. The result is valid until the next
  // call.
  const std::vector<int64_t>& history(size_t user, int64_t end);

 private:
  const uint64_t* at(size_t user, int64_t event) const {
    return users_[user].data() + static_cast<size_t>(event) * stride_;
  }

  const HistoryOptions* options_ = nullptr;
  size_t stride_ = 1, item_ = 0;              // an event is its pool, followed by its cells
  std::vector<std::vector<uint64_t>> users_;  // events, oldest first
  HistoryPicker picker_;
};

}  // namespace tessera_readers
