// Layers that add position, time or action to the rows of a sequence: position_embedding, time_encoding,
// action_embedding.
#pragma once

#include <string>
#include <vector>

#include "sequences.h"

namespace tessera_dense {

// A layer over a sequence that looks up rows of learnt tables. It computes their indices from its inputs.
class CodeLayer : public tessera::sdk::Module {
 public:
  const std::vector<tessera::sdk::Parameter>& parameters() const override { return parameters_; }
  void forward(const tessera::sdk::ModuleCall& call, tsr_module_context** context) override;
  void backward(const tessera::sdk::ModuleCall& call, tsr_module_context*) override;

 protected:
  explicit CodeLayer(const tessera::sdk::Setup& setup)
      : inputs_(setup.options.integers("inputs", {})), loops_(*choose_loops().of_rows) {}
  // `gradients` has a pointer for each parameter.
  virtual void compute(const tessera::sdk::ModuleCall& call, float* const* parameters) const = 0;
  virtual void compute_back(const tessera::sdk::ModuleCall& call, float* const* gradients) const = 0;
  // The width of the first input, which the option "inputs" lists.
  int64_t needed_row_width(const char* layer) const;
  // The number of a sample's targets, which are the last of its `rows` rows. Throws Failure if they are more than that.
  static int64_t targets_of(const RowCounts& targets, int64_t sample, int64_t rows);

  std::vector<int64_t> inputs_;
  const RowLoops& loops_;
  std::vector<tessera::sdk::Parameter> parameters_;

 private:
  std::vector<float*> pointers_, gradients_;
};

// "position_embedding": scale * x plus a learnt row for each position. Options: "length", the rows of the table;
// "from", the position from which rows are counted: "front", the first row; "end", so that a sample's last row gets the
// table's last; "target", backwards from the candidates, which the second input (RowCounts) counts if "targets" is set;
// "contextual": this many leading rows get the first rows of the table; "scale" (1). Parameter "weight" [length,
// width].
class PositionEmbedding : public CodeLayer {
 public:
  explicit PositionEmbedding(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call, float* const* parameters) const override;
  void compute_back(const tessera::sdk::ModuleCall& call, float* const* gradients) const override;
  int64_t row_of(int64_t position, int64_t rows, int64_t targets) const;
  template <class Body>
  void for_rows(const tessera::sdk::ModuleCall& call, const Body& body) const;

  int64_t length_, contextual_;
  std::string from_;
  bool targets_;
  float scale_;
};

// "time_encoding": encodes the times of a sequence's rows. The inputs after the first have the times, one after the
// other; "contextual" leading rows have the time 0. Option "kind": "sqrt" or "log" of the time to the sample's last
// row, in units of "unit" (60), chooses one of the learnt rows 0 to "buckets", which is added; "calendar" appends
// cosine and sine of the time for each of "units" ([3600, 86400]) and "periods" ([24, 7]), with the number "pi".
// Parameter "weight" [rows, width], except for "calendar"; "rows" is by default buckets + 1.
class TimeEncoding : public CodeLayer {
 public:
  explicit TimeEncoding(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call, float* const* parameters) const override;
  void compute_back(const tessera::sdk::ModuleCall& call, float* const* gradients) const override;
  bool calendar() const { return !periods_.empty(); }
  int64_t bucket(int64_t time, int64_t last) const;
  void append_calendar(int64_t time, float* to) const;
  template <class Body>
  void for_times(const tessera::sdk::ModuleCall& call, const Body& body) const;
  template <class Body>
  void for_buckets(const tessera::sdk::ModuleCall& call, const Body& body) const;

  bool log_ = false;
  double unit_ = 60, pi_ = 0;
  int64_t buckets_ = 0, contextual_ = 0;
  std::vector<int64_t> units_, periods_;
};

// "action_embedding": embeds a sequence of integers, whose bits say what was done. Each mask in "actions" gives "dim"
// values: a learnt row if the integer has a bit of the mask, otherwise zeros. A second sequence of integers, such as
// seconds watched, sets the bits "threshold_bits"[k] if it is at least "thresholds"[k]. With "targets", the last input
// counts each sample's last rows (RowCounts) whose actions are not known yet; a learnt row of their own stands for
// them. Instead, the first input may be a sequence of rows: the integers then belong to its first rows, and the others
// are targets. Parameters: "weight" [actions, dim], "target" [actions * dim].
class ActionEmbedding : public CodeLayer {
 public:
  explicit ActionEmbedding(const tessera::sdk::Setup& setup);
  std::vector<tessera::sdk::Value> outputs(std::span<const tessera::sdk::Value> inputs) const override;

 private:
  void compute(const tessera::sdk::ModuleCall& call, float* const* parameters) const override;
  void compute_back(const tessera::sdk::ModuleCall& call, float* const* gradients) const override;
  // Index of the first input with integers: 1 if a sequence of rows comes first, otherwise 0.
  static size_t codes_at(const tessera::sdk::ModuleCall& call) { return is_float(call.inputs[0].dtype) ? 1 : 0; }
  int64_t with_thresholds(int64_t bits, int64_t number) const;
  // Calls target(row) for each target, and action(row, k) for each action k of each other row.
  template <class Target, class Action>
  void for_actions(const tessera::sdk::ModuleCall& call, const Target& target, const Action& action) const;

  std::vector<int64_t> actions_, thresholds_, threshold_bits_;
  int64_t dim_;
  bool targets_;
};

}  // namespace tessera_dense
