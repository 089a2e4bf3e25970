#include "serve/event_rows.h"

#include <algorithm>

#include "tessera/error.h"
#include "tessera/sdk/number_text.h"
#include "tessera/sdk/values.h"

namespace tessera::serve {

std::string text_of(const RowValue& value) {
  std::string out;
  append_text(value, out);
  return std::string(sdk::trimmed(out));
}

void EventRows::clear() {
  rows_ = 0;
  for (Column& column : columns_) {
    column.text.clear();
    column.ends.assign(1, 0);
    column.present.clear();
  }
}

void EventRows::begin() {
  ++rows_;
  for (Column& column : columns_) {
    column.ends.push_back(column.ends.back());
    column.present.push_back(0);
    column.given = false;
  }
}

bool EventRows::has_column(std::string_view name) const {
  return std::any_of(columns_.begin(), columns_.end(), [&](const Column& c) { return c.name == name; });
}

bool EventRows::has(std::string_view name) const {
  return std::any_of(columns_.begin(), columns_.end(), [&](const Column& c) { return c.name == name && c.given; });
}

bool EventRows::set(std::string_view name, const RowValue& value) {
  bool known = false;
  for (Column& column : columns_) {  // a column may be both the time and part of the history
    if (column.name != name) continue;
    if (column.given) fail(Code::kInvalidArgument, "column \"", shown(name), "\" is there twice");
    known = column.given = true;
    const std::string text = text_of(value);
    column.text += text;
    column.ends.back() = std::ssize(column.text);
    column.present.back() = text.empty() ? 0 : 1;
  }
  return known;
}

void EventRows::end(size_t first) const {
  for (size_t k = first; k < columns_.size(); ++k) {
    if (!columns_[k].given)
      fail(Code::kInvalidArgument, "column \"", columns_[k].name, "\" is missing: an event has ", names());
  }
}

std::string EventRows::names() const {
  std::string out;
  std::vector<std::string_view> told;
  for (const Column& column : columns_) {
    if (std::find(told.begin(), told.end(), column.name) != told.end()) continue;
    told.emplace_back(column.name);
    out += str_cat(out.empty() ? "" : ", ", column.name);
  }
  return out;
}

std::vector<tsr_reader_values> EventRows::values() const {
  std::vector<tsr_reader_values> out;
  for (const Column& column : columns_)
    out.push_back({sizeof(tsr_reader_values), 0, column.text.data(), column.ends.data(), nullptr, nullptr,
                   column.present.data()});
  return out;
}

}  // namespace tessera::serve
