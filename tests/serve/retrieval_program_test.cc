// The best items of a trained two-tower model equal those of plain loops over all items' vectors. For a followed model,
// each answer uses the vectors of its own version.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "checkpoint/safetensors.h"
#include "online_job.h"
#include "publishing/test_publications.h"
#include "served_model.h"

namespace tessera::serve {
namespace {

using nlohmann::json;
using test::OwnInput;
using test::Program;
using test::Publication;
using test::run_tessera;
using test::succeed;
using test::TestDirectory;
using ::testing::HasSubstr;

// The best k items for each query, found by plain loops.
std::vector<int64_t> best(const std::vector<float>& queries, const std::vector<float>& items, size_t dim, size_t k) {
  std::vector<int64_t> out;
  for (size_t q = 0; q < queries.size(); q += dim) {
    std::vector<float> scores;
    for (size_t i = 0; i < items.size(); i += dim)
      scores.push_back(std::inner_product(&items[i], &items[i] + dim, &queries[q], 0.0f));
    std::vector<int64_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
    });
    out.insert(out.end(), order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k));
  }
  return out;
}

std::vector<float> floats_of(const Tensor& values) {
  return {values.data<float>(), values.data<float>() + values.numel()};
}

std::vector<int64_t> items_of(const Reply& reply) {
  EXPECT_EQ(reply.status, 200) << reply.body;
  if (reply.status != 200) return {};
  const json body = json::parse(reply.body);
  return body["outputs"][1]["data"].get<std::vector<int64_t>>();
}

class TwoTowers : public testing::Test {
 protected:
  static constexpr size_t kItems = 300, kUsers = 40, kBest = 10, kDim = 16;

  void train() const {
    const auto job = run_tessera({"model", "new", "two_tower"});
    ASSERT_EQ(job.status, 0) << job.output;
    succeed({"train", "--config", folder_.write("job.toml", job.output), "--set", "data.rows=[2000,500,100,300,50,10]",
             "--set", "data.samples=6000", "--set", "data.test_samples=500", "--save", folder_.file("saved")});
    succeed({"quantize", "--load", folder_.file("saved"), "--save", model_, "--weights", "fp16"});
  }
  // Prepared rows: user k is (k, k % 500, k % 100), item i is (i, i % 50, i % 10).
  std::string rows(const char* name, size_t count, bool users) const {
    std::string text;
    for (size_t i = 0; i < count; ++i) {
      text += "0\t";
      for (size_t d = 0; d < 8; ++d)
        text += str_cat(d > 0 ? "," : "", users ? static_cast<double>((i + d) % 5) / 4 : 0);
      text += users ? str_cat('\t', i, '\t', i % 500, '\t', i % 100, "\t\t\t\n")
                    : str_cat("\t\t\t\t", i, '\t', i % 50, '\t', i % 10, '\n');
    }
    return folder_.write(name, text);
  }
  std::vector<float> vectors(const std::string& data, const char* layer) const {
    const std::string to = folder_.file(str_cat(layer, ".safetensors"));
    const auto done = run_tessera({"predict", "--model", model_, "--data", data, "--vectors", layer, "--output", to});
    EXPECT_EQ(done.status, 0) << done.output;
    if (done.status != 0) return {};
    return floats_of(checkpoint::SafetensorsReader(checkpoint::InputFile(to)).read("vectors"));
  }

  const TestDirectory folder_;
  const std::string model_ = folder_.file("model");
};

TEST_F(TwoTowers, FindWhatPlainLoopsFind) {
  train();
  ASSERT_FALSE(HasFatalFailure());
  const std::vector<float> users = vectors(rows("users", kUsers, true), "user_tower"),
                           items = vectors(rows("items", kItems, false), "item_tower");
  ASSERT_EQ(users.size(), kUsers * kDim);
  ASSERT_EQ(items.size(), kItems * kDim);
  Program server({test::tessera_path(), "serve", "--model", "m=" + model_, "--port", "0", "--top-k", str_cat(kBest),
                  "--items", folder_.file("item_tower.safetensors"), "--query", "user_tower"});
  Client client(port_of(server));
  json inputs = json::array();
  std::vector<float> dense;
  for (size_t i = 0; i < kUsers; ++i) {
    for (size_t d = 0; d < 8; ++d) dense.push_back(static_cast<float>((i + d) % 5) / 4);
  }
  const auto add = [&](const std::string& name, const char* type, const json& shape, const auto& data) {
    inputs.push_back({{"name", name}, {"datatype", type}, {"shape", shape}, {"data", data}});
  };
  add("dense", "FP32", {kUsers, 8}, dense);
  const std::vector<size_t> rows_of_users{2000, 500, 100};
  for (size_t c = 0; c < 6; ++c) {
    std::vector<int64_t> ids;
    for (size_t i = 0; c < 3 && i < kUsers; ++i) ids.push_back(static_cast<int64_t>(i % rows_of_users[c]));
    add(str_cat('c', c, ".values"), "INT64", json::array({ids.size()}), ids);
    add(str_cat('c', c, ".lengths"), "INT32", json::array({kUsers}), std::vector<int>(kUsers, c < 3 ? 1 : 0));
  }
  const auto found = items_of(client.ask(Client::post("/v2/models/m/infer", json{{"inputs", inputs}}.dump())));
  EXPECT_EQ(found, best(users, items, kDim, kBest));
  EXPECT_GT(std::set<int64_t>(found.begin(), found.end()).size(), kBest);  // users like different items
}

// Items and queries change with each version.
TEST(FollowedItems, AreThoseOfTheVersion) {
  constexpr size_t kDim = 8, kBest = 5;
  const TestDirectory folder;
  const std::string published = folder.file("published"), to = folder.file("followed");
  succeed(run_tessera(
      {"train", "--config", folder.write("job.toml", kOnlineJob), "--publish", published, "--every", "5steps"}));
  std::filesystem::create_directories(to);
  test::copy_publication(published, to, Publication::kBase, 1);
  Program server({test::tessera_path(), "serve", "--follow", "m=" + to, "--port", "0", "--top-k", str_cat(kBest),
                  "--items", "c0", "--query", "dense_arch"});
  const int port = port_of(server);
  ASSERT_NE(port, 0);
  const Runtime runtime;
  const ModelDescription described = open_packed_model(published + "/base-1").description;
  OwnInput input(described, 30, 3);
  const std::string request = Client::post("/v2/models/m/infer", json_request(described, input));
  std::vector<std::vector<int64_t>> of_versions;
  for (int64_t n = 1; n <= 4; ++n) {
    if (n > 1) test::copy_publication(published, to, Publication::kDelta, n);
    const auto kind = n == 1 ? Publication::kBase : Publication::kDelta;
    const std::string version = publishing::read_publication(published, kind, n).hash;
    Reply reply;
    ASSERT_TRUE(comes_true([&] {
      reply = Client(port).ask(request);
      return reply.status == 200 && json::parse(reply.body)["model_version"] == version;
    })) << server.output();
    const publishing::PatchedModel patched = test::model_at(published, n);
    InferenceModel model = patched.model();
    const std::vector<float> items =
        floats_of(dequantize_rows(model.tables[0].rows, *model.tables[0].config.row_format, kDim));
    model.graph.heads.push_back({"dense_arch", "dense_arch", "none"});
    const auto predictor = make_predictor(runtime, std::move(model));
    std::vector<float> queries(30 * kDim);
    std::vector<std::span<float>> outputs(predictor->model().outputs.size());
    outputs.back() = queries;
    predictor->predict_outputs(input.view(), outputs);
    of_versions.push_back(items_of(reply));
    EXPECT_EQ(of_versions.back(), best(queries, items, kDim, kBest)) << "publication " << n;
  }
  EXPECT_NE(of_versions.front(), of_versions.back());
  expect_refused(run_tessera({"serve", "--follow", to, "--port", "0", "--top-k", "5", "--items",
                              folder.file("job.toml"), "--query", "dense_arch"}),
                 HasSubstr("--items: with --follow it must be a table of the model"));
}

}  // namespace
}  // namespace tessera::serve
