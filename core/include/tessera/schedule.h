// tessera/schedule.h - learning rates over the steps of a run.
//
//   const LearningRateSchedule rate({"linear?steps=500", "cosine?to=0.1"}, 10000);
//   optimizer.set_learning_rate(0.05 * rate.factor(step));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// The factor of a learning rate for each step. It has stages, one after the other, each "shape?option=value&...".
// With i of a stage's n steps done, x = i / n:
//
//   constant     factor                                            factor = 1
//   linear       from + (to - from) x                              from = 0, to = 1: a warm-up
//   cosine       to + (from - to) (1 + cos(pi x)) / 2              from = 1, to = 0
//   polynomial   to + (from - to) (1 - x)^power                    from = 1, to = 0, power = 2
//   exponential  from gamma^i                                      from = 1, gamma is needed
//   step         from gamma^floor(i / every)                       from = 1, gamma and every are needed
//
// `steps` is n. Only the last stage may leave it out, and then lasts to the end of the run. After the last stage its
// final value stays. The shapes are those of torch.optim.lr_scheduler: LinearLR, CosineAnnealingLR, PolynomialLR,
// ExponentialLR, StepLR.
class LearningRateSchedule {
 public:
  LearningRateSchedule() = default;  // always 1
  // `steps`: steps of the run, including earlier ones. kInvalidArgument names the stage and its error.
  LearningRateSchedule(const std::vector<std::string>& stages, int64_t steps);

  bool empty() const { return stages_.empty(); }
  double factor(int64_t step) const;  // for step 0, 1, ...

 private:
  enum class Shape { kConstant, kLinear, kCosine, kPolynomial, kExponential, kStep };
  struct Stage {
    Shape shape = Shape::kConstant;
    int64_t first = 0, steps = 0;
    double from = 1, to = 1, power = 1, gamma = 1;
    int64_t every = 1;
    double after(int64_t done) const;
  };
  std::vector<Stage> stages_;
};

}  // namespace tessera
