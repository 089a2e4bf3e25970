// tessera train: trains the job of a config file on 1..N ranks.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "command.h"
#include "job_config.h"
#include "kept_file.h"
#include "layers.h"
#include "options.h"
#include "outputs.h"
#include "page/page_file.h"
#include "plugin_watch.h"
#include "rank_status.h"
#include "spawn.h"
#include "tessera/checkpoint.h"
#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/train_job.h"
#include "tessera/train_loop.h"
#include "train/folds.h"
#include "train/live_metrics.h"
#include "train/page.h"
#include "train/progress.h"
#include "train/reading_line.h"
#include "train/report_text.h"
#include "wrapped.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;

struct TrainArguments {
  std::string config, model;
  std::vector<std::string> overrides;
  int nproc = 0;
  int64_t max_steps = 0;
  bool verbose = false;
  std::string metrics;  // [ADDRESS:]PORT
  std::string html;     // file for the HTML page; empty: none
  std::string publish, every;
  TrainJobOptions job;
};

// Sets the interval from "60s" or "100steps".
void set_every(const std::string& every, PublishConfig* publish) {
  double number = 0;
  const auto [unit, error] = std::from_chars(every.data(), every.data() + every.size(), number);
  const std::string_view rest(unit, static_cast<size_t>(every.data() + every.size() - unit));
  const bool steps = rest == "steps" || rest == "step";
  const std::map<std::string_view, double> seconds = {{"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}};
  constexpr double kLongest = 1e7;  // as in the config
  if (error != std::errc() || number <= 0 || !(steps ? number == std::floor(number) : seconds.contains(rest)) ||
      number * (steps ? 1 : seconds.at(rest)) > kLongest)
    throw UsageError("--every takes a time, 60s, 500ms, 5min or 1h, or steps, 100steps, not \"" + every + "\"");
  publish->every_s = steps ? 0.0 : number * seconds.at(rest);
  publish->every_steps = steps ? static_cast<int64_t>(number) : 0;
}

void check_train_arguments(const po::variables_map& found, TrainArguments* out) {
  if (out->config.empty()) throw UsageError("--config FILE is needed: see tessera train --help");
  if (found.count("nproc") && (out->nproc < 1 || out->nproc > 1024)) throw UsageError("--nproc takes 1 to 1024 ranks");
  if (found.count("max-steps")) out->job.max_steps = out->max_steps;
  if (out->job.save_every < 0 || out->max_steps < 0)
    throw UsageError("--save-every and --max-steps count steps: 0 or more");
  if (!(out->job.save_every_minutes >= 0 && out->job.save_every_minutes <= 1e6))
    throw UsageError("--save-every-minutes takes minutes from 0 to 1000000");
  const bool how = out->job.save_every || out->job.save_every_minutes > 0 || !found["keep"].defaulted();
  if (out->job.save.empty() && how) throw UsageError("--save-every, --save-every-minutes and --keep need --save DIR");
  if (out->job.save_full_every < 1) throw UsageError("--save-full-every takes a number of checkpoints: 1 or more");
  if (out->job.save_full_every > 1 && out->job.save_every == 0 && out->job.save_every_minutes == 0)
    throw UsageError("--save-full-every needs --save-every or --save-every-minutes");
  if (out->job.save.empty() && out->job.resume) throw UsageError("--resume needs --save DIR: that is where it looks");
  if (out->job.overwrite && out->job.resume)
    throw UsageError("--resume continues with the run in --save DIR, --overwrite replaces it: give one of them");
  if (out->job.overwrite && out->job.save.empty() && out->job.save_best.empty())
    throw UsageError("--overwrite needs --save DIR or --save-best DIR: that is what it replaces");
  if (!out->metrics.empty()) (void)metrics_address(out->metrics);
  if (out->job.keep < 1) throw UsageError("--keep takes a number of checkpoints: 1 or more");
  if (!out->job.start.empty() && !out->job.load.empty())
    throw UsageError("--start begins a new run, --load continues one: give only one of them");
  if (out->job.new_data && out->job.load.empty()) throw UsageError("--new-data needs --load DIR");
}

bool parse_train_arguments(const std::vector<std::string>& args, TrainArguments* out) {
  Options options("train", "--config FILE [OPTIONS]");
  auto add = options.add_options();
  add("config", po::value(&out->config)->value_name("FILE"), "the job; docs/config.md lists every key");
  add("nproc", po::value(&out->nproc)->value_name("N"),
      "start N ranks on this machine (default: as the launcher says, or one)");
  add("model", po::value(&out->model)->value_name("NAME"),
      "train the layers of this model, one of tessera model new, on the job's columns and tables instead of the "
      "config's layers");
  add("set", po::value(&out->overrides)->value_name("KEY=VALUE"),
      "change a key of the config, as in data.epochs=2; may be repeated");
  add("save", po::value(&out->job.save)->value_name("DIR"),
      "write a checkpoint at the end, or when a signal ends the job");
  add("save-every", po::value(&out->job.save_every)->value_name("STEPS"),
      "also write a checkpoint after every STEPS steps");
  add("save-every-minutes", po::value(&out->job.save_every_minutes)->value_name("MINUTES"),
      "also write a checkpoint every MINUTES minutes; with --save-every, the earlier one counts");
  add("save-full-every", po::value(&out->job.save_full_every)->value_name("N"),
      "one checkpoint in N has all rows; those between have only the rows that changed since (default: 1, always "
      "all rows)");
  add("keep", po::value(&out->job.keep)->value_name("N")->default_value(out->job.keep),
      "number of newest checkpoints that stay in --save DIR");
  add("publish", po::value(&out->publish)->value_name("DIR"),
      "publish the model for tessera serve --follow DIR: sometimes a whole model, otherwise the changes; sets "
      "publish.directory");
  add("every", po::value(&out->every)->value_name("TIME"),
      "interval between publications: 60s (default), 500ms, 5min, or 100steps");
  add("save-best", po::value(&out->job.save_best)->value_name("DIR"),
      "keep the checkpoint that validated best by validation.monitor in DIR, and test that one at the end");
  add("load", po::value(&out->job.load)->value_name("DIR"),
      "continue from a checkpoint, under any plan and number of ranks");
  add("resume", po::bool_switch(&out->job.resume),
      "continue with the newest whole checkpoint in --save DIR, or begin if there is none; so one command serves "
      "for the first start and for all others");
  add("overwrite", po::bool_switch(&out->job.overwrite),
      "replace another run's checkpoints in --save DIR and --save-best DIR, after the first new one is whole");
  add("start", po::value(&out->job.start)->value_name("FROM"),
      "begin a new run with those weights of a checkpoint, Tessera's or TorchRec's, that fit");
  add("new-data", po::bool_switch(&out->job.new_data),
      "with --load: continue with the first batch of this job's data, which may be other data");
  add("max-steps", po::value(&out->max_steps)->value_name("STEPS"),
      "stop after STEPS steps in total; with 0 the model is only evaluated");
  add("trace", po::value(&out->job.trace)->value_name("FILE"),
      "write what every rank did at which time, for ui.perfetto.dev or chrome://tracing");
  add("html", po::value(&out->html)->value_name("FILE"),
      "write a page about the run: curves, metrics, plan, stages, settings");
  add("metrics", po::value(&out->metrics)->value_name("PORT"),
      "serve metrics for Prometheus at http://127.0.0.1:PORT/metrics on rank 0 during training; ADDRESS:PORT sets "
      "another address");
  add("verbose,v", po::bool_switch(&out->verbose),
      "also print the plan, and the time of a step by stage, rank and table");
  const auto found = parse_options(args, options);
  if (!found) return false;
  check_train_arguments(*found, out);
  return true;
}

// For example "plan: 5 tables row_wise, 4 tables table_wise on 2 ranks".
std::string plan_in_short(const ShardingPlan& plan) {
  std::map<std::string, int> tables;
  for (const auto& [path, module] : plan.modules) {
    for (const auto& [name, sharding] : module.tables()) ++tables[sharding.sharding_type];
  }
  std::string out;
  for (const auto& [type, count] : tables)
    out += str_cat(out.empty() ? "plan: " : ", ", count, count == 1 ? " table " : " tables ", type);
  return str_cat(out, " on ", plan.world_size, plan.world_size == 1 ? " rank" : " ranks");
}

// An earlier report stays until the new one is whole. A device or a pipe is written to directly.
void write_report(const std::string& path, const RunReport& report) {
  namespace fs = std::filesystem;
  std::error_code error;
  const bool direct = fs::exists(path, error) && !fs::is_regular_file(path, error);
  const std::string part = direct ? path : path + ".part";
  std::ofstream out(part);
  out << to_json(report, 1) << '\n';
  out.close();
  if (out && !direct) fs::rename(part, path, error);
  if (out && !error) return;
  if (!direct) fs::remove(part, error);
  fail(Code::kUnavailable, "cannot write the report to ", path, ": is the disk full?");
}

// Generated data is for trying things out, so its results must not be mistaken for real ones.
bool is_generated(const Config& config) { return config.data.reader == "synthetic"; }

// A job with its settings, as the functions that print take it.
struct Shown {
  const TrainStart& start;
  const Config& config;
  const TrainJobOptions& options;  // as given
};

// The step at which training ended: after a signal, or because no step was left.
std::string where_it_ended(const Shown& job, const TrainResult& run) {
  const TrainStart& start = job.start;
  const int64_t steps = start.first_step + run.steps_done;
  const std::string done = start.steps ? str_cat(steps, " of ", *start.steps, " steps") : str_cat(steps, " steps");
  if (run.stopped) {
    return str_cat("stopped by a signal after ", done, "; ",
                   job.options.save.empty() ? std::string("nothing was saved, without --save DIR")
                                            : str_cat("--load ", job.options.save, " continues from there"));
  }
  if (!start.steps) return str_cat("no row has arrived: ", job.config.data.path, " is at its end");
  const bool by_option = job.options.max_steps == start.steps;
  const std::string limit =
      by_option ? str_cat("--max-steps ", *start.steps) : str_cat("data.epochs = ", job.config.data.epochs);
  if (start.loaded.empty()) return str_cat("there is nothing to train: the job has no steps (", limit, ")");
  const std::string& from = job.options.load.empty() ? start.loaded : job.options.load;
  const std::string left = str_cat("nothing is left to train: ", from, " is at step ", start.first_step);
  if (run.ended_early)
    return str_cat(left, ", where training ended early: the last ", job.config.validation.patience,
                   " validations were no better by ", start.monitor, "; raise validation.patience to continue");
  return str_cat(left, ", and ", limit, by_option ? "" : str_cat(" ends at ", *start.steps), "; raise ",
                 by_option ? "it" : "data.epochs", " to continue, or give --new-data to begin again with the data");
}

// Says what --resume found.
std::string how_it_goes_on(const TrainStart& start, const std::string& save) {
  std::string text;
  for (const std::string& passed : start.passed_over) text += str_cat("skipped a checkpoint: ", passed, '\n');
  if (start.loaded.empty()) return str_cat(text, "starts again: there is no whole checkpoint at ", save, '\n');
  return str_cat(text, "continues from ", start.loaded, ", after step ", start.first_step, '\n');
}

std::vector<Stages> stages_of_all(const Stages& mine, const ProcessGroup& group) {
  std::vector<double> seconds;
  for (const auto& [stage, s] : mine) seconds.push_back(s);
  std::vector<Stages> out;
  for (const std::vector<double>& of_rank : group.all_gather(seconds, "stages")) {
    Stages& rank = out.emplace_back(mine);
    for (size_t i = 0; i < rank.size(); ++i) rank[i].second = of_rank[i];
  }
  return out;
}

// Per rank, the time that all other ranks together have waited for it; empty if some rank's transport does not measure
// it.
std::vector<double> waited_by_all(const ProcessGroup& group) {
  std::vector<double> seconds = group.waited_s();
  const bool says = !seconds.empty();
  seconds.resize(static_cast<size_t>(group.world_size()));
  seconds.push_back(says);
  const Tensor all = Tensor::from(seconds);
  group.all_reduce(all, ReduceOp::kSum, "waits").wait();
  seconds = all.to_vector<double>();
  const bool all_say = seconds.back() == group.world_size();
  seconds.pop_back();
  return all_say ? seconds : std::vector<double>();
}

// Says why training ended early, and which validation was the best.
void note_end(Progress& progress, const Shown& job, const TrainResult& run) {
  const std::string& monitor = job.start.monitor;
  const auto is_nan = [&](const TrainValidation& v) { return std::isnan(v.metrics[monitor]); };
  const std::vector<TrainValidation>& all = run.validations;
  const int64_t patience = job.config.validation.patience;
  if (run.ended_early && run.steps_done > 0) {
    const bool none = std::ssize(all) >= patience && std::all_of(all.end() - patience, all.end(), is_nan);
    progress.note(str_cat("ended early, at step ", job.start.first_step + run.steps_done, ": the last ", patience,
                          " validations were no better by ", monitor, none ? ", which was nan in them" : ""));
  }
  if (run.lost_log_lines > 0)
    progress.note(str_cat("tessera: warning: ", run.lost_log_lines,
                          " lines of report.metrics or report.tensorboard could not be written; is the disk full?"));
  const std::string& save_best = job.options.save_best;
  if (!all.empty() && std::all_of(all.begin(), all.end(), is_nan))
    progress.note(str_cat("tessera: warning: ", monitor, " was nan in every validation, so none was the best",
                          save_best.empty() ? "" : str_cat(", and nothing was saved in ", save_best)));
  const auto best = std::find_if(all.rbegin(), all.rend(), [](const TrainValidation& v) { return v.best; });
  if (job.start.save_best.empty() && best != all.rend() && best != all.rbegin())
    progress.note(str_cat(
        "tessera: warning: the model validated best at step ", best->step, " (", monitor_text(monitor, best->metrics),
        "), and no later one was better; validation.restore_best = true goes back to it, and --save-best "
        "DIR keeps it"));
}

// Rank 0 draws progress and serves metrics, and decides for all ranks when losses and stages are collected.
const TrainResult& train(TrainJob& job, const Shown& shown, const ProcessGroup& group, LiveMetrics* live) {
  const Tensor asked = Tensor::from<int32_t>({stderr_is_terminal(), live != nullptr});
  group.broadcast(asked, 0, "progress").wait();
  const bool terminal = asked.data<int32_t>()[0] != 0, served = asked.data<int32_t>()[1] != 0;
  const TrainStart& start = shown.start;
  Progress progress(
      {start.first_step, start.steps.value_or(0), shown.config.report.log_every, group.rank() == 0, terminal});
  const OwnStatus status(group.rank());
  status.tell_step(start.first_step);
  const StopSignals signals;
  TrainWatch watch;
  watch.stop = StopSignals::requested;
  watch.due = [&](int64_t step) {  // called after each step
    status.tell_step(step);
    return progress.due(step);
  };
  watch.report = [&](const TrainProgress& p) {
    progress.report(p);
    if (!served) return;
    std::vector<Stages> stages = stages_of_all(job.trainer().stages(), group);
    std::vector<double> waited = waited_by_all(group);
    if (live) live->set(p, std::move(stages), std::move(waited));
  };
  bool first = true;
  watch.validated = [&](const TrainValidation& v) {
    progress.note(validation_text(v));
    for (const UnknownIds& ids : v.unknown_ids) {
      if (first && ids.are_many()) progress.note(unknown_ids_text("validation rows", ids));
    }
    first = false;
    progress.set_validation(monitor_text(start.monitor, v.metrics));
    if (live) live->set(v);
  };
  std::optional<int64_t> saved;  // the step of the newest checkpoint in options.save
  watch.saved = [&](const TrainSave& save) {
    if (save.error.empty() && !save.best) saved = save.step;
    if (save.error.empty() && !save.best) status.tell_saved(save.step);
    if (!save.error.empty() && save.best)
      progress.note(str_cat("tessera: warning: the best checkpoint, of step ", save.step,
                            ", was not written: ", save.error, "; the earlier one stays, and training continues"));
    if (!save.error.empty() && !save.best)
      progress.note(str_cat("tessera: warning: the checkpoint of step ", save.step, " was not written: ", save.error,
                            "; earlier ones are complete, and training continues"));
  };
  watch.published = [&](const TrainPublish& p) {
    if (!p.error.empty())
      progress.note(str_cat("tessera: warning: the publication of step ", p.step, " was not written: ", p.error,
                            "; earlier ones are complete, and the next one has its changes"));
    if (!p.what.base_error.empty())
      progress.note(str_cat("tessera: warning: the base of step ", p.step, " was not written: ", p.what.base_error,
                            "; its delta exists, and the next publication has a base"));
  };
  const TrainResult& run = job.train(watch);
  note_end(progress, shown, run);
  if (!saved) return run;
  const bool last = run.model_step == start.first_step + run.steps_done;
  const std::string model = last ? "" : str_cat(", with the model of step ", run.model_step, ", which validated best");
  progress.note(str_cat("saved step ", *saved, " in ", shown.options.save, model));
  return run;
}

// Prints the results of a run that came to its end.
void print_results(const Shown& job, const TrainResult& run, const RunReport& report, bool verbose) {
  if (run.steps_done == 0) {
    std::printf("%s\n", where_it_ended(job, run).c_str());
  } else {
    if (verbose) print_tables(report);
    print_training(report, verbose);
  }
  const TestResult& test = report.test;
  const bool tested = test.metrics.samples > 0 && !test.metrics.values.empty();
  const bool last = test.step == job.start.first_step + run.steps_done;
  const std::string model = last ? "" : str_cat(" of step ", test.step, ", which validated best");
  if (tested && !report.test_split.empty())
    std::printf("test rows: %s (%lld)\n", report.test_split.c_str(), static_cast<long long>(report.test_rows));
  std::printf("%s", (chance_text(test.metrics) + doubts_text(test.metrics)).c_str());
  const char* const generated = is_generated(job.config) ? ", generated data, not yours" : "";
  const char* const none = report.test_rows > 0
                               ? "no head has metrics for the test rows by default: ask for one in metrics.names\n"
                               : "there are no test rows\n";
  const std::string tests = str_cat("test", model, ": ", metrics_text(test.metrics, 4, generated));
  std::printf("%s", tested ? fitted(tests, STDOUT_FILENO).c_str() : none);
  for (const UnknownIds& ids : test.unknown_ids) {
    if (tested && ids.are_many()) std::fprintf(stderr, "%s\n", unknown_ids_text("test rows", ids).c_str());
  }
  if (run.unsaved_best)
    std::printf("the model of step %lld validated best, but was not saved in %s: %s\n",
                static_cast<long long>(run.unsaved_best->step), job.start.save_best.c_str(),
                run.unsaved_best->error.c_str());
  const bool no_auc = std::any_of(test.metrics.values.begin(), test.metrics.values.end(),
                                  [](const auto& value) { return value.first == "auc" && std::isnan(value.second); });
  if (tested && no_auc) std::printf("AUC is not defined: all test rows with a weight have the same label\n");
}

// Tests the model, unless a signal stopped the job, and reports. The result is printed last.
void test_and_report(TrainJob& job, const Shown& shown, const ProcessGroup& group, const TrainResult& run,
                     const TrainArguments& a) {
  const std::string& file = shown.config.report.json;
  std::optional<RunReport> report;
  if (!run.stopped) report = job.report(job.evaluate());
  if (run.stopped && (!file.empty() || !a.html.empty())) report = job.report({});
  if (group.rank() != 0) return;
  if (!run.stopped) print_results(shown, run, *report, a.verbose);
  if (report && !file.empty()) write_report(file, *report);
  if (report && !a.html.empty()) write_train_page(a.html, *report);
  if (run.stopped) std::fprintf(stderr, "tessera train: %s\n", where_it_ended(shown, run).c_str());
}

// An error that ends one rank is the cause of the others' errors, so they are told before anything of the job is
// destroyed.
template <class Body>
int or_abort(const ProcessGroup& group, Body&& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    group.abort(out_of_memory().what());
    throw out_of_memory();
  } catch (const std::exception& e) {
    group.abort(e.what());
    throw;
  }
}

void print_start(TrainJob& job, const Shown& shown, bool verbose) {
  if (is_generated(shown.config)) std::fputs("data: generated (set data.path to train on your own)\n", stderr);
  const std::string plan = verbose ? job.plan().str() + "\n" : plan_in_short(job.plan());
  std::fprintf(stderr, "%s\n", plan.c_str());
  for (const std::string& line : replaced_layers(job.layers())) std::fprintf(stderr, "%s\n", line.c_str());
  if (const std::string& why = job.trainer().why_in_host_memory(); !why.empty())
    std::fprintf(stderr, "the dense part stays in host memory: %s\n", why.c_str());
  if (const std::string& why = job.trainer().dense_precision().why; !why.empty())
    std::fprintf(stderr, "dense products are in float32: %s\n", why.c_str());
  if (shown.options.resume) std::fputs(how_it_goes_on(shown.start, shown.options.save).c_str(), stderr);
  const char* const by = shown.options.start.empty() ? "start" : "--start";
  for (const std::string& line : shown.start.notes) std::fprintf(stderr, "%s: %s\n", by, line.c_str());
  for (const std::string& text : shown.start.warnings) std::fprintf(stderr, "tessera: warning: %s\n", text.c_str());
}

DeviceStreamPtr device_of(const Runtime& runtime, const JobConfig& job, int local_rank) {
  try {
    return open_device(runtime, job.device, local_rank, job.kernel_plugin);
  } catch (const Error& e) {
    throw Error(e.code(), str_cat("job.device = \"", job.device, "\" cannot be used here: take \"auto\", or \"cpu\", ",
                                  "which every machine has; ", e.what()));
  }
}

// Returns the exit status.
int run_rank(Config config, const TrainArguments& a, const RankEnvironment& where) {
  const PluginWatch watch;
  const Runtime runtime({config.plugins.path, config.plugins.require, true, static_cast<int>(config.job.threads)});
  choose_reader(runtime, config);
  TrainJobOptions options = a.job;
  options.device = device_of(runtime, config.job, where.local_rank);
  const Device device = options.device ? options.device->device() : kCpu;
  const auto group = ProcessGroup::connect(runtime, where, group_options(config.comm, device));
  if (config.validation.folds > 0)
    return or_abort(*group, [&] { return train_folds(runtime, config, options, group); });
  const bool first = group->rank() == 0;
  std::optional<TrainJob> job;
  std::optional<LiveMetrics> live;  // only on rank 0
  return or_abort(*group, [&] {
    {
      const ReadingLine reading(config.data.path, first && stderr_is_terminal());
      job.emplace(runtime, config, options, group);
    }
    const Shown shown{job->start(), config, options};
    if (first) print_start(*job, shown, a.verbose);
    if (first && !a.metrics.empty()) {
      live.emplace(metrics_address(a.metrics), options.save, shown.start.steps.value_or(0));
      std::fprintf(stderr, "metrics: %s\n", live->url().c_str());
    }
    const TrainResult& run = train(*job, shown, *group, live ? &*live : nullptr);
    if (!run.stopped) StopSignals::raise_again();  // the signal came after the last step
    test_and_report(*job, shown, *group, run, a);
    const std::string wrong = options.trace.empty() ? "" : job->write_trace();
    if (!wrong.empty()) std::fprintf(stderr, "tessera: warning: %s\n", wrong.c_str());
    group->barrier("end");
    return run.stopped ? kStoppedBySignal : 0;
  });
}

}  // namespace

int train_command(const std::vector<std::string>& args) {
  TrainArguments a;
  if (!parse_train_arguments(args, &a)) return 0;
  const RankEnvironment where = RankEnvironment::from_environment();
  const bool starts_ranks = a.nproc > 0 && where.source == "single";
  const std::string named = a.config;
  if (starts_ranks) a.config = keep_file(named);
  Config config = job_config(a.config, a.overrides, a.model);
  if (!a.publish.empty()) config.publish.directory = a.publish;
  if (!a.every.empty()) set_every(a.every, &config.publish);
  if (!a.every.empty() && config.publish.directory.empty()) throw UsageError("--every needs --publish DIR");
  check_outputs(
      {{"report.json", config.report.json},
       {"report.metrics", config.report.metrics},
       {"--trace", a.job.trace},
       {"--html", a.html}},
      {{a.config, config.data.path, test_file(config.data), config.planner.plan, config.planner.topology}, {}});
  if (!config.report.json.empty()) check_writable(config.report.json, "report.json");
  if (!a.job.trace.empty()) check_writable(a.job.trace, "--trace");
  if (!a.html.empty()) check_page(a.html);
  check_folds(config, a.job, !a.html.empty() ? "--html" : !a.metrics.empty() ? "--metrics" : nullptr);
  if (a.nproc > 0 && where.source != "single" && a.nproc != where.world_size) {
    throw UsageError(str_cat("--nproc ", a.nproc, ", but ", where.source, " has started ", where.world_size,
                             where.world_size == 1 ? " rank" : " ranks", ": leave --nproc out under a launcher"));
  }
  if (starts_ranks) {
    std::vector<std::string> again = args;
    for (std::string& word : again) {
      if (word == named || word == "--config=" + named) word.replace(word.size() - named.size(), word.npos, a.config);
    }
    again.insert(again.begin(), "train");
    return run_ranks(a.nproc, again);
  }
  if (config.job.threads == 0) {
    const int here = where.local_world_size > 0 ? where.local_world_size : where.world_size;
    config.job.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / here);
  }
  if (where.rank == 0 && config.publish.directory.empty() && !(config.publish == PublishConfig()))
    std::fputs("tessera: warning: [publish] names no directory, so nothing is published: give --publish DIR\n", stderr);
  return run_rank(config, a, where);
}

}  // namespace tessera::cli
