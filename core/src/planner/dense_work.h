// The dense gradients' reduction over ranks, which goes on while layers run backward.
#pragma once

#include <functional>

#include "tessera/step_figures.h"

namespace tessera {

// Seconds of the reduction after all layers have run backward, which takes `backward` seconds (0: no layer runs while
// it goes on). `layer` gives the seconds of a layer by its operations, and `all_reduce` those of a bucket by its bytes.
// Buckets are made from the first layer on. They are reduced one after the other from the last one on, each when its
// layers have run.
double reduce_after_backward(const DenseWork& dense, const Curve& layer, double batch, double backward,
                             const std::function<double(double bytes)>& all_reduce);

}  // namespace tessera
