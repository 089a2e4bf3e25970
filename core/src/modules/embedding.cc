// nn.EmbeddingBag and nn.Embedding: one table, without names.
#include <algorithm>
#include <utility>

#include "modules/embedding_tables.h"
#include "sparse/arrays.h"

namespace tessera {
namespace {

EmbeddingBagConfig config_of(const EmbeddingOptions& o) {
  return {.name = "weight", .num_embeddings = o.num_embeddings, .embedding_dim = o.embedding_dim, .pooling = o.mode};
}

std::shared_ptr<Lookup> make_lookup(const Runtime& runtime, const EmbeddingOptions& o) {
  LookupOptions options{.kernel = o.kernel, .tables = {{"weight", o.num_embeddings, o.embedding_dim}}};
  return std::make_shared<Lookup>(runtime, std::move(options));
}

// Lists the entries of one bag, or of one id if nothing is pooled: what each occurrence adds to its row.
void append_bag(PoolingType pooling, const float* weights, int64_t count, int64_t dim, const float* grad, float* out) {
  const float share = pooling == PoolingType::kMean ? 1.0f / static_cast<float>(std::max<int64_t>(count, 1)) : 1.0f;
  for (int64_t i = 0; i < count; ++i) {
    const float scale = weights != nullptr ? share * weights[i] : share;
    const float* from = pooling == PoolingType::kNone ? grad + i * dim : grad;
    for (int64_t d = 0; d < dim; ++d) out[i * dim + d] = scale * from[d];
  }
}

RowGradient without_row(const RowGradient& all, int64_t row) {
  const int64_t dim = all.values.size(1), count = all.rows.numel();
  const int64_t* rows = all.rows.data<int64_t>();
  const int64_t kept = count - std::count(rows, rows + count, row);
  if (kept == count) return all;
  RowGradient out{Tensor::empty({kept}, DType::kInt64), Tensor::empty({kept, dim})};
  for (int64_t i = 0, to = 0; i < count; ++i) {
    if (rows[i] == row) continue;
    out.rows.data<int64_t>()[to] = rows[i];
    std::copy_n(all.values.data<float>() + i * dim, dim, out.values.data<float>() + to++ * dim);
  }
  return out;
}

}  // namespace

struct EmbeddingBag::Impl {
  EmbeddingOptions options;
  std::shared_ptr<Lookup> lookup;

  // Returns padding_idx if such ids are left out of bags; -1 if there is none, or if nothing is pooled.
  int64_t left_out() const {
    return options.mode == PoolingType::kNone || !options.padding_idx ? -1 : *options.padding_idx;
  }
  BoundsInput bags_of(const Input& input) const;
  // `weights_like` has the per-sample weights as the caller gave them, for the shape of their gradient.
  Tensor forward(const BoundsInput& input, const Tensor& weights_like, EmbeddingContext* context);
};

namespace {

BoundsInput rows_as_bags(const Tensor& indices) {
  BoundsInput out;
  const int64_t bags = indices.size(0), width = indices.size(1);
  out.ids = indices.reshape({indices.numel()});
  out.offsets = Tensor::empty({bags + 1}, DType::kInt64);
  for (int64_t i = 0; i <= bags; ++i) out.offsets.data<int64_t>()[i] = i * width;
  return out;
}

}  // namespace

BoundsInput EmbeddingBag::Impl::bags_of(const Input& input) const {
  const Tensor& weights = input.per_sample_weights;
  if (weights.defined() && options.mode != PoolingType::kSum) {
    fail(Code::kInvalidArgument, "per_sample_weights need the mode SUM, not ", to_string(options.mode));
  }
  if (weights.defined() && weights.shape() != input.indices.shape()) {
    fail(Code::kInvalidArgument, "per_sample_weights are ", shape_text(weights.shape()), ", the indices ",
         shape_text(input.indices.shape()), ": there must be one for each index");
  }
  BoundsInput out;
  if (input.indices.dim() == 2) {
    if (input.offsets.defined()) {
      fail(Code::kInvalidArgument, "2-D indices are bags of equal length: give no offsets with them");
    }
    out = rows_as_bags(input.indices);
    if (weights.defined()) out.weights = weights.reshape({weights.numel()});
    return out;
  }
  if (input.indices.dim() != 1 || !input.offsets.defined() || input.offsets.dim() != 1) {
    fail(Code::kInvalidArgument, "give 1-D indices with 1-D offsets, or 2-D indices without offsets");
  }
  if (!is_integer(input.offsets.dtype())) fail(Code::kInvalidArgument, "offsets must be integers");
  std::vector<int64_t> offsets(static_cast<size_t>(input.offsets.numel()));
  for (size_t i = 0; i < offsets.size(); ++i)
    offsets[i] = static_cast<int64_t>(input.offsets.item(static_cast<int64_t>(i)));
  const int64_t count = input.indices.numel();
  if (options.include_last_offset && offsets.empty()) {
    fail(Code::kInvalidArgument, "with include_last_offset there is at least one offset");
  }
  if (!options.include_last_offset) offsets.push_back(count);
  if (offsets.front() != 0) fail(Code::kInvalidArgument, "the first offset must be 0, not ", offsets.front());
  if (offsets.size() > 1 && *std::max_element(offsets.begin(), offsets.end()) > count) {
    fail(Code::kInvalidArgument, "offset ", *std::max_element(offsets.begin(), offsets.end()),
         " lies past the end of the ", count, " indices");
  }
  const int64_t used = std::clamp<int64_t>(offsets.back(), 0, count);  // the last offset may end before the indices do
  out.ids = input.indices.narrow(0, used);
  if (weights.defined()) out.weights = weights.narrow(0, used);
  out.offsets = Tensor::from(offsets);
  return out;
}

Tensor EmbeddingBag::Impl::forward(const BoundsInput& given, const Tensor& weights_like, EmbeddingContext* context) {
  const BoundsFeature feature{"indices", "weight", options.num_embeddings, 0, given.offsets.numel() - 1, left_out()};
  BoundsInput input = given;
  input.features = {&feature, 1};
  auto state = std::make_unique<EmbeddingContext::State>();
  state->owner = lookup.get();
  state->ids = make_lookup_ids(input, check_bounds(options.bounds_check, input), {options.mode});
  state->input_weights = weights_like;
  state->calls.push_back({lookup, 0, LookupBatch(state->ids), {}});
  EmbeddingContext::State::Call& call = state->calls.front();
  const LookupIds::Feature& bags = state->ids.features.front();
  call.batch.add(0, bags, 0, options.embedding_dim);
  Tensor output = Tensor::empty({bags.rows, options.embedding_dim});
  lookup->forward(call.batch.view(), output, context != nullptr ? &call.context : nullptr);
  state->output_shape = output.shape();
  if (context != nullptr) context->state_ = std::move(state);
  return output;
}

EmbeddingBag::EmbeddingBag(const Runtime& runtime, EmbeddingOptions o) : impl_(std::make_unique<Impl>()) {
  std::optional<int64_t>& padding = o.padding_idx;
  if (padding && *padding < 0) *padding += o.num_embeddings;
  if (padding && (*padding < 0 || *padding >= o.num_embeddings)) {
    fail(Code::kInvalidArgument, "padding_idx must be one of the ", o.num_embeddings, " rows");
  }
  const EmbeddingBagConfig table = validated({config_of(o)}).front();
  impl_->lookup = make_lookup(runtime, o);
  impl_->options = std::move(o);
  if (impl_->options.weight.defined()) {
    set_weight(impl_->options.weight);
    impl_->options.weight = Tensor();
    return;
  }
  Tensor start = Tensor::empty({table.num_embeddings, table.embedding_dim});
  initial_values(table, impl_->options.seed, 0, table.num_embeddings, 0, table.embedding_dim, start.data<float>());
  if (padding) start.narrow(*padding, 1).fill(0);
  set_weight(start);
}
EmbeddingBag::~EmbeddingBag() = default;

Tensor EmbeddingBag::weight() const { return impl_->lookup->weight(0); }
void EmbeddingBag::set_weight(const Tensor& value) {
  if (value.shape() != std::vector<int64_t>{impl_->options.num_embeddings, impl_->options.embedding_dim}) {
    fail(Code::kInvalidArgument, "the weight is [", impl_->options.num_embeddings, ", ", impl_->options.embedding_dim,
         "], the one given ", shape_text(value.shape()));
  }
  impl_->lookup->set_weight(0, value);
}

Tensor EmbeddingBag::forward(const Input& input, EmbeddingContext* context) {
  if (impl_->options.mode == PoolingType::kNone) {
    fail(Code::kInvalidArgument, "an EmbeddingBag pools: its mode is SUM, MEAN or MAX");
  }
  return impl_->forward(impl_->bags_of(input), input.per_sample_weights, context);
}

EmbeddingGradients EmbeddingBag::backward(EmbeddingContext context, const Tensor& grad_output) {
  EmbeddingContext::State* state = context.state_.get();
  require_context(state, impl_->lookup.get(), 0);
  require_gradient(grad_output, state->output_shape, "grad_output");
  EmbeddingContext::State::Call& call = state->calls.front();
  EmbeddingGradients out;
  Tensor weights;
  if (state->input_weights.defined()) {
    out.per_sample_weights = Tensor::zeros(state->input_weights.shape());
    weights = Tensor::zeros({state->ids.ids.numel()});
  }
  std::vector<RowGradient> rows =
      call.lookup->backward_rows(std::move(call.context), call.batch.view(), grad_output, 1, weights);
  if (weights.defined()) add_weight_gradients(state->ids, weights, out.per_sample_weights);
  RowGradient gradient = std::move(rows.front());
  if (impl_->options.padding_idx) gradient = without_row(gradient, *impl_->options.padding_idx);
  out.tables.push_back({"weight", DType::kFloat32, impl_->options.num_embeddings, std::move(gradient)});
  return out;
}

RowGradient EmbeddingBag::uncoalesced_gradient(const EmbeddingContext& context, const Tensor& grad_output) const {
  const EmbeddingContext::State* state = context.state_.get();
  require_context(state, impl_->lookup.get(), 0);
  require_gradient(grad_output, state->output_shape, "grad_output");
  const LookupIds& ids = state->ids;
  const LookupIds::Feature& feature = ids.features.front();
  if (feature.pooling == PoolingType::kMax) {
    fail(Code::kUnimplemented, "MAX pooling has no gradient for each lookup");
  }
  const int64_t dim = impl_->options.embedding_dim, count = ids.ids.numel();
  RowGradient out{ids.ids.to(DType::kInt64).clone(), Tensor::zeros({count, dim})};
  for (int64_t bag = 0; bag < feature.bags; ++bag) {
    const int64_t start = sparse::integer_at(ids.offsets, bag), end = sparse::integer_at(ids.offsets, bag + 1);
    const float* weights = ids.weights.defined() ? ids.weights.data<float>() + start : nullptr;
    const float* grad = grad_output.data<float>() + (feature.pooling == PoolingType::kNone ? start : bag) * dim;
    append_bag(feature.pooling, weights, end - start, dim, grad, out.values.data<float>() + start * dim);
  }
  return impl_->options.padding_idx ? without_row(out, *impl_->options.padding_idx) : out;
}

namespace {

EmbeddingOptions unpooled(EmbeddingOptions options) {
  options.mode = PoolingType::kNone;
  return options;
}

}  // namespace

Embedding::Embedding(const Runtime& runtime, EmbeddingOptions options) : bag_(runtime, unpooled(std::move(options))) {}

Tensor Embedding::forward(const Tensor& indices, EmbeddingContext* context) {
  BoundsInput input{.ids = indices.reshape({indices.numel()}), .offsets = Tensor::from<int64_t>({0, indices.numel()})};
  std::vector<int64_t> shape = indices.shape();
  shape.push_back(bag_.impl_->options.embedding_dim);
  return bag_.impl_->forward(input, {}, context).reshape(shape);
}

EmbeddingGradients Embedding::backward(EmbeddingContext context, const Tensor& grad_output) {
  return bag_.backward(std::move(context), grad_output.reshape({-1, bag_.impl_->options.embedding_dim}));
}

RowGradient Embedding::uncoalesced_gradient(const EmbeddingContext& context, const Tensor& grad_output) const {
  return bag_.uncoalesced_gradient(context, grad_output.reshape({-1, bag_.impl_->options.embedding_dim}));
}

}  // namespace tessera
