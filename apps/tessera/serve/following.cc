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
    log_.write(Level::kError, "publication_not_taken", {{"model", holder_.name()}, {"error", e.what()}});
  }
  for (const std::string& why : follower_->refusals()) {
    log_.write(Level::kError, "publication_refused",
               {{"model", holder_.name()}, {"error", why}, {"served", follower_->status().version}});
  }
  // A reload may have been faster, and what is unloaded stays so.
  const FollowStatus now = follower_->status();
  if (holder_.replace(follower_->current()))
    log_.write(Level::kInfo, "publication_served",
               {{"model", holder_.name()}, {"number", std::to_string(now.number)}, {"version", now.version}});
  return changed;
}

}  // namespace tessera::serve
