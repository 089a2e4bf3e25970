// Checkpoints between jobs of several ranks: written under one plan and number of ranks, continued under another.
#include "tessera/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "checkpoint/test_model.h"
#include "spawn.h"

namespace tessera::test::checkpoint_test {
namespace {

using testing::HasSubstr;

struct Job {
  int world = 1;
  TestModelOptions model;
  // Folders of its plugins, besides the installed ones.
  std::vector<std::string> plugins;
};

Job job(int world, const Cut& cut) {
  Job j{.world = world};
  j.model.cut = cut;
  return j;
}

// Runs `body` with each rank's model; returns the texts of all ranks.
std::vector<std::string> run(const Job& j, const std::function<std::string(TestModel&)>& body) {
  return cli::run_in_ranks(j.world, j.world, 60, [&](const RankEnvironment& where) {
    RuntimeOptions options{.plugin_path = j.plugins};
    const Runtime runtime(options);
    TestModel model(runtime, ProcessGroup::connect(runtime, where, {.backend = "tcp", .timeout_s = 30}), j.model);
    return body(model);
  });
}

// Trains steps [first, last), from the checkpoint `load` if it is not empty, and saves to `save`. Returns the losses
// exactly.
std::vector<double> train(const Job& j, int first, int last, const std::string& load, const std::string& save) {
  const auto texts = run(j, [&](TestModel& model) {
    std::ostringstream out;
    out.precision(17);
    if (!load.empty()) out << model.load(load) << ' ';
    for (double loss : model.train(first, last)) out << loss << ' ';
    if (!save.empty()) model.save(save, str_cat(last));
    return out.str();
  });
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]) << "all ranks know the progress and the losses";
  std::istringstream in(texts[0]);
  if (int progress = 0; !load.empty()) {
    in >> progress;
    EXPECT_EQ(progress, first);
  }
  std::vector<double> losses;
  for (double loss = 0; in >> loss;) losses.push_back(loss);
  return losses;
}

std::string tensors(const std::string& directory) {
  const std::string model = read_file(newest_in(directory) + "/model.safetensors");
  EXPECT_FALSE(model.empty()) << directory;
  return model + read_file(newest_in(directory) + "/optimizer.safetensors");
}

ParameterSharding spread(const EmbeddingBagConfig& t, int world) {
  return whole(t, static_cast<int>(t.name.size()) % world);
}
// A different sharding per table: rows, data-parallel, one rank; columns for the table whose state is kept per element.
ParameterSharding mixed(const EmbeddingBagConfig& t, int world) {
  if (t.name == "film") return by_rows(t, world);
  if (t.name == "genre") return replicated(t, world);
  if (t.name == "user") return by_columns(t, world, {4, 4});
  return whole(t, world - 1);
}
ParameterSharding halves(const EmbeddingBagConfig& t, int world) { return by_columns(t, world, {4, 4}); }

// Saves under `from`, then loads and saves again under `to`: bytes are the same, and losses go on as without
// interruption.
void expect_continues(const Job& from, const Job& to) {
  const TestDirectory dir;
  const auto uninterrupted = train(from, 0, 6, "", "");
  const auto begun = train(from, 0, 3, "", dir.file("a"));
  EXPECT_EQ(begun, std::vector<double>(uninterrupted.begin(), uninterrupted.begin() + 3));
  train(to, 3, 3, dir.file("a"), dir.file("b"));
  EXPECT_TRUE(tensors(dir.file("a")) == tensors(dir.file("b")));
  const auto rest = train(to, 3, 6, dir.file("a"), "");
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(rest[i], uninterrupted[3 + i], 1e-5 * uninterrupted[3 + i]);
}

TEST(Checkpoint, FromRowsOnTwoToTablesOnFour) { expect_continues(job(2, by_rows), job(4, spread)); }
TEST(Checkpoint, FromTablesOnFourToMixedOnTwo) { expect_continues(job(4, spread), job(2, mixed)); }
TEST(Checkpoint, FromMixedOnFourToOneRank) { expect_continues(job(4, mixed), job(1, spread)); }
TEST(Checkpoint, FromDataParallelOnOneToRowsOnFour) { expect_continues(job(1, replicated), job(4, by_rows)); }
TEST(Checkpoint, OfTheSameColumnsOnTwoAndFour) { expect_continues(job(2, halves), job(4, halves)); }

TEST(Checkpoint, ResumesExactlyUnderTheSamePlan) {
  const TestDirectory dir;
  const Job j = job(2, mixed);
  const auto uninterrupted = train(j, 0, 5, "", dir.file("through"));
  train(j, 0, 2, "", dir.file("a"));
  EXPECT_EQ(train(j, 2, 5, dir.file("a"), dir.file("b")),
            std::vector<double>(uninterrupted.begin() + 2, uninterrupted.end()));
  EXPECT_TRUE(tensors(dir.file("b")) == tensors(dir.file("through")));
}

TEST(Checkpoint, OfRoutedShards) {
  const auto stripes = [](const EmbeddingBagConfig& t, int world) { return striped(t, world, world); };
  Job two = job(2, stripes), four = job(4, stripes);
  two.plugins = four.plugins = {TESSERA_TEST_PLUGINS};  // plugins/template
  expect_continues(two, job(4, by_rows));
  expect_continues(two, four);
}

// Compares a checkpoint with all rows plus one of changes two steps later, loaded under any plan, with the model.
void expect_changes(const Job& from, const Job& to) {
  const TestDirectory dir;
  run(from, [&](TestModel& model) {
    CheckpointWriter writer(dir.file("a"), model.parallel(), model.optimizer());
    EXPECT_TRUE(writer.follow_changes());
    model.train(0, 3);
    writer.save("all");
    model.train(3, 5);
    writer.save("5", CheckpointRows::kChanged);
    EXPECT_EQ(writer.rows(), CheckpointRows::kChanged);
    model.save(dir.file("whole"), "5");
    return "";
  });
  EXPECT_LT(tensors(dir.file("a")).size(), tensors(dir.file("whole")).size() / 10);
  train(to, 5, 5, dir.file("a"), dir.file("b"));
  EXPECT_TRUE(tensors(dir.file("b")) == tensors(dir.file("whole")));
}

TEST(Checkpoint, OfChangesUnderEveryPlan) {
  const auto stripes = [](const EmbeddingBagConfig& t, int world) { return striped(t, world, 3); };
  const auto large = [&](int world, const Cut& cut) {
    Job j = job(world, cut);
    j.model.kernel = "cpu";
    j.plugins = {TESSERA_TEST_PLUGINS};
    for (EmbeddingBagConfig& t : j.model.tables) t.num_embeddings *= 100;
    return j;
  };
  expect_changes(large(2, by_rows), large(3, spread));
  expect_changes(large(2, mixed), large(4, spread));
  expect_changes(large(4, mixed), large(1, spread));
  expect_changes(large(2, replicated), large(2, by_rows));
  expect_changes(large(2, hot), large(2, stripes));
  expect_changes(large(2, stripes), large(4, by_rows));
  expect_changes(large(2, halves), large(4, halves));
}

// The extra data that the kernel keeps of this rank's rows, as "film 7: 3" for each row and column shard.
std::string extra_of(TestModel& model) {
  std::string out;
  for (const HeldShard& held : model.bags().held_shards()) {
    const ShardMetadata& w = held.where;
    EXPECT_EQ(model.bags().extra_bytes(held), 4);
    const std::vector<int64_t> rows = model.bags().table_rows(held, 0, w.rows);
    std::vector<float> weights(static_cast<size_t>(w.rows * w.cols));
    std::vector<uint32_t> extra(static_cast<size_t>(w.rows));
    model.bags().read_rows(held, 0, w.rows, weights.data(), {}, extra.data());
    for (size_t r = 0; r < rows.size(); ++r) out += str_cat(held.table, ' ', rows[r], ": ", extra[r], '\n');
  }
  return out;
}

std::set<std::string> lines_of(const std::vector<std::string>& texts) {
  std::set<std::string> out;
  for (const std::string& text : texts) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) out.insert(line);
  }
  return out;
}

// bad.kernel counts the updates of each row.
TEST(Checkpoint, CarriesWhatAKernelKeepsOfRowsBesides) {
  const TestDirectory dir;
  const auto stripes = [](const EmbeddingBagConfig& t, int world) { return striped(t, world, world); };
  Job two = job(2, by_rows), other = job(1, halves), routed = job(3, stripes), plain = job(2, by_rows);
  for (Job* j : {&two, &other, &routed, &plain}) {
    j->plugins = {TESSERA_TEST_PLUGINS, TESSERA_ROW_MAKERS};
    j->model.kernel = j == &plain ? "reference" : "bad.kernel";
    j->model.tables[2].data_type = DType::kFloat32;
  }
  const std::set<std::string> counted = lines_of(run(two, [&](TestModel& model) {
    model.train(0, 3);
    model.save(dir.file("a"));
    return extra_of(model);
  }));
  EXPECT_EQ(counted.size(), 41u + 23 + 17 + 9);
  EXPECT_THAT(counted, testing::Contains(testing::EndsWith(": 3"))) << "a row that every step updates";
  EXPECT_THAT(counted, testing::Contains(testing::EndsWith(": 1")));
  const auto loaded = [&](const Job& j, const char* from, const char* to) {
    return lines_of(run(j, [&](TestModel& model) {
      model.load(dir.file(from));
      model.save(dir.file(to));
      return extra_of(model);
    }));
  };
  EXPECT_EQ(loaded(other, "a", "b"), counted) << "columns are cut: each cut has it";
  EXPECT_EQ(loaded(routed, "b", "c"), counted);
  // Kernels without extra data can read such a checkpoint, and their checkpoints can be read by kernels with it.
  run(plain, [&](TestModel& model) {
    model.load(dir.file("c"));
    model.save(dir.file("d"));
    return "";
  });
  for (const std::string& line : loaded(two, "d", "e")) EXPECT_THAT(line, testing::EndsWith(": 0"));
}

// plugins/hot_sharder.cc: three rows on every rank, the others striped.
ParameterSharding hot_and_striped(const EmbeddingBagConfig& t, int world) {
  constexpr int64_t kHot = 3;
  ParameterSharding p{"test.hot?routed=true", "fused", Combine::kSum, true, {}, 1 + kHot};
  for (int r = 0; r < world; ++r) p.shards.push_back({kHot, t.embedding_dim, 0, 0, r, true});
  for (int r = 0; r < world; ++r)
    p.shards.push_back({(t.num_embeddings - kHot - r + world - 1) / world, t.embedding_dim, 0, 0, r});
  return p;
}

TEST(Checkpoint, OfLayoutsOfSeveralParts) {
  Job two = job(2, hot_and_striped), four = job(4, hot_and_striped);
  two.plugins = four.plugins = {TESSERA_TEST_PLUGINS};
  expect_continues(two, four);
  expect_continues(two, job(4, hot));
  expect_continues(job(4, hot), job(1, by_rows));
  expect_continues(job(4, by_rows), job(2, hot));
}

// States that depend on options (sgd), and that start above 0 (plugins/extras/ftrl).
TEST(Checkpoint, OfStatesThatFollowOptions) {
  const auto with_states = [](int world, const Cut& cut) {
    Job j = job(world, cut);
    j.plugins = {TESSERA_TEST_PLUGINS};
    j.model.tables[0].optimizer = {"ftrl", R"({"learning_rate": 0.1, "initial_accumulator_value": 0.5})", 0};
    j.model.tables[1].optimizer = {"sgd", R"({"learning_rate": 0.1, "momentum": 0.9, "nesterov": true})", 0};
    j.model.tables[2].optimizer = {"sgd", R"({"learning_rate": 0.1})", 0};
    j.model.tables[3].optimizer = {"ftrl", R"({"learning_rate": 0.1, "l1": 0.01, "beta": 1})", 0};
    return j;
  };
  expect_continues(with_states(2, by_rows), with_states(4, hot));
  expect_continues(with_states(4, mixed), with_states(1, spread));
  Job other = with_states(2, by_rows);
  other.model.tables[1].optimizer.options = R"({"learning_rate": 0.1})";
  const TestDirectory dir;
  train(with_states(2, by_rows), 0, 1, "", dir.file("a"));
  for (const std::string& text :
       run(other, [&](TestModel& model) { return failure_of([&] { model.load(dir.file("a")); }).first; }))
    EXPECT_THAT(text, HasSubstr("table \"user\" was trained with sgd (states: momentum_buffer)"));
}

TEST(Checkpoint, OfATableOfManyBlocks) {
  const TestDirectory dir;
  Job two = job(2, by_rows), other = job(2, halves);
  two.model.tables = other.model.tables = {test_tables()[2]};
  two.model.tables[0].num_embeddings = other.model.tables[0].num_embeddings = 600'001;
  train(two, 0, 1, "", dir.file("a"));
  train(other, 1, 1, dir.file("a"), dir.file("b"));
  EXPECT_TRUE(tensors(dir.file("a")) == tensors(dir.file("b")));
}

// The exception of `call`, as "code text". Then the ranks meet once more, to show that none was left behind.
std::string failure(TestModel& model, const std::function<void()>& call) {
  const auto [text, code] = failure_of(call);
  model.train(0, 1);
  return str_cat(static_cast<int>(code), ' ', text);
}

TEST(Checkpoint, FailsOnAllRanksWithTheSameSentence) {
  const TestDirectory dir;
  const Job j = job(2, by_rows);
  train(j, 0, 1, "", dir.file("a"));
  write_file(dir.file("file"), "x");
  std::string damaged = read_file(dir.file("a/save-1/model.safetensors"));
  damaged[damaged.size() - 5] ^= 1;

  const auto expect = [&](const Job& where, Code code, const std::string& sentence,
                          const std::function<void(TestModel&)>& call) {
    for (const std::string& text : run(where, [&](TestModel& m) { return failure(m, [&] { call(m); }); })) {
      EXPECT_THAT(text, testing::StartsWith(str_cat(static_cast<int>(code), ' ')));
      EXPECT_THAT(text, HasSubstr(sentence));
    }
  };
  expect(j, Code::kUnavailable, "rank 0: cannot ", [&](TestModel& m) { m.save(dir.file("file/c")); });
  expect(j, Code::kNotFound, "rank 0: there is no checkpoint at " + dir.file("none"),
         [&](TestModel& m) { m.load(dir.file("none")); });
  Job wrong = j;
  wrong.model.tables[2].num_embeddings = 18;
  expect(wrong, Code::kInvalidArgument, "table \"tag\" is float16 [17, 8] in ",
         [&](TestModel& m) { m.load(dir.file("a")); });
  write_file(dir.file("a/save-1/model.safetensors"), damaged);
  expect(j, Code::kDataLoss, dir.file("a/save-1/model.safetensors") + " is damaged",
         [&](TestModel& m) { m.load(dir.file("a")); });
  write_file(dir.file("a/save-1/model.safetensors"), damaged.substr(0, damaged.size() / 2));
  expect(j, Code::kDataLoss, dir.file("a/save-1/model.safetensors") + " has ",
         [&](TestModel& m) { m.load(dir.file("a")); });
}

TEST(Checkpoint, SurvivesARankThatDiesWhileSaving) {
  const TestDirectory dir;
  const Job j = job(2, by_rows);
  train(j, 0, 1, "", dir.file("a"));
  const std::string before = tensors(dir.file("a"));
  EXPECT_THROW(cli::run_in_ranks(
                   2, 2, 60,
                   [&](const RankEnvironment& where) -> std::string {
                     const Runtime runtime;
                     TestModel model(
                         runtime, ProcessGroup::connect(runtime, where, {.backend = "tcp", .timeout_s = 10}), j.model);
                     model.train(0, 2);
                     if (where.rank == 1) std::_Exit(3);
                     model.save(dir.file("a"));
                     return "";
                   }),
               Error);
  EXPECT_TRUE(tensors(dir.file("a")) == before);
  EXPECT_FALSE(std::filesystem::exists(dir.file("a/save-2.saving")));
  train(j, 1, 2, dir.file("a"), dir.file("a"));
  EXPECT_FALSE(tensors(dir.file("a")) == before);
}

}  // namespace
}  // namespace tessera::test::checkpoint_test
