// tessera quantize: turns a float checkpoint into a packed model.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>

#include "command.h"
#include "inspect_checkpoint.h"
#include "modules/graph_json.h"
#include "options.h"
#include "plugin_watch.h"
#include "predict/heads.h"
#include "recalibrate.h"
#include "tessera/checkpoint.h"
#include "tessera/config.h"
#include "tessera/predictor.h"
#include "tessera/train_job.h"
#include "train/saved_model.h"
#include "train/saved_run.h"
#include "wrapped.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;

constexpr int64_t kBatch = 1024;

struct QuantizeArguments {
  std::string load, save, config;
  std::vector<std::string> overrides;
  PackOptions pack;
  FloatModelOptions model;
  RecalibrateOptions recalibrate;
  bool int8_layers = false;
};

// Options that are words.
struct QuantizeWords {
  std::string weights = "int8", dense = "fp32", bounds, calibrate;
  std::vector<std::string> tables;
};

Options options_of(QuantizeArguments* out, QuantizeWords* words) {
  Options options("quantize", "--load CHECKPOINT --save MODEL [OPTIONS]");
  auto add = options.add_options();
  add("load", po::value(&out->load)->value_name("CHECKPOINT"),
      "checkpoint of tessera train, or safetensors with the names of a TorchRec DLRM or of the config's layers "
      "(docs/models.md)");
  add("save", po::value(&out->save)->value_name("MODEL"), "new directory for the packed model");
  add("weights", po::value(&words->weights)->value_name("FORMAT"),
      "format of the rows: fp32, fp16, fp8, int8 (default), int4 or int2");
  add("dense", po::value(&words->dense)->value_name("FORMAT"),
      "dense layers: fp32 (default), or int8, for predictions with weights and activations in 8 bits");
  add("table", po::value(&words->tables)->value_name("NAME=FORMAT"), "format of one table; may be repeated");
  add("config", po::value(&out->config)->value_name("FILE"),
      "the job, for features and pooling of the tables and for layers of a graph; its data are scored before and "
      "after packing");
  add("set", po::value(&out->overrides)->value_name("KEY=VALUE"), "change a key of the config; may be repeated");
  add("bounds-check", po::value(&words->bounds)->value_name("MODE"),
      "treatment of ids out of range: fatal, ignore or warning (default: as in training)");
  add("calibrate", po::value(&words->calibrate)->value_name("METHOD"),
      "recalibrate probabilities, by platt or isotonic, on the rows that the config keeps for validation");
  add("negatives-kept", po::value(&out->recalibrate.negatives_kept)->value_name("SHARE"),
      "correct probabilities for negatives of which the training rows have only this share");
  add("weighted", po::bool_switch(&out->model.is_weighted), "ids of requests may have weights");
  add("name", po::value(&out->pack.name)->value_name("NAME"), "name of the model (default: that of the directory)");
  return options;
}

bool parse_quantize_arguments(const std::vector<std::string>& args, QuantizeArguments* out) {
  QuantizeWords words;
  Options options = options_of(out, &words);
  if (!parse_options(args, options)) return false;
  if (out->load.empty() || out->save.empty())
    throw UsageError("--load CHECKPOINT and --save MODEL are needed: see tessera quantize --help");
  if (!out->overrides.empty() && out->config.empty())
    throw UsageError("--set changes a config: --config FILE is needed");
  if (words.dense != "fp32" && words.dense != "int8")
    throw UsageError("--dense takes fp32 or int8, not \"" + words.dense + "\"");
  out->int8_layers = words.dense == "int8";
  out->pack.format = row_format_from(words.weights);
  for (const std::string& table : words.tables) {
    const size_t equals = table.rfind('=');
    if (equals == std::string::npos || equals == 0)
      throw UsageError("--table " + table + ": it takes NAME=FORMAT, such as film=int4");
    const std::string name = table.substr(0, equals);
    if (!out->pack.formats.emplace(name, row_format_from(table.substr(equals + 1))).second)
      throw UsageError("--table " + table + ": the format of \"" + name + "\" is there twice");
  }
  if (!words.calibrate.empty()) out->recalibrate.method = calibration_from(words.calibrate);
  if (!(out->recalibrate.negatives_kept > 0 && out->recalibrate.negatives_kept <= 1))
    throw UsageError("--negatives-kept must be above 0 and at most 1");
  if (!words.bounds.empty()) out->model.bounds_check = bounds_check_from(words.bounds);
  return true;
}

// Names, features and pooling. Sizes that neither a [[table]] nor the data gives stay 0: the checkpoint has them.
std::vector<TableConfig> described_tables(Config config, const std::optional<Dataset>& data) {
  config.model.embedding_dim = 0;
  if (data) return tables_of(config, data->columns);
  for (TableConfig& t : config.tables) {
    if (t.features.empty()) t.features = {t.name};
    if (t.pooling == "auto") t.pooling = "sum";
  }
  return config.tables;
}

// The pieces of a config's job that a model needs.
struct Job {
  Config config;
  std::optional<Dataset> data;
  std::vector<TableConfig> tables;    // with sizes of 0 for those that only the checkpoint tells
  nlohmann::ordered_json saved = {};  // saved_model() of the checkpoint; null: the config tells what the model is
};

Job read_job(QuantizeArguments* a, std::optional<Runtime>* runtime) {
  Job job{load_config(a->config, a->overrides), {}};
  const Config& config = job.config;
  runtime->emplace(RuntimeOptions{config.plugins.path, config.plugins.require});
  try {
    if (config.tables.empty() || !(config.data == DataConfig{}))
      job.data = read_dataset(**runtime, config, config.columns.empty() ? "" : saved_encoding(a->load));
    else
      std::cerr << "no AUC: " << a->config << " has no data\n";
  } catch (const Error& e) {
    if (e.code() != Code::kNotFound || config.tables.empty()) throw;
    std::cerr << "no AUC: " << e.what() << '\n';
  }
  job.tables = described_tables(config, job.data);
  if (!a->model.bounds_check && !job.tables.empty()) a->model.bounds_check = bounds_check_of(job.tables);
  if (is_checkpoint(a->load)) job.saved = saved_model(saved_progress(a->load));
  if (job.saved.is_object()) return job;
  for (const TableConfig& t : job.tables) {
    EmbeddingBagConfig c{.name = t.name, .num_embeddings = t.rows, .embedding_dim = t.embedding_dim};
    std::transform(t.features.begin(), t.features.end(), std::back_inserter(c.feature_names), feature_name);
    c.pooling = pooling_from(t.pooling);
    a->model.tables.push_back(std::move(c));
  }
  return job;
}

// Layers and heads, for a checkpoint that does not contain its own.
ModelGraph graph_of(const Runtime& runtime, const Job& job, std::vector<EmbeddingBagConfig> tables) {
  const auto takes_dense = [](const LayerConfig& l) {
    return std::find(l.inputs.begin(), l.inputs.end(), "dense") != l.inputs.end();
  };
  if (const auto& all = job.config.layers; !job.data && std::any_of(all.begin(), all.end(), takes_dense))
    fail(Code::kInvalidArgument,
         "layers take \"dense\", and only the data tell how many values these are: give a config whose [data] can "
         "be read");
  for (EmbeddingBagConfig& t : tables) {
    if (t.embedding_dim == 0) t.embedding_dim = job.config.model.embedding_dim;
  }
  return layers_of(runtime, job.config, tables, job.data ? std::ssize(job.data->dense) : 0);
}

constexpr const char* kAdvice = "leave the config as it was, or train a new model";

// Fails if a size of the config is another one than the checkpoint has.
void require_size(const std::string& key, const nlohmann::ordered_json& now, const nlohmann::ordered_json& was) {
  if (now != was)
    fail(Code::kInvalidArgument, key, " is ", now.dump(), ", but was ", was.dump(), " when the model was trained; ",
         kAdvice);
}

void require_saved_sizes(const Job& job, const InferenceModel& model) {
  const ModelConfig& asked = job.config.model;
  for (const TableConfig& t : job.tables) {
    const auto is_it = [&](const QuantizedTable& table) { return table.config.name == t.name; };
    const auto found = std::find_if(model.tables.begin(), model.tables.end(), is_it);
    if (found == model.tables.end()) continue;
    const EmbeddingBagConfig& was = found->config;
    const std::string table = str_cat("[[table]] \"", t.name, "\": ");
    if (t.rows > 0 && was.remapping == nullptr) require_size(table + "rows", t.rows, was.num_embeddings);
    if (t.embedding_dim > 0)
      require_size(table + "embedding_dim", t.embedding_dim, was.embedding_dim);
    else
      require_size("model.embedding_dim", asked.embedding_dim, was.embedding_dim);
  }
  if (asked.type == kGraphType || model.description.type == kGraphType) return;
  if (model.dlrm.dense_inputs > 0) require_size("model.bottom_mlp", asked.bottom_mlp, model.dlrm.bottom_mlp);
  require_size("model.top_mlp", asked.top_mlp, model.dlrm.top_mlp);
}

// Fails if the config describes another model than the checkpoint does. Without data a config may leave open what its
// columns would tell: features and pooling of a table.
void require_saved_model(const Runtime& runtime, const Job& job, const InferenceModel& model, const std::string& path) {
  require_saved_sizes(job, model);
  std::vector<EmbeddingBagConfig> trained;
  for (const QuantizedTable& t : model.tables) trained.push_back(t.config);
  nlohmann::ordered_json now = {{"type", job.config.model.type}, {"tables", job.saved["tables"]}};
  const std::vector<TableConfig>& tables = job.data ? job.tables : job.config.tables;
  if (!tables.empty()) now["tables"].clear();
  for (const TableConfig& t : tables) {
    const auto is_it = [&](const EmbeddingBagConfig& c) { return c.name == t.name; };
    const auto was = std::find_if(trained.begin(), trained.end(), is_it);
    const bool known = was != trained.end();
    std::vector<std::string> features;
    std::transform(t.features.begin(), t.features.end(), std::back_inserter(features), feature_name);
    if (features.empty() && known) features = was->feature_names;
    const PoolingType pooling = t.pooling == "auto" && known ? was->pooling
                                : t.pooling == "auto"        ? PoolingType::kSum
                                                             : pooling_from(t.pooling);
    now["tables"].push_back({{"name", t.name}, {"features", features}, {"pooling", to_string(pooling)}});
  }
  if (job.config.model.type == kGraphType) now["graph"] = to_json(layers_of(runtime, job.config, trained, 0));
  check_same_model(job.saved, now, path, kAdvice);
}

// Checks that every layer has its parameters, and every parameter a layer.
void check_parameters(const Runtime& runtime, const InferenceModel& model) {
  const LayerGraph layers(runtime, model.graph, {.values = &model.dense});
  std::map<std::string, Tensor> left = model.dense;
  for (const ParameterPtr& p : layers.parameters()) left.erase(p->name);
  for (const ParameterPtr& p : layers.buffers()) left.erase(p->name);
  if (!left.empty())
    fail(Code::kInvalidArgument, model.description.name, ": no layer of the config has \"", left.begin()->first,
         "\", and the model would be another one without it");
}

MetricValues test_metrics(Predictor& predictor, const Dataset& data) {
  const std::vector<AskedHead> heads = asked_heads(predictor.model(), asked_outputs(predictor.model()), data);
  HeadJudge judge(predictor.model(), heads, data.test.streamed != nullptr);
  predict_all(predictor, data, data.test, kBatch, widths_of(predictor.model(), heads),
              [&](const std::vector<std::vector<float>>& values, const Batch& batch) { judge.add(values, batch); });
  return judge.values();
}

// Prints auc and logloss, or rmse and mae, per head.
void print_metrics(const MetricValues& before, const MetricValues& after, bool recalibrated) {
  std::string text;
  for (size_t m = 0; m < after.values.size(); ++m) {
    const std::string& name = after.values[m].first;
    if (name.ends_with("normalized_entropy") || (name.ends_with("calibration") && !recalibrated)) continue;
    char numbers[64];
    std::snprintf(numbers, sizeof(numbers), " %.6f before, %.6f after", before.values[m].second,
                  after.values[m].second);
    text += str_cat(text.empty() ? "" : "; ", name == "auc" ? "AUC" : name, numbers);
  }
  if (text.empty()) return;
  text = str_cat("test: ", text, " (", after.samples, " samples)");
  std::printf("%s", fitted(text, STDOUT_FILENO).c_str());
}

// Keeps tables in fp32 whose rows have no multiple of the columns that the format of all tables takes, such as biases
// of items. Formats of single tables are errors then.
void keep_narrow_tables(const InferenceModel& model, PackOptions& pack) {
  const int64_t multiple = sdk::info_of(pack.format).dim_multiple;
  for (const QuantizedTable& table : model.tables) {
    const int64_t dim = table.config.embedding_dim;
    if (dim % multiple == 0 || !pack.formats.emplace(table.config.name, RowFormat::kFloat32).second) continue;
    std::printf("%s stays in fp32: its rows have %lld %s, and %s takes multiples of %lld\n", table.config.name.c_str(),
                static_cast<long long>(dim), dim == 1 ? "column" : "columns", sdk::to_string(pack.format),
                static_cast<long long>(multiple));
  }
}

std::string with_commas(int64_t n) {
  std::string text = std::to_string(n);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<size_t>(at), 1, ',');
  return text;
}

// A line for each layer in int8, and one for all others.
void print_layers(const std::vector<DenseReport>& rounded, int64_t dense_bytes, int name) {
  int64_t others = dense_bytes;
  for (const DenseReport& r : rounded) {
    if (!r.int8) continue;
    std::printf("%-*s %-6s %16s %16s %12.3g %12.3g\n", name, r.layer.c_str(), "int8",
                with_commas(r.bytes_before).c_str(), with_commas(r.bytes_after).c_str(), r.worst_error, r.mean_error);
    others -= r.bytes_before;
  }
  std::printf("%-*s %-6s %16s %16s\n", name, rounded.empty() ? "layers" : "others", "fp32", with_commas(others).c_str(),
              with_commas(others).c_str());
}

void print_reports(const std::vector<TableReport>& reports, const std::vector<DenseReport>& rounded,
                   int64_t dense_bytes) {
  size_t widest = 8;
  for (const TableReport& r : reports) widest = std::max(widest, r.table.size());
  for (const DenseReport& r : rounded) widest = std::max(widest, r.layer.size());
  const int name = static_cast<int>(widest);
  std::printf("%-*s %-6s %16s %16s %12s %12s\n", name, "table", "format", "bytes before", "bytes after", "worst error",
              "mean error");
  int64_t before = dense_bytes, after = dense_bytes;
  for (const TableReport& r : reports) {
    std::printf("%-*s %-6s %16s %16s %12.3g %12.3g\n", name, r.table.c_str(), sdk::to_string(r.format),
                with_commas(r.bytes_before).c_str(), with_commas(r.bytes_after).c_str(), r.worst_error, r.mean_error);
    before += r.bytes_before;
    after += r.bytes_after;
  }
  print_layers(rounded, dense_bytes, name);
  for (const DenseReport& r : rounded) after += r.bytes_after - r.bytes_before;
  std::printf("%-*s %-6s %16s %16s   %.2f times smaller\n", name, "in all", "", with_commas(before).c_str(),
              with_commas(after).c_str(),
              static_cast<double>(before) / static_cast<double>(std::max<int64_t>(1, after)));
  std::string left;
  for (const DenseReport& r : rounded) left += r.int8 ? "" : str_cat(left.empty() ? "" : ", ", r.layer);
  if (!left.empty()) std::fputs(wrapped(str_cat("layers that stay in float32: ", left)).c_str(), stdout);
}

}  // namespace

int quantize_command(const std::vector<std::string>& args) {
  QuantizeArguments a;
  if (!parse_quantize_arguments(args, &a)) return 0;
  std::error_code ignored;
  if (std::filesystem::exists(a.save, ignored))  // checked before anything is read
    fail(Code::kAlreadyExists, a.save, " exists: pack to another directory, or remove it first");
  const PluginWatch watch;
  std::optional<Runtime> runtime;
  std::optional<Job> job;
  if (!a.config.empty()) job = read_job(&a, &runtime);
  const bool saved = job && job->saved.is_object(), layers = job && !saved && job->config.model.type == kGraphType;
  if (layers) a.model.graph = graph_of(*runtime, *job, a.model.tables);
  FloatModel trained = open_float_model(a.load, a.model);
  if (saved) require_saved_model(*runtime, *job, trained.model, a.load);
  if (layers) check_parameters(*runtime, trained.model);
  if (job && job->data && trained.model.description.bounds_check == BoundsCheckMode::kFatal)
    job->data->require_known_ids();
  for (const std::string& assumed : trained.assumptions) std::cerr << a.load << ": " << assumed << '\n';

  std::optional<MetricValues> before;
  const QuantizedTable* const items = items_without_scores(trained.model);
  const bool scored = job && job->data && job->data->test_rows() > 0 && items == nullptr;
  if (scored) {
    if (const std::string other = other_test_part(trained.model.description.trained_on, job->config,
                                                  without_validation(job->config, *job->data));
        !other.empty())
      std::cerr << wrapped(str_cat("tessera quantize: warning: ", other));
    before = test_metrics(*make_predictor(*runtime, trained.model), *job->data);
  }
  std::vector<DenseReport> rounded;
  if (a.int8_layers) {
    if (!runtime) runtime.emplace(RuntimeOptions{});
    rounded = round_dense_to_int8(*runtime, trained.model);
  }
  const bool recalibrates = a.recalibrate.method != Calibration::kNone || a.recalibrate.negatives_kept != 1;
  if (recalibrates) {
    if (!runtime) runtime.emplace(RuntimeOptions{});
    for (const std::string& line : recalibrate(*runtime, trained.model, job ? &job->config : nullptr,
                                               job && job->data ? &*job->data : nullptr, a.recalibrate))
      std::printf("calibration: %s\n", line.c_str());
  }
  keep_narrow_tables(trained.model, a.pack);
  const auto reports = pack_model(trained.model, a.save, a.pack);
  int64_t dense_bytes = 0;
  for (const auto& [name, value] : trained.model.dense) dense_bytes += value.bytes();
  print_reports(reports, rounded, dense_bytes);
  if (scored) {
    print_metrics(*before, test_metrics(*open_predictor(*runtime, a.save), *job->data), recalibrates);
  }
  if (items != nullptr)
    std::printf("it answers with items: tessera serve --model %s --top-k 10 --items %s --query LAYER\n", a.save.c_str(),
                items->config.name.c_str());
  return 0;
}

}  // namespace tessera::cli
