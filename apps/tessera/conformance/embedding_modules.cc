#include "conformance/embedding_modules.h"

#include <algorithm>
#include <numeric>

namespace tessera::cli {

std::vector<EmbeddingBagConfig> table_configs_from(const json& tables, bool pooled) {
  std::vector<EmbeddingBagConfig> out;
  for (const json& t : tables) {
    EmbeddingBagConfig config{.name = t.at("name").get<std::string>(),
                              .num_embeddings = t.at("num_embeddings").get<int64_t>(),
                              .embedding_dim = t.at("embedding_dim").get<int64_t>()};
    if (const json& names = field_or_null(t, "feature_names"); !names.is_null()) {
      config.feature_names = names.get<std::vector<std::string>>();
    }
    if (const json& type = field_or_null(t, "data_type"); !type.is_null()) {
      config.data_type = dtype_from(type.get<std::string>());
    }
    config.pooling = pooled ? pooling_from(t.value("pooling", "SUM")) : PoolingType::kNone;
    out.push_back(std::move(config));
  }
  return out;
}

void set_table_weights(EmbeddingTables& collection, const json& tables) {
  for (const json& t : tables) {
    if (const json& weight = field_or_null(t, "weight"); !weight.is_null()) {
      collection.set_weight(t["name"].get<std::string>(), tensor_from(weight));
    }
  }
}

CollectionOptions collection_options_from(const CaseContext& c, bool pooled) {
  CollectionOptions options;
  options.tables = table_configs_from(c.given.at("tables"), pooled);
  options.kernel = c.kernel;
  options.is_weighted = c.given.value("is_weighted", false);
  options.need_indices = c.given.value("need_indices", false);
  return options;
}

namespace {

bool is_row_gradient(const RowGradient& g) {
  return g.rows.defined() && g.values.defined() && g.rows.dtype() == DType::kInt64 && g.rows.dim() == 1 &&
         g.values.dtype() == DType::kFloat32 && g.values.dim() == 2 && g.values.size(0) == g.rows.numel();
}

// Sorts the entries by row, then by values: there is one per lookup, and their order is not part of the contract.
RowGradient sorted(const RowGradient& g) {
  const int64_t count = g.rows.numel(), dim = g.values.size(1);
  const int64_t* rows = g.rows.data<int64_t>();
  const float* values = g.values.data<float>();
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    if (rows[a] != rows[b]) return rows[a] < rows[b];
    return std::lexicographical_compare(values + a * dim, values + (a + 1) * dim, values + b * dim,
                                        values + (b + 1) * dim);
  });
  RowGradient out{g.rows.clone(), g.values.clone()};
  for (int64_t i = 0; i < count; ++i) {
    out.rows.data<int64_t>()[i] = rows[order[static_cast<size_t>(i)]];
    std::copy_n(values + order[static_cast<size_t>(i)] * dim, dim, out.values.data<float>() + i * dim);
  }
  return out;
}

json json_of(const Tensor& t) {
  json data = json::array();
  for (int64_t i = 0; i < t.numel(); ++i) {
    if (is_integer(t.dtype())) {
      data.push_back(static_cast<int64_t>(t.item(i)));
    } else {
      data.push_back(t.item(i));
    }
  }
  return {{"shape", t.shape()}, {"dtype", to_string(t.dtype())}, {"data", data}};
}

void check_rows(CaseContext& c, const std::string& field, const json& want, const RowGradient& got) {
  c.check.tensor(field + ".indices", want.at("indices"), got.rows);
  c.check.tensor(field + ".values", want.at("values"), got.values);
}

void check_single_table(CaseContext& c, const Tensor& output, const EmbeddingGradients& gradients,
                        const std::function<RowGradient()>& uncoalesced) {
  const TableGradient& table = gradients.tables.at(0);
  c.check.tensor("output", c.expect.at("output"), output);
  if (c.expect.contains("grad_weight")) c.check.tensor("grad_weight", c.expect["grad_weight"], table.dense());
  if (c.expect.contains("grad_per_sample_weights")) {
    c.check.tensor("grad_per_sample_weights", c.expect["grad_per_sample_weights"], gradients.per_sample_weights);
  }
  const json& sparse = field_or_null(c.expect, "grad_weight_sparse");
  if (sparse.is_null()) return;
  if (sparse.contains("coalesced")) check_rows(c, "coalesced", sparse["coalesced"], table.rows);
  if (!sparse.contains("uncoalesced")) return;
  const json& want = sparse["uncoalesced"];
  const RowGradient given{tensor_from(want.at("indices")), tensor_from(want.at("values"))};
  if (!is_row_gradient(given))
    return c.check.fail("uncoalesced", "want one row of float32 values for each int64 index");
  const RowGradient expected = sorted(given);
  check_rows(c, "uncoalesced", {{"indices", json_of(expected.rows)}, {"values", json_of(expected.values)}},
             sorted(uncoalesced()));
}

EmbeddingOptions embedding_options(const CaseContext& c) {
  EmbeddingOptions o;
  o.weight = tensor_from(c.given.at("weight"));
  o.num_embeddings = o.weight.size(0);
  o.embedding_dim = o.weight.size(1);
  o.kernel = c.kernel;
  if (const json& padding = field_or_null(c.given, "padding_idx"); !padding.is_null()) {
    o.padding_idx = padding.get<int64_t>();
  }
  if (const json& mode = field_or_null(c.given, "mode"); !mode.is_null()) {
    o.mode = pooling_from(mode.get<std::string>());
  }
  o.include_last_offset = c.given.value("include_last_offset", false);
  return o;
}

void embedding_op(CaseContext& c) {
  const auto module = std::make_unique<Embedding>(c.runtime, embedding_options(c));
  EmbeddingContext context;
  const Tensor output = module->forward(tensor_from(c.given.at("indices")), &context);
  const Tensor grad = tensor_from(c.given.at("grad_output"));
  RowGradient each = module->uncoalesced_gradient(context, grad);
  check_single_table(c, output, module->backward(std::move(context), grad), [&] { return std::move(each); });
}

void embedding_bag_op(CaseContext& c) {
  const auto module = std::make_unique<EmbeddingBag>(c.runtime, embedding_options(c));
  EmbeddingBag::Input input;
  input.indices = tensor_from(c.given.at("indices"));
  input.offsets = tensor_from(field_or_null(c.given, "offsets"));
  input.per_sample_weights = tensor_from(field_or_null(c.given, "per_sample_weights"));
  EmbeddingContext context, second;
  const Tensor output = module->forward(input, &context);
  (void)module->forward(input, &second);
  const Tensor grad = tensor_from(c.given.at("grad_output"));
  const EmbeddingGradients gradients = module->backward(std::move(context), grad);
  check_single_table(c, output, gradients, [&] { return module->uncoalesced_gradient(second, grad); });
}

void check_tables(CaseContext& c, const EmbeddingTables& module, const EmbeddingGradients& gradients) {
  if (c.expect.contains("state_dict_keys")) {
    c.check.equal("state_dict_keys", c.expect["state_dict_keys"], module.state_dict_keys());
  }
  if (c.expect.contains("embedding_names_by_table")) {
    c.check.equal("embedding_names_by_table", c.expect["embedding_names_by_table"], module.embedding_names_by_table());
  }
  for (const auto& [table, want] : field_or_null(c.expect, "grad_tables").items()) {
    c.check.tensor("grad_tables." + table, want, gradients.table(table).dense());
  }
  for (const auto& [table, want] : field_or_null(c.expect, "grad_tables_sparse").items()) {
    check_rows(c, "grad_tables_sparse." + table, want, gradients.table(table).rows);
  }
  if (c.expect.contains("grad_per_sample_weights")) {
    c.check.tensor("grad_per_sample_weights", c.expect["grad_per_sample_weights"], gradients.per_sample_weights);
  }
}

void ebc_op(CaseContext& c) {
  const auto module = std::make_unique<EmbeddingBagCollection>(c.runtime, collection_options_from(c, true));
  set_table_weights(*module, c.given["tables"]);
  EmbeddingContext context;
  const KeyedTensor output = module->forward(kjt_from(c.given.at("kjt")), &context);
  c.check.equal("keys", c.expect.at("keys"), output.keys());
  c.check.tensor("values", c.expect.at("values"), output.values());
  if (c.expect.contains("length_per_key")) {
    c.check.equal("length_per_key", c.expect["length_per_key"], output.length_per_key());
  }
  if (c.expect.contains("offset_per_key")) {
    c.check.equal("offset_per_key", c.expect["offset_per_key"], output.offset_per_key());
  }
  for (const auto& [key, want] : field_or_null(c.expect, "to_dict").items()) {
    c.check.tensor("to_dict." + key, want, output[key]);
  }
  if (!c.given.contains("grad_output")) return;
  check_tables(c, *module, module->backward(std::move(context), tensor_from(c.given["grad_output"])));
}

void ec_op(CaseContext& c) {
  const auto module = std::make_unique<EmbeddingCollection>(c.runtime, collection_options_from(c, false));
  set_table_weights(*module, c.given["tables"]);
  EmbeddingContext context;
  const JaggedTensorDict output = module->forward(kjt_from(c.given.at("kjt")), &context);
  std::vector<std::string> keys;
  std::vector<Tensor> grads;
  for (const auto& [key, jagged] : output) {
    keys.push_back(key);
    grads.push_back(tensor_from(field_or_null(field_or_null(c.given, "grad_outputs"), key.c_str())));
    const json& want = c.expect.at("jagged").at(key);
    c.check.tensor(key + ".values", want.at("values"), jagged.values());
    c.check.tensor(key + ".lengths", want.at("lengths"), jagged.lengths());
    c.check.tensor(key + ".offsets", want.at("offsets"), jagged.offsets());
    if (want.contains("weights")) c.check.tensor(key + ".weights", want["weights"], jagged.weights_or_null());
  }
  c.check.equal("keys", c.expect.at("keys"), keys);
  check_tables(c, *module, module->backward(std::move(context), grads));
}

}  // namespace

OpTable embedding_module_ops() {
  return {{"embedding", embedding_op},
          {"embedding_bag", embedding_bag_op},
          {"ebc", ebc_op},
          {"ec", ec_op},
          {"error", embedding_error_op}};
}

}  // namespace tessera::cli
