// The formulas of the optimizers, compiled once per instruction set (see row_updates.inc).
#pragma once

#include <stdint.h>

namespace tessera_optimizers {

enum class WeightDecay { kNone, kL2, kDecouple };

// Inputs of a formula besides the row: hyperparameters in float32, and values that depend only on the step.
struct Terms {
  float learning_rate;
  float eps;
  float weight_decay;
  WeightDecay weight_decay_mode;
  float beta1;
  float beta2;
  float correction1;  // 1 / (1 - beta1^t)
  float correction2;  // 1 / (1 - beta2^t)
  float eta;
  float momentum;
  bool nesterov;
  float undamped;  // factor of the gradient in the momentum: 1 - dampening
  float rho;       // decay of Adadelta's means of squares
};

// Row i has weights[i], grads[i] and states[k * count + i]; they do not overlap.
struct Rows {
  int64_t dim;
  int64_t count;
  float* const* weights;
  const float* const* grads;
  float* const* states;
};

using UpdateRows = void (*)(const Terms& step, const Rows& rows);

struct RowUpdates {
  UpdateRows exact_sgd;
  UpdateRows exact_adagrad;
  UpdateRows exact_rowwise_adagrad;
  UpdateRows adam;
  UpdateRows partial_rowwise_adam;
  UpdateRows lamb;
  UpdateRows partial_rowwise_lamb;
  UpdateRows lars_sgd;
  UpdateRows decayed_sgd;   // without momentum and therefore without a state
  UpdateRows momentum_sgd;  // with weight decay of 0 or more
  UpdateRows adadelta;
};

namespace portable {
extern const RowUpdates kRowUpdates;
}
#if TESSERA_X86
namespace avx2 {
extern const RowUpdates kRowUpdates;
}
namespace avx512 {
extern const RowUpdates kRowUpdates;
}
#endif

}  // namespace tessera_optimizers
