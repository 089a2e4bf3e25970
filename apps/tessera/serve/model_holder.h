// A served model and its successor, which is loaded while the first one still serves and then replaces it. Requests
// keep the model they were checked against alive, so none is dropped.
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
  std::string error;              // a sentence, if not done
  std::string previous, version;  // versions of the models
};

class ModelHolder {
 public:
  using Open = std::function<std::shared_ptr<Predictor>()>;  // throws if there is no model

  // Loads the first model and throws what `open` throws. `open` is called by one thread at a time, after the first time
  // by the holder's own thread. `name` is the name for clients; empty: the name in the first packed model.
  ModelHolder(const std::string& name, Open open, Metrics& metrics, Log& log);
  // Waits for a load that is under way.
  ~ModelHolder();

  const std::string& name() const { return name_; }

  // [any-thread] nullptr while a lost model is being reloaded, and while the model is unloaded.
  std::shared_ptr<Predictor> current() const;

  // [any-thread] Loads the model anew while the current one still serves; the holder's thread calls `done`. If loading
  // fails, the current model stays. A request made while another one waits shares its load.
  void reload(std::function<void(const Reloaded&)> done = {});

  // [any-thread] Serves `model` from now on, a later version that somebody else has opened. Returns false if it is
  // already served, or if no model is served.
  bool replace(std::shared_ptr<Predictor> model);

  // [any-thread] Stops serving the model until a reload.
  void unload();
  bool unloaded() const;

  // [any-thread] Call this if `model` cannot answer any more, because one of its ranks is lost. It is no longer served,
  // and is reloaded, with as many attempts as it takes, unless another model has replaced it. A model that reports the
  // loss itself (usable()) is noticed within a second.
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
