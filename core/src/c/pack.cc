// Packed models in tessera.h: sharded tables, and the caller's dense part as a graph of layers.
#include <list>
#include <set>

#include "c/call.h"
#include "c/handles.h"
#include "config/json.h"
#include "inference/manifest.h"
#include "modules/graph_json.h"
#include "tessera/predictor.h"

using namespace tessera;
using namespace tessera::c;

namespace {

using config::JsonObject;
using Json = nlohmann::ordered_json;

std::vector<const Collection*> packed_collections(const tsr_pack_options& in) {
  if (in.num_collections == 0) fail(Code::kInvalidArgument, "there is no collection to pack");
  need(in.collections, "options->collections");
  std::vector<const Collection*> out;
  for (uint32_t i = 0; i < in.num_collections; ++i) {
    need(in.collections[i], "options->collections[...]");
    out.push_back(in.collections[i]->collection.get());
    const ProcessGroup &first = *out[0]->session().group, &own = *out.back()->session().group;
    if (&own != &first && (own.world_size() > 1 || first.world_size() > 1))
      fail(Code::kInvalidArgument, "the collections are over several groups, but must be over one");
  }
  return out;
}

// Returns all rows of a table as floats.
QuantizedTable whole_table(const Collection& c, const EmbeddingBagConfig& config) {
  const Tensor rows = Tensor::empty({config.num_embeddings, config.embedding_dim}, DType::kFloat32);
  gather_rows(c, config.name.c_str(), 0, rows);
  QuantizedTable out{config, quantize_rows(rows, RowFormat::kFloat32, config.name)};
  out.config.row_format = RowFormat::kFloat32;
  out.config.optimizer = {};
  return out;
}

std::map<std::string, Tensor> dense_values(const tsr_pack_options& in) {
  std::map<std::string, Tensor> out;
  if (in.num_tensors > 0) need(in.names, "options->names");
  if (in.num_tensors > 0) need(in.tensors, "options->tensors");
  for (uint32_t i = 0; i < in.num_tensors; ++i) {
    need(in.names[i], "options->names[...]");
    const Tensor value = borrowed(in.tensors[i], in.names[i]);
    if (value.dtype() != DType::kFloat32 && value.dtype() != DType::kInt64)
      fail(Code::kInvalidArgument, "\"", in.names[i], "\" is ", to_string(value.dtype()), ", but must be float32, or ",
           "int64 of a buffer that counts");
    out[in.names[i]] = value;
  }
  return out;
}

struct PackSettings {
  PackOptions pack;
  BoundsCheckMode bounds_check = BoundsCheckMode::kFatal;
};

PackSettings pack_settings(const char* text, const std::vector<QuantizedTable>& tables) {
  PackSettings out;
  if (text == nullptr) return out;
  const config::JsonSource source{"the settings of a packed model"};
  const Json value = config::parse_json(text, source);
  const JsonObject root(value, source);
  root.only({"name", "format", "formats", "bounds_check"});
  root.read("name", out.pack.name);
  out.pack.format = row_format_from(root.get<std::string>("format", "int8"));
  out.bounds_check = bounds_check_from(root.get<std::string>("bounds_check", "fatal"));
  if (!root.has("formats")) return out;
  std::vector<std::string> names;
  for (const QuantizedTable& table : tables) names.push_back(table.config.name);
  const JsonObject formats = root.object("formats").only(names);
  for (const std::string& name : names) {
    if (formats.has(name.c_str())) out.pack.formats[name] = row_format_from(formats.get<std::string>(name.c_str()));
  }
  return out;
}

// Describes the model. Its layers are made once, so that errors are found before anything is written.
InferenceModel model_of(const Runtime& runtime, const std::vector<const Collection*>& collections,
                        const tsr_pack_options& in) {
  need(in.graph, "options->graph");
  InferenceModel out{.dense = dense_values(in)};
  for (const Collection* c : collections) {
    out.description.is_weighted |= c->weighted;
    for (const EmbeddingBagConfig& table : c->any().tables()) out.tables.push_back(whole_table(*c, table));
  }
  out.tables = validated(std::move(out.tables));
  out.description.type = inference::kGraph;
  const config::JsonSource source{"the graph of layers"};
  const Json graph = config::parse_json(in.graph, source);
  out.graph = graph_from(JsonObject(graph, source), configs_of(out.tables));
  inference::complete(out);
  const LayerGraph layers(runtime, out.graph, {.values = &out.dense});
  return out;
}

std::string report_of(const std::vector<TableReport>& tables) {
  Json out = Json::array();
  for (const TableReport& t : tables) {
    out.push_back({{"table", t.table},
                   {"format", sdk::to_string(t.format)},
                   {"bytes_before", t.bytes_before},
                   {"bytes_after", t.bytes_after},
                   {"worst_error", t.worst_error},
                   {"mean_error", t.mean_error}});
  }
  return out.dump();
}

}  // namespace

tsr_code tsr_pack(const char* directory, const tsr_pack_options* options, tsr_text** report, tsr_error* err) {
  return guarded(err, [&] {
    if (report != nullptr) *report = nullptr;
    need(directory, "directory");
    const tsr_pack_options in = copy_in(options, "options");
    const std::vector<const Collection*> collections = packed_collections(in);
    Session& session = collections[0]->session();
    std::set<Session*> sessions;
    std::list<Collective> used;
    for (const Collection* c : collections) {
      if (sessions.insert(&c->session()).second) used.emplace_back(c->session());
    }
    InferenceModel model = model_of(session.opened->runtime, collections, in);
    PackSettings settings = pack_settings(in.settings, model.tables);
    model.description.bounds_check = settings.bounds_check;
    std::string text = "[]";
    if (session.group->rank() == 0) {
      try {
        text = report_of(pack_model(model, directory, settings.pack));
      } catch (const Error& e) {
        session.group->abort(e.what());  // the other ranks wait for it
        throw;
      }
    }
    session.group->barrier("pack");
    if (report != nullptr) *report = new tsr_text{std::move(text)};
  });
}
