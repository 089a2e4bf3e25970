// Layers with buffers, jagged and integer inputs, several outputs and sums over ranks; and layers that the core
// refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "config/test_refusal.h"
#include "spawn.h"
#include "tessera/checkpoint.h"
#include "tessera/dense.h"
#include "tessera/distributed_model_parallel.h"

namespace tessera::test::layers_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Runtime& runtime() {
  static const Runtime it({.plugin_path = {TESSERA_TEST_PLUGINS}});
  return it;
}

Tensor matrix(const std::vector<float>& values, int64_t width) {
  const Tensor t = Tensor::from(values);
  return t.reshape({t.numel() / width, width});
}

TEST(Layers, StartAsTheySay) {
  const DenseLayer norm(runtime(), {"test.norm", "{}", "n", 5}), again(runtime(), {"test.norm", "{}", "n", 5});
  ASSERT_EQ(norm.parameters().size(), 2u);
  EXPECT_THAT(norm.parameters()[0]->value.to_vector<float>(), ElementsAre(1, 1));
  for (const float v : norm.parameters()[1]->value.span<float>()) {
    EXPECT_GE(v, 2);
    EXPECT_LT(v, 3);
  }
  EXPECT_EQ(norm.parameters()[1]->value.to_vector<float>(), again.parameters()[1]->value.to_vector<float>());
  ASSERT_EQ(norm.buffers().size(), 2u);
  EXPECT_EQ(norm.buffers()[0]->name, "n.running_mean");
  EXPECT_THAT(norm.buffers()[0]->value.to_vector<float>(), ElementsAre(0.5f, 0.5f));
  EXPECT_EQ(norm.buffers()[1]->value.to_vector<int64_t>()[0], 7);
  EXPECT_EQ(norm.buffers()[1]->value.dim(), 0);
}

TEST(Layers, KeepBuffersThatTrainingWrites) {
  DenseLayer norm(runtime(), {"test.norm", "{}", "n", 5});
  norm.parameters()[1]->value.fill(0);
  const Tensor x = matrix({1, 2, 3, 6}, 2);
  EXPECT_THAT(norm.forward({x}, false).to_vector<float>(), ElementsAre(0.5f, 1.5f, 2.5f, 5.5f)) << "of the buffer";
  EXPECT_EQ(norm.buffers()[1]->value.to_vector<int64_t>()[0], 7) << "an evaluation writes none";
  EXPECT_THAT(norm.forward({x}, true).to_vector<float>(), ElementsAre(-1, -2, 1, 2));
  norm.backward(matrix({1, 0, 0, 0}, 2));
  EXPECT_THAT(norm.buffers()[0]->value.to_vector<float>(), ElementsAre(2, 4));
  EXPECT_EQ(norm.buffers()[1]->value.to_vector<int64_t>()[0], 8);
}

TEST(Layers, NeedNotKnowThePrecisionAuto) {
  const auto create = [](const char* precision) {
    const DenseLayer layer(runtime(), {.module = "test.marked", .options = "{}", .precision = precision});
  };
  EXPECT_NO_THROW(create("auto"));
  EXPECT_THAT(refusal([&] { create("half"); }, ""), HasSubstr("\"half\", but must be float32 or bfloat16"));
}

TEST(Layers, TakeJaggedAndIntegerInputsAndHaveSeveralOutputs) {
  DenseLayer mixed(runtime(), {"test.mixed", "{}", "m", 5});
  const Tensor rows = matrix({1, 2, 3, 4, 5, 6}, 2), offsets = Tensor::from<int64_t>({0, 2, 2, 3});
  const Tensor ids = Tensor::from<int64_t>({10, 20, 30}).reshape({3, 1});
  const std::vector<Tensor> evaluated = mixed.run({{rows, offsets}, ids}, false);
  ASSERT_EQ(evaluated.size(), 2u);
  EXPECT_THAT(evaluated[0].to_vector<float>(), ElementsAre(4, 6, 0, 0, 5, 6));
  EXPECT_THAT(evaluated[1].to_vector<float>(), ElementsAre(10, 20, 30));
  const auto noise_at = [&](int64_t at, int rank) {
    return mixed.run({{rows, offsets}, ids}, true, {at, rank, nullptr})[1].to_vector<float>()[0];
  };
  const float first = noise_at(0, 0);
  EXPECT_EQ(noise_at(3, 0), first + 3) << "the step";
  EXPECT_NE(noise_at(0, 1), first) << "each rank has a seed of its own";
  EXPECT_EQ(noise_at(0, 0), first);
  const auto grads = mixed.backward(std::vector{matrix({1, 2, 3, 4, 5, 6}, 2), Tensor()});
  EXPECT_THAT(grads[0].to_vector<float>(), ElementsAre(1, 2, 1, 2, 5, 6));
  EXPECT_FALSE(grads[1].defined()) << "integers have no gradient";
  EXPECT_THROW(mixed.run({rows, ids}, false), Error) << "rows that are not jagged";
}

// Rows of three samples with 2, 0 and 1 of a, and 0, 1 and 2 of b.
struct Ragged {
  Tensor a = matrix({1, 2, 3, 4, 5, 6}, 2), b = matrix({10, 20, 30, 40, 50, 60}, 2);
  Tensor of_a = Tensor::from<int64_t>({0, 2, 2, 3}), of_b = Tensor::from<int64_t>({0, 0, 1, 3});
  Tensor times = Tensor::from<int64_t>({100, 200, 300}).reshape({3, 1});
  std::vector<DenseInput> inputs() const { return {{a, of_a}, {times, of_a}, {b, of_b}}; }
};

TEST(Layers, GiveSequencesWithTheRowsOfAnInputOrTheirOwn) {
  DenseLayer layer(runtime(), {"test.ragged", "{}", "r"});
  const Ragged in;
  const std::vector<Tensor> out = layer.run(in.inputs(), true);
  ASSERT_EQ(out.size(), 3u);
  EXPECT_THAT(out[0].to_vector<float>(), ElementsAre(101, 102, 203, 204, 305, 306));
  EXPECT_THAT(out[1].to_vector<float>(), ElementsAre(1, 2, 3, 4, 10, 20, 5, 6, 30, 40, 50, 60));
  EXPECT_THAT(out[2].to_vector<float>(), ElementsAre(2, 1, 3));
  EXPECT_EQ(layer.output_offsets()[0].raw(), in.of_a.raw()) << "those of the input itself";
  EXPECT_THAT(layer.output_offsets()[1].to_vector<int64_t>(), ElementsAre(0, 2, 3, 6));
  EXPECT_FALSE(layer.output_offsets()[2].defined());
  const Tensor late = matrix({1, 1, 2, 2, 3, 3}, 2), both = matrix({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 2);
  const std::vector<Tensor> back = layer.backward(std::vector{late, both, Tensor()});
  EXPECT_THAT(back[0].to_vector<float>(), ElementsAre(2, 3, 5, 6, 10, 11));
  EXPECT_FALSE(back[1].defined()) << "integers have no gradient";
  EXPECT_THAT(back[2].to_vector<float>(), ElementsAre(5, 6, 9, 10, 11, 12));
}

TEST(Layers, WithWrongSequencesAreRefused) {
  const auto refusal = [](const char* fault, bool shares) -> std::string {
    DenseLayer layer(runtime(), {"test.ragged", str_cat(R"({"fault": ")", fault, "\"}"), "r"});
    const Ragged in;
    std::vector<DenseInput> inputs = in.inputs();
    if (!shares) inputs[1].offsets = in.of_a.clone();
    return test::refusal([&] { (void)layer.run(inputs, true); });
  };
  EXPECT_EQ(refusal("", true), "no error");
  EXPECT_THAT(refusal("", false), HasSubstr("takes a sequence, the times of its rows"));
  EXPECT_THAT(refusal("like", true), HasSubstr("has an output with the rows of input 7, which is not a sequence"));
  EXPECT_THAT(refusal("bound", true), HasSubstr("says that output 1 may have -1 rows"));
  EXPECT_THAT(refusal("beyond", true), HasSubstr("wrote offsets for output 1 that do not rise from 0 to at most 6"));
  EXPECT_THAT(refusal("falls", true), HasSubstr("wrote offsets for output 1"));
}

TEST(Layers, ThatDescribeThemselvesWronglyAreRefusedWhenTheyAreMade) {
  const auto refusal = [](const char* fault) -> std::string {
    return test::refusal([&] {
      const DenseLayer layer(runtime(), {"test.odd", str_cat(R"({"fault": ")", fault, "\"}"), "odd"});
    });
  };
  EXPECT_EQ(refusal("none"), "no error");
  EXPECT_THAT(refusal("ndim"), HasSubstr("parameter odd.weight has 9 dimensions, but may have 1 to 4"));
  EXPECT_THAT(refusal("size"), HasSubstr("parameter odd.weight has -1 for dimension 0"));
  EXPECT_THAT(refusal("init"), HasSubstr("parameter odd.weight wants start values of a kind (init 77, flags 0)"));
  EXPECT_THAT(refusal("flags"), HasSubstr("(init 0, flags 65536) that this core does not know"));
  EXPECT_THAT(refusal("type"), HasSubstr("parameter odd.weight has a type that it may not have"));
  EXPECT_THAT(refusal("name"), HasSubstr("its plugin must give it a name"));
}

// A normalisation over the samples of two ranks equals that over all of them on one. Buffers start with rank 0's
// values, are saved, and are restored.
TEST(Layers, SumOverRanksAndAreSaved) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / str_cat("tessera_layers_", getpid());
  const auto texts = cli::run_in_ranks(2, 2, 60, [&](const RankEnvironment& where) {
    const Runtime own({.plugin_path = {TESSERA_TEST_PLUGINS}});
    const auto group = ProcessGroup::connect(own, where);
    const StepInfo step{0, where.rank,
                        [&](const Tensor& t) { group->all_reduce(t, ReduceOp::kSum, "statistics").wait(); }};
    DenseLayer norm(own, {"test.norm", "{}", "n", static_cast<uint64_t>(where.rank)});
    norm.buffers()[0]->value.fill(where.rank == 0 ? 3.0f : 4.0f);
    ParallelModel model{{}, {}, norm.parameters(), norm.buffers()};
    DistributedModelParallelOptions parallel_options;
    parallel_options.plan.emplace();
    parallel_options.plan->world_size = parallel_options.plan->local_world_size = 2;
    DistributedModelParallel parallel(own, model, group, parallel_options);
    const auto mean = [&] { return norm.buffers()[0]->value.to_vector<float>()[0]; };
    std::string text = str_cat("starts with ", mean());
    norm.parameters()[1]->value.fill(0);
    // Rank 0 has samples 1 and 2, rank 1 has 6: their mean is 3.
    const Tensor x = where.rank == 0 ? matrix({1, 1, 2, 2}, 2) : matrix({6, 6}, 2);
    text += str_cat(", first output ", norm.forward({x}, true, step).to_vector<float>()[0]);
    norm.backward(where.rank == 0 ? matrix({3, 3, 0, 0}, 2) : matrix({0, 0}, 2));
    text += str_cat(", mean ", mean());
    const auto optimizer = make_dense_optimizer({"sgd", R"({"lr": 0.1})"}, parallel.parameters());
    save_checkpoint(folder.string(), parallel, *optimizer, "here");
    norm.buffers()[0]->value.fill(-1);
    norm.buffers()[1]->value.span<int64_t>()[0] = -1;
    load_checkpoint(folder.string(), parallel, *optimizer);
    text += str_cat(", again ", mean(), " after ", norm.buffers()[1]->value.to_vector<int64_t>()[0]);
    group->barrier();
    return text;
  });
  std::filesystem::remove_all(folder);
  EXPECT_EQ(texts[0], "starts with 3, first output -2, mean 3, again 3 after 8");
  EXPECT_EQ(texts[1], "starts with 3, first output 3, mean 3, again 3 after 8");
}

}  // namespace
}  // namespace tessera::test::layers_test
