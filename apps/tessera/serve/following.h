// A thread that looks for what was published, and has the server answer with it.
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
  // `holder` lives longer, and opens its model from the follower.
  Following(std::shared_ptr<ModelFollower> follower, ModelHolder& holder, Log& log,
            std::chrono::milliseconds pause = std::chrono::milliseconds(200));
  ~Following();
  Following(const Following&) = delete;
  Following& operator=(const Following&) = delete;

  // What a ModelHolder opens: the newest version.
  static std::shared_ptr<Predictor> open(ModelFollower& follower);

 private:
  void work();
  bool look();  // something new was taken: there may be more
  void say(const std::string& error);

  const std::shared_ptr<ModelFollower> follower_;
  ModelHolder& holder_;
  Log& log_;
  const std::chrono::milliseconds pause_;
  bool failed_ = false;  // the last look
  std::string said_;     // the last error, and when it was logged
  std::chrono::steady_clock::time_point said_at_;
  int64_t number_ = 0;  // of the publication that was seen last
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tessera::serve
