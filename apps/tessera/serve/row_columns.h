// The columns of a request's rows: what each takes, and the values so far, one list a row.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "serve/infer_json.h"
#include "serve/protocol.h"
#include "tessera/error.h"

namespace tessera::serve {

// A value of the JSON; a text may be the word of any.
using RowValue = std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string_view>;

class RowColumn {
 public:
  enum class Kind {
    kTexts,    // of a vocabulary or a hash: words
    kNumbers,  // of buckets
    kIds,      // numbers of rows
    kDense,    // one number a row, or none
    kArray,    // all dense inputs of a model that knows no columns
  };
  struct Form {
    std::string name, field;  // of the model, and of the rows
    Kind kind = Kind::kIds;
    bool weighted = false;
    char separator = 0;                      // of a list in one text; 0: a text is one value
    bool needed = false;                     // dense, and there is nothing instead of a missing value
    size_t width = 1;                        // of kArray
    const data::Columns* columns = nullptr;  // which read a dense column's texts; null: they are plain numbers
    bool takes_all = false;                  // dense: numbers, too, are taken as their texts are
    bool counts_missing = false;             // a value that is missing is a value
    char decimal = 0;                        // of numbers in its texts; 0: the point
  };
  explicit RowColumn(Form form) : form_(std::move(form)) {}

  const Form& form() const { return form_; }
  bool takes_lists() const { return form_.kind != Kind::kDense; }

  // For each row, from 1: begin(), take() for each value, end_row(); without the first two where it has none.
  // kInvalidArgument, with row and column: the value is none of the column's; the column is there twice.
  void begin(int64_t row);
  void take(const RowValue& value, bool in_list);
  void weigh(const RowValue& weight);  // of the value before
  void end_row(int64_t row);

  // Appended to a request as tensors; empty where no row has a value of a dense column.
  void give(InferJson& out) const;

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... why) const {
    fail(Code::kInvalidArgument, "row ", row_, ", column \"", form_.field, "\": ", why...);
  }

 private:
  void take_word(const RowValue& value);
  double number_of(const RowValue& value) const;  // NaN: it is missing
  double taken_of(std::string_view text) const;
  int64_t id_of(const RowValue& value) const;
  void split(std::string_view text);
  size_t count() const { return form_.kind == Kind::kTexts ? ends_.size() - 1 : numbers_.size(); }

  Form form_;
  int64_t row_ = 0;    // that is being read
  size_t before_ = 0;  // values of the rows before
  bool seen_ = false;  // of this row
  bool took_ = false;  // the value before was one
  bool any_ = false;   // some row has a value
  std::string texts_;
  std::vector<int64_t> ends_ = {0}, numbers_;  // unless these are ids the bits of doubles
  std::vector<int32_t> lengths_;
  std::vector<float> weights_;
};

std::vector<RowColumn> row_columns(const ModelDescription& model, const data::Columns* columns);

}  // namespace tessera::serve
