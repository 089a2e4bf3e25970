// The dense parameters' gradients, summed over ranks in buckets: one exchange for many parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "tessera/optim.h"
#include "tessera/process_group.h"

namespace tessera {

class GradientBuckets {
 public:
  // From now on, in host memory, layers make their gradients in the buckets (Parameter::grad_buffer), so
  // that nothing is copied before and after. `bytes`: of a bucket, about.
  GradientBuckets(ParameterList parameters, std::shared_ptr<ProcessGroup> group, int64_t bytes);

  // Collective. These parameters have their gradients; all ranks name the same ones in each step, in any order. In host
  // memory, a bucket's exchange starts once all of its parameters, and those of all later buckets, have theirs.
  void finished(const ParameterList& parameters);
  void all_finished();  // says so of all parameters
  // gradient := scale * its sum over ranks. See DistributedModelParallel::all_reduce_gradients.
  void all_reduce(float scale);

 private:
  // Parameters [first, last), all in the same place.
  struct Bucket {
    size_t first, last;
    Tensor buffer;   // gradients and, behind them, one flag for each: has a rank a gradient at all?
    int64_t values;  // of gradients
    Work sum;        // in host memory, from start() to end()
  };
  static CallSite site_of(const Bucket& bucket);
  void start(Bucket& bucket) const;
  void end(Bucket& bucket, float scale) const;
  void reduce_on_device(const Bucket& bucket, float scale);

  ParameterList parameters_;
  std::shared_ptr<ProcessGroup> group_;
  std::vector<Bucket> buckets_;
  size_t started_ = 0;                                     // buckets, from the last one on
  std::unordered_map<const Parameter*, size_t> place_of_;  // in parameters_
  std::vector<bool> finished_;                             // by the same place
  std::vector<tsr_parameter_update> updates_;              // scratch
};

}  // namespace tessera
