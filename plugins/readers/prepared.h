// The reader prepared: a directory with meta.json and two text files with one sample per line (docs/data.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "samples.h"
#include "tessera/sdk/draft/reader_paths.h"
#include "tessera/sdk/options.h"

namespace tessera_readers {

// The content of meta.json. A line has the labels and the weight, the dense values, and a list for each table.
struct SampleForm {
  struct Table {
    std::string name;
    int64_t rows = 0;
    std::string pooling = "sum";
  };
  std::string name;
  std::vector<std::string> labels = {"label"};
  bool binary = true;     // the label is 0 or 1
  bool weighted = false;  // the sample's weight follows the labels
  std::vector<std::string> dense;
  std::vector<Table> tables;
  int64_t train_rows = -1, test_rows = -1;  // -1: unknown
  bool validated = false;                   // the files are training, validation and test, not training and test

  size_t numbers() const { return labels.size() + (weighted ? 1 : 0); }
  // The columns of a line, in its order. Their names differ.
  std::vector<tessera::sdk::ReaderColumn> columns() const;
  // The text of tsr_reader_paths::describe.
  std::string described() const;
};

class Prepared : public SampleReader {
 public:
  // With the options `labels`, `dense` and `columns`, which are numbers of columns, the path is a file of lines without
  // meta.json. Its columns are label1, ..., dense1, ..., column1, ...
  explicit Prepared(tessera::sdk::Options& options);
  const void* extension(std::string_view id) const;

  const char* opens(const std::string& path);
  const char* describe(const std::string& path);
  void open(std::string_view path, int64_t block_bytes) override;
  void follow(std::string_view path, std::string_view position) override;

 protected:
  Prepared() = default;
  void add_line(std::string_view line, const LinePlace& place, std::vector<SampleColumn>& columns) const override;

  SampleForm form_;
  std::string said_;  // the last answer

 private:
  bool bare_ = false;  // lines without meta.json
};

}  // namespace tessera_readers
