#include "history/reader.h"

#include <algorithm>

#include "tessera/sdk/fields.h"
#include "tessera/sdk/other_columns.h"

namespace tessera_readers {
namespace {

using tessera::sdk::fail;
using tessera::sdk::ReaderBlock;
using tessera::sdk::ReaderColumn;
using tessera::sdk::ReaderWant;

constexpr const char* kPrefix = "history.";
constexpr const char* kNextPrefix = "next.";
constexpr const char* kSeenPrefix = "seen.";
constexpr const char* kLabel = "history.label";
constexpr int64_t kIdBytes = 2;  // the core counts two bytes of text for an id in a list

const tsr_instance& inner_of(const tessera::sdk::Setup& setup) {
  if (setup.inner == nullptr)
    fail(TSR_INVALID_ARGUMENT, "histories needs another reader for its events: name it, as in histories?user=id(csv)");
  return *setup.inner;
}

template <class Columns>
auto find_column(const Columns& columns, const std::string& name) {
  return std::find_if(columns.begin(), columns.end(), [&](const ReaderColumn& c) { return c.name == name; });
}

std::vector<std::string> names_of(const std::vector<ReaderColumn>& columns) {
  std::vector<std::string> out;
  for (const ReaderColumn& c : columns) out.push_back(c.name);
  return out;
}

}  // namespace

HistoryReader::HistoryReader(const tessera::sdk::Setup& setup)
    : host_(setup.host), options_(setup.options), kept_(options_), inner_(inner_of(setup)) {
  if (ArrivingHistories::arriving_of(*setup.inner) != nullptr)
    arriving_ = std::make_unique<ArrivingHistories>(options_, kept_, *setup.inner);
}

const char* HistoryReader::describe(const std::string&) {
  described_ = R"({"own_past": true)";
  if (options_.parts())
    described_ += options_.validates() ? R"(, "test_files": 1, "validation_files": 1)" : R"(, "test_files": 1)";
  described_ += "}";
  return described_.c_str();
}

const char* HistoryReader::settled() const {
  using Form = TimeKeys::Form;
  const Form form = survey_ == nullptr || options_.time_form != Form::kUnknown ? Form::kUnknown : survey_->time_form();
  return form == Form::kUnknown ? "" : form == Form::kNumber ? R"(time_form="number")" : R"(time_form="time")";
}

void HistoryReader::open(std::string_view path, int64_t block_bytes) {
  if (arriving_) return ArrivingReader::open(path, block_bytes);
  constexpr int64_t kLeast = int64_t{64} << 10, kIdsPerField = 16;
  const int64_t ids = options_.longest() * static_cast<int64_t>(options_.columns.size());
  const int64_t events = std::max(block_bytes / (1 + ids / kIdsPerField), std::min(block_bytes, kLeast));
  events_.path = path;
  inner_.open(events_.path, options_.of_users() ? block_bytes : events);
  inner_columns_ = inner_.columns();
  check_columns();
  events_.files = inner_.files();
  events_.blocks = inner_.whole_blocks();
  survey_ = std::make_unique<HistorySurvey>(options_, events_, inner_);
  for (const std::string& value : survey_->absent_values())
    host_.log(TSR_LOG_WARNING, "history.values: no event of " + events_.path + " has \"" + value + "\" in column \"" +
                                   options_.by + "\", so these histories are empty");
  list_columns();
  files_ = events_.files;
  if (options_.parts() || options_.of_users()) {
    files_.assign(1, events_.path + " (samples)");
    if (options_.parts() && options_.validates()) files_.push_back(events_.path + " (samples for validation)");
    if (options_.parts()) files_.push_back(events_.path + " (samples of the test)");
  }
  blocks_.clear();
  origins_.clear();
  if (options_.of_users())
    list_user_blocks(block_bytes);
  else
    list_event_blocks();
  select({});
}

void HistoryReader::check_columns() const {
  const auto require = [&](const char* key, const std::string& name) {
    const auto found = find_column(inner_columns_, name);
    if (found == inner_columns_.end())
      fail(TSR_NOT_FOUND, key, ": the files have no column \"", name, '"',
           tessera::sdk::other_columns(name, names_of(inner_columns_)));
    if (!found->list && found->type == TSR_READER_UNREADABLE && found->about.empty())
      fail(TSR_NOT_FOUND, key, ": only some of the files have the column \"", name, '"');
    if (found->list || found->type == TSR_READER_UNREADABLE)
      fail(TSR_INVALID_ARGUMENT, key, ": column \"", name, "\" has ", found->about.empty() ? "lists" : found->about,
           ", but an event has one value in it");
  };
  require("history.user", options_.user);
  require("history.time", options_.time);
  if (!options_.by.empty()) require("history.by", options_.by);
  for (const std::string& name : options_.columns) require("history.columns", name);
}

void HistoryReader::list_columns() {
  columns_.clear();
  sources_.clear();
  if (options_.of_users()) {
    ReaderColumn user = *find_column(inner_columns_, options_.user);
    if (user.type != TSR_READER_INT64) user.type = TSR_READER_TEXT;
    columns_.push_back(std::move(user));
    sources_.push_back({Source::Kind::kUser, options_.user});
    columns_.push_back({kLabel, TSR_READER_INT64});
    sources_.push_back({Source::Kind::kLabel, ""});
  } else {
    for (const ReaderColumn& c : inner_columns_) {
      columns_.push_back(c);
      sources_.push_back({Source::Kind::kEvent, c.name});
    }
  }
  for (const std::string& name : options_.columns) {
    list_column(Source::Kind::kHistory, name);
    for (size_t pool = 0; pool < options_.values.size(); ++pool) list_column(Source::Kind::kHistory, name, pool);
    if (options_.of_users()) list_column(Source::Kind::kNext, name);
  }
  if (options_.of_users()) list_column(Source::Kind::kSeen, options_.columns.front());
}

void HistoryReader::list_column(Source::Kind kind, const std::string& name, uint64_t pool) {
  const char* const prefix = kind == Source::Kind::kNext   ? kNextPrefix
                             : kind == Source::Kind::kSeen ? kSeenPrefix
                                                           : kPrefix;
  ReaderColumn column = *find_column(inner_columns_, name);
  column.name = prefix + (pool == HistoryLog::kNoPool ? "" : options_.values[pool] + ".") + name;
  if (find_column(columns_, column.name) != columns_.end())
    fail(TSR_INVALID_ARGUMENT, "there are two columns \"", column.name,
         "\", one of them a history: give the other one another name in the files");
  column.list = true;
  columns_.push_back(std::move(column));
  sources_.push_back({kind, name, pool});
}

void HistoryReader::add_block(ReaderBlock block, Origin origin) {
  if (block.rows == 0) return;
  blocks_.push_back(block);
  origins_.push_back(origin);
}

void HistoryReader::list_event_blocks() {
  const int64_t lists = static_cast<int64_t>(options_.columns.size()) * (options_.by.empty() ? 1 : 2);
  int64_t file = 0;
  for (const HistoryPart part : {kTrainPart, kValidationPart, kTestPart}) {
    if (part == kValidationPart && !options_.validates()) continue;
    int64_t first_row = 0;
    const size_t begin = blocks_.size();
    for (size_t b = 0; b < events_.blocks.size(); ++b) {
      ReaderBlock block = events_.blocks[b];
      const HistorySurvey::Block& about = survey_->blocks()[b];
      const int64_t rows = about.rows[part];
      const int64_t entries = std::min(about.entries, rows * options_.longest());
      block.bytes = block.bytes * rows / std::max<int64_t>(block.rows, 1) + kIdBytes * entries * lists;
      block.rows = rows;
      if (!options_.sort) block.behind = blocks_.size() > begin;
      if (options_.parts()) {
        block.file = file;
        block.first_row = first_row;
      }
      first_row += rows;
      add_block(block, {part, b, b + 1});
    }
    ++file;
  }
}

// Returns the number of the user's events before the one to predict; negative: the user has no sample in this part.
int64_t HistoryReader::last_of(uint32_t user, HistoryPart part) const {
  const int64_t events = survey_->events(user);
  if (options_.sample == HistoryOptions::Sample::kRequests) return events;
  switch (options_.split) {
    case HistoryOptions::Split::kNone:
      break;
    case HistoryOptions::Split::kLeaveOneOut:
      return events - 3 + part;
    case HistoryOptions::Split::kTime: {
      const int64_t until = survey_->events_until(user, part);
      const int64_t before = part == kTrainPart ? 0 : survey_->events_until(user, HistoryPart(part - 1));
      return until > before ? until - 1 : -1;
    }
    case HistoryOptions::Split::kUsers:
      if (survey_->part(user, 0, {}) != part) return -1;
  }
  return events - 1;
}

void HistoryReader::list_user_blocks(int64_t block_bytes) {
  const auto users = static_cast<uint32_t>(survey_->users().size());
  std::array<int64_t, kHistoryParts> rows{};
  int64_t file = 0;
  samples_.clear();
  for (const HistoryPart part : {kTrainPart, kValidationPart, kTestPart}) {
    if (part != kTrainPart && (!options_.parts() || (part == kValidationPart && !options_.validates()))) continue;
    const bool seen = !options_.parts() || part != kTrainPart;
    const size_t begin = samples_.size();
    ReaderBlock block{file++, 0, 0, 0};
    size_t first = begin;
    const auto end_block = [&] {
      add_block(block, {part, first, samples_.size()});
      block = {block.file, block.first_row + block.rows, 0, 0};
      first = samples_.size();
    };
    for (uint32_t user = 0; user < users; ++user) {
      const int64_t last = last_of(user, part);
      if (last < 1) continue;
      samples_.push_back({user, last, seen});
      const int64_t entries = 2 * std::ssize(options_.columns) * std::min(last, options_.length) + (seen ? last : 0);
      block.bytes += kIdBytes * entries + 1;
      if (++block.rows; block.bytes >= block_bytes) end_block();
    }
    end_block();
    rows[part] = std::ssize(samples_) - static_cast<int64_t>(begin);
  }
  if (options_.parts()) return require_parts(options_, events_.path, rows);
  if (samples_.empty())
    fail(TSR_INVALID_ARGUMENT, events_.path, " has no user with 2 events, but a sample has one and the next");
}

}  // namespace tessera_readers
