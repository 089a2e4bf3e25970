#include "config/fields.h"

namespace tessera::config {
namespace {
constexpr double kMany = 9.2e18;  // limited only by the type
constexpr double kInt32 = 2147483647;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
}  // namespace

template <>
const std::vector<Field<PluginsConfig>>& fields<PluginsConfig>() {
  using S = PluginsConfig;
  static const std::vector<Field<S>> table = {
      {"path", &S::path, "absolute directories", "searched for plugins before the installed folder"},
      {"require", &S::require, "component ids", "what must load, else the job ends with the reason"},
  };
  return table;
}

template <>
const std::vector<Field<JobConfig>>& fields<JobConfig>() {
  using S = JobConfig;
  static const std::vector<Field<S>> table = {
      {"seed", &S::seed, "", "start values, shuffling and synthetic data follow from it", 0, kMany},
      {"device", &S::device, "", "`cpu`, `cuda`, `hip`, or `auto`: the best that has a kernel plugin here"},
      {"kernel_plugin", &S::kernel_plugin, "plugin id",
       "which kernel plugin does the lookups, with options as `acme.rows?threads=2`; `auto`: the best for the device"},
      {"threads", &S::threads, "threads per rank", "0: cores / ranks on this machine", 0, 4096},
      {"pipeline", &S::pipeline, "",
       "the next batch is read, routed and its ids exchanged while this one trains; the numbers stay the same; "
       "unset: where every host has more cores than ranks"},
  };
  return table;
}

template <>
const std::vector<Field<CommConfig>>& fields<CommConfig>() {
  using S = CommConfig;
  static const std::vector<Field<S>> table = {
      {"backend", &S::backend, "plugin id",
       "transport between ranks; `auto`: nccl for cuda, mpi under mpirun, else tcp; `tcp?shm=false` has options, "
       "`outer:name(inner)` stacks"},
      {"timeout_s", &S::timeout_s, "seconds", "deadline of every exchange, connecting included", 1e-3, 1e6},
      {"bucket_mib", &S::bucket_mib, "MiB", "dense gradients are all-reduced in buckets of this size", 1e-3, 1e5},
      {"lossy",
       &S::lossy,
       "",
       "what a transport that can may send with less precision: `rows` (looked-up ones), `gradients` (theirs)",
       0,
       0,
       {"rows", "gradients"}},
  };
  return table;
}

template <>
const std::vector<Field<ModelConfig>>& fields<ModelConfig>() {
  using S = ModelConfig;
  static const std::vector<Field<S>> table = {
      {"type",
       &S::type,
       "",
       "`dlrm`, made from the keys below, or `graph`: of the [[layer]]s, and what is meant where there are any",
       0,
       0,
       {"dlrm", "graph"}},
      {"inputs", &S::inputs, "", "graph: `dense`, `pooled`, tables, features that layers may take; empty: all"},
      {"embedding_dim", &S::embedding_dim, "floats per row", "of every table that does not say otherwise", 1, kInt32},
      {"bottom_mlp", &S::bottom_mlp, "layer widths", "dlrm: over the dense inputs; the last is the embedding_dim", 1,
       kInt32},
      {"top_mlp", &S::top_mlp, "layer widths", "dlrm: over the interactions; the last is 1, the logit", 1, kInt32},
  };
  return table;
}

template <>
const std::vector<Field<LayerConfig>>& fields<LayerConfig>() {
  using S = LayerConfig;
  static const std::vector<Field<S>> table = {
      {"name", &S::name, "", "required and unique; other layers and heads take it by this name"},
      {"type", &S::type, "layer", "of a module plugin: `mlp`, `cross`, ..."},
      {"inputs", &S::inputs, "", "inputs of the model and other layers; `experts:1` is the second output of `experts`"},
      {"options", &S::options, "", "`{ widths = [64, 1] }`: the layer's own; it is told the widths of its inputs"},
      {"optimizer", &S::optimizer, "",
       "`{ learning_rate = 0.001 }`: of its parameters, where it differs from [dense_optimizer]; docs/training.md"},
      {"names", &S::names, "",
       "`{ \"*\" = \"over_arch.model.*\" }`: what checkpoints call its parameters; unset: as the layer; "
       "docs/graphs.md"},
      {"trainable", &S::trainable, "", "`false`: its parameters stay as they begin"},
  };
  return table;
}

template <>
const std::vector<Field<HeadConfig>>& fields<HeadConfig>() {
  using S = HeadConfig;
  static const std::vector<Field<S>> table = {
      {"name", &S::name, "", "required and unique"},
      {"input", &S::input, "", "the layer whose output is trained"},
      {"loss", &S::loss, "", "of that and the label"},
      {"label", &S::label, "", "column of the data"},
      {"weight", &S::weight, "", "of this loss in the sum of all", 0, kInfinity},
      {"groups", &S::groups, "", "column of ids, one a sample: a loss of pairs compares samples of one id alone"},
  };
  return table;
}

template <>
const std::vector<Field<TableConfig>>& fields<TableConfig>() {
  using S = TableConfig;
  static const std::vector<Field<S>> table = {
      {"name", &S::name, "", "required and unique"},
      {"rows", &S::rows, "rows", "0: as the data describes the column of the first feature", 0, kMany},
      {"any_id", &S::any_id, "",
       "ids are any number from 0 up, and `rows` says how many have a row at a time: for kernels whose rows come on "
       "demand"},
      {"features", &S::features, "", "columns of the data that read this table; empty: the one of the table's name"},
      {"pooling",
       &S::pooling,
       "",
       "`sum`, `mean`; `none`: rows stay a sequence, for layers that take one; `auto`: as the data says, else sum",
       0,
       0,
       {"auto", "sum", "mean", "none"}},
      {"embedding_dim", &S::embedding_dim, "floats per row", "0: the model's", 0, kInt32},
      {"data_type",
       &S::data_type,
       "",
       "of the stored rows: `float32`, `float16` or `bfloat16`",
       0,
       0,
       {"float32", "fp32", "float16", "fp16", "bfloat16", "bf16"}},
      {"init",
       &S::init,
       "",
       "start values: `uniform`, or `log_frequency`: of a table of dimension 1, ln of the part of all ids of the "
       "training rows that are this one; docs/training.md",
       0,
       0,
       {"uniform", "log_frequency"}},
      {"init_range", &S::init_range, "", "start values are uniform in +- this; unset: 1 / sqrt(rows)", 0, kInfinity},
      {"bounds_check",
       &S::bounds_check,
       "",
       "an id outside the table: `fatal` refuses the data; `ignore` and `warning` drop it, and count",
       0,
       0,
       {"fatal", "ignore", "warning"}},
      {"compute_kernel", &S::compute_kernel, "",
       "compute kernel: `fused` updates rows in backward, `dense` hands gradients out, one of a plugin's own, with "
       "options for the table as `acme.tensor_train?ranks=8`; `auto`: any"},
      {"optimizer", &S::optimizer, "", "`{ name = \"...\", ... }`: the optimizer of the rows and its options"},
      {"max_gradient", &S::max_gradient, "", "the output's gradient is clamped to +- this; 0: not", 0, kInfinity},
      {"trainable", &S::trainable, "", "`false`: rows stay as they begin, for the optimizer's learning rate is 0"},
      {"sharding", &S::sharding, "",
       "sharding types that the planner may use, as `acme.hot?threshold=500` with options; empty: any"},
      {"compute_kernels", &S::compute_kernels, "",
       "compute kernels that the planner may choose from, and values of their options (docs/plans.md, How a plan is "
       "found); empty: `compute_kernel`"},
      {"ranks", &S::ranks, "ranks", "where shards may live; empty: anywhere", 0, kInt32},
      {"forbidden_ranks", &S::forbidden_ranks, "ranks", "where shards may not live", 0, kInt32},
      {"keep_together", &S::keep_together, "", "name of a group: its tables share their ranks, shard by shard"},
      {"keep_apart", &S::keep_apart, "", "names of groups: no two tables of one share a rank"},
      {"min_partition", &S::min_partition, "columns", "least width of a column shard; 0: the sharder's", 0, kInt32},
      {"max_shards", &S::max_shards, "shards", "0: no limit", 0, kInt32},
      {"pooling_factor", &S::pooling_factor, "ids per sample",
       "what the planner expects, one number per feature or one for all; empty: 1", 0, kInfinity},
  };
  return table;
}

template <>
const std::vector<Field<DenseOptimizerConfig>>& fields<DenseOptimizerConfig>() {
  using S = DenseOptimizerConfig;
  static const std::vector<Field<S>> table = {
      {"name", &S::name, "", "optimizer of the dense layers: `adagrad`, `rowwise_adagrad`, `sgd` or `adam`"},
      {"learning_rate", &S::learning_rate, "", "times the factor of `schedule.dense`", 0, kInfinity},
      {"eps", &S::eps, "", "all but sgd: added to the root", 0, kInfinity},
      {"momentum", &S::momentum, "", "sgd", 0, 1},
      {"beta1", &S::beta1, "", "adam", 0, 1},
      {"beta2", &S::beta2, "", "adam", 0, 1},
      {"weight_decay", &S::weight_decay, "", "times the weight, added to the gradient", 0, kInfinity},
      {"max_gradient_norm", &S::max_gradient_norm, "",
       "all dense gradients together are scaled down to this norm; 0: not", 0, kInfinity},
  };
  return table;
}

template <>
const std::vector<Field<PlannerConfig>>& fields<PlannerConfig>() {
  using S = PlannerConfig;
  static const std::vector<Field<S>> table = {
      {"plan", &S::plan, "file", "a saved plan to run, which keeps to what the tables say; empty: make one"},
      {"cost_model",
       &S::cost_model,
       "",
       "`default`: the kernels' estimates and the figures of `topology`; `torchrec`: TorchRec's formulas",
       0,
       0,
       {"default", "torchrec"}},
      {"topology", &S::topology, "file", "figures of this machine, from `tessera calibrate`; empty: typical ones"},
      {"hbm_gib", &S::hbm_gib, "GiB",
       "device memory to plan with, one number per rank or one for all; empty or 0: what the device has", 0, 1e9},
      {"ddr_gib", &S::ddr_gib, "GiB",
       "host memory to plan with, one number per rank or one for all; empty or 0: an equal part of what the machine, "
       "or its container (cgroup v1 or v2), has left",
       0, 1e9},
      {"ssd_gib", &S::ssd_gib, "GiB",
       "disk to plan with for kernels that keep rows there, one number per rank or one for all; empty or 0: an equal "
       "part of what the file system of /var/tmp has free",
       0, 1e9},
      {"local_world_size", &S::local_world_size, "ranks per host", "to plan for; 0: as launched", 0, kInt32},
      {"search",
       &S::search,
       "",
       "`balanced`: the busiest rank's load is brought down shard by shard; `torchrec`: TorchRec's proposals and "
       "greedy",
       0,
       0,
       {"balanced", "torchrec"}},
      {"time_limit_s", &S::time_limit_s, "seconds", "for finding a plan, or why there is none; 0: no limit", 0, 1e6},
  };
  return table;
}

template <>
const std::vector<Field<DataConfig>>& fields<DataConfig>() {
  using S = DataConfig;
  static const std::vector<Field<S>> table = {
      {"reader", &S::reader, "",
       "a reader plugin (`csv`, `tsv`), or `prepared`, `movielens-100k`, `criteo-tsv`, `synthetic`; unset with a "
       "`path`: by its ending; docs/data.md"},
      {"path", &S::path, "directory or file",
       "where the reader finds its files; relative to the working directory; for reader plugins also a pattern"},
      {"test_path", &S::test_path, "file", "criteo-tsv, reader plugins: the test rows; empty: as `test` says"},
      {"split", &S::split, "", "movielens-100k: `user` (last fifth of each user is test) or `time`"},
      {"batch", &S::batch, "samples", "global: cut evenly between the ranks; the last two of an epoch share the rest",
       1, kInt32},
      {"epochs", &S::epochs, "passes", "over the training rows", 0, kInt32},
      {"shuffle", &S::shuffle, "", "a new order of the training rows in each epoch, from job.seed"},
      {"rows", &S::rows, "rows", "criteo-tsv, synthetic: table sizes, one per column or one for all; empty: 100000", 1,
       kMany},
      {"test", &S::test, "",
       "criteo-tsv, reader plugins: which rows are the test: `random` ones, the `last` ones, the newest by "
       "`time:COLUMN`, or `file:PATH`; empty: the last ones with `order_by` and of criteo-tsv, else random ones"},
      {"test_fraction", &S::test_fraction, "",
       "criteo-tsv, reader plugins, without a test file: part of the rows kept for the test", 0, 0.99},
      {"limit", &S::limit, "samples",
       "at most this many of each file (movielens-100k: of each part; reader plugins: of all files); 0: all", 0, kMany},
      {"samples", &S::samples, "samples", "synthetic: training rows", 0, kMany},
      {"test_samples", &S::test_samples, "samples", "synthetic: test rows", 0, kMany},
      {"columns", &S::columns, "columns", "synthetic: number of sparse columns", 1, 1e6},
      {"dense", &S::dense, "values", "synthetic: dense inputs per sample", 0, 1e6},
      {"pooling", &S::pooling, "ids per bag", "synthetic: every bag's length, one per column or one for all", 0, 1e6},
      {"labels", &S::labels, "labels", "synthetic: `label`, `label1`, ..., which are alike and not the same", 1, 1000},
      {"index_dist", &S::index_dist, "", "synthetic: `uniform` or `zipf:A` with exponent A"},
      {"buffer_mib", &S::buffer_mib, "MiB per rank",
       "reader plugins: samples in memory; what is larger is read anew in each epoch and shuffled window by window",
       0.01, kMany},
      {"order_by", &S::order_by, "column",
       "reader plugins: rows come in the order of this column of the files, as a time; the test part is the end of it "
       "unless `test` says otherwise"},
  };
  return table;
}

template <>
const std::vector<Field<ColumnConfig>>& fields<ColumnConfig>() {
  using S = ColumnConfig;
  static const std::vector<Field<S>> table = {
      {"name", &S::name, "", "name of the column, or a list of names: each is a column with these keys"},
      {"column", &S::column, "",
       "column of the files, if it has another name: so one column of the files can be used twice; empty: `name`"},
      {"as",
       &S::as,
       "",
       "`ids` (the feature of a table), `dense`, `label`, or `weight`: what the sample's losses are multiplied with",
       0,
       0,
       {"ids", "dense", "label", "weight"}},
      {"take",
       &S::take,
       "",
       "ids, dense: what is taken of a field: its `value`; `missing`: 1 if it has no value, else 0; of a date or time "
       "`hour` (0 to 23), `weekday` (0 is Monday), `month` (0 to 11), `days` since 1970",
       0,
       0,
       {"value", "missing", "hour", "weekday", "month", "days"}},
      {"decimal", &S::decimal, "", "numbers in text: the decimal sign, `,` for `65,5`; empty: `.`"},
      {"strip", &S::strip, "", "numbers in text: characters that are left out before a number is read: `$%,`"},
      {"missing",
       &S::missing,
       "",
       "dense, weight: the value of a row that has none, before `transform`: a number, or the training rows' `mean` or "
       "`median`; unset: such a row is an error",
       -kInfinity,
       kInfinity,
       {"mean", "median"}},
      {"transform",
       &S::transform,
       "",
       "dense, in this order: `log1p` is ln(1 + max(x, 0)), `standardise` (x - mean) / deviation of the training rows",
       0,
       0,
       {"log1p", "standardise"}},
      {"threshold", &S::threshold, "", "label: 1 from this value on, else 0; unset: the column holds 0 and 1"},
      {"positive", &S::positive, "",
       "label: the word that is 1; each other word is 0; empty: the column holds numbers"},
      {"real", &S::real, "", "label: any numbers, as ratings, or probabilities of 0 to 1"},
      {"ids",
       &S::ids,
       "",
       "`row`: numbers of rows; `vocabulary`: texts, numbered as the training rows bring them, 0 for all others; "
       "`hash`: texts, hashed to `rows` rows; `bucket`: values, by how many of `bounds` they reach",
       0,
       0,
       {"row", "vocabulary", "hash", "bucket"}},
      {"min_count", &S::min_count, "times",
       "ids, `vocabulary`: texts that the training rows have less often, in all columns of the table, are as those "
       "they do not have: 0",
       1, kMany},
      {"rows", &S::rows, "rows", "ids: `row`, `hash`: of the table; 0: as the `[[table]]` says that reads the column",
       0, kMany},
      {"bounds", &S::bounds, "", "ids, `bucket`: ascending values between the buckets"},
      {"cross", &S::cross, "",
       "ids, instead of a column of the files: columns of ids, each combination of whose ids is hashed to `rows` rows"},
      {"separator", &S::separator, "", "ids: between those of a list; empty: a row has one id, or none"},
      {"weighted", &S::weighted, "",
       "ids: a list's ids have weights, in text behind a colon (`17:0.5`), that scale their rows; tables must be sums"},
      {"longest", &S::longest, "ids", "ids: of a longer list the last so many; 0: all", 0, kMany},
      {"pooling", &S::pooling, "", "ids: of a table that does not say its own", 0, 0, {"sum", "mean"}},
  };
  return table;
}

template <>
const std::vector<Field<ScheduleConfig>>& fields<ScheduleConfig>() {
  using S = ScheduleConfig;
  static const std::vector<Field<S>> table = {
      {"tables", &S::tables, "",
       "what tables' learning rates are multiplied with: stages, `linear?steps=500`, `cosine`; docs/training.md"},
      {"dense", &S::dense, "", "the same for the dense layers"},
  };
  return table;
}

template <>
const std::vector<Field<ValidationConfig>>& fields<ValidationConfig>() {
  using S = ValidationConfig;
  static const std::vector<Field<S>> table = {
      {"fraction", &S::fraction, "", "part of the training rows kept for validation; 0: none, and the keys below wait",
       0, 0.9},
      {"split",
       &S::split,
       "",
       "`random` rows, the same for every plan and number of ranks, or the `last` ones",
       0,
       0,
       {"random", "last"}},
      {"every_steps", &S::every_steps, "steps", "between validations; 0: as `every_epochs` says", 0, kInt32},
      {"every_epochs", &S::every_epochs, "epochs",
       "between validations, 0.25: four in each; beside `every_steps` left out", 1e-6, kInt32},
      {"monitor", &S::monitor, "", "the metric that says which one is best: `auc`, `click.auc`; empty: the first one"},
      {"patience", &S::patience, "validations", "training ends after so many without a better one; 0: never", 0,
       kInt32},
      {"min_delta", &S::min_delta, "", "how much better a better one has to be", 0, kMany},
      {"restore_best", &S::restore_best, "",
       "at the end, the model that validated best replaces the last one: it is tested, and saved as the last "
       "checkpoint"},
  };
  return table;
}

template <>
const std::vector<Field<MetricsConfig>>& fields<MetricsConfig>() {
  using S = MetricsConfig;
  static const std::vector<Field<S>> table = {
      {"names", &S::names, "",
       "of validations and the test: `auc`, `gauc?key=user`, `stars.rmse` of the head `stars`, a plugin's; empty: "
       "`auc`, `logloss`, `normalized_entropy` and `calibration` of heads of logits, `rmse` and `mae` of others; "
       "docs/training.md"},
      {"training", &S::training, "",
       "of the training batches, each predicted before it is learned from: `ne`, `auc?bins=1000`, `rmse`; empty: none"},
      {"window", &S::window, "samples", "of all ranks: `training` is told over the newest so many, and over all", 1,
       kMany},
  };
  return table;
}

template <>
const std::vector<Field<PublishConfig>>& fields<PublishConfig>() {
  using S = PublishConfig;
  static const std::vector<Field<S>> table = {
      {"directory", &S::directory, "directory",
       "where followers find what was learnt; empty: nothing is published; docs/online.md"},
      {"every_s", &S::every_s, "seconds", "between publications; 0: not by time", 0, 1e7},
      {"every_steps", &S::every_steps, "steps", "between publications; 0: not by steps; with both, what comes first", 0,
       kInt32},
      {"base_every", &S::base_every, "publications", "a whole model among so many; the others are what has changed", 1,
       kInt32},
      {"keep_bases", &S::keep_bases, "models", "that stay, with what was published behind the oldest", 1, kInt32},
      {"weights",
       &S::weights,
       "",
       "how rows are stored, as `tessera quantize` does it",
       0,
       0,
       {"fp32", "fp16", "fp8", "int8", "int4", "int2"}},
      {"tables", &S::tables, "", "tables whose rows are stored otherwise: `film=int4`"},
  };
  return table;
}

template <>
const std::vector<Field<ReportConfig>>& fields<ReportConfig>() {
  using S = ReportConfig;
  static const std::vector<Field<S>> table = {
      {"json", &S::json, "file", "where the report is written; empty: nowhere"},
      {"metrics", &S::metrics, "file", "a line of JSON for each report of progress and each validation; empty: none"},
      {"tensorboard", &S::tensorboard, "directory", "the same as an event file for TensorBoard; empty: none"},
      {"log_every", &S::log_every, "steps", "between lines of progress where there is no terminal; 0: none", 0, kInt32},
  };
  return table;
}

bool only_of_one_table(const std::string& key) { return key == "name" || key == "rows" || key == "features"; }

}  // namespace tessera::config
