#include "serve/repository.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "serve/infer_json.h"
#include "serve/json_text.h"
#include "serve/names.h"
#include "tessera/data.h"
#include "tessera/error.h"

namespace tessera::serve {
namespace {

using json = nlohmann::ordered_json;

// Adds the model's name to the response, for the log.
Outcome about(const Served& served, Outcome response) {
  response.model = served.name();
  return response;
}

Outcome not_there(const Served& served) {
  if (served.holder().unloaded())
    return about(served, Outcome::failed(503, Failure::kUnavailable,
                                         str_cat("model \"", served.name(), "\" is unloaded: POST ",
                                                 "/v2/repository/models/", served.name(), "/load loads it")));
  return about(served, Outcome::unavailable(Failure::kUnavailable,
                                            "the model, or a rank of it, is lost; it is being loaded again"));
}

// Formats "a" is, or "a" and "b" are, for the names that exist.
std::string there_is(std::vector<std::string> names, const char* quote) {
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return listed(names, quote) + (names.size() == 1 ? " is" : " are");
}

// The loads of several models requested at once; `respond` is called after the last one.
class Loads {
 public:
  Loads(size_t count, std::function<void(Outcome)> respond)
      : results_(count), left_(count), respond_(std::move(respond)) {}

  void done(size_t at, const std::string& name, const Reloaded& result) {
    {
      const std::lock_guard lock(mutex_);
      results_[at] = {name, result};
      if (--left_ > 0) return;
    }
    respond_(response());
  }

 private:
  Outcome response() const {
    json loaded = json::array();
    for (const auto& [name, result] : results_) {
      if (!result.done) {
        const std::string whose = results_.size() > 1 ? str_cat("model \"", name, "\": ") : "";
        return Outcome::failed(500, Failure::kInternal, whose + result.error);
      }
      loaded.push_back({{"name", name}, {"version", result.version}, {"previous", result.previous}});
    }
    return Outcome::json(json_line(loaded.size() == 1 ? loaded[0] : json{{"models", loaded}}));
  }

  std::mutex mutex_;
  std::vector<std::pair<std::string, Reloaded>> results_;
  size_t left_;
  const std::function<void(Outcome)> respond_;
};

}  // namespace

Served::Served(const ModelSource& source, Metrics& metrics, Log& log)
    : holder_(source.name, source.open, metrics, log),
      followed_(source.followed),
      bad_ids_(followed_ != nullptr),
      unknown_ids_(log) {}

std::shared_ptr<const ColumnEncoding> Served::columns_of(const std::shared_ptr<Predictor>& model) {
  const std::string& encoding = model->model().encoding;
  if (encoding.empty()) return nullptr;
  const std::lock_guard lock(columns_mutex_);
  if (columns_model_.lock() == model) return columns_;
  if (!columns_ || columns_text_ != encoding) {  // versions of a followed model have the same encoding
    columns_ = std::make_shared<const ColumnEncoding>(encoding, "the model's encoding of columns");
    columns_text_ = encoding;
  }
  columns_model_ = model;
  return columns_;
}

ModelRepository::ModelRepository(const std::vector<ModelSource>& sources, Metrics& metrics, Log& log) {
  for (const ModelSource& source : sources) {
    auto next = std::make_unique<Served>(source, metrics, log);
    const std::string version = next->holder().current()->model().version;
    if (find(next->name(), version).model)
      fail(Code::kInvalidArgument, "two models have the name \"", next->name(), "\" and the version ", version,
           ": give them different names (NAME=DIR), or serve only one of them");
    all_.push_back(std::move(next));
  }
}

std::vector<Served*> ModelRepository::named(const std::string& name) const {
  std::vector<Served*> out;
  for (const auto& served : all_) {
    if (served->name() == name) out.push_back(served.get());
  }
  return out;
}

Outcome ModelRepository::unknown(const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& served : all_) names.push_back(served->name());
  std::sort(names.begin(), names.end());
  return Outcome::not_found(
      str_cat("model \"", shown(name), "\" is not served here; ", there_is(std::move(names), "\"")));
}

Found ModelRepository::find(const std::string& name, const std::string& version) const {
  const Served* last = nullptr;
  Found out;
  for (const auto& served : all_) {  // runs for every request, so it makes no list of them
    if (served->name() != name) continue;
    last = served.get();
    std::shared_ptr<Predictor> model = served->holder().current();
    if (model && (version.empty() || model->model().version == version)) {
      out.served = served.get();
      out.model = std::move(model);
    }
  }
  if (out.model) return out;
  if (last == nullptr) return {nullptr, nullptr, unknown(name)};
  const std::vector<std::string> loaded = versions(name);
  if (loaded.empty()) return {nullptr, nullptr, not_there(*last)};
  return {nullptr, nullptr,
          about(*last, Outcome::not_found(str_cat("version ", shown(version), " of model ", shown(name),
                                                  " is not served; ", there_is(loaded, ""))))};
}

std::vector<std::string> ModelRepository::versions(const std::string& name) const {
  std::vector<std::string> out;
  for (const Served* served : named(name)) {
    if (const std::shared_ptr<Predictor> model = served->holder().current()) out.push_back(model->model().version);
  }
  return out;
}

Outcome ModelRepository::ready() const {
  bool some = false;
  for (const auto& served : all_) {
    if (served->holder().current()) {
      some = true;
    } else if (!served->holder().unloaded()) {
      return not_there(*served);
    }
  }
  if (!some) return not_there(*all_.front());
  return Outcome::json("{\"ready\":true}");
}

std::string ModelRepository::index(bool ready) const {
  json out = json::array();
  for (const auto& served : all_) {
    const std::shared_ptr<Predictor> model = served->holder().current();
    if (!model && ready) continue;
    out.push_back({{"name", served->name()},
                   {"version", model ? model->model().version : ""},
                   {"state", model ? "READY" : "UNAVAILABLE"},
                   {"reason", model                         ? ""
                              : served->holder().unloaded() ? "unloaded"
                                                            : "lost, and being loaded again"}});
  }
  return json_line(out);
}

void ModelRepository::load(const std::string& name, const std::function<void(Outcome)>& respond) {
  std::vector<Served*> wanted;
  for (const auto& served : all_) {
    if (name.empty() || served->name() == name) wanted.push_back(served.get());
  }
  if (wanted.empty()) return respond(unknown(name));
  const auto loads = std::make_shared<Loads>(
      wanted.size(), [respond, one = name.empty() ? nullptr : wanted.front()](Outcome response) {
        respond(one == nullptr ? std::move(response) : about(*one, std::move(response)));
      });
  for (size_t i = 0; i < wanted.size(); ++i) {
    wanted[i]->holder().reload(
        [loads, i, of = wanted[i]->name()](const Reloaded& result) { loads->done(i, of, result); });
  }
}

Outcome ModelRepository::unload(const std::string& name) {
  const std::vector<Served*> wanted = named(name);
  if (wanted.empty()) return unknown(name);
  for (Served* served : wanted) served->holder().unload();
  return about(*wanted.front(), Outcome::json("{}"));
}

}  // namespace tessera::serve
