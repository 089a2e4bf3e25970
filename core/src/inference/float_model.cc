// open_float_model() reads a DLRM from the names and shapes of its tensors, or the graph that a checkpoint describes.
#include <algorithm>
#include <string_view>

#include "config/json.h"
#include "inference/float_tensors.h"
#include "inference/manifest.h"
#include "modules/graph_json.h"
#include "modules/vector_inputs.h"
#include "tessera/predictor.h"
#include "tessera/sdk/nearest.h"

namespace tessera {
namespace inference {
namespace {

using config::JsonObject;

constexpr std::string_view kKeys = ".keys";  // suffix of the tensor with the ids of a table's rows

// Position of `part` in a name, at its beginning or after a dot; npos: none.
size_t place_of(std::string_view name, std::string_view part) {
  for (size_t at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1)) {
    if (at == 0 || name[at - 1] == '.') return at;
  }
  return std::string_view::npos;
}

// Sorts "t_cat_2" before "t_cat_10".
bool natural_less(const std::string& a, const std::string& b) {
  size_t i = 0, k = 0;
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  while (i < a.size() && k < b.size()) {
    if (!digit(a[i]) || !digit(b[k])) {
      if (a[i] != b[k]) return a[i] < b[k];
      ++i, ++k;
      continue;
    }
    const auto number = [&](const std::string& text, size_t& at) {
      while (at < text.size() && text[at] == '0') ++at;
      const size_t first = at;
      while (at < text.size() && digit(text[at])) ++at;
      return std::string_view(text).substr(first, at - first);
    };
    const std::string_view x = number(a, i), y = number(b, k);
    if (x != y) return x.size() != y.size() ? x.size() < y.size() : x < y;
  }
  return a.size() - i < b.size() - k;
}

class FloatModelReader {
 public:
  FloatModelReader(const std::string& path, const FloatModelOptions& options) : tensors_(path), options_(options) {}

  FloatModel read() {
    progress_ = own_progress();
    const bool graph = is_graph() || is_given();
    model().description.type = graph ? kGraph : kDlrm;
    sort_tensors(graph);
    const std::vector<EmbeddingBagConfig> tables = described_tables();
    unnamed_ = table_tensors_;
    if (graph) {
      for (const auto& [name, tensor] : dense_tensors_) (void)read_parameter(name);
    } else {
      read_dense();
    }
    refuse_unknown(graph ? "no layer has " : "no DLRM has ");
    for (const EmbeddingBagConfig& table : tables) add_table(table);
    if (!unnamed_.empty()) wrong("its table \"", unnamed_.begin()->first, "\" is not in the config");
    model().description.is_weighted = options_.is_weighted || was_weighted();
    model().description.name = path();
    if (graph) model().graph = is_given() ? given_graph() : graph_from(own_model().object(kGraph), configs());
    complete(model());
    if (!graph) {
      check_width();
      model().graph = dlrm_graph(model().dlrm);
    }
    return std::move(out_);
  }

 private:
  InferenceModel& model() { return out_.model; }
  const std::string& path() const { return tensors_.path(); }
  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    fail(Code::kInvalidArgument, path(), ": ", parts...);
  }

  // True if `tessera train` wrote a description of the model.
  bool has_own_model() const { return progress_.is_object() && progress_.contains("model"); }
  JsonObject own_model() const { return JsonObject(progress_, {path(), Code::kDataLoss}).object("model"); }
  bool is_graph() const { return has_own_model() && own_model().has(kGraph); }
  bool is_given() const { return !has_own_model() && options_.graph; }
  std::vector<EmbeddingBagConfig> configs() const { return configs_of(out_.model.tables); }
  ModelGraph given_graph() const {
    ModelGraph out = graph_over(options_.graph->dense_width, configs());
    add_vector_inputs(vectors_of(*options_.graph), out);
    out.layers = options_.graph->layers;
    add_id_inputs(configs(), out);
    out.heads = options_.graph->heads;
    return out;
  }
  // The prefix of a given model's names. It is taken from its tables, because another module may wrap the model.
  std::string before_names() const {
    for (const auto& [name, tensor] : tensors_.all()) {
      if (const size_t at = place_of(name, "sparse_arch."); is_given() && at != std::string::npos)
        return name.substr(0, at);
    }
    return "";
  }
  bool was_weighted() const {
    return has_own_model() && own_model().has("is_weighted") && own_model().get<bool>("is_weighted");
  }

  // Sorts tensor names by table and by dense parameter.
  void sort_tensors(bool graph) {
    constexpr std::string_view kBags = ".embedding_bags.", kRows = ".embeddings.", kWeight = ".weight";
    const std::string before = before_names();
    for (const auto& [name, tensor] : tensors_.all()) {
      if (const size_t at = place_of(name, "inter_arch."); at != std::string::npos && !graph)
        wrong("tensor \"", name,
              "\" belongs to another interaction than the dot products of a DLRM: give a config whose [[layer]]s say "
              "which");
      const bool pooled = name.find(kBags) != std::string::npos;
      const std::string_view tables = pooled ? kBags : kRows;
      const size_t bags = name.find(tables), end = name.size() - kWeight.size();
      if (bags != std::string::npos && name.size() > bags + tables.size() + kWeight.size() && name.ends_with(kWeight)) {
        const std::string table = name.substr(bags + tables.size(), end - bags - tables.size());
        if (!table_tensors_.emplace(table, name).second) wrong("table \"", table, "\" is there twice");
        continue;
      }
      if (bags != std::string::npos && name.ends_with(kKeys)) continue;  // read with its table
      const size_t at = !graph ? std::min(place_of(name, "dense_arch."), place_of(name, "over_arch."))
                        : name.starts_with(before) ? before.size()
                                                   : std::string::npos;
      if (at != std::string::npos) {
        if (!dense_tensors_.emplace(name.substr(at), name).second) wrong("\"", name.substr(at), "\" is there twice");
      } else {
        unknown_.push_back(name);
      }
    }
    if (table_tensors_.empty()) {
      wrong(
          "no table was found: their tensors are called \"sparse_arch.embedding_bag_collection.embedding_bags."
          "TABLE.weight\"");
    }
  }

  // Fails on unknown trained parameters, because without them it would be another model.
  void refuse_unknown(const char* nobody_has) {
    for (const auto& [name, tensor] : dense_tensors_) {
      if (!model().dense.contains(name)) unknown_.push_back(tensor);
    }
    if (unknown_.empty()) return;
    constexpr size_t kMost = 8;
    std::string names;
    for (size_t i = 0; i < std::min(kMost, unknown_.size()); ++i)
      names += str_cat(i > 0 ? ", \"" : "\"", unknown_[i], '"');
    if (unknown_.size() > kMost) names += str_cat(" and ", unknown_.size() - kMost, " more");
    wrong(nobody_has, names,
          ": without these tensors it would be another model; remove those that are not part of the model from the "
          "checkpoint");
  }

  // Returns the tables in the order of the pooled output, with features and pooling.
  std::vector<EmbeddingBagConfig> described_tables() {
    model().description.bounds_check = options_.bounds_check.value_or(BoundsCheckMode::kFatal);
    model().description.encoding = own_encoding();
    if (progress_.is_object() && progress_.contains("data")) model().description.trained_on = progress_["data"].dump();
    if (!options_.tables.empty()) {
      std::vector<EmbeddingBagConfig> tables = options_.tables;
      for (EmbeddingBagConfig& t : tables) {  // open sizes are filled in when the tensor is seen
        t.num_embeddings = std::max<int64_t>(1, t.num_embeddings);
        t.embedding_dim = std::max<int64_t>(1, t.embedding_dim);
      }
      return validated(tables);
    }
    if (const auto own = own_description(); !own.empty()) return validated(own);
    std::vector<EmbeddingBagConfig> tables;
    if (tensors_.manifest() != nullptr) {
      for (const checkpoint::TableEntry& t : tensors_.manifest()->tables) tables.push_back(plain(t.name));
    } else {
      for (const auto& [table, tensor] : table_tensors_) tables.push_back(plain(table));
      std::sort(tables.begin(), tables.end(),
                [](const auto& a, const auto& b) { return natural_less(a.name, b.name); });
      out_.assumptions.push_back("tensors do not tell the order of the tables; they are sorted by name: " +
                                 sdk::joined(tables, &EmbeddingBagConfig::name));
    }
    out_.assumptions.push_back(
        "tensors do not tell features and pooling: each table has the feature of its own name, pooled by sum");
    return validated(tables);
  }
  static EmbeddingBagConfig plain(const std::string& name) {
    EmbeddingBagConfig table{.name = name};
    table.num_embeddings = table.embedding_dim = 1;  // until the tensor is seen
    return table;
  }

  // Tables as `tessera train` described them; empty: there is no description.
  std::vector<EmbeddingBagConfig> own_description() {
    std::vector<EmbeddingBagConfig> tables;
    if (!has_own_model()) return tables;
    const JsonObject description = own_model();
    for (const JsonObject& t : description.objects("tables")) {
      tables.push_back(plain(t.get<std::string>("name")));
      tables.back().feature_names = t.get<std::vector<std::string>>("features");
      tables.back().pooling = pooling_from(t.get<std::string>("pooling"));
    }
    if (!options_.bounds_check)
      model().description.bounds_check = bounds_check_from(description.get<std::string>("bounds_check"));
    return tables;
  }
  std::string own_encoding() const {
    if (tensors_.manifest() == nullptr) return "";
    const nlohmann::ordered_json progress = own_progress();
    return progress.is_object() && progress.contains("encoding") ? progress["encoding"].dump() : "";
  }
  // Null if another program wrote the checkpoint and it is no JSON.
  nlohmann::ordered_json own_progress() const {
    if (tensors_.manifest() == nullptr) return {};
    try {
      return config::parse_json(tensors_.manifest()->progress, {path()});
    } catch (const Error&) {
      return {};
    }
  }

  void add_table(const EmbeddingBagConfig& described) {
    const auto found = table_tensors_.find(described.name);
    if (found == table_tensors_.end())
      wrong("there is no table \"", described.name, "\", only ",
            sdk::joined(table_tensors_, [](const auto& table) -> const std::string& { return table.first; }));
    const checkpoint::StoredTensor& stored = tensors_.all().at(found->second);
    const std::string keys = str_cat(found->second, '/', described.name, kKeys);
    const bool keyed = tensors_.all().contains(keys);
    if (stored.shape.size() != 2 || stored.shape[0] < (keyed ? 0 : 1) || stored.shape[1] < 1 ||
        is_integer(stored.dtype))
      wrong("\"", found->second, "\" is ", checkpoint::describe(stored), ", but a table has rows of floats");
    for (const EmbeddingBagConfig& wanted : options_.tables) {
      if (wanted.name != described.name) continue;
      const int64_t rows = wanted.num_embeddings > 0 ? wanted.num_embeddings : stored.shape[0],
                    dim = wanted.embedding_dim > 0 ? wanted.embedding_dim : stored.shape[1];
      if ((rows != stored.shape[0] && !keyed) || dim != stored.shape[1]) {
        wrong("table \"", described.name, "\" is [", stored.shape[0], ", ", stored.shape[1], "], but the config says [",
              rows, ", ", dim, "]");
      }
    }
    QuantizedTable table{described, {}};
    table.config.num_embeddings = stored.shape[0];
    table.config.embedding_dim = stored.shape[1];
    RowFormat format{};
    table.rows = tensors_.rows(found->second, &format);
    table.config.row_format = format;
    if (stored.dtype == DType::kBFloat16) table.config.data_type = stored.dtype;  // no row format has it
    table.config.optimizer = {};
    if (keyed) table.config.remapping = remapping_of(keys, stored.shape[0]);
    if (const auto* m = tensors_.manifest(); m != nullptr) {
      const checkpoint::TableEntry* entry = m->find(found->second);
      if (entry != nullptr) table.figures = entry->figures;
    }
    model().tables.push_back(std::move(table));
    if (model().tables.size() == 1) model().dlrm.embedding_dim = stored.shape[1];
    unnamed_.erase(described.name);
  }

  // For on-demand tables: ids without a row read as zeros.
  std::shared_ptr<const IndexRemapping> remapping_of(const std::string& name, int64_t rows) {
    const Tensor keys = tensors_.read(name);
    if (keys.dtype() != DType::kInt64 || keys.numel() != rows)
      wrong("\"", name, "\" must be int64 [", rows, "], an id for each row");
    return IndexRemapping::keyed(INT64_MAX, keys, IndexRemapping::seats_of(keys));
  }

  // Returns the output sizes of layers `prefix`K`suffix`. *input gets the first one's input size.
  std::vector<int64_t> layers(const std::string& prefix, const std::string& suffix, int64_t* input) {
    std::vector<int64_t> sizes;
    for (int k = 0;; ++k) {
      const std::string layer = str_cat(prefix, k, suffix);
      if (!dense_tensors_.contains(layer + ".weight")) return sizes;
      sizes.push_back(read_layer(layer, sizes.empty() ? nullptr : &sizes.back(), input));
    }
  }

  // Reads one linear layer and returns its output size.
  int64_t read_layer(const std::string& layer, const int64_t* expected_input, int64_t* input) {
    const Tensor weight = read_parameter(layer + ".weight"), bias = read_parameter(layer + ".bias");
    if (weight.dim() != 2 || bias.shape() != std::vector<int64_t>{weight.size(0)} || weight.numel() == 0)
      wrong("\"", layer, "\" is not a linear layer: its weight must be [out, in] and its bias [out]");
    if (expected_input != nullptr && weight.size(1) != *expected_input) {
      wrong("\"", layer, ".weight\" takes ", weight.size(1), " values, but the layer before gives ", *expected_input);
    }
    if (expected_input == nullptr) *input = weight.size(1);
    return weight.size(0);
  }
  Tensor read_parameter(const std::string& name) {
    const auto found = dense_tensors_.find(name);
    if (found == dense_tensors_.end()) wrong("there is no tensor \"", name, "\", which a DLRM has");
    const bool counts = tensors_.all().at(found->second).dtype == DType::kInt64;  // a buffer
    Tensor value = model().dense[name] = counts ? tensors_.read(found->second) : tensors_.read_float(found->second);
    if (counts) return value;
    const auto values = value.span<float>();
    if (sdk::first_non_finite(values.data(), value.numel()) >= 0)
      wrong("\"", found->second, "\" has a value that is not finite");
    return value;
  }

  void read_dense() {
    DlrmOptions& o = model().dlrm;
    o.bottom_mlp = layers("dense_arch.model._mlp.", "._linear", &o.dense_inputs);
    if (o.bottom_mlp.empty())
      (void)read_parameter("dense_arch.model._mlp.0._linear.weight");  // throws the error about the missing tensor
    o.top_mlp = layers("over_arch.model.0._mlp.", "._linear", &top_input_);
    const int64_t last = o.top_mlp.empty() ? 0 : o.top_mlp.back();
    o.top_mlp.push_back(read_layer("over_arch.model.1", o.top_mlp.empty() ? nullptr : &last, &top_input_));
  }

  void check_width() {
    const int64_t wanted = interaction_width(model().dlrm);
    if (wanted == top_input_) return;
    wrong("its top MLP takes ", top_input_, " values, and ", model().dlrm.num_embeddings, " pooled features of ",
          model().dlrm.embedding_dim, " columns give ", wanted,
          ": name a job with --config whose tables have the right "
          "features");
  }

  FloatTensors tensors_;
  const FloatModelOptions& options_;
  FloatModel out_;
  std::map<std::string, std::string> table_tensors_, dense_tensors_, unnamed_;
  std::vector<std::string> unknown_;
  nlohmann::ordered_json progress_;
  int64_t top_input_ = 0;
};

}  // namespace
}  // namespace inference

FloatModel open_float_model(const std::string& path, const FloatModelOptions& options) {
  return inference::FloatModelReader(path, options).read();
}

}  // namespace tessera
