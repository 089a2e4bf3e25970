#include "serve/following.h"

#include <exception>
#include <string>
#include <utility>

namespace tessera::serve {

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
  if (!follower.current()->usable()) return follower.reopen();
  follower.update();
  return follower.current();
}

void Following::work() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, pause_, [this] { return stopping_; })) {
    lock.unlock();
    while (look()) {
    }
    lock.lock();
  }
}

bool Following::look() {
  bool changed = false;
  try {
    // Where a rank is lost the next group begins at a base, which is for ModelHolder to ask for.
    if (follower_->current()->usable()) changed = follower_->update();
  } catch (const std::exception& e) {  // the next look may do better
    log_.write(Level::kError, "publication_not_taken", {{"error", e.what()}});
  }
  for (const std::string& why : follower_->refusals()) {
    log_.write(Level::kError, "publication_refused", {{"error", why}, {"served", follower_->status().version}});
  }
  // A reload may have been faster.
  if (std::shared_ptr<Predictor> newest = follower_->current(); newest != holder_.current()) {
    const FollowStatus now = follower_->status();
    holder_.replace(std::move(newest));
    log_.write(Level::kInfo, "publication_served", {{"number", std::to_string(now.number)}, {"version", now.version}});
  }
  return changed;
}

}  // namespace tessera::serve
