// A sharder that deals rows out like cards, or divides them into ranges.
#include "tessera/sdk/sharder.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <clocale>
#include <thread>

#include "faults.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace {

using namespace tessera::sdk;
using bad::has;

bool cuts_ranges() { return has("leaves_a_hole") || has("overlaps") || has("too_many_rectangles"); }

// Does what -ffast-math does when a library is opened.
struct AtOpening {
  AtOpening() {
#if defined(__x86_64__)
    if (has("flushes_denormals")) _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
    if (has("installs_a_handler")) signal(SIGTERM, [](int) {});
  }
};
const AtOpening kAtOpening;

class BadPlugins : public Sharder {
 public:
  explicit BadPlugins(const Setup& setup) : host_(setup.host) {
    if (has("ignores_options")) (void)setup.options.integer("tessera_verify_knows_no_such_option", 0);
    if (has("changes_the_locale")) std::setlocale(LC_NUMERIC, "C.UTF-8");
    if (has("changes_the_directory") && chdir("/") != 0) fail(TSR_INTERNAL, "no root directory");
    if (has("leaves_a_thread")) std::thread([] { pause(); }).detach();
    if (has("keeps_memory") || has("writes_behind_memory")) {
      Call call;
      memory_ = static_cast<char*>(host_.raw()->alloc(host_.raw(), {kDLCPU, 0}, 100, nullptr, call.err()));
      if (memory_ == nullptr) fail(TSR_RESOURCE_EXHAUSTED, "no memory");
      if (has("writes_behind_memory")) memory_[100] = 1;
    }
    if (has("ignores_missing_memory")) {
      Call call;
      void* memory = host_.raw()->alloc(host_.raw(), {kDLCPU, 0}, 100, nullptr, call.err());
      static_cast<char*>(memory)[0] = 1;
      host_.raw()->free(host_.raw(), {kDLCPU, 0}, memory, 100, nullptr);
    }
  }
  ~BadPlugins() override {
    if (has("writes_behind_memory")) host_.raw()->free(host_.raw(), {kDLCPU, 0}, memory_, 100, nullptr);
  }

  std::vector<Layout> propose(const Table& table, const Topology& topology, const Constraints& limits) const override {
    const int64_t n = topology.world_size;
    proposed_ = n;
    if (has("crashes_in_propose")) raise(SIGSEGV);
    if (has("leaves_a_thread_in_propose")) {
      static const bool started = (std::thread([] { pause(); }).detach(), true);
      (void)started;
    }
    while (has("loops_in_propose")) usleep(1000);
    if (has("says_nothing")) fail(TSR_INTERNAL, "");
    if (!has("ignores_max_shards") && limits.max_shards > 0 && n > limits.max_shards) return {};
    if (cuts_ranges()) return {ranges(table, n)};
    LayoutPart part{.placement = TSR_PLACE_EVERY_RANK, .combine = TSR_COMBINE_SUM, .row_set = TSR_ROWS_ROUTED};
    for (int64_t rank = 0; rank < n; ++rank)
      part.rectangles.push_back({.row = 0, .rows = (table.rows - rank + n - 1) / n, .col = 0, .cols = table.cols});
    return {Layout{{part}}};
  }

  void route(const Routed& layout, std::span<const int64_t> ids, std::span<int32_t> row_sets,
             std::span<int64_t> rows) const override {
    const Table& table = layout.table;
    const int64_t n = has("remembers_propose") ? proposed_.load() : layout.num_row_sets;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (has("leaves_outputs") && ids[i] == 3) continue;
      const int64_t id = has("keeps_sixteen_bits") ? ids[i] % 65536 : has("keeps_32_bits") ? int32_t(ids[i]) : ids[i];
      const int64_t at = shifted(table, id);
      row_sets[i] = static_cast<int32_t>(at % n);
      rows[i] = has("many_on_one_row") ? 0 : at / n;
      if (has("knows_the_batch") && ids.size() == 1 && table.rows > 2 * n) rows[i] += at / n == 0 ? 1 : -1;
    }
  }

  void unroute(const Routed& layout, std::span<const int32_t> row_sets, std::span<const int64_t> rows,
               std::span<int64_t> ids) const override {
    const Table& table = layout.table;
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t at = rows[i] * layout.num_row_sets + row_sets[i];
      const int64_t shift = shifted(table, 0);
      ids[i] = has("wrong_inverse") ? at / 2 * 2 : (at + table.rows - shift) % table.rows;
      if (has("is_wrong_once_in_ten_thousand") && ids[i] % 10000 == 7777) ids[i] -= 1;
    }
  }

 private:
  static int64_t shifted(const Table& table, int64_t id) {
    return has("differs_by_process") ? (id + getpid()) % table.rows : id;
  }
  static Layout ranges(const Table& table, int64_t n) {
    LayoutPart part{.placement = TSR_PLACE_EVERY_RANK, .combine = TSR_COMBINE_SUM, .row_set = TSR_ROWS_RANGE};
    for (const Range& rows : cut_blocks(table.rows, n))
      part.rectangles.push_back({rows.start, rows.count, 0, table.cols});
    if (has("leaves_a_hole") && table.rows > 0) part.rectangles[0].rows -= 1;
    if (has("overlaps") && part.rectangles[0].rows + 1 < table.rows) part.rectangles[0].rows += 1;
    if (has("too_many_rectangles")) part.rectangles.push_back({table.rows, 0, 0, table.cols});
    return {{part}};
  }

  Host host_;
  char* memory_ = nullptr;
  mutable std::atomic<int64_t> proposed_{1};
};

// Fills in slots that the SDK would not fill in.
tsr_code propose(void* self, const tsr_table* table, const tsr_topology* topology, const tsr_constraints* limits,
                 const tsr_layout_sink* sink, tsr_error* err) {
  if (has("compares_sizes") && table->struct_size != sizeof(tsr_table))
    return set_error(err, TSR_INVALID_ARGUMENT, "built for another tsr_table");
  tsr_table known = *table;
  if (has("ignores_flags")) known.flags = 0;
  return BadPlugins::table<BadPlugins>.propose(self, &known, topology, limits, sink, err);
}
tsr_code create(const tsr_component* of, const tsr_host* host, const char* options, const tsr_instance* inner,
                void** self, tsr_error* err) {
  const tsr_code code = component<BadPlugins>({}).create(of, host, options, inner, self, err);
  if (has("fills_errors_whole") && code != TSR_OK) {
    std::memset(err->message, 'x', sizeof(err->message) - 1);
    err->message[sizeof(err->message) - 1] = '\0';
  }
  if (has("returns_another_code") && code != TSR_OK) return TSR_NOT_FOUND;
  return code;
}

const tsr_sharder kTable = {sizeof(tsr_sharder), has("keeps_no_ids") ? TSR_SHARDER_KEEPS_IDS : 0u, &propose,
                            BadPlugins::table<BadPlugins>.route, BadPlugins::table<BadPlugins>.unroute};
constexpr tsr_component with_own_slots(tsr_component c) {
  c.api = &kTable;
  c.create = &create;
  return c;
}

}  // namespace

TESSERA_PLUGIN("bad-sharders", "1.0.0",
               with_own_slots(component<BadPlugins>(
                   {.id = "bad.sharder", .version = "1.0.0", .about = "has the fault that BAD_PLUGINS_FAULT names"})));
