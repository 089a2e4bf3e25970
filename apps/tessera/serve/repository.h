// The models that a server has, by name and version; loads and unloads them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "serve/bad_ids.h"
#include "serve/model_holder.h"
#include "serve/outcome.h"
#include "serve/unknown_id_counts.h"
#include "tessera/online.h"

namespace tessera {
class ColumnEncoding;
}

namespace tessera::serve {

struct ModelSource {
  std::string name;  // the name for clients; empty: the name in the packed model
  ModelHolder::Open open;
  std::shared_ptr<const ModelFollower> followed = nullptr;  // the follower whose versions `open` gives
};

// One model under its name. Its version changes with every load of different content. All members except the
// constructor are [any-thread].
class Served {
 public:
  // Loads the model and throws what `open` throws.
  Served(const ModelSource& source, Metrics& metrics, Log& log);

  const std::string& name() const { return holder_.name(); }
  ModelHolder& holder() { return holder_; }
  const ModelHolder& holder() const { return holder_; }
  BadIds& bad_ids() { return bad_ids_; }
  UnknownIdCounts& unknown_ids() { return unknown_ids_; }
  // nullptr if the model does not follow publications
  const ModelFollower* followed() const { return followed_.get(); }

  // The encoding of the model's data; null if its description has none. It is parsed once per description.
  std::shared_ptr<const ColumnEncoding> columns_of(const std::shared_ptr<Predictor>& model);

 private:
  ModelHolder holder_;
  const std::shared_ptr<const ModelFollower> followed_;
  BadIds bad_ids_;
  UnknownIdCounts unknown_ids_;
  std::mutex columns_mutex_;
  std::weak_ptr<Predictor> columns_model_;  // the model that columns_ belong to
  std::shared_ptr<const ColumnEncoding> columns_;
  std::string columns_text_;
};

// The model that a request is for, or the response if there is none.
struct Found {
  Served* served = nullptr;
  std::shared_ptr<Predictor> model;
  Outcome refusal;
};

// All members except the constructor are [any-thread].
class ModelRepository {
 public:
  // Loads all sources; sources with the same name are versions of one model. Throws kInvalidArgument if two of them
  // have the same version.
  ModelRepository(const std::vector<ModelSource>& sources, Metrics& metrics, Log& log);

  // Without a version, finds the last given model of this name among those that are loaded.
  Found find(const std::string& name, const std::string& version) const;
  std::vector<std::string> versions(const std::string& name) const;  // loaded versions
  // 200 if some model is loaded and none is lost.
  Outcome ready() const;
  // The index of the Open Inference Protocol's repository extension: name, version, state and reason of each model.
  // `ready`: only those that are loaded.
  std::string index(bool ready) const;

  // Reloads the models with this name, or all for ""; `respond` is called once all are done.
  void load(const std::string& name, const std::function<void(Outcome)>& respond);
  // Stops the models with this name after the requests they already have, until they are loaded again.
  Outcome unload(const std::string& name);

  const std::vector<std::unique_ptr<Served>>& all() const { return all_; }

 private:
  std::vector<Served*> named(const std::string& name) const;
  Outcome unknown(const std::string& name) const;

  std::vector<std::unique_ptr<Served>> all_;
};

}  // namespace tessera::serve
