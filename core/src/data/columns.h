// Says how a model sees the columns of a reader plugin's files: the config's [[column]]s, and what they learned from
// the training rows (vocabularies, means). It is saved with the model as JSON, so that all later data are encoded the
// same way.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
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
#include "tessera/data.h"

namespace tessera::data {

// Maps texts to rows 1, 2, ... in order of arrival. Row 0 is for all other texts.
class Vocabulary {
 public:
  int64_t row(std::string_view text) const {
    const auto found = rows_.find(text);
    return found == rows_.end() ? 0 : found->second;
  }
  // Returns true if the text is new.
  bool add(std::string_view text) {
    if (const auto found = rows_.find(text); found != rows_.end()) {
      ++counts_[static_cast<size_t>(found->second - 1)];
      return false;
    }
    counts_.push_back(1);
    return rows_.emplace(text, std::ssize(rows_) + 1).second;
  }
  // Keeps texts that were added at least `min_count` times, in their order.
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

// Rows of a block, and their place in the file.
struct BlockRows {
  const std::string& file;
  int64_t first_row;    // the block's first row in the file, from 0
  int64_t first, rows;  // in the block
  // Returns "clicks.csv, row 17, column "film""; `row` counts in the block. Requests have no file.
  std::string where(int64_t row, const std::string& column) const;
};

class Columns {
 public:
  // kInvalidArgument: there is no label or no id, keys contradict each other, or ids have no number of rows.
  explicit Columns(const Config& config);
  // From the result of json(). kDataLoss: the error names `source`.
  Columns(const std::string& json, const std::string& source);
  std::string json() const;
  const std::string& reader() const { return reader_; }  // of the training data
  // Adds an option to the reader's name, unless it is empty.
  void settle(const std::string& option);
  // kInvalidArgument: the config's columns differ from these, or are read in another way.
  void require_same(const Columns& config) const;

  std::vector<std::string> labels() const;
  LabelForm label_form() const;  // form of the samples' labels
  std::vector<std::string> dense() const;
  using Vector = ColumnEncoding::Vector;
  std::vector<Vector> vectors() const;
  int64_t dense_width() const;          // dense values and those of vectors
  std::vector<DataColumn> ids() const;  // a vocabulary that has not learned has 1 row
  // Says which columns the files have, and which of them are lists. Without `needs_label` the files may lack labels and
  // weight, which then are 0 and 1. kInvalidArgument: a cross of several lists.
  void meet(const std::vector<FileColumn>& files, bool needs_label);
  // kInvalidArgument: a column that is read as numbers has times of another unit than the training data.
  void require_same_units(const std::vector<FileColumn>& files) const;
  bool labelled() const { return labelled_; }
  // Columns to read from the files by ReaderComponent, each once per type. Call it after meet().
  const std::vector<WantedColumn>& wanted() const { return wanted_; }

  bool must_learn() const { return !learning().empty(); }
  std::string learning() const;  // the first column that has to learn; empty: none, or they were loaded from a model
  // Learns from the training rows, in order. Call finish_learning() once afterwards.
  void learn(const BlockRows& at, std::span<const tsr_reader_values> values);
  void finish_learning();

  // kInvalidArgument: a label that contradicts the config, a negative weight, or a missing value.
  void append(const BlockRows& at, std::span<const tsr_reader_values> values, Examples& examples) const;
  using Ids = ColumnEncoding::Ids;
  // These are ColumnEncoding's.
  std::vector<std::string> names() const;
  const ColumnConfig* column(const std::string& name) const;
  bool reads(const std::string& field) const;
  static int32_t type_of(const ColumnConfig& column);
  std::optional<std::vector<std::string>> words(const std::string& table) const;
  void encode(const std::string& name, int64_t rows, const tsr_reader_values& values, Ids& out) const;
  void cross(const std::string& name, std::span<const Ids* const> parts, Ids& out) const;
  float dense_value(const std::string& name, double value) const;
  double dense_number(const std::string& name, std::string_view text) const;

  // An upper bound of the memory for `samples` samples whose text has `text_bytes` bytes.
  int64_t memory_of(int64_t samples, int64_t text_bytes) const;

 private:
  struct Column {
    std::string name;
    ColumnConfig config;             // without its names
    std::string table;               // for ids: columns of one table share vocabulary and hash
    int32_t type = TSR_READER_TEXT;  // of its values
    bool list = false;               // a row has any number of ids
    size_t place = 0;                // index in wanted(); crosses have none
    std::string unit;                // of times that are read as numbers; empty: they are no times
    double mean = 0, deviation = 1;
    // while it learns: number of values, and the sum of their squared distances to the mean
    double count = 0, squares = 0;
    MissingValue missing;  // while it learns
    bool standardised() const;
    bool learns_missing() const { return config.missing && !config.missing->word.empty(); }
    const std::string& field() const { return config.column.empty() ? name : config.column; }  // name in the files
  };
  // The part of json() that is not learned.
  static nlohmann::ordered_json described(const Column& column);

  void check() const;
  std::vector<const Column*> of(const std::string& as) const;
  static float label_of(const Column& column, const BlockRows& at, const tsr_reader_values& v, int64_t row);
  static float weight_of(const Column& column, const BlockRows& at, const tsr_reader_values& v, int64_t row);
  static double dense_of(const Column& column, double value);
  void require_readable(const Column& column, const FileColumn& file) const;
  void learn_units(const std::vector<FileColumn>& files);
  void place_columns();
  const Column* find(const std::string& name) const;  // null: none
  const Column& named(const std::string& name) const;
  void encode(const Column& column, const BlockRows& at, const tsr_reader_values& v, Ids& out) const;
  std::vector<float> labels_of(const BlockRows& at, std::span<const tsr_reader_values> values) const;
  std::vector<float> dense_of(const BlockRows& at, std::span<const tsr_reader_values> values) const;
  // Writes the vectors of rows to to + r * stride.
  static void vectors_of(const Column& column, const BlockRows& at, const tsr_reader_values& v, float* to,
                         size_t stride);
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
  bool xxh64_ = true;  // false: an older model hashes texts as sdk::row_of() does
  bool words_ = true;  // false: an older model looks up texts unchanged
};

}  // namespace tessera::data
