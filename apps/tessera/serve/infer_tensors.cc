#include "serve/infer_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "tessera/sdk/values.h"

namespace tessera::serve {
namespace {

using Data = RequestTensor::Data;

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
int64_t as_integer(const RequestTensor& t, double value) {
  constexpr double kLeast = -0x1p63, kBeyond = 0x1p63;
  if (value != std::trunc(value) || value < kLeast || value >= kBeyond)
    refuse("input ", t.name, " holds ", value, ", which is not ", t.datatype);
  return static_cast<int64_t>(value);
}

}  // namespace

std::optional<size_t> Tensors::find(const TensorName& name) {
  for (size_t i = 0; i < used_.size(); ++i) {
    const size_t at = (next_ + i) % used_.size();
    if (used_[at] || !name.is(inputs_[at].name)) continue;
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
  return std::any_of(inputs_.begin(), inputs_.end(), [&](const RequestTensor& t) {
    return name.is(t.name) && (datatype.empty() || t.datatype == datatype);
  });
}

const RequestTensor* Tensors::unused() const {
  const auto at = std::find(used_.begin(), used_.end(), false);
  return at == used_.end() ? nullptr : &inputs_[static_cast<size_t>(at - used_.begin())];
}

void Tensors::check_data(const RequestTensor& t) {
  if (t.data == Data::kNone) refuse("input ", t.name, " has neither \"data\" nor \"binary_data_size\"");
}

void Tensors::check_kind(const RequestTensor& t) {
  if (t.data == Data::kTexts) refuse("input ", t.name, " has texts in \"data\"; its datatype must be BYTES then");
  if (t.truth && t.datatype != "BOOL")
    refuse("input ", t.name, " has true and false in \"data\"; its datatype must be BOOL then");
}

size_t Tensors::elements_of_list(const RequestTensor& t) {
  if (t.shape.size() != 1) refuse("input ", t.name, " has ", t.shape.size(), " dimensions; it must have 1");
  const size_t count = elements(t);
  if (t.data == Data::kBytes) return count;
  check_data(t);
  if (count != t.count()) refuse("input ", t.name, " has ", t.count(), " values", t.where, "; its shape needs ", count);
  return count;
}

// Calls take(value) for each element: a bool, an integer, a float or a double; NaN if the value is missing.
template <class F>
void Tensors::visit(size_t at, const F& take) const {
  const RequestTensor& t = inputs_[at];
  const size_t count = elements_of_list(t);
  const auto from_bytes = [&](auto type) {
    using T = typename decltype(type)::type;
    using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
    const std::string_view bytes = t.bytes;
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
      const int64_t bits = t.numbers[i];
      if (t.real && std::isnan(t.number(i)))
        take(std::numeric_limits<double>::quiet_NaN());
      else if (std::is_same_v<T, bool> || std::is_floating_point_v<T>)
        take(static_cast<T>(t.number(i)));
      else if (t.real)
        take(as_integer(t, t.number(i)));
      else if (t.large)
        take(static_cast<uint64_t>(bits));
      else
        take(bits);
    }
  };
  const bool known =
      with_type(t.datatype, [&](auto type) { t.data == Data::kBytes ? from_bytes(type) : from_json(type); });
  if (!known) refuse("input ", t.name, " has datatype \"", shown(t.datatype), "\"; it must be one of numbers");
}

void Tensors::append_numbers(size_t at, std::vector<double>& out) const {
  visit(at, [&](auto value) { out.push_back(static_cast<double>(value)); });
}

void Tensors::append_words(size_t at, Words& out) const {
  const RequestTensor& t = inputs_[at];
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
  if (t.data != Data::kNumbers || t.numbers.empty()) return append_texts(at, out);
  for (size_t i = 0, count = elements_of_list(t); i < count; ++i) {  // numbers in a JSON list of texts
    if (t.truth)
      add(t.numbers[i] != 0);
    else if (t.real)
      add(t.number(i));
    else if (t.large)
      add(static_cast<uint64_t>(t.numbers[i]));
    else
      add(t.numbers[i]);
  }
}

void Tensors::append_texts(size_t at, Words& out) const {
  const RequestTensor& t = inputs_[at];
  const size_t count = elements_of_list(t);
  const auto add = [&](std::string_view text) {
    out.bytes += text;
    out.ends.push_back(std::ssize(out.bytes));
    out.present.push_back(!text.empty());
  };
  if (t.data != Data::kBytes) {
    for (const tsr_endpoint_text& text : t.texts) add({text.bytes, static_cast<size_t>(text.size)});
    return;
  }
  std::string_view rest = t.bytes;  // each text follows its length, a uint32
  for (size_t i = 0; i < count; ++i) {
    uint32_t length = 0;
    if (rest.size() >= sizeof(length)) std::memcpy(&length, rest.data(), sizeof(length));
    if (rest.size() < sizeof(length) || rest.size() - sizeof(length) < length)
      refuse("input ", t.name, " has ", i, " whole texts in its bytes; its shape needs ", count);
    add(rest.substr(sizeof(length), length));
    rest.remove_prefix(sizeof(length) + length);
  }
  if (!rest.empty()) refuse("input ", t.name, " has ", rest.size(), " bytes after its last text");
}

size_t Tensors::elements(const RequestTensor& t) {
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
