// Writes the output of `tessera predict`: for each sample its number and, per head asked, its label and values.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "predict/heads.h"

namespace tessera::cli {

// One line per sample: "row,label,score" for one head, "row,click_label,click,..." for several. A head with several
// values per sample has columns NAME_0, NAME_1, ..., and a list in JSON.
class ScoreWriter {
 public:
  // An empty `path` means standard output.
  ScoreWriter(const std::string& path, bool as_json, const std::vector<AskedHead>& heads);
  // Adds a batch; values[o] are those of output o of the model.
  void add(const std::vector<std::vector<float>>& values, const Batch& batch);
  void flush();

 private:
  struct Column {
    AskedHead head;
    std::string label_key, value_key;  // keys in front of these numbers in a line
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
