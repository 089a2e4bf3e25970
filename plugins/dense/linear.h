// Matrix products by oneDNN, and how its threads are kept to the host's number.
#pragma once

#include <dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "tessera/sdk/host.h"

namespace tessera_dense {

// oneDNN runs on libgomp, whose thread count belongs to the calling thread: set for one scope, then put back.
class ThreadScope {
 public:
  explicit ThreadScope(uint32_t threads);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int before_;
};

// y = x W^T + b and its backward. x [batch, in], W [out, in], b [out], y [batch, out]. Inside a ThreadScope.
class Linear {
 public:
  Linear(int64_t in, int64_t out, bool bias, bool relu) : in_(in), out_(out), bias_(bias), relu_(relu) {}

  int64_t in() const { return in_; }
  int64_t out() const { return out_; }
  bool relu() const { return relu_; }

  // `b` NULL if and only if made without bias. With relu, y is max(y, 0).
  void forward(int64_t batch, const float* x, const float* w, const float* b, float* y);
  // dz: the gradient of y, before the ReLU. grad_x is written (NULL: not wanted), grad_w added to. Uses plain products:
  // oneDNN's inner_product backward is slower.
  void backward(int64_t batch, const float* x, const float* w, const float* dz, float* grad_x, float* grad_w) const;

 private:
  // What oneDNN made for one batch size and thread count; the memory objects get their pointers at every call.
  struct Plan {
    int64_t batch;
    int threads;
    dnnl::primitive multiply, pack;
    dnnl::memory x, w, packed, b, y;
    std::unordered_map<int, dnnl::memory> multiply_args, pack_args;
    bool packs;  // oneDNN wants the weights in a layout of its own
  };
  Plan& plan(int64_t batch);
  Plan make_plan(int64_t batch) const;

  int64_t in_, out_;
  bool bias_, relu_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::vector<Plan> plans_;  // the most recently used last
};

}  // namespace tessera_dense
