// infer.h over a Predictor: no exception leaves, no allocation in predict.
#include "tessera/infer.h"

#include <algorithm>
#include <vector>

#include "c/call.h"
#include "inference/pool.h"
#include "tessera/predictor.h"

using namespace tessera::c;
using tessera::Code;
using tessera::fail;

struct tsr_model {
  using Features = std::vector<tessera::PredictInput::Feature>;

  tsr_model(const char* directory, const tsr_model_options& options)
      : runtime(runtime_options(options)),
        predictor(tessera::open_predictor(runtime, directory, {options.kernel == nullptr ? "auto" : options.kernel})),
        features([this] { return std::make_unique<Features>(predictor->model().features.size()); }) {}

  static tessera::RuntimeOptions runtime_options(const tsr_model_options& options) {
    tessera::RuntimeOptions out;
    if (options.plugin_path != nullptr) out.plugin_path.emplace_back(options.plugin_path);
    out.threads = std::max(1, options.threads);
    return out;
  }

  const tessera::Runtime runtime;
  const std::unique_ptr<tessera::Predictor> predictor;
  tessera::inference::Pool<Features> features;
};

namespace {

template <class T>
std::span<const T> span_of(const T* values, int64_t count, const char* name) {
  if (count < 0) fail(Code::kInvalidArgument, "the number of ", name, " is ", count);
  if (count > 0) need(values, name);
  return {values, static_cast<size_t>(count)};
}

}  // namespace

tsr_code tsr_model_open(const char* directory, const tsr_model_options* options, tsr_model** model, tsr_error* err) {
  return made(model, "model", err, [&] {
    need(directory, "directory");
    return new tsr_model(directory, options == nullptr ? tsr_model_options{} : copy_in(options, "options"));
  });
}

void tsr_model_close(tsr_model* model) { delete model; }

tsr_code tsr_model_describe(const tsr_model* model, tsr_model_info* info, tsr_error* err) {
  return guarded(err, [&] {
    need(model, "model");
    const tessera::ModelDescription& m = model->predictor->model();
    copy_out<tsr_model_info>(
        {0, m.is_weighted ? 1 : 0, m.name.c_str(), m.version.c_str(), m.type.c_str(), m.dense_inputs,
         static_cast<uint32_t>(m.features.size()), static_cast<uint32_t>(m.tables.size())},
        info, "info");
  });
}

tsr_code tsr_model_get_feature(const tsr_model* model, uint32_t i, tsr_model_feature* feature, tsr_error* err) {
  return guarded(err, [&] {
    need(model, "model");
    const tessera::ModelFeature& f = at(model->predictor->model().features, i, "feature", "model");
    copy_out<tsr_model_feature>({0, 0, f.name.c_str(), f.ids}, feature, "feature");
  });
}

tsr_code tsr_model_get_table(const tsr_model* model, uint32_t i, tsr_model_table* table, tsr_error* err) {
  return guarded(err, [&] {
    need(model, "model");
    const tessera::ModelTable& t = at(model->predictor->model().tables, i, "table", "model");
    copy_out<tsr_model_table>({0, 0, t.name.c_str(), tessera::sdk::to_string(t.format), t.rows, t.dim, t.bytes}, table,
                              "table");
  });
}

tsr_code tsr_model_predict(tsr_model* model, const tsr_model_input* input, float* scores, tsr_error* err) {
  return guarded(err, [&] {
    need(model, "model");
    const tsr_model_input in = copy_in(input, "input");
    const tessera::ModelDescription& description = model->predictor->model();
    if (in.num_features != description.features.size()) {
      fail(Code::kInvalidArgument, "there are ", in.num_features, " features, and the model takes ",
           description.features.size());
    }
    if (in.batch < 0 || in.batch > INT32_MAX)
      fail(Code::kInvalidArgument, "a batch has 0 to ", INT32_MAX, " samples, not ", in.batch);
    if (in.num_features > 0) need(in.features, "input->features");
    const auto features = model->features.take();
    for (uint32_t f = 0; f < in.num_features; ++f) {
      const tsr_model_ids& ids = in.features[f];
      (*features)[f] = {span_of(ids.values, ids.num_values, "values"),
                        span_of(ids.lengths, in.batch, "lengths"),
                        {ids.weights, ids.weights == nullptr ? 0 : static_cast<size_t>(ids.num_values)}};
    }
    model->predictor->predict(
        {in.batch, span_of(in.dense, in.batch * description.dense_inputs, "dense values"), *features},
        {span_of(scores, in.batch, "scores").empty() ? nullptr : scores, static_cast<size_t>(in.batch)});
  });
}

tsr_code tsr_model_get_stats(const tsr_model* model, tsr_model_stats* stats, tsr_error* err) {
  return guarded(err, [&] {
    need(model, "model");
    const tessera::PredictorStats s = model->predictor->stats();
    uint64_t bad = 0;
    for (const uint64_t n : s.bad_ids) bad += n;
    copy_out<tsr_model_stats>({0, 0, s.predictions, s.samples, bad}, stats, "stats");
  });
}
