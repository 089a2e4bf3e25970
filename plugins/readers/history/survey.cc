#include "history/survey.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "tessera/sdk/fields.h"

namespace tessera_readers {
namespace {

using tessera::sdk::fail;
using Split = HistoryOptions::Split;

std::string_view value_at(const tsr_reader_values& v, int64_t row) {
  return v.present != nullptr && v.present[row] == 0 ? std::string_view() : text_at(v, row);
}

// Returns a number in [0, 1) for the user, by which users are divided among the parts.
double share_of(std::string_view user) {
  constexpr int64_t kSteps = int64_t{1} << 30;
  return static_cast<double>(tessera::sdk::row_of("history=", user, kSteps)) / static_cast<double>(kSteps);
}

}  // namespace

HistorySurvey::HistorySurvey(const HistoryOptions& options, const EventFiles& files, InnerReader& inner)
    : options_(options),
      files_(files),
      keys_(options.time_form),
      actions_(options.values.size()),
      blocks_(files.blocks.size()) {
  std::vector<tessera::sdk::ReaderWant> wants = {{options.user, TSR_READER_TEXT}, {options.time, TSR_READER_TEXT}};
  if (!options.by.empty()) wants.push_back({options.by, TSR_READER_TEXT});
  inner.select(wants);
  read(inner);
  if (options.sort) place_sorted();
  count_parts();
  require_samples();
  std::vector<TimeKey>().swap(last_times_);
  std::vector<std::array<size_t, 2>>().swap(last_blocks_);
}

std::string_view HistorySurvey::user_of(const HistoryOptions& options, const tsr_reader_values& users, int64_t row,
                                        const EventPlace& place) {
  const std::string_view user = value_at(users, row);
  if (user.empty()) place.wrong(options.user, "the event has no user: leave out such rows");
  return user;
}

TimeKey HistorySurvey::time_of(const tsr_reader_values& times, int64_t row, const EventPlace& place) {
  const std::string_view text = value_at(times, row);
  const TimeKey key = time_of_event(keys_, text, [&](const auto&... parts) { place.wrong(options_.time, parts...); });
  if (options_.split != Split::kTime || bounded_) return key;
  bounded_ = true;
  const auto bound = [&](const char* name, const std::string& from) {
    const std::optional<TimeKey> out = keys_.parse(from);
    if (out) return *out;
    fail(TSR_INVALID_ARGUMENT, "history.", name, " = \"", from, "\" is not a ",
         keys_.form() == TimeKeys::Form::kNumber ? "number" : "date or time", ", as the values of \"", options_.time,
         "\" are");
  };
  test_from_ = bound("test_from", options_.test_from);
  validation_from_ = options_.validation_from.empty() ? test_from_ : bound("validation_from", options_.validation_from);
  if (!options_.validation_from.empty() && !(validation_from_ < test_from_))
    fail(TSR_INVALID_ARGUMENT, "history.validation_from = \"", options_.validation_from,
         "\" must be before history.test_from = \"", options_.test_from, '"');
  return key;
}

void HistorySurvey::read(InnerReader& inner) {
  for (size_t block = 0; block < files_.blocks.size(); ++block) {
    const std::vector<tsr_reader_values>& values = inner.read(static_cast<int64_t>(block));
    for (int64_t row = 0; row < files_.blocks[block].rows; ++row) {
      const EventPlace place = files_.place(block, row);
      const uint32_t user = users_.number(word_.of(user_of(options_, values[0], row, place)));
      add(block, user, time_of(values[1], row, place), place);
      if (!options_.by.empty()) count_action(values[2], row);
    }
  }
}

void HistorySurvey::count_action(const tsr_reader_values& actions, int64_t row) {
  const uint64_t pool = options_.pool_of(value_at(actions, row));
  if (pool != HistoryOptions::kNoPool) ++actions_[static_cast<size_t>(pool)];
}

std::vector<std::string> HistorySurvey::absent_values() const {
  std::vector<std::string> out;
  for (size_t i = 0; i < actions_.size(); ++i) {
    if (actions_[i] == 0) out.push_back(options_.values[i]);
  }
  return out;
}

void HistorySurvey::add(size_t block, size_t user, const TimeKey& time, const EventPlace& place) {
  const bool first = user == counts_.size();
  if (first) counts_.push_back(0);
  const int64_t index = counts_[user]++;
  blocks_[block].entries += std::min(index, options_.longest());
  if (options_.split == Split::kTime) {
    if (first) until_.push_back({});
    for (const HistoryPart part : {kTrainPart, kValidationPart, kTestPart})
      until_[user][part] += time < (part == kTrainPart ? validation_from_ : test_from_) || part == kTestPart ? 1 : 0;
  }
  if (options_.sort) {
    if (rows_.size() == std::numeric_limits<uint32_t>::max())
      fail(TSR_INVALID_ARGUMENT, files_.path, " has more than ", rows_.size(),
           " events, which is too many for history.order = \"sort\": sort the files by time, and take \"file\"");
    rows_.push_back({static_cast<uint32_t>(user), static_cast<uint32_t>(index), kTrainPart});
    times_.push_back(time);
    return;
  }
  if (first) {
    last_times_.push_back(time);
    last_blocks_.push_back({block, block});
  } else {
    if (time < last_times_[user])
      place.wrong(options_.time, "the event is earlier than one of the same user, \"",
                  users_.text(static_cast<uint32_t>(user)),
                  "\", in a row before it: sort the files by time, or set history.order = \"sort\"");
    last_times_[user] = time;
    last_blocks_[user] = {block, last_blocks_[user][0]};
  }
  if (options_.of_users() || !options_.parts()) return;
  if (options_.split != Split::kLeaveOneOut) ++blocks_[block].rows[part(user, index, time)];
}

// Sorts each user's events by time. Events of the same time stay in the order of the files.
void HistorySurvey::place_sorted() {
  std::vector<uint32_t> order(rows_.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return rows_[a].user != rows_[b].user ? rows_[a].user < rows_[b].user : times_[a] < times_[b];
  });
  uint32_t place = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    Row& row = rows_[order[i]];
    place = i > 0 && rows_[order[i - 1]].user == row.user ? place + 1 : 0;
    row.place = place;
    row.part = part(row.user, place, times_[order[i]]);
  }
  std::vector<TimeKey>().swap(times_);
}

HistoryPart HistorySurvey::part(size_t user, int64_t index, const TimeKey& time) const {
  switch (options_.split) {
    case Split::kNone:
      return kTrainPart;
    case Split::kLeaveOneOut: {
      const int64_t behind = counts_[user] - 1 - index;
      return behind == 0 ? kTestPart : behind == 1 ? kValidationPart : kTrainPart;
    }
    case Split::kTime:
      return time < validation_from_ ? kTrainPart : time < test_from_ ? kValidationPart : kTestPart;
    case Split::kUsers:
      break;
  }
  const double share = share_of(users_.text(static_cast<uint32_t>(user)));
  if (share < options_.test_share) return kTestPart;
  return share < options_.test_share + options_.validation_share ? kValidationPart : kTrainPart;
}

// Counts the rows of each part in each block.
void HistorySurvey::count_parts() {
  if (options_.of_users()) return;
  if (options_.sort) {
    size_t at = 0;
    for (size_t block = 0; block < blocks_.size(); ++block) {
      blocks_[block].entries = 0;
      for (int64_t row = 0; row < files_.blocks[block].rows; ++row, ++at) {
        ++blocks_[block].rows[rows_[at].part];
        blocks_[block].entries += std::min<int64_t>(rows_[at].place, options_.longest());
      }
    }
    return;
  }
  const bool last_two = options_.split == Split::kLeaveOneOut;
  if (options_.parts() && !last_two) return;
  for (size_t block = 0; block < blocks_.size(); ++block) blocks_[block].rows[kTrainPart] = files_.blocks[block].rows;
  for (size_t user = 0; last_two && user < counts_.size(); ++user) {
    for (size_t back = 0; back < 2 && static_cast<int64_t>(back) < counts_[user]; ++back) {
      Block& block = blocks_[last_blocks_[user][back]];
      --block.rows[kTrainPart];
      ++block.rows[back == 0 ? kTestPart : kValidationPart];
    }
  }
}

void HistorySurvey::require_samples() const {
  if (counts_.empty()) fail(TSR_INVALID_ARGUMENT, files_.path, " has no events");
  if (options_.of_users() || !options_.parts()) return;
  std::array<int64_t, kHistoryParts> rows{};
  for (const Block& block : blocks_) {
    for (size_t part = 0; part < kHistoryParts; ++part) rows[part] += block.rows[part];
  }
  require_parts(options_, files_.path, rows);
}

void require_parts(const HistoryOptions& options, const std::string& path,
                   const std::array<int64_t, kHistoryParts>& samples) {
  constexpr std::array<const char*, kHistoryParts> kWhat = {"train on", "validate on", "test"};
  for (size_t part = 0; part < kHistoryParts; ++part) {
    if (samples[part] == 0 && (part != kValidationPart || options.validates()))
      fail(TSR_INVALID_ARGUMENT, "history.split = \"", options.split_name, "\" leaves no sample of ", path, " to ",
           kWhat[part], ": change its keys, or give more events");
  }
}

}  // namespace tessera_readers
