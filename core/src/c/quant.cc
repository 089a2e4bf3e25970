// Quantized collections of tessera.h: copies of tables that only infer, whole on every rank.
#include <atomic>

#include "c/call.h"
#include "c/handles.h"
#include "config/json.h"
#include "tessera/quant_modules.h"

using namespace tessera;
using namespace tessera::c;

struct tsr_quant_collection {
  const OpenRuntime& opened() const { return *shared; }

  const std::shared_ptr<const OpenRuntime> shared;
  const std::vector<std::string> features;
  const std::unique_ptr<QuantEmbeddingBagCollection> tables;
  std::atomic<bool> used{false};
};

namespace {

struct QuantSettings {
  QuantizeOptions rows;
  BoundsCheckMode bounds_check = BoundsCheckMode::kFatal;
};

QuantSettings parse_quant_settings(const Collection& c, const char* text) {
  QuantSettings out;
  if (text == nullptr) return out;
  const config::JsonSource source{"the options of quantize"};
  const auto value = config::parse_json(text, source);
  const config::JsonObject root(value, source);
  root.only({"format", "formats", "bounds_check"});
  out.rows.format = row_format_from(root.get<std::string>("format", "int8"));
  out.bounds_check = bounds_check_from(root.get<std::string>("bounds_check", "fatal"));
  if (!root.has("formats")) return out;
  std::vector<std::string> names;
  for (const EmbeddingBagConfig& table : c.any().tables()) names.push_back(table.name);
  const config::JsonObject formats = root.object("formats").only(names);
  for (const std::string& name : names) {
    if (formats.has(name.c_str())) out.rows.formats[name] = row_format_from(formats.get<std::string>(name.c_str()));
  }
  return out;
}

// One table after the other: no more than one is there as floats.
std::vector<QuantizedTable> quantized_tables(const Collection& c, const QuantizeOptions& options) {
  std::vector<QuantizedTable> out;
  for (const EmbeddingBagConfig& table : c.any().tables()) {
    const auto own = options.formats.find(table.name);
    const RowFormat format = own == options.formats.end() ? options.format : own->second;
    const Tensor rows = Tensor::empty({table.num_embeddings, table.embedding_dim}, DType::kFloat32);
    gather_rows(c, table.name.c_str(), 0, rows);
    QuantizedTable made{table, quantize_rows(rows, format, table.name)};
    made.config.row_format = format;
    made.config.optimizer = {};
    out.push_back(std::move(made));
  }
  return out;
}

}  // namespace

tsr_code tsr_collection_quantize(tsr_collection* collection, const char* options, tsr_quant_collection** quantized,
                                 tsr_error* err) {
  return made(quantized, "quantized", err, [&] {
    need(collection, "collection");
    const Collection& c = *collection->collection;
    const Use use(c.session());
    if (!c.bags()) fail(Code::kUnimplemented, "collections of bags are quantized here, and this one has sequences");
    const QuantSettings settings = parse_quant_settings(c, options);
    QuantCollectionOptions how{.tables = quantized_tables(c, settings.rows), .is_weighted = c.weighted};
    how.bounds_check = settings.bounds_check;
    const std::shared_ptr<const OpenRuntime>& opened = c.session().opened;
    return new tsr_quant_collection{opened, c.features,
                                    std::make_unique<QuantEmbeddingBagCollection>(opened->runtime, std::move(how))};
  });
}

void tsr_quant_collection_close(tsr_quant_collection* quantized) { close(quantized); }

tsr_code tsr_quant_collection_bytes(const tsr_quant_collection* quantized, int64_t* bytes, tsr_error* err) {
  return guarded(err, [&] {
    need(quantized, "quantized");
    need(bytes, "bytes");
    *bytes = 0;
    for (const QuantizedTable& table : quantized->tables->tables()) *bytes += static_cast<int64_t>(table.rows.bytes());
  });
}

tsr_code tsr_quant_collection_forward(tsr_quant_collection* quantized, const tsr_batch* batch, const DLTensor* output,
                                      tsr_error* err) {
  return guarded(err, [&] {
    need(quantized, "quantized");
    quantized->opened().check_process();
    const tsr_batch in = copy_in(batch, "batch");
    const Tensor to = borrowed(output, "output", DType::kFloat32);
    const KeyedJaggedTensor features = batch_of(quantized->features, in);
    if (quantized->used.exchange(true, std::memory_order_acquire))
      fail(Code::kFailedPrecondition,
           "another thread is in this quantized collection: one thread at a time may use it");
    struct Leave {
      std::atomic<bool>& used;
      ~Leave() { used.store(false, std::memory_order_release); }
    } const leave{quantized->used};
    quantized->tables->forward_into(features, to);
  });
}
