#include "growing.h"

#include <fnmatch.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "event_time.h"

namespace tessera_readers {
namespace {

namespace fs = std::filesystem;
using tessera::sdk::Arrived;
using tessera::sdk::fail;
using tessera::sdk::ReaderWant;

constexpr auto kLook = std::chrono::milliseconds(20);
// Resolution of a directory's modification time: a file that came soon after a look may not have changed it.
constexpr auto kCoarse = std::chrono::seconds(1);

// When a file got its name or was changed; 0 if it does not exist.
double came(const std::string& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0) return 0;
  return static_cast<double>(about.st_ctim.tv_sec) + 1e-9 * static_cast<double>(about.st_ctim.tv_nsec);
}

// A block's values from a row on.
tsr_reader_values from_row(tsr_reader_values v, int32_t type, int64_t row) {
  if (v.lists != nullptr) {
    v.lists += row;
    return v;
  }
  if (type == TSR_READER_TEXT)
    v.texts += row;
  else if (type == TSR_READER_FLOAT32)
    v.values = static_cast<const float*>(v.values) + row;
  else if (type == TSR_READER_FLOAT64)
    v.values = static_cast<const double*>(v.values) + row;
  else
    v.values = static_cast<const int64_t*>(v.values) + row;
  if (v.weights != nullptr) v.weights += row;
  if (v.present != nullptr) v.present += row;
  return v;
}

double time_of(const tsr_reader_values& v, int32_t type, int64_t row) {
  if (v.lists != nullptr || (v.present != nullptr && v.present[row] == 0)) return event_time("");
  if (type == TSR_READER_FLOAT32) return event_time(double{static_cast<const float*>(v.values)[row]});
  if (type == TSR_READER_FLOAT64) return event_time(static_cast<const double*>(v.values)[row]);
  if (type == TSR_READER_INT64) return event_time(static_cast<double>(static_cast<const int64_t*>(v.values)[row]));
  const auto size = static_cast<size_t>(v.texts[row + 1] - v.texts[row]);
  return event_time(std::string_view(static_cast<const char*>(v.values) + v.texts[row], size));
}

const tsr_instance& inner_of(const tessera::sdk::Setup& setup) {
  if (setup.inner == nullptr)
    fail(TSR_INVALID_ARGUMENT, "growing needs another reader for its files: name it, as in growing(csv)");
  return *setup.inner;
}

}  // namespace

bool GrowingDirectory::is_file(const fs::directory_entry& entry) const {
  const std::string name = entry.path().filename().native();
  if (name.starts_with('.') || name.starts_with('_') || name.ends_with(".tmp") || name.ends_with(".part") ||
      name == end_ || ::fnmatch(pattern_.c_str(), name.c_str(), 0) != 0)
    return false;
  std::error_code ignored;
  return entry.is_regular_file(ignored);
}

void GrowingDirectory::begin(const std::string& path, const std::string& taken, double since) {
  path_ = path;
  taken_ = taken;
  waiting_.clear();
  known_.clear();
  changed_ = {};
  looked_ = {};
  look();
  // The last file may have changed while it was being read.
  std::erase_if(
      late_, [&](const std::string& name) { return since == 0 || name == taken || came(path_ + "/" + name) <= since; });
}

double GrowingDirectory::looked() const {
  return std::chrono::duration<double>(fs::file_time_type::clock::to_sys(looked_).time_since_epoch()).count();
}

void GrowingDirectory::look() {
  std::error_code error;
  const fs::file_time_type changed = fs::last_write_time(path_, error);
  if (!error && changed == changed_ && looked_ - changed_ > kCoarse) return;
  changed_ = changed;
  looked_ = fs::file_time_type::clock::now();
  std::set<std::string> there;
  for (fs::directory_iterator it(path_, error), end; !error && it != end; it.increment(error)) {
    if (is_file(*it)) there.insert(it->path().filename().native());
  }
  if (error) fail(TSR_UNAVAILABLE, "cannot list ", path_, ": ", error.message());
  const auto behind = there.upper_bound(taken_);
  for (auto name = there.begin(); name != behind; ++name) {
    if (!known_.contains(*name)) late_.push_back(*name);
  }
  waiting_ = {behind, there.end()};
  known_ = std::move(there);
}

bool GrowingDirectory::ended() const {
  std::error_code ignored;
  return !end_.empty() && fs::exists(path_ + "/" + end_, ignored);
}

std::string GrowingDirectory::next() {
  look();
  if (waiting_.empty()) return "";
  taken_ = *waiting_.begin();
  waiting_.erase(waiting_.begin());
  return taken_;
}

Growing::Growing(const tessera::sdk::Setup& setup)
    : host_(setup.host),
      inner_(inner_of(setup)),
      time_(setup.options.string("time", "")),
      idle_s_(setup.options.number("idle_s", 0)),
      directory_(setup.options.string("pattern", "*"), setup.options.string("end", "")) {
  if (!(idle_s_ >= 0)) fail(TSR_INVALID_ARGUMENT, "growing: idle_s counts seconds: 0 or more");
}

void Growing::follow(std::string_view path, std::string_view position) {
  path_ = path;
  std::error_code ignored;
  if (!fs::is_directory(path_, ignored)) fail(TSR_NOT_FOUND, "there is no directory ", path_, " for files to come to");
  std::string name;
  int64_t rows = 0;
  double looked = 0;
  bool whole = true;
  if (!position.empty()) {
    const auto j = nlohmann::json::parse(position, nullptr, false);
    if (!j.is_object() || !j.contains("file") || !j["file"].is_string() || !j.contains("rows") ||
        !j["rows"].is_number_integer() || !j.contains("whole") || !j["whole"].is_boolean())
      fail(TSR_DATA_LOSS, "\"", position, "\" is not a position of the reader growing");
    name = j["file"];
    rows = j["rows"];
    whole = j["whole"];
    if (j.contains("looked") && j["looked"].is_number()) looked = j["looked"];  // earlier positions lack it
  }
  columns_.clear();
  selected_ = false;
  name_ = name;
  rows_ = row_ = rows;
  blocks_.clear();
  directory_.begin(path_, name, looked);
  tell_late();
  last_row_ = std::chrono::steady_clock::now();
  if (!whole) {
    if (!fs::exists(path_of(name), ignored))
      fail(TSR_NOT_FOUND, path_of(name), " is gone, but its rows from ", rows + 1, " on were not read yet");
    open_file(name, rows);
  } else if (const std::string first = directory_.next(); !first.empty()) {
    open_file(first, 0);
  }
}

void Growing::open_file(const std::string& name, int64_t rows_taken) {
  name_ = name;
  where_ = path_of(name);
  inner_.open(where_);
  if (columns_.empty()) columns_ = inner_.columns();
  if (selected_) inner_.select(wants_);
  blocks_ = inner_.blocks();
  rows_ = 0;
  for (const int64_t rows : blocks_) rows_ += rows;
  if (rows_taken > rows_)
    fail(TSR_DATA_LOSS, where_, " has ", rows_, " rows, of which ", rows_taken, " had been read: it is another file");
  row_ = rows_taken;
  in_block_ = rows_taken;
  for (block_ = 0; block_ < blocks_.size() && in_block_ >= blocks_[block_]; ++block_) in_block_ -= blocks_[block_];
  read_ = false;
}

void Growing::select(std::span<const ReaderWant> wants) {
  wants_.assign(wants.begin(), wants.end());
  given_ = wants_.size();
  if (!time_.empty() && std::none_of(wants.begin(), wants.end(), [&](const ReaderWant& w) { return w.name == time_; }))
    wants_.push_back({time_});
  selected_ = true;
  if (!blocks_.empty()) inner_.select(wants_);
}

// Advances to the next available row; returns false if there is none yet.
bool Growing::advance() {
  while (row_ >= rows_) {
    const std::string name = directory_.next();
    tell_late();
    if (name.empty()) return false;
    open_file(name, 0);
  }
  for (; in_block_ >= blocks_[block_]; in_block_ = 0, read_ = false) ++block_;
  if (!read_) values_ = inner_.read(static_cast<int64_t>(block_));
  read_ = true;
  return true;
}

void Growing::tell_late() {
  for (const std::string& name : directory_.late())
    host_.log(TSR_LOG_WARNING, path_of(name) + " came after files whose names are greater, and is skipped");
}

Arrived Growing::next(int64_t most, double wait_s) {
  if (!selected_) fail(TSR_FAILED_PRECONDITION, "growing: no columns were selected");
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(wait_s));
  for (;;) {
    const bool ended = directory_.ended();
    if (advance()) return taken(most);
    const auto now = Clock::now();
    const bool idle = idle_s_ > 0 && now - last_row_ > std::chrono::duration<double>(idle_s_);
    if (ended || idle) return {.last = true, .where = where_.c_str()};
    if (now >= end) return {.where = where_.c_str()};
    std::this_thread::sleep_for(std::min<Clock::duration>(kLook, end - now));
  }
}

Arrived Growing::taken(int64_t most) {
  Arrived out{.rows = std::min(most, blocks_[block_] - in_block_), .first_row = row_, .where = where_.c_str()};
  handed_.clear();
  for (size_t k = 0; k < given_; ++k) handed_.push_back(from_row(values_[k], wants_[k].type, in_block_));
  out.values = handed_;
  if (!time_.empty()) {
    const auto k = static_cast<size_t>(
        std::find_if(wants_.begin(), wants_.end(), [&](const ReaderWant& w) { return w.name == time_; }) -
        wants_.begin());
    times_.clear();
    for (int64_t i = 0; i < out.rows; ++i) times_.push_back(time_of(values_[k], wants_[k].type, in_block_ + i));
    out.times = times_.data();
  }
  in_block_ += out.rows;
  row_ += out.rows;
  last_row_ = std::chrono::steady_clock::now();
  return out;
}

std::string Growing::position() const {
  return nlohmann::json{{"file", name_}, {"rows", row_}, {"whole", row_ >= rows_}, {"looked", directory_.looked()}}
      .dump();
}

}  // namespace tessera_readers
