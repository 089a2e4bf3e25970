#include "checkpoint/tables.h"

#include <algorithm>
#include <set>

#include "checkpoint/together.h"
#include "config/json.h"
#include "modules/row_figures.h"
#include "tessera/sdk/random.h"
#include "wiring/row_router.h"

namespace tessera::checkpoint {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Counts of a shard's rows that are stored by their ids.
struct CountedRows {
  int64_t rows = -1;    // -1: unknown
  uint64_t digest = 0;  // 0 if columns are not cut
  int64_t removed = 0;
};

// A digest of the ids of a shard's rows and their order.
uint64_t digest_of(const ModelTable& table, size_t shard, Rows which) {
  constexpr size_t kRows = 4096;
  const HeldShard held = table.held(shard);
  if (held.where.cols == table.stored.dim) return 0;
  const ShardedEmbeddings& from = *table.collection;
  std::vector<int64_t> ids(kRows);
  std::vector<float> weights(kRows * static_cast<size_t>(held.where.cols));
  uint64_t out = 0, cursor = 0;
  while (const int64_t count = which == Rows::kAll
                                   ? from.export_rows(held, cursor, ids, weights.data(), {})
                                   : from.export_changed(ModelTable::kFollower, held, cursor, ids, weights.data()))
    for (int64_t i = 0; i < count; ++i) out = sdk::mixed(out ^ static_cast<uint64_t>(ids[static_cast<size_t>(i)]));
  return out;
}

// Returns [shard, changed rows, digest, removed ids]. A rank keeps the removed ids that it will store.
OrderedJson changes_here(ModelTable& table, size_t s) {
  const HeldShard held = table.held(s);
  const Lookup::RowChanges there = table.collection->changes(ModelTable::kFollower, held);
  table.removed.resize(table.sharding->shards.size());
  std::vector<int64_t>& removed = table.removed[s];
  removed.resize(static_cast<size_t>(held.where.col == 0 ? there.removed : 0));
  uint64_t cursor = 0;
  for (int64_t done = 0, count = 0; done < std::ssize(removed); done += count) {
    count = table.collection->export_removed(ModelTable::kFollower, held, cursor,
                                             std::span(removed).subspan(static_cast<size_t>(done)));
    if (count == 0) fail(Code::kInternal, "table \"", table.stored.name, "\" names fewer removed rows than it counts");
  }
  return {s, there.changed, digest_of(table, s, Rows::kChanged), there.removed};
}

// Serializes this rank's knowledge of the tables that it holds: [{"table": index, "states": [[name, per_row]], "rate":
// x}], "on_demand": [[shard, rows, digest, extra bytes, figures]], and "changed": [changes_here()].
std::string known_here(std::vector<ModelTable>& tables, int rank, Rows rows) {
  OrderedJson known = OrderedJson::array();
  for (size_t t = 0; t < tables.size(); ++t) {
    ModelTable& table = tables[t];
    OrderedJson one;
    for (size_t s = 0; s < table.sharding->shards.size(); ++s) {
      const ShardMetadata& where = table.sharding->shards[s];
      if (where.rank != rank || where.rows == 0) continue;
      if (one.is_null()) {
        OrderedJson states = OrderedJson::array();
        for (const Lookup::State& state : table.collection->state_layout(table.held(s)))
          states.push_back({state.name, state.per_row});
        one = {{"table", t},
               {"states", states},
               {"extra", table.collection->extra_bytes(table.held(s)) / 4},
               {"rate", table.collection->learning_rate(table.stored.name)}};
      }
      if (rows == Rows::kChanged && table.collection->changes_by_rows(table.held(s)))
        one["changed"].push_back(changes_here(table, s));
      if (!table.collection->rows_on_demand(table.held(s))) continue;
      table.table_extras.resize(table.sharding->shards.size());
      table.table_extras[s] = table.collection->table_extra(table.held(s));
      one["on_demand"].push_back({s, table.collection->kernel_stats(table.held(s)).rows_in_use,
                                  digest_of(table, s, Rows::kAll), table.table_extras[s].size(),
                                  to_json(table.collection->row_figures(table.held(s)))});
    }
    if (!one.is_null()) known.push_back(one);
  }
  return known.dump();
}

void add_figures(const OrderedJson& of_shard, size_t shard, ModelTable& table) {
  if (!table.stored.figures) table.stored.figures.emplace();
  if (table.sharding->shards[shard].col > 0) return;  // other columns of the same rows
  RowFigures more = row_figures_from({of_shard, {"a rank's description of its tables"}});
  // If ids are routed, each shard has the table's whole capacity and uses its own rows of it.
  if (table.sharding->routed) more.capacity = std::max<int64_t>(0, more.capacity - table.stored.figures->capacity);
  *table.stored.figures += more;
}

void learn_rows(const OrderedJson& shards, ModelTable& table, std::vector<uint64_t>& digests) {
  const size_t n = table.sharding->shards.size();
  const RowSets sets(*table.sharding);
  table.rows_in_use.resize(n, -1);
  table.stored.table_extras.resize(n);
  digests.resize(n);
  for (const OrderedJson& shard : shards) {
    const auto s = shard[0].get<size_t>();
    table.rows_in_use.at(s) = shard[1].get<int64_t>();
    digests[s] = shard[2].get<uint64_t>();
    table.stored.table_extras[s] = shard[3].get<int64_t>();
    add_figures(shard[4], s, table);
    for (size_t other = 0; other < n; ++other) {
      if (table.rows_in_use[other] < 0 || sets.of_shard[other] != sets.of_shard[s]) continue;
      if (table.rows_in_use[other] == table.rows_in_use[s] && digests[other] == digests[s]) continue;
      fail(Code::kFailedPrecondition, "table \"", table.stored.name,
           "\" is sharded by columns, and its ranks hold rows of different ids: a checkpoint needs the same ids, so "
           "limit the table by a number of rows and by steps, or shard it by rows");
    }
  }
}

void learn(const std::string& text, std::vector<ModelTable>& tables, std::vector<std::vector<uint64_t>>& digests,
           std::vector<std::vector<CountedRows>>& changed) {
  for (const OrderedJson& known : config::parse_json(text, {"a rank's description of its tables"})) {
    const auto t = known["table"].get<size_t>();
    TableEntry& stored = tables.at(t).stored;
    stored.extra_words = known["extra"].get<int64_t>();
    stored.kernel = tables[t].sharding->compute_kernel;
    if (known.contains("on_demand")) learn_rows(known["on_demand"], tables[t], digests[t]);
    for (const OrderedJson& c : known.value("changed", OrderedJson::array())) {
      changed[t].resize(tables[t].sharding->shards.size());
      changed[t].at(c[0].get<size_t>()) = {c[1].get<int64_t>(), c[2].get<uint64_t>(), c[3].get<int64_t>()};
    }
    if (!stored.states.empty()) continue;
    for (const OrderedJson& state : known["states"])
      stored.states.push_back({state[0].get<std::string>(), state[1].get<bool>()});
    stored.learning_rate = known["rate"].get<double>();
  }
}

// True if all shards know which of their rows have changed, and shards of the same rows agree. If one kernel reports
// one row more, all rows of the table are stored.
bool agree(const ModelTable& table, const std::vector<CountedRows>& changed) {
  const RowSets sets(*table.sharding);
  const std::vector<ShardMetadata>& shards = table.sharding->shards;
  const std::vector<size_t> stored = table.sharding->distinct();
  return std::all_of(stored.begin(), stored.end(), [&](size_t s) {
    if (shards[s].rows == 0) return true;
    const auto first = std::find_if(stored.begin(), stored.end(), [&](size_t f) {
      return shards[f].rows > 0 && shards[f].col == 0 && sets.of_shard[f] == sets.of_shard[s];
    });
    return first != stored.end() && changed[s].rows >= 0 && changed[s].rows == changed[*first].rows &&
           changed[s].digest == changed[*first].digest;
  });
}

void take_changes(const std::vector<CountedRows>& changed, ModelTable& table) {
  if (changed.empty() || !agree(table, changed)) return;
  const bool on_demand = !table.rows_in_use.empty();
  table.stored.changes = true;
  table.rows_in_use.clear();
  for (const CountedRows& c : changed) {
    table.rows_in_use.push_back(std::max<int64_t>(0, c.rows));
    table.num_removed.push_back(c.removed);
  }
  if (on_demand) table.stored.removed = table.before(changed.size(), table.num_removed);
}

void count_keys(ModelTable& table) {
  for (size_t s = 0; s < table.rows_in_use.size(); ++s) {
    if (table.sharding->shards[s].rows == 0) table.rows_in_use[s] = 0;
    if (table.rows_in_use[s] < 0)
      fail(Code::kUnimplemented, "table \"", table.stored.name,
           "\" has shards with rows on demand and shards without: a checkpoint cannot hold both");
  }
  if (!table.rows_in_use.empty()) table.stored.keys = table.before(table.rows_in_use.size(), table.rows_in_use);
}

}  // namespace

// Counts only the shards of the first columns, and only the first of several copies.
int64_t ModelTable::before(size_t shard, const std::vector<int64_t>& counts) const {
  const RowSets sets(*sharding);
  int64_t out = 0;
  for (const size_t s : sharding->distinct()) {
    const bool comes_first = shard >= counts.size() || sets.of_shard[s] < sets.of_shard[shard];
    if (sharding->shards[s].col == 0 && comes_first) out += counts[s];
  }
  return out;
}

std::vector<ModelTable> model_tables(DistributedModelParallel& model, Rows rows) {
  std::vector<ModelTable> tables;
  for (const auto& [path, collection] : model.sharded()) {
    for (const EmbeddingBagConfig& config : collection->tables()) {
      ModelTable table{collection, &collection->plan().at(config.name), {}};
      table.stored.name = config.name;
      table.stored.rows = config.num_embeddings;
      table.id_bound = config.id_bound();
      table.stored.dim = config.embedding_dim;
      table.stored.dtype = config.data_type;
      table.stored.optimizer = collection->optimizer_of(config.name);
      table.stored.cuts = column_cuts(*table.sharding, config.embedding_dim);
      tables.push_back(std::move(table));
    }
  }
  // The model lists its tables' parameters last, in the same order.
  const ParameterList parameters = model.parameters();
  TESSERA_CHECK(parameters.size() >= tables.size(), "every table is a parameter");
  for (size_t t = 0; t < tables.size(); ++t)
    tables[t].stored.parameter = parameters[parameters.size() - tables.size() + t]->name;
  const auto known =
      together(model.group(), "states of tables", [&] { return known_here(tables, model.group().rank(), rows); });
  std::vector<std::vector<uint64_t>> digests(tables.size());
  std::vector<std::vector<CountedRows>> changed(tables.size());
  for (const std::string& text : known) learn(text, tables, digests, changed);
  for (size_t t = 0; t < tables.size(); ++t) {
    take_changes(changed[t], tables[t]);
    count_keys(tables[t]);
  }
  return tables;
}

std::vector<int64_t> column_cuts(const ParameterSharding& sharding, int64_t dim) {
  std::set<int64_t> boundaries{0, dim};
  for (const ShardMetadata& s : sharding.shards) {
    if (s.rows) boundaries.insert({s.col, s.col + s.cols});
  }
  std::vector<int64_t> widths;
  for (auto at = boundaries.begin(); *at < dim; ++at) widths.push_back(*std::next(at) - *at);
  return widths;
}

float merged_state(std::span<const int64_t> cuts, const float* values, int64_t col, int64_t cols) {
  double sum = 0;
  int64_t begin = 0;
  for (size_t c = 0; c < cuts.size(); ++c) {
    const int64_t overlap = std::min(begin + cuts[c], col + cols) - std::max(begin, col);
    if (overlap == cols) return values[c];
    if (overlap > 0) sum += static_cast<double>(overlap) * values[c];
    begin += cuts[c];
  }
  return static_cast<float>(sum / static_cast<double>(cols));
}

int64_t RowSet::run_end(int64_t i) const {
  if (!ids) return count;
  int64_t end = i + 1;
  while (end < count && ids[end] == ids[end - 1] + 1) ++end;
  return end;
}

void write_slab(OutputFile& file, const StoredTensor& tensor, const Slab& slab, const float* values) {
  const bool bits = is_integer(tensor.dtype);  // copied unchanged
  const Tensor given =
      Tensor::borrow(const_cast<float*>(values), {slab.rows.count * slab.cols}, bits ? tensor.dtype : DType::kFloat32);
  const Tensor typed = given.to(tensor.dtype);
  const int64_t element = size_of(tensor.dtype);
  const char* from = static_cast<const char*>(typed.raw());
  for (int64_t i = 0; i < slab.rows.count;) {
    const int64_t end = slab.cols == slab.width ? slab.rows.run_end(i) : i + 1;
    file.write_at(tensor.offset + (slab.rows.row(i) * slab.width + slab.col) * element, from + i * slab.cols * element,
                  (end - i) * slab.cols * element);
    i = end;
  }
}

void read_rows(const InputFile& file, const StoredTensor& tensor, const RowSet& rows, int64_t width, float* into) {
  const int64_t element = size_of(tensor.dtype);
  const bool direct = tensor.dtype == DType::kFloat32 || is_integer(tensor.dtype);
  const Tensor stored = direct ? Tensor::borrow(into, {rows.count * width}, tensor.dtype)
                               : Tensor::empty({rows.count * width}, tensor.dtype);
  for (int64_t i = 0; i < rows.count;) {
    const int64_t end = rows.run_end(i);
    file.read_at(tensor.offset + rows.row(i) * width * element, static_cast<char*>(stored.raw()) + i * width * element,
                 (end - i) * width * element);
    i = end;
  }
  if (!direct) std::copy_n(stored.to(DType::kFloat32).data<float>(), stored.numel(), into);
}

}  // namespace tessera::checkpoint
