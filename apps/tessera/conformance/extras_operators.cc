// Operators between jagged and dense tensors and their gradients; regrouping of KeyedTensors.
#include <algorithm>

#include "conformance/extras.h"
#include "conformance/parity/jagged_ops.h"

namespace tessera::cli {
namespace {

Tensor given(const CaseContext& c, const char* field) { return tensor_from(c.given.at(field)); }

std::vector<Tensor> tensor_list(const json& list) {
  std::vector<Tensor> out;
  for (const json& t : list) out.push_back(tensor_from(t));
  return out;
}

Op unary(Tensor (*compute)(const Tensor&), const char* field) {
  return [=](CaseContext& c) { c.check.tensor("output", c.expect.at("output"), compute(given(c, field))); };
}

void padded_dense_op(CaseContext& c) {
  const std::vector<Tensor> offsets = tensor_list(c.given.at("offsets"));
  const auto lengths = c.given.at("max_lengths").get<std::vector<int64_t>>();
  const double padding = c.given.value("padding_value", 0.0);
  const Tensor values = given(c, "values");
  c.check.tensor("output", c.expect.at("output"), jagged_to_padded_dense(values, offsets, lengths, padding));
  if (c.expect.contains("values_grad"))
    c.check.tensor("values_grad", c.expect["values_grad"], dense_to_jagged(given(c, "output_grad"), offsets));
}

// An op with one level of offsets, and the longest row's length in `length`.
Op dense_op(const char* length) {
  return [=](CaseContext& c) {
    const Tensor offsets[] = {given(c, "offsets")};
    const int64_t lengths[] = {c.given.at(length).get<int64_t>()};
    c.check.tensor("output", c.expect.at("output"),
                   jagged_to_padded_dense(given(c, "values"), offsets, lengths, c.given.value("padding_value", 0.0)));
  };
}

void dense_to_jagged_op(CaseContext& c) {
  const std::vector<Tensor> offsets = tensor_list(c.given.at("offsets"));
  const Tensor dense = given(c, "dense");
  c.check.tensor("values", c.expect.at("values"), dense_to_jagged(dense, offsets));
  if (!c.expect.contains("dense_grad")) return;
  const int64_t lengths[] = {dense.size(1)};
  c.check.tensor("dense_grad", c.expect["dense_grad"],
                 jagged_to_padded_dense(given(c, "output_grad"), offsets, lengths));
}

Op elementwise(Tensor (*compute)(const Tensor&, std::span<const Tensor>, const Tensor&), const char* field) {
  return [=](CaseContext& c) {
    c.check.tensor(field, c.expect.at(field),
                   compute(given(c, "values"), tensor_list(c.given.at("offsets")), given(c, "dense")));
  };
}

SparseData sparse_data(const CaseContext& c, const char* values) {
  return {given(c, "lengths"), given(c, values), tensor_from(field_or_null(c.given, "weights"))};
}

void check_data(CaseContext& c, const SparseData& got) {
  c.check.tensor("lengths", c.expect.at("lengths"), got.lengths);
  c.check.tensor("values", c.expect.at("values"), got.values);
  if (c.expect.contains("weights")) c.check.tensor("weights", c.expect["weights"], got.weights);
}

Op permute_op(SparseData (*compute)(const Tensor&, const SparseData&)) {
  return [=](CaseContext& c) { check_data(c, compute(given(c, "permute"), sparse_data(c, "values"))); };
}

void bucketize_op(CaseContext& c) {
  BlockBucketizeOptions options{.block_sizes = given(c, "block_sizes"),
                                .my_size = c.given.at("my_size").get<int64_t>(),
                                .bucketize_pos = c.given.value("bucketize_pos", false),
                                .sequence = c.given.value("sequence", false),
                                .keep_orig_idx = c.given.value("keep_orig_idx", false),
                                .boundaries = tensor_list(field_or_null(c.given, "block_bucketize_pos"))};
  const BlockBucketized got = block_bucketize_sparse_features(sparse_data(c, "indices"), options);
  const auto check = [&](const char* field, const Tensor& tensor) {
    if (c.expect.contains(field)) c.check.tensor(field, c.expect[field], tensor);
  };
  check("new_lengths", got.data.lengths);
  check("new_indices", got.data.values);
  check("new_weights", got.data.weights);
  check("new_pos", got.new_pos);
  check("unbucketize_permute", got.unbucketize_permute);
}

// The gradient of the values is the gradient of the bags, taken from [keys * samples].
void keyed_select_op(CaseContext& c) {
  const int64_t batch = c.given.at("batch_size").get<int64_t>();
  const Tensor indices = given(c, "indices"), lengths = given(c, "lengths");
  check_data(c, keyed_jagged_index_select_dim1(sparse_data(c, "values"), indices, batch));
  std::vector<int64_t> bags;
  for (int64_t key = 0; key < lengths.numel() / batch; ++key) {
    for (int64_t i = 0; i < indices.numel(); ++i) bags.push_back(key * batch + static_cast<int64_t>(indices.item(i)));
  }
  c.check.tensor("values_grad", c.expect.at("values_grad"),
                 jagged_index_select_backward(given(c, "output_grad"), lengths, Tensor::from(bags)));
}

void index_select_op(CaseContext& c) {
  const Tensor lengths = given(c, "lengths"), indices = given(c, "indices");
  check_data(c, jagged_index_select(given(c, "values"), lengths, indices));
  c.check.tensor("values_grad", c.expect.at("values_grad"),
                 jagged_index_select_backward(given(c, "output_grad"), lengths, indices));
}

std::vector<KeyedTensor> keyed_tensors(const json& list) {
  std::vector<KeyedTensor> out;
  for (const json& t : list) {
    out.emplace_back(t.at("keys").get<std::vector<std::string>>(), t.at("length_per_key").get<std::vector<int64_t>>(),
                     tensor_from(t.at("values")));
  }
  return out;
}

void check_named(CaseContext& c, const std::vector<std::pair<std::string, Tensor>>& got) {
  const json& want = c.expect.at("outputs");
  c.check.equal("outputs count", want.size(), got.size());
  for (const auto& [name, tensor] : got) c.check.tensor(name, field_or_null(want, name.c_str()), tensor);
}

void regroup_with_gradients(CaseContext& c) {
  const std::vector<KeyedTensor> inputs = keyed_tensors(c.given.at("inputs"));
  const auto groups = c.given.at("groups").get<std::vector<std::vector<std::string>>>();
  const std::vector<Tensor> got = KeyedTensor::regroup(inputs, groups);
  c.check.equal("outputs count", c.expect.at("outputs").size(), got.size());
  for (size_t i = 0; i < got.size(); ++i)
    c.check.tensor(str_cat("outputs[", i, "]"), c.expect["outputs"].at(i), got[i]);
  const auto grads = KeyedTensor::regroup_backward(inputs, groups, tensor_list(c.given.at("output_grads")));
  c.check.equal("input_grads count", c.expect.at("input_grads").size(), grads.size());
  for (size_t i = 0; i < grads.size(); ++i)
    c.check.tensor(str_cat("input_grads[", i, "]"), c.expect["input_grads"].at(i), grads[i]);
}

void regroup_by_name(CaseContext& c) {
  check_named(c, KeyedTensor::regroup_as_dict(keyed_tensors(c.given.at("inputs")),
                                              c.given.at("groups").get<std::vector<std::vector<std::string>>>(),
                                              c.given.at("keys").get<std::vector<std::string>>()));
}

}  // namespace

void add_extra_operators(OpTable& ops) {
  ops["asynchronous_complete_cumsum"] = unary(asynchronous_complete_cumsum, "input");
  ops["asynchronous_exclusive_cumsum"] = unary(asynchronous_exclusive_cumsum, "input");
  ops["asynchronous_inclusive_cumsum"] = unary(asynchronous_inclusive_cumsum, "input");
  ops["invert_permute"] = unary(invert_permute, "permute");
  ops["offsets_range"] = [](CaseContext& c) {
    c.check.tensor("output", c.expect.at("output"),
                   offsets_range(given(c, "offsets"), c.given.at("range_size").get<int64_t>()));
  };
  ops["jagged_to_padded_dense"] = padded_dense_op;
  ops["jagged_1d_to_dense"] = dense_op("max_L");
  ops["jagged_2d_to_dense"] = dense_op("max_sequence_length");
  ops["dense_to_jagged"] = dense_to_jagged_op;
  ops["jagged_dense_elementwise_add"] = elementwise(jagged_dense_elementwise_add, "output_dense");
  ops["jagged_dense_elementwise_mul"] = elementwise(jagged_dense_elementwise_mul, "values");
  ops["segment_sum_csr"] = [](CaseContext& c) {
    c.check.tensor("output", c.expect.at("output"),
                   segment_sum_csr(c.given.at("batch_size").get<int64_t>(), given(c, "csr_seg"), given(c, "values")));
  };
  ops["permute_2D_sparse_data"] = permute_op(permute_2D_sparse_data);
  ops["permute_1D_sparse_data"] = permute_op(permute_1D_sparse_data);
  ops["block_bucketize_sparse_features"] = bucketize_op;
  ops["keyed_jagged_index_select_dim1"] = keyed_select_op;
  ops["jagged_index_select"] = index_select_op;
  ops["expand_into_jagged_permute"] = [](CaseContext& c) {
    c.check.tensor("output", c.expect.at("output"),
                   expand_into_jagged_permute(given(c, "permute"), given(c, "in_offsets"), given(c, "out_offsets"),
                                              c.given.at("output_size").get<int64_t>()));
  };
  ops["KeyedTensor.regroup"] = regroup_with_gradients;
  ops["KeyedTensor.regroup_as_dict"] = regroup_by_name;
  ops["KeyedTensor.to_dict"] = [](CaseContext& c) {
    check_named(c, keyed_tensors(c.given.at("inputs")).at(0).to_dict());
  };
}

}  // namespace tessera::cli
