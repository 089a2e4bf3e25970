// Area "inference" (tests/conformance/QUANTIZATION.md, sections 4 and 5): quantized collections on one rank. Outputs
// are compared by key, because ours keep the order of the float collection.
#include "conformance/inference.h"

#include <algorithm>

#include "conformance/embedding_modules.h"

namespace tessera::cli {

std::vector<QuantizedTable> quantized_tables(const CaseContext& c, int64_t alignment) {
  CollectionOptions options{.tables = table_configs_from(c.given.at("tables"), c.given.at("module") != "quant_ec")};
  if (options.tables.empty()) fail(Code::kInvalidArgument, "given.tables is empty; give at least one table");
  options.train = false;
  const auto module = options.tables.front().pooling == PoolingType::kNone
                          ? std::unique_ptr<EmbeddingTables>(new EmbeddingCollection(c.runtime, options))
                          : std::unique_ptr<EmbeddingTables>(new EmbeddingBagCollection(c.runtime, options));
  set_table_weights(*module, c.given["tables"]);
  QuantizeOptions quantization{.format = row_format_from(c.given.at("weight_dtype").get<std::string>()),
                               .alignment = alignment};
  for (const auto& [table, type] : field_or_null(c.given, "per_table_weight_dtype").items()) {
    quantization.formats[table] = row_format_from(type.get<std::string>());
  }
  for (const auto& [table, rows] : field_or_null(c.given, "rows_post_pruning").items()) {
    quantization.first_rows[table] = rows.get<int64_t>();
  }
  return quantize(*module, quantization);
}

void check_keyed(CaseContext& c, const KeyedTensor& got) {
  auto keys = c.expect.at("keys").get<std::vector<std::string>>();
  const auto lengths = c.expect.at("length_per_key").get<std::vector<int64_t>>();
  const KeyedTensor want(keys, lengths, tensor_from(c.expect.at("values")));
  auto mine = got.keys();
  for (const std::string& key : keys) {
    if (std::find(mine.begin(), mine.end(), key) == mine.end()) {
      c.check.fail("keys", "no output \"" + key + "\"");
      continue;
    }
    const Tensor expected = want[key];
    json data = json::array();
    for (int64_t i = 0; i < expected.numel(); ++i) data.push_back(expected.item(i));
    c.check.tensor(key, {{"shape", expected.shape()}, {"dtype", to_string(expected.dtype())}, {"data", data}},
                   got[key]);
  }
  std::sort(keys.begin(), keys.end());
  std::sort(mine.begin(), mine.end());
  c.check.equal("keys", keys, mine);
}

namespace {

constexpr int64_t kUnshardedAlignment = 16;
constexpr int64_t kCacheLine = 128;

// TorchRec's collections repair ids unless told otherwise. There is no "none" here: every id is checked.
void set_bounds(const json& mode, QuantCollectionOptions& options) {
  const std::string name = mode.is_string() ? mode.get<std::string>() : "warning";
  options.bounds_check = name == "none" ? BoundsCheckMode::kIgnore : bounds_check_from(name);
  options.bad_ids_become_0 = name != "none";
}

QuantCollectionOptions options_from(const CaseContext& c, std::vector<QuantizedTable> tables) {
  QuantCollectionOptions options;
  options.tables = std::move(tables);
  options.kernel = c.kernel;
  options.is_weighted = c.given.value("is_weighted", false);
  if (const json& type = field_or_null(c.given, "output_dtype"); !type.is_null()) {
    options.output_dtype = dtype_from(type.get<std::string>());
  }
  set_bounds(field_or_null(c.given, "bounds_check_mode"), options);
  return options;
}

std::unique_ptr<QuantEmbeddingBagCollection> bag_collection(const CaseContext& c, QuantCollectionOptions options) {
  return served(c, [&] { return std::make_unique<QuantEmbeddingBagCollection>(c.runtime, std::move(options)); });
}

void check_stored(CaseContext& c, const QuantEmbeddings& module) {
  const json& state = field_or_null(c.expect, "state_dict");
  if (!state.is_null()) c.check.equal("state_dict.size", state.size(), module.tables().size());
  for (const auto& [key, want] : state.items()) {
    const auto keys = module.state_dict_keys();
    const auto at = std::find(keys.begin(), keys.end(), key);
    if (at == keys.end()) {
      c.check.fail("state_dict", "no entry \"" + key + "\"");
      continue;
    }
    const Tensor& rows = module.tables()[static_cast<size_t>(at - keys.begin())].rows;
    check_bytes(c.check, key, want, rows.data<uint8_t>(), rows.numel());
  }
  for (const json& group : field_or_null(c.expect, "tbe_groups")) {
    std::vector<Tensor> rows;
    for (const json& name : group.at("tables")) {
      const QuantizedTable& table = module.table(name.get<std::string>());
      rows.push_back(table.rows);
      c.check.equal("tbe_groups.pooling", group.at("pooling") == "mean", table.config.pooling == PoolingType::kMean);
    }
    const TableImage image = image_of(rows, kCacheLine);
    check_bytes(c.check, "tbe_groups.weights_host", group.at("weights_host"), image.bytes.data(),
                static_cast<int64_t>(image.bytes.size()));
  }
}

// Compares the caller's ids before and after a call.
class Untouched {
 public:
  Untouched(CaseContext& c, const KeyedJaggedTensor& batch) : c_(c), batch_(batch), ids_(batch.values().clone()) {}
  void check() const {
    const bool same = batch_.values().bytes() == 0 || std::equal(static_cast<const char*>(ids_.raw()),
                                                                 static_cast<const char*>(ids_.raw()) + ids_.bytes(),
                                                                 static_cast<const char*>(batch_.values().raw()));
    c_.check.equal("the caller's ids unchanged", true, same);
  }

 private:
  CaseContext& c_;
  const KeyedJaggedTensor& batch_;
  Tensor ids_;
};

void bags_op(CaseContext& c) {
  const auto module = bag_collection(c, options_from(c, quantized_tables(c, kUnshardedAlignment)));
  const KeyedJaggedTensor batch = kjt_from(c.given.at("features"));
  const Untouched ids(c, batch);
  const KeyedTensor output = module->forward(batch);
  ids.check();
  check_keyed(c, output);
  check_stored(c, *module);
}

void position_weighted_op(CaseContext& c) {
  QuantCollectionOptions options = options_from(c, quantized_tables(c, kUnshardedAlignment));
  options.is_weighted = true;
  std::vector<PositionWeights> weights;
  for (const auto& [feature, values] : c.given.at("position_weights").items()) {
    weights.push_back({feature, tensor_from(values)});
  }
  const auto module = bag_collection(c, std::move(options));
  check_keyed(c, module->forward(with_position_weights(kjt_from(c.given.at("features")), weights)));
}

void pruned_op(CaseContext& c) {
  const auto module = bag_collection(c, options_from(c, quantized_tables(c, kUnshardedAlignment)));
  c.check.tensor("values", c.expect.at("values"), module->forward(kjt_from(c.given.at("features"))).values());
  c.check.equal("rows_stored", c.expect.at("rows_stored"), module->tables().front().rows.size(0));
}

void sequences_op(CaseContext& c) {
  QuantCollectionOptions options = options_from(c, quantized_tables(c, kUnshardedAlignment));
  const auto module =
      served(c, [&] { return std::make_unique<QuantEmbeddingCollection>(c.runtime, std::move(options)); });
  const JaggedTensorDict output = module->forward(kjt_from(c.given.at("features")));
  c.check.equal("outputs.size", c.expect.at("outputs").size(), output.size());
  for (const auto& [key, jagged] : output) {
    const json& want = c.expect.at("outputs").at(key);
    c.check.tensor(key + ".values", want.at("values"), jagged.values());
    c.check.tensor(key + ".lengths", want.at("lengths"), jagged.lengths());
  }
}

std::shared_ptr<const IndexRemapping> remapping_from(const json& given) {
  const Tensor rows = tensor_from(given.at("remapping"));
  if (given.at("mode") == "array") return IndexRemapping::array(rows);
  std::vector<int64_t> keys, kept;
  for (int64_t id = 0; id < rows.numel(); ++id) {
    const auto row = static_cast<int64_t>(rows.item(id));
    if (row < 0) continue;
    keys.push_back(id);
    kept.push_back(row);
  }
  return IndexRemapping::hash(rows.numel(), Tensor::from(keys), Tensor::from(kept));
}

void remapping_op(CaseContext& c) {
  std::vector<QuantizedTable> tables;
  for (const json& t : c.given.at("tables")) {
    tables.push_back(table_from(t.at("name"), tensor_from(t.at("weights")),
                                row_format_from(c.given.at("weight_dtype").get<std::string>()), 1));
    tables.back().config.pooling = pooling_from(c.given.at("pooling").get<std::string>());
  }
  tables.front().config.remapping = remapping_from(c.given);
  const KeyedJaggedTensor batch = batch_of(tables, c.given);
  const auto module = bag_collection(c, options_from(c, std::move(tables)));
  const Untouched ids(c, batch);
  c.check.tensor("output", c.expect.at("output"), module->forward(batch).values());
  ids.check();
}

void bounds_op(CaseContext& c) {
  std::vector<QuantizedTable> tables{
      table_from("t", tensor_from(c.given.at("weights")), RowFormat::kInt8, c.given.at("row_alignment"))};
  const KeyedJaggedTensor batch = batch_of(tables, c.given);
  QuantCollectionOptions options = options_from(c, std::move(tables));
  set_bounds(c.given.at("mode"), options);
  const auto module = bag_collection(c, std::move(options));
  if (c.expect.contains("error")) return expect_refusal(c, [&] { (void)module->forward(batch); });
  const Untouched ids(c, batch);
  c.check.tensor("output", c.expect.at("output"), module->forward(batch).values());
  ids.check();
}

}  // namespace

OpTable inference_ops() {
  return {{"inference/quant_ebc", bags_op},
          {"inference/quant_fp_ebc", position_weighted_op},
          {"inference/quant_ebc_pruned", pruned_op},
          {"inference/quant_ec", sequences_op},
          {"inference/tbe_index_remapping", remapping_op},
          {"inference/tbe_bounds", bounds_op},
          {"inference/sharded_quant_ebc", sharded_inference_op}};
}

}  // namespace tessera::cli
