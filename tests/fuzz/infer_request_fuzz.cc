// The server's request parser on arbitrary bytes: it refuses with one sentence, or returns consistent arrays. The first
// byte selects the model, and whether there are binary tensors, rows (also with histories), or events to keep. The next
// two say how much of the rest is JSON.
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/columns.h"
#include "fake_predictor.h"
#include "fuzz.h"
#include "serve/histories.h"
#include "serve/merged_batch.h"
#include "serve/protocol.h"
#include "serve/score_rows.h"
#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/error.h"

namespace tessera::fuzz {
namespace {

using namespace tessera::serve;

constexpr int64_t kMostSamples = 64;

void check(const ModelDescription& model, const InferRequest& request) {
  require(request.batch >= 1 && request.batch <= kMostSamples, "a request has samples, and not too many");
  require(request.dense.size() == static_cast<size_t>(request.batch * model.dense_inputs), "all dense values");
  require(request.features.size() == model.features.size(), "all features");
  for (const PredictInput::Feature& feature : request.features) {
    require(feature.lengths.size() == static_cast<size_t>(request.batch), "a length for each sample");
    require(feature.weights.empty() || feature.weights.size() == feature.values.size(),
            "a weight for each id, or none");
    int64_t sum = 0;
    for (int32_t length : feature.lengths) {
      require(length >= 0, "lengths count");
      sum += length;
    }
    require(sum == static_cast<int64_t>(feature.values.size()), "lengths are those of the ids");
  }
  // Two requests merged are still a valid input.
  const InferRequest* both[] = {&request, &request};
  MergedBatch merged;
  require(merged.merge(both).batch == 2 * request.batch, "two requests are one input");
}

// Columns of which the model's feature "item" is the history of "film".
std::shared_ptr<const ColumnEncoding> columns_of(const std::string& reader) {
  Config config = parse_config(R"(
column = [{name = "item", column = "history.film", ids = "row", rows = 100}, {name = "click", as = "label"}]
)",
                               "job.toml");
  config.data.reader = reader;
  return std::make_shared<ColumnEncoding>(data::Columns(config).json());
}

struct Kept {
  Kept() : maker(HistoryMaker::of(runtime, kReader)), log(Level::kError, -1) {
    require(maker != nullptr, "the reader makes histories");
    kept.emplace(runtime, HistoriesOptions{HistoriesOptions::kNoEvents, "", 1}, FakePredictor().model(),
                 columns_of(kReader), log);
  }
  static constexpr const char* kReader = R"(histories?user="user"&time="at"&columns="film,at"&length=3(csv))";
  const Runtime runtime{{.plugin_path = {TESSERA_PLUGINS_BUILT}, .default_path = false}};
  std::unique_ptr<HistoryMaker> maker;
  Log log;
  std::optional<KeptHistories> kept;
};

}  // namespace

void fuzz_infer_request(Input input) {
  if (input.size() < 3) return;
  static Kept histories;
  FakeOptions options{.dense_inputs = (input[0] & 2) != 0 ? 0 : 2, .is_weighted = (input[0] & 1) != 0};
  if ((input[0] & 8) != 0) options.outputs = {{"click"}, {"kinds", 3, false}};
  const FakePredictor model(options);
  std::optional<size_t> json_bytes;
  if ((input[0] & 4) != 0) json_bytes = input[1] | static_cast<size_t>(input[2]) << 8;
  const std::string_view body = text_of(input.subspan(3));
  try {
    if ((input[0] & 64) != 0) {
      require(histories.kept->add_json(body) > 0, "events were added");
      return;
    }
    const bool rows = (input[0] & 16) != 0;
    InferLimits limits{kMostSamples};
    if ((input[0] & 32) != 0) {
      limits.maker = histories.maker.get();
      limits.kept = (input[0] & 128) != 0 ? &*histories.kept : nullptr;
    }
    const InferRequest request =
        rows ? parse_scores(model.model(), body, limits) : parse_infer(model.model(), body, json_bytes, {kMostSamples});
    check(model.model(), request);
    for (const WantedOutput& wanted : request.outputs)
      require(wanted.output < options.outputs.size(), "outputs are the model's");
    std::vector<std::vector<float>> values;
    for (const ModelOutput& output : options.outputs)
      values.emplace_back(static_cast<size_t>(request.batch * output.width), 0.5f);
    const std::vector<std::span<const float>> answer(values.begin(), values.end());
    if (rows) {
      require(!render_scores(model.model(), "fake", nullptr, request, answer).empty(), "rows have an answer");
      return;
    }
    render_infer(model.model(), "fake", request, answer);
  } catch (const Error& e) {
    require(e.code() == Code::kInvalidArgument && *e.what() != '\0', "a refusal is the client's fault");
    render_error(e.what());
  }
}

}  // namespace tessera::fuzz
