// Components that a program gives to tessera.h: a transport, a sharder, a log sink. Also steps in two halves, outputs
// with an owner, packed models, and the trainer.
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "c_calls.h"
#include "tessera/abi/collective.h"
#include "tessera/infer.h"
#include "tessera/sdk/sharder.h"
#include "tessera/sdk/sized.h"
#include "tessera_program.h"

namespace tessera::test {
namespace {

using json = nlohmann::json;
using testing::Each;
using testing::ElementsAre;
using testing::FloatEq;
using testing::HasSubstr;

// Places whole tables on rank 0, and logs a line whenever it is asked.
struct First : sdk::Sharder {
  explicit First(const sdk::Setup& setup) : host(setup.host) {}
  std::vector<sdk::Layout> propose(const sdk::Table& table, const sdk::Topology&,
                                   const sdk::Constraints&) const override {
    host.log(TSR_LOG_WARNING, "first is asked");
    return {sdk::Layout{{sdk::LayoutPart{.rectangles = {{0, table.rows, 0, table.cols}}}}}};
  }
  sdk::Host host;
};
constexpr tsr_component kFirst =
    sdk::component<First>({.id = "test.first", .version = "1.0.0", .about = "whole tables"});
constexpr const tsr_component* kComponents[] = {&kFirst};
constexpr tsr_plugin kHeld{sizeof(tsr_plugin), TSR_ABI_MAJOR, TSR_ABI_EPOCH, TSR_ABI_MINOR, 0, 1, "held", "1", "",
                           kComponents};

constexpr const char* kModel = R"({"modules": [{"tables": [{"name": "a", "num_embeddings": 6, "embedding_dim": 4},
    {"name": "b", "num_embeddings": 4, "embedding_dim": 4, "feature_names": ["y"]}]}],
    "dense": {"top.weight": [1, 8], "top.bias": [1]}, "optimizer": {"name": "exact_sgd", "learning_rate": 1}})";

TEST(CComponents, PluginsAndTheLogAreTheProgramsOwn) {
  struct Lines {
    std::mutex mutex;
    std::string text;
  } lines;
  const tsr_plugin* plugins[] = {&kHeld};
  auto options = sdk::sized<tsr_runtime_options>();
  options.plugins = plugins;
  options.num_plugins = 1;
  options.log = [](void* user, int32_t level, const char* text) {
    auto& to = *static_cast<Lines*>(user);
    const std::lock_guard lock(to.mutex);
    to.text += std::to_string(level) + " " + text + "\n";
  };
  options.log_user = &lines;
  tsr_runtime* runtime = nullptr;
  OK(tsr_runtime_open(&options, &runtime, &err));
  tsr_text* plan = nullptr;
  OK(tsr_plan(runtime, kModel, R"({"world_size": 2, "shardings": {"a": {"sharding_type": "test.first"},
              "b": {"sharding_type": "row_wise"}}})",
              &plan, nullptr, &err));
  EXPECT_EQ(json::parse(tsr_text_data(plan))["modules"][0]["tables"][0]["sharding_type"], "test.first");
  EXPECT_THAT(lines.text, HasSubstr("1 first is asked\n"));
  tsr_text_free(plan);
  tsr_runtime_close(runtime);

  const tsr_plugin* twice[] = {&kHeld, &kHeld};
  options.plugins = twice;
  options.num_plugins = 2;
  REFUSED(TSR_INVALID_ARGUMENT, "the program's own plugin \"held\": tessera.sharder/1 \"test.first\"",
          tsr_runtime_open(&options, &runtime, &err));
  EXPECT_EQ(runtime, nullptr);
  options.plugins = nullptr;
  REFUSED(TSR_INVALID_ARGUMENT, "plugins is NULL", tsr_runtime_open(&options, &runtime, &err));
}

// Two ranks, here threads, over a transport that the program provides.
TEST(CComponents, ATransportIsTheProgramsOwn) {
  const tsr_plugin* plugins[] = {tessera_plugin_v1(nullptr, nullptr)};  // plugins/extras/unix, linked into this program
  const int32_t port = free_port();
  const auto rank = [&](int32_t me) {
    auto options = sdk::sized<tsr_runtime_options>();
    options.plugins = plugins;
    options.num_plugins = 1;
    tsr_runtime* runtime = nullptr;
    OK(tsr_runtime_open(&options, &runtime, &err));
    const tsr_process_group_options how{sizeof(how), 2, me, me, 2, port, "127.0.0.1", "a secret of this test",
                                        "unix",      20};
    tsr_process_group* group = nullptr;
    OK(tsr_process_group_connect(runtime, &how, &group, &err));
    auto info = sdk::sized<tsr_process_group_info>();
    OK(tsr_process_group_describe(group, &info, &err));
    EXPECT_STREQ(info.backend, "unix");
    std::vector<float> values{1, static_cast<float>(me)};
    View<float> view(values, {2});
    OK(tsr_process_group_all_reduce(group, &view, TSR_REDUCE_SUM, &err));
    EXPECT_THAT(values, ElementsAre(2, 1));
    tsr_process_group_close(group);
    tsr_runtime_close(runtime);
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
}

class CSteps : public testing::Test {
 protected:
  void SetUp() override {
    OK(tsr_runtime_open(nullptr, &runtime_, &err));
    const tsr_model_parallel_options options{sizeof(options), 0, kModel, nullptr, nullptr};
    OK(tsr_model_parallel_create(runtime_, nullptr, &options, &model_, &err));
    OK(tsr_model_parallel_collection(model_, "", &tables_, &err));
    fill("a", {0, 1, 2, 3, 4, 5});
    fill("b", {10, 11, 12, 13});
  }
  void TearDown() override {
    tsr_collection_close(tables_);
    tsr_model_parallel_close(model_);
    tsr_runtime_close(runtime_);
  }
  void fill(const char* table, const std::vector<float>& values) {
    std::vector<float> rows;
    for (const float v : values) rows.insert(rows.end(), 4, v);
    View<float> view(rows, {static_cast<int64_t>(values.size()), 4});
    OK(tsr_collection_write_rows(tables_, table, 0, &view, &err));
  }

  tsr_runtime* runtime_ = nullptr;
  tsr_model_parallel* model_ = nullptr;
  tsr_collection* tables_ = nullptr;
  // Two samples: a has {1, 2} and {}, y has {3} and {0}.
  std::vector<int64_t> ids_{1, 2, 3, 0}, lengths_{2, 0, 1, 1};
  View<int64_t> values_{ids_, {4}}, counts_{lengths_, {4}};
  tsr_batch batch_{sizeof(tsr_batch), 2,       nullptr, &values_, &counts_, nullptr,
                   nullptr,           nullptr, nullptr, 0,        0,        nullptr};
};

TEST_F(CSteps, InTwoHalves) {
  tsr_step *first = nullptr, *second = nullptr, *unused = nullptr;
  OK(tsr_collection_start(tables_, &batch_, &first, &err));
  DLTensor out;
  REFUSED(TSR_FAILED_PRECONDITION, "tsr_step_wait() first", tsr_step_output(first, 0, &out, &err));
  std::vector<float> ones(16, 1);
  View<float> grad(ones, {2, 8});
  const DLTensor* grads[] = {&grad};
  REFUSED(TSR_FAILED_PRECONDITION, "tsr_step_wait() first", tsr_step_backward(first, grads, 1, nullptr, &err));
  OK(tsr_collection_start(tables_, &batch_, &second, &err));
  OK(tsr_step_wait(first, &err));
  REFUSED(TSR_FAILED_PRECONDITION, "already called for this step", tsr_step_wait(first, &err));
  OK(tsr_step_output(first, 0, &out, &err));
  const auto* rows = static_cast<const float*>(out.data);
  EXPECT_EQ(std::vector<float>(rows, rows + 8), (std::vector<float>{3, 3, 3, 3, 13, 13, 13, 13}));
  tsr_backward_options how{sizeof(how), 1u << 20};
  REFUSED(TSR_UNIMPLEMENTED, "options->flags has bit 20", tsr_step_backward(first, grads, 1, &how, &err));
  how.flags = 1;  // a hint, which may be ignored
  OK(tsr_step_backward(first, grads, 1, &how, &err));
  OK(tsr_step_wait(second, &err));  // sees the updated rows
  OK(tsr_step_output(second, 0, &out, &err));
  EXPECT_EQ(static_cast<const float*>(out.data)[0], 1);
  OK(tsr_step_backward(second, grads, 1, nullptr, &err));
  OK(tsr_collection_start(tables_, &batch_, &unused, &err));
  OK(tsr_step_cancel(unused, &err));
  OK(tsr_step_cancel(unused, &err));
  REFUSED(TSR_FAILED_PRECONDITION, "the step was cancelled", tsr_step_output(unused, 0, &out, &err));
  REFUSED(TSR_FAILED_PRECONDITION, "already called", tsr_step_wait(unused, &err));
  tsr_step_close(unused);
  OK(tsr_collection_forward(tables_, &batch_, nullptr, &unused, &err));
  OK(tsr_step_cancel(unused, &err));  // no backward follows
  REFUSED(TSR_FAILED_PRECONDITION, "the step was cancelled", tsr_step_backward(unused, grads, 1, nullptr, &err));
  tsr_step_close(unused);
  OK(tsr_collection_start(tables_, &batch_, &unused, &err));
  tsr_step_close(unused);
  tsr_step_close(second);
  tsr_step_close(first);
  ids_[0] = 6;
  REFUSED(TSR_INVALID_ARGUMENT, "6", tsr_collection_start(tables_, &batch_, &unused, &err));
  EXPECT_EQ(unused, nullptr);
}

// Two ranks, here threads. Rank 1's finalizer closes a step that was started, while the rank is in another call.
TEST(CComponents, AFinalizerMayCloseAStepThatOthersWaitFor) {
  const int32_t port = free_port();
  std::atomic<bool> closed{false};
  const auto rank = [&](int32_t me) {
    tsr_runtime* runtime = nullptr;
    OK(tsr_runtime_open(nullptr, &runtime, &err));
    const tsr_process_group_options how{sizeof(how), 2, me, me, 2, port, "127.0.0.1", "a secret of this test",
                                        "tcp",       20};
    tsr_process_group* group = nullptr;
    OK(tsr_process_group_connect(runtime, &how, &group, &err));
    const tsr_model_parallel_options options{
        sizeof(options), 0, kModel, nullptr,
        R"({"shardings": {"a": {"sharding_type": "row_wise"}, "b": {"sharding_type": "row_wise"}}})"};
    tsr_model_parallel* model = nullptr;
    OK(tsr_model_parallel_create(runtime, group, &options, &model, &err));
    tsr_collection* tables = nullptr;
    OK(tsr_model_parallel_collection(model, "", &tables, &err));
    std::vector<int64_t> ids{5, 0}, lengths{1, 1};
    View<int64_t> values(ids, {2}), counts(lengths, {2});
    const tsr_batch batch{sizeof(batch), 2,       nullptr, &values, &counts, nullptr,
                          nullptr,       nullptr, nullptr, 0,       0,       nullptr};
    tsr_step *first = nullptr, *second = nullptr, *last = nullptr;
    OK(tsr_collection_start(tables, &batch, &first, &err));
    OK(tsr_collection_start(tables, &batch, &second, &err));
    std::thread finalizer([&, me] {
      if (me == 0) return;
      auto info = sdk::sized<tsr_collection_info>();
      while (tsr_collection_describe(tables, &info, nullptr) == TSR_OK) std::this_thread::yield();
      tsr_step_close(second);
      closed = true;
    });
    while (me == 0 && !closed) std::this_thread::yield();
    std::vector<float> sum{1};
    View<float> one(sum, {1});
    tsr_code summed = TSR_FAILED_PRECONDITION;  // as long as the finalizer looks whether this thread is in the group
    while (summed == TSR_FAILED_PRECONDITION)
      summed = tsr_process_group_all_reduce(group, &one, TSR_REDUCE_SUM, nullptr);
    EXPECT_EQ(summed, TSR_OK);
    finalizer.join();
    DLTensor rows{}, again{};
    OK(tsr_step_wait(first, &err));
    OK(tsr_step_output(first, 0, &rows, &err));
    if (me == 0) {
      OK(tsr_step_wait(second, &err));
      OK(tsr_step_output(second, 0, &again, &err));
      EXPECT_EQ(std::memcmp(again.data, rows.data, 8 * sizeof(float)), 0);
      tsr_step_close(second);
    }
    OK(tsr_process_group_barrier(group, &err));
    // Rank 1 makes no further call: closing its last handle does its part.
    OK(tsr_collection_start(tables, &batch, &last, &err));
    if (me == 0) OK(tsr_step_wait(last, &err));
    tsr_step_close(last);
    tsr_step_close(first);
    tsr_collection_close(tables);
    tsr_model_parallel_close(model);
    tsr_process_group_close(group);
    tsr_runtime_close(runtime);
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
}

TEST_F(CSteps, AnOutputWithAnOwnerOutlivesAll) {
  tsr_step* step = nullptr;
  OK(tsr_collection_forward(tables_, &batch_, nullptr, &step, &err));
  DLManagedTensorVersioned* owned = nullptr;
  REFUSED(TSR_OUT_OF_RANGE, "no output 1", tsr_step_export(step, 1, &owned, &err));
  EXPECT_EQ(owned, nullptr);
  OK(tsr_step_export(step, 0, &owned, &err));
  DLTensor view;
  OK(tsr_step_output(step, 0, &view, &err));
  EXPECT_EQ(owned->dl_tensor.data, view.data) << "no copy";
  tsr_step_close(step);
  OK(tsr_collection_forward(tables_, &batch_, nullptr, &step, &err));  // the caller may not own its memory
  tsr_step_close(step);
  TearDown();
  tables_ = nullptr, model_ = nullptr, runtime_ = nullptr;
  ASSERT_EQ(owned->version.major, 1u);
  ASSERT_EQ(owned->dl_tensor.ndim, 2);
  EXPECT_EQ(owned->dl_tensor.shape[1], 8);
  const auto* rows = static_cast<const float*>(owned->dl_tensor.data);
  EXPECT_EQ(std::vector<float>(rows + 4, rows + 8), (std::vector<float>{13, 13, 13, 13}));
  owned->deleter(owned);
}

// docs/c.md promises these.
TEST_F(CSteps, JsonHasThePromisedKeys) {
  const auto has = [](const json& object, const std::vector<const char*>& keys) {
    for (const char* key : keys) EXPECT_TRUE(object.contains(key)) << key << " in " << object.dump();
  };
  tsr_text* text = nullptr;
  OK(tsr_runtime_report(runtime_, &text, &err));
  const json report = json::parse(tsr_text_data(text));
  tsr_text_free(text);
  has(report, {"searched", "plugins"});
  ASSERT_FALSE(report["plugins"].empty());
  has(report["plugins"][0], {"path", "id", "kind", "version", "state", "reason"});
  OK(tsr_collection_stats(tables_, 0, &text, &err));
  const json stats = json::parse(tsr_text_data(text));
  tsr_text_free(text);
  has(stats, {"rank", "world_size", "updates", "dropped_ids", "steps", "stages", "bytes_sent", "tables"});
  has(stats["bytes_sent"]["ids"], {"in_host", "across_hosts"});
  has(stats["tables"]["a"], {"weight_bytes", "state_bytes", "lookups", "rows"});
}

TEST_F(CSteps, TheDensePartIsInCheckpoints) {
  const TestDirectory folder;
  DLTensor weight;
  OK(tsr_model_parallel_dense(model_, "top.weight", &weight, &err));
  ASSERT_EQ(weight.ndim, 2);
  EXPECT_EQ(weight.shape[1], 8);
  auto* values = static_cast<float*>(weight.data);
  EXPECT_EQ(values[7], 0);
  values[7] = 2.5;
  OK(tsr_model_parallel_save(model_, folder.file("saved").c_str(), nullptr, &err));
  values[7] = -1;
  OK(tsr_model_parallel_load(model_, folder.file("saved").c_str(), nullptr, nullptr, &err));
  EXPECT_EQ(values[7], 2.5f);
  REFUSED(TSR_NOT_FOUND, "it has top.weight, top.bias", tsr_model_parallel_dense(model_, "top", &weight, &err));
}

// Scores of a packed model for one sample with ids 2 and 3.
TEST_F(CSteps, TablesAndADensePartArePacked) {
  const TestDirectory folder;
  std::vector<float> weight(8, 0.125f), bias{-2};
  View<float> weights(weight, {1, 8}), biases(bias, {1});
  const char* names[] = {"top.weight", "top.bias"};
  const DLTensor* tensors[] = {&weights, &biases};
  auto options = sdk::sized<tsr_pack_options>();
  options.num_collections = 1;
  options.collections = &tables_;
  options.graph = R"({"dense_inputs": 0, "layers": [{"name": "top", "type": "linear", "inputs": ["a", "b"],
      "options": {"width": 1}}], "heads": [{"name": "click", "input": "top", "loss": "binary_cross_entropy",
      "label": "label", "weight": 1}]})";
  options.names = names;
  options.tensors = tensors;
  options.num_tensors = 1;
  options.settings = R"({"format": "fp32"})";
  const std::string to = folder.file("model");
  tsr_text* report = nullptr;
  REFUSED(TSR_INVALID_ARGUMENT, "bias", tsr_pack(to.c_str(), &options, &report, &err));
  options.num_tensors = 2;
  options.settings = R"({"formats": {"c": "fp16"}})";
  REFUSED(TSR_INVALID_ARGUMENT, "unknown key \"c\"", tsr_pack(to.c_str(), &options, &report, &err));
  options.settings = R"({"format": "fp32"})";
  OK(tsr_pack(to.c_str(), &options, &report, &err));
  const json packed = json::parse(tsr_text_data(report));
  EXPECT_EQ(packed[1]["table"], "b");
  EXPECT_EQ(packed[1].size(), 6u) << "as docs/c.md promises: " << packed[1].dump();
  tsr_text_free(report);
  tsr_model* model = nullptr;
  OK(tsr_model_open(to.c_str(), nullptr, &model, &err));
  std::vector<std::vector<int64_t>> ids{{2}, {3}};
  std::vector<std::vector<int32_t>> one{{1}, {1}};
  std::vector<float> dense, single(1);
  const ModelBatch input(ids, one, dense, 1);
  View<float> single_out(single, {1});
  const DLTensor* into[] = {&single_out};
  OK(tsr_model_predict(model, &input.raw, into, 1, &err));
  const float score = single[0];
  EXPECT_NEAR(score, 1 / (1 + std::exp(-(4 * 2 + 4 * 13) / 8.0 + 2)), 1e-6);

  // The same twice, from a table of int32 ids whose columns are the features, into every second float.
  std::vector<int32_t> table{2, 3, 2, 3};
  std::vector<int64_t> ones{1, 1};
  std::vector<float> scores{-1, -1, -1, -1};
  int64_t stride = 2;
  View<int32_t> of_a(table, {2}), of_b(table, {2});
  View<int64_t> lengths(ones, {2});
  View<float> out(scores, {2});
  of_a.tensor.strides = of_b.tensor.strides = out.tensor.strides = &stride;
  of_b.tensor.byte_offset = sizeof(int32_t);
  const DLTensor *values[] = {&of_a, &of_b}, *counts[] = {&lengths, &lengths};
  into[0] = &out;
  tsr_model_input tensors_in{sizeof(tensors_in), 2, nullptr, values, counts, nullptr};
  OK(tsr_model_predict(model, &tensors_in, into, 1, &err));
  EXPECT_THAT(scores, ElementsAre(score, -1, score, -1));
  const DLTensor* floats[] = {&out, &of_b};
  tensors_in.values = floats;
  REFUSED(TSR_INVALID_ARGUMENT, "whole numbers", tsr_model_predict(model, &tensors_in, into, 1, &err));
  tensors_in.values = values;
  ones[0] = 2;
  REFUSED(TSR_INVALID_ARGUMENT, "a", tsr_model_predict(model, &tensors_in, into, 1, &err));
  tsr_model_close(model);
}

// A model with a second head that has two values, which are not probabilities.
TEST_F(CSteps, AModelGivesAllItsOutputs) {
  const TestDirectory folder;
  std::vector<float> weight(4, 0.25f), bias{-1}, side{1, 0, 0, 0, 0, -2, 0, 0}, zeros(2, 0);
  View<float> weights(weight, {1, 4}), biases(bias, {1}), side_weights(side, {2, 4}), side_biases(zeros, {2});
  const char* names[] = {"top.weight", "top.bias", "side.weight", "side.bias"};
  const DLTensor* tensors[] = {&weights, &biases, &side_weights, &side_biases};
  auto options = sdk::sized<tsr_pack_options>();
  options.num_collections = 1;
  options.collections = &tables_;
  options.graph = R"({"dense_inputs": 0, "layers": [
      {"name": "top", "type": "linear", "inputs": ["a"], "options": {"width": 1}},
      {"name": "side", "type": "linear", "inputs": ["b"], "options": {"width": 2}}], "heads": [
      {"name": "click", "input": "top", "loss": "binary_cross_entropy", "label": "label", "weight": 1},
      {"name": "pair", "input": "side", "loss": "mse", "label": "label", "weight": 1}]})";
  options.names = names;
  options.tensors = tensors;
  options.num_tensors = 4;
  options.settings = R"({"format": "fp32"})";
  OK(tsr_pack(folder.file("model").c_str(), &options, nullptr, &err));
  tsr_model* model = nullptr;
  OK(tsr_model_open(folder.file("model").c_str(), nullptr, &model, &err));
  auto info = sdk::sized<tsr_model_info>();
  OK(tsr_model_describe(model, &info, &err));
  EXPECT_EQ(info.num_outputs, 2u);
  auto output = sdk::sized<tsr_model_output>();
  OK(tsr_model_get_output(model, 1, &output, &err));
  EXPECT_STREQ(output.name, "pair");
  EXPECT_EQ(output.width, 2);
  EXPECT_EQ(output.probability, 0);
  REFUSED(TSR_OUT_OF_RANGE, "no output 2", tsr_model_get_output(model, 2, &output, &err));

  // Looks up rows 2 and 1 of a, 3 and 0 of b.
  std::vector<int64_t> ids{2, 1, 3, 0}, ones{1, 1};
  View<int64_t> of_a(ids, {2}), of_b(ids, {2}), lengths(ones, {2});
  of_b.tensor.byte_offset = 2 * sizeof(int64_t);
  const DLTensor *values[] = {&of_a, &of_b}, *counts[] = {&lengths, &lengths};
  const tsr_model_input in{sizeof(in), 2, nullptr, values, counts, nullptr};
  std::vector<float> scores(2), pairs(8, -1);
  View<float> score(scores, {2}), pair(pairs, {2, 2});
  int64_t strides[] = {4, 2};  // writes every second float
  pair.tensor.strides = strides;
  const DLTensor *both[] = {&score, &pair}, *second[] = {nullptr, &pair}, *none[] = {nullptr, nullptr};
  OK(tsr_model_predict(model, &in, both, 2, &err));
  const auto sigmoid = [](double x) { return static_cast<float>(1 / (1 + std::exp(-x))); };
  EXPECT_THAT(scores, ElementsAre(FloatEq(sigmoid(2 - 1)), FloatEq(sigmoid(1 - 1))));
  EXPECT_THAT(pairs, ElementsAre(13, -1, -26, -1, 10, -1, -20, -1));
  std::fill(pairs.begin(), pairs.end(), 0);
  OK(tsr_model_predict(model, &in, second, 2, &err));
  EXPECT_EQ(pairs[2], -26);
  REFUSED(TSR_INVALID_ARGUMENT, "all NULL", tsr_model_predict(model, &in, none, 2, &err));
  REFUSED(TSR_INVALID_ARGUMENT, "the model has 2", tsr_model_predict(model, &in, both, 3, &err));
  pair.tensor.ndim = 1;
  REFUSED(TSR_INVALID_ARGUMENT, "\"pair\" must be float32 [2, 2]", tsr_model_predict(model, &in, both, 2, &err));
  tsr_model_close(model);
}

TEST(CComponents, TheTrainerTakesAConfig) {
  tsr_runtime* runtime = nullptr;
  OK(tsr_runtime_open(nullptr, &runtime, &err));
  struct Told {
    int asked = 0;
    std::vector<json> events;
  } told;
  auto options = sdk::sized<tsr_train_options>();
  options.config = R"(
model = {embedding_dim = 4, bottom_mlp = [4], top_mlp = [1]}
report = {log_every = 2}
data = {columns = 2, rows = [20], dense = 2, samples = 64, test_samples = 16, batch = 8}
)";
  const char* overrides[] = {"data.epochs=2"};
  options.overrides = overrides;
  options.num_overrides = 1;
  options.watch = [](void* user, const char* event) -> int32_t {
    auto& to = *static_cast<Told*>(user);
    if (event == nullptr) return ++to.asked, 0;
    to.events.push_back(json::parse(event));
    return to.events.back()["step"] == 8 ? 1 : 0;
  };
  options.user = &told;
  tsr_text* report = nullptr;
  OK(tsr_train(runtime, nullptr, &options, &report, &err));
  const json done = json::parse(tsr_text_data(report));
  EXPECT_EQ(done["stopped"], true);
  EXPECT_EQ(done["test"]["auc"], nullptr) << "who stops does not wait for it";
  ASSERT_GE(told.events.size(), 4u);
  EXPECT_EQ(told.events[1]["step"], 4);
  EXPECT_GT(told.events[1]["loss"], 0.0);
  EXPECT_EQ(told.asked, done["steps"]);
  tsr_text_free(report);
  options.watch = nullptr;
  OK(tsr_train(runtime, nullptr, &options, &report, &err));
  EXPECT_EQ(json::parse(tsr_text_data(report))["losses"].size(), 16u);
  EXPECT_GT(json::parse(tsr_text_data(report))["test"]["auc"], 0.0);
  tsr_text_free(report);
  options.config = "[dat]\n";
  options.source = "mine.toml";
  REFUSED(TSR_INVALID_ARGUMENT, "mine.toml", tsr_train(runtime, nullptr, &options, &report, &err));
  EXPECT_EQ(report, nullptr);
  options.config = nullptr;
  REFUSED(TSR_INVALID_ARGUMENT, "config is NULL", tsr_train(runtime, nullptr, &options, &report, &err));
  tsr_runtime_close(runtime);
}

// Raw 64-bit ids in a table whose kernel makes rows on demand.
TEST(CComponents, ATableTakesAnyId) {
  const char* path[] = {TESSERA_DYNAMIC};
  auto options = sdk::sized<tsr_runtime_options>();
  options.plugin_path = path;
  options.num_plugin_paths = 1;
  tsr_runtime* runtime = nullptr;
  OK(tsr_runtime_open(&options, &runtime, &err));
  const tsr_model_parallel_options described{sizeof(described), 0, R"({"modules": [{"tables": [
      {"name": "item", "any_id": true, "num_embeddings": 8, "embedding_dim": 4, "init_range": 0,
       "sharding_types": ["table_wise"], "compute_kernels": ["dynamic?evict=lfu"]}]}],
      "optimizer": {"name": "exact_sgd", "learning_rate": 1}})"};
  tsr_model_parallel* model = nullptr;
  OK(tsr_model_parallel_create(runtime, nullptr, &described, &model, &err));
  tsr_collection* tables = nullptr;
  OK(tsr_model_parallel_collection(model, "", &tables, &err));
  std::vector<int64_t> ids{INT64_MAX - 1, 3, 3}, lengths{1, 2};
  View<int64_t> values(ids, {3}), counts(lengths, {2});
  const tsr_batch batch{sizeof(batch), 1, nullptr, &values, &counts, nullptr, nullptr, nullptr, nullptr, 0, 0, nullptr};
  std::vector<float> got(8, -1), grad{1, 1, 1, 1, 2, 2, 2, 2};
  View<float> out(got, {2, 4}), gradient(grad, {2, 4});
  const DLTensor* grads[] = {&gradient};
  for (int i = 0; i < 2; ++i) {
    tsr_step* step = nullptr;
    OK(tsr_collection_forward(tables, &batch, &out, &step, &err));
    OK(tsr_step_backward(step, grads, 1, nullptr, &err));
    tsr_step_close(step);
  }
  EXPECT_THAT(got, ElementsAre(-1, -1, -1, -1, -8, -8, -8, -8)) << "rows as the first step left them";
  REFUSED(TSR_UNIMPLEMENTED, "table \"item\" takes any ids", tsr_collection_read_rows(tables, "item", 0, &out, &err));
  auto shard = sdk::sized<tsr_shard_info>();
  OK(tsr_collection_get_shard(tables, 0, &shard, &err));
  EXPECT_EQ(shard.on_demand, 1);
  REFUSED(TSR_UNIMPLEMENTED, "exist on demand", tsr_shard_read(tables, 0, 0, &out, nullptr, 0, &err));
  std::map<int64_t, float> rows;
  std::vector<int64_t> id{0};
  std::vector<float> row(4);
  View<int64_t> id_out(id, {1});
  View<float> row_out(row, {1, 4});
  int64_t count = 1;
  for (uint64_t cursor = 0; count > 0;) {
    OK(tsr_shard_next_rows(tables, 0, &cursor, &id_out, &row_out, nullptr, 0, &count, &err));
    if (count > 0) rows[id[0]] = row[3];
  }
  EXPECT_THAT(rows, ElementsAre(testing::Pair(3, -8), testing::Pair(INT64_MAX - 1, -2)));
  DLManagedTensorVersioned* view = nullptr;
  REFUSED(TSR_UNIMPLEMENTED, "table \"item\", gives no view of its rows", tsr_shard_export(tables, 0, -1, &view, &err));
  ids[1] = INT64_MAX;
  REFUSED(TSR_INVALID_ARGUMENT, "9223372036854775807", tsr_collection_forward(tables, &batch, &out, nullptr, &err));
  tsr_collection_close(tables);
  tsr_model_parallel_close(model);
  tsr_runtime_close(runtime);
}

}  // namespace
}  // namespace tessera::test
