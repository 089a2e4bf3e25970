// tessera.h through its exported functions: numbers, rows, checkpoints, wrong uses, threads, forks; and the example on
// two ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "c_calls.h"
#include "tessera/abi/optimizer.h"
#include "tessera_program.h"

namespace tessera::test {
namespace {

using json = nlohmann::json;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::FloatEq;
using testing::HasSubstr;

// Two tables of 6 and 4 rows, SGD with rate 1.
std::string text(const char* kind = "bags", const char* optimizer = "exact_sgd") {
  const json tables = {{{"name", "a"}, {"num_embeddings", 6}, {"embedding_dim", 4}},
                       {{"name", "b"}, {"num_embeddings", 4}, {"embedding_dim", 4}, {"feature_names", {"y"}}}};
  return json{{"modules", {{{"kind", kind}, {"tables", tables}}}},
              {"optimizer", {{"name", optimizer}, {"learning_rate", 1.0}}}}
      .dump();
}

// The same, on a single rank.
class CApi : public testing::Test {
 protected:
  void SetUp() override {
    OK(tsr_runtime_open(nullptr, &runtime_, &err));
    model_ = create(text());
    ASSERT_NE(model_, nullptr);
    OK(tsr_model_parallel_collection(model_, "", &tables_, &err));
  }
  void TearDown() override {
    tsr_collection_close(tables_);
    tsr_model_parallel_close(model_);
    tsr_runtime_close(runtime_);
  }

  tsr_model_parallel* create(const std::string& model, const char* planner = nullptr) {
    const tsr_model_parallel_options options{sizeof(options), 0, model.c_str(), nullptr, planner};
    tsr_model_parallel* out = nullptr;
    Error err;
    EXPECT_EQ(tsr_model_parallel_create(runtime_, nullptr, &options, &out, &err), TSR_OK) << err.message;
    return out;
  }
  // Sets every row r of a table to values[r] in all columns.
  void set_rows(const char* table, const std::vector<float>& values) {
    std::vector<float> rows;
    for (const float v : values) rows.insert(rows.end(), 4, v);
    View<float> view(rows, {static_cast<int64_t>(values.size()), 4});
    OK(tsr_collection_write_rows(tables_, table, 0, &view, &err));
  }
  std::vector<float> rows_of(tsr_collection* tables, const char* table, int64_t first, int64_t count) {
    std::vector<float> rows(static_cast<size_t>(count * 4), -1);
    View<float> view(rows, {count, 4});
    Error err;
    EXPECT_EQ(tsr_collection_read_rows(tables, table, first, &view, &err), TSR_OK) << err.message;
    return rows;
  }

  tsr_runtime* runtime_ = nullptr;
  tsr_model_parallel* model_ = nullptr;
  tsr_collection* tables_ = nullptr;
};

// A model and its tables, which are closed with the test.
struct Opened {
  explicit Opened(tsr_model_parallel* m) : model(m) {
    Error err;
    EXPECT_EQ(tsr_model_parallel_collection(model, "", &tables, &err), TSR_OK) << err.message;
  }
  ~Opened() { close(); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  void close() {
    tsr_collection_close(std::exchange(tables, nullptr));
    tsr_model_parallel_close(std::exchange(model, nullptr));
  }
  tsr_model_parallel* model;
  tsr_collection* tables = nullptr;
};

// Gradients of 1 for two samples of both tables.
struct Ones {
  std::vector<float> values = std::vector<float>(16, 1);
  View<float> view{values, {2, 8}};
  const DLTensor* grads[1] = {&view.tensor};
};

// Two samples: a has {1, 2} and {}, y has {3} and {0}.
struct Batch {
  std::vector<int64_t> ids{1, 2, 3, 0}, lengths{2, 0, 1, 1};
  View<int64_t> values{ids, {4}}, counts{lengths, {4}};
  tsr_batch raw{sizeof(tsr_batch), 2, nullptr, &values, &counts, nullptr, nullptr, nullptr, nullptr, 0, 0};
};

// Members that only a newer caller knows are 0, whatever they were.
TEST_F(CApi, LongerStructsEndInZeros) {
  struct Longer {
    tsr_collection_info info;
    unsigned char more[24];
  } longer;
  std::memset(&longer, 0xA5, sizeof(longer));
  longer.info.struct_size = sizeof(longer);
  OK(tsr_collection_describe(tables_, &longer.info, &err));
  EXPECT_EQ(longer.info.struct_size, sizeof(longer));
  EXPECT_GT(longer.info.num_tables, 0u);
  EXPECT_THAT(longer.more, Each(0));
}

// A message that does not fit ends with a whole character.
TEST_F(CApi, MessagesAreCutBetweenCharacters) {
  std::string name;
  for (int i = 0; i < 40; ++i) name += "\u00e9\u20ac";  // of two and three bytes
  const std::string model = json{{name, 1}}.dump();
  const tsr_model_parallel_options options{sizeof(options), 0, model.c_str(), nullptr, nullptr};
  for (uint32_t room = 1; room < 200; ++room) {
    Error err;
    err.struct_size = static_cast<uint32_t>(offsetof(tsr_error, message)) + room;
    tsr_model_parallel* out = nullptr;
    ASSERT_EQ(tsr_model_parallel_create(runtime_, nullptr, &options, &out, &err), TSR_INVALID_ARGUMENT);
    const std::string said = err.message;
    EXPECT_LT(said.size(), room);
    EXPECT_NO_THROW((void)json(said).dump()) << room << ": json refuses text that is no UTF-8";
  }
}

TEST_F(CApi, LooksUpAndLearns) {
  set_rows("a", {0, 1, 2, 3, 4, 5});
  set_rows("b", {10, 11, 12, 13});
  Batch batch;
  tsr_step* step = nullptr;
  std::vector<float> mine(16);
  View<float> copy(mine, {2, 8});
  OK(tsr_collection_forward(tables_, &batch.raw, &copy, &step, &err));
  DLTensor out;
  OK(tsr_step_output(step, 0, &out, &err));
  ASSERT_EQ(out.ndim, 2);
  EXPECT_EQ(std::vector<int64_t>(out.shape, out.shape + 2), (std::vector<int64_t>{2, 8}));
  const auto* rows = static_cast<const float*>(out.data);
  EXPECT_THAT(std::vector<float>(rows, rows + 16), ElementsAre(3, 3, 3, 3, 13, 13, 13, 13, 0, 0, 0, 0, 10, 10, 10, 10));
  EXPECT_EQ(mine, std::vector<float>(rows, rows + 16));

  const Ones ones;
  OK(tsr_step_backward(step, ones.grads, 1, nullptr, &err));
  REFUSED(TSR_FAILED_PRECONDITION, "once", tsr_step_backward(step, ones.grads, 1, nullptr, &err));
  EXPECT_THAT(rows_of(tables_, "a", 0, 1), Each(0)) << "not in the batch";
  EXPECT_THAT(rows_of(tables_, "a", 1, 1), Each(FloatEq(0)));
  EXPECT_THAT(rows_of(tables_, "a", 2, 1), Each(FloatEq(1)));
  EXPECT_THAT(rows_of(tables_, "b", 3, 1), Each(FloatEq(12)));
  tsr_collection_info info{sizeof(info)};
  OK(tsr_collection_describe(tables_, &info, &err));
  EXPECT_EQ(info.steps, 1);
  EXPECT_EQ(info.width, 8);
  EXPECT_EQ(rows[0], 3) << "the output stays until the step is closed";
  tsr_step_close(step);
}

TEST_F(CApi, StatsCountStepsFromTheirLastRestart) {
  Batch batch;
  const Ones ones;
  const auto stats = [&](int32_t restart) {
    tsr_text* text = nullptr;
    Error err;
    EXPECT_EQ(tsr_collection_stats(tables_, restart, &text, &err), TSR_OK) << err.message;
    json out = json::parse(tsr_text_data(text));
    tsr_text_free(text);
    return out;
  };
  for (int i = 0; i < 2; ++i) {
    tsr_step* step = nullptr;
    OK(tsr_collection_forward(tables_, &batch.raw, nullptr, &step, &err));
    OK(tsr_step_backward(step, ones.grads, 1, nullptr, &err));
    tsr_step_close(step);
  }
  const json first = stats(1), again = stats(0);
  EXPECT_EQ(first["steps"], 2);
  EXPECT_EQ(first["updates"], 2);
  EXPECT_GT(first["stages"]["lookup"], 0);
  EXPECT_EQ(first["stages"].size(), 9);
  EXPECT_EQ(first["tables"]["a"]["lookups"], 4);
  EXPECT_GE(first["tables"]["b"]["weight_bytes"], 4 * 4 * 4);
  EXPECT_EQ(first["bytes_sent"]["rows"]["in_host"], 0);
  EXPECT_EQ(again["steps"], 0);
  EXPECT_EQ(again["stages"]["lookup"], 0);
  EXPECT_EQ(again["tables"], first["tables"]);
  tsr_text* none = nullptr;
  REFUSED(TSR_INVALID_ARGUMENT, "collection is NULL", tsr_collection_stats(nullptr, 0, &none, &err));
  EXPECT_EQ(none, nullptr);
}

// The row of each id times its bag's gradient, before and after the rows have changed.
TEST_F(CApi, WeightsHaveGradients) {
  auto weighted = json::parse(text());
  weighted["modules"][0]["is_weighted"] = true;
  const Opened own(create(weighted.dump()));
  std::vector<float> rows(24);
  std::iota(rows.begin(), rows.end(), 0.0f);
  View<float> of_a(rows, {6, 4}), of_b(rows, {4, 4});
  OK(tsr_collection_write_rows(own.tables, "a", 0, &of_a, &err));
  OK(tsr_collection_write_rows(own.tables, "b", 0, &of_b, &err));
  Batch batch;
  std::vector<float> weights{1, 2, 0.5f, 0}, grad{1, 0, 0, 0, 0, 1, 0, 0, 9, 9, 9, 9, 0, 0, 1, 1}, got(4, -1);
  View<float> w(weights, {4}), g(grad, {2, 8}), out(got, {4});
  batch.raw.weights = &w;
  OK(tsr_collection_weight_gradients(own.tables, &batch.raw, &g, &out, &err));
  EXPECT_THAT(got, ElementsAre(4, 8, 13, 2 + 3));
  View<float> small(got, {3}), flat(grad, {16});
  REFUSED(TSR_INVALID_ARGUMENT, "3 elements for 4 ids",
          tsr_collection_weight_gradients(own.tables, &batch.raw, &g, &small, &err));
  REFUSED(TSR_INVALID_ARGUMENT, "float32 [2, 8]",
          tsr_collection_weight_gradients(own.tables, &batch.raw, &flat, &out, &err));
  REFUSED(TSR_FAILED_PRECONDITION, "is_weighted", tsr_collection_weight_gradients(tables_, &batch.raw, &g, &out, &err));
  tsr_step* step = nullptr;
  REFUSED(TSR_INVALID_ARGUMENT, "this collection is not weighted: is_weighted",
          tsr_collection_forward(tables_, &batch.raw, nullptr, &step, &err));

  // Two samples of "a" as before, and one of "y" shared by all three samples of the batch: its gradients add up.
  std::vector<int64_t> ids{1, 2, 3}, lengths{2, 0, 1}, which{0, 1, 0, 0, 0, 0}, strides{2, 1};
  View<int64_t> values(ids, {3}), counts(lengths, {3}), inverse(which, {2, 3});
  std::vector<float> ones(3, 1), of_three(24, 1);
  View<float> w3(ones, {3}), g3(of_three, {3, 8}), out3(got, {3});
  tsr_batch varied{sizeof(tsr_batch), 2,        nullptr, &values, &counts, nullptr, &w3,
                   strides.data(),    &inverse, 0,       0,       nullptr};
  OK(tsr_collection_weight_gradients(own.tables, &varied, &g3, &out3, &err));
  EXPECT_THAT(std::vector<float>(got.begin(), got.begin() + 3),
              ElementsAre(2 * (4 + 5 + 6 + 7), 2 * (8 + 9 + 10 + 11), 3 * (12 + 13 + 14 + 15)));
}

TEST_F(CApi, SequencesHaveAnOutputForEachFeature) {
  const Opened own(create(text("sequences")));
  const std::vector<float> before = rows_of(own.tables, "a", 1, 2);
  Batch batch;
  tsr_step* step = nullptr;
  OK(tsr_collection_forward(own.tables, &batch.raw, nullptr, &step, &err));
  tsr_step_info info{sizeof(info)};
  OK(tsr_step_describe(step, &info, &err));
  ASSERT_EQ(info.num_outputs, 2u);
  DLTensor out;
  OK(tsr_step_output(step, 0, &out, &err));
  EXPECT_EQ(std::vector<int64_t>(out.shape, out.shape + 2), (std::vector<int64_t>{2, 4}));
  const auto* rows = static_cast<const float*>(out.data);
  EXPECT_EQ(std::vector<float>(rows, rows + 8), before);
  std::vector<float> ones(8, 1);
  View<float> grad(ones, {2, 4});
  const DLTensor* grads[] = {&grad, nullptr};  // y gets no gradient
  const std::vector<float> other = rows_of(own.tables, "b", 0, 4);
  OK(tsr_step_backward(step, grads, 2, nullptr, &err));
  for (size_t i = 0; i < 8; ++i) EXPECT_FLOAT_EQ(rows_of(own.tables, "a", 1, 2)[i], before[i] - 1);
  EXPECT_EQ(rows_of(own.tables, "b", 0, 4), other);
  tsr_step_close(step);
  std::vector<float> weights(4, 1);
  View<float> w(weights, {4});
  batch.raw.weights = &w;
  REFUSED(TSR_INVALID_ARGUMENT, "rows of sequences have no weights",
          tsr_collection_forward(own.tables, &batch.raw, nullptr, &step, &err));
}

TEST_F(CApi, ShardsAndTheirStatesGoOutAndIn) {
  const Opened own(create(text("bags", "exact_rowwise_adagrad")));
  tsr_shard_info shard{sizeof(shard)};
  OK(tsr_collection_get_shard(own.tables, 0, &shard, &err));
  EXPECT_EQ(shard.table, 0u);
  EXPECT_EQ(shard.rows, 6);
  EXPECT_EQ(shard.cols, 4);
  ASSERT_EQ(shard.num_states, 1u);
  tsr_state_info state{sizeof(state)};
  OK(tsr_shard_get_state(own.tables, 0, 0, &state, &err));
  EXPECT_STREQ(state.name, "momentum1");
  EXPECT_EQ(state.kind, TSR_STATE_PER_ROW);
  EXPECT_EQ(state.dtype.code, kDLFloat);
  EXPECT_EQ(state.dtype.bits, 32);
  std::vector<float> rows{1, 2, 3, 4, 5, 6, 7, 8}, sums{9, 10}, read_rows(8), read_sums(2);
  std::vector<int64_t> ids(2);
  View<float> weights(rows, {2, 4}), momentum(sums, {2}), weights_out(read_rows, {2, 4}), momentum_out(read_sums, {2});
  View<int64_t> ids_out(ids, {2});
  View<float> one_row(read_rows, {1, 4});
  const DLTensor *in[] = {&momentum}, *out[] = {&momentum_out};
  OK(tsr_shard_write(own.tables, 0, 3, &weights, in, 1, &err));
  OK(tsr_shard_read(own.tables, 0, 3, &weights_out, out, 1, &err));
  OK(tsr_shard_ids(own.tables, 0, 3, &ids_out, &err));
  EXPECT_EQ(read_rows, rows);
  EXPECT_EQ(read_sums, sums);
  EXPECT_THAT(ids, ElementsAre(3, 4));
  EXPECT_EQ(rows_of(own.tables, "a", 3, 2), rows);
  REFUSED(TSR_OUT_OF_RANGE, "6 rows", tsr_shard_read(own.tables, 0, 5, &weights_out, out, 1, &err));
  EXPECT_EQ(shard.on_demand, 0);
  std::vector<int64_t> seen;
  int64_t count = 2;
  for (uint64_t cursor = 0; count > 0;) {
    OK(tsr_shard_next_rows(own.tables, 0, &cursor, &ids_out, &weights_out, out, 1, &count, &err));
    if (count > 0 && ids[0] == 3) {
      EXPECT_EQ(read_sums[0], 9);
    }
    seen.insert(seen.end(), ids.begin(), ids.begin() + count);
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4, 5));
  uint64_t cursor = 0;
  REFUSED(TSR_INVALID_ARGUMENT, "room for 2 ids and 1 rows",
          tsr_shard_next_rows(own.tables, 0, &cursor, &ids_out, &one_row, nullptr, 0, &count, &err));
  REFUSED(TSR_INVALID_ARGUMENT, "0 states", tsr_shard_read(own.tables, 0, 0, &weights_out, out, 0, &err));
}

TEST_F(CApi, AViewOfAShardIsItsMemoryUntilItsDeleterIsCalled) {
  Opened own(create(text("bags", "exact_rowwise_adagrad")));
  DLManagedTensorVersioned *rows = nullptr, *sums = nullptr, *none = rows;
  OK(tsr_shard_export(own.tables, 1, -1, &rows, &err));
  OK(tsr_shard_export(own.tables, 1, 0, &sums, &err));
  REFUSED(TSR_OUT_OF_RANGE, "state 1", tsr_shard_export(own.tables, 1, 1, &none, &err));
  REFUSED(TSR_OUT_OF_RANGE, "state", tsr_shard_export(own.tables, 1, -2, &none, &err));
  REFUSED(TSR_OUT_OF_RANGE, "shard 2", tsr_shard_export(own.tables, 2, -1, &none, &err));
  REFUSED(TSR_INVALID_ARGUMENT, "view", tsr_shard_export(own.tables, 1, -1, nullptr, &err));
  EXPECT_EQ(none, nullptr);
  const DLTensor& view = rows->dl_tensor;
  ASSERT_EQ(view.ndim, 2);
  EXPECT_THAT(std::vector(view.shape, view.shape + 2), ElementsAre(4, 4));
  EXPECT_THAT(std::vector(view.strides, view.strides + 2), ElementsAre(4, 1));
  ASSERT_EQ(sums->dl_tensor.ndim, 1);
  EXPECT_EQ(sums->dl_tensor.shape[0], 4);
  auto* values = static_cast<float*>(view.data);
  std::fill_n(values + 12, 4, 7.0f);  // row 3, the first sample's
  static_cast<float*>(sums->dl_tensor.data)[3 * sums->dl_tensor.strides[0]] = 3;
  Batch batch;
  std::vector<float> out(16), ones(16, 1);
  View<float> output(out, {2, 8}), grad(ones, {2, 8});
  const DLTensor* grads[] = {&grad};
  tsr_step* step = nullptr;
  OK(tsr_collection_forward(own.tables, &batch.raw, &output, &step, &err));
  EXPECT_THAT(std::vector(out.begin() + 4, out.begin() + 8), Each(7));
  OK(tsr_step_backward(step, grads, 1, nullptr, &err));
  tsr_step_close(step);
  own.close();
  EXPECT_THAT(std::vector(values + 12, values + 16), Each(FloatEq(6.5))) << "7 - 1 / sqrt(3 + 1)";
  EXPECT_EQ(static_cast<float*>(sums->dl_tensor.data)[3 * sums->dl_tensor.strides[0]], 4);
  rows->deleter(rows);
  sums->deleter(sums);
}

TEST_F(CApi, CheckpointsContinueInAnotherModel) {
  const TestDirectory folder;
  set_rows("a", {6, 5, 4, 3, 2, 1});
  tsr_save_options how{sizeof(how), 0, "at step 7", -1, 0};
  REFUSED(TSR_INVALID_ARGUMENT, "keep is -1",
          tsr_model_parallel_save(model_, folder.file("saved").c_str(), &how, &err));
  how.keep = 0;
  OK(tsr_model_parallel_save(model_, folder.file("saved").c_str(), &how, &err));
  const Opened own(create(text()));
  tsr_text* progress = nullptr;
  OK(tsr_model_parallel_load(own.model, folder.file("saved").c_str(), nullptr, &progress, &err));
  EXPECT_STREQ(tsr_text_data(progress), "at step 7");
  EXPECT_EQ(rows_of(own.tables, "a", 0, 6), rows_of(tables_, "a", 0, 6));
  EXPECT_EQ(rows_of(own.tables, "b", 0, 4), rows_of(tables_, "b", 0, 4));
  tsr_text_free(progress);
  REFUSED(TSR_NOT_FOUND, "nowhere",
          tsr_model_parallel_load(own.model, folder.file("nowhere").c_str(), nullptr, nullptr, &err));
}

TEST_F(CApi, PlansAndReportsAreJson) {
  tsr_text *plan = nullptr, *report = nullptr;
  OK(tsr_plan(runtime_, text().c_str(), R"({"world_size": 2, "shardings": {"a": {"sharding_type": "row_wise"},
              "b": {"sharding_type": "table_wise", "ranks": [1]}}})",
              &plan, &report, &err));
  const json made = json::parse(tsr_text_data(plan));
  EXPECT_EQ(made["world_size"], 2);
  EXPECT_EQ(made["modules"][0]["tables"][0]["sharding_type"], "row_wise");
  EXPECT_EQ(made["modules"][0]["tables"][1]["shards"][0]["rank"], 1);
  EXPECT_THAT(tsr_text_data(report), HasSubstr("row_wise"));
  tsr_text_free(plan);
  tsr_text_free(report);
  OK(tsr_plan(runtime_, text().c_str(), R"({"world_size": 4})", &plan, nullptr, &err));
  EXPECT_EQ(json::parse(tsr_text_data(plan))["world_size"], 4);
  tsr_text_free(plan);
  OK(tsr_runtime_report(runtime_, &plan, &err));
  EXPECT_THAT(tsr_text_data(plan), HasSubstr("\"row_wise\""));
  tsr_text_free(plan);
  OK(tsr_model_parallel_plan(model_, &plan, &err));
  EXPECT_EQ(json::parse(tsr_text_data(plan))["world_size"], 1);
  tsr_text_free(plan);
  tsr_text_free(nullptr);
}

TEST(CWords, TypedValuesHaveTheWordsOfTexts) {
  Error err;
  const auto words = [&](auto values, const char* unit) {
    using T = typename decltype(values)::value_type;
    const DLDataTypeCode code = std::is_floating_point_v<T> ? kDLFloat : std::is_signed_v<T> ? kDLInt : kDLUInt;
    int64_t count = std::ssize(values);
    const DLTensor tensor{values.data(), {kDLCPU, 0}, 1, {static_cast<uint8_t>(code), 8 * sizeof(T), 1},
                          &count,        nullptr,     0};
    tsr_text* text = nullptr;
    if (tsr_words(&tensor, unit, &text, &err) != TSR_OK) return std::string(err.message);
    std::string out = tsr_text_data(text);
    tsr_text_free(text);
    return out;
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(words(std::vector<uint64_t>{9223372036854775813u, 3}, nullptr), "9223372036854775813\n3\n");
  EXPECT_EQ(words(std::vector<double>{0.1, 4, 1e-4, kNan, -0.0}, nullptr), "0.1\n4\n1e-04\n\n0\n");
  EXPECT_EQ(words(std::vector<float>{0.1f}, nullptr), "0.10000000149011612\n");
  EXPECT_EQ(words(std::vector<int64_t>{1, 0}, "bool"), "true\nfalse\n");
  EXPECT_EQ(words(std::vector<int64_t>{-1}, "day"), "1969-12-31\n");
  EXPECT_EQ(words(std::vector<int64_t>{86400000, 86400500}, "ms"), "1970-01-02\n1970-01-02 00:00:00.5\n");
  EXPECT_EQ(words(std::vector<int64_t>{3600000000000}, "time"), "01:00:00\n");
  EXPECT_EQ(words(std::vector<int64_t>{}, nullptr), "");
  EXPECT_THAT(words(std::vector<int64_t>{-1}, "time"), HasSubstr("not a time of a day"));
  EXPECT_THAT(words(std::vector<int64_t>{1}, "week"), HasSubstr("unit is \"week\""));
  EXPECT_THAT(words(std::vector<double>{1}, "day"), HasSubstr("must be int64"));
}

TEST_F(CApi, LearningRatesAreByTable) {
  double rate = 0;
  OK(tsr_collection_get_learning_rate(tables_, "a", &rate, &err));
  EXPECT_EQ(rate, 1);
  OK(tsr_collection_set_learning_rate(tables_, nullptr, 0.25, &err));
  OK(tsr_collection_get_learning_rate(tables_, "b", &rate, &err));
  EXPECT_EQ(rate, 0.25);
  OK(tsr_collection_set_learning_rate(tables_, "a", 0.5, &err));
  OK(tsr_collection_get_learning_rate(tables_, "b", &rate, &err));
  EXPECT_EQ(rate, 0.5) << "tables with the same optimizer change together";
  REFUSED(TSR_NOT_FOUND, "a, b", tsr_collection_set_learning_rate(tables_, "c", 1, &err));
}

TEST_F(CApi, WhatADescriptionHasWrongIsNamed) {
  tsr_text* plan = nullptr;
  const auto refused = [&](const std::string& model, const char* planner, const char* sentence) {
    REFUSED(TSR_INVALID_ARGUMENT, sentence, tsr_plan(runtime_, model.c_str(), planner, &plan, nullptr, &err));
    EXPECT_EQ(plan, nullptr);
  };
  refused("{", nullptr, "the model is not JSON");
  refused("{}", nullptr, "the model: modules is missing");
  refused(R"({"modules": [], "optimiser": {}})", nullptr, "unknown key \"optimiser\"; did you mean \"optimizer\"?");
  refused(R"({"modules": [{"tables": [{"name": "a", "rows": 1}]}]})", nullptr,
          "the model: modules[0].tables[0] has an unknown key \"rows\"");
  refused(R"({"modules": [{"kind": "bag", "tables": []}]})", nullptr, "\"sequences\"");
  auto factors = json::parse(text());
  factors["modules"][0]["tables"][0]["pooling_factors"] = {1, 2, 3};
  refused(factors.dump(), nullptr, "table \"a\": pooling_factors has 3 numbers for 1 feature; give one for each");
  auto optimizer = json::parse(text());
  optimizer["optimizer"] = {{"name", "adamw"}};
  REFUSED(TSR_NOT_FOUND, "\"adamw\"", tsr_plan(runtime_, optimizer.dump().c_str(), nullptr, &plan, nullptr, &err));
  optimizer["optimizer"] = {{"name", "adam"}, {"beta3", 1}};
  refused(optimizer.dump(), nullptr, "beta3");
  refused(text(), R"({"world": 2})", "did you mean \"world_size\"?");
  refused(text(), R"({"shardings": {"a": {"sharding_type": "row_wise"}}})", "none for table \"b\"");
}

TEST_F(CApi, WrongUsesAreRefused) {
  Batch batch;
  tsr_step* step = nullptr;
  REFUSED(TSR_INVALID_ARGUMENT, "collection is NULL",
          tsr_collection_forward(nullptr, &batch.raw, nullptr, &step, &err));
  REFUSED(TSR_INVALID_ARGUMENT, "batch is NULL", tsr_collection_forward(tables_, nullptr, nullptr, &step, &err));
  batch.ids[1] = 6;
  REFUSED(TSR_INVALID_ARGUMENT, "6", tsr_collection_forward(tables_, &batch.raw, nullptr, &step, &err));
  batch.ids[1] = 2;
  batch.raw.num_keys = 1;
  REFUSED(TSR_INVALID_ARGUMENT, "1 keys", tsr_collection_forward(tables_, &batch.raw, nullptr, &step, &err));
  batch.raw.num_keys = 2;
  batch.raw.refused = "the file has ended";
  REFUSED(TSR_INVALID_ARGUMENT, "the file has ended",
          tsr_collection_forward(tables_, &batch.raw, nullptr, &step, &err));
  batch.raw.refused = nullptr;
  std::vector<float> wrong(4), narrow(8);
  View<float> as_floats(wrong, {4}), output(narrow, {2, 4});
  batch.raw.values = &as_floats;
  REFUSED(TSR_INVALID_ARGUMENT, "float32", tsr_collection_forward(tables_, &batch.raw, nullptr, &step, &err));
  batch.raw.values = &batch.values;
  REFUSED(TSR_INVALID_ARGUMENT, "[2, 8]", tsr_collection_forward(tables_, &batch.raw, &output, &step, &err));
  batch.values.tensor.device.device_type = kDLCUDA;
  REFUSED(TSR_UNIMPLEMENTED, "device", tsr_collection_forward(tables_, &batch.raw, nullptr, &step, &err));
  batch.values.tensor.device.device_type = kDLCPU;
  int64_t strides[] = {2};
  batch.values.tensor.strides = strides;
  REFUSED(TSR_INVALID_ARGUMENT, "compact", tsr_collection_forward(tables_, &batch.raw, nullptr, &step, &err));
  batch.values.tensor.strides = nullptr;
  EXPECT_EQ(step, nullptr);
  OK(tsr_collection_forward(tables_, &batch.raw, nullptr, &step, &err));
  const DLTensor* grads[] = {&output};
  REFUSED(TSR_INVALID_ARGUMENT, "0 gradients", tsr_step_backward(step, nullptr, 0, nullptr, &err));
  REFUSED(TSR_INVALID_ARGUMENT, "[2, 8]", tsr_step_backward(step, grads, 1, nullptr, &err));
  std::vector<float> ones(16, 1);
  View<float> right(ones, {2, 8});
  grads[0] = &right;
  OK(tsr_step_backward(step, grads, 1, nullptr, &err));  // the refused gradient did not spend the step
  tsr_step_close(step);
  std::vector<float> rows(4);
  View<float> one(rows, {1, 4});
  REFUSED(TSR_OUT_OF_RANGE, "6 rows", tsr_collection_read_rows(tables_, "a", 6, &one, &err));
  REFUSED(TSR_NOT_FOUND, "\"c\"", tsr_collection_read_rows(tables_, "c", 0, &one, &err));
  tsr_collection* none = nullptr;
  REFUSED(TSR_NOT_FOUND, "\"sparse\"", tsr_model_parallel_collection(model_, "sparse", &none, &err));
  EXPECT_EQ(tsr_model_parallel_collection(model_, "sparse", &none, nullptr), TSR_NOT_FOUND) << "without an error";
}

TEST_F(CApi, WhatHasNoOptimizerIsNotTrained) {
  json description = json::parse(text());
  description.erase("optimizer");
  const Opened own(create(description.dump()));
  tsr_step* step = nullptr;
  Batch batch;
  const Ones ones;
  OK(tsr_collection_forward(own.tables, &batch.raw, nullptr, &step, &err));
  REFUSED(TSR_FAILED_PRECONDITION, "has no optimizer", tsr_step_backward(step, ones.grads, 1, nullptr, &err));
  tsr_step_close(step);
}

TEST_F(CApi, HandlesMayBeClosedInAnyOrder) {
  tsr_process_group* group = nullptr;
  const tsr_process_group_options alone{sizeof(alone), 1, 0, 0, 1, 0, nullptr, nullptr, nullptr, 0};
  OK(tsr_process_group_connect(runtime_, &alone, &group, &err));
  const std::string model_text = text();
  const tsr_model_parallel_options options{sizeof(options), 0, model_text.c_str(), nullptr, nullptr};
  tsr_model_parallel* model = nullptr;
  tsr_collection* tables = nullptr;
  tsr_step* step = nullptr;
  Batch batch;
  OK(tsr_model_parallel_create(runtime_, group, &options, &model, &err));
  OK(tsr_model_parallel_collection(model, "", &tables, &err));
  OK(tsr_collection_forward(tables, &batch.raw, nullptr, &step, &err));
  tsr_process_group_close(group);
  tsr_model_parallel_close(model);
  tsr_collection_close(tables);
  DLTensor out;
  OK(tsr_step_output(step, 0, &out, &err));
  const Ones ones;
  OK(tsr_step_backward(step, ones.grads, 1, nullptr, &err));
  tsr_step_close(step);
}

// On one rank, a collective returns its input; the Python tests have two ranks.
TEST_F(CApi, ExchangesOfOneRank) {
  tsr_process_group* group = nullptr;
  const tsr_process_group_options alone{sizeof(alone), 1, 0, 0, 1, 0, nullptr, nullptr, nullptr, 0};
  OK(tsr_process_group_connect(runtime_, &alone, &group, &err));
  std::vector<float> sent{1, 2, 3}, got(3), moved(3);
  View<float> send(sent, {3}), recv(got, {3}), to(moved, {3});
  OK(tsr_process_group_reduce_scatter(group, &send, &recv, 0, &err));
  EXPECT_EQ(got, sent);
  const int64_t counts[] = {3}, fewer[] = {2}, more[] = {4};
  OK(tsr_process_group_all_to_all(group, &send, counts, &to, counts, &err));
  EXPECT_EQ(moved, sent);
  REFUSED(TSR_INVALID_ARGUMENT, "send_counts add up to 2, but the tensor has 3",
          tsr_process_group_all_to_all(group, &send, fewer, &to, counts, &err));
  REFUSED(TSR_INVALID_ARGUMENT, "recv_counts", tsr_process_group_all_to_all(group, &send, counts, &to, more, &err));
  View<float> half(got, {2});
  REFUSED(TSR_INVALID_ARGUMENT, "must have 2", tsr_process_group_reduce_scatter(group, &send, &half, 0, &err));
  REFUSED(TSR_UNIMPLEMENTED, "op is 7", tsr_process_group_reduce_scatter(group, &send, &recv, 7, &err));
  std::fill(got.begin(), got.end(), 0);
  OK(tsr_process_group_all_gather(group, &send, &recv, &err));
  EXPECT_EQ(got, sent);
  REFUSED(TSR_INVALID_ARGUMENT, "recv has 2 elements of float32, and must have 3 of float32",
          tsr_process_group_all_gather(group, &send, &half, &err));
  OK(tsr_process_group_broadcast(group, &recv, 0, &err));
  EXPECT_EQ(got, sent);
  REFUSED(TSR_INVALID_ARGUMENT, "root is 1, but the group has 1 ranks",
          tsr_process_group_broadcast(group, &recv, 1, &err));
  std::vector<int64_t> ids(3);
  View<int64_t> whole(ids, {3});
  REFUSED(TSR_INVALID_ARGUMENT, "send is float32, and recv is int64",
          tsr_process_group_all_to_all(group, &send, counts, &whole, counts, &err));
  REFUSED(TSR_INVALID_ARGUMENT, "reason is NULL", tsr_process_group_abort(group, nullptr, &err));
  tsr_process_group_close(group);
}

TEST_F(CApi, ACollectionDescribesItself) {
  tsr_table_info table{sizeof(table)};
  OK(tsr_collection_get_table(tables_, 1, &table, &err));
  EXPECT_STREQ(table.name, "b");
  EXPECT_STREQ(table.key, "embedding_bags.b.weight");
  EXPECT_EQ(table.rows, 4);
  EXPECT_EQ(table.dim, 4);
  REFUSED(TSR_OUT_OF_RANGE, "no table 2", tsr_collection_get_table(tables_, 2, &table, &err));
  const char* feature = nullptr;
  OK(tsr_collection_get_feature(tables_, 1, &feature, &err));
  EXPECT_STREQ(feature, "y");
  REFUSED(TSR_OUT_OF_RANGE, "no feature 2", tsr_collection_get_feature(tables_, 2, &feature, &err));
  tsr_output_info output{sizeof(output)};
  OK(tsr_collection_get_output(tables_, 1, &output, &err));
  EXPECT_EQ(output.table, 1u);
  EXPECT_STREQ(output.name, "y");
  EXPECT_EQ(output.dim, 4);
  EXPECT_EQ(output.column, 4);
  REFUSED(TSR_OUT_OF_RANGE, "no output 2", tsr_collection_get_output(tables_, 2, &output, &err));
  OK(tsr_collection_set_steps(tables_, 7, &err));
  tsr_collection_info info{sizeof(info)};
  OK(tsr_collection_describe(tables_, &info, &err));
  EXPECT_EQ(info.steps, 7);
  REFUSED(TSR_INVALID_ARGUMENT, "steps is -1", tsr_collection_set_steps(tables_, -1, &err));
}

TEST_F(CApi, QuantizedTablesInfer) {
  set_rows("a", {0, 1, 2, 3, 4, 5});
  set_rows("b", {10, 11, 12, 13});
  tsr_quant_collection* quantized = nullptr;
  OK(tsr_collection_quantize(tables_, R"({"formats": {"b": "fp16"}})", &quantized, &err));
  tsr_collection* const floats = std::exchange(tables_, nullptr);
  tsr_collection_close(floats);
  tsr_model_parallel_close(std::exchange(model_, nullptr));  // the copy needs neither of these
  int64_t bytes = 0;
  OK(tsr_quant_collection_bytes(quantized, &bytes, &err));
  EXPECT_EQ(bytes, 6 * (4 + 4) + 4 * (4 * 2)) << "int8: scale, bias and 4 codes; fp16";
  Batch batch;
  std::vector<float> rows(16);
  View<float> out(rows, {2, 8});
  OK(tsr_quant_collection_forward(quantized, &batch.raw, &out, &err));
  EXPECT_THAT(rows, ElementsAre(3, 3, 3, 3, 13, 13, 13, 13, 0, 0, 0, 0, 10, 10, 10, 10));
  batch.ids[2] = 4;
  REFUSED(TSR_OUT_OF_RANGE, "ids are 0 to 3", tsr_quant_collection_forward(quantized, &batch.raw, &out, &err));
  View<float> narrow(rows, {2, 4});
  REFUSED(TSR_INVALID_ARGUMENT, "[2, 8]", tsr_quant_collection_forward(quantized, &batch.raw, &narrow, &err));
  tsr_quant_collection_close(quantized);
}

TEST_F(CApi, WhatCannotBeQuantized) {
  tsr_quant_collection* none = nullptr;
  REFUSED(TSR_INVALID_ARGUMENT, "int9", tsr_collection_quantize(tables_, R"({"format": "int9"})", &none, &err));
  REFUSED(TSR_INVALID_ARGUMENT, "\"c\"",
          tsr_collection_quantize(tables_, R"({"formats": {"c": "int8"}})", &none, &err));
  set_rows("a", {0, 1, std::numeric_limits<float>::infinity(), 3, 4, 5});
  REFUSED(TSR_INVALID_ARGUMENT, "row 2", tsr_collection_quantize(tables_, nullptr, &none, &err));
  EXPECT_EQ(none, nullptr);
}

TEST_F(CApi, QuantizedSequencesHaveAnOutputForEachFeature) {
  const Opened own(create(text("sequences")));
  tsr_quant_collection* quantized = nullptr;
  std::vector<float> halves(24);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<float>(i) / 2;
  View<float> all(halves, {6, 4});
  OK(tsr_collection_write_rows(own.tables, "a", 0, &all, &err));
  OK(tsr_collection_quantize(own.tables, R"({"format": "fp16"})", &quantized, &err));
  Batch batch;
  std::vector<float> rows(8);
  View<float> of_a(rows, {2, 4}), pooled(rows, {2, 8});
  const DLTensor* outputs[] = {&of_a, nullptr};
  OK(tsr_quant_collection_sequences(quantized, &batch.raw, outputs, 2, &err));
  EXPECT_THAT(rows, ElementsAre(2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5)) << "rows 1 and 2, which are halves";
  REFUSED(TSR_INVALID_ARGUMENT, "1 outputs", tsr_quant_collection_sequences(quantized, &batch.raw, outputs, 1, &err));
  REFUSED(TSR_INVALID_ARGUMENT, "sequences", tsr_quant_collection_forward(quantized, &batch.raw, &pooled, &err));
  outputs[0] = &pooled;
  REFUSED(TSR_INVALID_ARGUMENT, "[2, 4]", tsr_quant_collection_sequences(quantized, &batch.raw, outputs, 2, &err));
  tsr_quant_collection_close(quantized);
}

// Threads that call at the same time get an answer or a refusal, and the sum contains only whole steps.
TEST_F(CApi, OneThreadAtATime) {
  set_rows("a", {0, 0, 0, 0, 0, 0});
  std::atomic<int> done{0}, refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Batch batch;
      const Ones ones;
      for (int i = 0; i < 200; ++i) {
        Error err;
        tsr_step* step = nullptr;
        tsr_code code = tsr_collection_forward(tables_, &batch.raw, nullptr, &step, &err);
        if (code == TSR_OK) code = tsr_step_backward(step, ones.grads, 1, nullptr, &err);
        tsr_step_close(step);
        if (code == TSR_OK) ++done;
        if (code == TSR_FAILED_PRECONDITION) ++refused;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(done + refused, 800);
  EXPECT_GT(done, 0);
  EXPECT_THAT(rows_of(tables_, "a", 1, 1), Each(FloatEq(static_cast<float>(-done))));
}

TEST_F(CApi, AForkedChildIsRefused) {
  const pid_t child = fork();
  if (child == 0) {
    Error err;
    Batch batch;
    tsr_step* step = nullptr;
    const bool refused = tsr_collection_forward(tables_, &batch.raw, nullptr, &step, &err) == TSR_FAILED_PRECONDITION &&
                         std::string(err.message).find("forked") != std::string::npos;
    tsr_collection_close(tables_);
    tsr_runtime_close(runtime_);
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Rank 1 is a separate process that ends without a message.
TEST(CProcessGroup, AnErrorBlamesTheRankThatWasKilled) {
  tsr_process_group_options options{sizeof(options), 2, 0, 0, 2, free_port(), "127.0.0.1", "a test's", "tcp", 20};
  const auto connect = [&](int rank, tsr_process_group** group) {
    options.rank = options.local_rank = rank;
    tsr_runtime* runtime = nullptr;
    OK(tsr_runtime_open(nullptr, &runtime, &err));
    OK(tsr_process_group_connect(runtime, &options, group, &err));
    tsr_runtime_close(runtime);
  };
  tsr_process_group* group = nullptr;
  const pid_t child = fork();
  if (child == 0) {
    connect(1, &group);
    kill(getpid(), SIGKILL);
  }
  connect(0, &group);
  Error err;
  EXPECT_EQ(tsr_process_group_barrier(group, &err), TSR_ABORTED) << err.message;
  EXPECT_THAT(err.message, HasSubstr("rank 1 died"));
  EXPECT_EQ(err.rank, 1);
  tsr_process_group_close(group);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

// Rank 1's output is too narrow: both ranks are told before anything is exchanged, and the next step works.
TEST(CProcessGroup, AnOutputOfAWrongShapeEndsTheStepOnAllRanks) {
  tsr_process_group_options options{sizeof(options), 2, 0, 0, 2, free_port(), "127.0.0.1", "a test's", "tcp", 20};
  const auto step = [&](int rank, int64_t width, tsr_error* told) -> tsr_code {
    options.rank = options.local_rank = rank;
    const std::string model_text = text();
    const tsr_model_parallel_options of_model{sizeof(of_model), 0, model_text.c_str(), nullptr, nullptr};
    tsr_runtime* runtime = nullptr;
    tsr_process_group* group = nullptr;
    tsr_model_parallel* model = nullptr;
    tsr_collection* tables = nullptr;
    Batch batch;
    std::vector<float> values(16), whole(16);
    View<float> output(values, {2, width}), right(whole, {2, 8});
    tsr_error other TSR_ERROR_INIT;
    tsr_code code = tsr_runtime_open(nullptr, &runtime, told);
    if (code == TSR_OK) code = tsr_process_group_connect(runtime, &options, &group, told);
    if (code == TSR_OK) code = tsr_model_parallel_create(runtime, group, &of_model, &model, told);
    if (code == TSR_OK) code = tsr_model_parallel_collection(model, "", &tables, told);
    if (code == TSR_OK) code = tsr_collection_forward(tables, &batch.raw, &output, nullptr, told);
    if (code == TSR_INVALID_ARGUMENT && tsr_collection_forward(tables, &batch.raw, &right, nullptr, &other) != TSR_OK)
      code = TSR_INTERNAL;
    tsr_collection_close(tables);
    tsr_model_parallel_close(model);
    tsr_process_group_close(group);
    tsr_runtime_close(runtime);
    return code;
  };
  Error err;
  const pid_t child = fork();
  if (child == 0) _exit(step(1, 4, &err) == TSR_INVALID_ARGUMENT ? 0 : 1);
  EXPECT_EQ(step(0, 8, &err), TSR_INVALID_ARGUMENT) << err.message;
  EXPECT_THAT(err.message, AllOf(HasSubstr("rank 1"), HasSubstr("output must be float32 [2, 8]")));
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(CProgram, TrainsOnTwoRanks) {
  const TestDirectory folder;
  const std::string trained =
      succeed(run_program({TESSERA_PROGRAM, "launch", "-n", "2", "--", TESSERA_TRAIN_IN_C, folder.file("saved")}, 60));
  double loss = 9;
  const size_t at = trained.find("step 300, loss ");
  ASSERT_NE(at, std::string::npos) << trained;
  loss = std::stod(trained.substr(at + 15));
  EXPECT_LT(loss, 0.4) << "chance is 0.69\n" << trained;
  EXPECT_TRUE(std::filesystem::exists(folder.file("saved/save-1/checkpoint.json"))) << trained;
}

}  // namespace
}  // namespace tessera::test
