#include "watch.h"

#include <algorithm>

namespace tessera::nccl {
namespace {

constexpr std::chrono::microseconds kPause{200};
// How long the others may take to say that they are there, once an operation is late.
constexpr double kBlame_s = 0.5;

double seconds_until(Clock::time_point deadline) {
  return std::max(0.001, std::chrono::duration<double>(deadline - Clock::now()).count());
}

int64_t hash(const std::string& text) {  // FNV-1a
  uint64_t h = 0xcbf29ce484222325u;
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3u;
  return static_cast<int64_t>(h);
}

std::string quoted(const Description& d) { return d.label.empty() ? d.op : d.op + " \"" + d.label + "\""; }

}  // namespace

Watch::Watch(std::unique_ptr<Side> side, Communicator& communicator, std::string name, int device)
    : side_(std::move(side)), communicator_(communicator), name_(std::move(name)), device_(device), thread_([this] {
        run();
      }) {}

Watch::~Watch() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (const auto* events : {&events_, &free_events_}) {
    for (gpu::Event event : *events) gpu::event_destroy(event);
  }
}

gpu::Event Watch::take_event() {
  const std::lock_guard lock(mutex_);
  if (free_events_.empty()) return gpu::event_create();
  const gpu::Event event = free_events_.back();
  free_events_.pop_back();
  return event;
}

uint64_t Watch::started(Description what, double timeout_s) {
  const std::lock_guard lock(mutex_);
  operations_.push_back({std::move(what), timeout_s, after(timeout_s), ++started_});
  changed_.notify_all();
  return started_;
}

void Watch::enqueued(uint64_t number, gpu::Event event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(event);
  enqueued_ = number;
  changed_.notify_all();
}

void Watch::wait(uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= number || failure_; });
  if (done_ < number) throw *failure_;
}

void Watch::check() {
  const std::lock_guard lock(mutex_);
  if (failure_) throw *failure_;
}

void Watch::fail(tsr_code code, const std::string& text, bool tell) {
  const sdk::Failure failure(code, text);
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = std::make_unique<sdk::Failure>(failure);
  }
  changed_.notify_all();
  communicator_.stop(failure);
  if (tell) side_->abort(text.c_str());
}

void Watch::abort(const char* reason) {
  fail(TSR_CANCELLED, name_ + ": aborted by this rank: " + reason, false);
  side_->abort(reason);
}

void Watch::run() {
  const gpu::DeviceScope scope(device_);
  while (true) {
    Operation operation;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closing_ || !operations_.empty(); });
      if (operations_.empty() || failure_) return;
      operation = operations_.front();
    }
    gpu::Event event = nullptr;
    try {
      event = follow(operation);
    } catch (const sdk::Failure& failure) {
      fail(failure.code(), failure.what(), true);
      return;
    }
    const std::lock_guard lock(mutex_);
    operations_.pop_front();
    events_.pop_front();
    free_events_.push_back(event);
    ++done_;
    changed_.notify_all();
  }
}

// Until the operation is done on the device.
gpu::Event Watch::follow(const Operation& operation) {
  try {
    agree(operation);
  } catch (const sdk::Failure& failure) {
    throw sdk::Failure(failure.code(), retold(failure.what(), operation));
  }
  gpu::Event event = nullptr;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return enqueued_ >= operation.number || failure_; });
    if (failure_) throw *failure_;
    event = events_.front();
  }
  while (!gpu::event_done(event)) {
    if (const std::string why = communicator_.broken(); !why.empty())
      sdk::fail(TSR_ABORTED, blame(operation, name_ + ": " + quoted(operation.what) + " failed: " + why));
    if (Clock::now() > operation.deadline) {
      sdk::fail(TSR_DEADLINE_EXCEEDED,
                blame(operation, name_ + ": " + quoted(operation.what) + " did not finish within its deadline"));
    }
    check();
    std::this_thread::sleep_for(kPause);
  }
  return event;
}

// All ranks have started this operation, with arguments that fit.
void Watch::agree(const Operation& operation) const {
  const Description& d = operation.what;
  const auto world = static_cast<size_t>(side_->world_size()), me = static_cast<size_t>(side_->rank());
  std::vector<int64_t> mine{hash(d.op), d.reduce, d.dtype, d.bytes};
  const size_t fixed = mine.size();
  mine.resize(fixed + 2 * world);
  std::copy(d.to.begin(), d.to.end(), mine.begin() + static_cast<std::ptrdiff_t>(fixed));
  std::copy(d.from.begin(), d.from.end(), mine.begin() + static_cast<std::ptrdiff_t>(fixed + world));
  const auto all =
      side_->all_gather(mine, d.label.empty() ? nullptr : d.label.c_str(), seconds_until(operation.deadline));
  for (size_t r = 0; r < world; ++r) {
    const int64_t* theirs = all.data() + r * mine.size();
    const bool same = std::equal(mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(fixed), theirs);
    const bool fits = theirs[fixed + me] == mine[fixed + world + r] && theirs[fixed + world + me] == mine[fixed + r];
    if (same && (d.to.empty() || fits)) continue;
    sdk::fail(TSR_INVALID_ARGUMENT, "ranks disagree: rank ", r, " called ",
              theirs[0] == mine[0] ? "the same operation with other counts, types or reduction" : "another operation",
              " than rank ", me, ", which called ", quoted(d), " of ", d.bytes, " bytes");
  }
}

// The side channel's words about another operation there, as words about this one.
std::string Watch::retold(std::string text, const Operation& operation) const {
  for (const char* other : {"all_gather_v", "all_gather"}) {
    if (const size_t at = text.find(other); at != std::string::npos) {
      text.replace(at, std::string(other).size(), operation.what.op);
      break;
    }
  }
  if (const size_t at = text.rfind("within "); at != std::string::npos) {
    std::ostringstream seconds;
    seconds << "within " << operation.timeout_s << " s";
    text.replace(at, text.find(" s", at) + 2 - at, seconds.str());
  }
  return in_the_name_of(name_, std::move(text));
}

// Who does not answer.
std::string Watch::blame(const Operation& operation, const std::string& otherwise) const {
  try {
    side_->all_gather({0}, "who is there", kBlame_s);
  } catch (const sdk::Failure& failure) {
    return retold(failure.what(), operation);
  }
  return otherwise;
}

}  // namespace tessera::nccl
