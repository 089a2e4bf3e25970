// What the columns of a reader plugin's files are to a model: the config's [[column]]s, and what the training rows
// taught them (vocabularies, means). Saved with the model as JSON, so that all data that it ever sees are encoded
// alike.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "config/json.h"
#include "data/examples.h"
#include "data/missing_value.h"
#include "data/reader_component.h"
#include "tessera/config.h"

namespace tessera::data {

// Texts and their rows, in the order in which they came: 1, 2, ...; row 0 is that of all others.
class Vocabulary {
 public:
  int64_t row(std::string_view text) const {
    const auto found = rows_.find(text);
    return found == rows_.end() ? 0 : found->second;
  }
  // True where it is new.
  bool add(std::string_view text) {
    if (const auto found = rows_.find(text); found != rows_.end()) {
      ++counts_[static_cast<size_t>(found->second - 1)];
      return false;
    }
    counts_.push_back(1);
    return rows_.emplace(text, std::ssize(rows_) + 1).second;
  }
  // Leaves texts that were added so many times at least; the others keep their order.
  void drop_rare(int64_t min_count);
  int64_t rows() const { return std::ssize(rows_) + 1; }
  std::vector<std::string> words() const;  // by row, from 1

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> rows_;
  std::vector<int64_t> counts_;  // by row, from 1
};

inline bool has(const tsr_reader_values& v, int64_t row) { return v.present == nullptr || v.present[row] != 0; }

// Rows of a block, and where they are.
struct BlockRows {
  const std::string& file;
  int64_t first_row;    // in the file, of the block's first row, from 0
  int64_t first, rows;  // in the block
  // "clicks.csv, row 17, column "film"": `row` in the block. Requests have no file.
  std::string where(int64_t row, const std::string& column) const;
};

class Columns {
 public:
  // kInvalidArgument: no label, no ids, keys that do not fit each other, ids without a number of rows.
  explicit Columns(const Config& config);
  // Of json(). kDataLoss names `source`.
  Columns(const std::string& json, const std::string& source);
  std::string json() const;
  // kInvalidArgument where a config's columns are others than these, or are read otherwise.
  void require_same(const Columns& config) const;

  std::vector<std::string> labels() const;
  LabelForm label_form() const;  // of samples
  std::vector<std::string> dense() const;
  std::vector<DataColumn> ids() const;  // of a vocabulary that has not learned, 1 row
  // Tells which columns the files have, and which are lists by themselves. `needs_label`: else they may be without
  // labels and weight, which are 0 and 1 then. kInvalidArgument: a cross of several lists.
  void meet(const std::vector<FileColumn>& files, bool needs_label);
  bool labelled() const { return labelled_; }
  // For ReaderComponent, after meet(): what is read of the files, each column of theirs once as each type.
  const std::vector<WantedColumn>& wanted() const { return wanted_; }

  bool must_learn() const { return !learning().empty(); }
  std::string learning() const;  // the first column that learns, where this is no saved one; empty: there is none
  // Of the training rows, in their order; then once finish_learning().
  void learn(const BlockRows& at, std::span<const tsr_reader_values> values);
  void finish_learning();

  // kInvalidArgument: a label that is not what the config says, a weight below 0, a value that is missing.
  void append(const BlockRows& at, std::span<const tsr_reader_values> values, Examples& examples) const;
  struct Ids {
    std::vector<int64_t> values, begins;  // row r: [begins[r], begins[r + 1])
    std::vector<float> weights;           // empty: all 1
  };
  // One column at a time, for requests. Null: there is no such column.
  const ColumnConfig* column(const std::string& name) const;
  // TSR_READER_TEXT, ...: what its values are read as. Texts are taken by `take`, `decimal` and `strip`.
  static int32_t type_of(const ColumnConfig& column);
  // Of a column of ids that is no cross, and of one that is, whose parts' ids are in the order of its `cross`.
  void encode(const std::string& name, int64_t rows, const tsr_reader_values& values, Ids& out) const;
  void cross(const std::string& name, std::span<const Ids* const> parts, Ids& out) const;
  // A dense column's input, which is infinite if the value is too large for a float32. NaN: there is no value, and the
  // column has `missing`.
  float dense_value(const std::string& name, double value) const;
  // The value of a dense column whose values are texts; NaN: there is none. kInvalidArgument: the text is none.
  double dense_number(const std::string& name, std::string_view text) const;

  // Of so many samples in memory, whose text has so many bytes; more than it will be.
  int64_t memory_of(int64_t samples, int64_t text_bytes) const;

 private:
  struct Column {
    std::string name;
    ColumnConfig config;             // without its names
    std::string table;               // of ids: columns of one table share vocabulary and hash
    int32_t type = TSR_READER_TEXT;  // of its values
    bool list = false;               // any number of ids a row
    size_t place = 0;                // in wanted(); crosses have none
    double mean = 0, deviation = 1;
    double count = 0, squares = 0;  // while it learns: values, and sum of their squared distances to the mean
    MissingValue missing;           // while it learns
    bool standardised() const;
    bool learns_missing() const { return config.missing && !config.missing->word.empty(); }
    const std::string& field() const { return config.column.empty() ? name : config.column; }  // of the files
  };
  // Of json(), without what it has learned.
  static nlohmann::ordered_json described(const Column& column);

  void check() const;
  std::vector<const Column*> of(const std::string& as) const;
  static float label_of(const Column& column, const BlockRows& at, const tsr_reader_values& v, int64_t row);
  static float weight_of(const Column& column, const BlockRows& at, const tsr_reader_values& v, int64_t row);
  static double dense_of(const Column& column, double value);
  void require_readable(const Column& column, const FileColumn& file) const;
  void place_columns();
  const Column* find(const std::string& name) const;  // null: there is none
  const Column& named(const std::string& name) const;
  void encode(const Column& column, const BlockRows& at, const tsr_reader_values& v, Ids& out) const;
  std::vector<float> labels_of(const BlockRows& at, std::span<const tsr_reader_values> values) const;
  std::vector<float> dense_of(const BlockRows& at, std::span<const tsr_reader_values> values) const;
  void cross(const Column& column, std::span<const Ids* const> parts, Ids& out) const;
  bool hashes() const;          // texts or crosses
  bool looks_up_words() const;  // texts
  static void take_missing(Column& column);
  static void learn_numbers(Column& column, const BlockRows& at, const tsr_reader_values& v);
  void learn_words(const Column& column, const BlockRows& at, const tsr_reader_values& v);
  void encode_numbers(const Column& column, const BlockRows& at, const tsr_reader_values& v, Ids& out) const;

  std::string reader_;  // for json()
  std::vector<Column> columns_;
  std::map<std::string, Vocabulary> vocabularies_;  // by table
  std::vector<WantedColumn> wanted_;
  bool learned_ = false, labelled_ = true;
  bool xxh64_ = true;  // false: texts are hashed as row_of() does, by a model from before
  bool words_ = true;  // false: texts are looked up as they are, by a model from before
};

}  // namespace tessera::data
