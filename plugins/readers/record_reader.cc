#include "record_reader.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "tessera/sdk/error.h"

namespace tessera_readers {
namespace {

using tessera::sdk::fail;

constexpr size_t kBuffer = size_t{1} << 20;
constexpr size_t kLongestRecord = size_t{16} << 20;

}  // namespace

std::string_view record_of(const char* begin, const char* line) {
  std::string_view out(begin, static_cast<size_t>(line - begin));
  if (out.ends_with('\r')) out.remove_suffix(1);
  return out;
}

RecordReader::RecordReader(const std::string& path, CsvFormat format)
    : file_(path, format.encoding), ends_(format), buffer_(kBuffer) {}

bool RecordReader::next(std::string_view& record, int64_t rows_before) {
  for (;;) {
    const char* at = buffer_.data() + begin_;
    const char* end = buffer_.data() + end_;
    const char* line = ends_.find(at, end);
    if (line == nullptr && !at_end_) {
      fill(rows_before);
      continue;
    }
    if (line == nullptr && at == end) return false;
    record = record_of(at, line != nullptr ? line : end);
    begin_ = line != nullptr ? static_cast<size_t>(line + 1 - buffer_.data()) : end_;
    return true;
  }
}

bool RecordReader::wait(double seconds, int64_t rows_before) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  while (!at_end_ && ends_.find(buffer_.data() + begin_, buffer_.data() + end_) == nullptr) {
    const double left = seconds - std::chrono::duration<double>(Clock::now() - begin).count();
    if (!file_.wait(std::max(left, 0.0))) return false;
    fill(rows_before);
  }
  return true;
}

void RecordReader::fill(int64_t rows_before) {
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  base_ += static_cast<int64_t>(begin_);
  end_ -= begin_;
  begin_ = 0;
  if (end_ == buffer_.size() && end_ >= kLongestRecord) {
    fail(TSR_INVALID_ARGUMENT, file_.path(), ", row ", rows_before + 1, " is longer than ", kLongestRecord,
         " bytes: a quote may not be closed");
  }
  if (!damage_.empty()) fail(TSR_DATA_LOSS, file_.path(), " ", damage_, " after row ", rows_before);
  if (end_ == buffer_.size()) buffer_.resize(2 * buffer_.size());
  try {
    const size_t got = file_.read_some(buffer_.data() + end_, buffer_.size() - end_);
    at_end_ = got == 0;
    end_ += got;
  } catch (const Damaged& e) {  // there may be rows before the damage
    end_ += e.read();
    damage_ = e.what();
  }
  ends_.start_buffer();
}

}  // namespace tessera_readers
