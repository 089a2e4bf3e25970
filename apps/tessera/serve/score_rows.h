// Requests for people: rows by the names of their columns, and scores by the names of the heads.
//
//   {"rows": [{"user": "u3", "age": 31, "tags": ["new", "red"]}]}  ->  {"scores": [{"click": 0.12}], ...}
//
// A value is a text, a number, true or false; null, "" and a column that is left out are missing. A list is an array;
// of a column with weights it may be an object {"id": weight} or an array of pairs [id, weight]. Columns of the
// training data that the model does not take, as its label, are passed over.
#pragma once

#include <string>
#include <string_view>

#include "serve/protocol.h"

namespace tessera::serve {

// What a request says before its rows can be read. kInvalidArgument: no JSON.
struct ScoreTarget {
  std::string model, version;  // empty: it does not say
};
ScoreTarget score_target(std::string_view body);

// kInvalidArgument: a sentence with row (from 1) and column. Memory as of parse_infer().
InferRequest parse_scores(const ModelDescription& model, std::string_view body, const InferLimits& limits);

// The answer to such a request, as render_infer(). `columns`: of the model's data, or null.
std::string render_scores(const ModelDescription& model, std::string_view name, const data::Columns* columns,
                          const InferRequest& request, std::span<const std::span<const float>> values);

// {"rows": [{"user": "a", "age": 1, ...}]}, for sentences.
std::string example_rows(const ModelDescription& model, const data::Columns* columns);

}  // namespace tessera::serve
