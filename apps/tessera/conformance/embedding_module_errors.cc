// Refused calls of area "embedding_modules". `what` is a sentence for people, so a call is found by words in it. Inputs
// that a case leaves out are made here.
#include <regex>

#include "conformance/embedding_modules.h"

namespace tessera::cli {
namespace {

constexpr int64_t kRows = 4;

bool said(const std::string& text, const char* words) {
  return std::regex_search(text, std::regex(words, std::regex::icase));
}

struct Words {
  std::string what;
  bool has(const char* words) const { return said(what, words); }
  bool same_name() const { return has("same name|duplicate|one name"); }
  bool dims_differ() const { return has("different (embedding_)?dim|dims differ"); }
  bool too_big() const { return has("past the (table|rows)|too big|>= ?rows|out of (range|bounds)"); }
  bool negative() const { return has("negative|< ?0|-1\\b"); }
  bool not_integers() const { return has("float|not integer|no integer"); }
  bool weighted() const { return has("weighted"); }
};

CollectionOptions small_collection(const Words& w, bool pooled) {
  CollectionOptions options;
  for (const char* name : {"t1", "t2"}) {
    EmbeddingBagConfig t{.name = w.same_name() ? "t1" : name,
                         .num_embeddings = kRows,
                         .embedding_dim = w.dims_differ() && !options.tables.empty() ? 3 : 2,
                         .feature_names = {options.tables.empty() ? "a" : "b"},
                         .pooling = !pooled         ? PoolingType::kNone
                                    : w.has("mean") ? PoolingType::kMean
                                                    : PoolingType::kSum};
    options.tables.push_back(std::move(t));
  }
  return options;
}

// Two samples with one id per key.
KeyedJaggedTensor small_batch(const Words& w) {
  KeyedJaggedTensor::Options o;
  o.keys = {"a"};
  if (!w.has("lack|missing|without (a|the) feature")) o.keys.push_back("b");
  const int64_t n = 2 * static_cast<int64_t>(o.keys.size());
  o.values = Tensor::zeros({n}, w.not_integers() ? DType::kFloat32 : DType::kInt64);
  if (o.values.dtype() == DType::kInt64) {
    o.values.data<int64_t>()[0] = w.negative() ? -1 : w.too_big() ? kRows + 5 : 0;
  }
  o.lengths = Tensor::from(std::vector<int64_t>(static_cast<size_t>(n), 1));
  if (w.has("mean")) o.weights = Tensor::zeros({n});
  return KeyedJaggedTensor(std::move(o));
}

void collection_error(CaseContext& c, const Words& w, bool pooled) {
  expect_refusal(c, [&] {
    const bool given = c.given.contains("tables");
    CollectionOptions options = given ? collection_options_from(c, pooled) : small_collection(w, pooled);
    options.kernel = c.kernel;
    options.is_weighted = options.is_weighted || (w.weighted() && !w.has("not weighted"));
    const auto batch = [&] { return c.given.contains("kjt") ? kjt_from(c.given["kjt"]) : small_batch(w); };
    if (pooled) {
      EmbeddingBagCollection module(c.runtime, std::move(options));
      (void)module.forward(batch());
    } else {
      EmbeddingCollection module(c.runtime, std::move(options));
      (void)module.forward(batch());
    }
  });
}

Tensor given_tensor(const CaseContext& c, const char* field, const Tensor& otherwise) {
  return c.given.contains(field) ? tensor_from(c.given[field]) : otherwise;
}

EmbeddingBag::Input bag_input(const CaseContext& c, const Words& w) {
  const bool two = w.has("2-?d");
  EmbeddingBag::Input input;
  input.indices = w.not_integers() ? Tensor::zeros({2}) : Tensor::from<int64_t>({0, 1});
  if (w.has("ind(ex|ices)") && w.negative()) input.indices = Tensor::from<int64_t>({0, -1});
  if (w.has("ind(ex|ices)") && w.too_big()) input.indices = Tensor::from<int64_t>({0, kRows});
  if (two) input.indices = input.indices.reshape({1, 2});
  input.offsets = Tensor::from<int64_t>({0, 1});
  if (w.has("offsets\\[0\\]|first offset")) input.offsets = Tensor::from<int64_t>({1, 2});
  if (w.has("offset.* past")) input.offsets = Tensor::from<int64_t>({0, 5});
  if (w.has("(no|without) offsets")) input.offsets = Tensor();
  if (w.has("weight")) input.per_sample_weights = Tensor::zeros({w.has("shape") ? 3 : 2});
  input.indices = given_tensor(c, "indices", input.indices);
  input.offsets = given_tensor(c, "offsets", input.offsets);
  input.per_sample_weights = given_tensor(c, "per_sample_weights", input.per_sample_weights);
  return input;
}

void single_table_error(CaseContext& c, const Words& w, bool bag) {
  expect_refusal(c, [&] {
    EmbeddingOptions o;
    o.weight = given_tensor(c, "weight", Tensor::zeros({kRows, 2}));
    o.num_embeddings = o.weight.size(0);
    o.embedding_dim = o.weight.size(1);
    o.kernel = c.kernel;
    o.include_last_offset = c.given.value("include_last_offset", false);
    o.mode = w.has("max") ? PoolingType::kMax : w.has("mean") ? PoolingType::kMean : PoolingType::kSum;
    const EmbeddingBag::Input input = bag_input(c, w);
    if (bag) {
      (void)EmbeddingBag(c.runtime, o).forward(input);
    } else {
      (void)Embedding(c.runtime, o).forward(input.indices);
    }
  });
}

}  // namespace

void embedding_error_op(CaseContext& c) {
  const Words w{c.given.at("what").get<std::string>()};
  if (w.has("EBC|EmbeddingBagCollection")) return collection_error(c, w, true);
  if (w.has("\\bEC\\b|EmbeddingCollection")) return collection_error(c, w, false);
  if (w.has("EmbeddingBag|embedding_bag")) return single_table_error(c, w, true);
  if (w.has("Embedding")) return single_table_error(c, w, false);
  if (c.given.contains("tables")) return collection_error(c, w, true);
  c.check.fail("what", str_cat("no call is known for \"", w.what, "\""));
}

}  // namespace tessera::cli
