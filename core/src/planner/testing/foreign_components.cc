// Third-party components for the planner's tests: a kernel plugin with a compute kernel of its own, whose tables are on
// disk except for the share that the option "cache" keeps in memory; a second kernel plugin, which accepts the shards
// that the first refuses; and a sharder that must be asked for and ignores constraints.
#include "idle_kernel.h"
#include "tessera/sdk/cost.h"
#include "tessera/sdk/options.h"
#include "tessera/sdk/sharder.h"

namespace {

using namespace tessera::sdk;

class OnDisk : public Kernel {
 public:
  using Instance = tessera::test::IdleInstance;
  static constexpr const char* kComputeKernels[] = {"acme.on_disk", "acme.shelf", nullptr};
  static constexpr int32_t kDeviceTypes[] = {kDLCPU, 0};
  void supports(const tsr_kernel_config&) const override {}
  std::unique_ptr<KernelInstance> open(const tsr_kernel_config&) const override {
    return std::make_unique<tessera::test::IdleInstance>();
  }
  tsr_estimate estimate(const tsr_kernel_config& config, const tsr_workload& work) const override {
    if (config.num_tables != 1) fail(TSR_INVALID_ARGUMENT, "the shard is one table, not ", config.num_tables);
    const tsr_kernel_table& shard = table_of(config, 0);
    if (shard.rows != work.rows || shard.dim != work.dim)
      fail(TSR_INVALID_ARGUMENT, "the shard has ", shard.rows, " x ", shard.dim, ", the work ", work.rows, " x ",
           work.dim);
    if (shard.rows > 1000000) fail(TSR_UNIMPLEMENTED, "at most 1000000 rows are served, not ", shard.rows);
    Options options(shard.options == nullptr ? "{}" : shard.options);
    const double outside = 1 - options.number("cache", 0);
    tsr_estimate out{};
    out.forward_seconds = out.backward_seconds = 1e-12 * work.ids * (1 + outside);
    out.bytes = static_cast<uint64_t>(work.rows * work.dim * 4);
    out.storage_bytes = static_cast<uint64_t>(static_cast<double>(out.bytes) * outside);
    return out;
  }
};

// Accepts any shard, but is slow. It has memory for `holds` rows of a shard, and an estimate for a part of the shard
// counts only whole rows of it.
class Attic : public Kernel {
 public:
  using Instance = tessera::test::IdleInstance;
  static constexpr const char* kComputeKernels[] = {"acme.shelf", nullptr};
  static constexpr int32_t kDeviceTypes[] = {kDLCPU, 0};
  void supports(const tsr_kernel_config&) const override {}
  std::unique_ptr<KernelInstance> open(const tsr_kernel_config&) const override {
    return std::make_unique<tessera::test::IdleInstance>();
  }
  tsr_estimate estimate(const tsr_kernel_config& config, const tsr_workload& work) const override {
    const tsr_kernel_table& shard = table_of(config, 0);
    Options options(shard.options == nullptr ? "{}" : shard.options);
    const auto holds = static_cast<double>(options.integer("holds", shard.rows));
    tsr_estimate out{};
    out.forward_seconds = out.backward_seconds = 7;
    out.bytes = static_cast<uint64_t>(part_of_shard(shard, work) * holds) * static_cast<uint64_t>(work.dim * 4);
    return out;
  }
};

class Stubborn : public Sharder {
 public:
  static constexpr uint32_t kFlags = TSR_SHARDER_WHEN_ASKED;
  std::vector<Layout> propose(const Table& table, const Topology&, const Constraints&) const override {
    LayoutPart part{TSR_PLACE_ANY_RANK, TSR_COMBINE_CONCAT, TSR_ROWS_RANGE, {}};
    for (int64_t col = 0; col < table.cols; ++col) part.rectangles.push_back({0, table.rows, col, 1});
    return {Layout{{part}}};
  }
};

}  // namespace

TESSERA_PLUGIN("acme-foreign", "1.0.0",
               component<OnDisk>({.id = "acme.store", .version = "1.0.0", .about = "for tests of the planner"}),
               component<Attic>({.id = "acme.attic", .version = "1.0.0", .about = "for tests, too", .priority = -1}),
               component<Stubborn>({.id = "acme.stubborn", .version = "1.0.0", .about = "columns of width 1"}));
