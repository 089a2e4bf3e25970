#include "plain_stack.h"

#include <utility>

namespace tessera_dense {

PlainStack::PlainStack(tessera::sdk::Host host, tessera::sdk::MlpLayers shape, Precision precision)
    : host_(host), loops_(choose_loops()), shape_(std::move(shape)), matrices_(host, precision) {
  for (size_t k = 0; k < shape_.count(); ++k) {
    matrices_.add(shape_.in(k), shape_.out(k));
    products_ += shape_.in(k)*shape_.out(k);
  }
}

float* PlainStack::values(size_t k, const Pass& pass, float* last) const {
  return k + 1 == shape_.count() ? last : shape_.hidden(pass.hidden, pass.batch, k);
}

// Computes rows [begin, end) of the last layer's output, for outputs whose rows are not contiguous.
void PlainStack::multiply_last(const Pass& pass, int64_t begin, int64_t end, const float* from) const {
  const size_t last = shape_.count() - 1;
  const int64_t out = shape_.out(last), stride = pass.y.stride;
  float* to = pass.y.data + begin * stride;
  matrices_.multiply(loops_, last, end - begin, from, to, stride);
  for (; begin < end; ++begin, to += stride)
    loops_.add_bias(1, out, pass.parameters[2 * last + 1], shape_.relu(last), to);
}

void PlainStack::take_weights(const Pass& pass) {
  weights_.clear();
  for (size_t k = 0; k < shape_.count(); ++k) weights_.push_back(pass.parameters[2 * k]);
}

void PlainStack::forward(std::span<PlainStack> stacks, std::span<const Pass> passes) {
  for (size_t i = 0; i < stacks.size(); ++i) {
    stacks[i].take_weights(passes[i]);
    stacks[i].matrices_.prepare(stacks[i].loops_, stacks[i].weights_);
  }
  const JoinedBlocks* const inputs = passes[0].inputs;
  const int64_t batch = passes[0].batch, block = stacks[0].matrices_.block(batch);
  in_blocks(stacks[0].host_, batch, block, [&](int64_t begin, int64_t end, int64_t) {
    const OneThread alone;
    if (inputs) inputs->join(begin, end);
    for (size_t i = 0; i < stacks.size(); ++i) stacks[i].forward_rows(passes[i], begin, end);
  });
}

void PlainStack::forward_rows(const Pass& pass, int64_t begin, int64_t end) const {
  const float* from = pass.x + begin * shape_.input();
  for (size_t k = 0; k < shape_.count(); ++k) {
    if (k + 1 == shape_.count() && pass.y.stride != shape_.output()) return multiply_last(pass, begin, end, from);
    float* to = values(k, pass, pass.y.data) + begin * shape_.out(k);
    matrices_.multiply(loops_, k, end - begin, from, to, shape_.out(k));
    loops_.add_bias(end - begin, shape_.out(k), pass.parameters[2 * k + 1], shape_.relu(k), to);
    from = to;
  }
}

void PlainStack::infer(const Pass& pass) {
  constexpr int64_t kProducts = 256 << 10, kUnit = 4;
  // A sample's values do not depend on its block. Larger blocks read the weights less often, but with several blocks
  // per thread all threads end at about the same time.
  const int64_t blocks = host_.num_threads() == 1 ? 1 : 4 * int64_t{host_.num_threads()};
  const int64_t samples = std::max({(pass.batch + blocks - 1) / blocks, kProducts / products_, kUnit});
  const int64_t block = (samples + kUnit - 1) / kUnit * kUnit;
  const int64_t width = shape_.output();
  const bool apart = pass.y.stride != width;
  float* last = apart ? last_.at_least(host_, pass.batch * width) : pass.y.data;
  take_weights(pass);
  matrices_.prepare_rounded(loops_, weights_);
  in_blocks(host_, pass.batch, block, [&](int64_t begin, int64_t end, int64_t) {
    if (pass.inputs) pass.inputs->join(begin, end);
    const float* from = pass.x;
    for (size_t k = 0; k < shape_.count(); ++k) {
      float* to = values(k, pass, last);
      const int64_t in = shape_.in(k), out = shape_.out(k);
      const float *w = pass.parameters[2 * k], *bias = pass.parameters[2 * k + 1];
      if (matrices_.rounds(k)) {
        const OneThread alone;
        matrices_.multiply(loops_, k, end - begin, from + begin * in, to + begin * out, out);
        loops_.add_bias(end - begin, out, bias, shape_.relu(k), to + begin * out);
      } else {
        loops_.affine({begin, end - begin, in, out, from, w, bias, to, shape_.relu(k)});
      }
      from = to;
    }
    for (int64_t s = begin; apart && s < end; ++s)
      std::copy_n(last + s * width, width, pass.y.data + s * pass.y.stride);
  });
}

void PlainStack::backward(std::span<PlainStack> stacks, std::span<const Pass> passes,
                          std::span<const Gradients> gradients) {
  const int64_t batch = passes[0].batch, count = std::ssize(stacks), tiles = stacks[0].matrices_.tiles();
  const JoinedBlocks* const inputs = gradients[0].x ? passes[0].inputs : nullptr;
  const tessera::sdk::Host host = stacks[0].host_;
  for (PlainStack& one : stacks) one.matrices_.start_gradients(batch);
  for (int64_t first = 0, rows; first < batch; first += rows) {
    rows = stacks[0].matrices_.part(batch - first);
    for (size_t i = 0; i < stacks.size(); ++i) stacks[i].start_part(passes[i], gradients[i], {first, rows});
    in_blocks(host, rows, stacks[0].matrices_.block(rows), [&](int64_t begin, int64_t end, int64_t) {
      const OneThread alone;
      for (size_t i = 0; i < stacks.size(); ++i)
        stacks[i].backward_rows(passes[i], gradients[i], {first, rows}, begin, end);
      if (inputs) inputs->give(first + begin, first + end);
    });
    const bool worth_threads = rows * count * stacks[0].matrices_.size() >= kGradientsWorthThreads;
    one_by_one(host, count * tiles, worth_threads, [&](int64_t i) {
      const PlainStack& one = stacks[static_cast<size_t>(i / tiles)];
      one.matrices_.add_tile(one.loops_, rows, one.gradients_, i % tiles);
    });
  }
}

void PlainStack::start_part(const Pass& pass, const Gradients& g, const Part& part) {
  const int64_t width = shape_.output();
  const size_t last = shape_.count() - 1;
  const bool as_given = !shape_.relu(last) && g.y.stride == width;  // then g.y is used in place
  float* dz = dz_.at_least(host_, part.rows * (shape_.hidden_width() + width));
  gradients_.clear();
  for (size_t k = 0; k <= last; ++k) {
    const float* dy = k == last && as_given ? g.y.data + part.first * width : shape_.hidden(dz, part.rows, k);
    const float* x = k == 0 ? pass.x : shape_.hidden(pass.hidden, pass.batch, k - 1);
    gradients_.push_back({x + part.first * shape_.in(k), dy, g.parameters[2 * k], g.parameters[2 * k + 1]});
  }
}

// Computes rows [begin, end) of the part.
void PlainStack::backward_rows(const Pass& pass, const Gradients& g, const Part& part, int64_t begin,
                               int64_t end) const {
  const int64_t width = shape_.output(), rows = end - begin;
  const size_t last = shape_.count() - 1;
  float* to = shape_.hidden(dz_.data(), part.rows, last) + begin * width;  // before the ReLU, like all of dz
  const bool in_dz = gradients_[last].dy == to - begin * width;
  for (int64_t s = part.first + begin; in_dz && s < part.first + end; ++s, to += width) {
    const float* dy = g.y.data + s * g.y.stride;
    if (shape_.relu(last))
      loops_.mask(width, pass.y.data + s * pass.y.stride, dy, to);
    else
      std::copy_n(dy, width, to);
  }
  for (size_t k = last + 1; k-- > 0;) {
    const int64_t in = shape_.in(k), out = shape_.out(k);
    const float* dy = gradients_[k].dy + begin * out;
    if (k == 0 && g.x == nullptr) break;
    float* dx = k == 0 ? g.x + (part.first + begin) * in : shape_.hidden(dz_.data(), part.rows, k - 1) + begin * in;
    matrices_.multiply_back(loops_, k, rows, dy, dx, k == 0 && g.add);
    if (k > 0) loops_.mask(rows * in, gradients_[k].x + begin * in, dx, dx);
  }
  matrices_.take_rows(loops_, part.rows, begin, end, gradients_);
}

}  // namespace tessera_dense
