#include "data/row_order.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string_view>
#include <tuple>

#include "data/column_numbers.h"
#include "data/columns.h"
#include "data/time_format.h"
#include "tessera/sdk/number_text.h"
#include "tessera/sdk/values.h"

namespace tessera::data {
namespace {

// A sort key: a number, a time, or a text if the column has other texts.
struct Key {
  double number = 0;  // for a time: seconds since 1970
  int64_t rest = 0;   // for a time: nanoseconds
  std::string text;
  bool operator<(const Key& other) const {
    return std::tie(number, rest, text) < std::tie(other.number, other.rest, other.text);
  }
};

enum class KeyForm { kNumber, kTime, kText };

std::optional<Key> number_in(std::string_view text) {
  const std::optional<double> number = sdk::number_of(text);
  return number && std::isfinite(*number) ? std::optional(Key{*number, 0, ""}) : std::nullopt;
}

Key key_of_time(int64_t nanoseconds) {
  constexpr int64_t kSecond = 1000000000;
  int64_t seconds = nanoseconds / kSecond, rest = nanoseconds % kSecond;
  if (rest < 0) --seconds, rest += kSecond;
  return Key{static_cast<double>(seconds), rest, ""};
}

// `format` is that of the column's times; empty: ISO 8601.
std::optional<Key> time_key_in(std::string_view text, const std::string& format) {
  std::optional<int64_t> nanoseconds;
  if (!format.empty())
    nanoseconds = time_by(format, text);
  else if (const std::optional<sdk::TimeText> time = sdk::time_of(text))
    nanoseconds = time->nanoseconds;
  return nanoseconds ? std::optional(key_of_time(*nanoseconds)) : std::nullopt;
}

// The format of a date whose order as text is not that of time; "": it is none.
std::string unsorted_date(std::string_view text) {
  for (const std::string& format : time_formats_of({std::string(text)})) {
    if (!format.starts_with("%Y-%m")) return format;
  }
  return "";
}

bool has_digit(std::string_view text) { return text.find_first_of("0123456789") != std::string_view::npos; }

// Reads the keys of a column block by block. The first value decides the form of all.
class Keys {
 public:
  Keys(ReaderComponent& part, const OrderColumn& column) : part_(part), column_(column) {
    check_column();
    part_.select({{column_.name, TSR_READER_TEXT, false, false, ' '}});
  }
  // Returns the keys of the piece's rows.
  std::vector<Key> read(const BlockPiece& piece) {
    const FileBlock& block = part_.blocks()[static_cast<size_t>(piece.block)];
    const std::string file = part_.file(block.file);
    std::vector<Key> out;
    part_.read(piece.block, [&](std::span<const tsr_reader_values> values) {
      const tsr_reader_values& v = values[0];
      const BlockRows at{file, block.first_row, piece.first, piece.rows};
      for (int64_t row = piece.first; row < piece.first + piece.rows; ++row) {
        const std::string_view text(static_cast<const char*>(v.values) + v.texts[row],
                                    static_cast<size_t>(v.texts[row + 1] - v.texts[row]));
        // A word such as NA in the first row must not make texts of all numbers.
        if ((v.present != nullptr && v.present[row] == 0) || text.empty() || (!form_ && sdk::is_missing_word(text)))
          fail(Code::kInvalidArgument, at.where(row, column_.name), ": there is no value to order by");
        out.push_back(key_of(text, at, row));
      }
    });
    return out;
  }
  std::string where(const BlockPiece& piece, int64_t row) const {
    const FileBlock& block = part_.blocks()[static_cast<size_t>(piece.block)];
    return BlockRows{part_.file(block.file), block.first_row, 0, block.rows}.where(piece.first + row, column_.name);
  }

 private:
  void check_column() const {
    constexpr size_t kMost = 50;
    const std::vector<FileColumn> columns = part_.columns();
    std::string known;
    for (size_t i = 0; i < columns.size(); ++i) {
      if (columns[i].name == column_.name) return;
      if (i < kMost) known += str_cat(i == 0 ? "" : ", ", columns[i].name);
    }
    if (columns.size() > kMost) known += str_cat(", and ", columns.size() - kMost, " others");
    fail(Code::kNotFound, column_.key, ": the files have no column \"", column_.name, "\"; they have ", known);
  }

  Key key_of(std::string_view whole, const BlockRows& at, int64_t row) {
    const std::string_view text = sdk::trimmed(whole);
    const bool times = !column_.time_format.empty();
    std::optional<Key> number = times || form_ == KeyForm::kText ? std::nullopt : number_in(text);
    std::optional<Key> time = form_ == KeyForm::kText || number ? std::nullopt : time_key_in(text, column_.time_format);
    if (column_.as_time && number) time = epoch_of(number->number, at, row), number.reset();
    if (times && !time)
      fail(Code::kInvalidArgument, at.where(row, column_.name), ": \"", text, "\" is not a time as time_format \"",
           column_.time_format, "\" says");
    const KeyForm form = number ? KeyForm::kNumber : time ? KeyForm::kTime : KeyForm::kText;
    if (!form_) {
      form_ = form;
      if (column_.only_times && form == KeyForm::kText)
        fail(Code::kInvalidArgument, at.where(row, column_.name), ": \"", text, "\" is not a time: ", column_.key,
             " takes numbers, and dates and times such as 2024-01-31 or 2024-01-31 12:34:56, or as the time_format of "
             "its [[column]] says");
      const std::string date = form == KeyForm::kText ? unsorted_date(text) : "";
      if (!date.empty())
        fail(Code::kInvalidArgument, at.where(row, column_.name), ": \"", text, "\" looks like a date, but ",
             column_.key, " would sort it as text: set time_format of its [[column]], as \"", date,
             "\", or write 2024-01-31");
      if (form == KeyForm::kText && !sdk::number_advice(text).empty())
        fail(Code::kInvalidArgument, at.where(row, column_.name), ": \"", text, "\" looks like a number, but ",
             column_.key, " would sort it as text: write digits with a decimal point only");
      if (form == KeyForm::kText && !has_digit(text)) first_word_ = text;
    }
    if (*form_ == KeyForm::kText) {
      if (!first_word_.empty() && (number_in(text) || sdk::time_of(text)))
        fail(Code::kInvalidArgument, at.where(row, column_.name), ": \"", text, "\" has no place after \"", first_word_,
             "\", the first value, which is not a number or time to order by");
      return {0, 0, std::string(whole)};
    }
    if (form != *form_)
      fail(Code::kInvalidArgument, at.where(row, column_.name), ": \"", text, "\" is not a ",
           *form_ == KeyForm::kNumber ? "number" : "time", " to order by, but the first value is one");
    return number ? *number : time.value_or(Key());
  }

  Key epoch_of(double number, const BlockRows& at, int64_t row) const {
    const std::optional<int64_t> nanoseconds = time_of_number(number);
    if (!nanoseconds)
      fail(Code::kInvalidArgument, at.where(row, column_.name), ": ", number,
           " is no time since 1970, but a [[column]] ", "takes times from this column");
    return key_of_time(*nanoseconds);
  }

  ReaderComponent& part_;
  OrderColumn column_;
  std::optional<KeyForm> form_;  // unset before the first value
  std::string first_word_;       // the first value if it is a text without digits
};

constexpr const char* kSort = "; raise data.buffer_mib above the size of the data, or sort the files";

void order_pieces(const char* key, Keys& keys, std::vector<BlockPiece>& pieces) {
  struct Ends {
    BlockPiece piece;
    Key first, last;
  };
  std::vector<Ends> all;
  for (const BlockPiece& piece : pieces) {
    const std::vector<Key> of = keys.read(piece);
    const auto sorted = std::is_sorted_until(of.begin(), of.end());
    if (sorted != of.end())
      fail(Code::kInvalidArgument, keys.where(piece, sorted - of.begin()),
           ": the value is less than that of the row before, but streamed data must be in the order of ", key, kSort);
    if (!of.empty()) all.push_back({piece, of.front(), of.back()});
  }
  std::stable_sort(all.begin(), all.end(), [](const Ends& a, const Ends& b) { return a.first < b.first; });
  pieces.clear();
  for (size_t i = 0; i < all.size(); ++i) {
    if (i > 0 && all[i].first < all[i - 1].last)
      fail(Code::kInvalidArgument, keys.where(all[i].piece, 0), ": the value lies between those around ",
           keys.where(all[i - 1].piece, 0), ", but streamed files must not overlap", kSort);
    pieces.push_back(all[i].piece);
  }
}

}  // namespace

std::vector<uint32_t> order_rows(ReaderComponent& part, const OrderColumn& column, bool keep,
                                 std::vector<BlockPiece>& pieces) {
  Keys keys(part, column);
  if (!keep) {
    order_pieces(column.key, keys, pieces);
    return {};
  }
  std::vector<Key> all;
  for (const BlockPiece& piece : pieces) {
    std::vector<Key> of = keys.read(piece);
    all.insert(all.end(), std::make_move_iterator(of.begin()), std::make_move_iterator(of.end()));
  }
  std::vector<uint32_t> rows(all.size());
  std::iota(rows.begin(), rows.end(), 0u);
  std::stable_sort(rows.begin(), rows.end(), [&](uint32_t a, uint32_t b) { return all[a] < all[b]; });
  return rows;
}

}  // namespace tessera::data
