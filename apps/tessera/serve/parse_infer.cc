#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "serve/infer_json.h"
#include "serve/protocol.h"
#include "tessera/error.h"

namespace tessera::serve {
namespace {

static_assert(std::endian::native == std::endian::little, "binary tensors are little-endian");

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  fail(Code::kInvalidArgument, parts...);
}

// What a tensor of the model is called: a feature's name and which of its arrays, or "dense".
struct Name {
  std::string_view stem, suffix;
  bool is(std::string_view name) const {
    return name.size() == stem.size() + suffix.size() && name.substr(0, stem.size()) == stem &&
           name.substr(stem.size()) == suffix;
  }
  std::string text() const { return cat(stem, suffix); }
};

// The tensors of a request by name, each handed out once, wherever its numbers are.
class Tensors {
 public:
  Tensors(const InferJson& json, std::string_view bytes) : json_(json), used_(json.inputs.size(), false) {
    places_.reserve(json.inputs.size());
    size_t at = 0;
    for (const JsonTensor& t : json.inputs) {
      places_.push_back(bytes.substr(at, 0));
      if (!t.binary_size) continue;
      if (t.has_data) refuse("tensor ", shown(t.name), " has both \"data\" and \"binary_data_size\"");
      if (*t.binary_size < 0 || static_cast<uint64_t>(*t.binary_size) > bytes.size() - at) {
        refuse("tensor ", shown(t.name), " has binary_data_size ", *t.binary_size, ", but ", bytes.size() - at,
               " bytes of the request are left");
      }
      places_.back() = bytes.substr(at, static_cast<size_t>(*t.binary_size));
      at += places_.back().size();
    }
    if (at != bytes.size()) {
      refuse(bytes.size() - at, " bytes follow the last binary tensor: binary_data_size and the header ",
             "Inference-Header-Content-Length have to add up to the request");
    }
  }

  // Its index, if it is there. Clients mostly keep the model's order, so the search goes on from the last find.
  std::optional<size_t> find(const Name& name) {
    for (size_t i = 0; i < used_.size(); ++i) {
      const size_t at = (next_ + i) % used_.size();
      if (used_[at] || !name.is(json_.inputs[at].name)) continue;
      used_[at] = true;
      next_ = at + 1;
      return at;
    }
    return std::nullopt;
  }
  size_t require(const Name& name) {
    const std::optional<size_t> at = find(name);
    if (!at) refuse("input ", name.text(), " is missing");
    return *at;
  }
  void refuse_unused(const ModelDescription& model) const {
    for (size_t i = 0; i < used_.size(); ++i) {
      if (used_[i]) continue;
      refuse("input \"", shown(json_.inputs[i].name), "\" is there twice or unknown; model ", model.name, " takes ",
             model.dense_inputs > 0 ? "dense and " : "", "NAME.values", model.is_weighted ? ", " : " and ",
             "NAME.lengths", model.is_weighted ? " and NAME.weights" : "", " of its ", model.features.size(),
             " features");
    }
  }

  const JsonTensor& operator[](size_t at) const { return json_.inputs[at]; }

  // The tensor's elements appended to `out`, which are of type `datatype`. `dims` is what its shape has to have.
  template <class T>
  void append(size_t at, const char* datatype, size_t dims, std::vector<T>& out) const {
    const JsonTensor& t = json_.inputs[at];
    if (t.datatype != datatype) {
      refuse("input ", t.name, " has datatype \"", shown(t.datatype), "\"; it has to be ", datatype);
    }
    if (t.shape.size() != dims) {
      refuse("input ", t.name, " has ", t.shape.size(), " dimensions; it has to have ", dims);
    }
    const size_t count = elements(t);
    if (t.binary_size) {
      const std::string_view bytes = places_[at];
      if (count > bytes.size() / sizeof(T) || count * sizeof(T) != bytes.size()) {
        refuse("input ", t.name, " has ", bytes.size(), " bytes of data; its shape needs ", count, " times ",
               sizeof(T));
      }
      const size_t before = out.size();
      out.resize(before + count);
      if (count > 0) std::memcpy(out.data() + before, bytes.data(), bytes.size());
      return;
    }
    if (!t.has_data) refuse("input ", t.name, " has neither \"data\" nor \"binary_data_size\"");
    if (count != t.count) refuse("input ", t.name, " has ", t.count, " numbers in \"data\"; its shape needs ", count);
    for (size_t i = 0; i < count; ++i) out.push_back(number<T>(t, i));
  }

 private:
  static size_t elements(const JsonTensor& t) {
    size_t count = 1;
    for (int64_t extent : t.shape) {
      if (extent < 0) refuse("input ", t.name, " has a dimension of ", extent);
      if (__builtin_mul_overflow(count, static_cast<size_t>(extent), &count)) {
        refuse("input ", t.name, " has a shape of too many elements");
      }
    }
    return count;
  }
  template <class T>
  T number(const JsonTensor& t, size_t i) const {
    if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>(json_.real(t, i));
    } else {
      const int64_t value = json_.numbers[t.first + i];
      if (t.real || value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max()) {
        refuse("input ", t.name, " holds a number that is no integer of ", 8 * sizeof(T), " bits");
      }
      return static_cast<T>(value);
    }
  }

  const InferJson& json_;
  std::vector<std::string_view> places_;  // of binary tensors
  std::vector<bool> used_;
  size_t next_ = 0;
};

void check_finite(std::string_view name, const float* data, size_t count, size_t per_sample) {
  for (size_t i = 0; i < count; ++i) {
    if (std::isfinite(data[i])) continue;
    refuse("input ", name, per_sample > 0 ? " of sample " : ", value ", per_sample > 0 ? i / per_sample : i,
           " is not a finite number");
  }
}

void check_lengths(std::string_view feature, std::span<const int32_t> lengths, size_t values) {
  int64_t sum = 0;
  for (size_t b = 0; b < lengths.size(); ++b) {
    if (lengths[b] < 0) refuse("input ", feature, ".lengths of sample ", b, " is ", lengths[b], "; at least 0");
    sum += lengths[b];
  }
  if (sum != static_cast<int64_t>(values)) {
    refuse("input ", feature, ".lengths add up to ", sum, ", but ", feature, ".values has ", values, " ids");
  }
}

void check_batch(int64_t batch, int64_t most) {
  if (batch < 1) refuse("a request needs at least one sample");
  if (batch > most) refuse("a request of ", batch, " samples is too large: at most ", most);
}

void read_dense(const ModelDescription& model, const InferLimits& limits, Tensors& tensors, InferRequest& out) {
  const size_t at = tensors.require({"dense", ""});
  tensors.append(at, "FP32", 2, out.dense);
  const std::vector<int64_t>& shape = tensors[at].shape;
  if (shape[1] != model.dense_inputs) {
    refuse("input dense has ", shape[1], " values for each sample; model ", model.name, " takes ", model.dense_inputs);
  }
  out.batch = shape[0];
  check_batch(out.batch, limits.max_samples);
  check_finite("dense", out.dense.data(), out.dense.size(), static_cast<size_t>(model.dense_inputs));
}

// Where a feature's ids and weights begin in the flat arrays.
struct Begin {
  size_t values = 0, weights = 0;
  bool weighted = false;
};

void read_feature(const ModelDescription& model, size_t index, const InferLimits& limits, Tensors& tensors,
                  InferRequest& out, Begin& begin) {
  const std::string_view name = model.features[index].name;
  begin = {out.values.size(), out.weights.size(), false};
  tensors.append(tensors.require({name, ".values"}), "INT64", 1, out.values);
  const size_t lengths_before = out.lengths.size();
  tensors.append(tensors.require({name, ".lengths"}), "INT32", 1, out.lengths);
  const size_t samples = out.lengths.size() - lengths_before, ids = out.values.size() - begin.values;
  if (out.batch == 0) {  // the first tensor that tells
    out.batch = static_cast<int64_t>(samples);
    check_batch(out.batch, limits.max_samples);
  }
  if (static_cast<int64_t>(samples) != out.batch) {
    refuse("input ", name, ".lengths has ", samples, " samples; the request has ", out.batch);
  }
  check_lengths(name, {out.lengths.data() + lengths_before, samples}, ids);
  if (!model.is_weighted) return;
  const std::optional<size_t> at = tensors.find({name, ".weights"});
  if (!at) return;
  tensors.append(*at, "FP32", 1, out.weights);
  if (out.weights.size() - begin.weights != ids) {
    refuse("input ", name, ".weights has ", out.weights.size() - begin.weights, " weights for ", ids, " ids");
  }
  check_finite(cat(name, ".weights"), out.weights.data() + begin.weights, ids, 0);
  begin.weighted = true;
}

void check_outputs(const InferJson& json, InferRequest& out) {
  out.binary_output = json.binary_output.value_or(false);
  for (const InferJson::Output& wanted : json.outputs) {
    if (wanted.name != "score") refuse("output \"", shown(wanted.name), "\" is unknown; there is \"score\"");
    if (wanted.binary) out.binary_output = *wanted.binary;
  }
}

}  // namespace

InferRequest parse_infer(const ModelDescription& model, std::string_view body, std::optional<size_t> json_bytes,
                         const InferLimits& limits) {
  if (json_bytes && *json_bytes > body.size()) {
    refuse("Inference-Header-Content-Length is ", *json_bytes, ", but the request has ", body.size(), " bytes");
  }
  const size_t split = json_bytes.value_or(body.size());
  InferJson json = read_infer_json(body.substr(0, split), 3 * model.features.size() + 1);
  Tensors tensors(json, body.substr(split));
  InferRequest out;
  if (model.dense_inputs > 0) read_dense(model, limits, tensors, out);
  std::vector<Begin> begins(model.features.size());
  for (size_t f = 0; f < begins.size(); ++f) read_feature(model, f, limits, tensors, out, begins[f]);
  tensors.refuse_unused(model);
  if (out.batch == 0) refuse("model ", model.name, " has no inputs");
  check_outputs(json, out);
  const auto batch = static_cast<size_t>(out.batch);
  for (size_t f = 0; f < begins.size(); ++f) {
    const size_t end = f + 1 < begins.size() ? begins[f + 1].values : out.values.size();
    const size_t ids = end - begins[f].values;
    out.features.push_back({{out.values.data() + begins[f].values, ids},
                            {out.lengths.data() + f * batch, batch},
                            {out.weights.data() + begins[f].weights, begins[f].weighted ? ids : 0}});
  }
  out.id = std::move(json.id);
  if (json.timeout_us && *json.timeout_us > 0) {
    out.timeout = std::chrono::microseconds(std::min<int64_t>(*json.timeout_us, int64_t{3600} * 1000 * 1000));
  }
  return out;
}

}  // namespace tessera::serve
