// The models that a server has, by name and version, and their coming and going.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "serve/bad_ids.h"
#include "serve/model_holder.h"
#include "serve/request_handler.h"
#include "serve/unknown_id_counts.h"
#include "tessera/online.h"

namespace tessera::data {
class Columns;
}

namespace tessera::serve {

struct ModelSource {
  std::string name;  // what clients call it; empty: as it was packed
  ModelHolder::Open open;
  std::shared_ptr<const ModelFollower> followed = nullptr;  // whose versions `open` gives
};

// One model under its name. Its version changes with every load of other contents. All but the constructor
// [any-thread].
class Served {
 public:
  // Loads it: throws what `open` throws.
  Served(const ModelSource& source, Metrics& metrics, Log& log);

  const std::string& name() const { return holder_.name(); }
  ModelHolder& holder() { return holder_; }
  const ModelHolder& holder() const { return holder_; }
  BadIds& bad_ids() { return bad_ids_; }
  UnknownIdCounts& unknown_ids() { return unknown_ids_; }
  const ModelFollower* followed() const { return followed_.get(); }  // nullptr: it stays as it was packed

  // How the model's data were encoded; null: it does not say. Read from its description once.
  std::shared_ptr<const data::Columns> columns_of(const std::shared_ptr<Predictor>& model);

 private:
  ModelHolder holder_;
  const std::shared_ptr<const ModelFollower> followed_;
  BadIds bad_ids_;
  UnknownIdCounts unknown_ids_;
  std::mutex columns_mutex_;
  std::weak_ptr<Predictor> columns_model_;  // whose columns_ are
  std::shared_ptr<const data::Columns> columns_;
  std::string columns_text_;
};

// Which model a request is for; or, without one, what to tell the client.
struct Found {
  Served* served = nullptr;
  std::shared_ptr<Predictor> model;
  HttpResponse refusal;
};

// All but the constructor [any-thread].
class ModelRepository {
 public:
  // Loads all; sources of one name are its versions. kInvalidArgument: two of a name have the same version.
  ModelRepository(const std::vector<ModelSource>& sources, Metrics& metrics, Log& log);

  // Without a version: of those with this name the one that was given last, of those that are loaded.
  Found find(const std::string& name, const std::string& version) const;
  std::vector<std::string> versions(const std::string& name) const;  // that are loaded
  // 200 where some model is loaded and none is lost.
  HttpResponse ready() const;
  // What the repository extension of the Open Inference Protocol calls its index: name, version, state and reason of
  // each model. `ready`: only those that are loaded.
  std::string index(bool ready) const;

  // Loads those with this name, or with "" all, anew; `respond` is called once all are done.
  void load(const std::string& name, const std::function<void(HttpResponse)>& respond);
  // Those with this name answer no more, but for requests that they have, until they are loaded again.
  HttpResponse unload(const std::string& name);

  const std::vector<std::unique_ptr<Served>>& all() const { return all_; }

 private:
  std::vector<Served*> named(const std::string& name) const;
  HttpResponse unknown(const std::string& name) const;

  std::vector<std::unique_ptr<Served>> all_;
};

}  // namespace tessera::serve
