// Implements infer.h with a Predictor. No exception leaves, and predict allocates nothing.
#include "tessera/infer.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "c/call.h"
#include "c/handles.h"
#include "checkpoint/directory.h"
#include "inference/pool.h"
#include "tessera/data.h"
#include "tessera/predictor.h"

using namespace tessera::c;
using tessera::Code;
using tessera::fail;

struct tsr_model {
  using Features = std::vector<tessera::PredictInput::Feature>;
  // Copies of a call's tensors that had other types or strides.
  struct Gathered {
    std::vector<float> dense;
    std::vector<std::vector<float>> outputs;
    std::vector<std::span<float>> wanted;
    struct Feature {
      std::vector<int64_t> values;
      std::vector<int32_t> lengths;
      std::vector<float> weights;
    };
    std::vector<Feature> features;
  };

  tsr_model(const char* directory, const tsr_model_options& options)
      : shared(runtime_of(options)),
        predictor(open(shared->runtime, directory,
                       {options.kernel == nullptr ? "auto" : options.kernel,
                        options.dense_precision == nullptr ? "" : options.dense_precision})),
        features([this] { return std::make_unique<Features>(predictor->model().features.size()); }),
        gathered([] { return std::make_unique<Gathered>(); }) {}

  static std::shared_ptr<const OpenRuntime> runtime_of(const tsr_model_options& options) {
    if (options.runtime != nullptr) {
      if (options.threads != 0 || options.plugin_path != nullptr || options.log != nullptr)
        fail(Code::kInvalidArgument, "threads, plugin_path and log have no effect with runtime, which has its own");
      options.runtime->opened().check_process();
      return options.runtime->shared;
    }
    tessera::RuntimeOptions out;
    if (options.plugin_path != nullptr) out.plugin_path.emplace_back(options.plugin_path);
    out.threads = std::max(1, options.threads);
    if (options.log != nullptr) out.log = log_of(options.log, options.log_user);
    return std::make_shared<const OpenRuntime>(std::move(out));
  }
  const OpenRuntime& opened() const { return *shared; }

  // Opens a packed model, or a trainer's checkpoint directly.
  static std::unique_ptr<tessera::Predictor> open(const tessera::Runtime& runtime, const std::string& directory,
                                                  const tessera::PredictorOptions& options) {
    std::error_code ignored;
    const bool packed = std::filesystem::exists(directory + "/model.json", ignored);
    if (packed || !tessera::checkpoint::has_checkpoint(directory))
      return tessera::open_predictor(runtime, directory, options);
    return tessera::make_predictor(runtime, tessera::open_float_model(directory).model, options);
  }

  const std::shared_ptr<const OpenRuntime> shared;
  const std::unique_ptr<tessera::Predictor> predictor;
  tessera::inference::Pool<Features> features;
  tessera::inference::Pool<Gathered> gathered;
};

namespace {

// The name of a caller's tensor in errors.
struct Name {
  const char* what;
  const std::string* feature = nullptr;

  std::string text() const {
    return feature == nullptr ? what : tessera::str_cat(what, " of feature \"", *feature, "\"");
  }
};
template <class... Parts>
[[noreturn]] void refuse(const Name& name, const Parts&... parts) {
  fail(Code::kInvalidArgument, name.text(), parts...);
}

// Calls with(pointer of the tensor's own type).
template <class With>
void of_type(const DLTensor& t, const Name& name, const With& with) {
  const void* data = static_cast<const char*>(t.data) + t.byte_offset;
  const auto is = [&](int code, int bits) {
    return t.dtype.code == code && t.dtype.bits == bits && t.dtype.lanes == 1;
  };
  if (is(kDLInt, 64)) return with(static_cast<const int64_t*>(data));
  if (is(kDLInt, 32)) return with(static_cast<const int32_t*>(data));
  if (is(kDLFloat, 32)) return with(static_cast<const float*>(data));
  if (is(kDLFloat, 64)) return with(static_cast<const double*>(data));
  refuse(name, " has a type that is not supported: use int32, int64, float32 or float64");
}

template <class T, class From>
T as(From value, const Name& name) {
  if constexpr (std::is_same_v<T, int32_t> && std::is_same_v<From, int64_t>) {
    if (!std::in_range<int32_t>(value)) refuse(name, " holds ", value, ", which does not fit int32");
  }
  return static_cast<T>(value);
}

// Returns the elements of a tensor [rows] or [rows, cols] of any strides as T, without a copy if they are compact T.
template <class T>
std::span<const T> elements_of(const DLTensor* tensor, const Name& name, int64_t rows, int64_t cols,
                               std::vector<T>& copy) {
  need(tensor, name.what);
  const DLTensor& t = *tensor;
  if (t.device.device_type != kDLCPU)
    fail(Code::kUnimplemented, name.text(), " is on a device, but must be in host memory");
  const bool flat = t.ndim == 1 && cols == 1;
  if (!flat && t.ndim != 2) refuse(name, " has ", t.ndim, " dimensions");
  if (t.shape[0] != rows || (!flat && t.shape[1] != cols))
    refuse(name, " must be [", rows, cols == 1 && flat ? "" : tessera::str_cat(", ", cols), "]");
  const int64_t across = flat ? 1 : t.strides == nullptr ? 1 : t.strides[1];
  const int64_t down = t.strides == nullptr ? cols : t.strides[0];
  const size_t n = static_cast<size_t>(rows * cols);
  if (n > 0 && t.data == nullptr) refuse(name, " has no data");
  std::span<const T> out;
  of_type(t, name, [&](const auto* data) {
    using From = std::decay_t<decltype(*data)>;
    if (std::is_floating_point_v<From> != std::is_floating_point_v<T>)
      refuse(name, " must be of ", std::is_floating_point_v<T> ? "floats" : "whole numbers");
    if constexpr (std::is_same_v<From, T>) {
      if ((across == 1 || cols == 1) && (down == cols || rows <= 1)) {
        out = {data, n};
        return;
      }
    }
    copy.resize(n);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c)
        copy[static_cast<size_t>(r * cols + c)] = as<T>(data[r * down + c * across], name);
    }
    out = copy;
  });
  return out;
}

int64_t length_of(const DLTensor* tensor, const char* name) {
  need(tensor, name);
  if (tensor->ndim < 1 || tensor->shape[0] < 0) fail(Code::kInvalidArgument, name, " has no first dimension");
  return tensor->shape[0];
}

// Checks a caller's output tensor: float32 [batch, width], or [batch] if width is 1, of any strides.
void check_output(const DLTensor& out, const tessera::ModelOutput& output, int64_t batch) {
  const bool fits = (out.ndim == 2 && out.shape[1] == output.width) || (out.ndim == 1 && output.width == 1);
  if (!fits || out.shape[0] != batch || out.dtype.code != kDLFloat || out.dtype.bits != 32 || out.dtype.lanes != 1 ||
      out.device.device_type != kDLCPU) {
    fail(Code::kInvalidArgument, "output \"", output.name, "\" must be float32 [", batch, ", ", output.width, "]",
         output.width == 1 ? tessera::str_cat(" or [", batch, "]") : "", " in host memory");
  }
  if (batch > 0 && out.data == nullptr) fail(Code::kInvalidArgument, "output \"", output.name, "\" has no data");
}

float* data_of(const DLTensor& out) { return reinterpret_cast<float*>(static_cast<char*>(out.data) + out.byte_offset); }

bool is_compact(const DLTensor& out, int64_t width) {
  if (out.strides == nullptr) return true;
  return (out.strides[0] == width || out.shape[0] <= 1) && (out.ndim == 1 || width == 1 || out.strides[1] == 1);
}

void scatter(std::span<const float> values, const DLTensor& out, int64_t width) {
  const int64_t across = out.ndim == 1 ? 1 : out.strides[1];
  for (int64_t b = 0; b < out.shape[0]; ++b) {
    for (int64_t w = 0; w < width; ++w)
      data_of(out)[b * out.strides[0] + w * across] = values[static_cast<size_t>(b * width + w)];
  }
}

// Returns a caller's array of outputs.
std::span<const DLTensor* const> outputs_of(const tsr_model& model, const DLTensor* const* outputs, uint32_t count) {
  if (count > 0) need(outputs, "outputs");
  if (const size_t most = model.predictor->model().outputs.size(); count > most)
    fail(Code::kInvalidArgument, "there are ", count, " outputs, but the model has ", most);
  return {outputs, count};
}

void predict(tsr_model& model, const tsr_model_input& in, std::span<const DLTensor* const> outputs) {
  const tessera::ModelDescription& description = model.predictor->model();
  const size_t count = description.features.size();
  if (in.num_features != count)
    fail(Code::kInvalidArgument, "there are ", in.num_features, " features, but the model takes ", count);
  const auto first = std::find_if(outputs.begin(), outputs.end(), [](const DLTensor* out) { return out != nullptr; });
  if (first == outputs.end()) fail(Code::kInvalidArgument, "no output is wanted: outputs are all NULL");
  const int64_t batch = length_of(*first, "the output");
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (outputs[o] != nullptr) check_output(*outputs[o], description.outputs[o], batch);
  }
  if (count > 0) need(in.values, "input->values");
  if (count > 0) need(in.lengths, "input->lengths");
  const auto features = model.features.take();
  const auto gathered = model.gathered.take();
  gathered->features.resize(count);
  for (size_t f = 0; f < count; ++f) {
    auto& own = gathered->features[f];
    const int64_t ids = length_of(in.values[f], "values");
    const DLTensor* weights = in.weights == nullptr ? nullptr : in.weights[f];
    const std::string* of = &description.features[f].name;
    (*features)[f] = {
        elements_of(in.values[f], {"values", of}, ids, 1, own.values),
        elements_of(in.lengths[f], {"lengths", of}, batch, 1, own.lengths),
        weights == nullptr ? std::span<const float>() : elements_of(weights, {"weights", of}, ids, 1, own.weights)};
  }
  std::span<const float> dense;
  if (description.dense_inputs > 0)
    dense = elements_of(in.dense, {"dense"}, batch, description.dense_inputs, gathered->dense);
  gathered->outputs.resize(outputs.size());
  gathered->wanted.assign(outputs.size(), {});
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (outputs[o] == nullptr) continue;
    const int64_t width = description.outputs[o].width;
    const auto values = static_cast<size_t>(batch * width);
    const bool compact = is_compact(*outputs[o], width);
    if (!compact) gathered->outputs[o].resize(values);
    gathered->wanted[o] = {compact ? data_of(*outputs[o]) : gathered->outputs[o].data(), values};
  }
  model.predictor->predict_outputs({batch, dense, *features}, gathered->wanted);
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (outputs[o] == nullptr || is_compact(*outputs[o], description.outputs[o].width)) continue;
    scatter(gathered->wanted[o], *outputs[o], description.outputs[o].width);
  }
}

// Reads the model's columns with a reader plugin.
tessera::Dataset rows_of(const tessera::Runtime& runtime, const tessera::ModelDescription& model, const char* reader,
                         const char* path) {
  if (model.encoding.empty()) {
    fail(Code::kFailedPrecondition, "model \"", model.name,
         "\" was not trained on columns: it takes ids that are row numbers, and dense values, not rows of data");
  }
  tessera::Config config;
  config.data.reader = reader;
  config.data.path = path;
  config.data.test_fraction = 0;
  tessera::Dataset data = tessera::read_unlabelled(runtime, config, tessera::looked_up_columns(model));
  if (model.bounds_check == tessera::BoundsCheckMode::kFatal) data.require_known_ids();
  return data;
}

// Returns sentences about ids that no vocabulary has, one per line.
std::string predict_rows(tessera::Predictor& predictor, const tessera::Dataset& data,
                         std::span<const DLTensor* const> outputs) {
  constexpr int64_t kBatch = 4096;
  const tessera::ModelDescription& model = predictor.model();
  std::vector<size_t> widths(model.outputs.size());
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (outputs[o] == nullptr) continue;
    check_output(*outputs[o], model.outputs[o], data.train_rows());
    widths[o] = static_cast<size_t>(model.outputs[o].width);
    if (!is_compact(*outputs[o], model.outputs[o].width))
      fail(Code::kInvalidArgument, "output \"", model.outputs[o].name, "\" must be compact");
  }
  int64_t done = 0;
  tessera::UnknownIdCounter unknown(model.encoding);
  tessera::predict_all(
      predictor, data, data.train, kBatch, widths, [&](const auto& values, const tessera::Batch& batch) {
        for (size_t o = 0; o < values.size(); ++o) {
          if (widths[o] == 0) continue;
          std::copy(values[o].begin(), values[o].end(), data_of(*outputs[o]) + done * static_cast<int64_t>(widths[o]));
        }
        unknown.add(batch.sparse);
        done += batch.labels.numel();
      });
  std::string sentences;
  for (const tessera::UnknownIds& ids : unknown.counts()) {
    if (ids.are_many()) sentences += ids.warning() + '\n';
  }
  return sentences;
}

}  // namespace

tsr_code tsr_model_open(const char* directory, const tsr_model_options* options, tsr_model** model, tsr_error* err) {
  return made(model, "model", err, [&] {
    need(directory, "directory");
    return new tsr_model(directory, copy_if_given(options, "options"));
  });
}

void tsr_model_close(tsr_model* model) { close(model); }

tsr_code tsr_model_describe(const tsr_model* model, tsr_model_info* info, tsr_error* err) {
  return guarded(err, [&] {
    need(model, "model");
    const tessera::ModelDescription& m = model->predictor->model();
    copy_out<tsr_model_info>(
        {0, m.is_weighted ? 1 : 0, m.name.c_str(), m.version.c_str(), m.type.c_str(), m.dense_inputs,
         static_cast<uint32_t>(m.features.size()), static_cast<uint32_t>(m.tables.size()),
         static_cast<uint32_t>(m.outputs.size()), 0, m.encoding.c_str()},
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

tsr_code tsr_model_get_output(const tsr_model* model, uint32_t i, tsr_model_output* output, tsr_error* err) {
  return guarded(err, [&] {
    need(model, "model");
    const tessera::ModelOutput& o = at(model->predictor->model().outputs, i, "output", "model");
    copy_out<tsr_model_output>({0, o.probability ? 1 : 0, o.name.c_str(), o.width}, output, "output");
  });
}

tsr_code tsr_model_predict(tsr_model* model, const tsr_model_input* input, const DLTensor* const* outputs,
                           uint32_t num_outputs, tsr_error* err) {
  return guarded(err, [&] {
    need(model, "model");
    predict(*model, copy_in(input, "input"), outputs_of(*model, outputs, num_outputs));
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

tsr_code tsr_model_predict_rows(const tsr_runtime* runtime, tsr_model* model, const char* reader, const char* path,
                                const DLTensor* const* outputs, uint32_t num_outputs, tsr_text** warnings,
                                tsr_error* err) {
  return guarded(err, [&] {
    if (warnings != nullptr) *warnings = nullptr;
    need(runtime, "runtime");
    need(model, "model");
    need(reader, "reader");
    need(path, "path");
    const auto wanted = outputs_of(*model, outputs, num_outputs);
    const tessera::Dataset rows = rows_of(runtime->opened().runtime, model->predictor->model(), reader, path);
    std::string sentences = predict_rows(*model->predictor, rows, wanted);
    if (warnings != nullptr) *warnings = new tsr_text{std::move(sentences)};
  });
}
