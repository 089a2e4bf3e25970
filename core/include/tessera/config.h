// tessera/config.h - the job's one TOML file as plain structs.
//
//   Config config = load_config("job.toml", {"data.epochs=2", "table.film.sharding=row_wise"});
//   std::cout << to_toml(config);
//
// Every key has a default, so an empty file is a valid config. docs/config.md lists the keys; it is generated from the
// tables that also parse the file. A config is only data: plugins, sharding types and kernels are strings here, and are
// checked when they are looked up.
//
// Errors are one sentence with file and line. kInvalidArgument: the text is no TOML, a key is unknown (with the nearest
// known one), a value has the wrong type, or a number is out of range. kNotFound: no such file, no such table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/error.h"

namespace tessera {

// A component's name and the options it is created with: `{ name = "exact_sgd", learning_rate = 0.1 }`.
struct PartSpec {
  std::string name;
  std::string options = "{}";  // JSON object: every key but `name`, in the order written
  bool operator==(const PartSpec&) const = default;
};

// Options of a component that another key names: a JSON object, in the order written.
struct PartOptions {
  std::string json = "{}";
  bool operator==(const PartOptions&) const = default;
};

struct PluginsConfig {
  std::vector<std::string> path;
  std::vector<std::string> require;
  bool operator==(const PluginsConfig&) const = default;
};

struct JobConfig {
  int64_t seed = 1;
  std::string device = "auto";
  std::string kernel_plugin = "auto";
  std::string dense_precision = "float32";
  int64_t threads = 0;
  std::optional<bool> pipeline;  // unset: true if a host has more cores than ranks
  int64_t accumulate = 1;
  double ema = 0;
  bool operator==(const JobConfig&) const = default;
};

struct CommConfig {
  std::string backend = "auto";
  double timeout_s = 30;
  double bucket_mib = 4;
  std::vector<std::string> lossy;           // "rows", "gradients", "dense_gradients"
  bool loses(std::string_view what) const;  // is it in `lossy`?
  std::string join_exchanges = "auto";
  bool operator==(const CommConfig&) const = default;
};

struct ModelConfig {
  std::string type = "dlrm";        // default "graph" if there are layers
  std::vector<std::string> inputs;  // of a graph; empty: all inputs
  int64_t embedding_dim = 16;
  std::vector<int64_t> bottom_mlp = {64, 16};
  std::vector<int64_t> top_mlp = {64, 32, 1};
  bool operator==(const ModelConfig&) const = default;
};

// A layer and a head of a graph; layer_graph.h explains them.
struct LayerConfig {
  std::string name, type;
  std::vector<std::string> inputs;
  PartOptions options;
  PartOptions optimizer;  // differences to dense_optimizer, also in `name`
  PartOptions names;      // LayerSpec::names
  bool trainable = true;
  bool operator==(const LayerConfig&) const = default;
};
struct HeadConfig {
  std::string name, input;
  std::string loss = "binary_cross_entropy";
  std::string label = "label";
  double weight = 1;
  std::string groups = {};
  double positive_weight = 1;
  double label_smoothing = 0;
  double focal_gamma = 0;
  std::string where = {};
  bool learn_weight = false;
  PartOptions loss_options = {};
  bool operator==(const HeadConfig&) const = default;
};

// One table. docs/config.md says what zero, empty and unset mean: "from the data", "any", "the model's".
struct TableConfig {
  std::string name;
  int64_t rows = 0;
  bool any_id = false;
  std::vector<std::string> features;
  std::string pooling = "auto";
  int64_t embedding_dim = 0;
  std::string data_type = "float32";
  std::string rounding = "nearest";
  std::string init = "uniform";
  std::string start;
  std::optional<double> init_range;
  std::string bounds_check = "fatal";
  std::string compute_kernel = "auto";
  PartSpec optimizer = {"exact_rowwise_adagrad", R"({"learning_rate":0.05,"eps":1e-08})"};
  double max_gradient = 0;
  bool use_index_dedup = false;
  bool trainable = true;  // false: tables_of() sets the learning rate to 0
  // Constraints for the planner.
  std::vector<std::string> sharding;
  std::vector<std::string> compute_kernels;
  std::vector<int64_t> ranks;
  std::vector<int64_t> forbidden_ranks;
  std::string keep_together;
  std::vector<std::string> keep_apart;
  int64_t min_partition = 0;
  int64_t max_shards = 0;
  std::vector<double> pooling_factor;
  bool operator==(const TableConfig&) const = default;
};

struct DenseOptimizerConfig {
  std::string name = "adagrad";
  double learning_rate = 0.02;
  double eps = 1e-8;
  double momentum = 0;
  double alpha = 0.99;
  double rho = 0.9;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double weight_decay = 0;
  double max_gradient_norm = 0;
  bool operator==(const DenseOptimizerConfig&) const = default;
};

struct PlannerConfig {
  std::string plan;
  std::string cost_model = "default";
  std::string topology;
  std::vector<double> hbm_gib;
  std::vector<double> ddr_gib;
  std::vector<double> ssd_gib;
  int64_t local_world_size = 0;
  std::string search = "balanced";
  double time_limit_s = 30;
  bool operator==(const PlannerConfig&) const = default;
};

struct DataConfig {
  std::string reader = "synthetic";
  std::string path;
  std::string test_path;
  int64_t batch = 128;
  int64_t epochs = 1;
  bool shuffle = true;
  std::vector<int64_t> rows;
  std::string test;
  double test_fraction = 0.1;
  int64_t limit = 0;
  int64_t samples = 100000;
  int64_t test_samples = 20000;
  int64_t columns = 8;
  int64_t dense = 13;
  std::vector<int64_t> pooling = {1};
  int64_t labels = 1;
  std::string index_dist = "uniform";
  double buffer_mib = 256;
  std::string order_by;
  // Set by the library, and no key: the reader that a model keeps for later data. Empty: `reader`.
  std::string later_reader;
  bool operator==(const DataConfig&) const = default;
};

// Factors of the learning rates over the steps (LearningRateSchedule); empty: 1.
struct ScheduleConfig {
  std::vector<std::string> tables;
  std::vector<std::string> dense;
  bool operator==(const ScheduleConfig&) const = default;
};

struct ValidationConfig {
  double fraction = 0;
  std::string split = "random";
  int64_t every_steps = 0;
  double every_epochs = 1;
  std::string monitor;
  int64_t patience = 0;
  double min_delta = 0;
  bool restore_best = false;
  int64_t folds = 0;
  // Set by the program, and no key: the fold of this run, from 0. -1: none.
  int64_t fold = -1;
  bool operator==(const ValidationConfig&) const = default;
};

// A number, or one of the words that the key takes instead.
struct NumberOrWord {
  double number = 0;
  std::string word;  // empty: use the number
  bool operator==(const NumberOrWord&) const = default;
};

// How the model uses a column of the files. `name` may list several columns with the same keys.
struct ColumnConfig {
  std::vector<std::string> name;
  std::string column;  // name in the files; empty: `name`
  std::string as = "ids";
  std::string take = "value";
  // For numbers that are written as text.
  std::string decimal;
  std::string strip;
  std::vector<std::string> missing_words;
  std::string time_format;  // for `take`; empty: ISO 8601, or numbers since 1970
  std::string since;        // ISO 8601, where days, hours and minutes begin; empty: 1970
  // For dense values and weights.
  std::optional<NumberOrWord> missing;
  std::vector<std::string> transform;
  int64_t width = 0;  // of a vector
  // For labels.
  std::optional<double> threshold;
  std::string positive;
  bool real = false;
  // For ids.
  std::string ids = "row";
  int64_t min_count = 1;
  int64_t rows = 0;
  std::vector<double> bounds;
  std::vector<std::string> cross;
  std::string separator;
  bool weighted = false;
  int64_t longest = 0;
  std::string pooling = "sum";
  bool operator==(const ColumnConfig&) const = default;
};

// Histories of users, made from rows of events. If `user` is empty, there are none.
struct HistoryConfig {
  std::string component = "histories";
  std::string user;
  std::string time;
  std::vector<std::string> columns;
  int64_t length = 50;
  std::string keep = "newest";
  std::string by;
  std::vector<std::string> values;
  bool repeats = true;
  std::string order = "file";
  std::string samples = "events";
  std::string split = "none";
  std::string validation_from;
  std::string test_from;
  double validation_share = 0;
  double test_share = 0;
  bool operator==(const HistoryConfig&) const = default;
};

struct MetricsConfig {
  std::vector<std::string> names;
  std::vector<std::string> training;
  int64_t window = 100000;
  bool operator==(const MetricsConfig&) const = default;
};

// Publishes the model during training to a directory, for servers that follow it (tessera/online.h).
struct PublishConfig {
  std::string directory;
  double every_s = 60;
  int64_t every_steps = 0;
  int64_t base_every = 60;
  int64_t keep_bases = 2;
  std::string weights = "int8";
  std::vector<std::string> tables;
  bool operator==(const PublishConfig&) const = default;
};

struct ReportConfig {
  std::string json;
  std::string metrics;
  std::string tensorboard;
  int64_t log_every = 100;
  bool operator==(const ReportConfig&) const = default;
};

// `table.NAME.key=value` for tables that the file does not list. tables_of() applies it when the data has named them.
struct TableOverride {
  std::string table;
  std::string text;  // the whole override, for errors
  bool operator==(const TableOverride&) const = default;
};

struct Config {
  PluginsConfig plugins;
  JobConfig job;
  CommConfig comm;
  ModelConfig model;
  std::vector<LayerConfig> layers;  // [[layer]]
  std::vector<HeadConfig> heads;    // [[head]]
  TableConfig table_defaults;
  std::vector<TableConfig> tables;             // [[table]], table_defaults merged in
  std::vector<TableOverride> table_overrides;  // only used if `tables` is empty
  DenseOptimizerConfig dense_optimizer;
  PlannerConfig planner;
  DataConfig data;
  ScheduleConfig schedule;
  ValidationConfig validation;
  HistoryConfig history;
  std::vector<ColumnConfig> columns;  // [[column]]
  MetricsConfig metrics;
  PublishConfig publish;
  ReportConfig report;
  bool operator==(const Config&) const = default;
};

// Reads `path` (kNotFound: missing) and applies `overrides` in order. An override is `section.key=value` in TOML's
// value syntax; a bare word is a string. `table.NAME.key=value` changes one table. `table_defaults.key=value` changes
// all tables that do not set the key. One more name after `optimizer` changes one option:
// `table_defaults.optimizer.learning_rate=0.1`.
Config load_config(const std::string& path, const std::vector<std::string>& overrides = {});
// Does the same for a text; `source` replaces the file's name in errors.
Config parse_config(const std::string& text, const std::string& source, const std::vector<std::string>& overrides = {});

// A column as the data describe it. A config need not repeat this part of a table.
struct DataColumn {
  std::string name;  // name of the table and of its feature
  int64_t rows = 0;
  std::string pooling = "sum";
  bool weighted = false;  // its ids have weights
  bool all_ids = false;   // ids are 0 to rows - 1 by construction: from a vocabulary, a hash or buckets
};

// The name of a table's feature. Those that are drawn instead of read have options after it: "drawn?draw=all".
std::string feature_name(const std::string& feature);
bool is_drawn(const std::string& feature);

// The job's tables with everything filled in: those of the file, or one per column if the file has none. A table gets
// missing rows and pooling from its first feature's column ("sum" if the data says nothing), missing features from its
// own name, and a missing embedding_dim from the model. kNotFound, with the nearest name: a feature is no column
// (unless there are no columns at all), or an override names no table.
std::vector<TableConfig> tables_of(const Config& config, const std::vector<DataColumn>& columns);

// Reads a text file as a whole, so that half a file is never parsed as a complete one. Errors are
// "<what><path>: No such file or directory<advice>". kNotFound: the file is missing, is a directory, or may not be
// read. kUnavailable: any other error of the system, even in the middle of the file.
std::string read_file(const std::string& path, const std::string& what = "cannot read ",
                      const std::string& advice = "");

// The effective config with every key: parse_config(to_toml(c)) equals c.
std::string to_toml(const Config& config);

// The tables of docs/config.md: one line per key with default, unit and meaning.
std::string config_reference();

}  // namespace tessera
