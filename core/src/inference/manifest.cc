#include "inference/manifest.h"

#include <zlib.h>

#include <algorithm>

#include "config/fnv1a.h"
#include "config/json.h"
#include "inference/table_file.h"
#include "modules/graph_json.h"
#include "modules/row_figures.h"

namespace tessera::inference {
namespace {

using OrderedJson = nlohmann::ordered_json;
using config::JsonObject;

// Models with layers in int8 have version 3, others whose rows have their own ids 2, and all others 1.
constexpr int64_t kVersion = 3;
constexpr const char* kFormat = "tessera.model";
constexpr int kSumDigits = 8, kVersionDigits = 16;

std::string hex(uint64_t value, int digits) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string out(static_cast<size_t>(digits), '0');
  for (int i = digits - 1; i >= 0; --i, value >>= 4) out[static_cast<size_t>(i)] = kDigits[value & 15];
  return out;
}

uint32_t crc_of(const std::string& text) {
  return static_cast<uint32_t>(
      ::crc32(0, reinterpret_cast<const unsigned char*>(text.data()), static_cast<uInt>(text.size())));
}

OrderedJson to_json(const StoredFile& f) {
  return {{"name", f.name}, {"bytes", f.bytes}, {"crc32", hex(f.crc, kSumDigits)}};
}

// Reads a file; its name must be a plain name in this directory.
StoredFile file_from(const JsonObject& j) {
  StoredFile f{.name = j.get<std::string>("name"), .bytes = j.get<int64_t>("bytes"), .crc = j.hex("crc32")};
  if (f.name.empty() || f.name.find('/') != std::string::npos || f.name.front() == '.')
    fail(Code::kDataLoss, "\"", f.name, "\" is not a name of a file in it");
  return f;
}

OrderedJson to_json(const Manifest::Table& t) {
  OrderedJson out = {{"name", t.config.name},
                     {"rows", t.config.num_embeddings},
                     {"dim", t.config.embedding_dim},
                     {"row_format", sdk::to_string(*t.config.row_format)},
                     {"pooling", to_string(t.config.pooling)},
                     {"features", t.config.feature_names},
                     {"file", to_json(t.file)}};
  if (t.keys) out.update({{"keys", to_json(*t.keys)}, {"ids", t.ids}});
  if (t.figures) out["figures"] = to_json(*t.figures);
  return out;
}

Manifest::Table table_from(const JsonObject& j) {
  constexpr int64_t kLargest = int64_t{1} << 40;
  Manifest::Table t;
  t.config.name = j.get<std::string>("name");
  t.config.num_embeddings = j.get<int64_t>("rows");
  t.config.embedding_dim = j.get<int64_t>("dim");
  t.config.row_format = row_format_from(j.get<std::string>("row_format"));
  t.config.pooling = pooling_from(j.get<std::string>("pooling"));
  t.config.feature_names = j.get<std::vector<std::string>>("features");
  t.file = file_from(j.object("file"));
  if (j.has("keys")) {
    t.keys = file_from(j.object("keys"));
    t.ids = j.get<int64_t>("ids");
  }
  if (j.has("figures")) t.figures = row_figures_from(j.object("figures"));
  const int64_t rows = t.config.num_embeddings;
  if (rows < (t.keys ? 0 : 1) || rows > kLargest || t.config.embedding_dim < 1 ||
      t.config.embedding_dim > kLargest / std::max<int64_t>(rows, 1) || t.config.feature_names.empty() ||
      t.file.bytes != file_bytes(header_of(t.config))) {
    fail(Code::kDataLoss, "the sizes of table \"", t.config.name, "\" contradict each other");
  }
  return t;
}

OrderedJson to_json(const DlrmOptions& o) {
  return {{"dense_inputs", o.dense_inputs},
          {"embedding_dim", o.embedding_dim},
          {"bottom_mlp", o.bottom_mlp},
          {"top_mlp", o.top_mlp},
          {"mlp", o.mlp},
          {"interaction", o.interaction}};
}

DlrmOptions dlrm_from(const JsonObject& j) {
  DlrmOptions o;
  o.dense_inputs = j.get<int64_t>("dense_inputs");
  o.embedding_dim = j.get<int64_t>("embedding_dim");
  o.bottom_mlp = j.get<std::vector<int64_t>>("bottom_mlp");
  o.top_mlp = j.get<std::vector<int64_t>>("top_mlp");
  o.mlp = j.get<std::string>("mlp");
  o.interaction = j.get<std::string>("interaction");
  return o;
}

OrderedJson content_of(const Manifest& m) {
  OrderedJson content = {{"type", m.type}};
  content[m.type] = m.type == kDlrm ? to_json(m.dlrm) : to_json(m.graph);
  content.update({{"bounds_check", to_string(m.bounds_check)}, {"is_weighted", m.is_weighted}});
  content["tables"] = OrderedJson::array();
  for (const Manifest::Table& t : m.tables) content["tables"].push_back(to_json(t));
  content["dense"] = to_json(m.dense);
  if (m.int8_layers) content["dense_precision"] = kInt8Precision;
  if (!m.trained_on.empty()) content["trained_on"] = config::parse_json(m.trained_on, {"the data of training"});
  if (!m.encoding.empty()) content["encoding"] = config::parse_json(m.encoding, {"the encoding of columns"});
  return content;
}

Manifest manifest_from(const JsonObject& j, const std::string& path) {
  Manifest m;
  m.type = j.get<std::string>("type");
  if (m.type != kDlrm && m.type != kGraph) {
    fail(Code::kUnimplemented, path, " describes a model of type \"", m.type, "\", but this version supports \"", kDlrm,
         "\" and \"", kGraph, "\"");
  }
  m.bounds_check = bounds_check_from(j.get<std::string>("bounds_check"));
  m.is_weighted = j.get<bool>("is_weighted");
  for (const JsonObject& t : j.objects("tables")) m.tables.push_back(table_from(t));
  m.dense = file_from(j.object("dense"));
  if (j.has("dense_precision")) {
    if (j.get<std::string>("dense_precision") != kInt8Precision)
      fail(Code::kDataLoss, "its dense_precision is not \"", kInt8Precision, '"');
    m.int8_layers = true;
  }
  if (m.type == kDlrm) {
    m.dlrm = dlrm_from(j.object(kDlrm));
  } else {
    std::vector<EmbeddingBagConfig> tables;
    for (const Manifest::Table& t : m.tables) tables.push_back(t.config);
    m.graph = graph_from(j.object(kGraph), tables);
  }
  if (j.has("trained_on")) m.trained_on = j.member("trained_on").dump();
  if (j.has("encoding")) m.encoding = j.member("encoding").dump();
  return m;
}

void add_feature(ModelDescription& model, const std::string& feature, const EmbeddingBagConfig& table, int64_t ids) {
  const auto at = std::find_if(model.features.begin(), model.features.end(),
                               [&](const ModelFeature& f) { return f.name == feature; });
  if (at == model.features.end()) {
    model.features.push_back({feature, ids, {table.name}});
    return;
  }
  at->ids = std::min(at->ids, ids);
  at->tables.push_back(table.name);
}

}  // namespace

const char* to_string(BoundsCheckMode mode) {
  switch (mode) {
    case BoundsCheckMode::kIgnore:
      return "ignore";
    case BoundsCheckMode::kWarning:
      return "warning";
    default:
      return "fatal";
  }
}

std::string Manifest::json() const {
  try {
    const OrderedJson content = content_of(*this);
    const std::string text = content.dump();
    const bool keyed = std::any_of(tables.begin(), tables.end(), [](const Table& t) { return t.keys.has_value(); });
    return OrderedJson{{"format", kFormat},
                       {"version", int8_layers ? kVersion
                                   : keyed     ? 2
                                               : 1},
                       {"name", name},
                       {"crc32", hex(crc_of(name + text), kSumDigits)},
                       {"content", content}}
               .dump(1) +
           "\n";
  } catch (const nlohmann::json::exception&) {
    fail(Code::kInvalidArgument, "a model's names must be UTF-8: its own, and those of tables and features");
  }
}

Manifest Manifest::from_json(const std::string& text, const std::string& path) {
  const OrderedJson root = config::parse_json(text, {path + " is damaged: it", Code::kDataLoss});
  try {
    const JsonObject j(root, {"", Code::kDataLoss});
    if (j.get<std::string>("format") != kFormat) fail(Code::kDataLoss, "it is not that of a model");
    const auto version = j.get<int64_t>("version");
    if (version > kVersion) {
      fail(Code::kUnimplemented, path, " is of model format ", version, ", but this version reads formats up to ",
           kVersion, ": use the version of Tessera that wrote it, or a later one");
    }
    const std::string content = j.member("content").dump(), name = j.get<std::string>("name");
    if (j.get<std::string>("crc32") != hex(crc_of(name + content), kSumDigits))
      fail(Code::kDataLoss, "its checksum is wrong");
    Manifest m = manifest_from(j.object("content"), path);
    m.name = name;
    m.version = hex(fnv1a(content), kVersionDigits);
    return m;
  } catch (const Error& e) {
    if (e.code() == Code::kUnimplemented) throw;
    fail(Code::kDataLoss, path, " is damaged: ", e.what());
  }
}

void complete(InferenceModel& model) {
  model.tables = validated(std::move(model.tables));
  ModelDescription& d = model.description;
  const bool dlrm = d.type == kDlrm;
  d.dense_inputs = dlrm ? model.dlrm.dense_inputs : model.graph.dense_width;
  d.features.clear();
  d.tables.clear();
  model.dlrm.num_embeddings = 0;
  for (const QuantizedTable& t : model.tables) {
    const EmbeddingBagConfig& c = t.config;
    if (dlrm && c.embedding_dim != model.dlrm.embedding_dim) {
      fail(Code::kInvalidArgument, "table \"", c.name, "\" has ", c.embedding_dim,
           " columns, but the model's embeddings have ", model.dlrm.embedding_dim);
    }
    if (c.pooling == PoolingType::kMax || (dlrm && c.pooling == PoolingType::kNone)) {
      fail(Code::kInvalidArgument, "table \"", c.name, "\" has pooling ", tessera::to_string(c.pooling),
           ": a model pools by SUM or MEAN", dlrm ? "" : ", or by layers that take sequences, of pooling NONE");
    }
    model.dlrm.num_embeddings += static_cast<int64_t>(c.feature_names.size());
    const bool keyed = c.remapping && c.remapping->keys().defined();
    d.tables.push_back({c.name, c.num_embeddings, c.embedding_dim, *c.row_format, c.pooling, c.feature_names,
                        t.rows.bytes(), c.remapping ? c.remapping->ids() : c.num_embeddings,
                        keyed ? c.remapping->keys().bytes() + c.remapping->seats().bytes() : 0});
    for (const std::string& feature : c.feature_names) add_feature(d, feature, c, d.tables.back().ids);
  }
}

}  // namespace tessera::inference
