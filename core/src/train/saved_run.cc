#include "train/saved_run.h"

#include <algorithm>

#include "checkpoint/directory.h"
#include "config/fnv1a.h"
#include "config/json.h"
#include "tessera/checkpoint.h"
#include "tessera/error.h"
#include "tessera/runtime.h"

namespace tessera {
namespace {

using json = nlohmann::ordered_json;

uint64_t hashed(const Tensor& t, uint64_t hash) {
  return t.numel() ? fnv1a({static_cast<const char*>(t.raw()), static_cast<size_t>(t.bytes())}, hash) : hash;
}

// Hashes samples spread evenly over all, in file order. That takes a few milliseconds, however many samples there are.
uint64_t sample_hash(const Dataset& data) {
  constexpr int64_t kBatch = 32, kBatches = 64;
  BatchReader reader(data.train.some(), {.batch = kBatch, .rank = 0, .world_size = 1, .seed = 1, .shuffle = false});
  const int64_t batches = reader.batches(), taken = std::min(kBatches, batches);
  uint64_t hash = fnv1a("");
  Batch batch;
  for (int64_t i = 0; i < taken; ++i) {
    reader.seek(i * batches / taken);
    if (!reader.next(batch)) break;
    for (const Tensor& t : {batch.labels, batch.further_labels, batch.sample_weights, batch.dense,
                            batch.sparse.values(), batch.sparse.lengths()})
      hash = hashed(t, hash);
  }
  return hash;
}

constexpr uint64_t kMostSteps = uint64_t{1} << 53;

json parsed(const std::string& progress) {
  try {
    return config::parse_json(progress, {"progress"});
  } catch (const Error&) {  // written by another program
    return {};
  }
}

std::optional<int64_t> step_of(const json& progress, const char* key = "step") {
  const auto step = progress.is_object() ? progress.find(key) : progress.end();
  if (step == progress.end() || !step->is_number_unsigned() || step->get<uint64_t>() > kMostSteps) return {};
  return step->get<int64_t>();
}

// Returns "growing(csv)" for "growing?time=at(csv)".
std::string without_options(const std::string& reader) {
  const ComponentName name = parse_component_name(reader);
  return name.id + (name.inner.empty() ? "" : "(" + without_options(name.inner) + ")");
}

// For arriving rows the position says where to continue, so the reader's options may differ.
bool same(const std::string& key, const json& saved, const json& mine, bool arrived) {
  if (arrived && key == "reader" && saved.is_string())
    return without_options(saved.get<std::string>()) == without_options(mine.get<std::string>());
  return saved == mine;
}

}  // namespace

// The buffer's size determines the order of streamed samples, and the blocks that `validation` holds out.
json buffer_of(const Config& config, const Dataset& data) {
  const ValidationConfig& v = config.validation;
  if (!config.data.shuffle && (v.fraction == 0 || v.split != "random")) return "any";
  return data.train.streamed ? json(config.data.buffer_mib) : json("larger than the data");
}

json data_fingerprint(const Config& config, const Dataset& data) {
  json columns = json::array();
  for (const DataColumn& c : data.columns) columns.push_back({c.name, c.rows});
  return {{"reader", config.data.reader},  {"seed", config.job.seed},
          {"batch", config.data.batch},    {"shuffle", config.data.shuffle},
          {"test", data.test_split},       {"buffer_mib", buffer_of(config, data)},
          {"samples", data.train_rows()},  {"dense", static_cast<int64_t>(data.dense.size())},
          {"columns", std::move(columns)}, {"hash", data.train ? str_cat(sample_hash(data)) : "of none"}};
}

std::string other_test_part(const std::string& trained_on, const Config& config, const Dataset& data) {
  if (trained_on.empty()) return {};
  const json was = config::parse_json(trained_on, {"the data of training"}), is = data_fingerprint(config, data);
  const bool random = data.test_split.ends_with("random");
  for (const char* key : {"test", "seed", "samples"}) {
    if ((key == std::string_view("seed") && !random) || !was.contains(key) || was[key] == is[key]) continue;
    return str_cat("the model was trained with another test part (", key, " = ", was[key].dump(), ", here ",
                   is[key].dump(), "), so it may know rows that are tested here");
  }
  return {};
}

std::optional<int64_t> saved_step(const std::string& progress) { return step_of(parsed(progress)); }

json saved_model(const std::string& progress) {
  const json j = parsed(progress);
  return j.is_object() ? j.value("model", json()) : json();
}

SavedRun SavedRun::from_progress(const std::string& progress, const std::string& path) {
  const json j = parsed(progress);
  const std::optional<int64_t> step = step_of(j);
  const auto data = j.is_object() ? j.find("data") : j.end();
  if (!step || data == j.end() || !data->is_object()) {
    fail(Code::kDataLoss, path,
         " does not say at which step of which data it was saved: tessera train did not write it");
  }
  SavedRun out{*step, *data};
  out.model_step = step_of(j, "model_step");
  if (const auto v = j.find("validation"); v != j.end() && v->is_object()) {
    const json monitor = v->value("monitor", json()), least = v->value("least", json()),
               since = v->value("since_best", json());
    if (monitor.is_string() && least.is_number() && since.is_number_unsigned() && since.get<uint64_t>() <= kMostSteps)
      out.scores = {monitor.get<std::string>(), least.get<double>(), since.get<int64_t>()};
  }
  if (const auto a = j.find("arrived"); a != j.end() && a->is_object()) out.arrived = a->dump();
  return out;
}

std::string SavedRun::text() const {
  json out = {{"step", step}, {"model", model}, {"data", data}};
  if (model_step) out["model_step"] = *model_step;
  if (!encoding.empty()) out["encoding"] = config::parse_json(encoding, {"the data's encoding"});
  if (!arrived.empty()) out["arrived"] = config::parse_json(arrived, {"the reader's position"});
  if (scores)
    out["validation"] = {{"monitor", scores->monitor}, {"least", scores->least}, {"since_best", scores->since_best}};
  return out.dump();
}

void SavedRun::check_same_data(const json& mine, const std::string& path) const {
  if (!data.contains("test") && mine.value("test", "").ends_with("random"))
    fail(Code::kInvalidArgument, path, " was saved by a version whose test part is the last rows, but this job's is ",
         mine.value("test", ""), ": set data.test = \"last\" to continue");
  for (const auto& [key, value] : data.items()) {
    if (!mine.contains(key) || same(key, value, mine.at(key), !arrived.empty())) continue;
    const std::string difference = key == "hash"
                                       ? std::string("other samples")
                                       : str_cat(key, " = ", value.dump(), " instead of ", mine.at(key).dump());
    fail(Code::kInvalidArgument, path, " is at step ", step, " of other data than this job's (", difference,
         "): continue with the same, or give --new-data, which takes the model to the first batch of this job's data");
  }
}

std::string saved_encoding(const std::string& directory) {
  if (!checkpoint::has_checkpoint(directory)) return "";
  const json progress = config::parse_json(saved_progress(directory), {directory, Code::kDataLoss});
  return progress.is_object() && progress.contains("encoding") ? progress["encoding"].dump() : "";
}

}  // namespace tessera
