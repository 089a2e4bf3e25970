#include "watch.h"

#include <algorithm>

namespace tessera::nccl {
namespace {

constexpr std::chrono::microseconds kWatchPause{200};
// Separates operation, timeout and label in the labels that the side channel gets. Only the label, which comes last,
// may contain this character.
constexpr char kSeparator = '|';
// The time in which the other ranks must answer after an operation is late; those that do not are blamed.
constexpr double kBlame_s = 0.5;

// A label for a call that only asks if the side channel already knows of a failure.
constexpr const char* kProbe = "probe";

double seconds_until(Clock::time_point deadline) {
  return std::max(0.001, std::chrono::duration<double>(deadline - Clock::now()).count());
}

int64_t hash(const std::string& text) {  // FNV-1a
  uint64_t h = 0xcbf29ce484222325u;
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3u;
  return static_cast<int64_t>(h);
}

// Ranks started different operations. Every rank detects this by itself, so no rank has to tell the others.
class Disagreement : public sdk::Failure {
  using Failure::Failure;
};

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
  if (done_ < number) throw sdk::Failure(*failure_);
}

void Watch::ask_why() {
  Description probe;
  probe.op = kProbe;
  wait(started(std::move(probe), kBlame_s));
}

void Watch::check() {
  std::unique_lock lock(mutex_);
  if (!failing_) return;
  changed_.wait(lock, [&] { return failure_ != nullptr; });
  throw sdk::Failure(*failure_);
}

void Watch::status() {
  const std::lock_guard lock(mutex_);
  if (failure_) throw sdk::Failure(*failure_);
}

void Watch::fail(tsr_code code, const std::string& text, const char* tell, int32_t rank) {
  {
    std::unique_lock lock(mutex_);
    if (failing_) return changed_.wait(lock, [&] { return failure_ != nullptr; });
    failing_ = true;
  }
  if (tell) side_->abort(tell);
  auto failure = std::make_unique<sdk::Failure>(code, text, rank);
  // This precedes the report, because a caller that learns of the failure may free its buffers.
  if (!communicator_.stop(*failure)) {
    std::ostringstream more;
    more << text << "; ncclCommAbort did not return within " << communicator_.patience_s()
         << " s, so the device may still write to the buffers: end this process";
    failure = std::make_unique<sdk::Failure>(code, more.str(), rank);
  }
  {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(failure);
  }
  changed_.notify_all();
}

void Watch::abort(const char* reason) {
  fail(TSR_CANCELLED, name_ + ": aborted by this rank: " + reason, reason);
  side_->abort(reason);  // an earlier failure may not have been sent to the other ranks
}

void Watch::run() {
  const gpu::DeviceScope scope(device_);
  while (true) {
    Operation operation;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closing_ || !operations_.empty(); });
      if (operations_.empty() || failing_) return;
      operation = operations_.front();
    }
    gpu::Event event = nullptr;
    try {
      event = follow(operation);
    } catch (const Disagreement& failure) {
      fail(failure.code(), failure.what(), nullptr);
      return;
    } catch (const sdk::Failure& failure) {
      fail(failure);
      return;
    }
    const std::lock_guard lock(mutex_);
    if (failing_) return;  // the abort may have ended it
    operations_.pop_front();
    if (event) {
      events_.pop_front();
      free_events_.push_back(event);
    }
    ++done_;
    changed_.notify_all();
  }
}

// Waits until the operation is done on the device.
gpu::Event Watch::follow(const Operation& operation) {
  try {
    agree(operation);
  } catch (const Disagreement&) {
    throw;
  } catch (const sdk::Failure& failure) {
    if (operation.what.op == kProbe && std::string_view(failure.what()).find(kProbe) != std::string_view::npos)
      return nullptr;
    throw sdk::Failure(failure.code(), retold(failure.what()), failure.rank());
  }
  if (operation.what.op == kProbe) return nullptr;
  gpu::Event event = nullptr;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return enqueued_ >= operation.number || failure_; });
    if (failure_) throw sdk::Failure(*failure_);
    event = events_.front();
  }
  while (!gpu::event_done(event)) {
    if (const std::string why = communicator_.broken(); !why.empty())
      blame(TSR_ABORTED, name_ + ": " + quoted(operation.what) + " failed: " + why);
    if (Clock::now() > operation.deadline) {
      blame(TSR_DEADLINE_EXCEEDED, name_ + ": " + quoted(operation.what) + " did not finish within its deadline");
    }
    check();
    std::this_thread::sleep_for(kWatchPause);
  }
  return event;
}

// Checks that all ranks have started this operation with matching arguments.
void Watch::agree(const Operation& operation) const {
  const Description& d = operation.what;
  const auto world = static_cast<size_t>(side_->world_size()), me = static_cast<size_t>(side_->rank());
  std::vector<int64_t> mine{hash(d.op), d.reduce, d.dtype, d.bytes};
  const size_t fixed = mine.size();
  mine.resize(fixed + 2 * world);
  std::copy(d.to.begin(), d.to.end(), mine.begin() + static_cast<std::ptrdiff_t>(fixed));
  std::copy(d.from.begin(), d.from.end(), mine.begin() + static_cast<std::ptrdiff_t>(fixed + world));
  std::ostringstream label;
  label << d.op << kSeparator << operation.timeout_s << kSeparator << d.label;
  const auto all = side_->all_gather(mine, label.str().c_str(), seconds_until(operation.deadline));
  const auto of = [&](size_t r) { return all.data() + r * mine.size(); };
  const auto disagree = [&](size_t r, size_t other, const char* how) {
    std::ostringstream text;
    text << name_ << ": ranks disagree: rank " << r << " called " << how << " than rank " << other << "; rank " << me
         << " called " << quoted(d);
    throw Disagreement(TSR_INVALID_ARGUMENT, text.str());
  };
  for (size_t r = 0; r < world; ++r) {
    if (of(r)[0] != of(0)[0]) disagree(r, 0, "another operation");
    if (!std::equal(of(0), of(0) + fixed, of(r))) disagree(r, 0, "another size, type or reduction");
    for (size_t s = 0; s < r; ++s) {
      const bool fit = of(r)[fixed + s] == of(s)[fixed + world + r] && of(s)[fixed + r] == of(r)[fixed + world + s];
      if (!fit) disagree(r, s, "other counts");
    }
  }
}

// Rewrites the side channel's message about its exchange of descriptions as one about the operation that they describe.
// The operation may be an earlier one; the label tells which.
std::string Watch::retold(std::string text) const {
  const size_t begin = text.find("all_gather_v \""), label = begin + std::string_view("all_gather_v \"").size();
  const size_t op = text.find(kSeparator, label), end = begin == text.npos ? text.npos : text.find('"', op);
  if (begin == text.npos || op == text.npos || end == text.npos) return in_the_name_of(name_, std::move(text));
  const size_t seconds = text.find(kSeparator, op + 1);
  const std::string name = text.substr(seconds + 1, end - seconds - 1);
  if (const size_t within = text.find("within ", end); within != text.npos)
    text.replace(within, text.find(" s", within) - within, "within " + text.substr(op + 1, seconds - op - 1));
  text.replace(begin, end + 1 - begin, text.substr(label, op - label) + (name.empty() ? "" : " \"" + name + "\""));
  return in_the_name_of(name_, std::move(text));
}

// Fails, and names the ranks that do not answer.
void Watch::blame(tsr_code code, const std::string& otherwise) const {
  try {
    side_->all_gather({0}, "who is there", kBlame_s);  // retold() does not rewrite this label
  } catch (const sdk::Failure& failure) {
    throw sdk::Failure(code, retold(failure.what()), failure.rank());
  }
  throw sdk::Failure(code, otherwise);
}

}  // namespace tessera::nccl
