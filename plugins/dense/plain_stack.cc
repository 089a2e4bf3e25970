#include "plain_stack.h"

#include <utility>

namespace tessera_dense {

tessera::sdk::MlpLayers plain_layers(const std::vector<int64_t>& widths) {
  std::string list;
  for (const int64_t width : widths) list += (list.empty() ? "" : ", ") + std::to_string(width);
  tessera::sdk::Options options("{\"layers\": [" + list + "]}");
  return tessera::sdk::MlpLayers(options);
}

PlainStack::PlainStack(tessera::sdk::Host host, tessera::sdk::MlpLayers shape, Precision precision, int64_t experts)
    : host_(host),
      loops_(choose_loops()),
      shape_(std::move(shape)),
      experts_(experts),
      matrices_(host, precision),
      joined_biases_(shape_.count()) {
  matrices_.add(shape_.in(0), shape_.out(0), experts);
  for (size_t k = 1; k < shape_.count(); ++k)
    for_matrices(k, [&](size_t, int64_t, int64_t) { matrices_.add(shape_.in(k), shape_.out(k)); });
}

void PlainStack::take_parameters(const Pass& pass) {
  weights_.clear();
  biases_.clear();
  for (size_t k = 0; k < shape_.count(); ++k) {
    std::vector<float>& biases = joined_biases_[k];
    biases.clear();
    for (int64_t e = 0; e < experts_; ++e) {
      const float *w = pass.parameters[weight(k, e)], *bias = pass.parameters[weight(k, e) + 1];
      weights_.push_back(w);
      biases.insert(biases.end(), bias, bias + shape_.out(k));
    }
    biases_.push_back(biases.data());
  }
}

void PlainStack::forward(const Pass& pass) {
  take_parameters(pass);
  matrices_.prepare(loops_, weights_);
  in_blocks(host_, pass.batch, matrices_.block(pass.batch), [&](int64_t begin, int64_t end, int64_t) {
    const OneThread alone;
    pass.inputs.join(begin, end);
    forward_rows(pass, begin, end);
    if (pass.around) pass.around->after_forward(begin, end);
  });
}

void PlainStack::forward_rows(const Pass& pass, int64_t begin, int64_t end) const {
  const float* from = pass.x + begin * in(0);
  for (size_t k = 0; k < shape_.count(); ++k) {
    float* to = values(pass, k) + begin * out(k);
    for_matrices(k, [&](size_t i, int64_t x, int64_t y) {
      matrices_.multiply(loops_, i, end - begin, from + x, in(k), to + y, out(k));
    });
    loops_.add_bias(end - begin, out(k), biases_[k], shape_.relu(k), to);
    from = to;
  }
}

void PlainStack::infer(const Pass& pass) {
  constexpr int64_t kProducts = 256 << 10, kUnit = 4;
  // A sample's values do not depend on its block. Larger blocks read the weights less often, but with several blocks
  // per thread all threads end at about the same time.
  const int64_t blocks = host_.num_threads() == 1 ? 1 : 4 * int64_t{host_.num_threads()};
  const int64_t samples = std::max({(pass.batch + blocks - 1) / blocks, kProducts / matrices_.size(), kUnit});
  const int64_t block = (samples + kUnit - 1) / kUnit * kUnit;
  take_parameters(pass);
  matrices_.prepare_rounded(loops_, weights_);
  in_blocks(host_, pass.batch, block, [&](int64_t begin, int64_t end, int64_t) {
    pass.inputs.join(begin, end);
    infer_rows(pass, begin, end);
    if (pass.around) pass.around->after_forward(begin, end);
  });
}

void PlainStack::infer_rows(const Pass& pass, int64_t begin, int64_t end) const {
  const int64_t rows = end - begin;
  const float* from = pass.x + begin * in(0);
  for (size_t k = 0; k < shape_.count(); ++k) {
    float* const to = values(pass, k) + begin * out(k);
    if (matrices_.rounds(k == 0 ? 0 : 1 + (k - 1) * static_cast<size_t>(experts_))) {
      const OneThread alone;
      for_matrices(k, [&](size_t i, int64_t x, int64_t y) {
        matrices_.multiply(loops_, i, rows, from + x, in(k), to + y, out(k));
      });
      loops_.add_bias(rows, out(k), biases_[k], shape_.relu(k), to);
    } else {
      for (int64_t e = 0; e < experts_; ++e) {
        const float* const x = k == 0 ? from : from + e * shape_.in(k);
        const float *w = pass.parameters[weight(k, e)], *bias = pass.parameters[weight(k, e) + 1];
        loops_.affine(
            {0, rows, shape_.in(k), shape_.out(k), x, in(k), w, bias, to + e * shape_.out(k), out(k), shape_.relu(k)});
      }
    }
    from = to;
  }
}

void PlainStack::backward(const Pass& pass, const Gradients& g) {
  matrices_.start_gradients(pass.batch);
  for (int64_t first = 0, rows; first < pass.batch; first += rows) {
    rows = matrices_.part(pass.batch - first);
    start_part(pass, g, {first, rows});
    in_blocks(host_, rows, matrices_.block(rows), [&](int64_t begin, int64_t end, int64_t) {
      const OneThread alone;
      if (pass.around) pass.around->before_backward(first + begin, first + end);
      backward_rows(pass, g, {first, rows}, begin, end);
      if (dx_) pass.inputs.give(first + begin, first + end, first);
    });
    matrices_.add_gradients(loops_, rows, gradients_);
  }
}

void PlainStack::start_part(const Pass& pass, const Gradients& g, const Part& part) {
  const size_t last = shape_.count() - 1;
  float* dz = dz_.at_least(host_, part.rows * (experts_ * shape_.hidden_width() + output()));
  dx_ = pass.inputs.gradient(part.first, part.rows);
  gradients_.clear();
  for (size_t k = 0; k <= last; ++k) {
    const bool as_given = k == last && !shape_.relu(last);  // then g.y is used in place
    const float* dy = as_given ? g.y + part.first * out(k) : place(dz, part.rows, k);
    const float* x = (k == 0 ? pass.x : values(pass, k - 1)) + part.first * in(k);
    for (int64_t e = 0; e < experts_; ++e) {
      float* const* to = g.parameters + weight(k, e);
      gradients_.push_back({k == 0 ? x : x + e * shape_.in(k), in(k), dy + e * shape_.out(k), out(k), to[0], to[1]});
    }
  }
}

// Computes rows [begin, end) of the part.
void PlainStack::backward_rows(const Pass& pass, const Gradients& g, const Part& part, int64_t begin,
                               int64_t end) const {
  const int64_t rows = end - begin, row = part.first + begin;
  const size_t last = shape_.count() - 1;
  const float* dy = g.y + row * out(last);
  if (shape_.relu(last)) {
    float* const dz = place(dz_.data(), part.rows, last) + begin * out(last);
    loops_.mask(rows * out(last), pass.y + row * out(last), dy, dz);
    dy = dz;
  }
  for (size_t k = last + 1; k-- > 0;) {
    if (k == 0 && dx_ == nullptr) break;
    float* const dx = k == 0 ? dx_ + begin * in(0) : place(dz_.data(), part.rows, k - 1) + begin * in(k);
    for_matrices(k, [&](size_t i, int64_t x, int64_t y) {
      matrices_.multiply_back(loops_, i, rows, dy + y, out(k), dx + x, in(k), false);
    });
    if (k > 0) loops_.mask(rows * in(k), values(pass, k - 1) + row * in(k), dx, dx);
    dy = dx;
  }
  matrices_.take_rows(loops_, part.rows, begin, end, gradients_);
}

}  // namespace tessera_dense
