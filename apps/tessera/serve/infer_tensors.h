// The tensors of an inference request by name, wherever their elements are.
#pragma once

#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "serve/infer_json.h"
#include "serve/tensor_request.h"
#include "tessera/error.h"

namespace tessera::serve {

static_assert(std::endian::native == std::endian::little, "binary tensors are little-endian");

// An error caused by the client.
template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  fail(Code::kInvalidArgument, parts...);
}

// Thrown for a tensor that a request lacks; the message also lists the model's inputs.
struct MissingInput {
  std::string name;
};

// Values in the form of words (tessera/sdk/values.h).
struct Words {
  std::string bytes;                // all words, without separators
  std::vector<int64_t> ends = {0};  // word i is [ends[i], ends[i + 1])
  std::vector<bool> present;        // false: the value is missing
};

// The name of a tensor of the model: a feature's name and one of its arrays, or "dense".
struct TensorName {
  std::string_view stem, suffix;
  bool is(std::string_view name) const {
    return name.size() == stem.size() + suffix.size() && name.substr(0, stem.size()) == stem &&
           name.substr(stem.size()) == suffix;
  }
  std::string text() const { return str_cat(stem, suffix); }
};

// The tensors of a request by name, each taken once.
class Tensors {
 public:
  explicit Tensors(const TensorRequest& request) : inputs_(request.inputs), used_(request.inputs.size(), false) {}

  // The tensor's index, if present. Clients mostly keep the model's order, so the search goes on from the last find.
  std::optional<size_t> find(const TensorName& name);
  size_t require(const TensorName& name);  // throws MissingInput
  // True if the tensor is present; if a datatype is given, its values must have it.
  bool has(const TensorName& name, std::string_view datatype = "") const;
  const RequestTensor* unused() const;  // the first tensor that was not taken; null if all were

  const RequestTensor& operator[](size_t at) const { return inputs_[at]; }

  // Appends the tensor's elements, of type `datatype`, to `out`. `dims` is the required shape.
  template <class T>
  void append(size_t at, const char* datatype, size_t dims, std::vector<T>& out) const {
    const RequestTensor& t = inputs_[at];
    if (t.datatype != datatype) {
      refuse("input ", t.name, " has datatype \"", shown(t.datatype), "\"; it must be ", datatype);
    }
    if (t.shape.size() != dims) {
      refuse("input ", t.name, " has ", t.shape.size(), " dimensions; it must have ", dims);
    }
    const size_t count = elements(t);
    if (t.data == RequestTensor::Data::kBytes) {
      const std::string_view bytes = t.bytes;
      if (count > bytes.size() / sizeof(T) || count * sizeof(T) != bytes.size()) {
        refuse("input ", t.name, " has ", bytes.size(), " bytes of data; its shape needs ", count, " times ",
               sizeof(T));
      }
      const size_t before = out.size();
      out.resize(before + count);
      if (count > 0) std::memcpy(out.data() + before, bytes.data(), bytes.size());
      return;
    }
    check_data(t);
    check_kind(t);
    if (count != t.count())
      refuse("input ", t.name, " has ", t.count(), " numbers", t.where, "; its shape needs ", count);
    for (size_t i = 0; i < count; ++i) out.push_back(number<T>(t, i));
  }

  // Appends a tensor of one dimension and any datatype except BYTES; a missing value is NaN.
  void append_numbers(size_t at, std::vector<double>& out) const;
  // Takes any datatype: a number or truth value becomes its word, a text stays as it is.
  void append_words(size_t at, Words& out) const;

 private:
  static size_t elements(const RequestTensor& t);
  static void check_data(const RequestTensor& t);  // checks that there is any
  static void check_kind(const RequestTensor& t);  // checks that the JSON values fit the datatype
  static size_t elements_of_list(const RequestTensor& t);
  template <class F>
  void visit(size_t at, const F& take) const;
  void append_texts(size_t at, Words& out) const;
  template <class T>
  static T number(const RequestTensor& t, size_t i) {
    if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>(t.number(i));
    } else {
      const int64_t value = t.numbers[i];
      if (t.real || (t.large && value < 0) || value < std::numeric_limits<T>::min() ||
          value > std::numeric_limits<T>::max()) {
        refuse("input ", t.name, " holds a number that is not an integer of ", 8 * sizeof(T), " bits");
      }
      return static_cast<T>(value);
    }
  }

  const std::vector<RequestTensor>& inputs_;
  std::vector<bool> used_;
  size_t next_ = 0;
};

}  // namespace tessera::serve
