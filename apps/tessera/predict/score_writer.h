// What `tessera predict` writes of each sample: its number, and of each head that was asked its label and its values.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "predict/heads.h"

namespace tessera::cli {

// One line per sample: "row,label,score" of one head, "row,click_label,click,..." of several; a head with several
// values a sample has columns NAME_0, NAME_1, ..., in JSON a list.
class ScoreWriter {
 public:
  // `path` empty: standard output.
  ScoreWriter(const std::string& path, bool as_json, const std::vector<AskedHead>& heads);
  // A batch: values[o] of output o of the model.
  void add(const std::vector<std::vector<float>>& values, const Batch& batch);
  void flush();

 private:
  struct Column {
    AskedHead head;
    std::string label_key, value_key;  // what stands before these numbers in a line
  };
  std::ostream& out();
  void add_number(const char* format, float number);

  const std::string path_;
  const bool as_json_;
  std::vector<Column> columns_;
  std::ofstream file_;
  std::string line_;
  int64_t row_ = 0;
};

}  // namespace tessera::cli
