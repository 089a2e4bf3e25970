// The report of a job that has trained.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tessera/train_job.h"

namespace tessera {

// Number of first steps that a comparison with a plan leaves out, of `steps`. In these, code is compiled and memory
// grows and is touched for the first time.
int64_t warm_up_steps(int64_t steps);

class TrainReport {
 public:
  explicit TrainReport(TrainJob& job) : job_(job) {}
  // TrainJob::report(). Collective.
  std::string text(const MetricValues& metrics);

 private:
  using Json = nlohmann::ordered_json;
  Json stages() const;  // time on this rank, and the largest over ranks
  Json pipeline() const;
  Json traffic();
  Json layers();
  Json tables() const;  // counts of their kernels, summed over ranks
  Json tables_of(const ShardedEmbeddings& collection) const;
  Json validations() const;
  double per_step(double seconds) const;  // in microseconds
  double summed(double value) const;      // over ranks

  TrainJob& job_;
};

}  // namespace tessera
