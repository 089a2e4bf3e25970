// A dynamic table in `tessera serve`: raw ids of 63 bits over HTTP; ids without a row read zeros; invalid ids are
// refused and counted.
#include <gmock/gmock.h>

#include "dynamic_job.h"
#include "serve/served_model.h"

namespace tessera::test::dynamic_serve_test {
namespace {

using nlohmann::json;
using namespace serve;
using ::testing::HasSubstr;

int64_t id_of(int64_t item) { return int64_t{9'000'000'000'000'000'000} + item * 1'000'003; }

// Asks for a sample for each id, and one without ids.
Reply ask(Client& client, const std::vector<int64_t>& ids) {
  std::vector<int> lengths(ids.size(), 1);
  lengths.push_back(0);
  const std::vector<float> dense(lengths.size(), 2);
  const json inputs = {
      {{"name", "dense"}, {"datatype", "FP32"}, {"shape", {dense.size(), 1}}, {"data", dense}},
      {{"name", "item.values"}, {"datatype", "INT64"}, {"shape", {ids.size()}}, {"data", ids}},
      {{"name", "item.lengths"}, {"datatype", "INT32"}, {"shape", {lengths.size()}}, {"data", lengths}}};
  return client.ask(Client::post("/v2/models/m/infer", json{{"inputs", inputs}}.dump()));
}

TEST(DynamicServe, AnswersForAnyId) {
  const test::TestDirectory folder;
  std::string rows = "label,price,item\n";
  for (int64_t i = 0; i < 800; ++i) rows += str_cat(i % 3 == 0, ',', i % 5, ',', id_of(i % 37 % 30), "\n");
  const std::string job = test::dynamic_job(folder, rows, R"(any_id = true
compute_kernel = "dynamic?evict=lfu"
[[table]]
name = "item"
rows = 100
sharding = ["hash"]
)");
  const std::string saved = folder.file("saved"), model = folder.file("model");
  succeed({"train", "--config", job, "--nproc", "2", "--save", saved});
  succeed({"quantize", "--load", saved, "--save", model, "--weights", "int8"});
  const Runtime runtime;
  const auto here = open_predictor(runtime, model);

  test::Program server({test::tessera_path(), "serve", "--model", "m=" + model, "--port", "0"});
  Client client(port_of(server));
  const std::vector<int64_t> ids = {id_of(0), id_of(29), INT64_MAX - 1, id_of(30), 0};
  const Reply reply = ask(client, ids);
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json answer = json::parse(reply.body);
  const auto scores = answer["outputs"][0]["data"].get<std::vector<float>>();
  ASSERT_EQ(scores.size(), ids.size() + 1);

  test::OwnInput input(here->model(), 0, 1);
  input.batch = std::ssize(ids) + 1;
  input.dense.assign(ids.size() + 1, 2);
  input.values = {ids};
  input.lengths = {std::vector<int32_t>(ids.size(), 1)};
  input.lengths[0].push_back(0);
  input.weights = {{}};
  EXPECT_EQ(scores, test::scores_of(*here, input.view()));
  const float none = scores.back();
  EXPECT_NE(scores[0], none);
  EXPECT_NE(scores[1], none);
  for (const size_t unknown : {2, 3, 4}) EXPECT_EQ(scores[unknown], none) << ids[unknown];

  const Reply refused = ask(client, {id_of(0), -1, INT64_MAX});
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("sample 1: id -1 is not in table \\\"item\\\", whose ids are 0 to " +
                                      std::to_string(INT64_MAX - 1)));
  const std::string metrics = client.ask(Client::get("/metrics")).body;
  const size_t at = metrics.find("tessera_bad_ids_total{model=\"m\"");
  ASSERT_NE(at, std::string::npos) << metrics;
  EXPECT_THAT(metrics.substr(at, metrics.find('\n', at) - at), HasSubstr("table=\"item\"} 2"));
}

}  // namespace
}  // namespace tessera::test::dynamic_serve_test
