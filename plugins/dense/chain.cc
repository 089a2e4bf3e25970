#include "piece.h"

namespace tessera_dense {

void Chain::add(std::unique_ptr<Piece> piece, const std::string& prefix) {
  first_parameter_.push_back(parameters_.size());
  first_buffer_.push_back(buffers_.size());
  for (tessera::sdk::Parameter p : piece->parameters()) {
    p.name = prefix + p.name;
    parameters_.push_back(std::move(p));
  }
  for (tessera::sdk::Parameter b : piece->buffers()) {
    b.name = prefix + b.name;
    buffers_.push_back(std::move(b));
  }
  pieces_.push_back(std::move(piece));
}

// The memory has the state of each piece, followed by its output; the place of the last output stays unused.
int64_t Chain::kept(int64_t batch) const {
  int64_t floats = 0;
  for (const auto& piece : pieces_) floats += piece->kept(batch) + batch * piece->out();
  return floats;
}

Run Chain::of_piece(const Run& run, size_t i) const {
  Run one = run;
  one.parameters += first_parameter_[i];
  if (one.gradients) one.gradients += first_parameter_[i];
  if (one.buffers) one.buffers += first_buffer_[i];
  return one;
}

void Chain::forward(const Run& run, const float* x, float* y, float* memory) {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    float* own = memory;
    memory += pieces_[i]->kept(run.batch);
    float* to = i + 1 == pieces_.size() ? y : memory;
    pieces_[i]->forward(of_piece(run, i), x, to, own);
    memory += run.batch * pieces_[i]->out();
    x = to;
  }
}

void Chain::backward(const Run& run, const float* x, const float* dy, float* dx, const float* memory) {
  const float* end = memory + kept(run.batch);
  for (size_t i = pieces_.size(); i-- > 0;) {
    end -= pieces_[i]->kept(run.batch) + run.batch * pieces_[i]->out();
    const float* from = i == 0 ? x : end - run.batch * pieces_[i]->in();  // output of the previous piece
    float* to = i == 0 ? dx : gradients_[i % 2].at_least(host_, run.batch * pieces_[i]->in());
    pieces_[i]->backward(of_piece(run, i), from, dy, to, end);
    dy = to;
  }
}

}  // namespace tessera_dense
