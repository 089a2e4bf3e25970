#include "data/column_numbers.h"
#include "data/columns.h"

namespace tessera {

ColumnEncoding::ColumnEncoding(const std::string& encoding, const std::string& source)
    : columns_(std::make_shared<const data::Columns>(encoding, source)) {}

const std::string& ColumnEncoding::reader() const { return columns_->reader(); }
std::vector<std::string> ColumnEncoding::names() const { return columns_->names(); }
std::vector<std::string> ColumnEncoding::labels() const { return columns_->labels(); }
std::vector<std::string> ColumnEncoding::dense() const { return columns_->dense(); }
std::vector<ColumnEncoding::Vector> ColumnEncoding::vectors() const { return columns_->vectors(); }
int64_t ColumnEncoding::dense_width() const { return columns_->dense_width(); }
const ColumnConfig* ColumnEncoding::column(const std::string& name) const { return columns_->column(name); }
bool ColumnEncoding::reads(const std::string& field) const { return columns_->reads(field); }
int32_t ColumnEncoding::type_of(const ColumnConfig& column) { return data::Columns::type_of(column); }
bool ColumnEncoding::numbers_in_text(const ColumnConfig& column) { return data::numbers_in_text(column); }
std::optional<std::vector<std::string>> ColumnEncoding::words(const std::string& table) const {
  return columns_->words(table);
}
void ColumnEncoding::encode(const std::string& name, int64_t rows, const tsr_reader_values& values, Ids& out) const {
  columns_->encode(name, rows, values, out);
}
void ColumnEncoding::cross(const std::string& name, std::span<const Ids* const> parts, Ids& out) const {
  columns_->cross(name, parts, out);
}
float ColumnEncoding::dense_value(const std::string& name, double value) const {
  return columns_->dense_value(name, value);
}
double ColumnEncoding::dense_number(const std::string& name, std::string_view text) const {
  return columns_->dense_number(name, text);
}

}  // namespace tessera
