// The columns of a request's rows: the values that each accepts, and the values so far, one list per row.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "serve/infer_json.h"
#include "serve/protocol.h"
#include "tessera/error.h"

namespace tessera::serve {

// A number of the JSON that a double may not hold, such as an id of more than 64 bits, as it is written.
struct NumberText {
  std::string_view text;
};
// A value of the JSON. A text may be the word for a value of any type.
using RowValue = std::variant<std::monostate, bool, int64_t, uint64_t, double, NumberText, std::string_view>;
RowValue row_value(double number, std::string_view text);
// Appends a text as it is, a number or a truth value as a word, and nothing for a missing value.
void append_text(const RowValue& value, std::string& out);

class RowColumn {
 public:
  enum class Kind {
    kTexts,    // words of a vocabulary or hash column
    kNumbers,  // values of a bucket column
    kIds,      // row numbers
    kDense,    // one number per row, or none
    kArray,    // all dense inputs of a model without columns
  };
  struct Form {
    std::string name, field;  // name in the model, and name in the rows
    Kind kind = Kind::kIds;
    int32_t type = 0;  // TSR_READER_*: what the model's reader is asked for
    bool weighted = false;
    char separator = 0;                       // separates a list within one text; 0: a text is one value
    bool needed = false;                      // a dense value that must not be missing, because it has no substitute
    size_t width = 1;                         // values of a kArray
    const ColumnEncoding* columns = nullptr;  // read a dense column's texts; null: these are plain numbers
    bool takes_all = false;                   // dense: numbers are also treated like texts
    bool counts_missing = false;              // a missing value counts as a value
    char decimal = 0;                         // decimal sign of numbers in texts; 0: the point
    bool missing_words = false;               // words such as "NA" are missing numbers, as for the reader of the files
    // Each number of a vector that is missing or empty. Unset: such a row is refused.
    std::optional<double> missing = {};
  };
  explicit RowColumn(Form form) : form_(std::move(form)) {}

  const Form& form() const { return form_; }
  bool takes_lists() const { return form_.kind != Kind::kDense; }
  bool given() const { return seen_; }  // the row being read has it

  // Call begin(), take() for each value, then end_row() for each row, counted from 1; only end_row() if the row has no
  // value. Throws kInvalidArgument, with row and column, for an invalid value and for a column that occurs twice.
  void begin(int64_t row);
  void take(const RowValue& value, bool in_list);
  void weigh(const RowValue& weight);  // weight of the last value
  void end_row(int64_t row);
  // Throws like take() for an item of a JSON array that looks like one with its weight, "new:0.5".
  void check_item(const RowValue& value) const;

  // The number or the id of a value. They throw like take().
  double number_of(const RowValue& value) const;  // NaN: missing
  int64_t id_of(const RowValue& value) const;

  // Appends the column to a request as tensors; appends nothing if no row has a value of a dense column.
  void give(InferJson& out) const;

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... why) const {
    fail(Code::kInvalidArgument, "row ", row_, ", column \"", form_.field, "\": ", why...);
  }

 private:
  bool is_missing(const RowValue& value) const;
  void take_word(const RowValue& value);
  double taken_of(std::string_view text) const;
  void split(std::string_view text);
  size_t count() const { return form_.kind == Kind::kTexts ? ends_.size() - 1 : numbers_.size(); }

  Form form_;
  int64_t row_ = 0;    // the row being read
  size_t before_ = 0;  // values of the previous rows
  bool seen_ = false;  // this row has the column
  bool took_ = false;  // the last take() added a value
  bool any_ = false;   // some row has a value
  std::string texts_;
  std::vector<int64_t> ends_ = {0}, numbers_;  // ids, or the bits of doubles
  std::vector<int32_t> lengths_;
  std::vector<float> weights_;
};

std::vector<RowColumn> row_columns(const ModelDescription& model, const ColumnEncoding* columns);

}  // namespace tessera::serve
