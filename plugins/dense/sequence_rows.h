// Layers that change or combine rows of sequences: replace_last, interleave, pad_rows, unpad_rows, mask_rows,
// scale_rows, sample_linear.
#pragma once

#include <vector>

#include "sequence_moves.h"

namespace tessera_dense {

// "replace_last": the rows of the first input, of which the last ones of each sample are replaced by those of the
// second, a sequence or one row for each sample. With "learnt", the first input only says how many rows there are, and
// the rows that stay are one learnt row, the parameter "weight" [width].
class ReplaceLast : public MovesRows {
 public:
  explicit ReplaceLast(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
  // Rows of a sample that stay.
  int64_t staying(const SampleRows& all, const SampleRows& last, int64_t sample) const;

  bool learnt_;
};

// "interleave": the first row of each input, then the second row of each, and so on, sample by sample. The inputs are
// sequences with the same rows. With "evaluation": "first", only the first input's rows outside training.
class Interleave : public MovesRows {
 public:
  explicit Interleave(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;
  void max_rows(const tessera::sdk::ModuleCall& call, std::span<int64_t> rows) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;

  bool only_first_;
};

// "pad_rows": the first "length" rows of a sequence side by side, one row for each sample; "value" (0) stands for rows
// that a sample lacks. With "min_rows", a second sequence is needed: samples with fewer of its rows get only "value".
class PadRows : public MovesRows {
 public:
  explicit PadRows(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
  // Rows of a sample that are taken.
  int64_t taken(const tessera::sdk::ModuleCall& call, const SampleRows& rows, int64_t sample) const;

  int64_t length_, min_rows_;
  float value_;
};

// "unpad_rows": the inverse. The first input has "length" rows of each sample side by side. The second, a sequence,
// says how many there are; those beyond "length" are zeros.
class UnpadRows : public MovesRows {
 public:
  explicit UnpadRows(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;

  int64_t length_;
};

// "mask_rows": in training, each row of a sequence is replaced with the probability "rate" (0.2) by a learnt row, the
// parameter "weight" [width]; outside training the last row of each sample is. The second output, one value for each
// row, is 1 where this happened and else 0: weights for item_loss. BERT4Rec's masks (Sun et al., 2019).
class MaskRows : public MovesRows {
 public:
  explicit MaskRows(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
  // Writes 1 for masked rows and 0 for others.
  void draw(const tessera::sdk::ModuleCall& call, float* masked) const;

  double rate_;
};

// "scale_rows": each row of the first input times a number, the second input's: one for each row, or for each sample.
class ScaleRows : public MovesRows {
 public:
  explicit ScaleRows(const tessera::sdk::Setup& setup) : MovesRows(setup) {}
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
};

// "sample_linear": each row of the first input times the matrix [width, out] of its sample, which the second input has
// row by row: weights that a model makes for each user.
class SampleLinear : public MovesRows {
 public:
  explicit SampleLinear(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
};

}  // namespace tessera_dense
