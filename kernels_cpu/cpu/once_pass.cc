#include "once_pass.h"

#include <algorithm>

#include "row_sinks.h"

namespace tessera_cpu {

OncePass::OncePass(const Walk& walk, const OnceMap& once, const RowOps& ops)
    : walk_(walk),
      once_(once),
      ops_(ops),
      as_it_lies_(walk.storage == Storage::kFloat32 && walk.max_gradient == 0 && walk.grad_scale == 1),
      gradient_bytes_(walk.dim * bytes_of(walk.storage)) {}

// The gradient of a row that occurs only in this output row, as walk() would compute it; valid until the block flushes.
const float* OncePass::gradient(uint32_t output_row) const {
  if (as_it_lies_ && (walk_.output_rows == nullptr || walk_.output_rows[output_row].scale == 1)) {
    return reinterpret_cast<const float*>(address(output_row));
  }
  const PlainEntry entry{0, output_row};
  int64_t row;
  Walk one = walk_;
  one.plain = &entry;
  one.count = 1;
  one.block = nullptr;
  one.out_rows = &row;
  one.out_values = walk_.block->next_gradient();
  ops_.walk(one);
  return one.out_values;
}

template <class Id, class Sink>
PlainEntry* OncePass::pass(const IdRun& run, Sink& sink, PlainEntry* again) const {
  const Id* const ids = static_cast<const Id*>(run.ids);
  const int64_t ahead = sink.ahead();
  int64_t p = run.begin;
  for (int64_t i = p; i < std::min(p + ahead, run.end); ++i) sink.prefetch(static_cast<uint32_t>(ids[i]));
  for (int64_t bag = 0; bag < run.bags; ++bag) {
    const uint32_t output_row = static_cast<uint32_t>(run.first_output_row + bag);
    prefetch_gradient(output_row);
    const float* g = nullptr;
    for (const int64_t end = run.first(bag + 1); p < end; ++p) {
      if (ahead > 0 && p + ahead < run.end) sink.prefetch(static_cast<uint32_t>(ids[p + ahead]));
      const uint32_t row = static_cast<uint32_t>(ids[p]);
      if (!once_.once(row)) {
        *again++ = {row, output_row};
        continue;
      }
      if (g == nullptr) g = gradient(output_row);
      if (sink.add(row, g)) g = nullptr;
    }
  }
  return again;
}

template <class Sink>
PlainEntry* OncePass::pass(const PlainEntry* entries, int64_t count, Sink& sink, PlainEntry* again) const {
  const int64_t ahead = sink.ahead();
  for (int64_t i = 0; i < std::min(ahead, count); ++i) sink.prefetch(entries[i].row);
  const float* g = nullptr;
  uint32_t output_row = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (ahead > 0 && i + ahead < count) sink.prefetch(entries[i + ahead].row);
    const PlainEntry e = entries[i];
    if (e.output_row != output_row) g = nullptr;
    output_row = e.output_row;
    if (!once_.once(e.row)) {
      *again++ = e;
      continue;
    }
    if (g == nullptr) {
      prefetch_gradient(output_row);
      g = gradient(output_row);
    }
    if (sink.add(e.row, g)) g = nullptr;
  }
  return again;
}

PlainEntry* OncePass::run(const IdRun& run, PlainEntry* again) const {
  return with_sink(walk_, as_it_lies_ && !run.scaled, [&](auto& sink) {
    return run.wide_ids ? pass<int64_t>(run, sink, again) : pass<int32_t>(run, sink, again);
  });
}

PlainEntry* OncePass::run(const PlainEntry* entries, int64_t count, PlainEntry* again) const {
  return with_sink(walk_, as_it_lies_ && walk_.output_rows == nullptr,
                   [&](auto& sink) { return pass(entries, count, sink, again); });
}

}  // namespace tessera_cpu
