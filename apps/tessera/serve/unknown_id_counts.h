// Counts, per column, ids of requests that are row 0 of a vocabulary: values that the model has never seen.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "serve/log.h"
#include "serve/protocol.h"
#include "tessera/data.h"

namespace tessera::serve {

// All members except the constructor are [any-thread].
class UnknownIdCounts {
 public:
  explicit UnknownIdCounts(Log& log) : log_(log) {}

  // Counts the ids of a request to the model. `columns`: of its data, or null. If at least half of a column's ids are
  // unknown, of 100 or more, the log says so, at most once a minute.
  void add(const std::string& model, const ModelDescription& description, const ColumnEncoding* columns,
           const InferRequest& request);
  std::vector<UnknownIds> counts() const;  // over all versions so far

 private:
  using Clock = std::chrono::steady_clock;
  struct Column {
    UnknownIds all, recent;  // recent: counted after `since`
    Clock::time_point since{}, told{};
  };
  void look(const std::string& model, Column& column);

  Log& log_;
  mutable std::mutex mutex_;
  std::map<std::string, Column> columns_;
};

}  // namespace tessera::serve
