// gpu/formulas.h - device code: one row's update by a group of lanes (plugins/optimizers/row_updates.inc).
#pragma once

#include "gpu/columns.h"
#include "gpu/update.h"

namespace tessera::gpu {

// A row's gradient, chunk by chunk. The first kHeld chunks are in registers; source.sum(columns, out) computes the
// others whenever they are read. kHeld 1 is only for rows of one chunk, and has no code for further chunks.
template <bool kVectors, class Source, int32_t kHeld>
struct RowGradient {
  [[maybe_unused]] static constexpr int32_t kChunks = kHeld;
  const Source& source;
  int32_t lane;
  int32_t lanes;
  int32_t dim;
  int32_t chunks;  // 0 for a group without a row
  float held[kHeld > 0 ? kHeld : 1][kLaneColumns];

  GPU_DEVICE RowGradient(const Source& from, int32_t group_lane, int32_t group, int32_t row_dim, int32_t row_chunks)
      : source(from), lane(group_lane), lanes(group), dim(row_dim), chunks(row_chunks) {}

  // Calls body(chunk, columns) for each chunk that this lane has in registers.
  template <class Body>
  GPU_DEVICE void each_held(Body body) const {
    GPU_UNROLL
    for (int32_t c = 0; c < kHeld; ++c) {
      const LaneColumns<kVectors> columns(c, lane, lanes, dim);
      if (c < chunks && columns.any()) body(c, columns);
    }
  }
  // Calls body(chunk, columns, gradient) for each of this lane's chunks.
  template <class Body>
  GPU_DEVICE void each(Body body) const {
    each_held([&](int32_t c, const auto& columns) { body(c, columns, held[c]); });
    if constexpr (kHeld != 1) {
      for (int32_t c = kHeld; c < chunks; ++c) {
        const LaneColumns<kVectors> columns(c, lane, lanes, dim);
        if (!columns.any()) continue;
        float gradient[kLaneColumns];
        source.sum(columns, gradient);
        body(c, columns, gradient);
      }
    }
  }
};

// A row's weights. The first kCopied chunks have been copied to copied[chunk * kBlockThreads], in the block's memory.
template <class Row, int32_t kCopied>
struct RowWeights {
  Row* row;
  const Pack<Row, kLaneColumns>* copied;

  template <class Columns>
  GPU_DEVICE void load(int32_t chunk, const Columns& columns, float (&out)[kLaneColumns]) const {
    if (chunk < kCopied) {
      to_floats(copied[chunk * kBlockThreads], out);
    } else {
      columns.load(row, out);
    }
  }
};
template <class Row>
GPU_DEVICE Row* weights_of(const TableView& table, int64_t row) {
  return static_cast<Row*>(table.weights) + row * table.row_stride;
}

// w = decay * w - factor * g
struct RowwiseStep {
  float decay;
  float factor;
};

// The factor of a weight if weight decay is not part of the gradient.
GPU_DEVICE float decoupled(const UpdateStep& s) {
  return s.weight_decay_mode == WeightDecay::kDecouple ? 1 - s.learning_rate * s.weight_decay : 1;
}

// The row's state for update_row: exact_rowwise_adagrad's, and 0 for other formulas.
GPU_DEVICE float row_state(const UpdateStep& s, const TableView& table, int64_t row) {
  return s.formula == Formula::kRowwiseAdagrad ? table.per_row[row * table.row_states] : 0;
}

// The part of exact_rowwise_adagrad that needs the whole row; updates its state. All lanes of the warp call it.
template <class Gradient, class Weights>
GPU_DEVICE RowwiseStep rowwise_adagrad(const UpdateStep& s, const TableView& table, int64_t row, float state,
                                       const Gradient& gradient, const Weights& weights) {
  const bool l2 = s.weight_decay_mode == WeightDecay::kL2;
  float sum = 0;
  gradient.each([&](int32_t c, const auto& columns, const float(&g)[kLaneColumns]) {
    float w[kLaneColumns] = {};
    if (l2) weights.load(c, columns, w);
    GPU_UNROLL
    for (int32_t i = 0; i < kLaneColumns; ++i) {
      if (!columns.has(i)) continue;
      const float q = l2 ? g[i] + s.weight_decay * w[i] : g[i];
      sum += q * q;
    }
  });
  const float momentum = state + divide(group_sum(sum, gradient.lanes), static_cast<float>(table.dim));
  if (gradient.chunks > 0 && gradient.lane == 0) table.per_row[row * table.row_states] = momentum;
  const float factor = divide(s.learning_rate, square_root(momentum) + s.eps);
  return {l2 ? 1 - factor * s.weight_decay : decoupled(s), factor};
}

// Updates one lane's columns of a row. `states` are the row's, with one value per element.
template <class Columns>
GPU_DEVICE void update_columns(const UpdateStep& s, const RowwiseStep& rowwise, const Columns& columns, float* states,
                               int32_t dim, const float (&g)[kLaneColumns], float (&w)[kLaneColumns]) {
  float m1[kLaneColumns];
  float m2[kLaneColumns];
  switch (s.formula) {
    case Formula::kSgd: {
      const float kept = s.weight_decay_mode == WeightDecay::kNone ? 1 : 1 - s.learning_rate * s.weight_decay;
      GPU_UNROLL
      for (int32_t i = 0; i < kLaneColumns; ++i) w[i] = kept * w[i] - s.learning_rate * g[i];
      return;
    }
    case Formula::kRowwiseAdagrad:
      GPU_UNROLL
      for (int32_t i = 0; i < kLaneColumns; ++i) w[i] = rowwise.decay * w[i] - rowwise.factor * g[i];
      return;
    case Formula::kAdagrad: {
      const float kept = decoupled(s), of_weight = s.weight_decay_mode == WeightDecay::kL2 ? s.weight_decay : 0;
      columns.load(states, m1);
      GPU_UNROLL
      for (int32_t i = 0; i < kLaneColumns; ++i) {
        const float q = g[i] + of_weight * w[i];
        m1[i] += q * q;
        w[i] = kept * w[i] - divide(s.learning_rate * q, square_root(m1[i]) + s.eps);
      }
      columns.store(states, true, m1);
      return;
    }
    case Formula::kAdam:
      columns.load(states, m1);
      columns.load(states + dim, m2);
      GPU_UNROLL
      for (int32_t i = 0; i < kLaneColumns; ++i) {
        m1[i] = s.beta1 * m1[i] + (1 - s.beta1) * g[i];
        m2[i] = s.beta2 * m2[i] + (1 - s.beta2) * g[i] * g[i];
        const float direction = divide(m1[i] * s.correction1, square_root(m2[i] * s.correction2) + s.eps);
        w[i] -= s.learning_rate * (direction + s.weight_decay * w[i]);
      }
      columns.store(states, true, m1);
      columns.store(states + dim, true, m2);
      return;
  }
}

// Updates the row. `state` is row_state(), read by all lanes. All lanes of the warp call it; groups without a row have
// 0 chunks.
template <class Gradient, class Weights>
GPU_DEVICE void update_row(const UpdateStep& s, const TableView& table, int64_t row, float state,
                           const Gradient& gradient, const Weights& weights) {
  RowwiseStep rowwise{1, 0};
  if (s.formula == Formula::kRowwiseAdagrad) rowwise = rowwise_adagrad(s, table, row, state, gradient, weights);
  float* states = table.elements + row * table.element_stride;
  gradient.each([&](int32_t c, const auto& columns, const float(&g)[kLaneColumns]) {
    float w[kLaneColumns];
    weights.load(c, columns, w);
    update_columns(s, rowwise, columns, states, table.dim, g, w);
    columns.store(weights.row, true, w);
  });
}

}  // namespace tessera::gpu
