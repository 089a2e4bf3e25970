#include "serve/taken_values.h"

#include <algorithm>

#include "serve/history_maker.h"
#include "tessera/data.h"
#include "tessera/error.h"

namespace tessera::serve {

void mark_taken(const InferLimits& limits, const std::string& name, bool longest, std::span<const int32_t> lengths,
                std::vector<bool>& taken) {
  const ColumnConfig* const column = limits.columns != nullptr ? limits.columns->column(name) : nullptr;
  if (column == nullptr) return;
  const std::string& field = column->column.empty() ? name : column->column;
  const HistoryMaker::Bound* const bound = limits.maker != nullptr ? limits.maker->bound_of(field) : nullptr;
  auto value = taken.begin();
  for (size_t b = 0; b < lengths.size(); value += lengths[b++]) {
    int64_t begin = 0, end = lengths[b];
    if (bound != nullptr && end > bound->most) {
      if (bound->which == TSR_HISTORY_MIXED)
        fail(Code::kInvalidArgument, "sample ", b, " has ", end, " values of \"", field,
             "\", but histories of all actions have at most ", bound->most,
             ", and which of them the model would take is not known: send fewer, or the events themselves");
      if (bound->which == TSR_HISTORY_OLDEST)
        end = bound->most;
      else
        begin = end - bound->most;
    }
    if (longest && column->longest > 0) begin = std::max(begin, end - column->longest);
    std::fill(value, value + begin, false);
    std::fill(value + end, value + lengths[b], false);
  }
}

void leave_out(const std::vector<bool>& taken, float* weights, std::span<int32_t> lengths, int64_t* ids) {
  size_t from = 0, to = 0;
  for (int32_t& length : lengths) {
    const size_t last = from + static_cast<size_t>(length), first = to;
    for (; from < last; ++from) {
      if (!taken[from]) continue;
      ids[to] = ids[from];
      if (weights != nullptr) weights[to] = weights[from];
      ++to;
    }
    length = static_cast<int32_t>(to - first);
  }
}

}  // namespace tessera::serve
