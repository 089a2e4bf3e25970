#include "serve/unknown_id_counts.h"

#include <algorithm>

namespace tessera::serve {
namespace {

constexpr auto kMinute = std::chrono::minutes(1);
constexpr int64_t kEnough = 100;  // ids of a column needed before the log mentions it

}  // namespace

void UnknownIdCounts::add(const std::string& model, const ModelDescription& description, const ColumnEncoding* columns,
                          const InferRequest& request) {
  if (columns == nullptr) return;
  for (size_t f = 0; f < description.features.size(); ++f) {
    const std::string& name = description.features[f].name;
    const ColumnConfig* const column = columns->column(name);
    if (column == nullptr || column->ids != "vocabulary") continue;
    const auto ids = request.features[f].values;
    const int64_t count = std::ssize(ids), unknown = std::count(ids.begin(), ids.end(), int64_t{0});
    const std::lock_guard lock(mutex_);
    Column& counted = columns_[name];
    for (UnknownIds* to : {&counted.all, &counted.recent}) {
      to->column = name;
      to->ids += count;
      to->unknown += unknown;
    }
    look(model, counted);
  }
}

void UnknownIdCounts::look(const std::string& model, Column& column) {
  const Clock::time_point now = Clock::now();
  if (now < column.told + kMinute && column.told != Clock::time_point()) return;
  if (column.recent.ids >= kEnough && column.recent.are_many()) {
    const std::string warning = column.recent.warning();
    log_.write(Level::kWarning, "unknown_ids", {{"model", model}, {"warning", warning}});
    column.told = now;
  } else if (now < column.since + kMinute) {
    return;
  }
  column.since = now;
  column.recent = {};
}

std::vector<UnknownIds> UnknownIdCounts::counts() const {
  std::vector<UnknownIds> out;
  const std::lock_guard lock(mutex_);
  for (const auto& [name, column] : columns_) out.push_back(column.all);
  return out;
}

}  // namespace tessera::serve
