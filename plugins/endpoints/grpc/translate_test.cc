#include "translate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/sdk/error.h"

namespace tessera::endpoint {
namespace {

using ::testing::ElementsAre;

inference::ModelInferRequest request_of(const std::vector<std::pair<const char*, const char*>>& inputs) {
  inference::ModelInferRequest out;
  for (const auto& [name, datatype] : inputs) {
    auto& input = *out.add_inputs();
    input.set_name(name);
    input.set_datatype(datatype);
    input.add_shape(2);
  }
  return out;
}

std::string refusal(const inference::ModelInferRequest& request) {
  try {
    infer_call(request, std::nullopt);
  } catch (const sdk::Failure& e) {
    return e.what();
  }
  return "";
}

std::string bytes_of(const sdk::EndpointTensor& tensor) {
  return {static_cast<const char*>(tensor.data), tensor.bytes};
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::vector<std::string> texts_of(const sdk::EndpointTensor& tensor) {
  std::vector<std::string> out;
  const auto* const texts = static_cast<const tsr_endpoint_text*>(tensor.data);
  for (size_t i = 0; i < tensor.bytes / sizeof(tsr_endpoint_text); ++i)
    out.emplace_back(texts[i].bytes, static_cast<size_t>(texts[i].size));
  return out;
}

TEST(Translate, ContentsAndRawBytesMakeTheSameRequest) {
  auto typed = request_of({{"a \"b\"\n", "INT64"}, {"c", "INT32"}, {"e", "INT8"}, {"f", "UINT16"}, {"d", "BYTES"}});
  auto raw = typed;
  const auto contents = [&](int i) { return typed.mutable_inputs(i)->mutable_contents(); };
  const std::vector<int64_t> a = {-1, int64_t{1} << 40};
  const std::vector<int32_t> c = {7, -8};
  const std::vector<int8_t> e = {-3, 4};
  const std::vector<uint16_t> f = {65535, 1};
  for (size_t i = 0; i < 2; ++i) {
    contents(0)->add_int64_contents(a[i]);
    contents(1)->add_int_contents(c[i]);
    contents(2)->add_int_contents(e[i]);
    contents(3)->add_uint_contents(f[i]);
    contents(4)->add_bytes_contents(i == 0 ? "x" : "");
  }
  for (const std::string& bytes : {bytes_of(a), bytes_of(c), bytes_of(e), bytes_of(f)})
    raw.add_raw_input_contents(bytes);
  raw.add_raw_input_contents(std::string("\1\0\0\0x\0\0\0\0", 9));
  const InferCall one = infer_call(typed, std::nullopt), other = infer_call(raw, std::nullopt);
  for (const InferCall* call : {&one, &other}) {
    const auto& inputs = call->request.inputs;
    ASSERT_EQ(inputs.size(), 5u);
    EXPECT_STREQ(inputs[0].name, "a \"b\"\n");
    EXPECT_EQ(sdk::endpoint_type(inputs[3].type)->name, "UINT16");
    EXPECT_THAT(inputs[0].shape, ElementsAre(2));
    EXPECT_EQ(bytes_of(inputs[0]), bytes_of(a));
    EXPECT_EQ(bytes_of(inputs[1]), bytes_of(c));
    EXPECT_EQ(bytes_of(inputs[2]), bytes_of(e));
    EXPECT_EQ(bytes_of(inputs[3]), bytes_of(f));
    EXPECT_THAT(texts_of(inputs[4]), ElementsAre("x", ""));
  }
  EXPECT_EQ(other.request.inputs[0].data, raw.raw_input_contents(0).data()) << "nothing is copied";
  EXPECT_EQ(one.request.inputs[0].data, typed.inputs(0).contents().int64_contents().data());
}

TEST(Translate, TheShorterPatienceCounts) {
  auto request = request_of({});
  request.set_model_name("m");
  request.set_model_version("0f");
  request.set_id("7");
  request.add_outputs()->set_name("score");
  const sdk::EndpointRequest asked = infer_call(request, std::chrono::microseconds(900)).request;
  EXPECT_EQ(asked.call, TSR_ENDPOINT_INFER);
  EXPECT_EQ(asked.model + " " + asked.version + " " + asked.id, "m 0f 7");
  ASSERT_EQ(asked.outputs.size(), 1u);
  EXPECT_STREQ(asked.outputs[0], "score");
  const auto timeout = [&](std::optional<std::chrono::microseconds> left) {
    return infer_call(request, left).request.timeout.count();
  };
  EXPECT_EQ(timeout(std::chrono::microseconds(900)), 900);
  EXPECT_EQ(timeout(std::nullopt), 0);
  (*request.mutable_parameters())["timeout"].set_int64_param(500);
  EXPECT_EQ(timeout(std::chrono::microseconds(900)), 500);
  EXPECT_EQ(timeout(std::nullopt), 500);
  (*request.mutable_parameters())["timeout"].set_int64_param(-5);
  EXPECT_EQ(timeout(std::chrono::microseconds(900)), 900);
}

TEST(Translate, WrongRequestsAreNamed) {
  auto request = request_of({{"a", "INT64"}, {"b", "FP32"}});
  request.add_raw_input_contents("x");
  EXPECT_EQ(refusal(request), "the request has 2 inputs and 1 raw_input_contents: give one for each, or none");
  request.add_raw_input_contents("y");
  request.mutable_inputs(1)->mutable_contents()->add_fp32_contents(1);
  EXPECT_EQ(refusal(request), "input b has both contents and raw_input_contents");
  request.clear_raw_input_contents();
  request.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
  EXPECT_EQ(refusal(request),
            "input a has datatype INT64, so its values belong into int64_contents, but it has "
            "others");
  EXPECT_EQ(refusal(request_of({{"a", "BF8"}})), "input a has datatype \"BF8\", which the protocol does not have");
  EXPECT_EQ(refusal(request_of({{"a", "FP16"}})),
            "input a has datatype FP16, whose values belong into raw_input_contents");
  auto texts = request_of({{"a", "BYTES"}});
  texts.add_raw_input_contents(std::string("\1\0\0\0x\2\0\0\0y", 10));
  EXPECT_EQ(refusal(texts), "input a has 5 bytes after its 1 whole texts");
  texts.set_raw_input_contents(0, "ab");
  EXPECT_EQ(refusal(texts), "input a has 2 bytes after its 0 whole texts");
  auto cut = request_of({});
  cut.set_model_name(std::string("small\0er", 8));
  EXPECT_EQ(refusal(cut), "the model's name holds a NUL byte, which no name has");
  auto many = request_of({});
  for (int i = 0; i <= 65536; ++i) many.add_inputs();
  EXPECT_EQ(refusal(many), "a request has at most 65536 inputs and as many outputs");
}

TEST(Translate, AnswersAndStatus) {
  const float scores[] = {0.5f, 0.25f};
  const int64_t shape[] = {2};
  const DLTensor tensor{const_cast<float*>(scores),  {kDLCPU, 0}, 1, sdk::dtype_of<float>(),
                        const_cast<int64_t*>(shape), nullptr,     0};
  const tsr_endpoint_tensor output{sizeof(output), 0, "score", &tensor, sizeof(scores)};
  sdk::EndpointResponse answer;
  answer.model = "m", answer.version = "1", answer.id = "7";
  answer.outputs = {&output, sizeof(output), 1};
  inference::ModelInferResponse out;
  read_infer(answer, out);
  EXPECT_EQ(out.model_name() + " " + out.model_version() + " " + out.id(), "m 1 7");
  ASSERT_EQ(out.raw_output_contents_size(), 1);
  EXPECT_EQ(out.raw_output_contents(0), std::string(reinterpret_cast<const char*>(scores), sizeof(scores)));
  EXPECT_EQ(out.outputs(0).name(), "score");
  EXPECT_EQ(out.outputs(0).datatype(), "FP32");
  EXPECT_EQ(out.outputs(0).shape(0), 2);
  answer.text = R"([{"name":"m","version":"1","state":"READY","reason":""}])";
  inference::RepositoryIndexResponse index;
  read_index(answer, index);
  EXPECT_EQ(index.models(0).state(), "READY");
  EXPECT_THROW(read_json("[", index), sdk::Failure);
  EXPECT_TRUE(status_of(answer).ok());
  answer.code = TSR_NOT_FOUND;
  answer.message = "there is no model";
  EXPECT_EQ(status_of(answer).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status_of(answer).error_message(), "there is no model");
  answer.code = TSR_ENDPOINT_UNAUTHENTICATED;
  EXPECT_EQ(status_of(answer).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  answer.code = TSR_UNAVAILABLE;
  EXPECT_EQ(status_of(answer).error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace tessera::endpoint
