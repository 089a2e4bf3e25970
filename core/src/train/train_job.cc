#include "tessera/train_job.h"

#include "distributed/stopwatch.h"
#include "train/job_run.h"
#include "train/job_setup.h"
#include "train/trace_file.h"
#include "train/train_report.h"

namespace tessera {

ProcessGroupOptions group_options(const CommConfig& comm, const Device& device) {
  const JoinExchanges join = comm.join_exchanges == "always"  ? JoinExchanges::kAlways
                             : comm.join_exchanges == "never" ? JoinExchanges::kNever
                                                              : JoinExchanges::kAuto;
  return {comm.backend, "{}", comm.timeout_s, device, comm.loses("rows"), comm.loses("gradients"), join};
}

struct TrainJob::Impl {
  JobSetup setup;
  std::optional<JobRun> run;  // lives on after an error, so that a rank can tell its cause before saves are given up
  RunResult result = {};
  bool best_taken = false;  // the trainer has the model that validated best, if that one is kept
};

TrainJob::TrainJob(const Runtime& runtime, const Config& config, const TrainJobOptions& options,
                   std::shared_ptr<ProcessGroup> group)
    : impl_(new Impl{set_up_job(runtime, config, options, std::move(group)), std::nullopt}) {}

TrainJob::~TrainJob() = default;

const TrainStart& TrainJob::start() const { return impl_->setup.start; }
const ShardingPlan& TrainJob::plan() { return trainer().parallel().plan(); }
const Dataset& TrainJob::data() const { return impl_->setup.data.data; }
ModelTrainer& TrainJob::trainer() { return impl_->setup.trainer(); }
std::vector<LayerChoice> TrainJob::layers() { return layers_of(impl_->setup); }

const TrainResult& TrainJob::train(const TrainWatch& watch) {
  Impl& m = *impl_;
  TESSERA_CHECK(!m.run, "a job trains once");
  m.run.emplace(m.setup, watch);
  m.result = m.run->run();
  m.best_taken = m.setup.config.validation.restore_best && !m.result.trained.stopped;
  return m.result.trained;
}

TestResult TrainJob::evaluate() {
  Impl& m = *impl_;
  TESSERA_CHECK(m.run, "a job is tested after it has trained");
  Stopwatch watch;
  TestResult out = untested();
  if (!std::exchange(m.best_taken, true) && m.setup.scores) {
    BestModel best(m.setup.options.save_best, m.setup.trainer());
    out.step = m.result.trained.model_step =
        best.load(out.step, m.setup.start.monitor, m.result.least).value_or(out.step);
  }
  if (data().test_rows() == 0) return out;
  Evaluation found = tessera::evaluate(m.setup, data().test);
  out.metrics = std::move(found.metrics);
  out.unknown_ids = std::move(found.unknown_ids);
  watch.lap(out.seconds, "evaluate");
  return out;
}

TestResult TrainJob::untested() const { return {impl_->setup.metrics.values(), 0, impl_->result.trained.model_step}; }

RunReport TrainJob::report(const std::optional<TestResult>& test) {
  const Impl& m = *impl_;
  TESSERA_CHECK(m.run, "a report is of a job that has trained");
  return run_report(m.setup, m.result, test.value_or(TestResult{{}, 0, m.result.trained.model_step}));
}

std::string TrainJob::write_trace() {
  const RunResult& run = impl_->result;
  return tessera::write_trace(impl_->setup.options.trace,
                              {{"steps", run.step_trace.get()}, {"inputs", run.input_trace.get()}},
                              *impl_->setup.group);
}

}  // namespace tessera
