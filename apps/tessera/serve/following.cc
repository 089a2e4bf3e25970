#include "serve/following.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace tessera::serve {
namespace {

// limit of the pause while looking for publications fails
constexpr auto kLongestPause = std::chrono::milliseconds(10000);

}  // namespace

Following::Following(std::shared_ptr<ModelFollower> follower, ModelHolder& holder, Log& log,
                     std::chrono::milliseconds pause)
    : follower_(std::move(follower)), holder_(holder), log_(log), pause_(pause), thread_([this] { work(); }) {}

Following::~Following() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::shared_ptr<Predictor> Following::open(ModelFollower& follower) {
  return follower.current()->usable() ? follower.reload() : follower.reopen();
}

void Following::work() {
  std::unique_lock lock(mutex_);
  std::chrono::milliseconds pause = pause_;
  while (!wake_.wait_for(lock, pause, [this] { return stopping_; })) {
    lock.unlock();
    failed_ = false;
    while (look()) {
    }
    pause = failed_ ? std::min(2 * pause, kLongestPause) : pause_;
    lock.lock();
  }
}

// Logs an error once, and again each minute as long as it lasts.
void Following::say(const std::string& error) {
  const auto now = std::chrono::steady_clock::now();
  if (error == said_ && now < said_at_ + std::chrono::minutes(1)) return;
  said_ = error;
  said_at_ = now;
  log_.write(Level::kError, "publication_not_taken", {{"model", holder_.name()}, {"error", error}});
}

bool Following::look() {
  bool changed = false;
  try {
    // If a rank is lost, the next group begins at a base; ModelHolder asks for that one.
    if (follower_->current()->usable()) changed = follower_->update();
  } catch (const std::exception& e) {  // the next look may succeed
    failed_ = true;
    say(e.what());
  }
  for (const std::string& why : follower_->refusals()) {
    log_.write(Level::kError, "publication_refused",
               {{"model", holder_.name()}, {"error", why}, {"served", follower_->status().version}});
  }
  // A reload may have been faster, and an unloaded model stays unloaded.
  const FollowStatus now = follower_->status();
  if (holder_.replace(follower_->current()))
    log_.write(Level::kInfo, "publication_served",
               {{"model", holder_.name()}, {"number", std::to_string(now.number)}, {"version", now.version}});
  if (now.number < number_)
    log_.write(
        Level::kWarning, "publications_begin_anew",
        {{"model", holder_.name()}, {"number", std::to_string(now.number)}, {"before", std::to_string(number_)}});
  number_ = now.number;
  return changed;
}

}  // namespace tessera::serve
