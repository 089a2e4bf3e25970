#include "history/kept_lists.h"

#include <algorithm>
#include <limits>

#include "tessera/sdk/nearest.h"

namespace tessera_readers {
namespace {

using tessera::sdk::fail;

constexpr size_t kUser = 0, kTime = 1;  // indices in event_columns()

std::string_view text_or_none(const tsr_reader_values& v, int64_t row) {
  return v.present != nullptr && v.present[row] == 0 ? std::string_view() : text_at(v, row);
}

}  // namespace

KeptLists::KeptLists(const HistoryOptions& options) : options_(options), event_columns_{options.user, options.time} {
  if (!options.by.empty()) event_columns_.push_back(options.by);
  event_columns_.insert(event_columns_.end(), options.columns.begin(), options.columns.end());
  for (size_t c = 0; c < options.columns.size(); ++c) {
    const std::string& name = options.columns[c];
    lists_.push_back("history." + name);
    sources_.push_back({c});
    for (size_t pool = 0; pool < options.values.size(); ++pool) {
      lists_.push_back("history." + options.values[pool] + "." + name);
      sources_.push_back({c, pool});
    }
  }
  if (!options.of_users()) return;
  lists_.push_back("seen." + options.columns.front());
  sources_.push_back({0, HistoryPicker::kNoPool, true});
}

const KeptLists::List* KeptLists::list_of(std::string_view name) const {
  const auto found = std::find(lists_.begin(), lists_.end(), name);
  return found == lists_.end() ? nullptr : &sources_[static_cast<size_t>(found - lists_.begin())];
}

int64_t KeptLists::most(size_t i, int32_t* which) const {
  const List& list = sources_[i];
  *which = options_.newest ? TSR_HISTORY_NEWEST : TSR_HISTORY_OLDEST;
  if (list.seen) return std::numeric_limits<int64_t>::max();
  if (list.pool != HistoryPicker::kNoPool || options_.pools() == 1) return options_.length;
  *which = TSR_HISTORY_MIXED;
  return options_.longest();
}

void KeptLists::begin(const std::vector<std::string_view>& lists, int64_t most_bytes) {
  chosen_.clear();
  bool all = false;
  for (const std::string_view name : lists) {
    const List* const source = list_of(name);
    if (source == nullptr) fail(TSR_NOT_FOUND, tessera::sdk::unknown_name("list", std::string(name), lists_));
    chosen_.push_back({*source, HistoryColumn(TSR_READER_TEXT)});
    all |= source->seen;
  }
  times_ = TimeKeys(options_.time_form);
  events_.start(options_, options_.columns.size(), 0, all, most_bytes);
}

void KeptLists::add(std::span<const tsr_reader_values> values, int64_t row) {
  const auto wrong = [&](size_t column, const auto&... parts) {
    fail(TSR_INVALID_ARGUMENT, "column \"", event_columns_[column], "\": ", parts...);
  };
  TextWord word;
  const std::string_view user = word.of(text_or_none(values[kUser], row));
  if (user.empty()) wrong(kUser, "the event has no user: leave out such rows");
  const TimeKey time =
      time_of_event(times_, text_or_none(values[kTime], row), [&](const auto&... parts) { wrong(kTime, parts...); });
  size_t column = kTime + 1;
  uint64_t pool = 0;
  if (!options_.by.empty()) pool = options_.pool_of(text_or_none(values[column++], row));
  cells_.clear();
  for (; column < values.size(); ++column) {
    if (values[column].present != nullptr && values[column].present[row] == 0)
      wrong(column, "the event has no value, but history.columns names the column: leave out such rows");
    cells_.push_back(text_at(values[column], row));
  }
  if (!events_.add(user, time, pool, cells_))
    wrong(kTime, "the event is earlier than one of the same user, \"", user,
          "\", before it: give a user's events in the order of time, or train with history.order = \"sort\"");
}

std::span<const tsr_reader_values> KeptLists::take(std::string_view user, int64_t* events) {
  const int64_t count = events_.choose(TextWord().of(user));
  const std::vector<int64_t> history = events_.history();
  *events = static_cast<int64_t>(history.size());
  values_.clear();
  for (Chosen& chosen : chosen_) {
    const List& list = chosen.list;
    chosen.values.start(true);
    for (int64_t i = 0; i < (list.seen ? count : *events); ++i) {
      const int64_t event = list.seen ? i : history[static_cast<size_t>(i)];
      if (list.pool == HistoryPicker::kNoPool || list.pool == events_.pool(event))
        chosen.values.add(events_.cell(event, list.cell));
    }
    chosen.values.end_list();
  }
  for (const Chosen& chosen : chosen_) values_.push_back(chosen.values.values());
  return values_;
}

}  // namespace tessera_readers
