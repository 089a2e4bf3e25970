// Sums the gradients of dense parameters over ranks, in buckets: one exchange for many parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "tessera/optim.h"
#include "tessera/process_group.h"

namespace tessera {

// `bytes` is the approximate size of a bucket. `rounded`: gradients travel as bfloat16, which only host memory supports
// (else kUnimplemented).
struct BucketOptions {
  int64_t bytes;
  bool rounded = false;
};

class GradientBuckets {
 public:
  // From now on layers in host memory write their gradients into the buckets (Parameter::grad_buffer), which saves a
  // copy before and after.
  GradientBuckets(ParameterList parameters, std::shared_ptr<ProcessGroup> group, const BucketOptions& options);

  // Tells that these parameters have their gradients. All ranks name the same parameters in each step, in any order. In
  // host memory, a bucket's exchange starts once all of its parameters, and those of all later buckets, have theirs.
  // Collective.
  void finished(const ParameterList& parameters);
  void all_finished();  // the same for all parameters
  // gradient := scale * its sum over ranks. See DistributedModelParallel::all_reduce_gradients.
  void all_reduce(float scale);

 private:
  // A bucket as bfloat16. Each rank adds up one share of it, in float32 and in the order of ranks, and hands out the
  // sum. So every rank gets the same bits.
  struct Rounded {
    Tensor all;                   // data to send; afterwards the sums of all shares
    Tensor parts;                 // every rank's values for this rank's share
    Tensor sums;                  // of `parts`
    std::vector<int64_t> shares;  // by rank: number of values that it adds up
    std::vector<int64_t> own;     // this rank's number of values, repeated for every rank
  };
  // Parameters [first, last), which are all on one device or all in host memory.
  struct Bucket {
    size_t first, last;
    Tensor buffer;   // gradients, followed by a flag for each parameter: does any rank have a gradient for it?
    int64_t values;  // number of gradient values
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
  size_t started_ = 0;  // buckets whose exchange has started; the last bucket is the first to start
  std::unordered_map<const Parameter*, size_t> place_of_;  // index in parameters_
  std::vector<bool> finished_;                             // by index in parameters_
  std::vector<tsr_parameter_update> updates_;              // scratch
};

}  // namespace tessera
