// tessera tune: hands its arguments to the module tessera._tune of the Python package, which searches by Optuna.
#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "command.h"
#include "find_rate.h"
#include "job_config.h"
#include "options.h"
#include "processes.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;

constexpr char kAboutTuning[] =
    "Trains the job many times with other settings and finds those that validate best. Optuna, a Python package, "
    "chooses the settings, and ends trials early that are worse than the median. The test is never looked at. Trials "
    "are kept in a file, so that the same command goes on after an interruption.\n\n"
    "VALUES are LOW..HIGH, log:LOW..HIGH, int:LOW..HIGH, int:log:LOW..HIGH or A|B|C. Without --space, the learning "
    "rates of tables and of layers are tuned.";

// Finds the module's file without loading the package, which loads the library, or says what to install.
constexpr char kStart[] =
    "import importlib.util, os, runpy, sys\n"
    "spec = importlib.util.find_spec('tessera')\n"
    "if spec is None or not spec.origin:\n"
    "    sys.stderr.write('tessera tune: python3 has no module tessera: pip install the wheel of Tessera, and optuna, "
    "or set PYTHONPATH to the folder python/src of its sources\\n')\n"
    "    sys.exit(2)\n"
    "sys.exit(runpy.run_path(os.path.join(os.path.dirname(spec.origin), '_tune.py'))['main'](sys.argv[1:]))\n";

struct TuneArguments {
  std::string job, metric, storage, html, model, find_rate;
  std::vector<std::string> space, set;
  int trials = 40, parallel = 1, seed = 1, steps = 200;
};

// --find-rate trains once, without a search: each option belongs to one of the two.
void check_kind(const po::variables_map& given) {
  const auto has = [&](const char* name) { return given.contains(name) && !given[name].defaulted(); };
  if (!has("find-rate") && has("steps"))
    throw UsageError("--steps is the number of updates of --find-rate, which is not given: leave it out");
  for (const char* const name : {"trials", "space", "metric", "parallel", "seed", "storage", "html"}) {
    if (has("find-rate") && has(name))
      throw UsageError(
          str_cat("--", name, " is an option of trials, and --find-rate makes none: leave out one of the two"));
  }
}

bool parse_tune_arguments(const std::vector<std::string>& args, TuneArguments* out) {
  Options options("tune", "JOB [OPTIONS]", kAboutTuning);
  auto add = options.add_options();
  add("trials", po::value(&out->trials)->value_name("N")->default_value(40), "trials, those in the file included");
  add("space", po::value(&out->space)->value_name("KEY=VALUES")->composing(),
      "key of the config and its values, such as dense_optimizer.learning_rate=log:1e-4..1e-2; may be repeated");
  add("metric", po::value(&out->metric)->value_name("NAME"),
      "metric of the validations to tune for (default: the first)");
  add("parallel", po::value(&out->parallel)->value_name("N")->default_value(1), "trials at a time");
  add("seed", po::value(&out->seed)->value_name("N")->default_value(1), "seed of the search");
  add("storage", po::value(&out->storage)->value_name("FILE"), "file of the trials (default: JOB.tune)");
  add("html", po::value(&out->html)->value_name("FILE"), "also write the trials as a page");
  add("model", po::value(&out->model)->value_name("NAME"), "train the layers of this model, as tessera train --model");
  add("set", po::value(&out->set)->value_name("KEY=VALUE")->composing(),
      "change a key of the config for all trials; may be repeated");
  add("find-rate", po::value(&out->find_rate)->value_name("OF"),
      "instead of trials, train once with rising learning rates of tables, dense or all, and suggest one");
  add("steps", po::value(&out->steps)->value_name("N")->default_value(200),
      "updates of --find-rate: batches, unless job.accumulate joins several");
  options.argument("job", po::value(&out->job));
  const auto given = parse_options(args, options);
  if (!given) return false;
  check_kind(*given);
  if (out->job.empty()) throw UsageError("a job is needed: tessera tune job.toml");
  if (out->trials < 1 || out->parallel < 1) throw UsageError("--trials and --parallel must be 1 or more");
  if (out->seed < 0) throw UsageError("--seed must be 0 or more");
  if (!std::filesystem::exists(out->job)) throw UsageError("there is no job file " + out->job);
  return true;
}

}  // namespace

int tune_command(const std::vector<std::string>& args) {
  TuneArguments a;
  if (!parse_tune_arguments(args, &a)) return 0;
  if (!a.find_rate.empty()) return find_rate(job_config(a.job, a.set, a.model), a.find_rate, a.steps);
  std::vector<std::string> words = {"python3",
                                    "-c",
                                    kStart,
                                    "--program",
                                    std::filesystem::read_symlink("/proc/self/exe"),
                                    "--trials",
                                    std::to_string(a.trials),
                                    "--parallel",
                                    std::to_string(a.parallel),
                                    "--seed",
                                    std::to_string(a.seed),
                                    "--metric",
                                    a.metric,
                                    "--storage",
                                    a.storage,
                                    "--html",
                                    a.html,
                                    "--model",
                                    a.model};
  for (const std::string& space : a.space) words.insert(words.end(), {"--space", space});
  for (const std::string& change : a.set) words.insert(words.end(), {"--set", change});
  words.push_back(a.job);
  std::vector<char*> raw;
  for (std::string& word : words) raw.push_back(word.data());
  raw.push_back(nullptr);
  std::cout.flush();
  execvp("python3", raw.data());
  fail(Code::kNotFound, "tune is written in Python, and python3 cannot be started: ", system_error());
}

}  // namespace tessera::cli
