// Packed models and the program that serves them, for tests.
#pragma once

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "http_client.h"
#include "inference/test_model.h"
#include "tessera_program.h"

namespace tessera::serve {

// The inputs of a test, as a request.
inline std::string json_request(const ModelDescription& model, test::OwnInput& input) {
  using nlohmann::json;
  json inputs = json::array();
  const auto add = [&](const std::string& name, const char* type, json shape, const auto& data) {
    inputs.push_back({{"name", name}, {"datatype", type}, {"shape", std::move(shape)}, {"data", data}});
  };
  add("dense", "FP32", json::array({input.batch, model.dense_inputs}), input.dense);
  for (size_t f = 0; f < model.features.size(); ++f) {
    const std::string& name = model.features[f].name;
    add(name + ".values", "INT64", json::array({input.values[f].size()}), input.values[f]);
    add(name + ".lengths", "INT32", json::array({input.lengths[f].size()}), input.lengths[f]);
  }
  return json{{"inputs", inputs}}.dump();
}

// Two models under one name that is a link, and their predictions in this process.
class ServedModel {
 public:
  ServedModel() {
    const auto pack = [&](const char* name, RowFormat format) {
      pack_model(test::small_model(folder_).model, folder_.file(name), {.format = format, .name = "small"});
    };
    pack("first", RowFormat::kInt8);
    pack("second", RowFormat::kFloat16);
    std::filesystem::create_directory_symlink(folder_.file("first"), link());
    for (const char* name : {"first", "second"}) predictors_.push_back(open_predictor(runtime_, folder_.file(name)));
  }

  std::string link() const { return folder_.file("model"); }
  std::string file(const std::string& name) const { return folder_.file(name); }
  void exchange() {
    std::filesystem::create_directory_symlink(folder_.file("second"), folder_.file("next"));
    std::filesystem::rename(folder_.file("next"), link());
  }
  Predictor& predictor(size_t i = 0) { return *predictors_[i]; }

  // "", or the error in the answer to `input`, which must be the prediction of one of the models.
  std::string wrong_with(const Reply& reply, test::OwnInput& input) {
    if (reply.status != 200) return str_cat("status ", reply.status, ": ", reply.body);
    const nlohmann::json body = nlohmann::json::parse(reply.body);
    for (const auto& predictor : predictors_) {
      if (body["model_version"] != predictor->model().version) continue;
      const std::vector<float> expected = test::scores_of(*predictor, input.view());
      const auto got = body["outputs"][0]["data"].get<std::vector<float>>();
      if (got.size() != expected.size()) return "another number of scores";
      for (size_t i = 0; i < got.size(); ++i) {
        if (std::abs(got[i] - expected[i]) > 1e-6f) return str_cat("score ", i, " is ", got[i], ", not ", expected[i]);
      }
      return "";
    }
    return "of no model that was served: " + reply.body;
  }

 private:
  test::ModelFolder folder_;
  Runtime runtime_;
  std::vector<std::unique_ptr<Predictor>> predictors_;
};

inline constexpr const char* kSmall = "/v2/models/small/infer";

// The server's port, once it reports it; 0 and a test failure after 60 s.
inline int port_of(const test::Program& program) {
  for (int i = 0; i < 3000; ++i) {
    const std::string text = program.output();
    if (const size_t at = text.find(" at http://127.0.0.1:");
        at != std::string::npos && text.find('\n', at) != text.npos)
      return std::atoi(text.c_str() + at + 21);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ADD_FAILURE() << "the server does not listen; it wrote:\n" << program.output();
  return 0;
}

// The process of a rank among the launcher's children; 0 if there is none.
inline pid_t rank_process(pid_t launcher, int rank) {
  std::ifstream in(str_cat("/proc/", launcher, "/task/", launcher, "/children"));
  const std::string wanted = str_cat("RANK=", rank);
  for (pid_t pid = 0; in >> pid;) {
    std::istringstream environment(test::contents(str_cat("/proc/", pid, "/environ")));
    for (std::string entry; std::getline(environment, entry, '\0');) {
      if (entry == wanted) return pid;
    }
  }
  return 0;
}

// The gRPC address as HOST:PORT; "" and a test failure if the program does not report it.
inline std::string grpc_address_of(const test::Program& program) {
  port_of(program);
  const std::string text = program.output(), begin = " and grpc://";
  const size_t at = text.find(begin);
  if (at != std::string::npos) return text.substr(at + begin.size(), text.find('\n', at) - at - begin.size());
  ADD_FAILURE() << text;
  return "";
}

}  // namespace tessera::serve
