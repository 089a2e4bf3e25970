// Two ranks publish dynamic tables while they train (docs/online.md). Rows come and go in deltas; base and deltas
// together equal a checkpoint of the end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "inference/test_model.h"
#include "publishing/test_publications.h"
#include "serve/online_job.h"
#include "serve/served_model.h"
#include "spawn.h"
#include "tessera/online.h"
#include "tessera_program.h"

namespace tessera::test::dynamic_online_test {
namespace {

const std::string kJob = R"(
plugins = {path = [")" TESSERA_TEST_PLUGINS R"("]}
job = {seed = 3, threads = 1}
comm = {backend = "tcp"}
model = {embedding_dim = 8, bottom_mlp = [8, 8], top_mlp = [8, 1]}
table_defaults = {compute_kernel = "dynamic?capacity=300&evict=lru", sharding = ["hash"]}
publish = {base_every = 3, keep_bases = 100}
[data]
reader = "synthetic"
columns = 2
rows = [1000000000000]
dense = 3
pooling = 2
index_dist = "zipf:1.05"
samples = 960
test_samples = 10
batch = 32
)";

TEST(DynamicOnline, RowsThatComeAndGoAreFollowed) {
  const TestDirectory folder;
  const std::string published = folder.file("published"), saved = folder.file("saved"), packed = folder.file("packed");
  succeed({"train", "--config", folder.write("job.toml", kJob), "--nproc", "2", "--publish", published, "--every",
           "5steps", "--save", saved});
  pack_model(open_float_model(saved).model, packed, {});
  EXPECT_EQ(difference(model_at(published, 6).model(), open_packed_model(packed)), "");
  EXPECT_EQ(difference(model_at(published, 4).model(), open_packed_model(published + "/base-4")), "");
  int64_t changed = 0, removed = 0;
  for (int64_t n = 2; n <= 6; ++n) {
    for (const auto& table : publishing::read_publication(published, Publication::kDelta, n).tables) {
      changed += table.changed;
      removed += table.removed;
    }
  }
  EXPECT_GT(changed, 200);
  EXPECT_GT(removed, 20);

  const Runtime runtime;
  const ModelFollower follower(runtime, published);
  EXPECT_EQ(follower.status().number, 6);
  const auto last = make_predictor(runtime, open_packed_model(packed));
  OwnInput input(last->model(), 200, 1);
  for (auto& ids : input.values) {  // some that have rows
    for (int64_t& id : ids) id %= 50;
  }
  EXPECT_EQ(scores_of(*follower.current(), input.view()), scores_of(*last, input.view()));
}

TEST(DynamicOnline, ADirectoryIsForOneModel) {
  const TestDirectory folder;
  const std::string published = folder.file("published"), job = folder.write("job.toml", kJob);
  const std::vector<std::string> publish = {"train",     "--config", job,       "--max-steps", "2",
                                            "--publish", published,  "--every", "2steps"};
  ASSERT_EQ(run_tessera(publish).status, 0);
  EXPECT_EQ(run_tessera(publish).status, 0) << "the same model starts again";
  std::vector<std::string> other = publish;
  other.insert(other.end(), {"--set", "data.columns=3"});
  expect_refused(
      run_tessera(other),
      testing::HasSubstr(published + " has publications of another model, with 3 dense inputs, c0, c1; "
                                     "this one has 3 dense inputs, c0, c1, c2: publish to another directory"));
  EXPECT_EQ(publishing::publications_in(published, Publication::kBase), (std::vector<int64_t>{1, 2}));
}

// Each rank assembles such a table again for each delta.
TEST(DynamicOnline, RanksFollowThem) {
  const TestDirectory folder;
  const std::string published = folder.file("published"), watched = folder.file("watched");
  succeed({"train", "--config", folder.write("job.toml", kJob), "--nproc", "2", "--publish", published, "--every",
           "5steps"});
  std::filesystem::create_directories(watched);
  copy_publication(published, watched, Publication::kBase, 1);
  const int port = cli::free_port();
  Program server({tessera_path(), "launch", "-n", "2", "--", tessera_path(), "serve", "--follow", "m=" + watched,
                  "--port", std::to_string(port), "--backend", "tcp"});
  ASSERT_EQ(serve::port_of(server), port);
  const Runtime runtime;
  int64_t removed = 0;
  for (int64_t n = 1; n <= 6; ++n) {
    if (n > 1) {
      copy_publication(published, watched, Publication::kDelta, n);
      for (const auto& table : publishing::read_publication(published, Publication::kDelta, n).tables)
        removed += table.removed;
    }
    const publishing::PatchedModel model = model_at(published, n);
    const auto want = make_predictor(runtime, model.model());
    OwnInput input(want->model(), 100, static_cast<uint32_t>(n));
    for (auto& ids : input.values) {  // mostly ids that have or had rows
      for (size_t i = 0; i < ids.size(); ++i) ids[i] %= i % 4 == 0 ? 1'000'000 : 400;
    }
    const std::string version =
        publishing::read_publication(published, n == 1 ? Publication::kBase : Publication::kDelta, n).hash;
    nlohmann::json answer;
    ASSERT_TRUE(serve::comes_true([&] {
      serve::Client client(port);
      const auto reply =
          client.ask(serve::Client::post("/v2/models/m/infer", serve::json_request(want->model(), input)));
      if (reply.status != 200) return false;
      answer = nlohmann::json::parse(reply.body);
      return answer["model_version"] == version;
    })) << server.output();
    const auto got = answer["outputs"][0]["data"].get<std::vector<float>>();
    const std::vector<float> scores = scores_of(*want, input.view());
    ASSERT_EQ(got.size(), scores.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], scores[i], 1e-6f) << "publication " << n;
  }
  EXPECT_GT(removed, 20);
  ASSERT_EQ(kill(server.pid(), SIGTERM), 0);
  EXPECT_EQ(server.wait(60), 128 + SIGTERM) << server.output();
}

// Rows are admitted after many sightings, so the first base has none.
TEST(DynamicOnline, ABaseWithoutARowIsFollowedToo) {
  const TestDirectory folder;
  const std::string published = folder.file("published"), saved = folder.file("saved"), packed = folder.file("packed");
  succeed({"train", "--config", folder.write("job.toml", kJob), "--nproc", "2", "--publish", published, "--every",
           "1steps", "--save", saved, "--max-steps", "12", "--set",
           "table_defaults.compute_kernel=\"dynamic?capacity=300&evict=lru&admit_after=8\"", "--set",
           "publish.base_every=100"});
  EXPECT_EQ(open_packed_model(published + "/base-1").tables.at(0).rows.size(0), 0);
  pack_model(open_float_model(saved).model, packed, {});
  const InferenceModel last = open_packed_model(packed);
  EXPECT_GT(last.tables.at(0).rows.size(0), 0);
  EXPECT_EQ(difference(model_at(published, 12).model(), last), "");
  const Runtime runtime;
  const auto first = make_predictor(runtime, open_packed_model(published + "/base-1"));
  OwnInput input(first->model(), 20, 1);
  EXPECT_EQ(scores_of(*first, input.view()).size(), 20u);
  EXPECT_EQ(ModelFollower(runtime, published).status().number, 12);
}

}  // namespace
}  // namespace tessera::test::dynamic_online_test
