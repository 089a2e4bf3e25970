// gpu/update.h - what becomes of the gradients that gpu/gradient.h has grouped: rows are updated, or gradients are
// handed out, or both by hand (apply).
#pragma once

#include "gpu/gradient.h"

namespace tessera::gpu {

// The optimizers with a form here; their formulas are those of plugins/optimizers.
enum class Formula : int32_t { kSgd, kAdagrad, kRowwiseAdagrad, kAdam };
enum class WeightDecay : int32_t { kNone, kL2, kDecouple };

// All that a formula reads besides the row.
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
  float scale;    // multiplies it before anything else
  float maximum;  // it is clamped to [-this, this] then; 0: not
  bool vectors;   // it can be read in vectors of four wherever a bag's begins
};

// The target of one table's gradients: run r of all is row r - first_run here.
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

// Every row of the plan is updated. 2 launches.
void launch_update(const UpdateLaunch& what, const GradientSizes& sizes, const GradientWork& work,
                   const OutputGradient& gradient, const UpdateStep& step, Stream stream);
// Every run's gradient is written to targets[table] (device memory). 2 launches.
void launch_hand_out(const UpdateLaunch& what, const GradientSizes& sizes, const GradientWork& work,
                     const OutputGradient& gradient, const RunTarget* targets, Stream stream);
// Row rows[i] of `table` is updated by values[i * dim], for i < count.
void launch_apply(const UpdateLaunch& what, int32_t table, int64_t count, const int64_t* rows, const float* values,
                  const UpdateStep& step, Stream stream);
// grad_weights[p] for every position that a bag has: the dot product of its row and its bag's gradient.
void launch_weight_gradients(const UpdateLaunch& what, const BatchView& batch, const OutputGradient& gradient,
                             float* grad_weights, Stream stream);

}  // namespace tessera::gpu
