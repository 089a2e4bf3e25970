// Requests for people: rows by the names of their columns, and scores by the names of the heads.
//
//   {"rows": [{"user": "u3", "age": 31, "tags": ["new", "red"]}]}  ->  {"scores": [{"click": 0.12}], ...}
//
// A value is a text, a number, true or false; null, "" and an absent column are missing values. A list is an array. A
// column with weights also accepts an object {"id": weight} or an array of pairs [id, weight]. Columns of the training
// data that the model does not take, such as its label, are skipped.
#pragma once

#include <string>
#include <string_view>

#include "serve/protocol.h"

namespace tessera::serve {

// The fields of a request that must be known before its rows can be read. Throws kInvalidArgument for invalid JSON.
struct ScoreTarget {
  std::string model, version;  // empty if not given
};
ScoreTarget score_target(std::string_view body);

// Throws kInvalidArgument: a sentence with the row (from 1) and the column. Memory is bounded as in parse_infer().
InferRequest parse_scores(const ModelDescription& model, std::string_view body, const InferLimits& limits);

// The answer to such a request, like render_infer(). `columns`: of the model's data, or null.
std::string render_scores(const ModelDescription& model, std::string_view name, const ColumnEncoding* columns,
                          const InferRequest& request, std::span<const std::span<const float>> values);

// An example for messages: {"rows": [{"user": "a", "age": 1, ...}]}.
std::string example_rows(const ModelDescription& model, const ColumnEncoding* columns);

}  // namespace tessera::serve
