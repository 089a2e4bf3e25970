// Refused calls of area "sparse". `what` is a sentence for people, so a call is found by words in it; the files may
// hold any of those that tests/conformance/README.md lists. Inputs that a case leaves out are made here.
#include <algorithm>
#include <regex>

#include "conformance/sparse.h"

namespace tessera::cli {
namespace {

Tensor ids(int64_t count) {
  Tensor t = Tensor::zeros({count}, DType::kInt64);
  for (int64_t i = 0; i < count; ++i) t.data<int64_t>()[i] = i;
  return t;
}

// Keys a, b, ... of `stride` samples with one value each.
KeyedJaggedTensor small_kjt(int64_t keys, int64_t stride, bool weighted = false, bool variable = false,
                            bool inverse = false) {
  KeyedJaggedTensor::Options o;
  const int64_t rows = keys * stride;
  for (int64_t k = 0; k < keys; ++k) {
    o.keys.push_back(std::string(1, static_cast<char>('a' + k)));
    if (variable) o.stride_per_key_per_rank.push_back({stride});
  }
  o.values = ids(rows);
  if (weighted) o.weights = Tensor::zeros({rows});
  o.lengths = Tensor::from<int64_t>(std::vector<int64_t>(rows, 1));
  if (inverse) o.inverse_indices = KeyedJaggedTensor::InverseIndices{o.keys, Tensor::zeros({keys, 2}, DType::kInt64)};
  return KeyedJaggedTensor(std::move(o));
}

KeyedTensor small_keyed_tensor() { return KeyedTensor::from_tensor_list({"a"}, {Tensor::zeros({2, 3})}); }

KeyedJaggedTensor given_kjt(const json& given, const KeyedJaggedTensor& otherwise) {
  if (given.contains("kjt")) return kjt_from(given["kjt"]);
  if (given.contains("keys") && given.contains("values")) return kjt_from(given);
  return otherwise;
}

std::vector<KeyedTensor> given_keyed_tensors(const json& given) {
  if (given.contains("keyed_tensors")) return keyed_tensors_from(given["keyed_tensors"]);
  if (given.contains("keyed_tensor")) return {keyed_tensor_from(given["keyed_tensor"])};
  return {small_keyed_tensor()};
}

template <class T>
T given_or(const json& given, const char* field, T otherwise) {
  const json& value = field_or_null(given, field);
  return value.is_null() ? otherwise : value.get<T>();
}

bool found(const std::string& text, const char* words) { return std::regex_search(text, std::regex(words)); }

bool is_keyed(const std::string& what, const json& given) {
  return given.contains("kjt") || given.contains("keys") || found(what, "kjt|keyedjagged");
}

// The numbers of the first [..] in `what`; `otherwise` if there is none.
std::vector<int64_t> listed(const std::string& what, std::vector<int64_t> otherwise) {
  std::smatch match;
  if (!std::regex_search(what, match, std::regex(R"(\[\s*(-?\d+(\s*,\s*-?\d+)*)\s*\])"))) return otherwise;
  return json::parse("[" + match[1].str() + "]").get<std::vector<int64_t>>();
}

std::string quoted_key(const std::string& what) {
  std::smatch match;
  return std::regex_search(what, match, std::regex(R"(['"]([^'"]+)['"])")) ? match[1].str() : "no such key";
}

std::vector<KeyedJaggedTensor> to_concat(const std::string& what, const json& given) {
  if (given.contains("kjts")) return kjts_from(given["kjts"]);
  const KeyedJaggedTensor plain = small_kjt(2, 2);
  if (found(what, "inverse")) return {small_kjt(2, 2, false, true, true), small_kjt(2, 2, false, true)};
  if (found(what, "variable")) return {small_kjt(2, 2, false, true), plain};
  if (found(what, "weight")) return {small_kjt(2, 2, true), plain};
  if (found(what, "stride|batch")) return {plain, small_kjt(2, 3)};
  return {};
}

// Options of a JaggedTensor: from `given`, or `count` rows with one value each.
JaggedTensor::Options jagged_options(const json& given, int64_t count) {
  JaggedTensor::Options o;
  o.values = given.contains("values") ? tensor_from(given["values"]) : ids(count);
  o.weights = tensor_from(field_or_null(given, "weights"));
  o.lengths = tensor_from(field_or_null(given, "lengths"));
  o.offsets = tensor_from(field_or_null(given, "offsets"));
  return o;
}

void missing_lengths(const std::string& what, const json& given) {
  if (is_keyed(what, given)) {
    KeyedJaggedTensor(KeyedJaggedTensor::Options{.keys = given_or(given, "keys", std::vector<std::string>{"a"}),
                                                 .values = jagged_options(given, 1).values});
  } else {
    JaggedTensor(jagged_options(given, 1));
  }
}

void wrong_type(const std::string& what, const json& given) {
  JaggedTensor::Options o = jagged_options(given, 1);
  if (!o.lengths.defined() && !o.offsets.defined()) {
    if (found(what, "offset"))
      o.offsets = Tensor::from<float>({0, 1});
    else
      o.lengths = Tensor::from<float>({1});
  }
  if (!is_keyed(what, given)) {
    JaggedTensor jt(o);
    return;
  }
  const json& keys = field_or_null(given.contains("kjt") ? given["kjt"] : given, "keys");
  if (!keys.is_null())
    kjt_from(given.contains("kjt") ? given["kjt"] : given);
  else
    KeyedJaggedTensor({.keys = {"a"}, .values = o.values, .lengths = o.lengths, .offsets = o.offsets});
}

void missing_weights(const std::string& what, const json& given) {
  if (is_keyed(what, given)) {
    given_kjt(given, small_kjt(1, 1)).weights();
    return;
  }
  JaggedTensor::Options o = jagged_options(given, 1);
  if (!o.lengths.defined() && !o.offsets.defined()) o.lengths = Tensor::from<int64_t>({1});
  JaggedTensor(o).weights();
}

void padded(const std::string& what, const json& given) {
  JaggedTensor::Options o = jagged_options(given, 0);
  if (!o.lengths.defined() && !o.offsets.defined()) o.lengths = ids(0);
  if (found(what, "weights"))
    JaggedTensor(o).to_padded_dense_weights();
  else
    JaggedTensor(o).to_padded_dense();
}

void printed(const std::string&, const json& given) {
  JaggedTensor::Options o = jagged_options(given, 1);
  if (!given.contains("values")) o.values = Tensor::zeros({1, 1, 1});
  if (!o.lengths.defined() && !o.offsets.defined()) o.lengths = Tensor::from<int64_t>({1});
  JaggedTensor(o).str();
}

void too_few_values(const std::string&, const json& given) {
  given_kjt(given, KeyedJaggedTensor({.keys = {"a"}, .values = ids(1), .lengths = Tensor::from<int64_t>({2})}))
      .to_dict();
}

void wrong_count(const std::string&, const json& given) {
  if (given.contains("kjt") || given.contains("keys")) {
    given_kjt(given, {}).length_per_key();
  } else {
    KeyedJaggedTensor({.keys = {"a", "b"}, .values = ids(3), .lengths = Tensor::from<int64_t>({1, 1, 1})})
        .length_per_key();
  }
}

void split(const std::string& what, const json& given) {
  const KeyedJaggedTensor kjt = given_kjt(given, small_kjt(2, 2));
  const auto past = static_cast<int64_t>(kjt.keys().size()) + 1;
  kjt.split(given_or(given, "segments", listed(what, {past})));
}

void permute(const std::string& what, const json& given) {
  given_kjt(given, small_kjt(2, 2)).permute(given_or(given, "indices", listed(what, {0, 9})));
}

void dense_rows(const std::string&, const json& given) {
  JaggedTensor::from_dense(tensors_from(field_or_null(given, "values")), tensors_from(field_or_null(given, "weights")));
}

void from_tensor_list(const std::string&, const json& given) {
  const json& inner = given.contains("keyed_tensor") ? given["keyed_tensor"] : given;
  if (inner.contains("tensors"))
    keyed_tensor_from(inner);
  else
    KeyedTensor::from_tensor_list({"a", "b"}, {Tensor::zeros({2, 1}), Tensor::zeros({3, 1})});
}

void regroup(const std::string& what, const json& given) {
  const auto tensors = given_keyed_tensors(given);
  const bool as_dict = found(what, "regroup_as_dict");
  const auto key = as_dict ? tensors[0].keys().at(0) : quoted_key(what);
  const auto groups = given_or(given, "groups", std::vector<std::vector<std::string>>{{key}});
  if (as_dict)
    KeyedTensor::regroup_as_dict(tensors, groups, given_or(given, "keys", std::vector<std::string>{}));
  else
    KeyedTensor::regroup(tensors, groups);
}

void unknown_key(const std::string& what, const json& given) {
  const std::string key = given_or(given, "key", quoted_key(what));
  if (given.contains("keyed_tensor") || found(what, "\\bkt\\b|keyedtensor|keyed tensor")) {
    given_keyed_tensors(given).at(0)[key];
  } else {
    given_kjt(given, small_kjt(1, 1))[key];
  }
}

struct SparseRefusal {
  const char* words;  // a regular expression over `what` in lower case
  void (*call)(const std::string& what, const json& given);
};

// The first match counts, so special patterns come before general ones.
constexpr SparseRefusal kSparseRefusals[] = {
    {"regroup", regroup},
    {"from_tensor_list|tensors whose sizes", from_tensor_list},
    {"from_dense\\b", dense_rows},
    {"concat", [](const std::string& what, const json& given) { KeyedJaggedTensor::concat(to_concat(what, given)); }},
    {"\\bsplit|segment", split},
    {"permute", permute},
    {"inverse_indices|inverse indices",
     [](const std::string&, const json& given) { given_kjt(given, small_kjt(1, 1)).inverse_indices(); }},
    {"to_padded_dense", padded},
    {"\\bstr\\b|print|text", printed},
    {"to_dict|value count", too_few_values},
    {"neither|without lengths|no lengths", missing_lengths},
    {"multiple|divisible|count", wrong_count},
    {"float|integer|bool|dtype|complex|half", wrong_type},
    {"weights", missing_weights},
    {"key|\\[", unknown_key},
};

}  // namespace

void sparse_error_op(CaseContext& c) {
  std::string what = c.given.at("what").get<std::string>();
  std::string lower = what;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char ch) { return std::tolower(ch); });
  for (const SparseRefusal& refusal : kSparseRefusals) {
    if (!found(lower, refusal.words)) continue;
    return expect_refusal(c, [&] { refusal.call(lower, c.given); });
  }
  throw std::runtime_error("the runner does not know how to make the call \"" + what + "\"");
}

}  // namespace tessera::cli
