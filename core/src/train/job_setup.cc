#include "train/job_setup.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "data/hold_out.h"
#include "tessera/checkpoint.h"
#include "tessera/config.h"
#include "tessera/layer_graph.h"
#include "tessera/planner.h"
#include "tessera/sdk/draft/reader_paths.h"
#include "tessera/sdk/nearest.h"
#include "tessera/train_loop.h"
#include "train/dense_spec.h"
#include "train/drawn_ids.h"
#include "train/job_model.h"
#include "train/observed_inputs.h"
#include "train/same_data.h"
#include "train/same_job.h"
#include "train/saved_model.h"
#include "train/sorted_rows.h"
#include "train/start_rows.h"
#include "train/start_vectors.h"
#include "train/start_warnings.h"
#include "train/unknown_id_sums.h"
#include "train/warm_start.h"

namespace tessera {
namespace {

using json = nlohmann::ordered_json;

ShardingPlan read_plan(const std::string& path) {
  const std::string text = read_file(path, "planner.plan: cannot read ");
  try {
    return ShardingPlan::from_json(text);
  } catch (const Error& e) {
    throw Error(e.code(), path + ": " + e.what());
  }
}

// Heads that fit every metric, to check the names of metrics before anything else is known.
std::vector<Prediction> named_heads(const Config& config) {
  if (config.model.type != kGraphType) return {{}};
  std::vector<Prediction> out;
  for (const HeadConfig& h : config.heads) out.push_back({.head = h.name, .classes = std::nullopt});
  return out;
}

// Fails if a metric is asked for whose head has none, or if none of the heads has one.
void check_heads_of_metrics(const Config& config, const JobOutline& job) {
  const auto refuse = [](const std::string& what, const UnjudgedHead& head) {
    fail(Code::kInvalidArgument, what, ", but the head \"", head.name, "\" has no metrics, because ", head.why);
  };
  for (const auto& [key, names] : {std::pair{"names", &config.metrics.names}, {"training", &config.metrics.training}}) {
    for (const std::string& name : *names) {
      const std::string what = str_cat("metrics.", key, " has \"", name, '"');
      for (const UnjudgedHead& head : job.others) {
        if (name.starts_with(head.name + ".") || job.heads.empty()) refuse(what, head);
      }
    }
  }
  if (job.heads.empty() && !job.others.empty() && (config.validation.fraction > 0 || config.validation.folds > 0))
    refuse(str_cat("validation.", config.validation.folds > 0 ? "folds" : "fraction",
                   " asks for validation, which compares models by a metric"),
           job.others[0]);
}

// Fails if a metric's groups name no column of ids.
void check_keys(const HeadMetrics& metrics, const std::vector<DataColumn>& columns) {
  std::vector<std::string> known;
  for (const DataColumn& c : columns) known.push_back(c.name);
  for (const std::string& key : metrics.keys()) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      fail(Code::kInvalidArgument, "metrics.names has a metric by \"", key, "\", which is not a column of ids",
           sdk::nearest_text(key, known));
  }
}

// Fails if a label with `real = true` meets a metric that needs labels from 0 to 1. (Heads of logits are left out,
// because their loss needs such labels itself.)
void check_labels(const Config& config, const std::vector<Prediction>& heads, const Runtime& runtime) {
  const auto is_real = [&](const std::string& label) {
    return std::any_of(config.columns.begin(), config.columns.end(), [&](const ColumnConfig& c) {
      return c.as == "label" && c.real && std::find(c.name.begin(), c.name.end(), label) != c.name.end();
    });
  };
  std::vector<std::string> names = config.metrics.names;
  names.insert(names.end(), config.metrics.training.begin(), config.metrics.training.end());
  for (const HeadMetric& m : head_metrics(heads, names, &runtime)) {
    const Prediction& head = heads[m.head];
    const auto of = std::find_if(config.heads.begin(), config.heads.end(),
                                 [&](const HeadConfig& h) { return h.name == head.head; });
    if (head.logits || head.classes > 0 || of == config.heads.end() || !is_real(of->label)) continue;
    if (!MetricSet({m.name}, {.runtime = &runtime, .classes = head.classes}).info(m.name).any_labels)
      fail(Code::kInvalidArgument, "the metric \"", m.name, "\" needs labels from 0 to 1, but the label \"", of->label,
           "\" of the head \"", head.head, "\" may be any number (real = true); rmse, mae and ndcg fit such labels");
  }
}

// Returns one path for a folder, however it is spelled. If it cannot be resolved, the given spelling stays.
std::filesystem::path place_of(const std::string& folder) {
  std::error_code failed;
  const std::filesystem::path place = std::filesystem::weakly_canonical(std::filesystem::absolute(folder), failed);
  return ((failed ? std::filesystem::path(folder) : place) / "").lexically_normal();
}

// Refuses URLs of object stores as places that a job writes to.
void check_places(const Config& config, const TrainJobOptions& options) {
  const std::pair<const char*, const std::string&> places[] = {{"publish.directory", config.publish.directory},
                                                               {"report.tensorboard", config.report.tensorboard},
                                                               {"--save", options.save},
                                                               {"--save-best", options.save_best}};
  for (const auto& [key, place] : places) {
    if (sdk::is_url(place))
      fail(Code::kInvalidArgument, key, ": ", place, " is a URL, but a job writes on this machine: name a path here, ",
           "and take what is written to a store by `tessera copy`");
  }
}

// Checks settings that need neither data nor model.
void check_settings(const Runtime& runtime, const Config& config, const TrainJobOptions& options) {
  check_places(config, options);
  (void)HeadMetrics(named_heads(config), config.metrics.names, &runtime);
  (void)make_dense_optimizer(dense_spec(config.dense_optimizer), {});
  for (const LayerConfig& layer : config.layers) (void)dense_spec(layer, config.dense_optimizer);
  for (const auto& stages : {config.schedule.tables, config.schedule.dense}) (void)LearningRateSchedule(stages, 1);
  const ValidationConfig& v = config.validation;
  if (v.folds == 1) fail(Code::kInvalidArgument, "validation.folds = 1 leaves no rows to train on: take 2 or more");
  if (v.every_steps > 0 && v.every_epochs != ValidationConfig().every_epochs)
    fail(Code::kInvalidArgument, "validation.every_epochs = ", v.every_epochs,
         " has no effect with validation.every_steps: leave one of the two out");
  const char* const validates = !options.save_best.empty() ? "--save-best"
                                : v.patience > 0           ? "validation.patience"
                                : !v.monitor.empty()       ? "validation.monitor"
                                : v.restore_best           ? "validation.restore_best"
                                                           : nullptr;
  if (v.fraction == 0 && v.folds == 0 && validates != nullptr)
    fail(Code::kInvalidArgument, validates, " needs rows to validate on: set validation.fraction");
  if (v.restore_best && !config.publish.directory.empty())
    fail(Code::kInvalidArgument,
         "validation.restore_best replaces all rows at the end, and a published model follows the rows that change: "
         "set it to false, or leave out publish.directory");
  if (!options.save_best.empty() && !options.save.empty() && place_of(options.save) == place_of(options.save_best))
    fail(Code::kInvalidArgument, "--save and --save-best are both ", options.save,
         ", but later checkpoints must not replace the best one: name another directory");
}

// Returns the encoding of the model that the job continues, if columns are encoded; "": the data makes it.
std::string encoding_to_continue(const Config& config, const TrainJobOptions& options,
                                 const std::vector<std::string>& resumable) {
  const std::string& from = resumable.empty() ? options.load : resumable[0];
  return !from.empty() && !config.columns.empty() ? saved_encoding(from) : "";
}

// The parts of a job that are known before its data is read.
struct CheckedJob {
  std::string encoding;  // of the model that is continued; "": the data makes it
  HeadMetrics metrics;
  std::optional<ValidationScores> scores;
  std::optional<TrainingMetrics> training;
};

// Saves and publications are after steps at which no batch waits for others.
void check_accumulation(const Config& config, const TrainJobOptions& options) {
  const int64_t batches = config.job.accumulate;
  const auto check = [&](int64_t every, const char* what) {
    if (every % batches != 0)
      fail(Code::kInvalidArgument, what, " ", every, " is not a multiple of job.accumulate = ", batches,
           ", after which the layers are updated: take ", (every / batches + 1) * batches);
  };
  check(options.save_every, "--save-every");
  check(config.publish.every_steps, "publish.every_steps =");
}

CheckedJob check(const Runtime& runtime, const Config& config, const TrainJobOptions& options,
                 const SaveDirectories& directories, int world_size) {
  check_accumulation(config, options);
  const std::string encoding = encoding_to_continue(config, options, directories.resumable());
  const JobOutline job = check_job(runtime, config, encoding, compute_device(options.device).id);
  const auto& [heads, others, columns] = job;
  check_heads_of_metrics(config, job);
  HeadMetrics metrics(heads, config.metrics.names, &runtime);
  check_keys(metrics, columns);
  check_labels(config, heads, runtime);
  std::optional<ValidationScores> scores;
  if (config.validation.fraction > 0 || config.validation.folds > 0) scores.emplace(config.validation, metrics);
  std::optional<TrainingMetrics> training;
  if (!config.metrics.training.empty()) training.emplace(config.metrics, heads, runtime, world_size);
  return {encoding, std::move(metrics), std::move(scores), std::move(training)};
}

// Takes the rows to validate on out of those to train on, or the reader's own.
Samples take_validation(const Config& config, Dataset& data) {
  const ValidationConfig& v = config.validation;
  if (v.folds > 0 && v.fold < 0)
    fail(Code::kInvalidArgument, "validation.folds is of tessera train, which trains a model for each: set it to 0");
  if (v.fraction == 0 && v.folds == 0) return {};
  if (v.split == "data" && !data.validation)
    fail(Code::kInvalidArgument, "validation.split = \"data\", but the reader \"", config.data.reader,
         "\" keeps no rows for validation: set it to random or last");
  auto [train, validation] = hold_out(config, data);
  data.train = std::move(train);
  if (data.train.size() == 0 || validation.size() == 0)
    fail(Code::kInvalidArgument, "validation.fraction = ", v.fraction, " leaves ", data.train.size(),
         " rows to train on and ", validation.size(), " to validate on");
  return validation;
}

// The most ids that a head gets in evaluation of a feature that is drawn; 0: it takes none.
int64_t candidates_of(const ModelTrainerOptions& model, const GraphWiring& wiring, size_t head) {
  const std::vector<std::string> features = features_of(model.graph, wiring, head, model.tables);
  int64_t out = 0;
  for (const DrawnFeature& drawn : model.drawn) {
    if (drawn.when == DrawnFeature::When::kTraining) continue;
    if (std::find(features.begin(), features.end(), drawn.name) == features.end()) continue;
    out = std::max(out, drawn.draw == DrawnFeature::Draw::kAll ? drawn.rows - drawn.first : drawn.count);
  }
  return out;
}

// Fails if a metric of ranks, such as "hit_rate@10", counts more places than its head compares items.
void check_places(const Config& config, const Runtime& runtime, const ModelTrainerOptions& model) {
  if (model.drawn.empty()) return;
  const GraphWiring wiring = wire(model.graph);
  for (const HeadMetric& m : head_metrics(named_heads(config), config.metrics.names, &runtime)) {
    const size_t at = m.name.find('@');
    if (at == std::string::npos) continue;
    int64_t places = 0;
    (void)std::from_chars(m.name.data() + at + 1, m.name.data() + m.name.size(), places);
    const int64_t items = candidates_of(model, wiring, m.head);
    if (items > 0 && places > items)
      fail(Code::kInvalidArgument, "the metric \"", m.name, "\" of the head \"", model.graph.heads[m.head].name,
           "\" counts ", places, " places, but the head compares only ", items, " items: ask for at most ", items);
  }
}

JobModel make_model(const Runtime& runtime, const Config& config, const DeviceStreamPtr& device,
                    const TrainingData& job, const std::shared_ptr<ProcessGroup>& group) {
  const auto seed = static_cast<uint64_t>(config.job.seed);
  const Dataset& data = job.data;
  const auto dense_inputs = static_cast<int64_t>(data.dense.size());
  JobModel out;
  ModelTrainerOptions o;
  o.tables = embedding_configs(job.tables);
  o.is_weighted = is_weighted(data.columns);
  o.graph = model_of(runtime, config, job.tables, dense_inputs);
  o.labels = data.labels;
  o.drawn = drawn_features(config, job.tables, data);
  check_places(config, runtime, o);
  o.seed = seed;
  o.dense_optimizer = dense_spec(config.dense_optimizer);
  o.dense_precision = config.job.dense_precision;
  o.accumulate = config.job.accumulate;
  o.dense_ema = config.job.ema;
  o.dense_max_gradient_norm = config.dense_optimizer.max_gradient_norm;
  o.parallel.sharded.kernel = config.job.kernel_plugin;
  o.parallel.sharded.seed = seed;
  o.parallel.sharded.stream = device;
  o.parallel.sharded.bounds_check = bounds_check_of(job.tables);
  o.parallel.bucket_mib = config.comm.bucket_mib;
  o.parallel.round_dense_gradients = config.comm.loses("dense_gradients");
  if (!config.planner.plan.empty()) o.parallel.plan = read_plan(config.planner.plan);
  out.planner =
      planner_options(config, job.tables, group->world_size(), group->local_world_size(), compute_device(device));
  out.planner.wire = wire_bytes_of(*group);
  out.planner.joins = group->joins();
  observe_inputs(data, job.tables, config.data.batch, &out.planner);
  count_drawn(o.drawn, job.tables, &out.planner);
  o.parallel.planner = out.planner;
  out.dense = dense_work(runtime, config, job.tables, dense_inputs);
  out.trainer = std::make_unique<ModelTrainer>(runtime, group, std::move(o));
  return out;
}

// The checkpoint that a job continues from.
struct Continued {
  std::string loaded;                         // its directory; empty: none
  std::optional<SavedRun> run = {};           // unset: only the model was taken
  std::vector<std::string> passed_over = {};  // TrainStart::passed_over
};

// Descriptions of the job's data and of its model.
struct Described {
  json data, model;
};

Continued load_from(const std::string& directory, bool new_data, const Described& job, ModelTrainer& trainer) {
  const std::string progress = load_checkpoint(directory, trainer.parallel(), trainer.dense_optimizer());
  check_same_model(saved_model(progress), job.model, directory);
  if (new_data) return {directory};
  SavedRun run = SavedRun::from_progress(progress, directory);
  run.check_same_data(job.data, directory);
  return {directory, std::move(run)};
}

Continued load(const TrainJobOptions& options, const SaveDirectories& directories, const Described& job,
               ModelTrainer& trainer) {
  Continued out;
  std::vector<std::string> passed_over = directories.passed_over();
  for (const std::string& checkpoint : directories.resumable()) {
    try {
      out = load_from(checkpoint, false, job, trainer);
      break;
    } catch (const Error& e) {
      if (e.code() != Code::kDataLoss) throw;
      // Several checkpoints may need the same base.
      if (std::find(passed_over.begin(), passed_over.end(), e.what()) == passed_over.end())
        passed_over.emplace_back(e.what());
    }
  }
  if (out.loaded.empty()) directories.refuse_to_begin_anew(passed_over);
  if (out.loaded.empty() && !options.load.empty()) out = load_from(options.load, options.new_data, job, trainer);
  out.passed_over = std::move(passed_over);
  return out;
}

// Begins with weights of another model, and says with how many.
std::vector<std::string> start_with(const std::string& path, const JobData& data, ModelTrainer& trainer) {
  const WarmStart done = start_from(path, trainer, data.data.encoding);
  const size_t parameters = trainer.layers().parameters().size() + trainer.layers().buffers().size();
  std::vector<std::string> notes = {str_cat("begins with ", done.tables, " of ", data.tables.size(), " tables and ",
                                            done.parameters, " of ", parameters, " parameters from ", path)};
  notes.insert(notes.end(), done.notes.begin(), done.notes.end());
  return notes;
}

}  // namespace

bool is_weighted(const std::vector<DataColumn>& columns) {
  return std::any_of(columns.begin(), columns.end(), [](const DataColumn& c) { return c.weighted; });
}

namespace {

// A label's word or threshold that no training row reaches gives zeros alone. Of streamed samples only some are seen.
void require_positives(const Config& config, const Dataset& data) {
  if (!data.train.kept || data.train_rows() == 0) return;
  for (const ColumnConfig& c : config.columns) {
    if (c.as != "label" || (c.positive.empty() && !c.threshold)) continue;
    for (const std::string& name : c.name) {
      const auto at = std::find(data.labels.begin(), data.labels.end(), name);
      if (at == data.labels.end()) continue;
      const auto which = static_cast<size_t>(at - data.labels.begin());
      bool any = false;
      for (int64_t i = 0; i < data.train_rows() && !any; ++i) any = data.train.kept->label(i, which) > 0;
      if (any) continue;
      fail(Code::kInvalidArgument, "[[column]] \"", name, "\": no training row ",
           c.positive.empty() ? str_cat("reaches threshold = ", *c.threshold)
                              : str_cat("has the word \"", c.positive, "\" (positive)"),
           ", so every label would be 0");
    }
  }
}

void require_rows(const Config& config, const TrainJobOptions& options, const TrainingData& data) {
  if (data.arriving || data.data.train_rows() > 0 || options.max_steps == 0 || config.data.epochs == 0) return;
  fail(Code::kInvalidArgument, "there is nothing to train: ", config.data.path, " has no rows to train on");
}

// Gives a new run the weights that it begins with, other than by `init`. Returns what is to be said of them.
std::vector<std::string> set_start_weights(const TrainJobOptions& options, const TrainingData& data,
                                           ModelTrainer& trainer) {
  set_frequencies(data.tables, data.data.train, trainer);
  std::vector<std::string> notes;
  if (!options.start.empty()) notes = start_with(options.start, data, trainer);
  for (std::string& note : set_start_vectors(data.tables, data.data.encoding, trainer))
    notes.push_back(std::move(note));
  return notes;
}

}  // namespace

BatchReader training_batches(const Config& config, const Dataset& data, const ProcessGroup& group) {
  return {data.train,
          {config.data.batch, group.rank(), group.world_size(), static_cast<uint64_t>(config.job.seed),
           config.data.shuffle}};
}

JobSetup set_up_job(const Runtime& runtime, const Config& given, const TrainJobOptions& asked,
                    std::shared_ptr<ProcessGroup> group) {
  check_same_job(*group, given, asked);
  check_settings(runtime, given, asked);
  Config config = given;
  TrainJobOptions options = asked;
  choose_reader(runtime, config);
  std::unique_ptr<BestFolder> best_folder;
  if (config.validation.restore_best && options.save_best.empty()) {
    best_folder = std::make_unique<BestFolder>(options, *group);
    options.save_best = best_folder->path();
  }
  SaveDirectories directories(options, *group);

  auto [encoding, metrics, scores, training] = check(runtime, config, options, directories, group->world_size());
  TrainingData data = read_training_data(runtime, config, encoding);
  check_same_data(*group, data.data, data.arriving != nullptr);
  require_positives(config, data.data);
  std::string unsorted = sorted_rows_warning(data.data);
  Samples validation = take_validation(config, data.data);
  JobModel model = make_model(runtime, config, options.device, data, group);
  json fingerprint = data_fingerprint(config, data.data);

  const Described described{fingerprint, model_description(config, data, model.trainer->graph())};
  Continued continued = load(options, directories, described, *model.trainer);
  TrainStart start{.loaded = std::move(continued.loaded), .passed_over = std::move(continued.passed_over)};
  if (start.loaded.empty()) require_rows(config, options, data);
  if (start.loaded.empty()) start.notes = set_start_weights(options, data, *model.trainer);
  std::string arrived;
  std::optional<int64_t> model_step;
  if (continued.run) {
    start.first_step = continued.run->step;
    arrived = continued.run->arrived;
    model_step = continued.run->model_step;
    const std::optional<SavedRun::Scores>& saved = continued.run->scores;
    if (scores && saved && saved->monitor == scores->monitor()) scores->go_on(saved->least, saved->since_best);
  }
  const int64_t per_epoch = data.arriving ? JobSetup::kNoEnd : training_batches(config, data.data, *group).batches();
  const int64_t epochs = data.arriving ? JobSetup::kNoEnd : per_epoch * config.data.epochs;
  const int64_t steps = std::min(epochs, options.max_steps.value_or(JobSetup::kNoEnd));
  if (steps != JobSetup::kNoEnd) start.steps = steps;
  start.warnings = directories.warnings();
  if (!unsorted.empty()) start.warnings.push_back(std::move(unsorted));
  if (scores) start.monitor = scores->monitor();
  start.save_best = options.save_best;
  LearningRateSchedule table_rates(config.schedule.tables, steps), dense_rates(config.schedule.dense, steps);
  for (std::string& warning : start_warnings({config, data, *model.trainer, metrics, steps, table_rates, dense_rates}))
    start.warnings.push_back(std::move(warning));
  return {.runtime = runtime,
          .config = std::move(config),
          .options = std::move(options),
          .group = std::move(group),
          .best_folder = std::move(best_folder),
          .directories = std::move(directories),
          .metrics = std::move(metrics),
          .scores = std::move(scores),
          .training = std::move(training),
          .data = std::move(data),
          .validation = std::move(validation),
          .model = std::move(model),
          .fingerprint = std::move(fingerprint),
          .arrived = std::move(arrived),
          .model_step = model_step,
          .start = std::move(start),
          .steps = steps,
          .per_epoch = per_epoch,
          .table_rates = std::move(table_rates),
          .dense_rates = std::move(dense_rates)};
}

int64_t evaluation_batch(int64_t batch, const std::vector<TableConfig>& tables) {
  const bool sequences = std::any_of(tables.begin(), tables.end(), [](const auto& t) { return t.pooling == "none"; });
  return sequences ? batch : std::max<int64_t>(batch, 1024);
}

Evaluation evaluate(JobSetup& job, const Samples& samples) {
  const ProcessGroup& group = *job.group;
  const int64_t batch = evaluation_batch(job.config.data.batch, job.data.tables);
  const bool spread = samples.streamed && group.world_size() > 1;  // without it, one rank would get a whole batch
  if (!job.vocabularies) job.vocabularies.emplace(job.data.data.encoding);
  UnknownIdCounter unknown = *job.vocabularies;
  const MetricValues metrics = evaluate(job.trainer(), {samples, {batch, group.rank(), group.world_size(), 1, spread}},
                                        job.metrics, [&](const Batch& b) { unknown.add(b.sparse); });
  return {of_first_rank(metrics, group), added_up(unknown.counts(), group)};
}

}  // namespace tessera
