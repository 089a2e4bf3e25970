// Inputs that are columns of the data, as files have them. The model's encoding of them is then part of the graph.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "onnx/layer.h"

namespace tessera::cli {

class ColumnWriter {
 public:
  // `encoding`: ModelDescription::encoding. kInvalidArgument: it is empty, so the model has no columns.
  ColumnWriter(GraphWriter& graph, const std::string& encoding);
  ~ColumnWriter();

  // The rows of a feature: int64 [batch, length], -1 where there is none.
  std::string rows_of(const std::string& feature);
  // The dense values and then those of vectors, float32 [batch, values].
  std::string dense();
  // A sentence for each input that is not a column as files have it.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Column;

  const Column& named(const std::string& feature) const;
  std::string number(const Column& column);
  std::string words(const Column& column);
  std::string given_rows(const Column& column);

  GraphWriter& g_;
  std::vector<Column> columns_;
  std::map<std::string, std::vector<std::string>> vocabularies_;
  std::map<std::string, std::string> numbers_;  // inputs by name
  std::vector<std::string> notes_;
};

}  // namespace tessera::cli
