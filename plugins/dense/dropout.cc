#include "dropout.h"

#include "piece.h"
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
    in_blocks(host_, run.batch * in(), kValuesWorthAThread, [&](int64_t begin, int64_t end, int64_t) {
      if (run.call.trains && rate_ > 0)
        drop_values(run.call, number_, begin, end - begin, rate_, from + begin, to + begin);
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

void drop_values(const tessera::sdk::ModuleCall& call, uint64_t stream, int64_t first, int64_t n, double rate,
                 const float* from, float* to) {
  const uint64_t key = random_key(call.seed, stream, call.step);
  const uint32_t keys[] = {static_cast<uint32_t>(key) + static_cast<uint32_t>(first), static_cast<uint32_t>(key >> 32)};
  const auto least = static_cast<uint32_t>(rate * 4294967296.0);
  choose_loops().of_rows->drop(n, keys, least, static_cast<float>(1 / (1 - rate)), from, to);
}

std::unique_ptr<Piece> make_dropout(tessera::sdk::Host host, int64_t width, double rate, uint64_t number) {
  return std::make_unique<DropoutPiece>(host, width, rate, number);
}

}  // namespace tessera_dense
