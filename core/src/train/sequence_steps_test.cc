// Tests steps of models with pooled tables and sequences: their exchanges overlap, and a pipeline takes both ahead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/test_job.h"

namespace tessera {
namespace {

using testing::ElementsAre;

const char* const kSequenceJob = R"(
job = {seed = 3, kernel_plugin = "reference"}
model = {embedding_dim = 4}
table = [{name = "user", features = ["c0"]}, {name = "item", features = ["c1"], pooling = "none"}]
layer = [
  {name = "history", type = "sum_pooling", inputs = ["c1"]},
  {name = "top", type = "mlp", inputs = ["dense", "user", "history"], options = {widths = [8, 1]}}]
head = [{name = "click", input = "top"}]
data = {reader = "synthetic", columns = 2, rows = [20, 30], pooling = [1, 3], dense = 2, samples = 40, batch = 4}
)";

constexpr int64_t kBatch = 4;

void fill_sequences(int64_t step, Batch& batch) {
  std::vector<int64_t> ids;
  for (int64_t s = 0; s < kBatch; ++s) ids.push_back((step * kBatch + s) % 20);
  for (int64_t s = 0; s < 2 * kBatch; ++s) ids.push_back((step * 7 + s) % 30);
  std::vector<int32_t> lengths(kBatch, 1);
  lengths.insert(lengths.end(), {0, 3, 4, 1});
  batch.dense = Tensor::zeros({kBatch, 2});
  batch.labels = Tensor::from(std::vector<float>{0, 1, 1, 0});
  batch.sparse = KeyedJaggedTensor::from_lengths_sync({"c0", "c1"}, Tensor::from(ids), Tensor::from(lengths));
  batch.global_size = kBatch;
}

class SequenceSteps : public test::JobTest {
 protected:
  SequenceSteps() : JobTest(kSequenceJob) {}

  // Losses of five steps.
  std::vector<double> losses(bool ahead) const {
    const auto all = job({});
    ModelTrainer& trainer = all->trainer();
    TrainPipelineOptions options{0, 5, ahead};
    options.sequences = trainer.sequences_ahead();
    EXPECT_NE(options.sequences, nullptr);
    TrainPipeline inputs(fill_sequences, trainer.embeddings(), options);
    for (int64_t step = 0; step < 5; ++step) {
      TrainInput& input = inputs.next();
      EXPECT_EQ(static_cast<bool>(input.taken.pooled), ahead);
      EXPECT_EQ(static_cast<bool>(input.taken.sequences), ahead);
      trainer.step(input.batch, std::move(input.taken), false);
    }
    return trainer.take_losses();
  }
};

TEST_F(SequenceSteps, BothLookupsSendBeforeEitherWaits) {
  const auto all = job({});
  ModelTrainer& trainer = all->trainer();
  Batch batch;
  fill_sequences(0, batch);
  Trace trace(100);
  trainer.set_trace(&trace);
  trainer.step(batch);
  trainer.set_trace(nullptr);
  std::vector<std::string> stages;
  for (const Trace::Span& span : trace.spans()) {
    const std::string name = span.name;
    if (name == "lookup" || name == "exchange rows" || name == "split" || name == "exchange gradients")
      stages.push_back(name);
  }
  EXPECT_THAT(stages, ElementsAre("lookup", "lookup", "exchange rows", "exchange rows", "split", "split",
                                  "exchange gradients", "exchange gradients"));
}

TEST_F(SequenceSteps, APipelineTakesBothAheadWithTheSameLosses) {
  const std::vector<double> in_step = losses(false);
  EXPECT_EQ(in_step.size(), 5u);
  EXPECT_EQ(losses(true), in_step);
}

}  // namespace
}  // namespace tessera
