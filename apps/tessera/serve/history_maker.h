// Makes the histories of requests as the reader of a model's training data made them: tessera.reader.histories.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "serve/event_rows.h"
#include "tessera/abi/draft/histories.h"
#include "tessera/runtime.h"

namespace tessera::serve {

// All members except the constructor are [any-thread].
class HistoryMaker {
 public:
  // Null if the reader makes no histories, or is not installed.
  static std::unique_ptr<HistoryMaker> of(const Runtime& runtime, const std::string& reader);

  const std::vector<std::string>& event_columns() const { return event_columns_; }  // first the user's
  const std::string& user_column() const { return event_columns_.front(); }
  const std::vector<std::string>& lists() const { return lists_; }
  // How many values a list has at most, and which ones of more values: TSR_HISTORY_NEWEST, ...
  struct Bound {
    int64_t most;
    int32_t which;
  };
  const Bound* bound_of(const std::string& list) const;  // null: there is no such list, or it has no bound

  // Lists by the index of their names in lists(); those that begin() left out are empty.
  struct Taken {
    int64_t events = 0;
    std::vector<std::vector<std::string>> lists;
  };
  // The lists of the event that would follow these, which are one user's: the named one's, unless that is empty.
  Taken after(const EventRows& events, std::string_view user);

  // Keeps events from here on, for these lists.
  void begin(const std::vector<std::string>& lists, int64_t most_bytes);
  bool keeps(const std::string& list) const;
  // Adds events until one is bad. Returns how many were added, and why the next one was not.
  struct Added {
    int64_t rows = 0;
    std::string why;  // empty: all were added
  };
  Added add(int64_t rows, std::span<const tsr_reader_values> values);
  Taken take(std::string_view user);
  tsr_history_counts counts();

 private:
  explicit HistoryMaker(ComponentPtr part);
  std::vector<std::string> names(tsr_code (*name)(void*, int64_t, const char**, tsr_error*)) const;
  void begin_locked(const std::vector<std::string>& lists, int64_t most_bytes);
  // `user`: the user of events that name none, as user_word() gives it.
  Added add_locked(int64_t rows, std::span<const tsr_reader_values> values, const std::string& user = {});
  Taken take_locked(const std::string& user);

  ComponentPtr part_;
  const tsr_reader_histories* api_;
  std::vector<std::string> event_columns_, lists_;
  std::map<std::string, Bound> bounds_;  // by list
  std::vector<size_t> places_;           // of the lists of begin(), in lists_
  std::mutex mutex_;                     // held during calls of the component
};

}  // namespace tessera::serve
