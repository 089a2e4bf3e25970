#include "train/start_vectors.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "checkpoint/together.h"
#include "data/columns.h"
#include "train/start_rows.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "NumPy's arrays are little-endian");

// A matrix of float32 in NumPy's format.
struct Vectors {
  std::string path, bytes;
  size_t begin = 0;  // of the values
  int64_t rows = 0, width = 0;

  void copy(int64_t row, int64_t col, int64_t cols, float* to) const {
    std::memcpy(to, bytes.data() + begin + sizeof(float) * static_cast<size_t>(row * width + col),
                sizeof(float) * static_cast<size_t>(cols));
  }
};

// The number after `key` in a header, from `at` on, which moves behind it. -1: there is none.
int64_t number_after(std::string_view header, std::string_view key, size_t& at) {
  at = header.find(key, at);
  if (at == std::string_view::npos) return -1;
  at += key.size();
  while (at < header.size() && header[at] == ' ') ++at;
  int64_t number = -1;
  const auto [end, error] = std::from_chars(header.data() + at, header.data() + header.size(), number);
  at = static_cast<size_t>(end - header.data());
  return error == std::errc() ? number : -1;
}

Vectors read_vectors(const std::string& path) {
  Vectors out{path, read_file(path, "cannot read the vectors of ")};
  const std::string_view all = out.bytes;
  constexpr size_t kBefore = 10;
  const bool known = all.size() >= kBefore && all.starts_with("\x93NUMPY") && all[6] >= 1 && all[6] <= 3;
  const size_t length = known && all[6] == 1 ? 2 : 4;
  uint32_t size = 0;
  if (known && all.size() >= 8 + length) std::memcpy(&size, all.data() + 8, length);
  out.begin = 8 + length + size;
  const std::string_view header = known ? all.substr(8 + length, size) : "";
  size_t at = header.find("'shape':");
  if (at != std::string_view::npos) {
    out.rows = number_after(header, "(", at);
    out.width = number_after(header, ",", at);
  }
  const bool floats = header.find("'<f4'") != std::string_view::npos;
  if (floats && out.width > 0 && header.find("'fortran_order': True") != std::string_view::npos)
    fail(Code::kInvalidArgument, path, " has its values column by column: save numpy.ascontiguousarray(array)");
  if (!floats || header.find("False") == std::string_view::npos || out.rows < 0 || out.width < 1)
    fail(Code::kInvalidArgument, path, " is not a matrix of float32 as numpy.save writes it: save ",
         "array.astype(\"float32\") with two dimensions");
  if (all.size() != out.begin + sizeof(float) * static_cast<size_t>(out.rows) * static_cast<size_t>(out.width))
    fail(Code::kDataLoss, path, " has ", all.size(), " bytes, which is not the size of ", out.rows, " vectors of ",
         out.width, " values: it is truncated or damaged");
  std::vector<float> vector(static_cast<size_t>(out.width));
  for (int64_t v = 0; v < out.rows; ++v) {
    out.copy(v, 0, out.width, vector.data());
    if (!std::all_of(vector.begin(), vector.end(), [](float value) { return std::isfinite(value); }))
      fail(Code::kInvalidArgument, path, ": vector ", v, " (the first is 0) has a value that is not finite");
  }
  return out;
}

// The row of each vector; -1: the table has none.
class RowsOfIds {
 public:
  RowsOfIds(const TableConfig& table, const std::string& encoding) : table_(table) {
    if (!encoding.empty()) columns_.emplace(encoding, "the data's encoding");
    feature_ = table.features.empty() ? table.name : table.features[0];
    const ColumnConfig* column = columns_ ? columns_->column(feature_) : nullptr;
    words_ = column && column->ids == "vocabulary";
    if (column && (!column->cross.empty() || (column->ids != "vocabulary" && column->ids != "row")))
      fail(Code::kInvalidArgument, "table ", table.name, " has a start, but its ids share rows (ids = \"",
           column->cross.empty() ? column->ids : "hash", "\"): give them ids = \"vocabulary\", or leave start out");
  }

  std::vector<int64_t> of(const Vectors& vectors) const {
    std::vector<int64_t> out;
    const std::string path = vectors.path + ".ids.txt";
    if (!std::filesystem::exists(path)) {
      if (words_)
        fail(Code::kInvalidArgument, "table ", table_.name, " has start = \"", vectors.path,
             "\" and ids = \"vocabulary\", whose rows are in the order in which the texts occur, but there is no file ",
             path, ": write there the id of each vector, one a line");
      for (int64_t row = 0; row < vectors.rows; ++row) out.push_back(row < table_.rows ? row : -1);
      return out;
    }
    const std::string text = read_file(path, "cannot read the ids of ");
    std::string_view rest = text;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      std::string_view id = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (id.ends_with('\r')) id.remove_suffix(1);
      out.push_back(words_ ? row_of_word(id) : row_of_number(id, path, std::ssize(out)));
    }
    if (std::ssize(out) != vectors.rows)
      fail(Code::kInvalidArgument, path, " has ", out.size(), " lines, but ", vectors.path, " has ", vectors.rows,
           " vectors: it must have the id of each");
    return out;
  }

 private:
  // An empty text is that of row 0, which all words share that the vocabulary does not have.
  int64_t row_of_word(std::string_view id) const {
    if (id.empty()) return 0;
    const int64_t ends[] = {0, std::ssize(id)};
    tsr_reader_values values{};
    values.values = id.data();
    values.texts = ends;
    data::Columns::Ids ids;
    columns_->encode(feature_, 1, values, ids);
    return ids.values.empty() || ids.values[0] == 0 ? -1 : ids.values[0];
  }
  int64_t row_of_number(std::string_view id, const std::string& path, int64_t line) const {
    int64_t row = -1;
    const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), row);
    if (error != std::errc() || end != id.data() + id.size() || row < 0)
      fail(Code::kInvalidArgument, path, ", line ", line + 1, ": \"", id,
           "\" is not a number from 0 on, but the ids of ", "table ", table_.name, " are rows");
    return row < table_.rows ? row : -1;
  }

  const TableConfig& table_;
  std::string feature_;
  std::optional<data::Columns> columns_;
  bool words_ = false;
};

std::string start_table(const TableConfig& table, const std::string& encoding, const checkpoint::ModelTable& model,
                        const ProcessGroup& group) {
  Vectors vectors;
  std::unordered_map<int64_t, int64_t> vector_of;  // by row
  checkpoint::together(group, "vectors of a table", [&] {
    vectors = read_vectors(table.start);
    if (vectors.width != model.stored.dim)
      fail(Code::kInvalidArgument, table.start, " has vectors of ", vectors.width, " values, but the rows of table ",
           table.name, " have ", model.stored.dim, ": set embedding_dim = ", vectors.width, " in its [[table]]");
    const std::vector<int64_t> rows = RowsOfIds(table, encoding).of(vectors);
    for (size_t v = 0; v < rows.size(); ++v) {
      if (rows[v] < 0) continue;
      if (!vector_of.emplace(rows[v], static_cast<int64_t>(v)).second)
        fail(Code::kInvalidArgument, table.start, ".ids.txt, line ", v + 1, ": an earlier line has the same id");
    }
    if (vector_of.empty())
      fail(Code::kInvalidArgument, "table ", table.name, " has none of the ids of ", table.start,
           ".ids.txt: write there the ids that the data have");
    return "";
  });
  set_rows(model, group, [&](int64_t row, int64_t col, int64_t cols, float* to) {
    if (const auto at = vector_of.find(row); at != vector_of.end()) vectors.copy(at->second, col, cols, to);
  });
  return str_cat("table ", table.name, " begins with ", vector_of.size(), " of ", vectors.rows, " vectors of ",
                 table.start, ", and the others of its ", table.rows, " rows as without it");
}

}  // namespace

void check_start(const std::vector<TableConfig>& tables) {
  for (const TableConfig& t : tables) {
    if (!t.start.empty() && t.any_id)
      fail(Code::kInvalidArgument, "table ", t.name, " has a start, but takes any id, so that it has no rows before ",
           "training: leave start out, or set any_id = false and rows");
    if (!t.start.empty() && !t.start.ends_with(".npy"))
      fail(Code::kInvalidArgument, "table ", t.name, " has start = \"", t.start,
           "\", but vectors are in a .npy file: write it with numpy.save");
  }
}

std::vector<std::string> set_start_vectors(const std::vector<TableConfig>& tables, const std::string& encoding,
                                           ModelTrainer& trainer) {
  std::vector<std::string> out;
  for (const TableConfig& t : tables) {
    if (t.start.empty()) continue;
    for (const checkpoint::ModelTable& model : checkpoint::model_tables(trainer.parallel())) {
      if (model.stored.name == t.name) out.push_back(start_table(t, encoding, model, trainer.group()));
    }
  }
  return out;
}

}  // namespace tessera
