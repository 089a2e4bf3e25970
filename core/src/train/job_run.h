// The run of a job that is set up: its steps, what is done between them, and how it ends.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/step_figures.h"
#include "tessera/train_loop.h"
#include "train/arriving_batches.h"
#include "train/job_checkpoints.h"
#include "train/job_publisher.h"
#include "train/job_setup.h"
#include "train/metrics_log.h"

namespace tessera {

// Number of first steps that a comparison with a plan leaves out, of `steps`. In these, code is compiled and memory
// grows and is touched for the first time.
int64_t warm_up_steps(int64_t steps);

// Time per stage and bytes sent so far, without validations.
struct Spent {
  Stages stages;
  ExchangeBytes<int64_t> sent;
};

// The result of a run, with everything that its report needs.
struct RunResult {
  TrainResult trained;
  double least = 0;    // ValidationScores::least()
  Spent warm, all;     // in the first few steps, and in all
  bool ahead = false;  // batches were prepared ahead
  // The loop's figures: TrainLoop explains them.
  std::vector<double> losses;
  int64_t samples = 0;
  double seconds = 0, read_s = 0, waited_s = 0;
  double first_step_seconds = 0;                         // RunReport::seconds_to_first_step
  std::vector<double> ids;                               // read by this rank, by column
  std::vector<std::pair<std::string, double>> training;  // final values of metrics.training
  std::optional<ArrivedRows> arrived;
  std::optional<CheckpointCounts> checkpoints;
  std::optional<PublicationCounts> publications;
  std::unique_ptr<Trace> step_trace, input_trace;  // of the steps, and of the thread that takes batches; null: none
};

class JobRun {
 public:
  // Problems with the directories that it saves to are errors here. The job must outlive it. Collective.
  JobRun(JobSetup& job, TrainWatch watch);

  // Call it once. Collective.
  RunResult run();

 private:
  std::string progress();  // the text that checkpoints hold beside the model
  TrainLoopOptions loop_options();
  ReadBatch batches();
  void while_waiting();
  void after_step(const StepEnd& end);
  bool validation_due(const StepEnd& end) const;
  void validate(int64_t step);
  void save_at_end();
  Spent spent() const;
  void set_learning_rates(int64_t step);
  int64_t step() const { return job_.start.first_step + loop_->steps_done(); }  // steps done in all

  JobSetup& job_;
  const TrainWatch watch_;
  ModelTrainer& trainer_;
  std::atomic<bool> ended_early_;  // also read by the pipeline's thread
  const int64_t end_;              // of the steps
  BestModel best_;
  std::optional<JobCheckpoints> checkpoints_;
  std::optional<JobPublisher> publisher_;
  std::optional<MetricsLog> log_;                // only on rank 0
  std::vector<std::vector<double>> base_rates_;  // ShardedEmbeddings::learning_rates() of the tables, from the config
  std::unique_ptr<ArrivingBatches> arriving_;
  Spent validated_;  // in validations
  RunResult out_;
  std::optional<TrainLoop> loop_;
};

}  // namespace tessera
