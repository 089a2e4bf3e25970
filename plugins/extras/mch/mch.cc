// mch: maps a lookup's ids to rows of the inner kernel's table. The inner kernel does all sums and updates.
#include "mch.h"

#include <tessera/sdk/cost.h>
#include <tessera/sdk/plugin.h>

#include <algorithm>

namespace extras {
namespace {

using sdk::fail;
using sdk::OptimizerRef;
using sdk::table_of;

OptimizerRef optimizer_of(const tsr_kernel_config& config) {
  return OptimizerRef(config.mode == TSR_MODE_TRAIN ? config.optimizer : nullptr);
}

}  // namespace

MchTables::MchTables(const sdk::InnerKernel& inner, const tsr_kernel_config& config) {
  const OptimizerRef optimizer = optimizer_of(config);
  for (uint32_t t = 0; t < config.num_tables; ++t) {
    const tsr_kernel_table& asked = table_of(config, t);
    TableShape shape(asked);
    const sdk::InnerConfig rows(config, asked, shape.mch.zch_size);
    tables_.emplace_back(std::move(shape), t, optimizer, sdk::StartValues(config), sdk::InnerInstance(inner, rows.raw));
  }
}

// Asks the inner kernel about each table. All ids of a table are sighted together, whichever features read it.
void MchTables::ask(const tsr_lookup& lookup, const DLTensor& output, tsr_stream stream, bool keeps, Context& context) {
  const bool trains = (lookup.flags & TSR_LOOKUP_READ_ONLY) == 0;
  for (uint32_t t = 0; t < tables_.size(); ++t) {
    sdk::InnerAsk asked;
    if (!asked.take(lookup, t)) continue;
    sdk::InnerAsk& kept = context.tables.emplace_back(std::move(asked));
    kept.read_ids(lookup, ids_);
    kept.rows.resize(ids_.size());
    tables_[t].find(ids_, trains, kept.rows.data());
    tables_[t].inner().forward(inner_lookup_.of(lookup, kept), output, stream, keeps ? &kept.context : nullptr);
  }
}

void MchTables::forward(const tsr_lookup& lookup, const DLTensor& output, tsr_stream stream, tsr_context** context) {
  if (context == nullptr) {
    passing_.tables.clear();
    ask(lookup, output, stream, false, passing_);
    return;
  }
  auto kept = std::make_unique<Context>();
  try {
    ask(lookup, output, stream, true, *kept);
  } catch (...) {
    end(*kept);
    throw;
  }
  *context = reinterpret_cast<tsr_context*>(kept.release());
}

void MchTables::backward(tsr_context* context, const tsr_backward& args, tsr_stream stream) {
  for (const sdk::InnerAsk& kept : reinterpret_cast<Context*>(context)->tables) {
    const tsr_lookup lookup = inner_lookup_.of(*args.lookup, kept);
    tsr_backward inner = sdk::read_struct(args);
    inner.lookup = &lookup;
    tables_[kept.table].note_changes(kept.rows);
    tables_[kept.table].inner().backward(kept.context, inner, stream);
  }
}

void MchTables::end(Context& context) noexcept {
  for (const sdk::InnerAsk& kept : context.tables) {
    if (kept.context != nullptr) tables_[kept.table].inner().release(kept.context);
  }
}

void MchTables::release(tsr_context* context) noexcept {
  const std::unique_ptr<Context> spent(reinterpret_cast<Context*>(context));
  end(*spent);
}

MchKernel::MchKernel(const sdk::Setup& setup) : inner_(setup.inner) {
  if (!inner_) fail(TSR_INVALID_ARGUMENT, "mch wraps another kernel: name it, as in mch(cpu)");
  const tsr_kernel& api = inner_.api();
  if ((api.flags & TSR_KERNEL_PLACES_ROWS) == 0 || !TSR_HAS(tsr_kernel, &api, backward) ||
      !TSR_HAS(tsr_kernel, &api, export_rows) || !TSR_HAS(tsr_kernel, &api, import_rows) ||
      (api.flags & TSR_KERNEL_ROWS_ON_DEMAND) != 0) {
    fail(TSR_INVALID_ARGUMENT, "mch cannot wrap ", inner_.id(),
         ", which must train, import and export rows, and place them");
  }
  sdk::Options options = setup.options;
  options.finish();
}

const void* MchKernel::extension(std::string_view id) const {
  const void* draft = sdk::on_demand_extension<Instance>(id);
  return draft != nullptr ? draft : sdk::changes_extension<Instance>(id);
}

void MchKernel::supports(const tsr_kernel_config& config) const {
  if (std::string_view(config.compute_kernel) != kComputeKernels[0])
    fail(TSR_UNIMPLEMENTED, "mch serves only ", kComputeKernels[0], ", not ", config.compute_kernel);
  const OptimizerRef optimizer = optimizer_of(config);
  if (config.mode == TSR_MODE_TRAIN && !optimizer.updates())
    fail(TSR_UNIMPLEMENTED, "tables of managed collisions are updated in backward: choose an optimizer that does");
  optimizer.check_states();
  for (uint32_t t = 0; t < config.num_tables; ++t) {
    const tsr_kernel_table& asked = table_of(config, t);
    inner_.supports(sdk::InnerConfig(config, asked, TableShape(asked).mch.zch_size).raw);
  }
}

std::unique_ptr<sdk::KernelInstance> MchKernel::open(const tsr_kernel_config& config) const {
  supports(config);
  return std::make_unique<MchTables>(inner_, config);
}

tsr_estimate MchKernel::estimate(const tsr_kernel_config& config, const tsr_workload& work) const {
  constexpr double kFindSeconds = 60e-9;    // per id, in a sorted list
  constexpr double kScoreSeconds = 100e-9;  // per slot, when new ids are admitted
  const tsr_kernel_table& shard = table_of(config, 0);
  const TableShape shape(shard);
  const auto slots = static_cast<double>(shape.mch.zch_size);
  const double part = sdk::part_of_shard(shard, work);
  tsr_workload held = work;
  held.rows = shape.mch.zch_size;
  tsr_estimate out = inner_.estimate(sdk::InnerConfig(config, shard, shape.mch.zch_size).raw, held);
  out.forward_seconds +=
      work.ids * kFindSeconds + part * slots * kScoreSeconds / static_cast<double>(shape.mch.eviction_interval);
  out.bytes = static_cast<uint64_t>(part * (static_cast<double>(out.bytes) + slots * sizeof(sdk::Mch::Slot)));
  out.host_bytes = static_cast<uint64_t>(part * static_cast<double>(out.host_bytes));
  out.storage_bytes = static_cast<uint64_t>(part * static_cast<double>(out.storage_bytes));
  return out;
}

}  // namespace extras

TESSERA_PLUGIN("mch", "0.1.0",
               tessera::sdk::component<extras::MchKernel>(
                   {.id = "mch", .version = "0.1.0", .about = "TorchRec's managed collisions around another kernel"}));
