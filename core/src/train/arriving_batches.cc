#include "train/arriving_batches.h"

#include <algorithm>
#include <cstring>

#include "distributed/stopwatch.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kRound = 0.1;    // seconds between checks whether a rank wants to end
constexpr double kLinger = 0.25;  // seconds that a row waits for others of its batch

double seconds_since(Clock::time_point when) { return std::chrono::duration<double>(Clock::now() - when).count(); }

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

ArrivingBatches::ArrivingBatches(std::unique_ptr<data::ArrivingRows> rows, const ProcessGroup& group, Options options)
    : rows_(std::move(rows)), group_(group), options_(std::move(options)), gathered_(rows_->form()) {
  if (group_.rank() == 0) rows_->follow(options_.position);
}

bool ArrivingBatches::next(Batch& batch) {
  Stopwatch watch;
  for (;;) {
    const Round r = round();
    if (r.bytes > 0) {
      Tensor bytes = Tensor::empty({r.bytes}, DType::kUInt8);
      char* const text = reinterpret_cast<char*>(bytes.data<uint8_t>());
      if (group_.rank() == 0) std::memcpy(text, message_.data(), message_.size());
      if (group_.world_size() > 1) group_.broadcast(bytes, 0, "rows that arrived").wait();
      take({text, static_cast<size_t>(r.bytes)}, batch);
      watch.lap(waited_s_, "wait");
      return true;
    }
    if (r.stop != 0 || r.last != 0) {
      stopped_ = r.stop != 0;
      watch.lap(waited_s_, "wait");
      return false;
    }
    if (options_.waiting) options_.waiting();
  }
}

bool ArrivingBatches::ready() const {
  const int64_t rows = gathered_.size();
  return rows > 0 && (rows == options_.batch || last_ || seconds_since(first_) >= kLinger);
}

void ArrivingBatches::gather() {
  const Clock::time_point begin = Clock::now();
  while (!last_ && !ready() && seconds_since(begin) < kRound) {
    const int64_t before = gathered_.size();
    const double left = before > 0 ? std::max(0.0, kLinger - seconds_since(first_)) : kRound;
    last_ = rows_->take(options_.batch - before, std::min(left, kRound), gathered_, times_).last;
    if (before == 0 && gathered_.size() > 0) first_ = Clock::now();
  }
}

ArrivingBatches::Round ArrivingBatches::round() {
  int64_t bytes = 0;
  if (group_.rank() == 0) {
    gather();
    if (ready()) bytes = write_message();
  }
  const int64_t stop = bytes == 0 && options_.stop && options_.stop() ? 1 : 0;
  const Tensor all = Tensor::from(std::vector<int64_t>{stop, last_ && bytes == 0 ? 1 : 0, bytes});
  if (group_.world_size() > 1) group_.all_reduce(all, ReduceOp::kMax, "rows that arrive").wait();
  const auto said = all.span<int64_t>();
  return {said[0], said[1], said[2]};
}

// Writes the position after the batch, a NUL and its samples, and begins the next batch.
int64_t ArrivingBatches::write_message() {
  event_times_.add(times_, seconds_since_1970());
  times_.clear();
  message_ = rows_->position();
  message_ += '\0';
  if (group_.world_size() > 1) {
    message_ += data::pack(gathered_);
    gathered_.clear();
  }
  return std::ssize(message_);
}

void ArrivingBatches::take(std::string_view message, Batch& batch) {
  const size_t end = message.find('\0');
  options_.position = message.substr(0, end);
  data::Examples samples = rows_->form();
  if (group_.world_size() > 1)
    data::unpack(message.substr(end + 1), samples);
  else
    std::swap(samples, gathered_);
  const int64_t count = samples.size();
  samples_ += count;
  BatchReader(Samples(std::make_shared<const data::Examples>(std::move(samples))),
              {.batch = count, .rank = group_.rank(), .world_size = group_.world_size()})
      .next(batch);
}

}  // namespace tessera
