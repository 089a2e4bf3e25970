// Makes the values of the columns that the reader histories offers.
#include <algorithm>
#include <bit>
#include <utility>

#include "history/reader.h"
#include "tessera/sdk/fields.h"
#include "tessera/sdk/nearest.h"

namespace tessera_readers {
namespace {

using tessera::sdk::fail;
using tessera::sdk::ReaderWant;

bool same_want(const ReaderWant& a, const ReaderWant& b) {
  return a.name == b.name && a.type == b.type && a.list == b.list && a.weighted == b.weighted &&
         a.separator == b.separator && a.weight_separator == b.weight_separator;
}

}  // namespace

size_t HistoryReader::want(const ReaderWant& wanted) {
  const auto same = std::find_if(wants_.begin(), wants_.end(), [&](const auto& w) { return same_want(w, wanted); });
  if (same == wants_.end()) wants_.push_back(wanted);
  return static_cast<size_t>(
      std::find_if(wants_.begin(), wants_.end(), [&](const auto& w) { return same_want(w, wanted); }) - wants_.begin());
}

size_t HistoryReader::cell_for(const std::string& column, int32_t type) {
  const size_t wanted = want({column, type});
  const auto same = std::find(cells_.begin(), cells_.end(), wanted);
  const auto cell = static_cast<size_t>(same - cells_.begin());
  if (same == cells_.end()) cells_.push_back(wanted);
  return cell;
}

void HistoryReader::check_wanted(const ReaderWant& wanted, const Source& source) const {
  const bool list = source.kind != Source::Kind::kUser && source.kind != Source::Kind::kLabel;
  if (wanted.list != list || wanted.weighted)
    fail(TSR_UNIMPLEMENTED, "column \"", wanted.name, list ? "\" is a list" : "\" is one value", " without weights");
  if (source.kind == Source::Kind::kUser && wanted.type != TSR_READER_TEXT && wanted.type != TSR_READER_INT64)
    fail(TSR_UNIMPLEMENTED, "column \"", wanted.name, "\" has users, which are texts or integers");
}

void HistoryReader::select(std::span<const ReaderWant> wants) {
  if (arriving_) return arriving_->select(wants);
  wants_.clear();
  cells_.clear();
  outputs_.clear();
  for (const ReaderWant& wanted : wants) {
    const auto found =
        std::find_if(columns_.begin(), columns_.end(), [&](const auto& c) { return c.name == wanted.name; });
    if (found == columns_.end()) {
      std::vector<std::string> names;
      for (const auto& c : columns_) names.push_back(c.name);
      fail(TSR_NOT_FOUND, tessera::sdk::unknown_name("column", wanted.name, names));
    }
    const Source& source = sources_[static_cast<size_t>(found - columns_.begin())];
    Output out{source, wanted.type, 0, HistoryColumn(wanted.type)};
    if (source.kind == Source::Kind::kEvent) {
      out.from = want(wanted);
    } else {
      check_wanted(wanted, source);
      if (source.kind != Source::Kind::kUser && source.kind != Source::Kind::kLabel)
        out.from = cell_for(source.column, wanted.type);
    }
    outputs_.push_back(std::move(out));
  }
  size_t item = 0;
  if (!options_.repeats) item = cell_for(options_.columns.front(), TSR_READER_TEXT);
  user_want_ = want({options_.user, TSR_READER_TEXT});
  time_want_ = want({options_.time, TSR_READER_TEXT});
  if (!options_.by.empty()) by_want_ = want({options_.by, TSR_READER_TEXT});
  inner_.select(wants_);
  texts_ = TextNumbers();
  item_want_ = options_.repeats ? 0 : cells_[item];
  log_.start(options_, cells_.size() + (options_.repeats ? 0 : 1), cells_.size());  // the last cell is the item's word
  log_counts_.assign(survey_->users().size(), 0);
  loaded_ = false;
  next_ = 0;
}

std::span<const tsr_reader_values> HistoryReader::read(int64_t block) {
  const Origin& origin = origins_[static_cast<size_t>(block)];
  values_.clear();
  if (options_.of_users() || options_.sort) load_log();
  if (options_.of_users())
    read_users(origin);
  else if (options_.sort)
    read_sorted(origin.first, origin.part);
  else
    read_in_order(origin.first, origin.part);
  if (values_.empty()) {
    for (const Output& out : outputs_) values_.push_back(out.values.values());
  }
  return values_;
}

// Stores the cells of the row's event in event_, and returns its pool.
uint64_t HistoryReader::cells_of(const std::vector<tsr_reader_values>& values, size_t block, int64_t row) {
  event_.clear();
  for (const size_t wanted : cells_) {
    const tsr_reader_values& v = values[wanted];
    const ReaderWant& w = wants_[wanted];
    if (v.present != nullptr && v.present[row] == 0)
      events_.place(block, row)
          .wrong(w.name, "the event has no value, but history.columns names the column: leave out such rows");
    event_.push_back(cell_of(v, w.type, row, texts_));
  }
  if (!options_.repeats) event_.push_back(texts_.number(word_.of(text_at(values[item_want_], row))));
  if (options_.by.empty()) return 0;
  const tsr_reader_values& actions = values[by_want_];
  if (actions.present != nullptr && actions.present[row] == 0) return HistoryLog::kNoPool;
  return options_.pool_of(text_at(actions, row));
}

size_t HistoryReader::user_at(const std::vector<tsr_reader_values>& values, size_t block, int64_t row) {
  const EventPlace place = events_.place(block, row);
  const size_t user =
      survey_->users().number(word_.of(HistorySurvey::user_of(options_, values[user_want_], row, place)));
  if (user >= log_counts_.size()) fail(TSR_DATA_LOSS, place.file, " has changed since it was opened: it has new users");
  return user;
}

// Adds the events of all users to the log.
void HistoryReader::load_log() {
  if (loaded_) return;
  const bool seen = std::any_of(outputs_.begin(), outputs_.end(),
                                [](const Output& out) { return out.source.kind == Source::Kind::kSeen; });
  const bool all = seen || options_.split == HistoryOptions::Split::kTime;
  const int64_t needed = options_.length + static_cast<int64_t>(kHistoryParts);
  size_t at = 0;
  log_.clear();
  for (size_t block = 0; block < events_.blocks.size(); ++block) {
    const std::vector<tsr_reader_values>& values = inner_.read(static_cast<int64_t>(block));
    for (int64_t row = 0; row < events_.blocks[block].rows; ++row, ++at) {
      const uint64_t pool = cells_of(values, block, row);
      if (options_.sort) {
        const HistorySurvey::Row& where = survey_->rows()[at];
        log_.put(where.user, where.place, survey_->events(where.user), pool, event_.data());
        continue;
      }
      const size_t user = user_at(values, block, row);
      log_.add(user, pool, event_.data());
      if (!all) log_.keep_last(user, needed);
    }
  }
  loaded_ = true;
}

void HistoryReader::start_outputs(const std::vector<tsr_reader_values>& values) {
  for (Output& out : outputs_)
    out.values.start(out.source.kind == Source::Kind::kEvent
                         ? values[out.from].lists != nullptr
                         : out.source.kind != Source::Kind::kUser && out.source.kind != Source::Kind::kLabel);
}

// Adds a sample: a row of a block of events, whose user has `end` earlier events in the log.
void HistoryReader::add_sample(const std::vector<tsr_reader_values>& values, int64_t row, size_t user, int64_t end) {
  const std::vector<int64_t>& history = log_.history(user, end);
  for (Output& out : outputs_) {
    if (out.source.kind == Source::Kind::kEvent) {
      if (options_.parts()) out.values.copy(values[out.from], row);
      continue;
    }
    for (const int64_t event : history) {
      if (out.source.pool == HistoryLog::kNoPool || out.source.pool == log_.pool(user, event))
        out.values.add_cell(log_.cell(user, event, out.from), texts_);
    }
    out.values.end_list();
  }
}

// If a block has all rows, the columns of its events are passed on without a copy.
void HistoryReader::lend_outputs(const std::vector<tsr_reader_values>& values) {
  for (const Output& out : outputs_) {
    const bool lent = out.source.kind == Source::Kind::kEvent && !options_.parts();
    values_.push_back(lent ? values[out.from] : out.values.values());
  }
}

void HistoryReader::read_in_order(size_t block, HistoryPart part) {
  constexpr size_t kNowhere = ~size_t{0};
  size_t at = std::exchange(next_, kNowhere);  // if there is an error below, the log is in no defined state
  if (block < at) {
    log_.clear();
    std::fill(log_counts_.begin(), log_counts_.end(), 0);
    at = 0;
  }
  for (; at < block; ++at) pass_block(at, inner_.read(static_cast<int64_t>(at)), nullptr);
  const std::vector<tsr_reader_values>& values = inner_.read(static_cast<int64_t>(block));
  start_outputs(values);
  pass_block(block, values, &part);
  lend_outputs(values);
  next_ = block + 1;
}

// Adds the events of a block to the log. `part`: also adds the rows of this part as samples.
void HistoryReader::pass_block(size_t block, const std::vector<tsr_reader_values>& values, const HistoryPart* part) {
  for (int64_t row = 0; row < events_.blocks[block].rows; ++row) {
    const size_t user = user_at(values, block, row);
    const int64_t index = log_counts_[user]++;
    const uint64_t pool = cells_of(values, block, row);
    if (part != nullptr) {
      TimeKey time;
      if (options_.split == HistoryOptions::Split::kTime)
        time = survey_->time_of(values[time_want_], row, events_.place(block, row));
      if (survey_->part(user, index, time) == *part) add_sample(values, row, user, log_.size(user));
    }
    if (pool == HistoryLog::kNoPool) continue;
    log_.add(user, pool, event_.data());
    log_.trim(user);
  }
}

void HistoryReader::read_sorted(size_t block, HistoryPart part) {
  const std::vector<tsr_reader_values>& values = inner_.read(static_cast<int64_t>(block));
  size_t at = 0;
  for (size_t b = 0; b < block; ++b) at += static_cast<size_t>(events_.blocks[b].rows);
  start_outputs(values);
  for (int64_t row = 0; row < events_.blocks[block].rows; ++row, ++at) {
    const HistorySurvey::Row& where = survey_->rows()[at];
    if (where.part == part) add_sample(values, row, where.user, where.place);
  }
  lend_outputs(values);
}

void HistoryReader::read_users(const Origin& origin) {
  start_outputs({});
  for (size_t sample = origin.first; sample < origin.end; ++sample) add_user_sample(samples_[sample]);
}

void HistoryReader::add_user_sample(const UserSample& sample) {
  const size_t user = sample.user;
  const int64_t events = survey_->events(user), first = std::max<int64_t>(0, sample.last - options_.length);
  const std::string_view name = survey_->users().text(sample.user);
  for (Output& out : outputs_) {
    switch (out.source.kind) {
      case Source::Kind::kEvent:
        break;  // samples of users have no such columns
      case Source::Kind::kUser:
        add_user(out, name);
        break;
      case Source::Kind::kLabel:
        add_one(out);
        break;
      case Source::Kind::kHistory:
        add_events(out, user, first, sample.last);
        break;
      case Source::Kind::kNext:
        add_events(out, user, first + 1, std::min(sample.last + 1, events));
        break;
      case Source::Kind::kSeen:
        add_events(out, user, 0, sample.seen ? sample.last : 0);
        break;
    }
  }
}

// Adds events [begin, end) of the user to a list. The log may only have the last ones.
void HistoryReader::add_events(Output& out, size_t user, int64_t begin, int64_t end) const {
  const int64_t forgotten = survey_->events(user) - log_.size(user);
  for (int64_t event = begin; event < end; ++event)
    out.values.add_cell(log_.cell(user, event - forgotten, out.from), texts_);
  out.values.end_list();
}

void HistoryReader::add_user(Output& out, std::string_view name) const {
  if (out.type == TSR_READER_TEXT) return out.values.add(name);
  int64_t number = 0;
  if (out.type != TSR_READER_INT64 || !tessera::sdk::parse_number(name, number))
    fail(TSR_INVALID_ARGUMENT, "column \"", options_.user, "\" has the user \"", name,
         "\", which is no integer: set ids to vocabulary or hash in its [[column]]");
  out.values.add(number);
}

void HistoryReader::add_one(Output& out) {
  if (out.type == TSR_READER_TEXT)
    out.values.add("1");
  else if (out.type == TSR_READER_FLOAT32)
    out.values.add_cell(std::bit_cast<uint32_t>(1.0F), texts_);
  else
    out.values.add_cell(out.type == TSR_READER_FLOAT64 ? std::bit_cast<uint64_t>(1.0) : uint64_t{1}, texts_);
}

}  // namespace tessera_readers
