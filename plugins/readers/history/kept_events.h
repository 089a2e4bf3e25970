// Keeps the events of users as they come one by one, within a bound of memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "history/log.h"
#include "history/options.h"
#include "history/time_key.h"

namespace tessera_readers {

class KeptEvents {
 public:
  // Forgets all events. An event has `cells` texts. `item` is the index of the cell with the item, by which repeats are
  // found; it is not used if repeats are kept. `all`: events are kept even if no later history has them. All users
  // together take at most `most_bytes`.
  void start(const HistoryOptions& options, size_t cells, size_t item, bool all, int64_t most_bytes);
  // True if the event is earlier than another one of its user, and events are not sorted.
  bool is_late(std::string_view user, const TimeKey& time) const;
  // Adds the user's next event. Returns false if it is earlier than another one of the user, and the order must be that
  // of time.
  bool add(std::string_view user, const TimeKey& time, uint64_t pool, const std::vector<std::string_view>& cells);

  // Chooses the user for the functions below, and returns the number of the user's events.
  int64_t choose(std::string_view user);
  // Returns the events in the history of the user's next event, in order of time. The result is valid until the next
  // call.
  const std::vector<int64_t>& history();
  uint64_t pool(int64_t event) const;
  std::string_view cell(int64_t event, size_t cell) const;

  int64_t users() const { return static_cast<int64_t>(users_.size()); }
  int64_t bytes() const { return bytes_; }
  int64_t forgotten() const { return forgotten_; }

 private:
  // An event is stored as its head, then each cell's size and text.
  struct Head {
    uint64_t pool;
    TimeKey time;
  };
  struct User {
    std::string name, events;
    TimeKey last;
  };
  using Users = std::list<User>;

  static int64_t bytes_of(const User& user);
  Head head(size_t at) const;
  void choose(const User& user);
  void trim(User& user);
  void forget_users();

  const HistoryOptions* options_ = nullptr;
  size_t cells_ = 0, item_ = 0;
  bool all_ = false;
  int64_t most_bytes_ = 0, bytes_ = 0, forgotten_ = 0;
  Users users_;                                                   // in order of their newest events, the oldest first
  std::unordered_map<std::string_view, Users::iterator> places_;  // keys are views of the names in users_
  const User* chosen_ = nullptr;
  std::vector<size_t> begins_;  // where the chosen user's events begin
  HistoryPicker picker_;
};

}  // namespace tessera_readers
