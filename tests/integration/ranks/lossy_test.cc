// Checks what transports are told about the calls of a step, and that what they actually send is counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "spawn.h"
#include "tessera/distributed_model_parallel.h"
#include "tessera/embedding_modules.h"
#include "tessera/sharding.h"
#include "tessera/step_figures.h"

namespace tessera::test::lossy_test {
namespace {

using testing::ElementsAre;
using testing::Pair;

constexpr int kWorld = 2, kSteps = 3;
constexpr int64_t kRows = 40, kDim = 8, kBatch = 16, kIds = 4;

struct LoggedCall {
  std::string label;
  uint32_t flags = 0;
  uint64_t site = 0;
  int64_t row_elements = 0;
};

std::vector<LoggedCall> read_log(const std::string& path) {
  std::vector<LoggedCall> out;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string operation, flags, site, width;
    LoggedCall call;
    std::getline(words, operation, '|');
    std::getline(words, call.label, '|');
    std::getline(words, flags, '|');
    std::getline(words, site, '|');
    std::getline(words, width, '|');
    call.flags = static_cast<uint32_t>(std::stoul(flags));
    call.site = std::stoull(site);
    call.row_elements = std::stoll(width);
    out.push_back(std::move(call));
  }
  return out;
}

KeyedJaggedTensor batch_of(int rank) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 2 * kBatch * kIds; ++i) ids.push_back((7 * i + rank) % kRows);
  return KeyedJaggedTensor::from_lengths_sync(
      {"a", "b"}, Tensor::from(ids),
      Tensor::from(std::vector<int32_t>(static_cast<size_t>(2 * kBatch), static_cast<int32_t>(kIds))));
}

// A sharded table, a data-parallel one, and a dense parameter.
struct Model {
  Model(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& group) {
    for (const char* name : {"a", "b"}) {
      EmbeddingBagConfig c{.name = name, .num_embeddings = kRows, .embedding_dim = kDim, .feature_names = {name}};
      tables.push_back(std::move(c));
    }
    const Topology topology = Topology::of(kWorld, kWorld, "cpu");
    EmbeddingModuleShardingPlan plan;
    plan.add("a", make_sharding(runtime, tables[0], {.sharding_type = "column_wise", .min_partition = 4}, topology));
    plan.add("b", make_sharding(runtime, tables[1], {.sharding_type = "data_parallel"}, topology));
    expected_plan = plan;
    const EmbeddingBagCollection collection(runtime, {.tables = tables, .device = kMeta});
    weight = std::make_shared<Parameter>();
    weight->name = "weight";
    weight->value = Tensor::zeros({3});
    ParallelModel model{{{"sparse", &collection}}, {}, {weight}};
    DistributedModelParallelOptions options;
    options.plan.emplace();
    options.plan->world_size = options.plan->local_world_size = kWorld;
    options.plan->modules = {{"sparse", plan}};
    options.sharded.optimizer = {"exact_sgd", R"({"learning_rate": 0.1})", 0};
    parallel = std::make_unique<DistributedModelParallel>(runtime, model, group, std::move(options));
  }
  // Returns the output of the first step.
  Tensor train(int rank) {
    Tensor first;
    for (int step = 0; step < kSteps; ++step) {
      auto& bags = parallel->bags("sparse");
      const auto out = bags.forward(batch_of(rank)).wait();
      if (step == 0) first = Tensor::from(out.values.values().to_vector<float>());
      Tensor grad = Tensor::empty(out.values.values().shape());
      grad.fill(0.1f);
      bags.backward(out, grad);
      weight->grad = Tensor::zeros({3});
      parallel->all_reduce_gradients();
    }
    return first;
  }
  std::vector<EmbeddingBagConfig> tables;
  EmbeddingModuleShardingPlan expected_plan;
  ParameterPtr weight;
  std::unique_ptr<DistributedModelParallel> parallel;
};

class Lossy : public testing::TestWithParam<std::pair<bool, bool>> {};

// Each rank reports the labels it has seen, as "label flags width", and its counters.
TEST_P(Lossy, CallsSayWhereTheyAreAndWhatTheyMayLose) {
  const auto rows = std::get<0>(GetParam()), gradients = std::get<1>(GetParam());
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / str_cat("tessera_lossy_", getpid());
  std::filesystem::create_directories(folder);
  const auto log_of = [&](int rank) { return (folder / str_cat("calls_", rank)).string(); };
  const auto counted = cli::run_in_ranks(kWorld, kWorld, 60, [&](const RankEnvironment& where) {
    const Runtime runtime({.plugin_path = {TESSERA_TEST_PLUGINS}});
    ProcessGroupOptions options{.backend = "test.half(tcp)",
                                .options = str_cat(R"({"log": ")", log_of(where.rank), "\"}")};
    options.lossy_rows = rows;
    options.lossy_gradients = gradients;
    const auto group = ProcessGroup::connect(runtime, where, options);
    Model model(runtime, group);
    const uint64_t before = group->bytes_sent();
    model.train(where.rank);
    const uint64_t sent = group->bytes_sent() - before;
    TrafficInput input{.world_size = kWorld, .local_world_size = kWorld, .batch = static_cast<double>(kBatch)};
    input.ids_per_bag = {{"a", kIds}, {"b", kIds}};
    input.wire = wire_bytes_of(*group);
    const auto planned = expected_traffic(model.tables, model.expected_plan, input, where.rank);
    const ExchangeBytes<int64_t>& is = model.parallel->bags("sparse").bytes_sent();
    const auto text = [&](const auto& b) { return str_cat(b.in_host, "/", b.across_hosts); };
    group->barrier();
    return str_cat(text(is.rows), " ", kSteps * planned.rows.in_host, "/0, ", text(is.gradients), " ",
                   kSteps * planned.gradients.in_host, "/0, ", sent);
  });
  // Per step, one of two halves of the columns for the other rank's samples; 4 bytes per float32.
  const int64_t exact = kSteps * kBatch * kDim / 2 * 4;
  for (int rank = 0; rank < kWorld; ++rank) {
    const int64_t of_rows = rows ? exact / 2 : exact, of_gradients = gradients ? exact / 2 : exact;
    EXPECT_THAT(
        counted[static_cast<size_t>(rank)],
        testing::StartsWith(str_cat(of_rows, "/0 ", of_rows, "/0, ", of_gradients, "/0 ", of_gradients, "/0, ")));
  }
  std::map<std::string, std::pair<uint32_t, int64_t>> seen;  // flags and width, by label
  std::map<std::string, std::set<uint64_t>> sites;
  std::vector<std::vector<LoggedCall>> logs;
  for (int rank = 0; rank < kWorld; ++rank) logs.push_back(read_log(log_of(rank)));
  std::filesystem::remove_all(folder);
  ASSERT_EQ(logs[0].size(), logs[1].size());
  for (size_t i = 0; i < logs[0].size(); ++i) {
    const LoggedCall &call = logs[0][i], &other = logs[1][i];
    EXPECT_EQ(call.label, other.label);
    EXPECT_EQ(call.site, other.site) << call.label;
    EXPECT_EQ(call.flags, other.flags) << call.label;
    EXPECT_EQ(call.row_elements, other.row_elements) << call.label;
    EXPECT_NE(call.site, 0u) << call.label;
    const bool first = seen.emplace(call.label, std::pair(call.flags, call.row_elements)).second;
    EXPECT_TRUE(first || seen[call.label].first == call.flags) << call.label;
    sites[call.label].insert(call.site);
  }
  constexpr uint32_t kForward = TSR_CALL_FORWARD, kBackward = TSR_CALL_BACKWARD, kLossy = TSR_CALL_LOSSY;
  const std::map<std::string, std::pair<uint32_t, int64_t>> of_a_step = {
      {"data-parallel gradients", {kBackward, 0}},
      {"data-parallel rows", {kForward, 0}},
      {"dense gradients", {kBackward, 0}},
      {"gradients", {kBackward | (gradients ? kLossy : 0), kDim / 2}},
      {"ids", {kForward, 0}},
      {"rows", {kForward | (rows ? kLossy : 0), kDim / 2}},
      {"step header", {kForward, 0}}};
  std::set<uint64_t> all;
  for (const auto& [label, how] : seen) {
    const auto step = of_a_step.find(label);
    EXPECT_EQ(how, step == of_a_step.end() ? std::pair(0u, int64_t{0}) : step->second) << label;
    EXPECT_TRUE(step == of_a_step.end() || sites[label].size() == 1) << label << ": one place, whatever the step";
    for (const uint64_t site : sites[label]) EXPECT_TRUE(all.insert(site).second) << label << " shares its site";
  }
  for (const auto& [label, how] : of_a_step) EXPECT_TRUE(seen.contains(label)) << label;
}
INSTANTIATE_TEST_SUITE_P(Which, Lossy,
                         testing::Values(std::pair{false, false}, std::pair{true, false}, std::pair{false, true},
                                         std::pair{true, true}));

// Fewer bytes travel, and the received values are the same to bfloat16's precision.
TEST(LossyRows, TravelAsHalfTheBytes) {
  const auto outputs = [](bool lossy) {
    return cli::run_in_ranks(kWorld, kWorld, 60, [&](const RankEnvironment& where) {
      const Runtime runtime({.plugin_path = {TESSERA_TEST_PLUGINS}});
      const auto group = ProcessGroup::connect(
          runtime, where, {.backend = "test.half(tcp)", .lossy_rows = lossy, .lossy_gradients = lossy});
      Model model(runtime, group);
      const uint64_t before = group->bytes_sent();
      const Tensor out = model.train(where.rank);
      double sum = 0;
      for (const float v : out.span<float>()) sum += std::abs(v);
      const uint64_t sent = group->bytes_sent() - before;
      group->barrier();
      return str_cat(sent, " ", sum);
    });
  };
  const auto exact = outputs(false), lossy = outputs(true);
  const int64_t half = kSteps * kBatch * kDim / 2 * 2;  // for rows, and as much for gradients
  for (size_t rank = 0; rank < kWorld; ++rank) {
    int64_t exact_bytes = 0, lossy_bytes = 0;
    double exact_sum = 0, lossy_sum = 0;
    std::istringstream(exact[rank]) >> exact_bytes >> exact_sum;
    std::istringstream(lossy[rank]) >> lossy_bytes >> lossy_sum;
    EXPECT_EQ(exact_bytes - lossy_bytes, 2 * half);
    EXPECT_NE(exact_sum, lossy_sum) << "nothing was lost";
    EXPECT_NEAR(exact_sum, lossy_sum, exact_sum / 100);
  }
}

}  // namespace
}  // namespace tessera::test::lossy_test
