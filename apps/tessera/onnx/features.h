// The inputs of an exported model: ids of features, the rows that they look up, dense values.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "onnx/columns.h"
#include "onnx/layer.h"
#include "tessera/predictor.h"

namespace tessera::cli {

enum class TablePlace {
  kInside,   // in the model's file
  kBeside,   // in a file FILE.data beside it, for models beyond 2 GB
  kOutside,  // in no file: the looked-up rows are inputs
};

// Makes an input when a layer first asks for it, so that a model has only the inputs that its heads need.
class FeatureWriter {
 public:
  // `data_file`: path of the file for kBeside. `columns`: computes rows and dense values from columns, and must outlive
  // this; null: they are the inputs.
  FeatureWriter(GraphWriter& graph, const InferenceModel& model, TablePlace place, std::string data_file,
                ColumnWriter* columns);

  OnnxValue input(const GraphInput& in);

 private:
  struct Ids {  // ids of a feature: int64 [batch, length]
    std::string ids;
    std::shared_ptr<const Rows> rows;
    std::string weights;  // float32 [batch, length]; empty: all 1
  };
  // A table's rows for one of its features. A sequence is a value of its own; others are columns of the pooled values.
  struct Part {
    size_t table;
    std::string feature;
    int64_t column;  // -1: a sequence
  };

  const Ids& ids_of(const std::string& feature);
  std::string table_rows(size_t table);
  std::string dequantized(size_t table);
  OnnxValue looked_up(const Part& part);
  OnnxValue rows_from_outside(const Part& part);
  std::string index_of(size_t table, const Ids& ids, std::string* valid);
  OnnxValue pooled_columns(const GraphInput& in);

  GraphWriter& g_;
  const InferenceModel& model_;
  TablePlace place_;
  std::string data_file_;
  ColumnWriter* columns_;
  int64_t data_bytes_ = 0;
  std::string dense_;
  std::vector<Part> parts_;
  std::map<std::string, Ids> ids_;
  std::map<size_t, std::string> tables_;
  std::map<size_t, OnnxValue> looked_up_;  // by index of parts_
};

}  // namespace tessera::cli
