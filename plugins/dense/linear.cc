#include "linear.h"

#include <dnnl.h>
#include <omp.h>

#include <algorithm>

namespace tessera_dense {
namespace {

constexpr size_t kPlans = 8;  // batch sizes remembered per layer

void check(dnnl_status_t status, const char* what) {
  if (status != dnnl_success) tessera::sdk::fail(TSR_INTERNAL, "oneDNN: ", what, " failed with status ", int{status});
}

float* unconst(const float* p) { return const_cast<float*>(p); }  // oneDNN has no memory of constants

dnnl::inner_product_forward::primitive_desc describe(const dnnl::engine& engine, const dnnl::memory::desc& x,
                                                     const dnnl::memory::desc& w, const dnnl::memory::desc& b,
                                                     const dnnl::memory::desc& y, bool relu) {
  dnnl::post_ops ops;
  dnnl::primitive_attr attributes;
#if DNNL_VERSION_MAJOR >= 3
  if (relu) ops.append_eltwise(dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
  attributes.set_post_ops(ops);
  return {engine, dnnl::prop_kind::forward_inference, x, w, b, y, attributes};
#else
  if (relu) ops.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
  attributes.set_post_ops(ops);
  return {{dnnl::prop_kind::forward_inference, x, w, b, y}, attributes, engine};
#endif
}

}  // namespace

ThreadScope::ThreadScope(uint32_t threads) : before_(omp_get_max_threads()) {
  omp_set_num_threads(static_cast<int>(std::max(threads, 1u)));
}
ThreadScope::~ThreadScope() { omp_set_num_threads(before_); }

Linear::Plan Linear::make_plan(int64_t batch) const {
  using Desc = dnnl::memory::desc;
  using Tag = dnnl::memory::format_tag;
  const auto f32 = dnnl::memory::data_type::f32;
  const Desc x({batch, in_}, f32, Tag::nc), w({out_, in_}, f32, Tag::oi), y({batch, out_}, f32, Tag::nc);
  const Desc b = bias_ ? Desc({out_}, f32, Tag::x) : Desc();
  const auto chosen = describe(engine_, x, Desc({out_, in_}, f32, Tag::any), b, y, relu_);

  Plan plan;
  plan.batch = batch;
  plan.threads = omp_get_max_threads();
  plan.multiply = dnnl::inner_product_forward(chosen);
  plan.x = dnnl::memory(x, engine_, nullptr);
  plan.w = dnnl::memory(w, engine_, nullptr);
  plan.y = dnnl::memory(y, engine_, nullptr);
  plan.packs = chosen.weights_desc() != w;
  if (plan.packs) {
    plan.packed = dnnl::memory(chosen.weights_desc(), engine_);
    plan.pack = dnnl::reorder(plan.w, plan.packed);
    plan.pack_args = {{DNNL_ARG_FROM, plan.w}, {DNNL_ARG_TO, plan.packed}};
  }
  plan.multiply_args = {
      {DNNL_ARG_SRC, plan.x}, {DNNL_ARG_WEIGHTS, plan.packs ? plan.packed : plan.w}, {DNNL_ARG_DST, plan.y}};
  if (bias_) {
    plan.b = dnnl::memory(b, engine_, nullptr);
    plan.multiply_args.insert({DNNL_ARG_BIAS, plan.b});
  }
  return plan;
}

Linear::Plan& Linear::plan(int64_t batch) {
  const int threads = omp_get_max_threads();
  const auto found = std::find_if(plans_.begin(), plans_.end(),
                                  [&](const Plan& plan) { return plan.batch == batch && plan.threads == threads; });
  if (found != plans_.end()) {
    std::rotate(found, found + 1, plans_.end());
  } else {
    Plan made = make_plan(batch);
    if (plans_.size() == kPlans) plans_.erase(plans_.begin());
    plans_.push_back(std::move(made));
  }
  return plans_.back();
}

void Linear::forward(int64_t batch, const float* x, const float* w, const float* b, float* y) {
  if (batch == 0) return;
  Plan& p = plan(batch);
  p.x.set_data_handle(unconst(x));
  p.w.set_data_handle(unconst(w));
  p.y.set_data_handle(y);
  if (bias_) p.b.set_data_handle(unconst(b));
  if (p.packs) p.pack.execute(stream_, p.pack_args);
  p.multiply.execute(stream_, p.multiply_args);
  stream_.wait();
}

void Linear::backward(int64_t batch, const float* x, const float* w, const float* dz, float* grad_x,
                      float* grad_w) const {
  if (batch == 0) return;
  check(dnnl_sgemm('T', 'N', out_, in_, batch, 1.0f, dz, out_, x, in_, 1.0f, grad_w, in_), "the weights' gradient");
  if (!grad_x) return;
  check(dnnl_sgemm('N', 'N', batch, in_, out_, 1.0f, dz, out_, w, in_, 0.0f, grad_x, in_), "the input's gradient");
}

}  // namespace tessera_dense
