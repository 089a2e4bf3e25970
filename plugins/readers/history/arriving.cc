#include "history/arriving.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

namespace tessera_readers {
namespace {

using tessera::sdk::fail;
using tessera::sdk::ReaderWant;

constexpr int64_t kRowsAtOnce = 4096;
constexpr auto kPatience = std::chrono::seconds(30);  // deadline for rows that are read again

std::string_view present_text(const tsr_reader_values& v, int64_t row) {
  return v.present != nullptr && v.present[row] == 0 ? std::string_view() : text_at(v, row);
}

// FNV-1a.
uint64_t hashed(std::string_view bytes, uint64_t hash) {
  constexpr uint64_t kPrime = 0x100000001b3;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  return (hash ^ 0xff) * kPrime;  // ends the field
}

// The value's bytes: its text, or the number.
std::string_view bytes_at(const tsr_reader_values& v, int32_t type, int64_t row) {
  if (type == TSR_READER_TEXT) return text_at(v, row);
  const size_t size = type == TSR_READER_FLOAT32 ? sizeof(float) : sizeof(int64_t);
  return {static_cast<const char*>(v.values) + static_cast<size_t>(row) * size, size};
}

}  // namespace

const tsr_reader_arriving* ArrivingHistories::arriving_of(const tsr_instance& inner) {
  return tessera::sdk::extension_of<tsr_reader_arriving>(inner, TSR_READER_ARRIVING);
}

ArrivingHistories::ArrivingHistories(const HistoryOptions& options, const KeptLists& lists, const tsr_instance& inner)
    : options_(options),
      lists_(lists),
      inner_(inner),
      api_(arriving_of(inner)),
      skips_(tessera::sdk::extension_of<tsr_reader_skips>(inner, TSR_READER_SKIPS)),
      keys_(options.time_form) {
  const auto refuse = [&](const char* key, const char* why) {
    fail(TSR_INVALID_ARGUMENT, key, " does not go with rows that arrive, which \"", inner.component->id,
         "\" reads: ", why);
  };
  if (options.of_users())
    refuse("history.samples", "a user's last event never comes; leave it out, for samples of events");
  if (options.sort) refuse("history.order = \"sort\"", "they have no end, so they cannot be sorted; leave it out");
  if (options.parts()) refuse("history.split", "they have no end, so there are no parts; leave it out");
  for (const std::string& name : lists.lists()) columns_.push_back({name, TSR_READER_TEXT, true});
}

void ArrivingHistories::follow(const std::string& path, std::string_view position) {
  path_ = path;
  rows_ = rows_before_ = 0;
  sum_ = sum_before_ = 0;
  if (!position.empty()) {
    const auto j = nlohmann::json::parse(position, nullptr, false);
    const bool good = j.is_object() && j.contains("events") && j["events"].is_number_unsigned() && j.contains("sum") &&
                      j["sum"].is_number_unsigned();
    if (!good) fail(TSR_DATA_LOSS, "\"", position, "\" is not a position of the reader histories");
    rows_before_ = j["events"];
    sum_before_ = j["sum"];
  }
  const tsr_reader_source source{sizeof(source), 0, path_.c_str(), int64_t{1} << 20};
  tessera::sdk::Call call;
  call.check(api_->follow(inner_.self, &source, nullptr, call.err()));
}

size_t ArrivingHistories::want(const ReaderWant& wanted) {
  const auto same = std::find_if(wants_.begin(), wants_.end(), [&](const ReaderWant& w) {
    return w.name == wanted.name && w.type == wanted.type && w.list == wanted.list && w.weighted == wanted.weighted &&
           w.separator == wanted.separator && w.weight_separator == wanted.weight_separator;
  });
  const auto at = static_cast<size_t>(same - wants_.begin());
  if (same == wants_.end()) wants_.push_back(wanted);
  return at;
}

size_t ArrivingHistories::cell_for(const std::string& column, int32_t type) {
  const size_t wanted = want({column, type});
  const auto same = std::find(cells_.begin(), cells_.end(), wanted);
  const auto cell = static_cast<size_t>(same - cells_.begin());
  if (same == cells_.end()) cells_.push_back(wanted);
  return cell;
}

void ArrivingHistories::select(std::span<const ReaderWant> wants) {
  wants_.clear();
  cells_.clear();
  outputs_.clear();
  size_t item = 0;
  if (!options_.repeats) item = cell_for(options_.columns.front(), TSR_READER_TEXT);
  for (const ReaderWant& wanted : wants) {
    const KeptLists::List* const list = lists_.list_of(wanted.name);
    if (list != nullptr && (!wanted.list || wanted.weighted))
      fail(TSR_UNIMPLEMENTED, "column \"", wanted.name, "\" is a list without weights");
    const size_t from = list == nullptr ? want(wanted) : cell_for(options_.columns[list->cell], wanted.type);
    outputs_.push_back({list != nullptr, from, list == nullptr ? HistoryPicker::kNoPool : list->pool, wanted.type,
                        HistoryColumn(wanted.type)});
  }
  user_ = want({options_.user, TSR_READER_TEXT});
  time_ = want({options_.time, TSR_READER_TEXT});
  if (!options_.by.empty()) by_ = want({options_.by, TSR_READER_TEXT});
  events_.start(options_, cells_.size(), item, false, std::numeric_limits<int64_t>::max());
  std::vector<tsr_reader_want> raw;
  for (const ReaderWant& w : wants_) {
    const uint32_t flags =
        (w.list ? uint32_t{TSR_READER_LIST} : 0u) | (w.weighted ? uint32_t{TSR_READER_WEIGHTED} : 0u);
    raw.push_back({sizeof(tsr_reader_want), flags, w.name.c_str(), w.type, w.separator, w.weight_separator, {0, 0}});
  }
  values_.resize(wants_.size());
  tessera::sdk::Call call;
  const auto* reader = static_cast<const tsr_reader*>(inner_.component->api);
  call.check(reader->select(inner_.self, std::ssize(raw), sizeof(tsr_reader_want), raw.data(), call.err()));
}

tsr_reader_arrived ArrivingHistories::read(int64_t most, double wait_s) {
  for (tsr_reader_values& v : values_) v = {sizeof(v), 0, nullptr, nullptr, nullptr, nullptr, nullptr};
  tsr_reader_arrived got{sizeof(got), 0, 0, 0, "", nullptr};
  tessera::sdk::Call call;
  call.check(api_->next(inner_.self, most, wait_s, sizeof(tsr_reader_values), values_.data(), &got, call.err()));
  return got;
}

// Reads the rows before the position again, so that their users have their histories.
void ArrivingHistories::read_again() {
  if (rows_before_ == 0) return;
  auto last_row = std::chrono::steady_clock::now();
  while (rows_ < rows_before_) {
    const tsr_reader_arrived got = read(std::min(kRowsAtOnce, rows_before_ - rows_), 1);
    for (int64_t row = 0; row < got.rows; ++row) take(got, row, false);
    const auto now = std::chrono::steady_clock::now();
    if (got.rows > 0) last_row = now;
    if ((got.flags & TSR_ARRIVED_LAST) == 0 && now - last_row < kPatience) continue;
    if (rows_ < rows_before_)
      fail(TSR_DATA_LOSS, path_, " has only ", rows_, " of the ", rows_before_, " events before the position, and ",
           "histories are made of all of them: put them back, or begin anew with --load");
  }
  if (sum_ != sum_before_)
    fail(TSR_DATA_LOSS, path_, " does not begin with the ", rows_before_,
         " events that were read before the position, ",
         "and histories are made of them: put them back in their order, or begin anew with --load");
  rows_before_ = 0;
}

// Reads a row's event, and stores its cells in event_. Fails if the row is no event.
ArrivingHistories::Event ArrivingHistories::event_at(int64_t row) {
  const auto wrong = [&](const std::string& column, const auto&... parts) {
    fail(TSR_INVALID_ARGUMENT, "column \"", column, "\": ", parts...);
  };
  Event out;
  out.user = user_word_.of(present_text(values_[user_], row));
  if (out.user.empty()) wrong(options_.user, "the event has no user: leave out such rows");
  out.time = time_of_event(keys_, present_text(values_[time_], row),
                           [&](const auto&... parts) { wrong(options_.time, parts...); });
  if (events_.is_late(out.user, out.time))
    wrong(options_.time, "the event is earlier than one of the same user, \"", out.user,
          "\", before it: a user's events must arrive in the order of time");
  event_.clear();
  for (const size_t wanted : cells_) {
    const tsr_reader_values& v = values_[wanted];
    if (v.present != nullptr && v.present[row] == 0)
      wrong(wants_[wanted].name, "the event has no value, but history.columns names the column: leave out such rows");
    event_.push_back(bytes_at(v, wants_[wanted].type, row));
  }
  if (!options_.by.empty()) out.pool = options_.pool_of(present_text(values_[by_], row));
  return out;
}

// Adds a row's event to the histories. `gives`: also returns the row as a sample. Returns false if the row is no event
// and such rows are left out.
bool ArrivingHistories::take(const tsr_reader_arrived& got, int64_t row, bool gives) {
  ++rows_;
  sum_ += hashed(present_text(values_[time_], row), hashed(present_text(values_[user_], row), 0xcbf29ce484222325));
  Event event;
  try {
    event = event_at(row);
  } catch (const tessera::sdk::Failure& e) {
    const std::string why =
        std::string(got.where) + ", row " + std::to_string(got.first_row + row + 1) + ", " + e.what();
    if (skips_ == nullptr) fail(TSR_INVALID_ARGUMENT, why);
    tessera::sdk::Call call;
    if (gives) call.check(skips_->skip(inner_.self, row, why.c_str(), call.err()));
    return false;
  }
  for (size_t c = 0; c < event_.size(); ++c) sum_ += hashed(event_[c], c);
  if (gives) {
    events_.choose(event.user);
    give(row);
  }
  events_.add(event.user, event.time, event.pool, event_);
  return true;
}

void ArrivingHistories::add_cell(Output& out, std::string_view cell) const {
  if (out.type == TSR_READER_TEXT) return out.values.add(cell);
  uint64_t bits = 0;
  std::memcpy(&bits, cell.data(), cell.size());
  out.values.add_cell(bits, no_texts_);
}

// Adds a row to the outputs. Its user has been chosen.
void ArrivingHistories::give(int64_t row) {
  const std::vector<int64_t>& history = events_.history();
  for (Output& out : outputs_) {
    if (!out.list) {
      if (skips()) out.values.copy(values_[out.from], row);
      continue;
    }
    for (const int64_t event : history) {
      if (out.pool == HistoryPicker::kNoPool || out.pool == events_.pool(event))
        add_cell(out, events_.cell(event, out.from));
    }
    out.values.end_list();
  }
}

tessera::sdk::Arrived ArrivingHistories::next(int64_t most, double wait_s) {
  read_again();
  const tsr_reader_arrived got = read(most, wait_s);
  for (Output& out : outputs_) out.values.start(out.list || (got.rows > 0 && values_[out.from].lists != nullptr));
  given_rows_.clear();
  times_.clear();
  for (int64_t row = 0; row < got.rows; ++row) {
    if (!take(got, row, true)) continue;
    given_rows_.push_back(row);
    if (got.times != nullptr) times_.push_back(got.times[row]);
  }
  given_.clear();
  for (const Output& out : outputs_) given_.push_back(out.list || skips() ? out.values.values() : values_[out.from]);
  return {.rows = std::ssize(given_rows_),
          .first_row = got.first_row,
          .last = (got.flags & TSR_ARRIVED_LAST) != 0,
          .where = got.where,
          .times = got.times == nullptr ? nullptr : times_.data(),
          .values = given_};
}

std::string ArrivingHistories::position() const {
  const bool before = rows_before_ > 0;  // nothing was read since follow()
  return nlohmann::json{{"events", static_cast<uint64_t>(before ? rows_before_ : rows_)},
                        {"sum", before ? sum_before_ : sum_}}
      .dump();
}

void ArrivingHistories::skip(int64_t row, const char* why) {
  tessera::sdk::Call call;
  call.check(skips_->skip(inner_.self, given_rows_.at(static_cast<size_t>(row)), why, call.err()));
}

}  // namespace tessera_readers
