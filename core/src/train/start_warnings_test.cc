// Warnings at the start of a job, and settings that are refused because nothing would be learnt or judged.
#include "train/start_warnings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "config/test_refusal.h"
#include "train/test_job.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using Sets = std::vector<std::string>;

const char* const kWarnedJob = R"(
job = {seed = 3, kernel_plugin = "reference"}
model = {embedding_dim = 4}
data = {reader = "synthetic", columns = 2, rows = [20], dense = 3, samples = 64, test_samples = 20, batch = 16}
layer = [{name = "top", type = "mlp", inputs = ["dense", "pooled"], options = {widths = [8, 1]}}]
head = [{name = "click", input = "top"}]
)";

class Warnings : public test::JobTest {
 protected:
  explicit Warnings(const char* text = kWarnedJob) : JobTest(text) {}
  Sets warned(const Sets& set) const { return job({}, set)->start().warnings; }
  std::string refused(const Sets& set) const {
    return test::refusal([&] { (void)job({}, set); });
  }
};

TEST_F(Warnings, InputsThatNoLayerReads) {
  EXPECT_THAT(warned({}), IsEmpty());
  EXPECT_THAT(warned({R"(layer.top.inputs=["pooled"])"}), ElementsAre(StartsWith("no layer reads \"dense\": ")));
  EXPECT_THAT(warned({R"(layer.top.inputs=["dense", "c1"])"}), ElementsAre(StartsWith("no layer reads \"c0\": ")));
  EXPECT_THAT(warned({R"(layer.top.inputs=["dense"])"}), ElementsAre(StartsWith("no layer reads \"c0\", \"c1\": ")));
  EXPECT_THAT(warned({R"(layer.top.inputs=["c1"])"}), ElementsAre(StartsWith("no layer reads \"dense\", \"c0\": ")));
  EXPECT_THAT(warned({R"(layer.top.inputs=["dense"])", "data.columns=1"}), IsEmpty()) << "a model needs a pooled table";
  EXPECT_THAT(warned({R"(layer.top.inputs=["c1"])", R"(model.inputs=["c1"])"}), IsEmpty()) << "the others are left out";
  EXPECT_THAT(warned({R"(layer.top.inputs=["dense", "c1"])", R"(metrics.names=["gauc?key=c0"])"}), IsEmpty());
}

TEST_F(Warnings, RunsThatAreTooShort) {
  EXPECT_THAT(warned({"job.accumulate=5"}),
              ElementsAre(AllOf(HasSubstr("job.accumulate = 5"), HasSubstr("only 4 batches"))));
  EXPECT_THAT(warned({"job.accumulate=4"}), IsEmpty());
  EXPECT_THAT(warned({R"(schedule.dense=["linear?from=0&to=1&steps=5"])"}),
              ElementsAre(HasSubstr("schedule.dense has stages of 5 steps, but the run has only 4: it ends at 0.6")));
  EXPECT_THAT(warned({R"(schedule.dense=["linear?steps=3", "cosine"])"}), IsEmpty());
}

TEST_F(Warnings, OneRankSendsNothing) {
  EXPECT_THAT(warned({"comm.lossy=[]", "comm.join_exchanges=always"}), IsEmpty());
  for (const std::string data : {"rows", "gradients", "dense_gradients"})
    EXPECT_THAT(warned({"comm.lossy=[\"" + data + "\"]"}),
                ElementsAre(StartsWith("comm.lossy has no effect, because")));
}

TEST_F(Warnings, NothingIsTrained) {
  EXPECT_THAT(warned({"layer.top.trainable=false"}), IsEmpty());
  EXPECT_THAT(warned({"layer.top.trainable=false", "table_defaults.trainable=false"}),
              ElementsAre(HasSubstr("nothing is trained, because all tables and layers have trainable = false")));
  EXPECT_THAT(warned({"head.click.weight=0"}), ElementsAre(HasSubstr("every head has weight = 0")));
}

TEST_F(Warnings, HeadsWithoutMetricsHaveNone) {
  const Sets softmax = {"head.click.loss=softmax_cross_entropy", "layer.top.options.widths=[8, 3]"};
  const auto with = [&](Sets set, const std::string& more) {
    set.push_back(more);
    return set;
  };
  const Sets distances = {"head.click.loss=contrastive", "head.click.loss_options.kind=distance"};
  EXPECT_THAT(
      refused(with(distances, R"(metrics.names=["click.auc"])")),
      AllOf(HasSubstr("metrics.names has \"click.auc\", but the head \"click\" has no metrics, because its loss "
                      "contrastive compares distances"),
            HasSubstr("factor = -1")));
  EXPECT_THAT(refused(with(distances, "validation.fraction=0.5")),
              HasSubstr("validation.fraction asks for validation, which compares models by a metric"));
  EXPECT_EQ(trained({}, distances)->evaluate().metrics.samples, 0);
  EXPECT_EQ(job({}, {"head.click.loss=contrastive", "metrics.names=[\"click.auc\"]"})->start().warnings, Sets());
  EXPECT_THAT(refused(with(softmax, "head.click.positive_weight=2")), HasSubstr("give class_weights instead"));
  EXPECT_THAT(refused({"head.click.loss=bpr", "head.click.groups=c0", "head.click.positive_weight=2"}),
              HasSubstr("loss compares samples with each other"));
  EXPECT_THAT(refused(with(softmax, "head.click.loss_options.class_weights=[0, 0, 0]")), HasSubstr("only zeros"));
}

TEST_F(Warnings, ADecayNeedsItsMode) {
  EXPECT_THAT(refused({"table_defaults.optimizer.name=exact_adagrad", "table_defaults.optimizer.weight_decay_mode=l2"}),
              HasSubstr("\"weight_decay_mode\" is \"l2\", but weight_decay is 0"));
}

const char* const kEventsJob = R"(
job = {seed = 3, kernel_plugin = "reference"}
model = {embedding_dim = 4}
data = {reader = "csv", batch = 16}
history = {user = "user", time = "at", columns = ["item"], length = 3}
column = [
  {name = "label", as = "label"},
  {name = "before", column = "history.item", rows = 10},
  {name = "item", rows = 10}]
layer = [{name = "top", type = "mlp", inputs = ["before", "item"], options = {widths = [8, 1]}}]
head = [{name = "click", input = "top"}]
)";

class EventWarnings : public Warnings {
 protected:
  EventWarnings() : Warnings(kEventsJob) {
    std::ofstream out(file("events.csv"));
    out << "user,at,item,label\n";
    for (int i = 0; i < 120; ++i) out << i % 12 << ',' << i << ',' << (3 * i) % 10 << ',' << i % 2 << '\n';
  }
  Sets warned_of(Sets set) const {
    set.push_back("data.path=" + file("events.csv"));
    return warned(set);
  }
};

TEST_F(EventWarnings, SamplesForValidationThatNothingUses) {
  const std::string split = "history.split=leave_one_out", data = "validation.split=data";
  EXPECT_THAT(warned_of({}), IsEmpty());
  EXPECT_THAT(warned_of({split}),
              ElementsAre(AllOf(StartsWith("history.split = \"leave_one_out\" keeps 12 samples for validation"),
                                HasSubstr("set validation.split = \"data\" and validation.fraction = 1.0"))));
  EXPECT_THAT(warned_of({split, "validation.fraction=0.1"}),
              ElementsAre(HasSubstr("because validation.split is \"random\"")));
  EXPECT_THAT(warned_of({split, data, "validation.fraction=1.0"}), IsEmpty());
  EXPECT_THAT(warned_of({"history.split=time", "history.test_from=\"100\""}), IsEmpty());
  EXPECT_THAT(warned_of({"history.split=time", "history.test_from=\"100\"", "history.validation_from=\"90\""}),
              ElementsAre(HasSubstr("keeps 10 samples for validation")));
}

TEST_F(EventWarnings, HistoriesThatAreEmpty) {
  EXPECT_THAT(warned_of({"history.user=at"}),
              ElementsAre(AllOf(HasSubstr("histories of all training samples are empty"),
                                HasSubstr("is history.user = \"at\" the column of users?"))));
}

TEST_F(EventWarnings, AColumnThatIsInNoTable) {
  const std::string text = str_cat(kEventsJob, "[[table]]\nname = \"before\"\n");
  const auto start = [&](const std::string& inputs) {
    return TrainJob(test::runtime(), parse_config(text, "job.toml", {"data.path=" + file("events.csv"), inputs}), {},
                    ProcessGroup::connect(test::runtime(), {}))
        .start()
        .warnings;
  };
  EXPECT_THAT(start(R"(layer.top.inputs=["before"])"), ElementsAre(StartsWith("no layer reads \"item\": ")));
}

}  // namespace
}  // namespace tessera
