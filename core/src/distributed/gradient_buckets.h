// The dense parameters' gradients, summed over ranks in buckets: one exchange for many parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "tessera/optim.h"
#include "tessera/process_group.h"

namespace tessera {

// `bytes`: of a bucket, about. `rounded`: gradients travel as bfloat16, in host memory only (kUnimplemented).
struct BucketOptions {
  int64_t bytes;
  bool rounded = false;
};

class GradientBuckets {
 public:
  // From now on, in host memory, layers make their gradients in the buckets (Parameter::grad_buffer), so
  // that nothing is copied before and after.
  GradientBuckets(ParameterList parameters, std::shared_ptr<ProcessGroup> group, const BucketOptions& options);

  // Collective. These parameters have their gradients; all ranks name the same ones in each step, in any order. In host
  // memory, a bucket's exchange starts once all of its parameters, and those of all later buckets, have theirs.
  void finished(const ParameterList& parameters);
  void all_finished();  // says so of all parameters
  // gradient := scale * its sum over ranks. See DistributedModelParallel::all_reduce_gradients.
  void all_reduce(float scale);

 private:
  // A bucket as bfloat16. Each rank adds up one share of it, in float32 and in the order of ranks, and hands out the
  // sum. So every rank gets the same bits.
  struct Rounded {
    Tensor all;                   // what this rank sends; later the sums, from all ranks
    Tensor parts;                 // this rank's share, of each rank
    Tensor sums;                  // of `parts`
    std::vector<int64_t> shares;  // values that each rank adds up
    std::vector<int64_t> own;     // this rank's share, once for each rank
  };
  // Parameters [first, last), all in the same place.
  struct Bucket {
    size_t first, last;
    Tensor buffer;   // gradients and, behind them, one flag for each: has a rank a gradient at all?
    int64_t values;  // of gradients
    Rounded rounded;
    Work sum;  // in host memory, from start() to end()
  };
  static CallSite site_of(const Bucket& bucket);
  void make_rounded(Bucket& bucket) const;
  void start(Bucket& bucket) const;
  void add_up(Bucket& bucket) const;  // starts the second half of the exchange if values are rounded
  void end(Bucket& bucket, float scale) const;
  void reduce_on_device(const Bucket& bucket, float scale);

  ParameterList parameters_;
  std::shared_ptr<ProcessGroup> group_;
  const bool rounded_;
  std::vector<Bucket> buckets_;
  size_t started_ = 0;                                     // buckets, from the last one on
  std::unordered_map<const Parameter*, size_t> place_of_;  // in parameters_
  std::vector<bool> finished_;                             // by the same place
  std::vector<tsr_parameter_update> updates_;              // scratch
};

}  // namespace tessera
