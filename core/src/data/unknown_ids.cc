#include "tessera/data.h"

#include <algorithm>
#include <cmath>

#include "config/json.h"

namespace tessera {
namespace {

template <class T>
int64_t zeros(const T* ids, int64_t begin, int64_t end) {
  return std::count(ids + begin, ids + end, T{0});
}

}  // namespace

bool UnknownIds::are_many() const {
  constexpr int64_t kFew = 20;
  return ids > 0 && (unknown == ids || (ids >= kFew && 2 * unknown >= ids));
}

std::string UnknownIds::warning() const {
  if (!are_many()) return "";
  const double percent = std::floor(100.0 * static_cast<double>(unknown) / static_cast<double>(ids));
  return str_cat(column, ": ", percent, " % of the ", ids, " ids were not in the vocabulary");
}

UnknownIdCounter::UnknownIdCounter(const std::string& encoding) {
  if (encoding.empty()) return;
  const config::JsonSource source{"the encoding of columns", Code::kDataLoss};
  const auto parsed = config::parse_json(encoding, source);
  for (const config::JsonObject& column : config::JsonObject(parsed, source).objects("columns")) {
    std::string ids;
    column.read("ids", ids);
    if (ids == "vocabulary") counts_.push_back({column.get<std::string>("name")});
  }
}

void UnknownIdCounter::add(const KeyedJaggedTensor& sparse) {
  const std::vector<int64_t>& begin = sparse.offset_per_key();
  for (UnknownIds& counted : counts_) {
    const auto key = std::find(sparse.keys().begin(), sparse.keys().end(), counted.column);
    if (key == sparse.keys().end()) continue;
    const auto at = static_cast<size_t>(key - sparse.keys().begin());
    counted.ids += begin[at + 1] - begin[at];
    counted.unknown += sparse.values().dtype() == DType::kInt32
                           ? zeros(sparse.values().data<int32_t>(), begin[at], begin[at + 1])
                           : zeros(sparse.values().data<int64_t>(), begin[at], begin[at + 1]);
  }
}

}  // namespace tessera
