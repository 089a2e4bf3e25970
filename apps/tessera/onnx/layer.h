// A layer that is being written into an ONNX graph: its options, parameters and inputs.
//
// A dense value is [batch, width]. A sequence is [batch, length, width], where `length` is that of the longest sample:
// a sample's rows come first, and the values after them have no meaning.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "onnx/graph_writer.h"
#include "tessera/error.h"

namespace tessera::cli {

// The rows of a sequence. Values with the same Rows have the same number of rows in each sample.
struct Rows {
  std::string lengths;  // int64 [batch]
  std::string longest;  // int64 [1]: the size of dimension 1
  int64_t fixed = 0;    // the number of rows of each sample, if it is known, so that nothing is padding
};

struct OnnxValue {
  std::string name;
  int64_t width = 0;
  std::shared_ptr<const Rows> rows = nullptr;  // null: a dense value
  bool integers = false;                       // int64 [batch, 1] or [batch, length, 1]
  std::string probability = {};                // a simpler name of the sigmoid of this logit; empty: there is none
};

class OnnxLayer {
 public:
  // `parameters`: names in the graph and shapes, by the layer's own names.
  struct Parameter {
    std::string name;
    std::vector<int64_t> shape;
  };

  OnnxLayer(GraphWriter& graph, std::string name, std::string type, const std::string& options)
      : g(graph), name_(std::move(name)), type_(std::move(type)), options_(nlohmann::json::parse(options)) {}

  // Returns an option. Before finish(), every option of the layer must be asked for or ignored.
  template <class T>
  T option(const char* key, T otherwise) {
    known_.insert(key);
    return options_.contains(key) ? options_[key].get<T>() : otherwise;
  }
  bool has(const char* key) {
    known_.insert(key);
    return options_.contains(key);
  }
  void ignore(const std::vector<const char*>& keys) { known_.insert(keys.begin(), keys.end()); }
  // kUnimplemented: an option has not been asked for, so the graph may compute something else.
  void finish() const {
    for (const auto& [key, value] : options_.items()) {
      if (!known_.contains(key) && key != "inputs") refuse(str_cat("its option \"", key, "\" is not known here"));
    }
  }
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(Code::kUnimplemented, "layer \"", name_, "\" (", type_, ") cannot be written as ONNX: ", parts...);
  }

  bool has_parameter(const std::string& name) const { return parameters.contains(name); }
  const std::string& parameter(const std::string& name) const { return at(name).name; }
  const std::vector<int64_t>& shape_of(const std::string& name) const { return at(name).shape; }
  const std::string& name() const { return name_; }
  const std::string& type() const { return type_; }

  // All inputs side by side.
  OnnxValue joined() const {
    GraphWriter::Names names;
    OnnxValue out = inputs.at(0);
    out.width = 0;
    for (const OnnxValue& in : inputs) names.push_back(in.name), out.width += in.width;
    out.name = g.concat(names);
    return out;
  }

  GraphWriter& g;
  std::vector<OnnxValue> inputs;
  std::map<std::string, Parameter> parameters;  // also the buffers

 private:
  const Parameter& at(const std::string& name) const {
    const auto found = parameters.find(name);
    if (found == parameters.end()) refuse("it has no parameter \"", name, "\"");
    return found->second;
  }

  std::string name_, type_;
  nlohmann::json options_;
  std::set<std::string> known_;
};

using OnnxValues = std::vector<OnnxValue>;
using WriteLayer = OnnxValues (*)(OnnxLayer& layer);
using LayerTable = std::map<std::string, WriteLayer>;

// Layers by type; each file of layers adds its own.
void add_dense_layers(LayerTable& table);
void add_sequence_layers(LayerTable& table);
void add_attention(LayerTable& table);

// Parts that several layers share. `prefix` comes before the names of parameters: "0.".
std::string write_linear(OnnxLayer& layer, const std::string& x, const std::string& prefix);
std::string write_activation(OnnxLayer& layer, const std::string& x, const std::string& kind, double slope,
                             const std::string& prefix);

// Positions of rows: int64 [1, length, 1].
std::string positions_of(GraphWriter& g, const Rows& rows);
// Numbers of rows as int64 [batch, 1, 1].
std::string lengths_of(GraphWriter& g, const Rows& rows);
// Returns `beyond` for samples with more than `most` rows, and 0 for others: int64 [batch, 1, 1]. Added to an index
// into a table of `beyond` rows, it makes the runtime fail, because the layer refuses such samples.
std::string if_longer(GraphWriter& g, const Rows& rows, int64_t most, int64_t beyond);
// True where a sample has a row: bool [batch, length, 1].
std::string present(GraphWriter& g, const Rows& rows);
// x, with 0 where a sample has no row.
std::string without_padding(GraphWriter& g, const OnnxValue& x);

}  // namespace tessera::cli
