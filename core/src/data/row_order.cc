#include "data/row_order.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>
#include <string_view>

#include "data/columns.h"

namespace tessera::data {
namespace {

// A value: a number, or a text where the column's values are no numbers.
struct Key {
  double number = 0;
  std::string text;
  bool operator<(const Key& other) const { return number != other.number ? number < other.number : text < other.text; }
};

std::optional<double> number_in(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

// Keys of a column, block by block.
class Keys {
 public:
  Keys(ReaderPart& part, std::string column) : part_(part), column_(std::move(column)) {
    part_.select({{column_, TSR_READER_TEXT, false, false, ' '}});
  }
  // Of the piece's rows.
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
        if ((v.present != nullptr && v.present[row] == 0) || text.empty())
          fail(Code::kInvalidArgument, at.where(row, column_), ": there is no value to order by");
        const std::optional<double> number = number_in(text);
        if (!numbers_) numbers_ = number.has_value();
        if (*numbers_ && !number)
          fail(Code::kInvalidArgument, at.where(row, column_), ": \"", text,
               "\" is no number to order by, but the first value is one");
        out.push_back(*numbers_ ? Key{*number, ""} : Key{0, std::string(text)});
      }
    });
    return out;
  }
  std::string where(const BlockPiece& piece, int64_t row) const {
    const FileBlock& block = part_.blocks()[static_cast<size_t>(piece.block)];
    return BlockRows{part_.file(block.file), block.first_row, 0, block.rows}.where(piece.first + row, column_);
  }

 private:
  ReaderPart& part_;
  std::string column_;
  std::optional<bool> numbers_;  // whether all are; unset before the first
};

constexpr const char* kSort = "; larger data.buffer_mib than the data takes orders it in memory, or sort the files";

void order_pieces(Keys& keys, std::vector<BlockPiece>& pieces) {
  struct Ends {
    BlockPiece piece;
    Key first, last;
  };
  std::vector<Ends> all;
  for (const BlockPiece& piece : pieces) {
    const std::vector<Key> of = keys.read(piece);
    const auto sorted = std::is_sorted_until(of.begin(), of.end());
    if (sorted != of.end())
      fail(
          Code::kInvalidArgument, keys.where(piece, sorted - of.begin()),
          ": the value is below that of the row before, and data that is streamed is in order where data.order_by says",
          kSort);
    if (!of.empty()) all.push_back({piece, of.front(), of.back()});
  }
  std::stable_sort(all.begin(), all.end(), [](const Ends& a, const Ends& b) { return a.first < b.first; });
  pieces.clear();
  for (size_t i = 0; i < all.size(); ++i) {
    if (i > 0 && all[i].first < all[i - 1].last)
      fail(Code::kInvalidArgument, keys.where(all[i].piece, 0), ": the value lies between those around ",
           keys.where(all[i - 1].piece, 0), ", and data that is streamed has no overlapping files", kSort);
    pieces.push_back(all[i].piece);
  }
}

}  // namespace

std::vector<uint32_t> order_rows(ReaderPart& part, const std::string& column, bool keep,
                                 std::vector<BlockPiece>& pieces) {
  Keys keys(part, column);
  if (!keep) {
    order_pieces(keys, pieces);
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
