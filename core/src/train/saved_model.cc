#include "train/saved_model.h"

#include <algorithm>
#include <set>

#include "modules/graph_json.h"
#include "tessera/error.h"
#include "train/job_model.h"

namespace tessera {
namespace {

using json = nlohmann::ordered_json;

bool may_differ(const std::string& key) {
  return key == "weight" || key == "names" || key == "precision" || key.starts_with("drop");
}

std::string shown(const json& value) { return value.is_null() ? "nothing" : value.dump(); }

// Returns `key = "gelu" instead of "relu"` of the first key that differs, or "".
std::string first_difference(const json& was, const json& is) {
  std::set<std::string> keys;
  for (const json* object : {&was, &is}) {
    for (const auto& [key, value] : object->items()) keys.insert(key);
  }
  for (const std::string& key : keys) {
    const json before = was.value(key, json()), now = is.value(key, json());
    if (may_differ(key) || before == now) continue;
    if (before.is_object() && now.is_object()) {
      if (std::string inner = first_difference(before, now); !inner.empty()) return inner;
    } else {
      return str_cat(key, " = ", shown(now), " instead of ", shown(before));
    }
  }
  return "";
}

// Fails if entries of the list `key`, each with a name, are others or in another order. `what` is one of them.
void check_list(const json& was, const json& is, const char* key, const char* what, const std::string& path,
                const char* advice) {
  const json empty = json::array(), before = was.value(key, empty), now = is.value(key, empty);
  for (size_t i = 0; i < std::max(before.size(), now.size()); ++i) {
    const json old_one = i < before.size() ? before[i] : json::object(),
               new_one = i < now.size() ? now[i] : json::object();
    const std::string name = (new_one.empty() ? old_one : new_one).value("name", ""),
                      difference = first_difference(old_one, new_one);
    if (!difference.empty())
      fail(Code::kInvalidArgument, path, " has another model: ", what, " \"", name, "\" has ", difference, "; ",
           advice);
  }
}

}  // namespace

json model_description(const Config& config, const JobData& data, const ModelGraph& graph) {
  json tables = json::array();
  for (const EmbeddingBagConfig& t : embedding_configs(data.tables))
    tables.push_back({{"name", t.name}, {"features", t.feature_names}, {"pooling", to_string(t.pooling)}});
  json model = {
      {"type", config.model.type}, {"bounds_check", data.tables.front().bounds_check}, {"tables", std::move(tables)}};
  if (is_weighted(data.data.columns)) model["is_weighted"] = true;
  if (config.model.type == kGraphType) model["graph"] = to_json(graph);
  return model;
}

void check_same_model(const json& saved, const json& mine, const std::string& path, const char* advice) {
  if (!saved.is_object()) return;
  if (const std::string type = saved.value("type", ""), own = mine.value("type", ""); type != own)
    fail(Code::kInvalidArgument, path, " has another model: model.type = \"", own, "\" instead of \"", type, "\"; ",
         advice);
  check_list(saved, mine, "tables", "the table", path, advice);
  const json none = json::object(), was = saved.value("graph", none), is = mine.value("graph", none);
  check_list(was, is, "layers", "the layer", path, advice);
  check_list(was, is, "heads", "the head", path, advice);
}

}  // namespace tessera
