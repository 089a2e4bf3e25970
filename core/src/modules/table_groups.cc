// Decides which kernel instances there are, and moves tables between them.
#include "modules/table_groups.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "modules/embedding_tables.h"

namespace tessera {
namespace {

// Number of rows that are moved at once between kernel instances. This bounds the memory that a move takes.
int64_t rows_at_once(int64_t dim) { return std::max<int64_t>(1, (int64_t{1} << 20) / dim); }

void move_rows(const Lookup& from, int from_index, Lookup& to, int to_index, bool states) {
  const LookupTable& table = from.options().tables[static_cast<size_t>(from_index)];
  const int64_t step = std::min(rows_at_once(table.dim), std::max<int64_t>(table.rows, 1));
  std::vector<Tensor> buffers{Tensor::empty({step, table.dim})};
  if (states) {
    for (const Lookup::State& s : from.states()) buffers.push_back(Tensor::empty({step, s.per_row ? 1 : table.dim}));
  }
  std::vector<float*> out;
  for (size_t i = 1; i < buffers.size(); ++i) out.push_back(buffers[i].data<float>());
  const std::vector<const float*> in(out.begin(), out.end());
  std::vector<char> extra(from.extra_bytes(from_index) == to.extra_bytes(to_index) ? step * to.extra_bytes(to_index)
                                                                                   : 0);
  char* const kept = extra.empty() ? nullptr : extra.data();
  for (int64_t row = 0; row < table.rows; row += step) {
    const int64_t count = std::min(step, table.rows - row);
    from.read_rows(from_index, row, count, buffers[0].data<float>(), out, kept);
    to.write_rows(to_index, row, count, buffers[0].data<float>(), in, kept);
  }
}

bool same_tables(const LookupOptions& a, const LookupOptions& b) {
  return std::equal(a.tables.begin(), a.tables.end(), b.tables.begin(), b.tables.end(),
                    [](const LookupTable& x, const LookupTable& y) { return x.name == y.name; });
}

}  // namespace

bool alike(const LookupOptions& a, const LookupOptions& b) {
  const auto common = [](const LookupOptions& o) {
    return std::tie(o.kernel, o.compute_kernel, o.train, o.stream, o.weight_dtype, o.row_format, o.output_dtype,
                    o.optimizer);
  };
  return common(a) == common(b);
}

TableGroups group_tables(std::vector<LookupOptions> wanted) {
  TableGroups out;
  for (LookupOptions& one : wanted) {
    TESSERA_CHECK(one.tables.size() == 1, "tables are grouped one by one");
    auto group = std::find_if(out.groups.begin(), out.groups.end(), [&](const auto& g) { return alike(g, one); });
    const auto g = static_cast<size_t>(group - out.groups.begin());
    if (group == out.groups.end()) {
      out.places.push_back({g, 0});
      out.groups.push_back(std::move(one));
    } else {
      out.places.push_back({g, static_cast<int32_t>(group->tables.size())});
      group->tables.push_back(std::move(one.tables[0]));
    }
  }
  return out;
}

TableGroups group_quantized(const std::vector<EmbeddingBagConfig>& tables, const std::string& kernel,
                            DType output_dtype) {
  std::vector<LookupOptions> wanted;
  for (const EmbeddingBagConfig& table : tables) {
    LookupOptions& one = wanted.emplace_back();
    one.kernel = kernel;
    one.compute_kernel = TSR_COMPUTE_QUANT;
    one.train = false;
    one.row_format = table.row_format;
    one.output_dtype = output_dtype;
    one.tables = {{table.name, table.num_embeddings, table.embedding_dim, {}, 0, {}}};
  }
  return group_tables(std::move(wanted));
}

bool EmbeddingTables::Impl::hands_gradients_out(const OptimizerSpec& optimizer) const {
  if (!options.train || optimizer.name.empty()) return true;
  const ComponentPtr part = runtime.create(TSR_OPTIMIZER_KIND, optimizer.name, optimizer.options);
  return part->api<tsr_optimizer>().update_row == nullptr;
}

std::vector<TableGroup> EmbeddingTables::Impl::grouping() const {
  std::vector<LookupOptions> wanted;
  for (const EmbeddingBagConfig& table : options.tables) {
    LookupOptions& one = wanted.emplace_back();
    one.kernel = options.kernel;
    one.train = options.train;
    one.weight_dtype = table.data_type;
    const bool dense = hands_gradients_out(table.optimizer);
    one.compute_kernel = dense ? TSR_COMPUTE_DENSE : options.compute_kernel;
    if (!dense) one.optimizer = table.optimizer;
    one.seed = options.seed;
    const StartValues start{start_formula(table, options.seed, 0, 0), nullptr};
    one.tables = {{table.name, table.num_embeddings, table.embedding_dim, {}, 0, start, table.any_id}};
  }
  TableGroups grouped = group_tables(std::move(wanted));
  std::vector<TableGroup> out;
  for (LookupOptions& group : grouped.groups) out.push_back({std::move(group), {}, nullptr});
  for (size_t t = 0; t < grouped.places.size(); ++t) out[grouped.places[t].group].tables.push_back(t);
  return out;
}

void EmbeddingTables::Impl::build() {
  if (options.device.type == DeviceType::kMeta) return;
  std::vector<TableGroup> next = grouping();
  for (TableGroup& group : next) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const TableGroup& g) {
      return alike(g.options, group.options) && same_tables(g.options, group.options);
    });
    if (same != groups.end()) {
      group.lookup = same->lookup;
      continue;
    }
    group.lookup = std::make_shared<Lookup>(runtime, group.options);
    if (groups.empty()) {
      group.lookup->start_rows();
      continue;
    }
    for (size_t i = 0; i < group.tables.size(); ++i) {
      const size_t t = group.tables[i];
      const TableGroup& old = groups[states[t].group];
      const bool same_optimizer = old.options.optimizer == group.options.optimizer;
      move_rows(*old.lookup, states[t].index, *group.lookup, static_cast<int>(i), same_optimizer);
      if (!same_optimizer) continue;
      group.lookup->set_step(old.lookup->step());
      group.lookup->set_learning_rate(old.lookup->learning_rate());
    }
  }
  groups = std::move(next);
  ++generation;
  place_tables();
}

void EmbeddingTables::Impl::place_tables() {
  kernel_ids.assign(options.tables.size(), "");
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t i = 0; i < groups[g].tables.size(); ++i) {
      const size_t t = groups[g].tables[i];
      states[t].group = g;
      states[t].index = static_cast<int>(i);
      kernel_ids[t] = groups[g].lookup->kernel_id();
    }
  }
}

void EmbeddingTables::Impl::use_optimizer(const OptimizerSpec& spec, const std::vector<size_t>& chosen) {
  const std::vector<EmbeddingBagConfig> before = options.tables;
  for (size_t t : chosen) options.tables[t].optimizer = spec;
  try {
    build();
  } catch (...) {
    options.tables = before;
    throw;
  }
  for (size_t t : chosen) {
    states[t].dense_spec.reset();
    states[t].dense_optimizer.reset();
    states[t].dense_parameter.reset();
  }
}

std::vector<size_t> EmbeddingTables::Impl::chosen(const std::vector<std::string>& names) const {
  std::vector<size_t> out;
  if (names.empty()) {
    out.resize(options.tables.size());
    std::iota(out.begin(), out.end(), size_t{0});
  }
  for (const std::string& name : names) out.push_back(index_of(name));
  return out;
}

}  // namespace tessera
