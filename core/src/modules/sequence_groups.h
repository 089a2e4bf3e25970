// Which values of a graph have the same rows: dense ones have a row for each sample, and sequences have offsets, which
// several values may share.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "tessera/dense.h"

namespace tessera {

// Dense values are group 0. The model's sequences have the groups 1, 2, and so on, one each. More groups are those of
// layers' outputs that have offsets of their own.
class SequenceGroups {
 public:
  static constexpr size_t kDense = 0;

  // Groups of the model's sequences, with a name for each. Call it before add().
  explicit SequenceGroups(std::vector<std::string> sequences)
      : inputs_(sequences.size()), names_(std::move(sequences)) {
    for (size_t group = 0; group <= inputs_; ++group) same_.push_back(group);
  }
  // A new group, of a layer's output.
  size_t add(std::string name) {
    names_.push_back(std::move(name));
    same_.push_back(same_.size());
    return same_.size() - 1;
  }
  // The group that stands for all that are equal to this one.
  size_t of(size_t group) const { return same_[group]; }
  bool is_input(size_t group) const { return group != kDense && group <= inputs_; }
  const std::string& name(size_t group) const { return names_[group - 1]; }
  // Flags of the values of a group: those of DrawnInput.
  void set_flags(size_t group, uint32_t flags) { flags_.emplace_back(group, flags); }
  uint32_t flags(size_t group) const {
    for (const auto& [of, flags] : flags_) {
      if (of == group) return flags;
    }
    return 0;
  }
  // Says in an error which calls have rows of a group: ", drawn during=training". Empty: all do.
  const char* when(size_t group) const {
    return (flags(group) & TSR_VALUE_ONLY_IN_TRAINING) != 0     ? ", drawn during=training"
           : (flags(group) & TSR_VALUE_ONLY_IN_EVALUATION) != 0 ? ", drawn during=evaluation"
                                                                : "";
  }

  // Pairs of values of a layer that are sequences of the model with different groups; the layer may need them equal.
  struct Pair {
    size_t first, second;  // groups
    std::string layer, first_name, second_name;
  };
  // Takes two groups as equal from here on. check() tests whether they are.
  void join(Pair pair);
  // `sequences` are the model's in a batch. kInvalidArgument: two that layers take as equal have different offsets; the
  // message names the layer and both.
  void check(const std::vector<DenseInput>& sequences) const;

 private:
  size_t inputs_;
  std::vector<std::string> names_;  // of group 1, 2, and so on
  std::vector<size_t> same_;
  std::vector<Pair> joined_;
  std::vector<std::pair<size_t, uint32_t>> flags_;
};

// The first sample in which the offsets differ; -1: they are equal.
int64_t first_difference(const Tensor& offsets, const Tensor& others);
// Rows of a sample.
int64_t rows_of(const Tensor& offsets, int64_t sample);

}  // namespace tessera
