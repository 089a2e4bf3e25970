// A model that is served, and its successor: loaded beside it, then swapped in. Requests keep the model they were
// checked against alive, so none is dropped.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "serve/log.h"
#include "serve/metrics.h"
#include "tessera/predictor.h"

namespace tessera::serve {

struct Reloaded {
  bool done = false;
  std::string error;              // a sentence, unless done
  std::string previous, version;  // of the models
};

class ModelHolder {
 public:
  using Open = std::function<std::shared_ptr<Predictor>()>;  // throws where there is no model

  // Loads the first model: throws what `open` throws. `open` is called by one thread at a time, the later times by a
  // thread of the holder's. `name`: what clients call it; empty: as the first one was packed.
  ModelHolder(const std::string& name, Open open, Metrics& metrics, Log& log);
  // Waits for a load under way.
  ~ModelHolder();

  const std::string& name() const { return name_; }

  // [any-thread] nullptr while a lost model is being loaded again, and where it is unloaded.
  std::shared_ptr<Predictor> current() const;

  // [any-thread] Loads the model anew, beside the one that is served; `done` is called by the holder's thread. What is
  // served stays when that fails. A request that comes while one waits shares its load.
  void reload(std::function<void(const Reloaded&)> done = {});

  // [any-thread] `model` is served from now on: a later version of it, which somebody else has opened. False: it is
  // served already, or none is.
  bool replace(std::shared_ptr<Predictor> model);

  // [any-thread] The model is served no longer, until a reload.
  void unload();
  bool unloaded() const;

  // [any-thread] `model` cannot answer any more (a rank of it is lost): it is not served any longer, and is loaded
  // again, as often as it takes, unless another one has taken its place.
  // A model that says so itself (usable()) is found within a second.
  void lost(const std::shared_ptr<Predictor>& model);

 private:
  void work();
  Reloaded load();

  const Open open_;
  Metrics& metrics_;
  Log& log_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::shared_ptr<Predictor> current_;
  const std::string name_;
  std::vector<std::function<void(const Reloaded&)>> asked_;
  bool load_ = false, unloaded_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace tessera::serve
