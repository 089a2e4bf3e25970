#include "serve/infer_tensors.h"

#include <algorithm>

namespace tessera::serve {

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
           "Inference-Header-Content-Length have to add up to the request");
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
  if (!at) refuse("input ", name.text(), " is missing");
  return *at;
}

bool Tensors::has(const TensorName& name, std::string_view datatype) const {
  return std::any_of(json_.inputs.begin(), json_.inputs.end(),
                     [&](const JsonTensor& t) { return name.is(t.name) && t.datatype == datatype; });
}

const JsonTensor* Tensors::unused() const {
  const auto at = std::find(used_.begin(), used_.end(), false);
  return at == used_.end() ? nullptr : &json_.inputs[static_cast<size_t>(at - used_.begin())];
}

void Tensors::append_texts(size_t at, std::string& bytes, std::vector<int64_t>& ends) const {
  const JsonTensor& t = json_.inputs[at];
  if (t.shape.size() != 1) refuse("input ", t.name, " has ", t.shape.size(), " dimensions; it has to have 1");
  const size_t count = elements(t);
  const auto add = [&](std::string_view text) { ends.push_back(static_cast<int64_t>((bytes += text).size())); };
  if (!t.binary_size) {
    if (!t.has_data || (!t.text && t.count > 0) || t.count != count)
      refuse("input ", t.name, " has no ", count, " texts in \"data\", which its datatype and shape need");
    for (size_t i = t.first; i < t.first + count; ++i) {
      const auto begin = static_cast<size_t>(json_.ends[i]), end = static_cast<size_t>(json_.ends[i + 1]);
      add(std::string_view(json_.texts).substr(begin, end - begin));
    }
    return;
  }
  std::string_view rest = places_[at];  // each text behind its length, an uint32
  for (size_t i = 0; i < count; ++i) {
    uint32_t length = 0;
    if (rest.size() >= sizeof(length)) std::memcpy(&length, rest.data(), sizeof(length));
    if (rest.size() < sizeof(length) || rest.size() - sizeof(length) < length)
      refuse("input ", t.name, " has ", i, " whole texts in its bytes; its shape needs ", count);
    add(rest.substr(sizeof(length), length));
    rest.remove_prefix(sizeof(length) + length);
  }
  if (!rest.empty()) refuse("input ", t.name, " has ", rest.size(), " bytes behind its last text");
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
