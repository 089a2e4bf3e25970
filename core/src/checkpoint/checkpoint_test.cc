// Tests save_checkpoint() and load_checkpoint() on one rank with the reference kernel. tests/integration has several
// ranks.
#include "tessera/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <zlib.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "checkpoint/manifest.h"
#include "checkpoint/tables.h"
#include "checkpoint/test_model.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;
using namespace test;
using testing::HasSubstr;

const Runtime& runtime() {
  static const Runtime runtime({.plugin_path = {TESSERA_PLUGINS_BUILT, TESSERA_TEMPLATE_BUILT}, .default_path = false});
  return runtime;
}

TestModel make(const TestModelOptions& options = {}) {
  return {runtime(), ProcessGroup::connect(runtime(), {}), options};
}

TestModelOptions with_cut(const Cut& cut) {
  TestModelOptions o{.cut = cut};
  return o;
}
Cut columns(const std::vector<int64_t>& widths) {
  return [widths](const EmbeddingBagConfig& t, int world) { return by_columns(t, world, widths); };
}

// The two tensor files of a checkpoint, as one text.
std::string tensors(const std::string& directory) {
  const std::string model = read_file(newest_in(directory) + "/" + kModelFile);
  EXPECT_FALSE(model.empty());
  return model + read_file(newest_in(directory) + "/" + kOptimizerFile);
}

std::string hex_text(unsigned long value) {
  char text[9];
  std::snprintf(text, sizeof(text), "%08lx", value);
  return text;
}

// Returns what the model would save now.
std::string snapshot(TestModel& model) {
  const TestDirectory dir;
  model.save(dir.file("c"));
  return tensors(dir.file("c"));
}

TEST(Checkpoint, ContinuesAsIfNothingHadHappened) {
  const TestDirectory dir;
  TestModel through = make(), first = make(), second = make();
  const auto losses = through.train(0, 6);
  first.train(0, 3);
  first.save(dir.file("c"), R"({"step": 3})");
  EXPECT_EQ(second.load(dir.file("c")), R"({"step": 3})");
  EXPECT_EQ(second.bags().step(), 3);
  const auto rest = second.train(3, 6);
  EXPECT_EQ(rest, std::vector<double>(losses.begin() + 3, losses.end()));
  EXPECT_EQ(snapshot(second), snapshot(through));
}

TEST(Checkpoint, HoldsTheTensorsOfAStateDict) {
  const TestDirectory dir;
  TestModel model = make();
  model.train(0, 2);
  model.save(dir.file("c"));
  const SafetensorsReader m(InputFile(dir.file("c/save-1/model.safetensors"))),
      o(InputFile(dir.file("c/save-1/optimizer.safetensors")));
  const std::string film = "sparse_arch.embedding_bag_collection.embedding_bags.film.weight";
  ASSERT_TRUE(m.find(film));
  EXPECT_EQ(describe(*m.find(film)), "float32 [41, 8]");
  EXPECT_EQ(describe(*m.find("sparse_arch.embedding_bag_collection.embedding_bags.tag.weight")), "float16 [17, 8]");
  EXPECT_EQ(describe(*m.find("over_arch.model.1.weight")), "float32 [1, 32]");
  EXPECT_EQ(m.tensors().size(), 5u);
  ASSERT_TRUE(o.find(film + "/film.momentum1"));
  EXPECT_EQ(describe(*o.find(film + "/film.momentum1")), "float32 [41]");
  EXPECT_EQ(describe(*o.find("over_arch.model.1.weight/step")), "float32 []");
  EXPECT_EQ(describe(*o.find("over_arch.model.1.weight/exp_avg")), "float32 [1, 32]");
  const HeldShard held = model.bags().held_shards()[0];
  EXPECT_EQ(m.read(film).to_vector<float>(), model.bags().weight(held).to_vector<float>());
  EXPECT_EQ(o.read(film + "/film.momentum1").to_vector<float>(),
            model.bags().states(held)[0].second.to_vector<float>());
}

TEST(Checkpoint, DoesNotDependOnThePlan) {
  const TestDirectory dir;
  TestModel model = make();
  model.train(0, 3);
  model.save(dir.file("c"));
  const std::string expected = tensors(dir.file("c"));
  const std::vector<Cut> cuts = {
      [](const EmbeddingBagConfig& t, int world) { return replicated(t, world); },
      [](const EmbeddingBagConfig& t, int world) { return striped(t, world, 3); },
      [](const EmbeddingBagConfig& t, int) {  // two row ranges on one rank
        ParameterSharding p = by_rows(t, 2);
        for (ShardMetadata& s : p.shards) s.rank = 0;
        return p;
      },
  };
  for (const Cut& cut : cuts) {
    TestModel other = make(with_cut(cut));
    other.load(dir.file("c"));
    EXPECT_EQ(snapshot(other), expected);
  }
}

// The tables are larger than a block of rows and than a chunk of the checksum, and shards end inside a block.
TEST(Checkpoint, MovesLargeTablesInBlocks) {
  const TestDirectory dir;
  TestModelOptions options{.tables = {test_tables()[0]}};
  options.tables[0].num_embeddings = 700'000;
  TestModel model = make(options);
  model.train(0, 2);
  HeldShard held = model.bags().held_shards()[0];
  std::vector<float> rows(size_t{600'000} * 8), state(600'000);
  for (size_t i = 0; i < state.size(); ++i) state[i] = static_cast<float>(i % 251);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i % 1021);
  const float* states[] = {state.data()};
  model.bags().write_rows(held, 100'000, 600'000, rows.data(), states);
  model.save(dir.file("c"));
  const std::string expected = tensors(dir.file("c"));
  const std::vector<Cut> cuts = {
      [](const EmbeddingBagConfig& t, int world) { return striped(t, world, 1); },
      [](const EmbeddingBagConfig& t, int) {
        ParameterSharding p = by_rows(t, 2);
        p.shards[1].rank = 0;
        return p;
      },
  };
  for (const Cut& cut : cuts) {
    options.cut = cut;
    TestModel other = make(options);
    other.load(dir.file("c"));
    EXPECT_TRUE(snapshot(other) == expected);
  }
}

TEST(PieceSum, IsTheFilesInAnyOrder) {
  std::string file(100'003, '\0');
  for (size_t i = 0; i < file.size(); ++i) file[i] = static_cast<char>(i * i % 251);
  std::fill(file.begin() + 5'000, file.begin() + 9'000, '\0');
  const auto expected = static_cast<uint32_t>(
      ::crc32(0, reinterpret_cast<const unsigned char*>(file.data()), static_cast<uInt>(file.size())));
  PieceSum first, second;
  const auto add = [&](PieceSum& sum, size_t from, size_t to) {
    sum.add(static_cast<int64_t>(from), file.data() + from, static_cast<int64_t>(to - from));
  };
  add(first, 50'000, 100'003);
  for (size_t at = 0; at < 5'000; at += 10) add(at % 20 ? first : second, at, at + 10);
  add(second, 9'000, 50'000);  // nobody writes the zeros before these bytes
  const auto bytes = static_cast<int64_t>(file.size());
  EXPECT_EQ(PieceSum::crc32(first.part(bytes) ^ second.part(bytes), bytes), expected);
}

// Two tables have a file each, as Hugging Face's readers expect. The dense part is in the first file.
TEST(Checkpoint, OfLargeTablesHasFilesAndAnIndex) {
  const TestDirectory dir;
  TestModelOptions options;
  options.tables.resize(2);
  for (EmbeddingBagConfig& t : options.tables) t.num_embeddings = 600'000;
  TestModel model = make(options);
  model.train(0, 2);
  model.save(dir.file("c"));
  const std::string where = dir.file("c/save-1/");
  const auto index = nlohmann::json::parse(read_file(where + "model.safetensors.index.json"));
  const std::string bags = "sparse_arch.embedding_bag_collection.embedding_bags.";
  EXPECT_EQ(index["weight_map"].size(), 3u);
  EXPECT_EQ(index["weight_map"][bags + "film.weight"], "model-00001-of-00002.safetensors");
  EXPECT_EQ(index["weight_map"][bags + "user.weight"], "model-00002-of-00002.safetensors");
  EXPECT_EQ(index["metadata"]["total_size"], 2 * 600'000 * 8 * 4 + 16 * 4);
  for (const auto& [name, file] : index["weight_map"].items())
    EXPECT_TRUE(SafetensorsReader(InputFile(where + file.get<std::string>())).find(name)) << name;
  EXPECT_FALSE(fs::exists(where + kModelFile));

  options.cut = columns({4, 4});
  TestModel other = make(options);
  other.load(dir.file("c"));
  const auto rest = other.train(2, 4), expected = model.train(2, 4);
  for (size_t i = 0; i < rest.size(); ++i) EXPECT_NEAR(rest[i], expected[i], 1e-5 * expected[i]);
  std::string damaged = read_file(where + "model-00002-of-00002.safetensors");
  damaged[damaged.size() / 2] ^= 1;
  write_file(where + "model-00002-of-00002.safetensors", damaged);
  EXPECT_THAT(failure_of([&] { make(options).load(dir.file("c")); }).first,
              HasSubstr("model-00002-of-00002.safetensors is damaged"));
  model.save(dir.file("c"));
  model.save(dir.file("c"));
  EXPECT_FALSE(fs::exists(dir.file("c/save-1"))) << "all its files have gone";
}

TEST(CheckpointWriter, WritesTheModelAsItWas) {
  const TestDirectory dir;
  const auto options = with_cut([](const EmbeddingBagConfig& t, int world) { return striped(t, world, 3); });
  TestModel model = make(options);
  model.train(0, 3);
  const std::string then = snapshot(model);
  CheckpointWriter writer(dir.file("c"), model.parallel(), model.optimizer());
  ASSERT_TRUE(writer.reserve_copies());
  EXPECT_GT(writer.copy_bytes(), 4 * (41 + 23 + 17 + 9) * 8);
  writer.start("at 3");
  model.train(3, 6);
  writer.finish();
  EXPECT_FALSE(writer.busy());
  EXPECT_EQ(tensors(dir.file("c")), then);
  EXPECT_EQ(saved_progress(dir.file("c")), "at 3");
  writer.start("at 6");
  writer.finish();
  EXPECT_EQ(tensors(dir.file("c")), snapshot(model));
  writer.save("again");
  EXPECT_EQ(saved_progress(dir.file("c")), "again");
  TestModel rest = make(options);
  rest.load(dir.file("c"));
  EXPECT_EQ(rest.train(6, 8), model.train(6, 8));
}

// Limits the size of files while it lives.
class LargestFile {
 public:
  explicit LargestFile(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~LargestFile() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }
  LargestFile(const LargestFile&) = delete;
  LargestFile& operator=(const LargestFile&) = delete;

 private:
  rlimit before_{};
  sighandler_t handler_;
};

TEST(CheckpointWriter, LeavesTheOneBeforeWhole) {
  const TestDirectory dir;
  TestModel model = make();
  CheckpointWriter writer(dir.file("c"), model.parallel(), model.optimizer());
  ASSERT_TRUE(writer.reserve_copies());
  writer.save("good");
  std::pair<std::string, Code> failure;
  {
    const LargestFile limit(1000);
    writer.start("bad");
    failure = failure_of([&] { writer.finish(); });
  }
  EXPECT_EQ(failure.second, Code::kResourceExhausted) << failure.first;
  EXPECT_THAT(failure.first, HasSubstr("save-2.saving/model.safetensors: File too large"));
  EXPECT_FALSE(fs::exists(dir.file("c/save-2.saving")));
  EXPECT_EQ(make().load(dir.file("c")), "good");
  writer.start("given up");
  writer.give_up();
  writer.save("better");
  EXPECT_EQ(make().load(dir.file("c")), "better");
  model.train(0, 1);
  HeldShard held = model.bags().held_shards()[0];
  Tensor weight = model.bags().weight(held);
  weight.data<float>()[11] = std::numeric_limits<float>::infinity();
  model.bags().set_weight(held, weight);
  writer.start("apart");
  EXPECT_THAT(failure_of([&] { writer.finish(); }).first, HasSubstr("table \"film\" holds inf in row 1"));
  EXPECT_EQ(make().load(dir.file("c")), "better");
}

std::string tensors_of(const std::string& path) { return read_file(path + "/" + kModelFile); }
std::vector<std::string> in_directory(const std::string& path) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(path)) out.push_back(entry.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

// The tables are so large that a step changes few rows, and their kernel knows which ones.
TestModelOptions large_tables(const Cut& cut = [](const EmbeddingBagConfig& t, int world) {
  return by_rows(t, world);
}) {
  TestModelOptions o = with_cut(cut);
  o.kernel = "cpu";
  for (EmbeddingBagConfig& t : o.tables) t.num_embeddings *= 100;
  return o;
}

TEST(CheckpointWriter, SavesTheRowsThatHaveChanged) {
  const TestDirectory dir;
  TestModel model = make(large_tables());
  CheckpointWriter writer(dir.file("c"), model.parallel(), model.optimizer());
  ASSERT_TRUE(writer.follow_changes());
  model.train(0, 2);
  writer.save("no base yet", CheckpointRows::kChanged);
  EXPECT_EQ(writer.rows(), CheckpointRows::kAll);
  ASSERT_TRUE(writer.reserve_copies());
  for (const bool beside : {false, true}) {
    model.train(2, 4);
    if (beside)
      writer.start("changes", CheckpointRows::kChanged), writer.finish();
    else
      writer.save("changes", CheckpointRows::kChanged);
    EXPECT_EQ(writer.rows(), CheckpointRows::kChanged);
    const Manifest manifest = manifest_in(newest_in(dir.file("c")));
    ASSERT_TRUE(manifest.base);
    EXPECT_EQ(manifest.base->name, "save-1");
    const TableEntry& film = manifest.tables[0];
    EXPECT_TRUE(film.changes);
    EXPECT_GT(*film.keys, 5);
    EXPECT_LT(*film.keys, 60);
    EXPECT_EQ(film.rows, 4100);
    EXPECT_LT(tensors_of(newest_in(dir.file("c"))).size(), tensors_of(dir.file("c/save-1")).size() / 10);
    // Load under other plans, and into tables with another kernel.
    for (const Cut& cut : {large_tables().cut, columns({4, 4}), Cut(replicated),
                           Cut([](const EmbeddingBagConfig&t, int world) { return striped(t, world, 3); })}) {
      TestModelOptions other = large_tables(cut);
      TestModel loaded = make(other);
      EXPECT_EQ(loaded.load(dir.file("c")), "changes");
      const TestDirectory whole, again;
      model.save(whole.file("c"));
      loaded.save(again.file("c"));
      EXPECT_EQ(tensors_of(newest_in(again.file("c"))), tensors_of(newest_in(whole.file("c"))));
    }
    TestModel rest = make(large_tables());
    rest.load(dir.file("c"));
    EXPECT_EQ(snapshot(rest), snapshot(model));
  }
}

// Covers tables cut by columns, by a sharder's own rule, and whole on every rank.
TEST(CheckpointWriter, SavesChangesUnderEveryPlan) {
  const std::vector<Cut> cuts = {columns({4, 4}), columns({2, 6}), Cut(replicated), Cut(hot),
                                 [](const EmbeddingBagConfig& t, int world) { return striped(t, world, 3); }};
  for (size_t c = 0; c < cuts.size(); ++c) {
    SCOPED_TRACE(c);
    const TestDirectory dir;
    TestModel model = make(large_tables(cuts[c]));
    CheckpointWriter writer(dir.file("c"), model.parallel(), model.optimizer());
    ASSERT_TRUE(writer.follow_changes());
    model.train(0, 2);
    writer.save("all");
    model.train(2, 4);
    writer.save("changes", CheckpointRows::kChanged);
    const Manifest manifest = manifest_in(newest_in(dir.file("c")));
    for (const TableEntry& t : manifest.tables) {
      EXPECT_TRUE(t.changes) << t.name;
      EXPECT_LT(*t.keys, 60) << t.name;
    }
    // A state kept per row and column cut does not fit rows that are cut differently.
    for (const Cut& other : {cuts[c], c < 2 ? cuts[c] : large_tables().cut}) {
      TestModel loaded = make(large_tables(other));
      EXPECT_EQ(loaded.load(dir.file("c")), "changes");
      EXPECT_EQ(snapshot(loaded), snapshot(model));
    }
  }
}

// Shards of the same rows but other columns disagree about the rows, so nobody can say which rows have changed.
TEST(CheckpointWriter, SavesAllRowsWhereColumnsDoNotAgree) {
  const TestDirectory dir;
  TestModel model = make(large_tables([](const EmbeddingBagConfig& t, int) {
    const int64_t half = t.num_embeddings / 2, rest = t.num_embeddings - half;
    return ParameterSharding{
        "by_hand", "fused", Combine::kSum, false, {{half, 8, 0, 0, 0}, {rest, 4, half, 0, 0}, {rest, 4, half, 4, 0}}};
  }));
  CheckpointWriter writer(dir.file("c"), model.parallel(), model.optimizer());
  (void)writer.follow_changes();
  model.train(0, 2);
  writer.save("all");
  model.train(2, 4);
  writer.save("changes", CheckpointRows::kChanged);
  for (const TableEntry& t : manifest_in(newest_in(dir.file("c"))).tables) EXPECT_FALSE(t.changes) << t.name;
  TestModel loaded = make(large_tables(columns({4, 4})));
  loaded.load(dir.file("c"));
  EXPECT_EQ(snapshot(loaded), snapshot(model));
}

TEST(CheckpointWriter, KeepsWhatChangesAreOf) {
  const TestDirectory dir;
  TestModel model = make(large_tables());
  CheckpointWriter writer(dir.file("c"), model.parallel(), model.optimizer(), 1);
  ASSERT_TRUE(writer.follow_changes());
  const auto save = [&](int step, CheckpointRows rows) {
    model.train(step, step + 1);
    writer.save(str_cat(step), rows);
    return in_directory(dir.file("c"));
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(save(0, CheckpointRows::kAll), Names({"save-1"}));
  EXPECT_EQ(save(1, CheckpointRows::kChanged), Names({"save-1", "save-2"}));
  EXPECT_EQ(save(2, CheckpointRows::kChanged), Names({"save-1", "save-3"}));
  EXPECT_EQ(save(3, CheckpointRows::kAll), Names({"save-4"}));
  EXPECT_EQ(save(4, CheckpointRows::kChanged), Names({"save-4", "save-5"}));

  // A checkpoint without its base is broken.
  const auto group = ProcessGroup::connect(runtime(), {});
  EXPECT_EQ(find_checkpoints(dir.file("c"), *group).whole.size(), 2);
  fs::rename(dir.file("c/save-4"), dir.file("aside"));
  TestModel other = make(large_tables());
  const auto [text, code] = failure_of([&] { other.load(dir.file("c")); });
  EXPECT_EQ(code, Code::kDataLoss);
  EXPECT_THAT(text, HasSubstr("save-5 has only the rows that changed since save-4, and "));
  EXPECT_THAT(text, HasSubstr("save-4 is not there: both are needed, next to each other"));
  const FoundCheckpoints found = find_checkpoints(dir.file("c"), *group);
  EXPECT_TRUE(found.whole.empty());
  EXPECT_THAT(found.broken,
              testing::ElementsAre(testing::AllOf(HasSubstr("save-5"), HasSubstr("save-4 is not there"))));
  fs::create_directory(dir.file("c/save-4"));
  fs::copy(dir.file("c/save-5"), dir.file("c/save-4"));
  EXPECT_THAT(failure_of([&] { other.load(dir.file("c")); }).first, HasSubstr("save-4 is a different checkpoint"));
  fs::remove_all(dir.file("c/save-4"));
  // The writer notices it and begins with all rows.
  EXPECT_EQ(save(5, CheckpointRows::kChanged), Names({"save-6"}));
  EXPECT_EQ(writer.rows(), CheckpointRows::kAll);
  EXPECT_EQ(other.load(dir.file("c")), "5");
}

// After a full checkpoint fails there is no base, so the next one has all rows.
TEST(CheckpointWriter, BeginsWithAllRowsBehindAFailure) {
  const TestDirectory dir;
  TestModel model = make(large_tables());
  CheckpointWriter writer(dir.file("c"), model.parallel(), model.optimizer());
  ASSERT_TRUE(writer.follow_changes());
  ASSERT_TRUE(writer.reserve_copies());
  writer.save("good");
  model.train(0, 1);
  {
    const LargestFile limit(1000);
    writer.start("bad");
    EXPECT_EQ(failure_of([&] { writer.finish(); }).second, Code::kResourceExhausted);
  }
  model.train(1, 2);
  writer.save("all", CheckpointRows::kChanged);
  EXPECT_EQ(writer.rows(), CheckpointRows::kAll);
  model.train(2, 3);
  writer.save("changes", CheckpointRows::kChanged);
  EXPECT_EQ(writer.rows(), CheckpointRows::kChanged);
  TestModel loaded = make(large_tables());
  EXPECT_EQ(loaded.load(dir.file("c")), "changes");
  EXPECT_EQ(snapshot(loaded), snapshot(model));
  EXPECT_FALSE(CheckpointWriter(dir.file("d"), make().parallel(), model.optimizer()).follow_changes())
      << "the reference kernel does not know";
}

TEST(Checkpoint, KeepsOneStatePerColumnCut) {
  const TestDirectory dir;
  TestModel model = make(with_cut(columns({4, 4})));
  model.train(0, 3);
  model.save(dir.file("c"));
  const SafetensorsReader o(InputFile(dir.file("c/save-1/optimizer.safetensors")));
  const std::string film = "sparse_arch.embedding_bag_collection.embedding_bags.film.weight/film.momentum1";
  EXPECT_EQ(describe(*o.find(film)), "float32 [41, 2]");
  TestModel same = make(with_cut(columns({4, 4})));
  same.load(dir.file("c"));
  EXPECT_EQ(snapshot(same), tensors(dir.file("c")));
  EXPECT_EQ(same.train(3, 5), model.train(3, 5));

  // Merge the columns into one cut, or split them into three that do not nest. Weights and other states stay the same.
  const Tensor stored = o.read(film);
  for (const std::vector<int64_t>& widths : {std::vector<int64_t>{8}, {2, 4, 2}}) {
    TestModel other = make(with_cut(columns(widths)));
    other.load(dir.file("c"));
    const auto held = other.bags().held_shards();
    int64_t seen = 0;
    for (size_t s = 0; s < widths.size(); ++s) {
      const Tensor state = other.bags().states(held[s])[0].second;
      const float a = s == 0 && widths.size() == 3 ? 1.0f : s == 2 ? 0.0f : 0.5f;
      for (int64_t row = 0; row < 41; ++row) {
        const float left = stored.data<float>()[2 * row], right = stored.data<float>()[2 * row + 1];
        EXPECT_FLOAT_EQ(state.data<float>()[row], a * left + (1 - a) * right);
        seen += left != right;
      }
    }
    EXPECT_GT(seen, 0) << "the cuts' states differ somewhere";
  }
}

TEST(MergedState, IsTheMeanByWidth) {
  const std::vector<int64_t> cuts = {2, 6, 4};
  const float values[] = {1, 2, 5};
  EXPECT_EQ(merged_state(cuts, values, 0, 2), 1);
  EXPECT_EQ(merged_state(cuts, values, 3, 2), 2);
  EXPECT_EQ(merged_state(cuts, values, 0, 12), (2 * 1 + 6 * 2 + 4 * 5) / 12.0f);
  EXPECT_EQ(merged_state(cuts, values, 6, 4), (2 * 2 + 2 * 5) / 4.0f);
}

TEST(Checkpoint, OfAnOptimizerBeforeAndAfterItsFirstStep) {
  const TestDirectory dir;
  TestModel fresh = make();
  fresh.save(dir.file("fresh"));
  TestModel trained = make();
  trained.train(0, 2);
  trained.save(dir.file("trained"));
  EXPECT_EQ(trained.load(dir.file("fresh")), "{}");
  EXPECT_TRUE(trained.optimizer().state().empty());
  EXPECT_EQ(snapshot(trained), tensors(dir.file("fresh")));
  fresh.load(dir.file("trained"));
  EXPECT_EQ(snapshot(fresh), tensors(dir.file("trained")));
}

TEST(Checkpoint, SavesBesideTheOneBefore) {
  const TestDirectory dir;
  TestModel model = make();
  model.save(dir.file("c"), "first");
  model.train(0, 1);
  model.save(dir.file("c"), "second");
  EXPECT_EQ(make().load(dir.file("c")), "second");
  EXPECT_EQ(make().load(dir.file("c/save-1")), "first");
}

TEST(Checkpoint, RefusesWhatDoesNotFitAndChangesNothing) {
  const TestDirectory dir;
  make().save(dir.file("c"));
  struct Case {
    std::function<void(TestModelOptions&)> change;
    std::string sentence;
  };
  const std::vector<Case> cases = {
      {[](auto& o) { o.tables[1].num_embeddings = 24; }, "table \"user\" is float32 [23, 8] in "},
      {[](auto& o) { o.tables[2].data_type = DType::kFloat32; }, "float32 [17, 8] in this model"},
      {[](auto& o) { o.tables[3].name = "style"; }, "has no table \"style\""},
      {[](auto& o) { o.tables.pop_back(), o.dense_name = "w"; }, "has no parameter \"w\" float32 [1, 24]"},
      {[](auto& o) { o.tables[3].embedding_dim = 4; }, "float32 [9, 4] in this model"},
      {[](auto& o) { o.tables[0].optimizer.name = "exact_adagrad"; },
       "table \"film\" was trained with exact_rowwise_adagrad (states: momentum1 (per row)) in "},
      {[](auto& o) { o.tables[1].optimizer.name = "exact_sgd"; }, "trains it with exact_sgd (states: none)"},
      {[](auto& o) { o.dense_name = "over_arch.model.0.weight"; }, "has no parameter \"over_arch.model.0.weight\""},
      {[](auto& o) {
         o.dense = {"sgd", "{}"};
       },
       "trained with other settings of the optimizer"},
  };
  for (const Case& c : cases) {
    TestModelOptions options;
    c.change(options);
    TestModel model = make(options);
    model.train(0, 2);
    const std::string before = snapshot(model);
    const auto [text, code] = failure_of([&] { model.load(dir.file("c")); });
    EXPECT_EQ(code, Code::kInvalidArgument) << c.sentence;
    EXPECT_THAT(text, HasSubstr(c.sentence));
    EXPECT_EQ(snapshot(model), before) << c.sentence;
    EXPECT_EQ(model.bags().step(), 2);
  }
  TestModelOptions less;
  less.tables.pop_back();
  less.tables[0].embedding_dim = 16;
  EXPECT_EQ(failure_of([&] { make(less).load(dir.file("c")); }).second, Code::kInvalidArgument);
}

TEST(Checkpoint, NamesAParameterThatTheModelLacks) {
  const TestDirectory dir;
  make().save(dir.file("c"));
  TestModelOptions o;
  o.tables[2].embedding_dim = 8;
  o.tables.erase(o.tables.begin() + 3);
  o.tables[2].data_type = DType::kFloat16;
  TestModel model = make(o);
  const std::string text = failure_of([&] { model.load(dir.file("c")); }).first;
  EXPECT_THAT(text, HasSubstr("parameter \"over_arch.model.1.weight\" is float32 [1, 32] in "));
}

TEST(Checkpoint, RefusesDamageByName) {
  const TestDirectory dir;
  TestModel model = make();
  model.train(0, 1);
  model.save(dir.file("c"));
  TestModel other = make();
  const std::string before = snapshot(other);
  for (const char* name : {kModelFile, kOptimizerFile, kManifestFile}) {
    const std::string path = dir.file("c/save-1/") + name, whole = read_file(path);
    std::string flipped = whole, longer = whole + "\n{";
    flipped[whole.size() - 20] ^= 4;
    for (const std::string& bad : {flipped, whole.substr(0, whole.size() - 9), std::string(), longer}) {
      write_file(path, bad);
      const auto [text, code] = failure_of([&] { other.load(dir.file("c")); });
      EXPECT_EQ(code, Code::kDataLoss) << name << ", " << bad.size() << " of " << whole.size() << " bytes";
      EXPECT_THAT(text, HasSubstr(name));
    }
    fs::remove(path);
    EXPECT_NE(failure_of([&] { other.load(dir.file("c")); }).second, Code::kOk) << name;
    write_file(path, whole);
  }
  EXPECT_EQ(snapshot(other), before);
  other.load(dir.file("c"));
  EXPECT_EQ(snapshot(other), tensors(dir.file("c")));
}

TEST(Checkpoint, RefusesANewerFormat) {
  const TestDirectory dir;
  TestModel model = make();
  model.save(dir.file("c"));
  auto manifest = nlohmann::ordered_json::parse(read_file(dir.file("c/save-1/checkpoint.json")));
  manifest["version"] = 4;
  write_file(dir.file("c/save-1/checkpoint.json"), manifest.dump());
  const auto [text, code] = failure_of([&] { model.load(dir.file("c")); });
  EXPECT_EQ(code, Code::kUnimplemented);
  EXPECT_THAT(text, HasSubstr("checkpoint format 4"));
  manifest["version"] = 1;
  write_file(dir.file("c/save-1/checkpoint.json"), manifest.dump());
  EXPECT_EQ(model.load(dir.file("c")), "{}") << "the one before had one file of each kind";
  manifest["content"]["progress"] = "somebody else's";
  write_file(dir.file("c/save-1/checkpoint.json"), manifest.dump());
  EXPECT_EQ(failure_of([&] { model.load(dir.file("c")); }).second, Code::kDataLoss);
}

TEST(Checkpoint, FailsWhereItCannotWrite) {
  const TestDirectory dir;
  TestModel model = make();
  write_file(dir.file("file"), "x");
  const auto [text, code] = failure_of([&] { model.save(dir.file("file/c")); });
  EXPECT_EQ(code, Code::kUnavailable);
  EXPECT_THAT(text, HasSubstr(dir.file("file")));
  EXPECT_EQ(failure_of([&] { model.load(dir.file("none")); }).second, Code::kNotFound);
  EXPECT_EQ(failure_of([&] { model.save(dir.file("c"), "\xff"); }).second, Code::kInvalidArgument);
  EXPECT_FALSE(fs::exists(dir.file("c")));
}

void check_target(TestModel& model, const std::string& directory) {
  CheckpointWriter(directory, model.parallel(), model.optimizer()).check_place();
}

TEST(Checkpoint, TriesItsPlaceBeforeThereIsAnything) {
  const TestDirectory dir;
  TestModel model = make();
  check_target(model, dir.file("new/c"));
  EXPECT_FALSE(fs::exists(dir.file("new/c"))) << "it leaves nothing";
  write_file(dir.file("file"), "x");
  EXPECT_EQ(failure_of([&] { check_target(model, dir.file("file/c")); }).second, Code::kUnavailable);
  EXPECT_EQ(failure_of([&] { check_target(model, dir.file("")); }).second, Code::kAlreadyExists);
  model.save(dir.file("c"));
  check_target(model, dir.file("c"));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.file("c")), fs::directory_iterator()), 1);
}

TEST(Checkpoint, HoldsNothingThatIsNoNumber) {
  const TestDirectory dir;
  TestModel model = make(with_cut([](const EmbeddingBagConfig& t, int world) { return striped(t, world, 3); }));
  model.train(0, 1);
  model.save(dir.file("c"), "good");
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const HeldShard held = model.bags().held_shards()[1];
  ASSERT_EQ(held.table, "film");
  const Tensor before = model.bags().weight(held), broken = before.clone();
  broken.data<float>()[3 * 8 + 2] = nan;
  model.bags().set_weight(held, broken);
  auto [text, code] = failure_of([&] { model.save(dir.file("c"), "bad"); });
  EXPECT_EQ(code, Code::kFailedPrecondition);
  const int64_t row = model.bags().table_rows(held, 3, 1)[0];
  EXPECT_THAT(text, HasSubstr(str_cat("table \"film\" holds nan in row ", row, ":")));
  model.bags().set_weight(held, before);
  model.dense().data<float>()[1] = -inf;
  std::tie(text, code) = failure_of([&] { model.save(dir.file("c"), "bad"); });
  EXPECT_THAT(text, HasSubstr("parameter \"over_arch.model.1.weight\" holds inf"));
  EXPECT_EQ(make().load(dir.file("c")), "good");
}

TEST(Manifest, RefusesNumbersThatCannotBe) {
  TestModel model = make();
  const TestDirectory dir;
  model.save(dir.file("c"));
  const std::string path = dir.file("c/save-1/checkpoint.json");
  const auto manifest = nlohmann::ordered_json::parse(read_file(path));
  const std::vector<std::pair<const char*, nlohmann::ordered_json>> wrong = {
      {"/collections/0/step", -1},
      {"/collections/0/step", 1e300},
      {"/collections/0/step", uint64_t{1} << 63},
      {"/tables/0/rows", -41},
      {"/tables/0/rows", int64_t{1} << 61},
      {"/tables/0/dim", 0},
      {"/tables/0/column_cuts", {4, 5}},
      {"/tables/0/column_cuts", nlohmann::ordered_json::array()},
      {"/tables/0/states/0/name", ""},
      {"/tables/1/parameter", manifest["content"]["tables"][0]["parameter"]},
      {"/world_size", 0},
      {"/files/0/bytes", -1},
      {"/files/0/crc32", "zz"},
      {"/files/0/name", "../model.safetensors"},
  };
  for (const auto& [where, value] : wrong) {
    auto changed = manifest;
    changed["content"][nlohmann::ordered_json::json_pointer(where)] = value;
    const std::string content = changed["content"].dump();
    const uLong crc = ::crc32(0, reinterpret_cast<const unsigned char*>(content.data()), content.size());
    changed["crc32"] = hex_text(crc);
    const auto [text, code] = failure_of([&] { Manifest::from_json(changed.dump(), path); });
    EXPECT_EQ(code, Code::kDataLoss) << where << " = " << value;
    EXPECT_THAT(text, HasSubstr(path + " is damaged: "));
    EXPECT_THAT(text, testing::Not(HasSubstr("checksum is wrong"))) << where;
  }
}

TEST(Manifest, KnowsInfinity) {
  Manifest m;
  TableEntry t{.dim = 1, .cuts = {1}};
  t.optimizer.max_gradient = t.learning_rate = std::numeric_limits<double>::infinity();
  m.tables = {t};
  EXPECT_EQ(Manifest::from_json(m.json(), "here").tables[0].optimizer.max_gradient, t.optimizer.max_gradient);
}

TEST(Manifest, ComesBackAsWritten) {
  Manifest m;
  m.world_size = 3;
  m.progress = "{\"a\": \"\\u00e9 \xc3\xa9\"}\n";
  m.steps = {{"a.b", 12}, {"c", 0}};
  m.dense_optimizer = {{"lr = 0.1", "eps = 1e-08"}, {}};
  m.files = {{kModelFile, int64_t{1} << 40, 0xdeadbeef}};
  TableEntry t;
  t.parameter = "x.embedding_bags.t.weight";
  t.name = "t";
  t.rows = 5;
  t.dim = 6;
  t.dtype = DType::kBFloat16;
  t.optimizer = {"adam", R"({"eps": 1e-8})", 0.25};
  t.learning_rate = 0.1;
  t.states = {{"momentum1", false}, {"momentum2", true}};
  t.cuts = {2, 4};
  m.tables = {t};
  const Manifest back = Manifest::from_json(m.json(), "here");
  EXPECT_EQ(back.json(), m.json());
  EXPECT_EQ(back.progress, m.progress);
  EXPECT_EQ(back.files[0].crc, 0xdeadbeefu);
  EXPECT_EQ(back.find(t.parameter)->optimizer, t.optimizer);
  EXPECT_EQ(back.find(t.parameter)->state_name(1), "x.embedding_bags.t.weight/t.momentum2");
  EXPECT_EQ(describe(back.find(t.parameter)->state(1)), "float32 [5, 2]");
  EXPECT_EQ(back.find("t"), nullptr);
}

}  // namespace
}  // namespace tessera::checkpoint
