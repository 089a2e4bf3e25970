// A run cannot continue with another model than the one that it began with.
#include <gmock/gmock.h>

#include "tessera/error.h"
#include "train/test_job.h"

namespace tessera {
namespace {

using testing::HasSubstr;

class SavedModelTest : public test::JobTest {
 protected:
  SavedModelTest() : JobTest(test::kMlpJob) {}
  void SetUp() override {
    JobTest::SetUp();
    if (!IsSkipped()) trained({.save = file("a"), .max_steps = 3});
  }
  std::string refusal(const std::vector<std::string>& set, bool new_data = false) const {
    return test::refusal(Code::kInvalidArgument, [&] { (void)job({.load = file("a"), .new_data = new_data}, set); });
  }
};

TEST_F(SavedModelTest, AnotherModelOfTheSameShapesIsRefused) {
  for (const bool new_data : {false, true}) {
    EXPECT_THAT(refusal({"layer.all.inputs=[\"pooled\", \"deep\"]"}, new_data),
                HasSubstr("the layer \"all\" has inputs = [\"pooled\",\"deep\"] instead of [\"deep\",\"pooled\"]"));
    EXPECT_THAT(refusal({"layer.deep.options.activation=\"tanh\""}, new_data),
                HasSubstr("the layer \"deep\" has activation = \"tanh\" instead of nothing"));
    EXPECT_THAT(refusal({"head.click.loss=\"mse\""}, new_data),
                HasSubstr("the head \"click\" has loss = \"mse\" instead of \"binary_cross_entropy\""));
    EXPECT_THAT(refusal({"table_defaults.pooling=\"mean\""}, new_data),
                HasSubstr("has pooling = \"MEAN\" instead of \"SUM\"; --start begins a new run"));
  }
}

TEST_F(SavedModelTest, SettingsOfTrainingMayChange) {
  for (const char* set : {"layer.deep.options.dropout=0.5", "head.click.weight=2", "head.click.positive_weight=3"})
    EXPECT_EQ(job({.load = file("a")}, {set})->start().first_step, 3) << set;
}

TEST_F(SavedModelTest, ARestoredModelKeepsItsStep) {
  const std::vector<std::string> set = {"validation.fraction=0.2", "validation.every_steps=1",
                                        "validation.restore_best=true", "dense_optimizer.learning_rate=1"};
  const int64_t best = job({.save = file("b")}, set)->train({}).model_step;
  const auto again = job({.save = file("b"), .resume = true}, set);
  EXPECT_GT(again->start().first_step, best) << "a later step was not better";
  EXPECT_EQ(again->train({}).model_step, best);
}

}  // namespace
}  // namespace tessera
