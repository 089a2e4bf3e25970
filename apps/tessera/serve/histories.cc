#include "serve/histories.h"

#include <algorithm>
#include <chrono>

#include "serve/event_json.h"
#include "tessera/abi/draft/arriving.h"
#include "tessera/calls.h"
#include "tessera/error.h"

namespace tessera::serve {
namespace {

constexpr int64_t kRowsAtOnce = 4096;
constexpr auto kPause = std::chrono::seconds(5);  // after an error of the source

// The rows of `values` from `first` on, of columns with texts that are no lists.
std::vector<tsr_reader_values> rows_from(std::span<const tsr_reader_values> values, int64_t first) {
  std::vector<tsr_reader_values> out(values.begin(), values.end());
  for (tsr_reader_values& v : out) {
    v.texts += first;
    if (v.present != nullptr) v.present += first;
  }
  return out;
}

}  // namespace

KeptHistories::KeptHistories(const Runtime& runtime, const HistoriesOptions& options, const ModelDescription& model,
                             std::shared_ptr<const ColumnEncoding> columns, Log& log)
    : reader_(columns->reader()), log_(log), maker_(HistoryMaker::of(runtime, reader_)) {
  const std::string& reader = reader_;
  if (maker_ == nullptr)
    fail(Code::kInvalidArgument, "--histories keeps histories as [history] makes them, but the model was trained ",
         reader.empty() ? "without a reader" : str_cat("on \"", reader, "\""), ", which makes none");
  std::vector<std::string> wanted;
  for (const std::string& list : maker_->lists()) {
    const bool taken = std::any_of(model.features.begin(), model.features.end(), [&](const ModelFeature& feature) {
      const ColumnConfig* const column = columns->column(feature.name);
      return column != nullptr && (column->column.empty() ? feature.name : column->column) == list;
    });
    if (taken) wanted.push_back(list);
  }
  if (wanted.empty())
    fail(Code::kInvalidArgument, "--histories has no effect: the model takes no column that [history] makes");
  check_ = std::make_unique<EventCheck>(model, std::move(columns), maker_->event_columns(), wanted);
  maker_->begin(wanted, options.most_mib << 20);
  if (options.path == HistoriesOptions::kNoEvents) return;
  const std::string events = options.reader.empty() ? parse_component_name(reader).inner : options.reader;
  const ComponentPtr asked = runtime.ask(TSR_READER_KIND, events);
  if (asked->extension<tsr_reader_arriving>(TSR_READER_ARRIVING) != nullptr)
    follow(runtime, events, options.path);
  else
    read_files(runtime, events, options.path);
  const Counts now = counts();
  log_.write(Level::kInfo, "histories", {{"path", options.path}, {"events", now.events}, {"users", now.users}});
}

KeptHistories::~KeptHistories() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

HistoryMaker::Added KeptHistories::add(int64_t rows, std::span<const tsr_reader_values> values) {
  std::string why;
  int64_t good = 0;
  while (good < rows && (why = check_->why_not(values, good)).empty()) ++good;
  HistoryMaker::Added out = maker_->add(good, values);
  if (out.why.empty()) out.why = std::move(why);
  events_ += out.rows;
  if (!out.why.empty()) ++refused_;
  return out;
}

HistoryMaker::Taken KeptHistories::take(std::string_view user) {
  HistoryMaker::Taken out = maker_->take(user);
  if (out.events == 0) ++unknown_users_;
  return out;
}

KeptHistories::Counts KeptHistories::counts() {
  const tsr_history_counts kept = maker_->counts();
  return {kept.users, kept.bytes, kept.forgotten, events_, refused_, unknown_users_};
}

void KeptHistories::read_files(const Runtime& runtime, const std::string& reader, const std::string& path) {
  data::ReaderComponent files(runtime, reader, path, int64_t{1} << 20);
  std::vector<data::WantedColumn> wants;
  for (const std::string& name : maker_->event_columns()) wants.push_back({name, TSR_READER_TEXT});
  files.select(wants);
  for (size_t b = 0; b < files.blocks().size(); ++b) {
    const data::FileBlock& block = files.blocks()[b];
    HistoryMaker::Added added;
    files.read(static_cast<int64_t>(b),
               [&](std::span<const tsr_reader_values> values) { added = add(block.rows, values); });
    if (!added.why.empty())
      fail(Code::kInvalidArgument, "--histories: ", files.file(block.file), ", row ", block.first_row + added.rows + 1,
           ", ", added.why);
  }
}

void KeptHistories::follow(const Runtime& runtime, const std::string& reader, const std::string& path) {
  source_ = runtime.create(TSR_READER_KIND, reader);
  const tsr_reader_source source{sizeof(source), 0, path.c_str(), int64_t{1} << 20};
  plugin::call({*source_, "follow", path}, source_->extension<tsr_reader_arriving>(TSR_READER_ARRIVING)->follow,
               source_->self(), &source, static_cast<const char*>(nullptr));
  std::vector<tsr_reader_want> wants;
  for (const std::string& name : maker_->event_columns())
    wants.push_back({sizeof(tsr_reader_want), 0, name.c_str(), TSR_READER_TEXT, ' ', ':', {0, 0}});
  plugin::call({*source_, "select"}, source_->api<tsr_reader>().select, source_->self(), std::ssize(wants),
               uint32_t{sizeof(tsr_reader_want)}, wants.data());
  catch_up();
  if (!ended_) thread_ = std::thread([this] { work(); });
}

// Adds the events that are there. If they come more slowly than the server would read old ones, it has these.
void KeptHistories::catch_up() {
  constexpr int64_t kRowsOfOldEvents = 1000;  // in a second
  auto second = std::chrono::steady_clock::now();
  int64_t rows = 0;
  for (int64_t more = 0; (more = take_arrived(1)) > 0;) {
    rows += more;
    const auto now = std::chrono::steady_clock::now();
    if (now < second + std::chrono::seconds(1)) continue;
    if (rows < kRowsOfOldEvents) return;
    second = now;
    rows = 0;
  }
}

// Adds the next events that have arrived, and returns their number. An event that is none is left out and counted.
int64_t KeptHistories::take_arrived(double wait_s) {
  std::vector<tsr_reader_values> values(
      maker_->event_columns().size(),
      tsr_reader_values{sizeof(tsr_reader_values), 0, nullptr, nullptr, nullptr, nullptr, nullptr});
  tsr_reader_arrived got{sizeof(got), 0, 0, 0, "", nullptr};
  if (ended_) return 0;
  plugin::call({*source_, "next"}, source_->extension<tsr_reader_arriving>(TSR_READER_ARRIVING)->next, source_->self(),
               kRowsAtOnce, wait_s, uint32_t{sizeof(tsr_reader_values)}, values.data(), &got);
  for (int64_t row = 0; row < got.rows;) {
    const HistoryMaker::Added added = add(got.rows - row, rows_from(values, row));
    row += added.rows;
    if (added.why.empty()) break;
    log_.write_some(Level::kWarning, "event_refused",
                    {{"where", std::string_view(got.where)}, {"row", got.first_row + row + 1}, {"error", added.why}});
    ++row;
  }
  ended_ = (got.flags & TSR_ARRIVED_LAST) != 0;
  return got.rows;
}

void KeptHistories::work() {
  std::string said;
  std::unique_lock lock(mutex_);
  while (!stopping_ && !ended_) {
    lock.unlock();
    bool failed = false;
    try {
      take_arrived(1);
      said.clear();
    } catch (const std::exception& e) {  // the next call may succeed
      failed = true;
      if (said != e.what()) log_.write(Level::kError, "events_not_read", {{"error", std::string_view(e.what())}});
      said = e.what();
    }
    lock.lock();
    if (failed) wake_.wait_for(lock, kPause, [this] { return stopping_; });
  }
}

int64_t KeptHistories::add_json(std::string_view body) {
  const JsonEvents events = parse_events(body, maker_->event_columns());
  HistoryMaker::Added added;
  if (events.good > 0) added = add(events.good, events.rows.values());
  if (added.why.empty() && events.why.empty()) return added.rows;
  if (added.why.empty()) ++refused_;
  fail(Code::kInvalidArgument, added.why.empty() ? events.why : str_cat("event ", added.rows + 1, ", ", added.why),
       " (events before it were added: ", added.rows, ")");
}

RowHistories Histories::of(const std::string& reader) {
  if (kept_ != nullptr && kept_->reader() != reader)
    fail(Code::kInvalidArgument, "the server keeps histories of the reader \"", kept_->reader(),
         "\", but this version of the model was trained on \"", reader, "\": start the server again");
  const std::lock_guard lock(mutex_);
  auto found = makers_.find(reader);
  if (found == makers_.end()) found = makers_.emplace(reader, HistoryMaker::of(runtime_, reader)).first;
  return {found->second.get(), kept_.get()};
}

}  // namespace tessera::serve
