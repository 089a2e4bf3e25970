// Histories of users whose events come one by one: tessera.reader.histories for the reader histories.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "history/column.h"
#include "history/kept_events.h"
#include "history/options.h"
#include "history/time_key.h"
#include "tessera/abi/draft/histories.h"
#include "tessera/sdk/error.h"
#include "tessera/sdk/structs.h"

namespace tessera_readers {

class KeptLists {
 public:
  struct List {
    size_t cell;                             // index of an event's cell
    uint64_t pool = HistoryPicker::kNoPool;  // the events of this pool; kNoPool: of all pools
    bool seen = false;                       // true: all events of the user, not only events of the history
  };

  explicit KeptLists(const HistoryOptions& options);
  const std::vector<std::string>& event_columns() const { return event_columns_; }
  const std::vector<std::string>& lists() const { return lists_; }

  const List* list_of(std::string_view name) const;  // NULL: there is no such list
  // Returns how many values list `i` has at most. *which says which values a longer list keeps: TSR_HISTORY_NEWEST, ...
  int64_t most(size_t i, int32_t* which) const;
  // Failure(TSR_NOT_FOUND): there is no such list.
  void begin(const std::vector<std::string_view>& lists, int64_t most_bytes);
  // Adds row `row` as an event. Failure(TSR_INVALID_ARGUMENT): it is no event, or it is earlier than one of the same
  // user.
  void add(std::span<const tsr_reader_values> values, int64_t row);
  // Returns the lists of the user's next event. *events is the number of events that they are made from.
  std::span<const tsr_reader_values> take(std::string_view user, int64_t* events);
  const KeptEvents& events() const { return events_; }

 private:
  struct Chosen {
    List list;
    HistoryColumn values;
  };

  const HistoryOptions& options_;
  std::vector<std::string> event_columns_, lists_;
  std::vector<List> sources_;  // by index in lists_
  std::vector<Chosen> chosen_;
  TimeKeys times_;
  KeptEvents events_;
  std::vector<std::string_view> cells_;
  std::vector<tsr_reader_values> values_;
};

namespace detail {

// The table of a component C that has kept_lists() and settled().
template <class C>
struct HistoriesTable {
  static KeptLists& of(void* self) { return static_cast<C*>(self)->kept_lists(); }
  static tsr_code name_at(const std::vector<std::string>& all, int64_t i, const char** name, tsr_error* err) noexcept {
    return tessera::sdk::guard(err, [&] {
      if (i < 0 || i >= std::ssize(all)) tessera::sdk::fail(TSR_OUT_OF_RANGE, "there are ", all.size());
      *name = all[static_cast<size_t>(i)].c_str();
    });
  }
  static tsr_code event_column(void* self, int64_t i, const char** name, tsr_error* err) noexcept {
    return name_at(of(self).event_columns(), i, name, err);
  }
  static tsr_code list(void* self, int64_t i, const char** name, tsr_error* err) noexcept {
    return name_at(of(self).lists(), i, name, err);
  }
  static tsr_code begin(void* self, int64_t count, const char* const* lists, int64_t most_bytes,
                        tsr_error* err) noexcept {
    return tessera::sdk::guard(err, [&] { of(self).begin({lists, lists + count}, most_bytes); });
  }
  static tsr_code add(void* self, int64_t rows, uint32_t stride, const tsr_reader_values* values, int64_t* added,
                      tsr_error* err) noexcept {
    return tessera::sdk::guard(err, [&] {
      *added = 0;
      KeptLists& lists = of(self);
      std::vector<tsr_reader_values> columns;
      for (size_t k = 0; k < lists.event_columns().size(); ++k)
        columns.push_back(tessera::sdk::read_struct(
            *reinterpret_cast<const tsr_reader_values*>(reinterpret_cast<const char*>(values) + k * stride)));
      for (; *added < rows; ++*added) lists.add(columns, *added);
    });
  }
  static tsr_code take(void* self, const char* user, uint64_t bytes, uint32_t stride, tsr_reader_values* out,
                       int64_t* events, tsr_error* err) noexcept {
    return tessera::sdk::guard(err, [&] {
      for (const tsr_reader_values& values : of(self).take({user, static_cast<size_t>(bytes)}, events)) {
        tessera::sdk::write_struct(values, out);
        out = reinterpret_cast<tsr_reader_values*>(reinterpret_cast<char*>(out) + stride);
      }
    });
  }
  static tsr_code counts(void* self, tsr_history_counts* out, tsr_error* err) noexcept {
    return tessera::sdk::guard(err, [&] {
      const KeptEvents& events = of(self).events();
      tessera::sdk::write_struct(
          tsr_history_counts{sizeof(tsr_history_counts), 0, events.users(), events.bytes(), events.forgotten()}, out);
    });
  }
  static tsr_code most(void* self, int64_t i, int64_t* most, int32_t* which, tsr_error* err) noexcept {
    return tessera::sdk::guard(err, [&] {
      if (i < 0 || i >= std::ssize(of(self).lists())) tessera::sdk::fail(TSR_OUT_OF_RANGE, "there is no such list");
      *most = of(self).most(static_cast<size_t>(i), which);
    });
  }
  static tsr_code settled(void* self, const char** option, tsr_error* err) noexcept {
    return tessera::sdk::guard(err, [&] { *option = static_cast<C*>(self)->settled(); });
  }
  static constexpr tsr_reader_histories kTable{
      sizeof(tsr_reader_histories), 0, &event_column, &list, &begin, &add, &take, &counts, &most, &settled};
};

}  // namespace detail

// The result of extension() of such a component; NULL: another id.
template <class C>
const void* histories_extension(std::string_view id) {
  return id == TSR_READER_HISTORIES ? &detail::HistoriesTable<C>::kTable : nullptr;
}

}  // namespace tessera_readers
