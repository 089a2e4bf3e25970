// The public classes over ShardedCollection: pooled and sequence outputs, shards, optimizer state.
#include "tessera/sharded_modules.h"

#include <algorithm>
#include <map>

#include "distributed/sharded_collection.h"
#include "modules/embedding_fused_optimizer.h"
#include "modules/embedding_tables.h"

namespace tessera {
namespace {

const ShardGroups& groups_of(const ShardedCollection& c, bool replicated) {
  return replicated ? c.replicated().groups() : c.shards();
}

struct Found {
  const LocalShard* shard;
  Lookup& lookup;
};

Found find(ShardedCollection& c, const HeldShard& held) {
  const int table = c.table_index(held.table);
  for (ShardGroups* groups : {&c.shards(), &c.replicated().groups()}) {
    if (const LocalShard* shard = groups->find(table, held.shard)) return {shard, *groups->lookups()[shard->group]};
  }
  fail(Code::kNotFound, "this rank holds no shard ", held.shard, " of table \"", held.table, "\"");
}

// Calls f(lookup) for every kernel instance of this rank.
template <class F>
void for_each_lookup(ShardedCollection& c, const F& f) {
  for (const auto& lookup : c.shards().lookups()) f(*lookup);
  for (const auto& lookup : c.replicated().groups().lookups()) f(*lookup);
}

bool changes_by_rows_in(const Lookup& lookup) { return lookup.knows_changes(); }

// Rounds outputs of float16 tables to half, as collections on one rank do. On a device they stay float32. A table
// feature's rows begin at element `first`.
void round_output(const ShardedCollection& c, const TableFeature& table_feature, const Tensor& output, int64_t first,
                  int64_t count, int64_t stride) {
  if (c.tables()[static_cast<size_t>(table_feature.table)].data_type != DType::kFloat16 || output.stream() != nullptr)
    return;
  for (int64_t row = 0; row < count; ++row)
    round_to_half(output.data<float>() + first + row * stride, table_feature.dim);
}

}  // namespace

StepHandle::StepHandle(StepState* state) : state_(state) {
  if (state_) state_->handles.fetch_add(1, std::memory_order_relaxed);
}

StepHandle::~StepHandle() {
  if (!state_ || state_->handles.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const auto owner = std::move(state_->owner);  // this may be the last reference to the collection
  owner->give_back(state_);
}

ShardedEmbeddings::ShardedEmbeddings(std::shared_ptr<ShardedCollection> impl) : impl_(std::move(impl)) {}
ShardedEmbeddings::~ShardedEmbeddings() = default;

const std::vector<EmbeddingBagConfig>& ShardedEmbeddings::tables() const { return impl_->tables(); }
const EmbeddingModuleShardingPlan& ShardedEmbeddings::plan() const { return impl_->plan(); }
const ProcessGroup& ShardedEmbeddings::group() const { return impl_->group(); }

std::vector<HeldShard> ShardedEmbeddings::held_shards() const {
  std::vector<const LocalShard*> held;
  for (bool replicated : {false, true}) {
    for (const LocalShard& s : groups_of(*impl_, replicated).shards()) held.push_back(&s);
  }
  std::stable_sort(held.begin(), held.end(), [](const LocalShard* a, const LocalShard* b) {
    return std::pair(a->table, a->shard) < std::pair(b->table, b->shard);
  });
  std::vector<HeldShard> out;
  for (const LocalShard* s : held) out.push_back({tables()[s->table].name, s->where, s->shard});
  return out;
}

Tensor ShardedEmbeddings::weight(const HeldShard& shard) const {
  const Found f = find(*impl_, shard);
  return f.lookup.weight(f.shard->index);
}

void ShardedEmbeddings::set_weight(const HeldShard& shard, const Tensor& value) {
  const Found f = find(*impl_, shard);
  f.lookup.set_weight(f.shard->index, value);
}

void ShardedEmbeddings::adopt_rows(const HeldShard& shard, const Tensor& rows) {
  const Found f = find(*impl_, shard);
  f.lookup.adopt_rows(f.shard->index, rows);
}

std::vector<std::pair<std::string, Tensor>> ShardedEmbeddings::states(const HeldShard& shard) const {
  const Found f = find(*impl_, shard);
  std::vector<std::pair<std::string, Tensor>> out;
  for (size_t k = 0; k < f.lookup.states().size(); ++k) {
    out.emplace_back(f.lookup.states()[k].name, f.lookup.state(f.shard->index, static_cast<int>(k)));
  }
  return out;
}

void ShardedEmbeddings::read_rows(const HeldShard& shard, int64_t first, int64_t count, float* weights,
                                  std::span<float* const> states, void* extra) const {
  const Found f = find(*impl_, shard);
  f.lookup.read_rows(f.shard->index, first, count, weights, states, extra);
}

void ShardedEmbeddings::write_rows(const HeldShard& shard, int64_t first, int64_t count, const float* weights,
                                   std::span<const float* const> states, const void* extra) {
  const Found f = find(*impl_, shard);
  f.lookup.write_rows(f.shard->index, first, count, weights, states, extra);
}

MatrixView ShardedEmbeddings::view(const HeldShard& shard, int state) const {
  const Found f = find(*impl_, shard);
  return f.lookup.view(f.shard->index, state);
}

int64_t ShardedEmbeddings::extra_bytes(const HeldShard& shard) const {
  const Found f = find(*impl_, shard);
  return f.lookup.extra_bytes(f.shard->index);
}

bool ShardedEmbeddings::rows_on_demand(const HeldShard& shard) const {
  return find(*impl_, shard).lookup.rows_on_demand();
}

int64_t ShardedEmbeddings::export_rows(const HeldShard& shard, uint64_t& cursor, std::span<int64_t> ids, float* weights,
                                       std::span<float* const> states, void* extra) const {
  const Found f = find(*impl_, shard);
  const int64_t count = f.lookup.export_rows(f.shard->index, cursor, ids, weights, states, extra);
  impl_->to_table_rows(*f.shard, ids.first(static_cast<size_t>(count)));
  return count;
}

void ShardedEmbeddings::import_rows(const HeldShard& shard, std::span<const int64_t> ids, const float* weights,
                                    std::span<const float* const> states, const void* extra) {
  const Found f = find(*impl_, shard);
  std::vector<int64_t> rows(ids.begin(), ids.end());
  impl_->to_local_rows(*f.shard, rows);
  f.lookup.import_rows(f.shard->index, rows, weights, states, extra);
}

std::vector<bool> ShardedEmbeddings::owns_rows(const HeldShard& shard, std::span<const int64_t> ids) const {
  std::vector<int64_t> rows(ids.begin(), ids.end());
  impl_->to_local_rows(*find(*impl_, shard).shard, rows);
  std::vector<bool> out;
  for (const int64_t row : rows) out.push_back(row >= 0);
  return out;
}

void ShardedEmbeddings::clear_rows(const HeldShard& shard) {
  const Found f = find(*impl_, shard);
  f.lookup.clear_rows(f.shard->index);
}

std::string ShardedEmbeddings::table_extra(const HeldShard& shard) const {
  const Found f = find(*impl_, shard);
  return f.lookup.table_extra(f.shard->index);
}

void ShardedEmbeddings::add_table_extra(const HeldShard& shard, std::string_view saved) {
  const Found f = find(*impl_, shard);
  f.lookup.add_table_extra(f.shard->index, saved);
}

RowFigures ShardedEmbeddings::row_figures(const HeldShard& shard) const {
  const Found f = find(*impl_, shard);
  return f.lookup.row_figures(f.shard->index);
}

void ShardedEmbeddings::mark_changes(Follower follower) {
  for_each_lookup(*impl_, [&](Lookup& lookup) {
    if (follower != Follower::kCheckpoints || changes_by_rows_in(lookup)) lookup.mark_changes(follower);
  });
}

bool ShardedEmbeddings::changes_by_rows(const HeldShard& shard) const {
  return changes_by_rows_in(find(*impl_, shard).lookup);
}

Lookup::RowChanges ShardedEmbeddings::changes(Follower follower, const HeldShard& shard) const {
  const Found f = find(*impl_, shard);
  return f.lookup.changes(follower, f.shard->index);
}

int64_t ShardedEmbeddings::export_changed(Follower follower, const HeldShard& shard, uint64_t& cursor,
                                          std::span<int64_t> ids, float* weights, std::span<float* const> states,
                                          void* extra) const {
  const Found f = find(*impl_, shard);
  const int64_t count = f.lookup.export_changed(follower, f.shard->index, cursor, ids, weights, states, extra);
  impl_->to_table_rows(*f.shard, ids.first(static_cast<size_t>(count)));
  return count;
}

int64_t ShardedEmbeddings::export_removed(Follower follower, const HeldShard& shard, uint64_t& cursor,
                                          std::span<int64_t> ids) const {
  const Found f = find(*impl_, shard);
  const int64_t count = f.lookup.export_removed(follower, f.shard->index, cursor, ids);
  impl_->to_table_rows(*f.shard, ids.first(static_cast<size_t>(count)));
  return count;
}

tsr_kernel_stats ShardedEmbeddings::kernel_stats(const HeldShard& shard) const {
  const Found f = find(*impl_, shard);
  return f.lookup.stats(f.shard->index);
}

std::vector<int64_t> ShardedEmbeddings::table_rows(const HeldShard& shard, int64_t first, int64_t count) const {
  return impl_->table_rows(*find(*impl_, shard).shard, first, count);
}

const std::vector<Lookup::State>& ShardedEmbeddings::state_layout(const HeldShard& shard) const {
  return find(*impl_, shard).lookup.states();
}

OptimizerSpec ShardedEmbeddings::optimizer_of(const std::string& table) const {
  const EmbeddingBagConfig& config = tables()[impl_->table_index(table)];
  return config.optimizer.name.empty() ? impl_->options().optimizer : config.optimizer;
}

void ShardedEmbeddings::set_learning_rate(double value) {
  for_each_lookup(*impl_, [&](Lookup& lookup) { lookup.set_learning_rate(value); });
}

void ShardedEmbeddings::set_learning_rate(const std::string& table, double value) {
  const OptimizerSpec spec = optimizer_of(table);
  for_each_lookup(*impl_, [&](Lookup& lookup) {
    if (lookup.options().optimizer == spec) lookup.set_learning_rate(value);
  });
}

double ShardedEmbeddings::learning_rate(const std::string& table) const {
  const OptimizerSpec spec = optimizer_of(table);
  double rate = 0;
  bool found = false;
  for_each_lookup(*impl_, [&](Lookup& lookup) {
    if (lookup.options().optimizer == spec) rate = lookup.learning_rate(), found = true;
  });
  if (!found) fail(Code::kFailedPrecondition, "this rank holds no table with the optimizer of \"", table, "\"");
  return rate;
}

std::vector<double> ShardedEmbeddings::learning_rates() const {
  std::vector<double> rates;
  for_each_lookup(*impl_, [&](Lookup& lookup) { rates.push_back(lookup.learning_rate()); });
  return rates;
}

void ShardedEmbeddings::scale_learning_rates(std::span<const double> rates, double factor) {
  size_t i = 0;
  for_each_lookup(*impl_, [&](Lookup& lookup) {
    TESSERA_CHECK(i < rates.size(), "a rate for each of learning_rates()");
    lookup.set_learning_rate(rates[i++] * factor);
  });
}

int64_t ShardedEmbeddings::step() const { return impl_->updates(); }

void ShardedEmbeddings::set_step(int64_t step) {
  impl_->set_updates(step);
  for_each_lookup(*impl_, [&](Lookup& lookup) { lookup.set_step(step); });
}

std::vector<std::string> ShardedEmbeddings::state_dict_keys() const {
  std::vector<std::string> keys;
  for (const EmbeddingBagConfig& t : tables()) keys.push_back(str_cat(impl_->prefix(), ".", t.name, ".weight"));
  return keys;
}

StageTimes& StageTimes::operator+=(const StageTimes& other) {
  route += other.route, exchange_ids += other.exchange_ids, lookup += other.lookup;
  exchange_rows += other.exchange_rows, combine += other.combine, split += other.split;
  exchange_gradients += other.exchange_gradients, update += other.update, data_parallel += other.data_parallel;
  steps = std::max(steps, other.steps);
  return *this;
}

std::shared_ptr<CombinedOptimizer> ShardedEmbeddings::fused_optimizer() const {
  const std::vector<std::string> keys = state_dict_keys();
  const ShardGroups& groups = impl_->shards();
  std::vector<CombinedOptimizer::Member> members;
  for (size_t g = 0; g < groups.lookups().size(); ++g) {
    if (groups.lookups()[g]->options().optimizer.name.empty()) continue;
    std::vector<EmbeddingFusedOptimizer::Table> held;
    std::map<std::string, int> pieces;
    for (const LocalShard& shard : groups.shards()) {
      if (shard.group != static_cast<int>(g)) continue;
      const std::string& table = tables()[shard.table].name;
      const int piece = pieces[table]++;  // several column shards of a table on one rank
      const std::string& key = keys[shard.table];
      held.push_back({piece ? str_cat(key, "#", piece) : key, table, shard.index});
    }
    members.push_back({"", std::make_shared<EmbeddingFusedOptimizer>(groups.lookups()[g], std::move(held))});
  }
  return std::make_shared<CombinedOptimizer>(std::move(members));
}

std::vector<std::pair<std::string, Tensor>> ShardedEmbeddings::data_parallel_gradients() const {
  return impl_->replicated().gradients();
}

void ShardedEmbeddings::refuse_batch(const std::string& why) {
  const StepHandle place = impl_->reserve();
  impl_->start_without_batch(*place, why);
}

int64_t ShardedEmbeddings::dropped_ids() const { return impl_->dropped_ids(); }

void ShardedEmbeddings::sample_shards(int64_t every_steps) { impl_->sample_shards(every_steps); }
int64_t ShardedEmbeddings::sampled_steps() const { return impl_->sampled_steps(); }

std::vector<ShardTimes> ShardedEmbeddings::shard_times() const {
  std::vector<ShardTimes> out;
  const auto& seconds = impl_->shard_seconds();
  const double steps = static_cast<double>(std::max<int64_t>(1, impl_->sampled_steps()));
  for (size_t i = 0; i < seconds.size(); ++i) {
    const LocalShard& s = impl_->shards().shards()[i];
    out.push_back({{tables()[s.table].name, s.where, s.shard}, seconds[i].lookup / steps, seconds[i].update / steps});
  }
  return out;
}

void ShardedEmbeddings::set_trace(Trace* trace) { impl_->set_trace(trace); }
const StageTimes& ShardedEmbeddings::stage_times() const { return impl_->times(); }
void ShardedEmbeddings::reset_stage_times() { impl_->times() = {}; }
const StepTraffic& ShardedEmbeddings::last_traffic() const { return impl_->traffic(); }
std::vector<StepExchange> ShardedEmbeddings::last_exchanges() const { return impl_->last_exchanges(); }
const ExchangeBytes<int64_t>& ShardedEmbeddings::bytes_sent() const { return impl_->bytes_sent(); }

StepHandle ShardedEmbeddings::take_in(const KeyedJaggedTensor& input, bool finished, bool keep) {
  StepHandle out = impl_->reserve();
  impl_->start(*out, input, finished, keep);
  return out;
}

ShardedEmbeddingBagCollection::ShardedEmbeddingBagCollection(std::shared_ptr<ShardedCollection> impl)
    : ShardedEmbeddings(std::move(impl)) {
  KeyedTensor::KeyLayout layout;
  for (const TableFeature& table_feature : impl_->wiring().table_features()) {
    layout.keys.push_back(table_feature.name);
    layout.length_per_key.push_back(table_feature.dim);
  }
  layout_ = std::make_shared<const KeyedTensor::KeyLayout>(std::move(layout));
}

ShardedEmbeddingBagCollection::Output ShardedEmbeddingBagCollection::finish_forward(const LayoutPtr& layout,
                                                                                    const StepHandle& state,
                                                                                    bool keep) {
  const auto& impl = state->owner;
  impl->finish(*state);
  const Tensor values = !state->batch.expands
                            ? state->rows.reshape({state->batch.output_batch, impl->wiring().output_width()})
                            : impl->expand(*state, keep);
  const int64_t width = values.size(1);
  for (const TableFeature& table_feature : impl->wiring().table_features())
    round_output(*impl, table_feature, values, table_feature.col, values.size(0), width);
  state->rows = {};  // the output's memory now; it is used again when nobody holds it
  return {KeyedTensor(layout, values), state->step.messages.all_finished, state->step.messages.any_finished,
          keep ? state : StepHandle()};
}

Awaitable<ShardedEmbeddingBagCollection::Output> ShardedEmbeddingBagCollection::forward(StepHandle state, bool keep) {
  TESSERA_CHECK(state && state->owner == impl_, "the batch was taken for this collection");
  return Awaitable<Output>([layout = layout_, state = std::move(state), keep] {
    state->owner->look_up(*state, keep);
    return finish_forward(layout, state, keep);
  });
}

Awaitable<ShardedEmbeddingBagCollection::Output> ShardedEmbeddingBagCollection::start_forward(StepHandle state,
                                                                                              bool keep) {
  TESSERA_CHECK(state && state->owner == impl_, "the batch was taken for this collection");
  impl_->look_up(*state, keep);
  return Awaitable<Output>(
      [layout = layout_, state = std::move(state), keep] { return finish_forward(layout, state, keep); });
}

void ShardedEmbeddingBagCollection::start_backward(const Output& output, const Tensor& grad) {
  if (!output.state) fail(Code::kFailedPrecondition, "backward of a forward that kept nothing for it");
  StepState& state = *output.state;
  const int64_t batch = state.batch.output_batch, width = impl_->wiring().output_width();
  if (grad.dim() != 2 || grad.size(0) != batch || grad.size(1) != width || grad.dtype() != DType::kFloat32) {
    impl_->refuse(str_cat("the gradient must be float32 [", batch, ", ", width, "]"));
  }
  impl_->start_backward(state, state.batch.expands ? impl_->collapse(state, grad) : grad);
}

void ShardedEmbeddingBagCollection::finish_backward(const Output& output) { impl_->finish_backward(*output.state); }

ShardedEmbeddingCollection::ShardedEmbeddingCollection(std::shared_ptr<ShardedCollection> impl)
    : ShardedEmbeddings(std::move(impl)) {}

ShardedEmbeddingCollection::Output ShardedEmbeddingCollection::finish_forward(const StepHandle& state, bool keep) {
  const auto& impl = state->owner;
  impl->finish(*state);
  Output out;
  out.all_finished = state->step.messages.all_finished;
  const CheckedBatch& batch = state->batch;
  for (size_t s = 0; s < impl->wiring().table_features().size(); ++s) {
    const TableFeature& table_feature = impl->wiring().table_features()[s];
    const FeatureBags& of_feature = batch.original_feature_bags[s];
    const int64_t ids = of_feature.ids;
    round_output(*impl, table_feature, state->rows, state->layout.offset[s], ids, table_feature.dim);
    JaggedTensor::Options o;
    o.values = state->rows.narrow(state->layout.offset[s], ids * table_feature.dim).reshape({ids, table_feature.dim});
    o.lengths = batch.original_lengths.narrow(of_feature.first_bag, of_feature.bags);
    if (impl->options().need_indices) o.weights = batch.original_values.narrow(of_feature.first_id, ids);
    out.values.emplace_back(table_feature.name, JaggedTensor(std::move(o)));
  }
  state->rows = {};
  if (keep) out.state = state;
  return out;
}

Awaitable<ShardedEmbeddingCollection::Output> ShardedEmbeddingCollection::forward(StepHandle state, bool keep) {
  TESSERA_CHECK(state && state->owner == impl_, "the batch was taken for this collection");
  return Awaitable<Output>([state = std::move(state), keep] {
    state->owner->look_up(*state, keep);
    return finish_forward(state, keep);
  });
}

Awaitable<ShardedEmbeddingCollection::Output> ShardedEmbeddingCollection::start_forward(StepHandle state, bool keep) {
  TESSERA_CHECK(state && state->owner == impl_, "the batch was taken for this collection");
  impl_->look_up(*state, keep);
  return Awaitable<Output>([state = std::move(state), keep] { return finish_forward(state, keep); });
}

void ShardedEmbeddingCollection::start_backward(const Output& output,
                                                const std::vector<std::pair<std::string, Tensor>>& grads) {
  if (!output.state) fail(Code::kFailedPrecondition, "backward of a forward that kept nothing for it");
  StepState& state = *output.state;
  std::vector<RowExecutor::Piece> pieces;
  for (const auto& [name, grad] : grads) {
    const auto& table_features = impl_->wiring().table_features();
    const auto table_feature = std::find_if(table_features.begin(), table_features.end(),
                                            [&name = name](const TableFeature& s) { return s.name == name; });
    if (table_feature == table_features.end()) impl_->refuse(str_cat("the collection has no output \"", name, "\""));
    const auto s = static_cast<size_t>(table_feature - table_features.begin());
    const int64_t ids = state.batch.original_feature_bags[s].ids;
    if (grad.numel() != ids * table_feature->dim || grad.dtype() != DType::kFloat32) {
      impl_->refuse(str_cat("the gradient of \"", name, "\" must be float32 [", ids, ", ", table_feature->dim, "]"));
    }
    pieces.push_back({grad, state.layout.offset[s]});
  }
  impl_->start_backward(state, state.step.executor->bring(pieces, state.num_rows_elements));
}

void ShardedEmbeddingCollection::finish_backward(const Output& output) { impl_->finish_backward(*output.state); }

ShardedEmbeddingBagCollection EmbeddingBagCollectionSharder::shard(const std::vector<EmbeddingBagConfig>& tables,
                                                                   const EmbeddingModuleShardingPlan& plan,
                                                                   std::shared_ptr<ProcessGroup> group) const {
  return ShardedEmbeddingBagCollection(
      std::make_shared<ShardedCollection>(runtime_, ShardedTables{tables, plan, false}, std::move(group), options_));
}

ShardedEmbeddingCollection EmbeddingCollectionSharder::shard(const std::vector<EmbeddingBagConfig>& tables,
                                                             const EmbeddingModuleShardingPlan& plan,
                                                             std::shared_ptr<ProcessGroup> group) const {
  ShardedModuleOptions options = options_;
  options.is_weighted = false;  // as in unsharded collections, rows of a sequence have no weights
  return ShardedEmbeddingCollection(std::make_shared<ShardedCollection>(runtime_, ShardedTables{tables, plan, true},
                                                                        std::move(group), std::move(options)));
}

}  // namespace tessera
