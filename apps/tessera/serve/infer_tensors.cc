#include "serve/infer_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "tessera/sdk/values.h"

namespace tessera::serve {
namespace {

template <class T>
struct Type {
  using type = T;
};

// Calls take(Type<T>()) for a numeric datatype of the protocol. Returns false for other datatypes.
template <class F>
bool with_type(std::string_view datatype, const F& take) {
  if (datatype == "BOOL")
    take(Type<bool>());
  else if (datatype == "INT8")
    take(Type<int8_t>());
  else if (datatype == "INT16")
    take(Type<int16_t>());
  else if (datatype == "INT32")
    take(Type<int32_t>());
  else if (datatype == "INT64")
    take(Type<int64_t>());
  else if (datatype == "UINT8")
    take(Type<uint8_t>());
  else if (datatype == "UINT16")
    take(Type<uint16_t>());
  else if (datatype == "UINT32")
    take(Type<uint32_t>());
  else if (datatype == "UINT64")
    take(Type<uint64_t>());
  else if (datatype == "FP32")
    take(Type<float>());
  else if (datatype == "FP64")
    take(Type<double>());
  else
    return false;
  return true;
}

// Converts a number of the JSON for a tensor whose datatype is an integer.
int64_t as_integer(const JsonTensor& t, double value) {
  constexpr double kLeast = -0x1p63, kBeyond = 0x1p63;
  if (value != std::trunc(value) || value < kLeast || value >= kBeyond)
    refuse("input ", t.name, " holds ", value, ", which is not ", t.datatype);
  return static_cast<int64_t>(value);
}

}  // namespace

Tensors::Tensors(const InferJson& json, std::string_view bytes) : json_(json), used_(json.inputs.size(), false) {
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
           "Inference-Header-Content-Length must add up to the request");
  }
}

std::optional<size_t> Tensors::find(const TensorName& name) {
  for (size_t i = 0; i < used_.size(); ++i) {
    const size_t at = (next_ + i) % used_.size();
    if (used_[at] || !name.is(json_.inputs[at].name)) continue;
    used_[at] = true;
    next_ = at + 1;
    return at;
  }
  return std::nullopt;
}

size_t Tensors::require(const TensorName& name) {
  const std::optional<size_t> at = find(name);
  if (!at) throw MissingInput{name.text()};
  return *at;
}

bool Tensors::has(const TensorName& name, std::string_view datatype) const {
  return std::any_of(json_.inputs.begin(), json_.inputs.end(), [&](const JsonTensor& t) {
    return name.is(t.name) && (datatype.empty() || t.datatype == datatype);
  });
}

const JsonTensor* Tensors::unused() const {
  const auto at = std::find(used_.begin(), used_.end(), false);
  return at == used_.end() ? nullptr : &json_.inputs[static_cast<size_t>(at - used_.begin())];
}

void Tensors::check_kind(const JsonTensor& t) {
  if (t.text) refuse("input ", t.name, " has texts in \"data\"; its datatype must be BYTES then");
  if (t.truth && t.datatype != "BOOL")
    refuse("input ", t.name, " has true and false in \"data\"; its datatype must be BOOL then");
}

size_t Tensors::elements_of_list(const JsonTensor& t) const {
  if (t.shape.size() != 1) refuse("input ", t.name, " has ", t.shape.size(), " dimensions; it must have 1");
  const size_t count = elements(t);
  if (t.binary_size) return count;
  if (!t.has_data) refuse("input ", t.name, " has neither \"data\" nor \"binary_data_size\"");
  if (count != t.count) refuse("input ", t.name, " has ", t.count, " values in \"data\"; its shape needs ", count);
  return count;
}

// Calls take(value) for each element: a bool, an integer, a float or a double; NaN if the value is missing.
template <class F>
void Tensors::visit(size_t at, const F& take) const {
  const JsonTensor& t = json_.inputs[at];
  const size_t count = elements_of_list(t);
  const auto from_bytes = [&](auto type) {
    using T = typename decltype(type)::type;
    using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
    const std::string_view bytes = places_[at];
    if (count > bytes.size() / sizeof(T) || count * sizeof(T) != bytes.size())
      refuse("input ", t.name, " has ", bytes.size(), " bytes of data; its shape needs ", count, " times ", sizeof(T));
    for (size_t i = 0; i < count; ++i) {
      Stored value{};
      std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
      take(static_cast<T>(value));
    }
  };
  const auto from_json = [&](auto type) {
    using T = typename decltype(type)::type;
    check_kind(t);
    for (size_t i = 0; i < count; ++i) {
      const int64_t bits = json_.numbers[t.first + i];
      if (t.real && std::isnan(json_.real(t, i)))
        take(std::numeric_limits<double>::quiet_NaN());
      else if (std::is_same_v<T, bool> || std::is_floating_point_v<T>)
        take(static_cast<T>(json_.real(t, i)));
      else if (t.real)
        take(as_integer(t, json_.real(t, i)));
      else if (t.large)
        take(static_cast<uint64_t>(bits));
      else
        take(bits);
    }
  };
  const bool known = with_type(t.datatype, [&](auto type) { t.binary_size ? from_bytes(type) : from_json(type); });
  if (!known) refuse("input ", t.name, " has datatype \"", shown(t.datatype), "\"; it must be one of numbers");
}

void Tensors::append_numbers(size_t at, std::vector<double>& out) const {
  visit(at, [&](auto value) { out.push_back(static_cast<double>(value)); });
}

void Tensors::append_words(size_t at, Words& out) const {
  const JsonTensor& t = json_.inputs[at];
  if (t.rounded)
    refuse("input ", t.name,
           " holds whole numbers of more than 53 bits and numbers with fractions: send them as texts");
  const auto add = [&](auto value) {
    bool present = true;
    if constexpr (std::is_floating_point_v<decltype(value)>) present = std::isfinite(value);
    if constexpr (std::is_same_v<decltype(value), float>) {
      if (present) sdk::append_word(out.bytes, static_cast<double>(value));
    } else {
      if (present) sdk::append_word(out.bytes, value);
    }
    out.ends.push_back(std::ssize(out.bytes));
    out.present.push_back(present);
  };
  if (t.datatype != "BYTES") return visit(at, add);
  if (t.binary_size || t.text || t.count == 0) return append_texts(at, out);
  for (size_t i = 0, count = elements_of_list(t); i < count; ++i) {  // numbers in a JSON list of texts
    if (t.truth)
      add(json_.numbers[t.first + i] != 0);
    else if (t.real)
      add(json_.real(t, i));
    else if (t.large)
      add(static_cast<uint64_t>(json_.numbers[t.first + i]));
    else
      add(json_.numbers[t.first + i]);
  }
}

void Tensors::append_texts(size_t at, Words& out) const {
  const JsonTensor& t = json_.inputs[at];
  const size_t count = elements_of_list(t);
  const auto add = [&](std::string_view text, bool present) {
    out.bytes += text;
    out.ends.push_back(std::ssize(out.bytes));
    out.present.push_back(present);
  };
  if (!t.binary_size) {
    auto none = std::lower_bound(json_.no_texts.begin(), json_.no_texts.end(), t.first);
    for (size_t i = t.first; i < t.first + count; ++i) {
      const auto begin = static_cast<size_t>(json_.ends[i]), end = static_cast<size_t>(json_.ends[i + 1]);
      const bool absent = none != json_.no_texts.end() && *none == i;
      if (absent) ++none;
      add(std::string_view(json_.texts).substr(begin, end - begin), !absent);
    }
    return;
  }
  std::string_view rest = places_[at];  // each text follows its length, a uint32
  for (size_t i = 0; i < count; ++i) {
    uint32_t length = 0;
    if (rest.size() >= sizeof(length)) std::memcpy(&length, rest.data(), sizeof(length));
    if (rest.size() < sizeof(length) || rest.size() - sizeof(length) < length)
      refuse("input ", t.name, " has ", i, " whole texts in its bytes; its shape needs ", count);
    add(rest.substr(sizeof(length), length), true);
    rest.remove_prefix(sizeof(length) + length);
  }
  if (!rest.empty()) refuse("input ", t.name, " has ", rest.size(), " bytes after its last text");
}

size_t Tensors::elements(const JsonTensor& t) {
  size_t count = 1;
  for (int64_t extent : t.shape) {
    if (extent < 0) refuse("input ", t.name, " has a dimension of ", extent);
    if (__builtin_mul_overflow(count, static_cast<size_t>(extent), &count)) {
      refuse("input ", t.name, " has a shape of too many elements");
    }
  }
  return count;
}

}  // namespace tessera::serve
