#include "distributed/sharded_collection.h"

#include <algorithm>
#include <numeric>

#include "distributed/host_sums.h"
#include "distributed/output_moves.h"
#include "distributed/traffic.h"
#include "tessera/abi/draft/on_demand.h"

namespace tessera {
namespace {

int64_t sum_of(const HostBytes<int64_t>& bytes) { return bytes.in_host + bytes.across_hosts; }

// Counts the bytes of headers and payloads.
int64_t sent_to_others(const Step& step, int rank) {
  int64_t bytes = 0;
  for (int peer = 0; peer < static_cast<int>(step.routed.payload_bytes.size()); ++peer)
    bytes += peer == rank ? 0 : step.messages.bytes_to(step.routed, rank, peer);
  return bytes;
}

Sent sent(const Step& step) { return {step.routed, step.messages, step.wire, step.joined}; }

ShardGroupOptions group_options(const ShardedModuleOptions& options, bool sequence,
                                const std::vector<RowRouterPtr>& routers) {
  return {options.kernel, options.stream, options.optimizer, options.seed, sequence, routers};
}

ReplicatedShards::Batch replicated_batch(const StepState& state) {
  const Step& step = state.step;
  return {state.batch, *step.data_parallel, state.layout, step.routed, step.replicated, step.wire};
}

RowsOnWire on_wire(Step& step) {
  return {step.wire, step.rows.tensor(), *step.host_sums, step.messages.joins_rows ? &step.joined : nullptr};
}

// Gives the exchange this rank's sizes. Homes and owners count rows separately, and relays use the homes' counts.
void prepare_joined(Step& step, const RankWiring& own) {
  if (!step.messages.joins_rows) return;
  const Hop& hop = step.wire.last(own.wiring.hosts().count > 1);
  for (int peer = 0; peer < own.wiring.world_size(); ++peer) {
    if (step.messages.headers[peer].rows != hop.owner_counts[peer])
      fail(Code::kDataLoss, "rank ", peer, " expects other rows of rank ", own.rank, " than its ids name");
  }
  step.joined.sizes.relayed = step.messages.relayed_rows;
  step.joined.prepare(step.messages.grid, own.rank, hop.home_counts, hop.owner_counts);
}

// Refuses an exchange that cannot be joined, if the job wants it joined always.
void check_joins(const ProcessGroup& group, bool on_device) {
  const Joins joins = group.joins();
  const int world = group.world_size(), local = group.local_world_size();
  if (joins.ids != JoinExchanges::kAlways || world == 1) return;
  const std::string why = RankGrid::of(world, local, joins.ids).is_direct()
                              ? str_cat(world, " ranks, ", local, " on each host, form no grid")
                          : on_device                           ? "rows on a device are not joined"
                          : joins.rows == JoinExchanges::kNever ? "rows that comm.lossy names are not joined"
                                                                : "";
  if (!why.empty()) fail(Code::kInvalidArgument, "comm.join_exchanges = \"always\": ", why, ": use \"auto\"");
}

HostGrid hosts_of(const ProcessGroup& group) {
  return {group.world_size() / group.local_world_size(), group.local_world_size()};
}

}  // namespace

ShardedCollection::ShardedCollection(const Runtime& runtime, ShardedTables sharded, std::shared_ptr<ProcessGroup> group,
                                     ShardedModuleOptions options)
    : runtime_(runtime),
      tables_(validated(std::move(sharded.tables))),
      plan_(std::move(sharded.plan)),
      group_(std::move(group)),
      options_(std::move(options)),
      routers_(row_routers(runtime, tables_, plan_,
                           {group_->world_size(), group_->local_world_size(),
                            (options_.stream ? options_.stream->device() : kCpu).dl().device_type})),
      wiring_(tables_, plan_, hosts_of(*group_), {sharded.sequence, routers_}),
      shards_(runtime,
              local_shards(tables_, plan_, group_->rank(), false, group_options(options_, sharded.sequence, routers_))),
      own_(wiring_, group_->rank(),
           [&](const RowRoute& route) {
             const LocalShard* shard = shards_.find(route.table, route.shard);
             return shard && shards_.lookups()[shard->group]->places_rows();
           }),
      owner_(own_, shards_),
      replicated_(
          runtime, tables_, wiring_,
          local_shards(tables_, plan_, group_->rank(), true, group_options(options_, sharded.sequence, routers_)),
          options_.stream),
      fingerprint_(fingerprint_of(tables_, plan_, routers_, wiring_.sequence(), options_, *group_)),
      inputs_(input_side(group_)),
      rows_(group_, own_, fingerprint_.all) {
  const bool sequence = wiring_.sequence();
  check_joins(*group_, options_.stream != nullptr);
  for (const EmbeddingBagConfig& t : tables_) {
    index_.emplace(t.name, static_cast<int>(index_.size()));
    const OptimizerSpec& optimizer = t.optimizer.name.empty() ? options_.optimizer : t.optimizer;
    choose_once(t, optimizer);
    if (sequence) continue;
    if (t.pooling != PoolingType::kSum && t.pooling != PoolingType::kMean) {
      fail(Code::kInvalidArgument, "table \"", t.name, "\" has pooling ", to_string(t.pooling),
           ": a sharded EmbeddingBagCollection supports SUM and MEAN");
    }
    if (t.pooling == PoolingType::kMean && optimizer.max_gradient > 0 && options_.stream) {
      fail(Code::kUnimplemented, "table \"", t.name,
           "\": max_gradient together with MEAN pooling is not supported for sharded tables on a device");
    }
  }
  for (const LocalShard& shard : replicated_.groups().shards()) {
    if (!sequence || shard.where.replicated || !options_.stream) continue;
    const bool drops = options_.bounds_check != BoundsCheckMode::kFatal || tables_[shard.table].row_format;
    if (drops)
      fail(Code::kUnimplemented, "table \"", tables_[shard.table].name,
           "\": on a device, a data-parallel table of an EmbeddingCollection supports only the bounds check "
           "\"fatal\", and ",
           "is not quantized");
  }
  for (const Arrival& a : own_.arrivals) {
    const TableFeature& table_feature = wiring_.table_features()[a.table_feature];
    if (a.replicated_rows < 0 || !options_.stream || a.cols == table_feature.dim) continue;
    fail(Code::kUnimplemented, "table \"", tables_[table_feature.table].name,
         "\": on a device, a table with replicated rows cannot also be split by columns");
  }
  for (const LocalShard& shard : shards_.shards()) {
    const EmbeddingBagConfig& table = tables_[shard.table];
    if (shard.where.rows == table.num_embeddings || !shards_.lookups()[shard.group]->shares_row(shard.index)) continue;
    fail(Code::kInvalidArgument, "table \"", table.name,
         "\": its ids without a row share one row, but its rows are "
         "split (",
         plan_.at(table.name).sharding_type,
         "), and each part would have a shared row of its own: shard it "
         "table_wise or column_wise");
  }
  for (const ShardGroups* groups : {&shards_, &replicated_.groups()}) {
    for (const auto& lookup : groups->lookups()) lookup->start_rows();
  }
}

// Chooses if repeated rows of the table travel once. In evaluations this changes no bit, but kernels with ids of their
// own may count lookups.
void ShardedCollection::choose_once(const EmbeddingBagConfig& table, const OptimizerSpec& optimizer) {
  const auto refuse = [&](const char* why) {
    if (table.use_index_dedup) fail(Code::kInvalidArgument, "table \"", table.name, "\": use_index_dedup ", why);
  };
  if (options_.stream) return refuse("works only in host memory: leave it out, or train on the CPU");
  if (options_.is_weighted) return refuse("does not work for ids with weights, whose rows are summed: leave it out");
  if (optimizer.max_gradient > 0)
    refuse("adds gradients up before max_gradient could bound each of them: leave one of the two out");
  const std::string& kernel = plan_.at(table.name).compute_kernel;
  const bool plain = kernel == TSR_COMPUTE_FUSED || kernel == TSR_COMPUTE_DENSE || kernel == TSR_COMPUTE_QUANT;
  if (group_->world_size() == 1) return;
  once_[false].push_back(plain || table.use_index_dedup);
  once_[true].push_back(table.use_index_dedup);
}

std::vector<int64_t> ShardedCollection::table_rows(const LocalShard& shard, int64_t first, int64_t count) const {
  if (const RowRouterPtr& router = routers_[shard.table]) return router->unroute(shard.shard, first, count);
  std::vector<int64_t> rows(count);
  std::iota(rows.begin(), rows.end(), shard.where.row + first);
  return rows;
}

void ShardedCollection::to_table_rows(const LocalShard& shard, std::span<int64_t> rows) const {
  const RowRouterPtr& router = routers_[shard.table];
  if (router && router->keeps_ids()) return;
  for (int64_t& row : rows) {
    if (row != TSR_SHARED_ROW_ID) row = router ? router->unroute(shard.shard, row, 1)[0] : shard.where.row + row;
  }
}

void ShardedCollection::to_local_rows(const LocalShard& shard, std::span<int64_t> rows) const {
  if (const RowRouterPtr& router = routers_[shard.table]) {
    const std::vector<int64_t> ids(rows.begin(), rows.end());
    std::vector<int32_t> row_sets(rows.size());
    router->route(ids, row_sets.data(), rows.data());
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = row_sets[i] == router->row_set(shard.shard) ? rows[i] : -1;
    return;
  }
  const bool any = tables_[shard.table].any_id;  // then there is one range
  for (int64_t& row : rows) {
    if (row == TSR_SHARED_ROW_ID) continue;
    row -= shard.where.row;
    if (row < 0 || (row >= shard.where.rows && !any)) row = -1;
  }
}

int ShardedCollection::table_index(const std::string& name) const {
  const auto known = index_.find(name);
  if (known == index_.end()) fail(Code::kNotFound, "the collection has no table \"", name, "\"");
  return known->second;
}

StepHandle ShardedCollection::reserve() {
  std::unique_ptr<StepState> state;
  if (spare_.empty()) {
    spare_.reserve(++states_);  // so that give_back() never allocates
    state = std::make_unique<StepState>(own_, options_.stream, Workers(runtime_.host()));
  } else {
    state = std::move(spare_.back());
    spare_.pop_back();
  }
  state->owner = shared_from_this();
  return StepHandle(state.release());
}

void ShardedCollection::give_back(StepState* state) noexcept {
  state->travel = {};  // waits, if an error has ended the step
  state->given = {};
  state->batch.release();
  spare_.emplace_back(state);
}

std::unique_ptr<InputSide> ShardedCollection::input_side(const std::shared_ptr<ProcessGroup>& group) const {
  const bool in_step = group == group_;
  const JoinExchanges join_rows = options_.stream ? JoinExchanges::kNever : group_->joins().rows;
  return std::make_unique<InputSide>(InputExchange(group, own_, fingerprint_, join_rows, in_step ? nullptr : group_),
                                     in_step || options_.stream ? Workers(runtime_.host()) : Workers(), !in_step);
}

void ShardedCollection::start(std::span<Taken> all, bool finished, bool trains) {
  Stopwatch watch(all[0].side->trace);
  const Taken& last = all.back();
  try {
    for (Taken& taken : all) {
      StepState& state = *taken.state;
      taken.collection->check_and_route(taken, trains);
      watch.lap(state.route_s, "route");
      taken.side->exchange.send_headers(state.step.routed, finished, !taken.error.empty(), state.step.messages);
      if (&taken != &last) watch.lap(state.exchange_ids_s, "exchange ids");
    }
    for (const Taken& taken : all) {
      Step& step = taken.state->step;
      taken.side->exchange.send_payloads(step.routed, taken.error, step.messages, watch);
    }
    for (const Taken& taken : all) {
      Step& step = taken.state->step;
      taken.side->exchange.finish(step.routed, step.messages, step.received, watch);
      watch.lap(taken.state->exchange_ids_s, "exchange ids", sent_to_others(step, taken.collection->group_->rank()));
      taken.collection->lay_out(taken, watch);
      taken.state->taken = true;
    }
  } catch (...) {
    for (const Taken& taken : all) taken.state->step.messages.travel = {};  // waits
    throw;
  }
}

// An error is passed to all ranks by the exchange, so that nobody waits for this rank.
void ShardedCollection::check_and_route(Taken& taken, bool trains) const {
  StepState& state = *taken.state;
  Step& step = state.step;
  state.taken = false;
  step.executor->wait();  // the device has read the memory that is written next
  state.route_s = state.exchange_ids_s = 0;
  InputSide& side = *taken.side;
  try {
    check_batch(wiring_, tables_, {options_.bounds_check, options_.is_weighted}, side.keys, *taken.input, state.batch);
    route(own_, state.batch, {options_.is_weighted, side.workers, once_[trains]}, step.route, step.routed);
    add_host_lengths(own_, step.routed, step.wire);
    if (side.exchange.may_join_rows()) rows_wanted(own_, step.routed, step.wire, step.routed.rows_wanted);
  } catch (const std::exception& e) {
    taken.error = said_of(e);
    if (taken.error.empty()) taken.error = "unknown error";
    step.routed.payload_bytes.assign(group_->world_size(), 0);
  }
}

void ShardedCollection::lay_out(const Taken& taken, Stopwatch& watch) const {
  StepState& state = *taken.state;
  Step& step = state.step;
  const char* stage = "layout";
  try {
    lay_out_rows(own_, step.routed, step.received, step.wire);
    prepare_joined(step, own_);
    count_traffic(wiring_, *group_, sent(step), state.traffic);
    watch.lap(state.route_s, stage);
    if (!taken.side->ahead) return;
    stage = "prefetch";
    owner_.prefetch(step.received, step.calls);
    watch.lap(state.route_s, stage);
  } catch (const std::exception& e) {
    taken.side->exchange.abort_with_steps(str_cat("rank ", group_->rank(), " failed in the ", stage, ": ", said_of(e)));
    throw;
  }
}

void ShardedCollection::start_without_batch(StepState& state, const std::string& why) const {
  Stopwatch watch(nullptr);
  Step& step = state.step;
  step.routed.payload_bytes.assign(group_->world_size(), 0);
  inputs_->exchange.send_headers(step.routed, false, true, step.messages);
  inputs_->exchange.send_payloads(step.routed, why.empty() ? "unknown error" : why, step.messages, watch);
  fail(Code::kInternal, "an exchange without this rank's batch went through");
}

void ShardedCollection::count_dropped(const CheckedBatch& batch) {
  if (!batch.dropped) return;
  dropped_ids_ += batch.dropped;
  if (options_.bounds_check == BoundsCheckMode::kWarning && !std::exchange(warned_, true)) {
    const std::string text = str_cat(batch.first_dropped, " (only the first one is logged)");
    runtime_.host()->log(runtime_.host(), TSR_LOG_WARNING, text.c_str());
  }
}

// Runs a stage. If it fails on this rank only, the other ranks would wait for it, so the group is aborted.
template <class Body>
void ShardedCollection::guarded(const char* stage, const Body& body) const {
  try {
    body();
  } catch (const std::exception& e) {
    rows_.abort(str_cat("rank ", group_->rank(), " failed in the ", stage, ": ", said_of(e)));
    throw;
  }
}

void ShardedCollection::refuse(const std::string& why) const {
  rows_.abort(str_cat("rank ", group_->rank(), ": ", why));
  fail(Code::kInvalidArgument, why);
}

void ShardedCollection::lay_out_output(StepState& state) const {
  const size_t count = wiring_.table_features().size();
  state.layout.offset.resize(count);
  state.layout.stride.resize(count);
  const CheckedBatch& batch = state.batch;
  const bool together = !wiring_.sequence() && !batch.expands;
  int64_t total = 0;
  state.layout.rows.resize(count);
  for (size_t s = 0; s < count; ++s) {
    const TableFeature& table_feature = wiring_.table_features()[s];
    state.layout.rows[s] = wiring_.sequence() ? batch.original_feature_bags[s].ids : batch.feature_bags[s].bags;
    state.layout.offset[s] = together ? table_feature.col : total;
    state.layout.stride[s] = together ? wiring_.output_width() : table_feature.dim;
    total += table_feature.dim * state.layout.rows[s];
  }
  state.rows = {};
  state.num_rows_elements = total;
  state.rows = room(state.storage, total);
}

// A new tensor is allocated only if both are still held or too small.
Tensor ShardedCollection::room(std::array<Tensor, 2>& storage, int64_t elements) const {
  const auto fits = [&](const Tensor& t) { return t.defined() && t.unique() && t.numel() >= elements; };
  if (!fits(storage[0])) std::swap(storage[0], storage[1]);
  if (!fits(storage[0])) {
    const Shape shape{std::max<int64_t>(elements, 1)};
    storage[0] = options_.stream ? options_.stream->empty(shape) : Tensor::empty(shape);
  }
  return storage[0].first({elements});
}

Tensor ShardedCollection::expand(StepState& state, bool keep_context) const {
  RowMover& inverse = *state.step.inverse;
  list_inverse(wiring_, state.batch, state.layout, inverse.moves);
  inverse.take(keep_context);
  const int64_t batch = state.batch.output_batch, width = wiring_.output_width();
  const Tensor out = room(state.expanded, batch * width);
  inverse.split(out, state.rows);
  return out.reshape({batch, width});
}

// Sums the gradients of rows that several samples use.
Tensor ShardedCollection::collapse(StepState& state, const Tensor& grad) const {
  Tensor rows = state.grad.ensure(state.num_rows_elements).first({state.num_rows_elements});
  state.step.inverse->combine(state.step.executor->bring(grad), rows);
  return rows;
}

void ShardedCollection::look_up(StepState& state, bool keep_context) {
  Step& step = state.step;
  if (!std::exchange(state.taken, false)) {
    refuse("a forward needs a batch that was taken in without an error, and takes it once");
  }
  times_.route += state.route_s;
  times_.exchange_ids += state.exchange_ids_s;
  count_dropped(state.batch);
  Stopwatch watch(trace_);
  guarded("lookup", [&] {
    step.rows.ensure(step.wire.elements);
    lay_out_output(state);
    owner_.find_features({step.routed, step.received, step.wire, state.layout}, step.calls);
    step.owned.take(step.received, *step.executor);
    list_output(own_, step.routed, step.wire, state.layout, step.output->moves);
    step.output->take(keep_context);
    list_host_sums(own_, step.received, step.wire, step.host_sums->moves);
    step.host_sums->take(keep_context);
    watch.lap(times_.route, "layout of the output");
    state.sampled = keep_context && sample_every_ > 0 && ++since_sample_ >= sample_every_;
    if (state.sampled) since_sample_ = 0;
    const OwnerLookup::Rows rows{step.rows.tensor(), state.rows};
    if (state.sampled)
      owner_.forward_alone(step.owned.view(step.calls), rows, step.calls, shard_seconds_);
    else
      owner_.forward(step.owned.view(step.calls), rows, keep_context, step.calls);
    watch.lap(times_.lookup, "lookup");
    state.travel = rows_.start_rows_to_home(on_wire(step));
    if (replicated_.empty()) return;
    step.data_parallel->take(wiring_, state.batch, options_.is_weighted, *step.executor);  // meanwhile rows travel
    step.replicated.take(wiring_, step.routed, *step.executor);
    replicated_.forward(replicated_batch(state), {state.rows, step.rows.tensor()},
                        keep_context ? &state.replicated_contexts : nullptr);
    watch.lap(times_.lookup, "lookup of replicated rows");
  });
}

void ShardedCollection::finish(StepState& state) {
  Step& step = state.step;
  Stopwatch watch(trace_);
  guarded("lookup", [&] { rows_.finish_rows_to_home(on_wire(step), std::move(state.travel), watch); });
  watch.lap(times_.exchange_rows, "exchange rows", sum_of(state.traffic.bytes.rows));
  bytes_sent_.ids += state.traffic.bytes.ids;
  bytes_sent_.unused_inline += state.traffic.bytes.unused_inline;
  bytes_sent_.rows += state.traffic.bytes.rows;
  bytes_sent_.ids_wanted += state.traffic.bytes.ids_wanted;
  bytes_sent_.ids_sent += state.traffic.bytes.ids_sent;
  traffic_ = state.traffic;
  last_ = &state;
  guarded("combine", [&] { step.output->combine(step.rows.tensor(), state.rows); });
  watch.lap(times_.combine, "combine");
  ++times_.steps;
}

std::vector<StepExchange> ShardedCollection::last_exchanges() const {
  return last_ ? exchanges_of(wiring_.hosts(), group_->rank(), sent(last_->step)) : std::vector<StepExchange>();
}

// A kernel clamps a bag's gradient before it divides by the bag's length. Because the home divides, it also clamps, and
// the owner gets values within the bound.
Tensor ShardedCollection::clamped(StepState& state, const Tensor& grad) const {
  Tensor out = grad;
  for (size_t s = 0; s < wiring_.table_features().size() && !wiring_.sequence(); ++s) {
    const TableFeature& table_feature = wiring_.table_features()[s];
    const OptimizerSpec& own = tables_[table_feature.table].optimizer;
    const double bound = (own.name.empty() ? options_.optimizer : own).max_gradient;
    if (table_feature.data_parallel || table_feature.pooling != PoolingType::kMean || bound <= 0) continue;
    if (out.raw() == grad.raw()) {
      out = state.clamped.ensure(grad.numel()).first({grad.numel()});
      std::copy_n(grad.data<float>(), grad.numel(), out.data<float>());
    }
    const auto most = static_cast<float>(bound / gradient_scale());
    for (int64_t r = 0; r < state.layout.rows[s]; ++r) {
      float* row = out.data<float>() + state.layout.offset[s] + r * state.layout.stride[s];
      for (int64_t d = 0; d < table_feature.dim; ++d) row[d] = std::clamp(row[d], -most, most);
    }
  }
  return out;
}

void ShardedCollection::start_backward(StepState& state, const Tensor& given) {
  Stopwatch watch(trace_);
  Step& step = state.step;
  guarded("split", [&] {
    state.given = clamped(state, step.executor->bring(given));
    step.output->split(step.rows.tensor(), state.given);
  });
  watch.lap(times_.split, "split");
  guarded("backward", [&] { state.travel = rows_.start_rows_to_owner(on_wire(step)); });
}

void ShardedCollection::finish_backward(StepState& state) {
  Stopwatch watch(trace_);
  Step& step = state.step;
  const double mean = 1.0 / group_->world_size();
  const Tensor grad = std::exchange(state.given, {});
  guarded("backward", [&] {
    rows_.finish_rows_to_owner(on_wire(step), std::move(state.travel), watch);
    watch.lap(times_.exchange_gradients, "exchange gradients", sum_of(state.traffic.bytes.gradients));
    const OwnerLookup::Rows gradients{step.rows.tensor(), grad};
    const double scale = gradient_scale();
    if (state.sampled)
      owner_.backward_alone(step.owned.view(step.calls), gradients, scale, step.calls, shard_seconds_);
    else
      owner_.backward(step.owned.view(step.calls), gradients, scale, step.calls);
    sampled_steps_ += state.sampled;
    watch.lap(times_.update, "table update");
    if (replicated_.empty()) return;
    replicated_.backward(replicated_batch(state), {grad, step.rows.tensor()}, std::move(state.replicated_contexts),
                         *group_, {options_.data_parallel_gradient_scale.value_or(mean), scale});
    watch.lap(times_.data_parallel, "data parallel");
  });
  bytes_sent_.gradients += state.traffic.bytes.gradients;
  ++updates_;
}

}  // namespace tessera
