// Rows of tables and of shards in tessera.h.
#include <algorithm>
#include <array>
#include <memory>

#include "c/call.h"
#include "c/handles.h"
#include "tessera/abi/optimizer.h"

using namespace tessera;
using namespace tessera::c;

namespace {

// Rows [first, first + count) of a table.
struct Range {
  const EmbeddingBagConfig& table;
  int64_t first = 0, count = 0;
};

Range range_of(const Collection& c, const char* table, int64_t first, const Tensor& rows) {
  need(table, "table");
  for (const EmbeddingBagConfig& t : c.any().tables()) {
    if (t.name != table) continue;
    if (t.any_id)
      fail(Code::kUnimplemented, "table \"", t.name,
           "\" takes any ids, so its rows have no range: look rows up, or go through those of each shard "
           "(tsr_shard_next_rows)");
    if (rows.dim() != 2 || rows.size(1) != t.embedding_dim)
      fail(Code::kInvalidArgument, "rows of table \"", t.name, "\" must be float32 [any, ", t.embedding_dim, "]");
    if (first < 0 || first > t.num_embeddings - rows.size(0))
      fail(Code::kOutOfRange, "table \"", t.name, "\" has ", t.num_embeddings, " rows, and not [", first, ", ",
           first + rows.size(0), ")");
    return {t, first, rows.size(0)};
  }
  fail(Code::kNotFound, "there is no table \"", table, "\"");
}

// Calls each(row of the shard, row of the range) for each run of a range's rows in a shard.
template <class Each>
void for_each_run(const Collection& c, const HeldShard& shard, const Range& range, const Each& each) {
  const int64_t end = range.first + range.count;
  if (!c.any().plan().at(shard.table).routed) {
    const int64_t first = std::max(range.first, shard.where.row);
    const int64_t last = std::min(end, shard.where.row + shard.where.rows);
    if (first < last) each(first - shard.where.row, first - range.first, last - first);
    return;
  }
  const std::vector<int64_t> ids = c.any().table_rows(shard, 0, shard.where.rows);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= range.first && ids[i] < end) each(static_cast<int64_t>(i), ids[i] - range.first, 1);
  }
}

// Copies a block of `cols` columns between a table's and a shard's rows.
void copy_block(float* to, int64_t to_width, const float* from, int64_t from_width, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) std::copy_n(from + r * from_width, cols, to + r * to_width);
}

void read_range(const Collection& c, const Range& range, float* out) {
  const int64_t dim = range.table.embedding_dim;
  std::vector<float> block;
  for (const HeldShard& shard : c.shards) {
    if (shard.table != range.table.name) continue;
    if (c.any().plan().at(shard.table).is_replicated(static_cast<size_t>(shard.shard)) &&
        c.session().group->rank() != 0)
      continue;
    const int64_t cols = shard.where.cols;
    for_each_run(c, shard, range, [&](int64_t row, int64_t at, int64_t rows) {
      block.resize(static_cast<size_t>(rows * cols));
      c.any().read_rows(shard, row, rows, block.data(), {});
      copy_block(out + at * dim + shard.where.col, dim, block.data(), cols, rows, cols);
    });
  }
}

void write_range(const Collection& c, const Range& range, const float* in) {
  const int64_t dim = range.table.embedding_dim;
  std::vector<float> block;
  for (const HeldShard& shard : c.shards) {
    if (shard.table != range.table.name) continue;
    const int64_t cols = shard.where.cols;
    for_each_run(c, shard, range, [&](int64_t row, int64_t at, int64_t rows) {
      block.resize(static_cast<size_t>(rows * cols));
      copy_block(block.data(), cols, in + at * dim + shard.where.col, dim, rows, cols);
      c.any().write_rows(shard, row, rows, block.data(), {});
    });
  }
}

// The tensors of a call on one shard.
struct ShardRows {
  const HeldShard& shard;
  Tensor weights;
  std::vector<float*> states;
};

ShardRows shard_rows(const Collection& c, uint32_t shard, const DLTensor* weights, const DLTensor* const* states,
                     uint32_t num_states) {
  ShardRows out{at(c.shards, shard, "shard", "rank"), borrowed(weights, "weights", DType::kFloat32), {}};
  const ShardMetadata& w = out.shard.where;
  if (out.weights.dim() != 2 || out.weights.size(1) != w.cols)
    fail(Code::kInvalidArgument, "weights of this shard must be float32 [any, ", w.cols, "]");
  const int64_t count = out.weights.size(0);
  if (states == nullptr) return out;
  const auto& layout = c.any().state_layout(out.shard);
  if (num_states != layout.size())
    fail(Code::kInvalidArgument, "there are ", num_states, " states, but the shard has ", layout.size());
  for (uint32_t k = 0; k < num_states; ++k) {
    const Tensor state = borrowed(states[k], layout[k].name.c_str(), DType::kFloat32);
    const int64_t wanted = layout[k].per_row ? count : count * w.cols;
    if (state.numel() != wanted)
      fail(Code::kInvalidArgument, layout[k].name, " has ", state.numel(), " values, and must have ", wanted);
    out.states.push_back(state.data<float>());
  }
  return out;
}

// Checks that a shard has rows [first, first + count) as a range.
void check_range(const Collection& c, const HeldShard& shard, int64_t first, int64_t count) {
  if (c.any().rows_on_demand(shard)) {
    fail(Code::kUnimplemented, "rows of table \"", shard.table,
         "\" exist on demand, so they have no range: go through them (tsr_shard_next_rows)");
  }
  if (first < 0 || first > shard.where.rows - count)
    fail(Code::kOutOfRange, "the shard has ", shard.where.rows, " rows, and not [", first, ", ", first + count, ")");
}

// A view of a shard's memory, which keeps the collection alive.
struct ShardView {
  std::shared_ptr<const Collection> collection;
  std::array<int64_t, 2> shape{}, strides{};
  DLManagedTensorVersioned raw{};
};

DLManagedTensorVersioned* exported(const std::shared_ptr<const Collection>& collection, uint32_t shard, int32_t state) {
  const Collection& c = *collection;
  const Use use(c.session());
  const HeldShard& held = at(c.shards, shard, "shard", "rank");
  bool per_row = false;
  if (state != -1) per_row = at(c.any().state_layout(held), static_cast<uint32_t>(state), "state", "shard").per_row;
  const MatrixView view = c.any().view(held, state);
  if (!(view.device == kCpu))
    fail(Code::kUnimplemented, "table \"", held.table, "\" is on a device: read and write copies of its rows");
  auto owned = std::make_unique<ShardView>();
  owned->collection = collection;
  owned->shape = {view.rows, view.cols};
  owned->strides = {view.stride, 1};
  owned->raw.version = {1, 0};
  owned->raw.manager_ctx = owned.get();
  owned->raw.deleter = [](DLManagedTensorVersioned* self) {
    auto* mine = static_cast<ShardView*>(self->manager_ctx);
    if (!mine->collection->session().opened->elsewhere()) delete mine;
  };
  owned->raw.dl_tensor = {
      view.data, kCpu.dl(), per_row ? 1 : 2, to_dl(view.dtype), owned->shape.data(), owned->strides.data(), 0};
  return &owned.release()->raw;
}

}  // namespace

void tessera::c::gather_rows(const Collection& c, const char* table, int64_t first, const Tensor& out) {
  const Range range = range_of(c, table, first, out);
  std::fill_n(out.data<float>(), out.numel(), 0.0f);
  read_range(c, range, out.data<float>());
  // One rank has each value and the others have zeros, so the sum of the bits is exactly that value.
  c.session().group->all_reduce(Tensor::borrow(out.raw(), out.shape(), DType::kInt32), ReduceOp::kSum, "rows").wait();
}

tsr_code tsr_collection_read_rows(tsr_collection* collection, const char* table, int64_t first, const DLTensor* rows,
                                  tsr_error* err) {
  return with<Collective>(collection, err, [&](const Collection& c) {
    gather_rows(c, table, first, borrowed(rows, "rows", DType::kFloat32));
  });
}

tsr_code tsr_collection_write_rows(tsr_collection* collection, const char* table, int64_t first, const DLTensor* rows,
                                   tsr_error* err) {
  return with(collection, err, [&](const Collection& c) {
    const Tensor in = borrowed(rows, "rows", DType::kFloat32);
    write_range(c, range_of(c, table, first, in), in.data<float>());
  });
}

tsr_code tsr_collection_get_shard(const tsr_collection* collection, uint32_t i, tsr_shard_info* info, tsr_error* err) {
  return with(collection, err, [&](const Collection& c) {
    const HeldShard& s = at(c.shards, i, "shard", "rank");
    const auto& tables = c.any().tables();
    const auto table = std::find_if(tables.begin(), tables.end(), [&](const auto& t) { return t.name == s.table; });
    copy_out<tsr_shard_info>({0, static_cast<uint32_t>(table - tables.begin()), s.shard,
                              static_cast<uint32_t>(c.any().state_layout(s).size()), s.where.rows, s.where.cols,
                              s.where.row, s.where.col, c.any().rows_on_demand(s) ? 1 : 0, 0},
                             info, "info");
  });
}

tsr_code tsr_shard_get_state(const tsr_collection* collection, uint32_t shard, uint32_t i, tsr_state_info* info,
                             tsr_error* err) {
  return with(collection, err, [&](const Collection& c) {
    const Lookup::State& s = at(c.any().state_layout(at(c.shards, shard, "shard", "rank")), i, "state", "shard");
    copy_out<tsr_state_info>(
        {0, s.per_row ? TSR_STATE_PER_ROW : TSR_STATE_PER_ELEMENT, to_dl(DType::kFloat32), 0, s.name.c_str()}, info,
        "info");
  });
}

tsr_code tsr_shard_read(const tsr_collection* collection, uint32_t shard, int64_t first, const DLTensor* weights,
                        const DLTensor* const* states, uint32_t num_states, tsr_error* err) {
  return with(collection, err, [&](const Collection& c) {
    const ShardRows to = shard_rows(c, shard, weights, states, num_states);
    check_range(c, to.shard, first, to.weights.size(0));
    c.any().read_rows(to.shard, first, to.weights.size(0), to.weights.data<float>(), to.states);
  });
}

tsr_code tsr_shard_write(tsr_collection* collection, uint32_t shard, int64_t first, const DLTensor* weights,
                         const DLTensor* const* states, uint32_t num_states, tsr_error* err) {
  return with(collection, err, [&](const Collection& c) {
    const ShardRows from = shard_rows(c, shard, weights, states, num_states);
    check_range(c, from.shard, first, from.weights.size(0));
    const std::vector<const float*> constant(from.states.begin(), from.states.end());
    c.any().write_rows(from.shard, first, from.weights.size(0), from.weights.data<float>(), constant);
  });
}

tsr_code tsr_shard_next_rows(const tsr_collection* collection, uint32_t shard, uint64_t* cursor, const DLTensor* ids,
                             const DLTensor* weights, const DLTensor* const* states, uint32_t num_states,
                             int64_t* count, tsr_error* err) {
  return with(collection, err, [&](const Collection& c) {
    need(cursor, "cursor");
    need(count, "count");
    const Tensor to = borrowed(ids, "ids", DType::kInt64);
    const ShardRows rows = shard_rows(c, shard, weights, states, num_states);
    if (to.numel() == 0 || to.numel() != rows.weights.size(0)) {
      fail(Code::kInvalidArgument, "there is room for ", to.numel(), " ids and ", rows.weights.size(0),
           " rows of weights: both must be the same number, at least 1");
    }
    *count = c.any().export_rows(rows.shard, *cursor, {to.data<int64_t>(), static_cast<size_t>(to.numel())},
                                 rows.weights.data<float>(), rows.states);
  });
}

tsr_code tsr_shard_export(const tsr_collection* collection, uint32_t shard, int32_t state,
                          DLManagedTensorVersioned** view, tsr_error* err) {
  return made(view, "view", err, [&] {
    need(collection, "collection");
    return exported(collection->collection, shard, state);
  });
}

tsr_code tsr_shard_ids(const tsr_collection* collection, uint32_t shard, int64_t first, const DLTensor* ids,
                       tsr_error* err) {
  return with(collection, err, [&](const Collection& c) {
    const Tensor out = borrowed(ids, "ids", DType::kInt64);
    const HeldShard& s = at(c.shards, shard, "shard", "rank");
    check_range(c, s, first, out.numel());
    const std::vector<int64_t> rows = c.any().table_rows(s, first, out.numel());
    std::copy(rows.begin(), rows.end(), out.data<int64_t>());
  });
}
