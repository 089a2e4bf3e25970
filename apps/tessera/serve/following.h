// A thread that looks for what was published, and has the server answer with it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
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

  const std::shared_ptr<ModelFollower> follower_;
  ModelHolder& holder_;
  Log& log_;
  const std::chrono::milliseconds pause_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tessera::serve
