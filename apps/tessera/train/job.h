// The job of one config file, on one rank: data, model, training, evaluation, report.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/device.h"
#include "tessera/metrics.h"
#include "tessera/process_group.h"
#include "tessera/step_model.h"
#include "train/dlrm_trainer.h"
#include "train/inputs.h"
#include "train/progress.h"
#include "train/trace_file.h"

namespace tessera::cli {

struct JobOptions {
  std::string save;        // directory for checkpoints, one at the end; empty: none
  std::string load;        // checkpoint directory to continue from; empty: none
  int64_t save_every = 0;  // steps between checkpoints; 0: at the end only
  int keep = 2;            // checkpoints that stay in `save`
  bool new_data = false;   // with `load`: from the first batch of this job's data
  int64_t max_steps = 0;   // stop after so many steps in all; 0: after the last epoch
  DeviceStreamPtr device;  // where the tables are; null: host memory
  std::string trace;       // file for a picture of the steps; empty: none
};

class TrainJob {
 public:
  // Reads the data and builds the model. Collective.
  TrainJob(const Runtime& runtime, const Config& config, const JobOptions& options,
           std::shared_ptr<ProcessGroup> group);

  void train();
  // Whether a signal has ended training before its last step; what there is was saved.
  bool stopped() const { return stopped_; }
  // Where training was left, as a sentence: after stopped(), and where no step was left to do.
  std::string where_it_ended() const;
  void write_trace() const;  // to options.trace, which is not empty; a warning where that cannot be. Collective
  BinaryMetrics evaluate();  // of the test part; valid on rank 0
  // Stages with their time on this rank and the largest over ranks. Collective.
  nlohmann::ordered_json report(const BinaryMetrics& metrics);

  const ShardingPlan& plan() { return trainer_->parallel().plan(); }
  const Dataset& data() const { return data_; }
  std::vector<LayerChoice> layers();  // of the dense part

 private:
  void build_model();
  void load();
  void save();
  void train_steps(TrainInputs& inputs, Progress& progress, int64_t per_epoch);
  bool takes_ahead() const;  // the same on all ranks; collective
  bool ahead_ = false;       // what it said for this run
  nlohmann::ordered_json pipeline() const;
  double mean_loss();  // over ranks, of the steps since the last call; looks at losses
  // Sums the losses of new steps over ranks. kFailedPrecondition, on all ranks alike: one is no number. Collective.
  void look_at_losses();
  int64_t steps_done() const { return std::ssize(batch_sizes_); }  // in this run
  double summed(double value) const;
  std::vector<double> largest(std::vector<double> values) const;
  nlohmann::ordered_json traffic();  // collective

  const Runtime& runtime_;
  Config config_;
  JobOptions options_;
  std::shared_ptr<ProcessGroup> group_;
  Dataset data_;
  std::vector<TableConfig> tables_;
  PlannerOptions planner_;
  DenseWork dense_;
  std::unique_ptr<DlrmTrainer> trainer_;
  std::vector<int64_t> batch_sizes_;    // of all ranks together, by step of this run
  std::vector<double> global_;          // losses over ranks, as far as looked at
  size_t shown_ = 0;                    // how many of them mean_loss() has told
  std::vector<double> ids_;             // read in training by this rank, by column
  ExchangeBytes<int64_t> sent_;         // by this rank, in training
  nlohmann::ordered_json fingerprint_;  // of the data
  int64_t first_step_ = 0;              // steps done before this run
  int64_t steps_ = 0;                   // to be done in all, those before this run included
  bool stopped_ = false;
  int64_t samples_ = 0;    // of all ranks, in this run
  Stages warm_, trained_;  // time per stage in this run's steps: in the first few, and in all
  double seconds_ = 0, read_seconds_ = 0, waited_seconds_ = 0, evaluate_seconds_ = 0;
  double first_step_seconds_ = 0;               // from the start of this process to the end of its first step
  std::unique_ptr<Trace> trace_, input_trace_;  // of the steps, and of the thread that takes batches in
};

}  // namespace tessera::cli
