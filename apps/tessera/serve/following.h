// A thread that looks for new publications and lets the server answer with them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "serve/log.h"
#include "serve/model_holder.h"
#include "tessera/online.h"

namespace tessera::serve {

class Following {
 public:
  // `holder` outlives this, and opens its model from the follower.
  Following(std::shared_ptr<ModelFollower> follower, ModelHolder& holder, Log& log,
            std::chrono::milliseconds pause = std::chrono::milliseconds(200));
  ~Following();
  Following(const Following&) = delete;
  Following& operator=(const Following&) = delete;

  // Opens the newest version; a ModelHolder calls this.
  static std::shared_ptr<Predictor> open(ModelFollower& follower);

 private:
  void work();
  bool look();  // true if something new was taken, so that there may be more
  void say(const std::string& error);

  const std::shared_ptr<ModelFollower> follower_;
  ModelHolder& holder_;
  Log& log_;
  const std::chrono::milliseconds pause_;
  bool failed_ = false;  // the last look failed
  std::string said_;     // the last error, and the time when it was logged
  std::chrono::steady_clock::time_point said_at_;
  int64_t number_ = 0;  // number of the publication seen last
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tessera::serve
