// The time to reduce dense gradients over ranks while layers run backward.
#pragma once

#include <functional>

#include "tessera/step_figures.h"

namespace tessera {

// Returns the seconds that the reduction still takes after the layers have run backward. `backward` is the time that
// they take; 0 if nothing is reduced meanwhile. `layer` maps a layer's operations to seconds, and `all_reduce` a
// bucket's bytes. Buckets are filled from the first layer on. They are reduced one after the other, the last bucket
// first, each as soon as its layers have run.
double reduce_after_backward(const DenseWork& dense, const Curve& layer, double batch, double backward,
                             const std::function<double(double bytes)>& all_reduce);

}  // namespace tessera
