#include "distributed/replicated_shards.h"

#include <algorithm>

#include "config/fnv1a.h"
#include "sparse/arrays.h"

namespace tessera {

namespace {

std::vector<int64_t> rows_of_shards(const ShardGroups& groups) {
  std::vector<int64_t> out;
  for (const LocalShard& shard : groups.shards()) out.push_back(shard.where.rows);
  return out;
}

uint64_t place_of(const std::vector<EmbeddingBagConfig>& tables) {
  uint64_t hash = 0;
  for (const EmbeddingBagConfig& table : tables) hash = fnv1a(table.name, hash);
  return hash;
}

}  // namespace

ReplicatedShards::ReplicatedShards(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables,
                                   const Wiring& wiring, LocalShards shards, const DeviceStreamPtr& stream)
    : place_(place_of(tables)),
      wiring_(wiring),
      tables_(tables),
      groups_(runtime, std::move(shards)),
      shard_of_table_(tables.size()),
      shard_of_(groups_.lookups().size()),
      touched_(rows_of_shards(groups_)),
      executor_(row_executor(stream, Workers(runtime.host()))),
      mover_(executor_->mover()) {
  listed_.pinned(stream);
  listed_there_.on_device(stream);
  sums_.on_device(stream);
  for (size_t k = 0; k < groups_.shards().size(); ++k) {
    const LocalShard& shard = groups_.shards()[k];
    shard_of_table_[static_cast<size_t>(shard.table)] = k;
    auto& of_group = shard_of_[static_cast<size_t>(shard.group)];
    of_group.resize(std::max(of_group.size(), static_cast<size_t>(shard.index) + 1));
    of_group[static_cast<size_t>(shard.index)] = k;
    const auto is_its = [&](const Call& c) {
      return c.group == shard.group && c.replicated_rows == shard.where.replicated;
    };
    if (std::none_of(calls_.begin(), calls_.end(), is_its)) calls_.push_back({shard.group, shard.where.replicated, {}});
  }
}

ReplicatedShards::Call& ReplicatedShards::call_of(const LocalShard& shard) {
  return *std::find_if(calls_.begin(), calls_.end(), [&](const Call& c) {
    return c.group == shard.group && c.replicated_rows == shard.where.replicated;
  });
}

void ReplicatedShards::fill_features(const Batch& batch) {
  for (Call& call : calls_) call.features.clear();
  for (size_t s = 0; s < wiring_.table_features().size(); ++s) {
    const TableFeature& table_feature = wiring_.table_features()[s];
    if (!table_feature.data_parallel && table_feature.replicated_rows < 0) continue;
    const LocalShard& shard = groups_.shards()[shard_of_table_[static_cast<size_t>(table_feature.table)]];
    tsr_lookup_feature feature{};
    feature.table = shard.index;
    if (table_feature.data_parallel) {
      feature.pooling = wiring_.sequence() ? TSR_POOLING_NONE : static_cast<int32_t>(table_feature.pooling);
      feature.bags = batch.checked.feature_bags[s].bags;
      feature.first_offset = batch.data_parallel.first_offset(s);
      feature.output_offset = batch.layout.offset[s];
      feature.output_stride = batch.layout.stride[s];
    } else {  // a mean is made at the home, because it needs the whole bag
      feature.pooling = wiring_.sequence() ? TSR_POOLING_NONE : TSR_POOLING_SUM;
      feature.bags = batch.routed.sent[wiring_.replicated_route(table_feature.replicated_rows)].full_bags;
      feature.first_offset = batch.replicated.first_offset(table_feature.replicated_rows);
      feature.output_offset = batch.wire.replicated_begin[static_cast<size_t>(table_feature.replicated_rows)];
      feature.output_stride = table_feature.dim;
    }
    call_of(shard).features.push_back(feature);
  }
}

// Calls each(table feature, positions of its ids in its sequence) for data-parallel tables' features, if ids were
// dropped.
template <class Each>
void ReplicatedShards::each_sparse_feature(const Batch& batch, const Each& each) const {
  const CheckedBatch& checked = batch.checked;
  if (!wiring_.sequence() || checked.clean()) return;
  for (size_t s = 0; s < wiring_.table_features().size(); ++s) {
    if (!wiring_.table_features()[s].data_parallel) continue;
    std::vector<int64_t> places(static_cast<size_t>(checked.feature_bags[s].ids));
    for (size_t i = 0; i < places.size(); ++i)
      places[i] = checked.positions.data<int64_t>()[checked.feature_bags[s].first_id + static_cast<int64_t>(i)] -
                  checked.original_feature_bags[s].first_id;
    each(s, places);
  }
}

void ReplicatedShards::move_apart(const Batch& batch, const Tensor& output) const {
  each_sparse_feature(batch, [&](size_t s, const std::vector<int64_t>& places) {
    const int64_t dim = wiring_.table_features()[s].dim;
    float* const rows = output.data<float>() + batch.layout.offset[s];
    int64_t end = batch.layout.rows[s];  // of the rows that are not filled yet
    for (size_t i = places.size(); i-- > 0; end = places[i]) {
      std::fill(rows + (places[i] + 1) * dim, rows + end * dim, 0.0f);
      if (static_cast<size_t>(places[i]) != i)
        std::copy_n(rows + static_cast<int64_t>(i) * dim, dim, rows + places[i] * dim);
    }
    std::fill(rows, rows + end * dim, 0.0f);
  });
}

Tensor ReplicatedShards::side_by_side(const Batch& batch, const Tensor& gradient) const {
  Tensor out = gradient;
  each_sparse_feature(batch, [&](size_t s, const std::vector<int64_t>& places) {
    if (out.raw() == gradient.raw()) out = gradient.clone();
    const int64_t dim = wiring_.table_features()[s].dim;
    float* to = out.data<float>() + batch.layout.offset[s];
    for (const int64_t place : places)
      to = std::copy_n(gradient.data<float>() + batch.layout.offset[s] + place * dim, dim, to);
  });
  return out;
}

void ReplicatedShards::forward(const Batch& batch, const Rows& rows, Contexts* contexts) {
  fill_features(batch);
  if (contexts) {
    contexts->clear();
    contexts->resize(calls_.size());
  }
  for (size_t c = 0; c < calls_.size(); ++c) {
    const Call& call = calls_[c];
    Lookup& lookup = *groups_.lookups()[call.group];
    const LookupView view = call.replicated_rows ? batch.replicated.view() : batch.data_parallel.view();
    const bool keep = contexts && lookup.options().train;
    lookup.forward(view.of(call.features), call.replicated_rows ? rows.wire : rows.output,
                   keep ? &(*contexts)[c] : nullptr);
  }
  move_apart(batch, rows.output);
}

void ReplicatedShards::find_rows(const Batch& batch, const ProcessGroup& group) {
  touched_.clear();
  for (size_t s = 0; s < wiring_.table_features().size(); ++s) {
    const TableFeature& table_feature = wiring_.table_features()[s];
    const size_t shard = shard_of_table_[static_cast<size_t>(table_feature.table)];
    if (table_feature.replicated_rows >= 0) {
      const IdBlock& id_block = batch.routed.sent[wiring_.replicated_route(table_feature.replicated_rows)];
      const int64_t* rows = batch.routed.replicated_ids.data<int64_t>() + id_block.first_id;
      for (int64_t i = 0; i < id_block.ids; ++i) touched_.mark(shard, rows[i]);
    }
    if (!table_feature.data_parallel) continue;
    const FeatureBags& bags = batch.checked.feature_bags[s];
    for (int64_t i = 0; i < bags.ids; ++i)
      touched_.mark(shard, sparse::integer_at(batch.checked.values, bags.first_id + i));
  }
  touched_.share(group, place_);
}

// Lists the rows that any rank had, and the moves of this rank's gradients to their sums. A row that only other ranks
// had gets 0 here.
void ReplicatedShards::list_rows() {
  listed_begin_.assign(1, 0);
  sums_begin_.assign(1, 0);
  for (size_t k = 0; k < groups_.shards().size(); ++k) {
    const int64_t count = touched_.count(k);
    listed_begin_.push_back(listed_begin_.back() + count);
    sums_begin_.push_back(sums_begin_.back() + count * groups_.shards()[k].where.cols);
  }
  RowMoves& moves = mover_->moves;
  moves.clear();
  moves.own_bags.resize(static_cast<size_t>(listed_begin_.back()));
  int64_t* row = listed_.ensure(listed_begin_.back()).data<int64_t>();
  int32_t* bag = moves.own_bags.data();
  int64_t packed = 0;
  for (size_t k = 0; k < groups_.shards().size(); ++k) {
    const int64_t cols = groups_.shards()[k].where.cols, count = listed_begin_[k + 1] - listed_begin_[k];
    moves.add(RowTarget{count, cols, sums_begin_[k], cols});
    RowRun mine{packed, cols, bag};
    mine.cols = cols;
    int32_t at = 0;
    touched_.for_each(k, [&](int64_t touched, bool is_mine) {
      *row++ = touched;
      if (is_mine) bag[mine.rows++] = at;
      ++at;
    });
    moves.add(mine);
    bag += mine.rows;
    packed += mine.rows * cols;
  }
  sums_.ensure(sums_begin_.back());
}

// Adds this rank's gradient of a shard to the listed rows.
void ReplicatedShards::take_gradient(size_t shard, const RowGradient& gradient) {
  const RowMoves& moves = mover_->moves;
  const int64_t mine = moves.of(moves.targets[shard]).front().rows;
  if (gradient.rows.numel() != mine) {
    fail(Code::kInternal, "table \"", tables_[groups_.shards()[shard].table].name,
         "\": backward_rows gave gradients of ", gradient.rows.numel(), " rows, but the batch has ", mine,
         ": it must give those of each row that it has, once");
  }
  mover_->combine_target(shard, gradient.values, sums_.tensor());
}

// `rows` are the listed rows, in the memory of the tables.
void ReplicatedShards::reduce_and_apply(const Tensor& rows, const ProcessGroup& group) {
  const Tensor sums = sums_.tensor().first({sums_begin_.back()});
  if (sums.numel() && group.world_size() > 1)
    group.all_reduce(sums, ReduceOp::kSum, {"data-parallel gradients", place_, Carries::kGradients}).wait();
  for (size_t k = 0; k < groups_.shards().size(); ++k) {
    const LocalShard& shard = groups_.shards()[k];
    Lookup& lookup = *groups_.lookups()[shard.group];
    const int64_t count = listed_begin_[k + 1] - listed_begin_[k], cols = shard.where.cols;
    if (!count || lookup.options().optimizer.name.empty()) continue;
    lookup.apply(shard.index, {rows.narrow(listed_begin_[k], count),
                               sums.narrow(sums_begin_[k], count * cols).reshape({count, cols})});
  }
  for (const auto& lookup : groups_.lookups()) lookup->count_step();
}

void ReplicatedShards::backward(const Batch& batch, const Rows& gradients, Contexts&& contexts,
                                const ProcessGroup& group, const Scales& scales) {
  fill_features(batch);
  find_rows(batch, group);
  executor_->wait();
  list_rows();
  mover_->take(false);
  const Tensor rows = executor_->upload(listed_, listed_there_, listed_begin_.back());
  const Tensor of_output = side_by_side(batch, gradients.output);
  for (size_t c = 0; c < calls_.size(); ++c) {
    const Call& call = calls_[c];
    const LookupView view = call.replicated_rows ? batch.replicated.view() : batch.data_parallel.view();
    const auto take = [&](int table, const RowGradient& gradient) {
      const size_t shard = shard_of_[static_cast<size_t>(call.group)][static_cast<size_t>(table)];
      if (groups_.shards()[shard].where.replicated == call.replicated_rows) take_gradient(shard, gradient);
    };
    groups_.lookups()[call.group]->backward_rows(
        std::move(contexts[c]), view.of(call.features), call.replicated_rows ? gradients.wire : of_output,
        call.replicated_rows ? scales.replicated_rows : scales.data_parallel, take);
  }
  mover_->finish(sums_.tensor());
  reduce_and_apply(rows, group);
}

Tensor ReplicatedShards::gradient_of(size_t shard) const {
  const ShardMetadata& where = groups_.shards()[shard].where;
  const int64_t begin = listed_begin_[shard], count = listed_begin_[shard + 1] - begin;
  Tensor out = Tensor::zeros({where.rows, where.cols});
  if (!count) return out;
  const Tensor sums = in_host_memory(sums_.tensor().narrow(sums_begin_[shard], count * where.cols));
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(sums.data<float>() + i * where.cols, where.cols,
                out.data<float>() + listed_.data<int64_t>()[begin + i] * where.cols);
  }
  return out;
}

std::vector<std::pair<std::string, Tensor>> ReplicatedShards::gradients() const {
  std::vector<std::pair<std::string, Tensor>> out;
  if (listed_begin_.empty()) return out;
  for (size_t k = 0; k < groups_.shards().size(); ++k) {
    if (groups_.shards()[k].where.replicated) continue;
    out.emplace_back(tables_[groups_.shards()[k].table].name, gradient_of(k));
  }
  return out;
}

}  // namespace tessera
