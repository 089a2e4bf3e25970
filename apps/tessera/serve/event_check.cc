#include "serve/event_check.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "tessera/error.h"

namespace tessera::serve {
namespace {

// The column that a list is made of: history.item is of "item", and so is history.like.item.
std::optional<size_t> event_column_of(const std::string& list, const std::vector<std::string>& event_columns) {
  std::optional<size_t> out;
  for (size_t k = 0; k < event_columns.size(); ++k) {
    if (!list.ends_with("." + event_columns[k])) continue;
    if (!out || event_columns[k].size() >= event_columns[*out].size()) out = k;
  }
  return out;
}

}  // namespace

EventCheck::EventCheck(const ModelDescription& model, std::shared_ptr<const ColumnEncoding> columns,
                       const std::vector<std::string>& event_columns, const std::vector<std::string>& lists)
    : columns_(std::move(columns)) {
  for (const RowColumn& column : row_columns(model, columns_.get())) {
    RowColumn::Form form = column.form();
    const ColumnConfig* const config = columns_->column(form.name);
    const bool any_text = form.kind == RowColumn::Kind::kTexts && !ColumnEncoding::numbers_in_text(*config);
    if (any_text || std::find(lists.begin(), lists.end(), form.field) == lists.end()) continue;
    const std::optional<size_t> from = event_column_of(form.field, event_columns);
    const auto feature = std::find_if(model.features.begin(), model.features.end(),
                                      [&](const ModelFeature& f) { return f.name == form.name; });
    if (!from || feature == model.features.end()) continue;
    const bool bounded = model.bounds_check == BoundsCheckMode::kFatal;
    form.field = event_columns[*from];
    checked_.push_back(
        {*from, RowColumn(std::move(form)), bounded ? feature->ids : std::numeric_limits<int64_t>::max()});
  }
}

// Fails as a row with this value would.
void EventCheck::check(const Checked& checked, std::string_view text) const {
  ColumnEncoding::Ids ids;
  if (checked.column.form().kind == RowColumn::Kind::kIds) {
    ids.values.push_back(checked.column.id_of(text));
  } else if (checked.column.form().kind == RowColumn::Kind::kNumbers) {
    (void)checked.column.number_of(text);
  } else {
    const int64_t texts[] = {0, std::ssize(text)}, lists[] = {0, 1};
    columns_->encode(checked.column.form().name, 1,
                     {sizeof(tsr_reader_values), 0, text.data(), texts, lists, nullptr, nullptr}, ids);
  }
  const bool bounded = checked.ids != std::numeric_limits<int64_t>::max();
  for (const int64_t id : ids.values) {
    if (bounded && (id < 0 || id >= checked.ids))
      checked.column.refuse("the id ", id, " is none of the model's, which are 0 to ", checked.ids - 1);
  }
}

std::string EventCheck::why_not(std::span<const tsr_reader_values> values, int64_t row) const {
  for (const Checked& checked : checked_) {
    const tsr_reader_values& v = values[checked.event_column];
    if (v.present != nullptr && v.present[row] == 0) continue;
    try {
      check(checked,
            {static_cast<const char*>(v.values) + v.texts[row], static_cast<size_t>(v.texts[row + 1] - v.texts[row])});
    } catch (const Error& e) {
      const std::string_view what = e.what();  // row 0, column "NAME": ...
      constexpr std::string_view kEnd = "\": ";
      const size_t begin = what.find(kEnd);
      return str_cat("column \"", checked.column.form().field,
                     "\": ", what.substr(begin == what.npos ? 0 : begin + kEnd.size()),
                     ", so no row with the event could be scored");
    }
  }
  return {};
}

}  // namespace tessera::serve
