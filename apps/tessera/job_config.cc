#include "job_config.h"

#include <algorithm>
#include <set>

#include "command.h"
#include "model_presets.h"
#include "tessera/sdk/nearest.h"

namespace tessera::cli {
namespace {

using Names = std::set<std::string, std::less<>>;

const ModelPreset& preset_of(const std::string& name) {
  const auto presets = model_presets();
  const auto found = std::find_if(presets.begin(), presets.end(), [&](const ModelPreset& p) { return name == p.name; });
  if (found != presets.end()) return *found;
  throw UsageError(
      str_cat("--model: ", sdk::unknown_name("model", name, preset_names()), " of ", sdk::joined(preset_names())));
}

bool changes_layers(const std::string& override_text) {
  return override_text.starts_with("layer.") || override_text.starts_with("head.");
}

// Names of the columns with this use.
std::vector<std::string> columns_as(const Config& config, const std::string& as) {
  std::vector<std::string> out;
  for (const ColumnConfig& c : config.columns) {
    if (c.as == as) out.insert(out.end(), c.name.begin(), c.name.end());
  }
  return out;
}

// The job's inputs that layers can take by name.
Names inputs_of(const Config& config) {
  Names out = {"dense", "pooled"};
  for (const std::string& id : columns_as(config, "ids")) out.insert(id);
  for (const TableConfig& t : config.tables) {
    out.insert(t.name);
    out.insert(t.features.begin(), t.features.end());
  }
  return out;
}

std::string without_index(const std::string& input) { return input.substr(0, input.rfind(':')); }

// Renames layers that have the same name as an input of the job.
void rename_layers(const Names& inputs, Config& model) {
  for (LayerConfig& layer : model.layers) {
    if (!inputs.contains(layer.name)) continue;
    const std::string before = layer.name;
    do layer.name += "_layer";
    while (inputs.contains(layer.name));
    const auto rename = [&](std::string& input) {
      if (without_index(input) == before) input.replace(0, before.size(), layer.name);
    };
    for (LayerConfig& other : model.layers) std::for_each(other.inputs.begin(), other.inputs.end(), rename);
    for (HeadConfig& head : model.heads) rename(head.input);
  }
}

// For a job without dense values, removes the input "dense", except from layers that have no other input.
void leave_dense_out(Config& model) {
  for (LayerConfig& layer : model.layers) {
    if (layer.inputs.size() > 1) std::erase(layer.inputs, "dense");
  }
}

void check_inputs(const std::string& name, const Config& model, const Names& inputs) {
  for (const LayerConfig& layer : model.layers) {
    for (const std::string& input : layer.inputs) {
      const std::string whole = without_index(input);
      const bool of_layer = std::any_of(model.layers.begin(), model.layers.end(),
                                        [&](const LayerConfig& l) { return l.name == input || l.name == whole; });
      if (of_layer || inputs.contains(input) || inputs.contains(whole)) continue;
      throw UsageError(str_cat("--model ", name, ": its layer \"", layer.name, "\" takes \"", input,
                               "\", which this job lacks: write its layers into the config with your columns' names "
                               "(tessera model new ",
                               name, " prints them)"));
    }
  }
}

void take_labels(const std::string& name, const Config& job, Config& model) {
  const std::vector<std::string> labels = columns_as(job, "label");
  if (labels.empty()) return;  // one of the core's own readers, whose labels have the preset's names
  if (model.heads.size() > labels.size())
    throw UsageError(str_cat("--model ", name, " has ", model.heads.size(), " heads, but the job has ", labels.size(),
                             labels.size() == 1 ? " column" : " columns", " as = \"label\""));
  for (size_t i = 0; i < model.heads.size(); ++i) {
    HeadConfig& head = model.heads[i];
    const bool own = std::find(labels.begin(), labels.end(), head.label) != labels.end();
    if (!own) head.label = labels[i];
    const auto real = [&](const ColumnConfig& c) {
      return c.real && std::find(c.name.begin(), c.name.end(), head.label) != c.name.end();
    };
    if (std::any_of(job.columns.begin(), job.columns.end(), real) && head.loss == HeadConfig().loss) head.loss = "mse";
  }
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const ModelPreset& p : model_presets()) names.emplace_back(p.name);
  return names;
}

Config job_config(const std::string& path, const std::vector<std::string>& overrides, const std::string& model) {
  if (model.empty()) return load_config(path, overrides);
  const ModelPreset& preset = preset_of(model);
  std::vector<std::string> of_job, of_layers;
  for (const std::string& o : overrides) (changes_layers(o) ? of_layers : of_job).push_back(o);
  Config job = load_config(path, of_job);
  const Config whole = parse_config(preset.text, model);
  Config layers;  // layers and heads, without the preset's data
  layers.model.type = whole.model.type;
  layers.layers = whole.layers;
  layers.heads = whole.heads;
  const bool by_columns = !job.columns.empty();
  const Names inputs = inputs_of(job);
  rename_layers(inputs, layers);
  if (by_columns && columns_as(job, "dense").empty()) leave_dense_out(layers);
  if (by_columns || !job.tables.empty()) check_inputs(model, layers, inputs);
  take_labels(model, job, layers);
  layers = parse_config(to_toml(layers), "--model " + model, of_layers);

  job.model.type = layers.model.type;
  job.model.inputs.clear();
  job.layers = layers.layers;
  job.heads = layers.heads;
  if (job.dense_optimizer == DenseOptimizerConfig()) job.dense_optimizer = whole.dense_optimizer;
  return job;
}

}  // namespace tessera::cli
