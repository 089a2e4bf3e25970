// The options of the reader histories, which are the keys of [history].
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "history/time_key.h"
#include "tessera/sdk/plugin.h"

namespace tessera_readers {

// The parts into which a split divides the events.
enum HistoryPart : uint8_t { kTrainPart = 0, kValidationPart = 1, kTestPart = 2 };
constexpr size_t kHistoryParts = 3;

struct HistoryOptions {
  enum class Sample { kEvents, kUsers, kRequests };
  enum class Split { kNone, kLeaveOneOut, kTime, kUsers };

  // Failure(TSR_INVALID_ARGUMENT): an option is missing, contradicts another one, or has no effect.
  explicit HistoryOptions(tessera::sdk::Options& options);

  std::string user, time;
  TimeKeys::Form time_form = TimeKeys::Form::kUnknown;  // form of the times in the data of the model's training
  std::vector<std::string> columns;                     // the first one is the item
  int64_t length = 50;
  bool newest = true;               // a long history keeps the newest events; false: the oldest
  std::string by;                   // column of actions; empty: there is one pool of events
  std::vector<std::string> values;  // actions, each with its own pool
  bool repeats = true;
  bool sort = false;
  Sample sample = Sample::kEvents;
  Split split = Split::kNone;
  std::string split_name;
  std::string validation_from, test_from;
  double validation_share = 0, test_share = 0;

  static constexpr uint64_t kNoPool = ~uint64_t{0};
  // Returns the pool of events with this action; kNoPool: the action is not one of `values`.
  uint64_t pool_of(std::string_view action) const;
  int64_t pools() const { return by.empty() ? 1 : static_cast<int64_t>(values.size()); }
  int64_t longest() const { return length * pools(); }  // most events of all pools of a history together
  bool of_users() const { return sample != Sample::kEvents; }
  bool parts() const { return split != Split::kNone; }
  // True if there are samples for validation.
  bool validates() const { return split == Split::kLeaveOneOut || !validation_from.empty() || validation_share > 0; }

 private:
  std::vector<std::string> words_;  // words of `values`
  void check_columns() const;
  void check_samples() const;
  void check_split() const;
};

}  // namespace tessera_readers
