// Requests bring vectors as lists of numbers, or as tensors. Their scores are those of the same rows in a file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "job_file.h"
#include "served_model.h"

namespace tessera::serve {
namespace {

using nlohmann::json;
using test::Program;
using testing::HasSubstr;

constexpr const char* kPhotoJob = R"(
job = {seed = 3, device = "cpu", threads = 1}
model = {embedding_dim = 4}
data = {reader = "csv", path = "PATH", batch = 10}
column = [
  {name = "liked", as = "label"},
  {name = "photo", as = "vector", width = 3},
  {name = "price", as = "dense"},
  {name = "user", ids = "vocabulary"}]
layer = [{name = "top", type = "mlp", inputs = ["photo", "dense", "pooled"], options = {widths = [8, 1]}}]
head = [{name = "like", input = "top", label = "liked"}]
)";

// Trains and packs a job on these rows, and returns the score that the last one has in their file.
double last_score(const test::TestDirectory& folder, std::string job, const std::string& rows) {
  job.replace(job.find("PATH"), 4, folder.write("rows.csv", rows));
  const std::string config = folder.write("job.toml", job), scores = folder.file("scores.csv");
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"train", "--config", config, "--save", folder.file("saved")},
           {"quantize", "--load", folder.file("saved"), "--save", folder.file("model"), "--weights", "fp32"},
           {"predict", "--model", folder.file("model"), "--data", folder.file("rows.csv"), "--output", scores}})
    test::succeed(command);
  const std::string all = test::contents(scores);
  return std::stod(all.substr(all.rfind(',') + 1));
}

TEST(ServeVectors, ScoresOfRequestsAreThoseOfFiles) {
  const test::TestDirectory folder;
  std::string rows = "liked,photo,price,user\n";
  for (int i = 0; i < 40; ++i) rows += str_cat(i % 2, ",0.", i % 7, " -1 2.5,", i % 3, ",u", i % 5, "\n");
  const double last = last_score(folder, kPhotoJob, rows);

  Program program({test::tessera_path(), "serve", "--model", folder.file("model"), "--port", "0"});
  const int port = port_of(program);
  ASSERT_NE(port, 0);
  Client client(port);
  const json row = {{"photo", {0.4, -1, 2.5}}, {"price", 0}, {"user", "u4"}};
  Reply reply = client.ask(Client::post("/v1/score", json{{"rows", {row}}}.dump()));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_NEAR(json::parse(reply.body).at("scores").at(0).begin()->get<double>(), last, 1e-6);

  const auto tensor = [](const char* name, const char* type, const json& shape, const json& data) {
    return json{{"name", name}, {"datatype", type}, {"shape", shape}, {"data", data}};
  };
  const json inputs = {tensor("photo", "FP32", {1, 3}, {0.4, -1, 2.5}), tensor("price", "FP32", {1}, {0}),
                       tensor("user.values", "BYTES", {1}, {"u4"}), tensor("user.lengths", "INT32", {1}, {1})};
  reply = client.ask(Client::post("/v2/models/model/infer", json{{"inputs", inputs}}.dump()));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_NEAR(json::parse(reply.body).at("outputs").at(0).at("data").at(0).get<double>(), last, 1e-6);

  reply = client.ask(Client::post("/v1/score", R"({"rows": [{"photo": [1, 2], "price": 0, "user": "u4"}]})"));
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("the model takes 3 numbers, and this row has 2"));
}

// A row without a vector, or with an empty one, has the score that it has in a file.
TEST(ServeVectors, MayBeMissing) {
  const test::TestDirectory folder;
  std::string rows = "liked,photo,price,user\n";
  for (int i = 0; i < 40; ++i)
    rows += str_cat(i % 2, ',', i % 4 == 3 ? "" : "0.5 -1 2.5", ',', i % 3, ",u", i % 5, "\n");
  std::string job = kPhotoJob;
  job.replace(job.find("width = 3"), 9, "width = 3, missing = 0.25");
  const double last = last_score(folder, job, rows);  // of a row without a vector

  Program program({test::tessera_path(), "serve", "--model", folder.file("model"), "--port", "0"});
  const int port = port_of(program);
  ASSERT_NE(port, 0);
  Client client(port);
  for (const char* photo : {"", R"("photo": null, )", R"("photo": [], )", R"("photo": "", )"}) {
    const Reply reply =
        client.ask(Client::post("/v1/score", str_cat(R"({"rows": [{)", photo, R"("price": 0, "user": "u4"}]})")));
    ASSERT_EQ(reply.status, 200) << photo << reply.body;
    EXPECT_NEAR(json::parse(reply.body).at("scores").at(0).begin()->get<double>(), last, 1e-6) << photo;
  }
  const auto tensor = [](const char* name, const char* type, const json& data) {
    return json{{"name", name}, {"datatype", type}, {"shape", {1}}, {"data", data}};
  };
  const json inputs = {tensor("price", "FP32", {0}), tensor("user.values", "BYTES", {"u4"}),
                       tensor("user.lengths", "INT32", {1})};
  const Reply reply = client.ask(Client::post("/v2/models/model/infer", json{{"inputs", inputs}}.dump()));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_NEAR(json::parse(reply.body).at("outputs").at(0).at("data").at(0).get<double>(), last, 1e-6);
}

}  // namespace
}  // namespace tessera::serve
