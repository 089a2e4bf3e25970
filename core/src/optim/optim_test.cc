#include "tessera/optim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "config/test_refusal.h"
namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ParameterPtr parameter(const char* name, const std::vector<float>& value) {
  auto p = std::make_shared<Parameter>();
  p->name = name;
  p->value = Tensor::from(value);
  return p;
}

std::string error_of(const std::function<void()>& call) {
  return test::refusal([&] { call(); }, "nothing was refused");
}

TEST(OptimTest, ParameterWithoutGradientStays) {
  const auto a = parameter("a", {1, 2}), b = parameter("b", {3});
  const auto optimizer = make_adam({}, {a, b});
  a->grad = Tensor::from<float>({1, -1});
  optimizer->step();
  EXPECT_THAT(optimizer->state_keys(), ElementsAre("a"));
  EXPECT_EQ(b->value.item(), 3);
  EXPECT_NEAR(a->value.item(0), 1 - 1e-3, 1e-6);
  EXPECT_NEAR(a->value.item(1), 2 + 1e-3, 1e-6);
}

// PyTorch has the decays in double: 1 - 0.999 is not 1 - 0.999f. A large value must leave no trace in the average.
TEST(OptimTest, AdamAveragesKeepTheirDigits) {
  const auto a = parameter("a", {0});
  AdamOptions options{.beta1 = 0};
  const auto optimizer = make_adam(options, {a});
  a->grad = Tensor::from<float>({1e6f});
  optimizer->step();
  EXPECT_NEAR(optimizer->state()[0].second[2].second.item(), 1e9, 1e3);
  a->grad = Tensor::from<float>({0.25f});
  optimizer->step();
  EXPECT_EQ(optimizer->state()[0].second[1].second.item(), 0.25);
}

TEST(OptimTest, AdamwTakesTheDecayOffTheValue) {
  const auto with = parameter("a", {2, -4}), without = parameter("a", {2 * 0.95f, -4 * 0.95f});
  const auto adamw = make_dense_optimizer({"adamw", R"({"lr": 0.1, "weight_decay": 0.5})"}, {with});
  const auto adam = make_dense_optimizer({"Adam", R"({"lr": 0.1})"}, {without});
  for (const auto& p : {with, without}) p->grad = Tensor::from<float>({3, 0.5});
  adamw->step();
  adam->step();
  for (int64_t i = 0; i < 2; ++i) EXPECT_NEAR(with->value.item(i), without->value.item(i), 1e-6);
  EXPECT_THAT(adamw->str(), HasSubstr("decoupled_weight_decay: True"));
  EXPECT_EQ(make_dense_optimizer({"AdamW"}, {})->param_groups()[0].number("weight_decay"), 0.01) << "PyTorch's";
}

TEST(OptimTest, RmspropDividesByTheRootOfTheMeanSquare) {
  const auto a = parameter("a", {1});
  const auto optimizer =
      make_dense_optimizer({"rmsprop", R"({"lr": 0.1, "alpha": 0.9, "eps": 1e-3, "weight_decay": 0.5})"}, {a});
  double w = 1, mean = 0;
  for (const double given : {2.0, -1.0, 0.25}) {
    a->grad = Tensor::from<float>({static_cast<float>(given)});
    optimizer->step();
    const double gradient = given + 0.5 * w;
    mean = 0.9 * mean + 0.1 * gradient * gradient;
    w -= 0.1 * gradient / (std::sqrt(mean) + 1e-3);
    EXPECT_NEAR(a->value.item(), w, 1e-6);
  }
  const auto state = optimizer->state()[0].second;
  EXPECT_EQ(state[0].second.item(), 3);
  EXPECT_EQ(state[1].first, "square_avg");
  EXPECT_NEAR(state[1].second.item(), mean, 1e-6);
  EXPECT_THAT(error_of([] { make_dense_optimizer({"rmsprop", R"({"momentum": 0.9})"}, {}); }), HasSubstr("momentum"));
}

// The expected values are torch.optim.Adadelta's formula, computed in Python.
TEST(OptimTest, AdadeltaStepsByTheRootOfItsSteps) {
  const auto a = parameter("a", {1});
  const auto optimizer =
      make_dense_optimizer({"adadelta", R"({"lr": 0.5, "rho": 0.9, "eps": 1e-3, "weight_decay": 0.5})"}, {a});
  const std::pair<double, double> steps[] = {{2.0, 0.95003995}, {-1.0, 0.96530290}, {0.25, 0.94394125}};
  for (const auto& [gradient, expected] : steps) {
    a->grad = Tensor::from<float>({static_cast<float>(gradient)});
    optimizer->step();
    EXPECT_NEAR(a->value.item(), expected, 1e-6);
  }
  const auto state = optimizer->state()[0].second;
  EXPECT_EQ(state[0].second.item(), 3);
  EXPECT_EQ(state[1].first, "square_avg");
  EXPECT_EQ(state[2].first, "acc_delta");
  EXPECT_EQ(make_dense_optimizer({"Adadelta"}, {})->param_groups()[0].number("rho"), 0.9) << "PyTorch's";
  EXPECT_THAT(error_of([] { make_dense_optimizer({"adadelta", R"({"rho": 2})"}, {}); }), HasSubstr("rho must be in"));
}

TEST(OptimTest, AllGradientsAreCheckedBeforeAnyStep) {
  const auto a = parameter("a", {1}), b = parameter("b", {3});
  const auto optimizer = make_sgd({}, {a, b});
  a->grad = Tensor::from<float>({1});
  b->grad = Tensor::from<float>({1, 2});
  EXPECT_THAT(error_of([&] { optimizer->step(); }), HasSubstr("\"b\""));
  EXPECT_EQ(a->value.item(), 1);
}

TEST(OptimTest, MaximizeAndNesterov) {
  const auto a = parameter("a", {0});
  SgdOptions options{.lr = 1, .momentum = 0.5, .nesterov = true, .maximize = true};
  const auto optimizer = make_sgd(options, {a});
  a->grad = Tensor::from<float>({1});
  optimizer->step();  // buffer -1, step -1 - 0.5
  EXPECT_FLOAT_EQ(static_cast<float>(a->value.item()), 1.5f);
  options.momentum = 0;
  EXPECT_THROW(make_sgd(options, {a}), Error);
}

TEST(OptimTest, RowWiseAdagradTakesTheMeanOverColumns) {
  auto w = parameter("w", std::vector<float>(22, 0));
  w->value = w->value.reshape({2, 11});
  AdagradOptions options{.lr = 1, .eps = 0};
  const auto optimizer = make_rowwise_adagrad(options, {w});
  w->grad = Tensor::empty({2, 11});
  w->grad.fill(2);
  optimizer->step();
  const auto state = optimizer->state();
  EXPECT_EQ(state[0].second[1].second.shape(), (std::vector<int64_t>{2, 1}));
  EXPECT_THAT(state[0].second[1].second.to_vector<float>(), ElementsAre(4, 4));
  EXPECT_THAT(w->value.to_vector<float>(), testing::Each(-1.0f));
}

TEST(OptimTest, LoadLeavesNothingHalfDone) {
  const auto optimizer = make_adagrad({}, {parameter("a", {1}), parameter("b", {1})});
  OptimizerStateDict dict = optimizer->state_dict();
  for (auto& entry : dict.state) {
    for (auto& state : entry.second) {
      state.second = state.second.clone();
      state.second.fill(7);
    }
  }
  dict.state[1].second[1].second = Tensor::zeros({2});
  EXPECT_THAT(error_of([&] { optimizer->load_state_dict(dict); }), HasSubstr("\"b\""));
  EXPECT_EQ(optimizer->state()[0].second[1].second.item(), 0);
  dict.state[1].second[1].second = Tensor::zeros({1});
  optimizer->load_state_dict(dict);
  EXPECT_EQ(optimizer->state()[0].second[1].second.item(), 7);
}

TEST(OptimTest, ParamGroupsAreSavedAndLoaded) {
  const auto from = make_sgd({}, {parameter("a", {1})}), to = make_sgd({}, {parameter("a", {1})});
  from->set_learning_rate(0.75);
  EXPECT_FALSE(from->state_dict().param_groups.has_value());
  from->save_param_groups(true);
  to->load_state_dict(from->state_dict());
  EXPECT_EQ(to->param_groups()[0].number("lr"), 0.75);
  EXPECT_THAT(error_of([&] { to->set_option(0, "lrr", 1); }), HasSubstr("lrr"));
  EXPECT_THAT(error_of([&] { to->set_learning_rate(-1); }), HasSubstr("lr"));
  EXPECT_EQ(to->param_groups()[0].number("lr"), 0.75);
}

TEST(OptimTest, NamesAndOptionsOfConfigs) {
  EXPECT_THAT(error_of([] {
                make_dense_optimizer({"sdg", "{}"}, {});
              }),
              HasSubstr("adadelta, adagrad, adam, adamw, rmsprop, rowwise_adagrad, sgd"));
  EXPECT_THAT(error_of([] { make_dense_optimizer({"sgd", R"({"momentun": 1})"}, {}); }), HasSubstr("momentum"));
  EXPECT_THAT(error_of([] { make_dense_optimizer({"sgd", R"({"lr": "x"})"}, {}); }), HasSubstr("a number"));
  EXPECT_THAT(error_of([] { make_dense_optimizer({"adam", R"({"amsgrad": true})"}, {}); }), HasSubstr("amsgrad"));
  EXPECT_THAT(error_of([] { make_dense_optimizer({"adam", "[]"}, {}); }), HasSubstr("JSON object"));
  const auto adam = make_dense_optimizer({"Adam", R"({"learning_rate": 0.5, "betas": [0.1, 0.2]})"}, {});
  EXPECT_EQ(adam->param_groups()[0].number("lr"), 0.5);
  EXPECT_THAT(adam->str(), HasSubstr("    betas: (0.1, 0.2)\n"));
}

TEST(OptimTest, ClippingByNormAcrossParameters) {
  const auto a = parameter("a", {0}), b = parameter("b", {0}), c = parameter("c", {0});
  GradientClippingOptimizer::Options options;
  options.clipping = GradientClipping::kNorm;
  options.max_gradient = 1;
  SgdOptions sgd{.lr = 1};
  GradientClippingOptimizer optimizer(make_sgd(sgd, {a, b, c}), options);
  EXPECT_FALSE(optimizer.last_total_grad_norm().has_value());
  a->grad = Tensor::from<float>({3});
  b->grad = Tensor::from<float>({-4});
  optimizer.step();
  EXPECT_DOUBLE_EQ(*optimizer.last_total_grad_norm(), 5);
  EXPECT_NEAR(a->value.item(), -0.6, 1e-6);
  EXPECT_NEAR(b->value.item(), 0.8, 1e-6);
  EXPECT_EQ(c->value.item(), 0);

  options.norm_type = std::numeric_limits<double>::infinity();
  GradientClippingOptimizer largest(make_sgd(sgd, {a, b}), options);
  a->grad = Tensor::from<float>({3});
  b->grad = Tensor::from<float>({-4});
  largest.step();
  EXPECT_EQ(*largest.last_total_grad_norm(), 4);
  EXPECT_NEAR(a->grad.item(), 0.75, 1e-6);
  for (const ParameterPtr& p : {a, b}) p->grad = Tensor();
  largest.step();
  EXPECT_FALSE(largest.last_total_grad_norm().has_value());
}

TEST(OptimTest, FilterFindsInBackwardParameters) {
  const auto a = parameter("a", {0}), b = parameter("b", {1});
  b->in_backward = true;
  EXPECT_EQ(in_backward_optimizer_filter({a, b}), ParameterList{a});
  EXPECT_EQ(in_backward_optimizer_filter({a, b}, true), ParameterList{b});
  const auto optimizer = make_sgd({}, {a, b});
  b->grad = Tensor::from<float>({1});
  optimizer->step();
  EXPECT_EQ(b->value.item(), 1);
}

}  // namespace
}  // namespace tessera
