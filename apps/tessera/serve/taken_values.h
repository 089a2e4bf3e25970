// The values of a request's lists that a model takes: as many as training took.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "serve/protocol.h"

namespace tessera::serve {

// Marks the values of feature `name` that training would not have taken: those beyond the length of a history and, with
// `longest`, all but the last `longest` of the column. There is one element of `taken` for each value, and of `lengths`
// for each sample. kInvalidArgument: a history is too long, and which of its values training took is not known.
void mark_taken(const InferLimits& limits, const std::string& name, bool longest, std::span<const int32_t> lengths,
                std::vector<bool>& taken);

// Moves the ids that are taken to the front, with their weights (null: there are none), and corrects the lengths.
void leave_out(const std::vector<bool>& taken, float* weights, std::span<int32_t> lengths, int64_t* ids);

}  // namespace tessera::serve
