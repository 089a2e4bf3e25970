#include "dropout.h"

#include "chain_layer.h"
#include "combine.h"
#include "tessera/sdk/random.h"

namespace tessera_dense {
namespace {

// The key of a step's random numbers.
uint64_t random_key(uint64_t seed, uint64_t stream, int64_t step) {
  using tessera::sdk::kGoldenStep;
  return tessera::sdk::mixed(tessera::sdk::mixed(seed + kGoldenStep * stream) +
                             kGoldenStep * static_cast<uint64_t>(step));
}

class DropoutPiece : public Piece {
 public:
  DropoutPiece(tessera::sdk::Host host, int64_t width, double rate, uint64_t number)
      : Piece(width, width), host_(host), rate_(rate), number_(number) {}

  void forward(const Run& run, const float* x, float* y, float*) override { drop(run, x, y); }
  void backward(const Run& run, const float*, const float* dy, float* dx, const float*) override {
    if (dx) drop(run, dy, dx);
  }

 private:
  void drop(const Run& run, const float* from, float* to) const {
    const Dropper dropper(run.call, number_, rate_);
    in_blocks(host_, run.batch * in(), kValuesWorthAThread, [&](int64_t begin, int64_t end, int64_t) {
      if (run.call.trains && rate_ > 0)
        dropper.drop(begin, end - begin, from + begin, to + begin);
      else
        std::copy_n(from + begin, end - begin, to + begin);
    });
  }

  tessera::sdk::Host host_;
  double rate_;
  uint64_t number_;
};

}  // namespace

double read_rate(tessera::sdk::Options& options, const char* name, double otherwise) {
  const double rate = options.number(name, otherwise);
  if (!(rate >= 0 && rate < 1)) {
    tessera::sdk::fail(TSR_INVALID_ARGUMENT, "option \"", name, "\" must be at least 0 and below 1, not ", rate);
  }
  return rate;
}

Dropper::Dropper(const tessera::sdk::ModuleCall& call, uint64_t stream, double rate)
    : loops_(*choose_loops().of_rows),
      key_(random_key(call.seed, stream, call.step)),
      least_(static_cast<uint32_t>(rate * 4294967296.0)),
      scale_(static_cast<float>(1 / (1 - rate))) {}

Dropout::Dropout(const tessera::sdk::Setup& setup)
    : host_(setup.host),
      rate_(read_rate(setup.options, "rate", 0.5)),
      joined_(setup.host, "dropout", needed_width(setup.options, "dropout")) {}

// Forward writes each input to its columns of the output; `back` takes each input's gradient from those columns.
void Dropout::pass(const tessera::sdk::ModuleCall& call, std::span<const DLTensor> parts, const DLTensor& whole,
                   bool back) const {
  const int64_t width = joined_.width_of(call);
  float* all = matrix(whole, call.batch, width, "dropout's output or its gradient");
  const Dropper dropper(call, 0, rate_);
  in_row_blocks(host_, call.batch, width, [&](int64_t begin, int64_t end) {
    int64_t column = 0;
    for (const DLTensor& t : parts) {
      const int64_t w = t.shape[1];
      float* part = matrix_or_null(t, call.batch, w, "an input of dropout or its gradient");
      for (int64_t s = begin; part && s < end; ++s) {
        const int64_t at = s * width + column;
        float *from = part + s * w, *to = all + at;
        if (back) std::swap(from, to);
        if (call.trains && rate_ > 0)
          dropper.drop(at, w, from, to);
        else
          std::copy_n(from, w, to);
      }
      column += w;
    }
  });
}

void Dropout::compute(const tessera::sdk::ModuleCall& call) { pass(call, call.inputs, call.outputs[0], false); }
void Dropout::compute_back(const tessera::sdk::ModuleCall& call) {
  pass(call, call.grad_inputs, call.grad_outputs[0], true);
}

std::unique_ptr<Piece> make_dropout(tessera::sdk::Host host, int64_t width, double rate, uint64_t number) {
  return std::make_unique<DropoutPiece>(host, width, rate, number);
}

}  // namespace tessera_dense
