#include "config/fields.h"

#include <algorithm>
#include <array>

namespace tessera::config {
namespace {
constexpr double kMany = 9.2e18;  // limited only by the type
constexpr double kInt32 = 2147483647;

Allowed range(double least, double most) { return {.least = least, .most = most}; }
Allowed at_least(double least) { return {.least = least}; }
template <class... Word>
Allowed one_of(Word... words) {
  return {.choices = {words...}};
}
}  // namespace

template <>
const std::vector<Field<PluginsConfig>>& fields<PluginsConfig>() {
  using S = PluginsConfig;
  static const std::vector<Field<S>> table = {
      {"path", &S::path, "absolute directories",
       "Directories that are searched for plugins, before the folder of the installed ones."},
      {"require", &S::require, "component ids",
       "Components that the job needs. It ends with the reason if one of them cannot be used."},
  };
  return table;
}

template <>
const std::vector<Field<JobConfig>>& fields<JobConfig>() {
  using S = JobConfig;
  static const std::vector<Field<S>> table = {
      {"seed", &S::seed, "", "Seed of start values, of the order of samples, and of synthetic data.", range(0, kMany)},
      {"device", &S::device, "",
       "`cpu`, `cuda`, `hip`, or `auto`: the best device for which a kernel plugin is installed."},
      {"kernel_plugin", &S::kernel_plugin, "component id",
       "Kernel plugin for the lookups, with options as in `acme.rows?threads=2`. `auto`: the best one for the "
       "device."},
      {"dense_precision", &S::dense_precision, "",
       "`float32`, `bfloat16` or `auto`: the type to which the inputs of the dense layers' matrix products are "
       "rounded. Weights, sums and the optimizer's states are float32. `auto`: `bfloat16` if the processor multiplies "
       "it faster. See docs/dense.md.",
       one_of("float32", "bfloat16", "auto")},
      {"threads", &S::threads, "threads per rank", "Number of threads. 0: the machine's cores divided by its ranks.",
       range(0, 4096)},
      {"pipeline", &S::pipeline, "",
       "Take the next batch in while the current one trains; results stay the same. Unset: `true` if every host has "
       "more cores than ranks."},
      {"accumulate", &S::accumulate, "batches",
       "Number of batches whose gradients make one update of the dense layers. Tables are updated after each batch. "
       "See docs/training.md.",
       range(1, kInt32)},
      {"ema", &S::ema, "",
       "Decay, such as 0.999, of averages of the dense layers' weights over the updates, with which the model is "
       "judged, saved and published. 0: none. See docs/training.md.",
       range(0, 0.999999)},
  };
  return table;
}

template <>
const std::vector<Field<CommConfig>>& fields<CommConfig>() {
  using S = CommConfig;
  static const std::vector<Field<S>> table = {
      {"backend", &S::backend, "component id",
       "Transport between ranks, with options as in `tcp?shm=false`; `outer:name(inner)` stacks two. `auto`: `nccl` "
       "for cuda, `mpi` under mpirun, otherwise `tcp`."},
      {"timeout_s", &S::timeout_s, "seconds", "Deadline of connecting, and of every exchange between ranks.",
       range(1e-3, 1e6)},
      {"bucket_mib", &S::bucket_mib, "MiB",
       "Size of the buckets in which dense gradients are all-reduced. A bucket's exchange starts when its layers have "
       "run backward.",
       range(1e-3, 1e5)},
      {"lossy", &S::lossy, "",
       "Data that may travel with less precision: `rows` (looked-up rows) and `gradients` (gradients of these rows), "
       "if the transport has a codec; `dense_gradients`, which travel as bfloat16 over any transport.",
       one_of("rows", "gradients", "dense_gradients")},
      {"join_exchanges", &S::join_exchanges, "",
       "When small messages of a step are joined: `always`, `never`, or with `auto` in worlds of more than 16 ranks. "
       "See docs/scale.md.",
       one_of("auto", "always", "never")},
  };
  return table;
}

template <>
const std::vector<Field<ModelConfig>>& fields<ModelConfig>() {
  using S = ModelConfig;
  static const std::vector<Field<S>> table = {
      {"type", &S::type, "",
       "`dlrm`: built from the keys below. `graph`: built from the [[layer]] sections; the "
       "default if there are any.",
       one_of("dlrm", "graph")},
      {"inputs", &S::inputs, "",
       "Inputs that the layers of a graph may take: `dense`, `pooled`, tables, features. Empty: all."},
      {"embedding_dim", &S::embedding_dim, "floats per row", "Dimension of every table that does not set its own.",
       range(1, kInt32)},
      {"bottom_mlp", &S::bottom_mlp, "layer widths",
       "Layers of a DLRM over the dense inputs. The last width must be `embedding_dim`.", range(1, kInt32)},
      {"top_mlp", &S::top_mlp, "layer widths",
       "Layers of a DLRM over the interactions. The last width must be 1, for the logit.", range(1, kInt32)},
  };
  return table;
}

template <>
const std::vector<Field<TableConfig>>& fields<TableConfig>() {
  using S = TableConfig;
  static const std::vector<Field<S>> table = {
      {"name", &S::name, "", "Required and unique."},
      {"rows", &S::rows, "rows", "Number of rows. 0: as the data say for the column of the first feature.",
       range(0, kMany)},
      {"any_id", &S::any_id, "",
       "Ids are any number from 0 up, and `rows` is how many of them have a row at a time. For compute kernels that "
       "create rows on demand."},
      {"features", &S::features, "",
       "Columns of the data that read this table. Empty: the column with the table's name. With options, such as "
       "`drawn?draw=uniform&count=100`, ids are drawn in each step: docs/sequences.md."},
      {"pooling", &S::pooling, "",
       "`sum`, `mean`, or `none`: rows stay a sequence, for layers that take "
       "one. `auto`: as the data say, otherwise `sum`.",
       one_of("auto", "sum", "mean", "none")},
      {"embedding_dim", &S::embedding_dim, "floats per row", "Dimension of the table. 0: `model.embedding_dim`.",
       range(0, kInt32)},
      {"data_type", &S::data_type, "", "Type of the stored rows: `float32`, `float16` or `bfloat16`.",
       one_of("float32", "fp32", "float16", "fp16", "bfloat16", "bf16")},
      {"rounding", &S::rounding, "",
       "How updated rows of `float16` and `bfloat16` are rounded: `nearest`, or `stochastic`, up or down at random, so "
       "that small updates are not lost. See docs/training.md.",
       one_of("nearest", "stochastic")},
      {"init", &S::init, "",
       "Start values: `uniform`, or `log_frequency` for a table of dimension 1: "
       "ln of an id's share of all ids in the training rows. See "
       "docs/training.md.",
       one_of("uniform", "log_frequency")},
      {"start", &S::start, "file",
       "File of vectors, `.npy`, with which rows begin, and beside it FILE.ids.txt with the id of each in a line. "
       "Empty: as `init` says. See docs/training.md."},
      {"init_range", &S::init_range, "",
       "Uniform start values lie between -init_range and +init_range. Unset: 1 / sqrt(rows).", at_least(0)},
      {"bounds_check", &S::bounds_check, "",
       "Treatment of an id outside the table: `fatal` refuses the data, "
       "`ignore` and `warning` drop the id and count it.",
       one_of("fatal", "ignore", "warning")},
      {"compute_kernel", &S::compute_kernel, "",
       "`fused` updates rows during backward, `dense` hands gradients out; or a plugin's own, with options as in "
       "`acme.tensor_train?ranks=8`. `auto`: any."},
      {"optimizer", &S::optimizer, "",
       "Optimizer of the rows and its options, as in `{ name = \"adam\", learning_rate = 0.001 }`."},
      {"max_gradient", &S::max_gradient, "",
       "Bound for each value of the output's gradient, which is clamped to +- this. 0: none.", at_least(0)},
      {"use_index_dedup", &S::use_index_dedup, "", "Send a row that a batch repeats once. See docs/sequences.md."},
      {"trainable", &S::trainable, "", "`false` keeps the rows at their start values."},
      {"sharding", &S::sharding, "",
       "Sharding types that the planner may use, with options as in `acme.hot?threshold=500`. Empty: any."},
      {"compute_kernels", &S::compute_kernels, "",
       "Compute kernels that the planner may use, also with several values of an option. Empty: only "
       "`compute_kernel`. See docs/plans.md."},
      {"ranks", &S::ranks, "ranks", "Ranks that may store shards. Empty: all.", range(0, kInt32)},
      {"forbidden_ranks", &S::forbidden_ranks, "ranks", "Ranks that may not store shards.", range(0, kInt32)},
      {"keep_together", &S::keep_together, "", "Name of a group. Shard i of each of its tables is on the same rank."},
      {"keep_apart", &S::keep_apart, "", "Names of groups. No two tables of a group share a rank."},
      {"min_partition", &S::min_partition, "columns", "Least width of a column shard. 0: as the sharder says.",
       range(0, kInt32)},
      {"max_shards", &S::max_shards, "shards", "Maximum number of shards. 0: no limit.", range(0, kInt32)},
      {"pooling_factor", &S::pooling_factor, "ids per sample",
       "Bag length that the planner expects: one number for all features, or one for each. Empty: as in "
       "the data, otherwise 1.",
       at_least(0)},
  };
  return table;
}

template <>
const std::vector<Field<DenseOptimizerConfig>>& fields<DenseOptimizerConfig>() {
  using S = DenseOptimizerConfig;
  static const std::vector<Field<S>> table = {
      {"name", &S::name, "",
       "Optimizer of the dense layers: `adagrad`, `rowwise_adagrad`, `sgd`, `adam`, `adamw`, `rmsprop` or "
       "`adadelta`."},
      {"learning_rate", &S::learning_rate, "", "Learning rate, which `schedule.dense` scales.", at_least(0)},
      {"eps", &S::eps, "", "Term added to the root, by all optimizers except sgd.", at_least(0)},
      {"momentum", &S::momentum, "", "Momentum of sgd.", range(0, 1)},
      {"alpha", &S::alpha, "", "Decay of rmsprop's mean of squares.", range(0, 1)},
      {"rho", &S::rho, "", "Decay of adadelta's means of squares.", range(0, 1)},
      {"beta1", &S::beta1, "", "Decay of the first moment, of adam and adamw.", range(0, 1)},
      {"beta2", &S::beta2, "", "Decay of the second moment, of adam and adamw.", range(0, 1)},
      {"weight_decay", &S::weight_decay, "",
       "Factor of the weight that is added to the gradient; of adamw, that is taken off the weight itself, times the "
       "learning rate.",
       at_least(0)},
      {"max_gradient_norm", &S::max_gradient_norm, "",
       "Bound for the norm of all dense gradients together; larger ones are scaled down. 0: none.", at_least(0)},
  };
  return table;
}

template <>
const std::vector<Field<PlannerConfig>>& fields<PlannerConfig>() {
  using S = PlannerConfig;
  static const std::vector<Field<S>> table = {
      {"plan", &S::plan, "file", "Saved plan to run. It must agree with the tables. Empty: make a plan."},
      {"cost_model", &S::cost_model, "",
       "`default`: estimates of the kernels, from the figures of `topology`. "
       "`torchrec`: TorchRec's formulas.",
       one_of("default", "torchrec")},
      {"topology", &S::topology, "file", "Figures of this machine, from `tessera calibrate`. Empty: typical figures."},
      {"hbm_gib", &S::hbm_gib, "GiB",
       "Device memory to plan with: one number for all ranks, or one for each. Empty or 0: as the "
       "device has.",
       range(0, 1e9)},
      {"ddr_gib", &S::ddr_gib, "GiB",
       "Host memory to plan with: one number for all ranks, or one for each. Empty or 0: an equal "
       "part of the free memory of the machine or container.",
       range(0, 1e9)},
      {"ssd_gib", &S::ssd_gib, "GiB",
       "Disk to plan with, for kernels that keep rows there: one number for all ranks, or one for "
       "each. Empty or 0: an equal part of the free space in the file system of /var/tmp.",
       range(0, 1e9)},
      {"local_world_size", &S::local_world_size, "ranks per host",
       "Number of ranks per host to plan for. 0: as launched.", range(0, kInt32)},
      {"search", &S::search, "",
       "`balanced` lowers the load of the busiest rank, shard by shard. `torchrec`: "
       "TorchRec's proposers and greedy partitioner.",
       one_of("balanced", "torchrec")},
      {"time_limit_s", &S::time_limit_s, "seconds",
       "Time to find a plan, or the reason why there is none. 0: no limit.", range(0, 1e6)},
  };
  return table;
}

template <>
const std::vector<Field<DataConfig>>& fields<DataConfig>() {
  using S = DataConfig;
  static const std::vector<Field<S>> table = {
      {"reader", &S::reader, "",
       "A reader plugin such as `csv`, or `synthetic`, which generates data. If only `path` is set, the reader plugins "
       "say which of them opens it. See docs/data.md."},
      {"path", &S::path, "directory or file",
       "Place of the files, relative to the working directory. Most reader plugins also take a pattern."},
      {"test_path", &S::test_path, "file", "Reader plugins: file of the test rows. Empty: as `test` says."},
      {"batch", &S::batch, "samples",
       "Size of the global batch, divided evenly between the ranks. The last two batches of an "
       "epoch share the rest.",
       range(1, kInt32)},
      {"epochs", &S::epochs, "passes", "Passes over the training rows.", range(0, kInt32)},
      {"shuffle", &S::shuffle, "", "Put the training rows into a new order in each epoch, drawn from `job.seed`."},
      {"rows", &S::rows, "rows",
       "`synthetic`, and readers whose texts are hashed to rows: sizes of the tables, one number for all columns or "
       "one for each. Empty: 100000.",
       range(1, kMany)},
      {"test", &S::test, "",
       "Reader plugins: test rows, `random`, `last`, the newest by `time:COLUMN`, or `file:PATH`. Empty: `last` with "
       "`order_by` and for readers that know their columns, otherwise `random`."},
      {"test_fraction", &S::test_fraction, "",
       "Reader plugins: share of the rows that are test rows, if no file has them.", range(0, 0.99)},
      {"limit", &S::limit, "samples",
       "Maximum number of samples of all files, and of the test part's files. 0: no limit.", range(0, kMany)},
      {"samples", &S::samples, "samples", "`synthetic`: number of training rows.", range(0, kMany)},
      {"test_samples", &S::test_samples, "samples", "`synthetic`: number of test rows.", range(0, kMany)},
      {"columns", &S::columns, "columns", "`synthetic`: number of sparse columns.", range(1, 1e6)},
      {"dense", &S::dense, "values", "`synthetic`: number of dense inputs.", range(0, 1e6)},
      {"pooling", &S::pooling, "ids per bag",
       "`synthetic`: length of every bag, one number for all columns or one for each.", range(0, 1e6)},
      {"labels", &S::labels, "labels",
       "`synthetic`: number of labels, called `label`, `label1`, ...; they are correlated.", range(1, 1000)},
      {"index_dist", &S::index_dist, "",
       "`synthetic`: distribution of the ids, `uniform` or `zipf:A` with the exponent A."},
      {"buffer_mib", &S::buffer_mib, "MiB per rank",
       "Reader plugins: memory for samples. Larger data are read again in each epoch and "
       "shuffled window by window.",
       range(0.01, kMany)},
      {"order_by", &S::order_by, "column",
       "Reader plugins: column of the files, such as a time, that gives the order of the rows. The last ones are the "
       "test rows unless `test` says otherwise."},
  };
  return table;
}

template <>
const std::vector<Field<ColumnConfig>>& fields<ColumnConfig>() {
  using S = ColumnConfig;
  static const std::vector<Field<S>> table = {
      {"name", &S::name, "", "Name of the column, or a list of names: each becomes a column with these keys."},
      {"column", &S::column, "",
       "Name of the column in the files. Empty: `name`. So one column of the files can be used twice."},
      {"as", &S::as, "",
       "Use of the column: `ids` (a feature of a table), `dense`, `vector` (a list of `width` numbers, which layers "
       "take by the column's name), `label`, or `weight` (a factor of the sample's losses).",
       one_of("ids", "dense", "vector", "label", "weight")},
      {"width", &S::width, "values", "Number of values of a `vector`. Each row of the files must have as many.",
       range(0, 1e6)},
      {"take", &S::take, "",
       "Part of the field that becomes an id or a dense value. `value`: all of it; `missing`: 1 if it is empty, "
       "otherwise 0. Of a date or time: `hour` (0 to 23), `weekday` (0 is Monday), `month` (0 to 11), and `days`, "
       "`hours` or `minutes` since 1970 or `since`.",
       one_of("value", "missing", "hour", "weekday", "month", "days", "hours", "minutes")},
      {"decimal", &S::decimal, "", "Decimal sign of numbers in text: `,` for `65,5`. Empty: `.`"},
      {"strip", &S::strip, "", "Characters that are left out of numbers in text, as in `$%,`."},
      {"missing_words", &S::missing_words, "",
       "Words that stand for a missing number or time, as `unknown` does. NA, null and the like then do as well."},
      {"time_format", &S::time_format, "",
       "Form of the dates and times that `take` reads, as `%d.%m.%Y %H:%M`. Empty: ISO 8601, or numbers since 1970."},
      {"since", &S::since, "",
       "Date or time, as `2024-01-31`, from which `days`, `hours` and `minutes` count. Empty: 1970."},
      {"missing", &S::missing, "",
       "Value of an empty field of `dense` and `weight`, before `transform`: a number, or "
       "`mean` or `median` of the training rows. For a `vector`, a number, which is each of its values. Unset: an "
       "empty field is an error.",
       one_of("mean", "median")},
      {"transform", &S::transform, "",
       "Transforms of dense values, in this order: `log1p` is ln(1 + max(x, 0)), "
       "`standardise` is (x - mean) / deviation over the training rows.",
       one_of("log1p", "standardise")},
      {"threshold", &S::threshold, "",
       "Least number whose label is 1; smaller ones have the label 0. Unset: the column holds 0 and 1."},
      {"positive", &S::positive, "",
       "Word whose label is 1; every other word has the label 0. Empty: the column holds numbers."},
      {"real", &S::real, "", "`true`: a label is any number, such as a rating or a probability."},
      {"ids", &S::ids, "",
       "How fields become ids. `row`: they are ids. `vocabulary`: texts get the numbers that the training rows teach, "
       "unknown texts 0. `hash`: texts are hashed to `rows` rows. `bucket`: numbers become how many of `bounds` they "
       "reach.",
       one_of("row", "vocabulary", "hash", "bucket")},
      {"min_count", &S::min_count, "times",
       "Texts that the training rows have less often are unknown to the vocabulary. All columns of "
       "the table are counted together.",
       range(1, kMany)},
      {"rows", &S::rows, "rows",
       "Number of rows of the table, for `ids` of `row` and `hash`. 0: as its [[table]] says.", range(0, kMany)},
      {"bounds", &S::bounds, "", "Bounds between the buckets, in ascending order."},
      {"cross", &S::cross, "",
       "Columns of ids whose combinations are hashed to `rows` rows. This column then reads nothing from the files."},
      {"separator", &S::separator, "",
       "Text between the ids of a list, or the numbers of a `vector`. Empty: a field is one id, or none; the numbers "
       "have blanks between them, or commas and brackets around them."},
      {"weighted", &S::weighted, "",
       "`true`: each id of a list has a weight that scales its row, in text as `17:0.5`. The tables must be sums."},
      {"longest", &S::longest, "ids", "Maximum length of a list; longer ones keep their last ids. 0: no limit.",
       range(0, kMany)},
      {"pooling", &S::pooling, "", "Pooling of the column's tables that do not set their own.", one_of("sum", "mean")},
  };
  return table;
}

template <>
const std::vector<Field<ScheduleConfig>>& fields<ScheduleConfig>() {
  using S = ScheduleConfig;
  static const std::vector<Field<S>> table = {
      {"tables", &S::tables, "",
       "Factors of the tables' learning rates over the steps, in stages: `[\"linear?steps=500\", \"cosine\"]`. "
       "Empty: 1. See docs/training.md."},
      {"dense", &S::dense, "", "The same for the dense layers."},
  };
  return table;
}

template <>
const std::vector<Field<ValidationConfig>>& fields<ValidationConfig>() {
  using S = ValidationConfig;
  static const std::vector<Field<S>> table = {
      {"fraction", &S::fraction, "", "Share of the training rows that are kept back for validation. 0: no validation.",
       range(0, 1)},
      {"folds", &S::folds, "models",
       "With K, `tessera train` trains K models. Each is judged by another of K random parts of the training rows, and "
       "trained on the other parts. 0: one model. See docs/training.md.",
       range(0, 1000)},
      {"split", &S::split, "",
       "`random` rows, the same for every plan and number of ranks; the `last` rows; or `data`: a random `fraction` of "
       "the rows that the reader keeps for it, which are not trained on.",
       one_of("random", "last", "data")},
      {"every_steps", &S::every_steps, "steps", "Steps between validations. 0: as `every_epochs` says.",
       range(0, kInt32)},
      {"every_epochs", &S::every_epochs, "epochs",
       "Epochs between validations; 0.25 makes four in an epoch. Not used if `every_steps` is "
       "set.",
       range(1e-6, kInt32)},
      {"monitor", &S::monitor, "",
       "Metric that decides which model is the best: `auc`, `click.auc`. Empty: the first metric."},
      {"patience", &S::patience, "validations",
       "Training ends after this many validations without a better one. 0: never.", range(0, kInt32)},
      {"min_delta", &S::min_delta, "", "Least difference of the metric that counts as better.", range(0, kMany)},
      {"restore_best", &S::restore_best, "",
       "At the end, replace the last model with the one that validated best: it is tested, and saved as the last "
       "checkpoint."},
  };
  return table;
}

template <>
const std::vector<Field<MetricsConfig>>& fields<MetricsConfig>() {
  using S = MetricsConfig;
  static const std::vector<Field<S>> table = {
      {"names", &S::names, "",
       "Metrics of validations and the test: `auc`, `gauc?key=user`, `stars.rmse` of the head `stars`, or a "
       "plugin's. Empty: `auc`, `logloss`, `normalized_entropy` and `calibration` for heads of logits, "
       "`multiclass_accuracy`, `multiclass_logloss` and `multiclass_normalized_entropy` for heads of classes, "
       "`rmse` and `mae` for others, none for heads of `product`. See docs/training.md."},
      {"training", &S::training, "",
       "Metrics of the training batches, each predicted before the model learns from it: `ne`, `auc?bins=1000`, "
       "`rmse`. Empty: none."},
      {"window", &S::window, "samples",
       "Number of newest samples, over all ranks, for the values of `training` in the window.", range(1, kMany)},
  };
  return table;
}

template <>
const std::vector<Field<PublishConfig>>& fields<PublishConfig>() {
  using S = PublishConfig;
  static const std::vector<Field<S>> table = {
      {"directory", &S::directory, "",
       "Directory for the changes of the model, which servers follow. Empty: nothing is published. See "
       "docs/online.md."},
      {"every_s", &S::every_s, "seconds", "Time between publications. 0: not by time.", range(0, 1e7)},
      {"every_steps", &S::every_steps, "steps",
       "Steps between publications. 0: not by steps. If both are set, the earlier one counts.", range(0, kInt32)},
      {"base_every", &S::base_every, "publications",
       "One publication in this many has the whole model; the others have only the changes.", range(1, kInt32)},
      {"keep_bases", &S::keep_bases, "models",
       "Number of newest whole models that are kept, with the changes after the oldest of them.", range(1, kInt32)},
      {"weights", &S::weights, "",
       "Format of the published rows, as in `tessera "
       "quantize`.",
       one_of("fp32", "fp16", "fp8", "int8", "int4", "int2")},
      {"tables", &S::tables, "", "Formats of single tables: `film=int4`."},
  };
  return table;
}

template <>
const std::vector<Field<ReportConfig>>& fields<ReportConfig>() {
  using S = ReportConfig;
  static const std::vector<Field<S>> table = {
      {"json", &S::json, "file", "File for the report, as JSON. Empty: none."},
      {"metrics", &S::metrics, "file", "File for progress and validations, a line of JSON for each. Empty: none."},
      {"tensorboard", &S::tensorboard, "directory",
       "Directory for the same values as an event file for TensorBoard. Empty: none."},
      {"log_every", &S::log_every, "steps",
       "Steps between lines of progress if the output is not a terminal. 0: no lines.", range(0, kInt32)},
  };
  return table;
}

const char* introduction(std::string_view section) {
  struct Introduction {
    std::string_view section;
    const char* text;
  };
  static constexpr std::array<Introduction, 18> kAll = {{
      {"plugins", "Plugins are shared libraries with components."},
      {"job", "The job's device, threads and random numbers."},
      {"comm", "Ranks exchange ids, rows and gradients over a transport."},
      {"model", "The model is a DLRM of these sizes, or a graph of layers. See docs/graphs.md."},
      {"layer", "Each section is a layer of a graph."},
      {"head", "Each section is a trained output of a graph. The model's loss is the sum of the heads' losses."},
      {"table", "Each section is a table. The next list has more of its keys."},
      {"table_defaults",
       "A value in [table_defaults] holds for all tables that do not set the key. The keys from `sharding` on are\n"
       "constraints for the planner. See docs/plans.md."},
      {"dense_optimizer", "This optimizer trains the parameters of the dense layers."},
      {"planner", "The planner decides which rank stores which shard. See docs/plans.md."},
      {"data", "A key whose description names readers is refused with any other reader. See docs/data.md."},
      {"column", "Each section says how the model uses a column of the files, if a reader plugin reads them."},
      {"history", "Histories of users, made from rows of events. See docs/sequences.md."},
      {"schedule", "A schedule scales the learning rates over the steps."},
      {"validation", "Validations judge the model during training, by rows that it is not trained on."},
      {"metrics", "Metrics judge the model's predictions. See docs/training.md."},
      {"publish", "A job may publish its model during training, for servers that follow it."},
      {"report", "Reports go to files besides the terminal."},
  }};
  const auto* const at =
      std::find_if(kAll.begin(), kAll.end(), [&](const Introduction& one) { return section == one.section; });
  return at == kAll.end() ? "" : at->text;
}

bool only_of_one_table(const std::string& key) { return key == "name" || key == "rows" || key == "features"; }

}  // namespace tessera::config
