// gpu/update.h - updates rows with the gradients that gpu/gradient.h has grouped, or hands these gradients out. Also
// updates rows with given gradients (apply).
#pragma once

#include "gpu/gradient.h"

namespace tessera::gpu {

// The optimizers that run on the device. Their formulas are those of plugins/optimizers.
enum class Formula : int32_t { kSgd, kAdagrad, kRowwiseAdagrad, kAdam };
enum class WeightDecay : int32_t { kNone, kL2, kDecouple };

// Inputs of a formula besides the row.
struct UpdateStep {
  Formula formula;
  WeightDecay weight_decay_mode;
  float learning_rate;
  float eps;
  float weight_decay;
  float beta1;
  float beta2;
  float correction1;  // 1 / (1 - beta1^t)
  float correction2;  // 1 / (1 - beta2^t)
};

// The gradient of the output.
struct OutputGradient {
  const void* data;
  Storage storage;
  float scale;    // factor that is applied first
  float maximum;  // the gradient is then clamped to [-this, this]; 0: not clamped
  bool vectors;   // true if every bag's gradient can be read in vectors of four
};

// The target of one table's gradients. Run r of all runs becomes row r - first_run.
struct RunTarget {
  int64_t* rows;  // local row ids
  float* values;  // [runs, dim]
  int64_t first_run;
};

struct UpdateLaunch {
  const TableView* tables;
  int32_t num_tables;
  int32_t max_dim;
  Storage rows;
  bool vectors;  // all tables are aligned
};

// Updates every row of the plan, in 2 launches.
void launch_update(const UpdateLaunch& what, const GradientSizes& sizes, const GradientWork& work,
                   const OutputGradient& gradient, const UpdateStep& step, Stream stream);
// Writes every run's gradient to targets[table] (device memory), in 2 launches.
void launch_hand_out(const UpdateLaunch& what, const GradientSizes& sizes, const GradientWork& work,
                     const OutputGradient& gradient, const RunTarget* targets, Stream stream);
// Updates row rows[i] of `table` with values[i * dim], for i < count.
void launch_apply(const UpdateLaunch& what, int32_t table, int64_t count, const int64_t* rows, const float* values,
                  const UpdateStep& step, Stream stream);
// Sets grad_weights[p], for every position of a bag, to the dot product of its row and the bag's gradient.
void launch_weight_gradients(const UpdateLaunch& what, const BatchView& batch, const OutputGradient& gradient,
                             float* grad_weights, Stream stream);

}  // namespace tessera::gpu
