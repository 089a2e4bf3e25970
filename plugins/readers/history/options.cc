#include "history/options.h"

#include <algorithm>

#include "history/column.h"
#include "tessera/sdk/fields.h"

namespace tessera_readers {
namespace {

using tessera::sdk::fail;

constexpr int64_t kMostEvents = 1'000'000;
constexpr size_t kMostPools = 64;

// Replaces %XX by the byte.
std::string unescaped(std::string_view text) {
  std::string out;
  const auto digit = [](char c) {
    constexpr std::string_view kHex = "0123456789ABCDEF";
    return kHex.find(c);
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const bool whole = text[i] == '%' && i + 2 < text.size();
    const size_t high = whole ? digit(text[i + 1]) : std::string_view::npos;
    const size_t low = whole ? digit(text[i + 2]) : std::string_view::npos;
    if (high == std::string_view::npos || low == std::string_view::npos) {
      out += text[i];
      continue;
    }
    out += static_cast<char>(16 * high + low);
    i += 2;
  }
  return out;
}

std::vector<std::string> listed(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) out.push_back(unescaped(tessera::sdk::cut(text, ',')));
  return out;
}

// Fails if a name is empty or comes twice.
void check_names(const char* key, const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) fail(TSR_INVALID_ARGUMENT, key, " has an empty name: leave it out");
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<std::ptrdiff_t>(i))
      fail(TSR_INVALID_ARGUMENT, key, " names \"", names[i], "\" twice: name it once");
  }
}

}  // namespace

HistoryOptions::HistoryOptions(tessera::sdk::Options& options)
    : user(unescaped(options.string("user", ""))),
      time(unescaped(options.string("time", ""))),
      time_form(static_cast<TimeKeys::Form>(options.word("time_form", {"any", "number", "time"}))),
      columns(listed(options.string("columns", ""))),
      length(options.integer("length", 50)),
      newest(options.word("keep", {"newest", "oldest"}) == 0),
      by(unescaped(options.string("by", ""))),
      values(listed(options.string("values", ""))),
      repeats(options.flag("repeats", true)),
      sort(options.word("order", {"file", "sort"}) == 1),
      sample(static_cast<Sample>(options.word("samples", {"events", "users", "requests"}))),
      split_name(options.string("split", "none")),
      validation_from(unescaped(options.string("validation_from", ""))),
      test_from(unescaped(options.string("test_from", ""))),
      validation_share(options.number("validation_share", 0)),
      test_share(options.number("test_share", 0)) {
  split = static_cast<Split>(options.word("split", {"none", "leave_one_out", "time", "users"}));
  for (const std::string& value : values) words_.emplace_back(TextWord().of(value));
  check_columns();
  check_samples();
  check_split();
}

uint64_t HistoryOptions::pool_of(std::string_view action) const {
  TextWord word;
  const auto found = std::find(words_.begin(), words_.end(), word.of(action));
  return found == words_.end() ? kNoPool : static_cast<uint64_t>(found - words_.begin());
}

void HistoryOptions::check_columns() const {
  if (user.empty()) fail(TSR_INVALID_ARGUMENT, "history.user is empty: name the column of the events' users");
  if (time.empty())
    fail(TSR_INVALID_ARGUMENT,
         "history.time is empty: name the column of the events' times, by which they are ordered");
  if (columns.empty())
    fail(TSR_INVALID_ARGUMENT, "history.columns is empty: name the columns that become histories, first the item's");
  check_names("history.columns", columns);
  if (length < 1 || length > kMostEvents)
    fail(TSR_INVALID_ARGUMENT, "history.length = ", length, ", but a history has 1 to ", kMostEvents, " events");
  if (by.empty() && !values.empty())
    fail(TSR_INVALID_ARGUMENT, "history.values has no effect: set history.by, the column that has them");
  if (!by.empty() && values.empty())
    fail(TSR_INVALID_ARGUMENT, "history.by = \"", by, "\", but history.values is empty: name the actions to keep");
  check_names("history.values", values);
  check_names("history.values", words_);
  if (values.size() > kMostPools)
    fail(TSR_INVALID_ARGUMENT, "history.values names ", values.size(), " actions, but may name at most ", kMostPools);
}

void HistoryOptions::check_samples() const {
  if (!of_users()) return;
  const char* const what = sample == Sample::kUsers ? "users" : "requests";
  if (!newest)
    fail(TSR_INVALID_ARGUMENT, "history.keep = \"oldest\" does not go with history.samples = \"", what,
         "\": the last event of a sample is a user's newest; leave it out");
  if (!by.empty())
    fail(TSR_INVALID_ARGUMENT, "history.by = \"", by, "\" does not go with history.samples = \"", what,
         "\": each event is followed by the next one of any action; leave it out, or set samples = \"events\"");
  if (!repeats)
    fail(TSR_INVALID_ARGUMENT, "history.repeats = false does not go with history.samples = \"", what,
         "\": an event left out would tell that its item comes again; leave it out, or set samples = \"events\"");
  if (sample == Sample::kRequests && parts())
    fail(TSR_INVALID_ARGUMENT, "history.split = \"", split_name,
         "\" has no effect on requests, which are one for each user: set it to none");
}

void HistoryOptions::check_split() const {
  if (split != Split::kTime && !(validation_from.empty() && test_from.empty()))
    fail(TSR_INVALID_ARGUMENT, "history.", test_from.empty() ? "validation_from" : "test_from",
         " has no effect: it is for history.split = \"time\", and this is \"", split_name, "\"");
  if (split != Split::kUsers && (validation_share != 0 || test_share != 0))
    fail(TSR_INVALID_ARGUMENT, "history.", test_share == 0 ? "validation_share" : "test_share",
         " has no effect: it is for history.split = \"users\", and this is \"", split_name, "\"");
  if (split == Split::kTime && test_from.empty())
    fail(TSR_INVALID_ARGUMENT, "history.split = \"time\" needs history.test_from, the first time of the test");
  if (split != Split::kUsers) return;
  if (!(test_share > 0) || !(validation_share >= 0) || !(test_share + validation_share < 1))
    fail(TSR_INVALID_ARGUMENT, "history.split = \"users\" with test_share = ", test_share,
         " and validation_share = ", validation_share, ": the first must be above 0, and both together below 1");
}

}  // namespace tessera_readers
