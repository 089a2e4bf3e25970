// Layers that change or combine rows of sequences: replace_last, interleave, pad_rows, unpad_rows, mask_rows,
// scale_rows, sample_linear.
#pragma once

#include <vector>

#include "sequence_moves.h"

namespace tessera_dense {

// "replace_last": the rows of the first input, with each sample's last rows replaced by the rows of the second, which
// is a sequence or has one row for each sample. With "learnt", the first input only gives the number of rows, and the
// rows that are not replaced are all one learnt row, the parameter "weight" [width].
class ReplaceLast : public MovesRows {
 public:
  explicit ReplaceLast(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
  // The number of a sample's rows that are not replaced.
  int64_t staying(const SampleRows& all, const SampleRows& last, int64_t sample) const;

  bool learnt_;
};

// "interleave": for each sample, the first row of each input, then the second row of each, and so on. The inputs are
// sequences with the same numbers of rows. With "evaluation": "first", evaluations take only the first input's rows.
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

// "pad_rows": concatenates the first "length" rows of each sample into one row; "value" (0) fills the places of missing
// rows. With "min_rows", there is a second input, a sequence: samples with fewer rows of it get only "value".
class PadRows : public MovesRows {
 public:
  explicit PadRows(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
  // The number of a sample's rows that are taken.
  int64_t taken(const tessera::sdk::ModuleCall& call, const SampleRows& rows, int64_t sample) const;

  int64_t length_, min_rows_;
  float value_;
};

// "unpad_rows": the inverse of pad_rows. The first input has "length" rows of each sample, concatenated. The second, a
// sequence, gives the number of rows of the output; rows beyond "length" are zeros.
class UnpadRows : public MovesRows {
 public:
  explicit UnpadRows(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;

  int64_t length_;
};

// "mask_rows": BERT4Rec's masks (Sun et al., 2019). In training, each row of a sequence is replaced with probability
// "rate" (0.2) by a learnt row, the parameter "weight" [width]. In evaluations, each sample's last row is replaced. The
// second output has a value for each row, 1 if it was replaced and 0 if not, which can be the weights of item_loss.
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

// "scale_rows": multiplies each row of the first input by a number. The second input has one for each row, or one for
// each sample.
class ScaleRows : public MovesRows {
 public:
  explicit ScaleRows(const tessera::sdk::Setup& setup) : MovesRows(setup) {}
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
};

// "sample_linear": multiplies each row of the first input by its sample's matrix [width, out], which the second input
// has row by row. A model can thus make weights for each user.
class SampleLinear : public MovesRows {
 public:
  explicit SampleLinear(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call) override;
  void compute_back(const tessera::sdk::ModuleCall& call) override;
};

}  // namespace tessera_dense
