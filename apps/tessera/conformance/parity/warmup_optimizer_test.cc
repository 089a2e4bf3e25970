#include "conformance/parity/warmup_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using testing::ElementsAre;

ParameterPtr one_value() {
  auto out = std::make_shared<Parameter>();
  out->name = "p";
  out->value = Tensor::from<float>({1});
  return out;
}

TEST(Warmup, ComposesAndResumes) {
  WarmupStage linear{.max_iters = 2, .value = 0.5};
  const auto make = [&](const ParameterPtr& p, double rate) {
    auto inner = std::make_shared<CombinedOptimizer>(
        std::vector<CombinedOptimizer::Member>{{"x", make_adagrad({}, {p})}, {"y", make_sgd({}, {})}});
    return std::make_shared<WarmupOptimizer>(inner, WarmupOptimizer::Options{{linear}, rate, "lr"});
  };
  const ParameterPtr p = one_value(), q = one_value();
  const auto a = make(p, 1), b = make(q, 1);
  for (int i = 0; i < 3; ++i) a->step();
  EXPECT_EQ(a->param_groups()[1].number("lr"), 1);
  EXPECT_EQ(b->param_groups()[0].number("lr"), 0.5);
  b->load_state_dict(a->state_dict());
  EXPECT_EQ(b->param_groups()[0].number("lr"), 1);
  EXPECT_THAT(b->state_keys(), ElementsAre("x.p", "__warmup"));
  CombinedOptimizer outer({{"o", a}});
  outer.set_state("o.__warmup", {{"warmup", Tensor::from<int64_t>({1, 0})}});
  EXPECT_THAT(a->state().back().second[0].second.to_vector<int64_t>(), ElementsAre(1, 0));
}

}  // namespace
}  // namespace tessera
