// Tells which values of a graph have the same rows. Dense values have a row for each sample. A sequence has offsets,
// which several values may share.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/dense.h"

namespace tessera {

// Dense values are group 0. The model's sequences are groups 1, 2, and so on. Outputs of layers with their own offsets
// have further groups.
class SequenceGroups {
 public:
  static constexpr size_t kDense = 0;

  // Groups of the model's sequences, with a name for each. Call it before add().
  explicit SequenceGroups(std::vector<std::string> sequences)
      : inputs_(sequences.size()), names_(std::move(sequences)) {
    for (size_t group = 0; group <= inputs_; ++group) same_.push_back(group);
  }
  // Adds a group for a layer's output.
  size_t add(std::string name) {
    names_.push_back(std::move(name));
    same_.push_back(same_.size());
    return same_.size() - 1;
  }
  // Returns the group that represents all groups equal to this one.
  size_t of(size_t group) const { return same_[group]; }
  bool is_input(size_t group) const { return group != kDense && group <= inputs_; }
  const std::string& name(size_t group) const { return names_[group - 1]; }
  // Sets flags of a group's values, which are those of DrawnInput.
  void set_flags(size_t group, uint32_t flags) { flags_.emplace_back(group, flags); }
  uint32_t flags(size_t group) const {
    for (const auto& [of, flags] : flags_) {
      if (of == group) return flags;
    }
    return 0;
  }
  // Returns the end of an error's sentence about the calls that have rows of a group: ", drawn during=training". Empty:
  // all calls have them.
  const char* when(size_t group) const {
    return (flags(group) & TSR_VALUE_ONLY_IN_TRAINING) != 0     ? ", drawn during=training"
           : (flags(group) & TSR_VALUE_ONLY_IN_EVALUATION) != 0 ? ", drawn during=evaluation"
                                                                : "";
  }

  // Two values of a layer that are sequences of the model with different groups, and that the layer may need to be
  // equal.
  struct Pair {
    size_t first, second;  // groups
    std::string layer, first_name, second_name;
  };
  // Treats two groups as equal from now on. check() tests whether they are.
  void join(Pair pair);
  // Joins the fewest of these pairs with which `accepts` is true, without those of other groups than the model's
  // sequences. Returns false, and joins none, if it is false even with all.
  bool join_fewest(std::vector<Pair> pairs, const std::function<bool(const SequenceGroups&)>& accepts);
  // `sequences` are the model's sequences in a batch. kInvalidArgument: two sequences that must be equal have different
  // offsets; the error names the layer and both sequences.
  void check(const std::vector<DenseInput>& sequences) const;

 private:
  size_t inputs_;
  std::vector<std::string> names_;  // of group 1, 2, and so on
  std::vector<size_t> same_;
  std::vector<Pair> joined_;
  std::vector<std::pair<size_t, uint32_t>> flags_;
};

// Returns the first sample in which the offsets differ; -1: they are equal.
int64_t first_difference(const Tensor& offsets, const Tensor& others);
// Returns the number of rows of a sample.
int64_t rows_of(const Tensor& offsets, int64_t sample);

}  // namespace tessera
