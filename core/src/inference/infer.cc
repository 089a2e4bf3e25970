// infer.h over a Predictor: no exception leaves, no allocation in predict.
#include "tessera/infer.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "inference/pool.h"
#include "tessera/predictor.h"

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

tsr_code report(tsr_error* err, Code code, const char* text) {
  if (err == nullptr) return static_cast<tsr_code>(code);
  constexpr size_t kMessageAt = offsetof(tsr_error, message);
  if (err->struct_size >= kMessageAt) err->code = static_cast<tsr_code>(code);
  if (err->struct_size > kMessageAt) {
    const size_t room = std::min<size_t>(err->struct_size, sizeof(tsr_error)) - kMessageAt;
    std::strncpy(err->message, text, room - 1);
    err->message[room - 1] = '\0';
  }
  return static_cast<tsr_code>(code);
}

template <class Body>
tsr_code guarded(tsr_error* err, const Body& body) noexcept {
  try {
    body();
    return TSR_OK;
  } catch (const tessera::Error& e) {
    return report(err, e.code(), e.what());
  } catch (const std::bad_alloc&) {
    return report(err, Code::kResourceExhausted, "there is not enough memory");
  } catch (const std::exception& e) {
    return report(err, Code::kInternal, e.what());
  }
}

void need(const void* pointer, const char* name) {
  if (pointer == nullptr) fail(Code::kInvalidArgument, name, " is NULL");
}

// As far as both sides know the struct; struct_size stays the caller's.
template <class T>
void copy_out(const T& from, T* to, const char* name) {
  need(to, name);
  if (to->struct_size < sizeof(uint32_t)) fail(Code::kInvalidArgument, name, "->struct_size is not set");
  const uint32_t size = to->struct_size;
  std::memcpy(to, &from, std::min<size_t>(size, sizeof(T)));
  to->struct_size = size;
}

// A caller's struct, with zeros where it is shorter.
template <class T>
T copy_in(const T* from, const char* name) {
  T out{};
  need(from, name);
  if (from->struct_size < sizeof(uint32_t)) fail(Code::kInvalidArgument, name, "->struct_size is not set");
  std::memcpy(&out, from, std::min<size_t>(from->struct_size, sizeof(T)));
  return out;
}

template <class T>
const T& at(const std::vector<T>& all, uint32_t i, const char* what) {
  if (i >= all.size()) fail(Code::kOutOfRange, "there is no ", what, " ", i, ": the model has ", all.size());
  return all[i];
}

template <class T>
std::span<const T> span_of(const T* values, int64_t count, const char* name) {
  if (count < 0) fail(Code::kInvalidArgument, "the number of ", name, " is ", count);
  if (count > 0) need(values, name);
  return {values, static_cast<size_t>(count)};
}

}  // namespace

tsr_code tsr_model_open(const char* directory, const tsr_model_options* options, tsr_model** model, tsr_error* err) {
  return guarded(err, [&] {
    need(directory, "directory");
    need(model, "model");
    *model = nullptr;
    *model = new tsr_model(directory, options == nullptr ? tsr_model_options{} : copy_in(options, "options"));
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
    const tessera::ModelFeature& f = at(model->predictor->model().features, i, "feature");
    copy_out<tsr_model_feature>({0, 0, f.name.c_str(), f.ids}, feature, "feature");
  });
}

tsr_code tsr_model_get_table(const tsr_model* model, uint32_t i, tsr_model_table* table, tsr_error* err) {
  return guarded(err, [&] {
    need(model, "model");
    const tessera::ModelTable& t = at(model->predictor->model().tables, i, "table");
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
