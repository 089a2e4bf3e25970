// Area "sparse": JaggedTensor, KeyedJaggedTensor, KeyedTensor. Refusals are in sparse_errors.cc.
#include "conformance/sparse.h"

#include "tessera/jagged_tensor.h"

namespace tessera::cli {
namespace {

using Tensors = std::vector<std::pair<std::string, Tensor>>;

void check_tensor_list(Checker& check, const std::string& field, const json& want, const std::vector<Tensor>& got) {
  check.equal(field + " count", want.size(), got.size());
  for (size_t i = 0; i < std::min(want.size(), got.size()); ++i) {
    check.tensor(str_cat(field, "[", i, "]"), want[i], got[i]);
  }
}

void check_tensor_dict(Checker& check, const std::string& field, const json& want, const Tensors& got) {
  check.equal(field + " count", want.size(), got.size());
  for (const auto& [key, value] : got) {
    if (want.contains(key))
      check.tensor(str_cat(field, "[", key, "]"), want[key], value);
    else
      check.fail(field, "unexpected key " + key);
  }
}

std::optional<int64_t> length_of(const json& value) {
  if (value.is_null()) return std::nullopt;
  return value.get<int64_t>();
}

void check_padded(Checker& check, const std::string& field, const json& want, const JaggedTensor& got) {
  for (size_t i = 0; i < want.size(); ++i) {
    const auto length = length_of(field_or_null(want[i], "desired_length"));
    const double padding = want[i].value("padding_value", 0.0);
    const std::string name = str_cat(field, "[", i, "]");
    check.tensor(name + ".values", want[i].at("values"), got.to_padded_dense(length, padding));
    const bool weighted = got.weights_or_null().defined();
    check.tensor(name + ".weights", field_or_null(want[i], "weights"),
                 weighted ? got.to_padded_dense_weights(length, padding) : Tensor());
  }
}

void check_jagged_field(Checker& check, const std::string& name, const std::string& field, const json& want,
                        const JaggedTensor& got) {
  if (field == "values") return check.tensor(name, want, got.values());
  if (field == "weights") return check.tensor(name, want, got.weights_or_null());
  if (field == "lengths") return check.tensor(name, want, got.lengths());
  if (field == "offsets") return check.tensor(name, want, got.offsets());
  if (field == "str") return check.equal(name, want, got.str());
  if (field == "to_dense") return check_tensor_list(check, name, want, got.to_dense());
  if (field == "to_padded_dense") return check_padded(check, name, want, got);
  if (field != "to_dense_weights") return check.fail(name, "the runner does not know this field");
  if (want.is_null()) return check.tensor(name, want, got.weights_or_null());
  check_tensor_list(check, name, want, got.to_dense_weights());
}

void check_jagged(Checker& check, const std::string& prefix, const json& want, const JaggedTensor& got) {
  for (const auto& [field, value] : want.items()) check_jagged_field(check, prefix + field, field, value, got);
}

void check_jagged_dict(Checker& check, const std::string& name, const json& want, const JaggedTensorDict& got) {
  check.equal(name + " count", want.size(), got.size());
  for (const auto& [key, jt] : got) {
    if (want.contains(key))
      check_jagged(check, str_cat(name, "[", key, "]."), want[key], jt);
    else
      check.fail(name, "unexpected key " + key);
  }
}

json inverse_json(const KeyedJaggedTensor& kjt) {
  const auto* inverse = kjt.inverse_indices_or_null();
  return inverse ? json(inverse->keys) : json();
}

void check_kjt_field(Checker& check, const std::string& name, const std::string& field, const json& want,
                     const KeyedJaggedTensor& got) {
  if (field == "keys") return check.equal(name, want, got.keys());
  if (field == "values") return check.tensor(name, want, got.values());
  if (field == "weights") return check.tensor(name, want, got.weights_or_null());
  if (field == "lengths") return check.tensor(name, want, got.lengths());
  if (field == "offsets") return check.tensor(name, want, got.offsets());
  if (field == "stride") return check.equal(name, want, got.stride());
  if (field == "stride_per_key") return check.equal(name, want, got.stride_per_key());
  if (field == "variable_stride_per_key") return check.equal(name, want, got.variable_stride_per_key());
  if (field == "stride_per_key_per_rank") return check.equal(name, want, got.stride_per_key_per_rank());
  if (field == "length_per_key") return check.equal(name, want, got.length_per_key());
  if (field == "offset_per_key") return check.equal(name, want, got.offset_per_key());
  if (field == "lengths_offset_per_key") return check.equal(name, want, got.lengths_offset_per_key());
  if (field == "str") return check.equal(name, want, got.str());
  if (field == "to_dict") return check_jagged_dict(check, name, want, got.to_dict());
  if (field == "getitem") {
    for (const auto& [key, jt] : want.items()) check_jagged(check, str_cat(name, "[", key, "]."), jt, got[key]);
    return;
  }
  if (field != "inverse_indices") return check.fail(name, "the runner does not know this field");
  check.equal(name + ".keys", want.is_null() ? json() : want.at("keys"), inverse_json(got));
  if (!want.is_null() && got.inverse_indices_or_null()) {
    check.tensor(name + ".indices", want.at("indices"), got.inverse_indices().indices);
  }
}

void check_kjt(Checker& check, const std::string& prefix, const json& want, const KeyedJaggedTensor& got) {
  for (const auto& [field, value] : want.items()) check_kjt_field(check, prefix + field, field, value, got);
}

void check_keyed_tensor(Checker& check, const json& want, const KeyedTensor& got) {
  for (const auto& [field, value] : want.items()) {
    if (field == "keys")
      check.equal(field, value, got.keys());
    else if (field == "key_dim")
      check.equal(field, value, got.key_dim());
    else if (field == "values")
      check.tensor(field, value, got.values());
    else if (field == "length_per_key")
      check.equal(field, value, got.length_per_key());
    else if (field == "offset_per_key")
      check.equal(field, value, got.offset_per_key());
    else if (field == "str")
      check.equal(field, value, got.str());
    else if (field == "to_dict")
      check_tensor_dict(check, field, value, got.to_dict());
    else if (field == "getitem") {
      for (const auto& [key, part] : value.items()) check.tensor(str_cat(field, "[", key, "]"), part, got[key]);
    } else
      check.fail(field, "the runner does not know this field");
  }
}

void regroup_op(CaseContext& c) {
  const auto inputs = keyed_tensors_from(c.given.at("keyed_tensors"));
  const auto groups = c.given.at("groups").get<std::vector<std::vector<std::string>>>();
  check_tensor_list(c.check, "tensors", c.expect.at("tensors"), KeyedTensor::regroup(inputs, groups));
  if (!c.expect.contains("as_dict")) return;
  const auto names = c.given.at("keys").get<std::vector<std::string>>();
  check_tensor_dict(c.check, "as_dict", c.expect["as_dict"], KeyedTensor::regroup_as_dict(inputs, groups, names));
}

void regroup_grad_op(CaseContext& c) {
  regroup_op(c);
  const auto inputs = keyed_tensors_from(c.given.at("keyed_tensors"));
  const auto groups = c.given.at("groups").get<std::vector<std::vector<std::string>>>();
  const auto grads = KeyedTensor::regroup_backward(inputs, groups, tensors_from(c.given.at("grad_outputs")));
  const json& want = c.expect.at("grads");
  c.check.equal("grads count", want.size(), grads.size());
  for (size_t i = 0; i < std::min(want.size(), grads.size()); ++i) {
    const KeyedTensor by_key(inputs[i].keys(), inputs[i].length_per_key(), grads[i], inputs[i].key_dim());
    std::vector<Tensor> parts;
    for (const auto& [key, part] : by_key.to_dict()) parts.push_back(part);
    check_tensor_list(c.check, str_cat("grads[", i, "]"), want[i], parts);
  }
}

JaggedTensorDict jt_dict_from(const json& jts) {
  JaggedTensorDict dict;
  for (const json& jt : jts) dict.emplace_back(jt.at("key").get<std::string>(), jt_from(jt));
  return dict;
}

// Moves the features to the device that --device names.
KeyedJaggedTensor features(const CaseContext& c, const json& value) {
  const KeyedJaggedTensor made = kjt_from(value);
  return c.device ? made.to(*c.device) : made;
}

// Copies the results to host memory for comparison. Lengths and offsets are derived from each other on the device.
KeyedJaggedTensor result(const KeyedJaggedTensor& made) {
  made.lengths();
  made.offsets();
  return made.to_host();
}

void split_op(CaseContext& c) {
  const auto parts = features(c, c.given.at("kjt")).split(c.given.at("segments").get<std::vector<int64_t>>());
  const json& want = c.expect.at("parts");
  c.check.equal("parts count", want.size(), parts.size());
  for (size_t i = 0; i < std::min(want.size(), parts.size()); ++i) {
    check_kjt(c.check, str_cat("parts[", i, "]."), want[i], result(parts[i]));
  }
}

// An op whose result is one KeyedJaggedTensor, compared with expect itself or with one of its members.
Op kjt_op(KeyedJaggedTensor (*make)(const CaseContext& c, const json& given), const char* member = nullptr) {
  return [make, member](CaseContext& c) {
    check_kjt(c.check, member ? str_cat(member, ".") : "", member ? c.expect.at(member) : c.expect,
              result(make(c, c.given)));
  };
}

Op jagged_op(JaggedTensor (*make)(const json& given)) {
  return [make](CaseContext& c) { check_jagged(c.check, "", c.expect, make(c.given)); };
}

}  // namespace

std::vector<Tensor> tensors_from(const json& list) {
  std::vector<Tensor> tensors;
  for (const json& t : list) tensors.push_back(tensor_from(t));
  return tensors;
}

JaggedTensor jt_from(const json& value) {
  return JaggedTensor({tensor_from(value.at("values")), tensor_from(field_or_null(value, "weights")),
                       tensor_from(field_or_null(value, "lengths")), tensor_from(field_or_null(value, "offsets"))});
}

KeyedTensor keyed_tensor_from(const json& value) {
  return KeyedTensor::from_tensor_list(value.at("keys").get<std::vector<std::string>>(),
                                       tensors_from(value.at("tensors")), value.value("key_dim", int64_t{1}),
                                       value.value("cat_dim", int64_t{1}));
}

std::vector<KeyedTensor> keyed_tensors_from(const json& list) {
  std::vector<KeyedTensor> tensors;
  for (const json& t : list) tensors.push_back(keyed_tensor_from(t));
  return tensors;
}

OpTable sparse_ops() {
  OpTable ops;
  ops["jagged_tensor"] = jagged_op(jt_from);
  ops["jagged_tensor_from_dense"] = jagged_op([](const json& g) {
    return JaggedTensor::from_dense(tensors_from(g.at("values")), tensors_from(field_or_null(g, "weights")));
  });
  ops["jagged_tensor_from_dense_lengths"] = jagged_op([](const json& g) {
    return JaggedTensor::from_dense_lengths(tensor_from(g.at("values")), tensor_from(g.at("lengths")),
                                            tensor_from(field_or_null(g, "weights")));
  });
  ops["jagged_tensor_empty"] =
      jagged_op([](const json& g) { return JaggedTensor::empty(g.at("is_weighted").get<bool>()); });
  ops["kjt"] = kjt_op(features);
  ops["kjt_from_lengths_sync"] = kjt_op([](const CaseContext&, const json& g) {
    return KeyedJaggedTensor::from_lengths_sync(g.at("keys"), tensor_from(g.at("values")), tensor_from(g.at("lengths")),
                                                tensor_from(field_or_null(g, "weights")));
  });
  ops["kjt_from_offsets_sync"] = kjt_op([](const CaseContext&, const json& g) {
    return KeyedJaggedTensor::from_offsets_sync(g.at("keys"), tensor_from(g.at("values")), tensor_from(g.at("offsets")),
                                                tensor_from(field_or_null(g, "weights")));
  });
  ops["kjt_from_jt_dict"] = kjt_op([](const CaseContext&, const json& g) {
    return KeyedJaggedTensor::from_jt_dict(jt_dict_from(g.at("jts")), g.value("force_variable_stride", false));
  });
  ops["kjt_permute"] = kjt_op(
      [](const CaseContext& c, const json& g) {
        return features(c, g.at("kjt")).permute(g.at("indices").get<std::vector<int64_t>>());
      },
      "result");
  ops["kjt_concat"] = kjt_op(
      [](const CaseContext&, const json& g) { return KeyedJaggedTensor::concat(kjts_from(g.at("kjts"))); }, "result");
  ops["kjt_split"] = split_op;
  ops["keyed_tensor_from_tensor_list"] = [](CaseContext& c) {
    check_keyed_tensor(c.check, c.expect, keyed_tensor_from(c.given));
  };
  ops["keyed_tensor_regroup"] = regroup_op;
  ops["keyed_tensor_regroup_grad"] = regroup_grad_op;
  ops["error"] = sparse_error_op;
  return ops;
}

std::vector<KeyedJaggedTensor> kjts_from(const json& list) {
  std::vector<KeyedJaggedTensor> kjts;
  for (const json& k : list) kjts.push_back(kjt_from(k));
  return kjts;
}

}  // namespace tessera::cli
