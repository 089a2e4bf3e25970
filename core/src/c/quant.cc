// Quantized collections in tessera.h: copies of tables for inference, complete on every rank.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "c/call.h"
#include "c/handles.h"
#include "config/json.h"
#include "tessera/quantization.h"

using namespace tessera;
using namespace tessera::c;

struct tsr_quant_collection {
  const OpenRuntime& opened() const { return *shared; }

  const std::shared_ptr<const OpenRuntime> shared;
  const std::vector<std::string> features;
  const std::unique_ptr<QuantEmbeddingBagCollection> bags;  // exactly one of these two is set
  const std::unique_ptr<QuantEmbeddingCollection> sequences;
  std::atomic<bool> used{false};

  const QuantEmbeddings& any() const {
    if (bags) return *bags;
    return *sequences;
  }
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

// Converts one table after the other, so that only one is in memory as floats.
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

// Marks it as used by this thread during a call.
class QuantUse {
 public:
  explicit QuantUse(tsr_quant_collection& quantized) : quantized_(quantized) {
    if (quantized.used.exchange(true, std::memory_order_acquire))
      fail(Code::kFailedPrecondition,
           "another thread is in this quantized collection: one thread at a time may use it");
  }
  ~QuantUse() { quantized_.used.store(false, std::memory_order_release); }
  QuantUse(const QuantUse&) = delete;
  QuantUse& operator=(const QuantUse&) = delete;

 private:
  tsr_quant_collection& quantized_;
};

}  // namespace

tsr_code tsr_collection_quantize(tsr_collection* collection, const char* options, tsr_quant_collection** quantized,
                                 tsr_error* err) {
  return made(quantized, "quantized", err, [&] {
    need(collection, "collection");
    const Collection& c = *collection->collection;
    const Collective use(c.session());
    const QuantSettings settings = parse_quant_settings(c, options);
    QuantCollectionOptions how{.tables = quantized_tables(c, settings.rows), .is_weighted = c.weighted};
    how.bounds_check = settings.bounds_check;
    const std::shared_ptr<const OpenRuntime>& opened = c.session().opened;
    const Runtime& runtime = opened->runtime;
    if (c.bags())
      return new tsr_quant_collection{opened, c.features,
                                      std::make_unique<QuantEmbeddingBagCollection>(runtime, std::move(how)), nullptr};
    return new tsr_quant_collection{opened, c.features, nullptr,
                                    std::make_unique<QuantEmbeddingCollection>(runtime, std::move(how))};
  });
}

void tsr_quant_collection_close(tsr_quant_collection* quantized) { close(quantized); }

tsr_code tsr_quant_collection_bytes(const tsr_quant_collection* quantized, int64_t* bytes, tsr_error* err) {
  return guarded(err, [&] {
    need(quantized, "quantized");
    need(bytes, "bytes");
    *bytes = 0;
    for (const QuantizedTable& table : quantized->any().tables()) *bytes += static_cast<int64_t>(table.rows.bytes());
  });
}

tsr_code tsr_quant_collection_forward(tsr_quant_collection* quantized, const tsr_batch* batch, const DLTensor* output,
                                      tsr_error* err) {
  return guarded(err, [&] {
    need(quantized, "quantized");
    quantized->opened().check_process();
    const tsr_batch in = copy_in(batch, "batch");
    if (!quantized->bags) fail(Code::kInvalidArgument, "this collection has sequences, which have separate outputs");
    const Tensor to = borrowed(output, "output", DType::kFloat32);
    const KeyedJaggedTensor features = batch_of(quantized->features, in);
    const QuantUse use(*quantized);
    quantized->bags->forward_into(features, to);
  });
}

tsr_code tsr_quant_collection_sequences(tsr_quant_collection* quantized, const tsr_batch* batch,
                                        const DLTensor* const* outputs, uint32_t num_outputs, tsr_error* err) {
  return guarded(err, [&] {
    need(quantized, "quantized");
    quantized->opened().check_process();
    const tsr_batch in = copy_in(batch, "batch");
    if (!quantized->sequences) fail(Code::kInvalidArgument, "this collection has bags, which have one output");
    const std::vector<std::string>& names = quantized->sequences->embedding_names();
    if (num_outputs != names.size())
      fail(Code::kInvalidArgument, "there are ", num_outputs, " outputs, but the collection has ", names.size());
    need(outputs, "outputs");
    const KeyedJaggedTensor features = batch_of(quantized->features, in);
    const QuantUse use(*quantized);
    for (auto& [name, rows] : quantized->sequences->forward(features)) {
      const auto at = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
      if (outputs[at] == nullptr) continue;
      const Tensor to = borrowed(outputs[at], name.c_str(), DType::kFloat32), from = rows.values();
      if (to.shape() != from.shape())
        fail(Code::kInvalidArgument, "output \"", name, "\" must be float32 [", from.size(0), ", ", from.size(1), "]");
      if (from.bytes() > 0) std::memcpy(to.raw(), from.raw(), from.bytes());
    }
  });
}
