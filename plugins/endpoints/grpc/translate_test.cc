#include "translate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tessera/sdk/error.h"

namespace tessera::endpoint {
namespace {

using ::testing::HasSubstr;

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
    infer_body(request, std::nullopt);
  } catch (const sdk::Failure& e) {
    return e.what();
  }
  return "";
}

TEST(Translate, ContentsAndRawBytesMakeTheSameRequest) {
  auto typed = request_of({{"a \"b\"\n", "INT64"}, {"c", "INT32"}, {"d", "BYTES"}}), raw = typed;
  typed.mutable_inputs(0)->mutable_contents()->add_int64_contents(-1);
  typed.mutable_inputs(0)->mutable_contents()->add_int64_contents(int64_t{1} << 40);
  typed.mutable_inputs(1)->mutable_contents()->add_int_contents(7);
  typed.mutable_inputs(1)->mutable_contents()->add_int_contents(-8);
  typed.mutable_inputs(2)->mutable_contents()->add_bytes_contents("x");
  typed.mutable_inputs(2)->mutable_contents()->add_bytes_contents("");
  const auto bytes = [](const auto& values) {
    std::string out(sizeof(values), '\0');
    std::memcpy(out.data(), &values, sizeof(values));
    return out;
  };
  const int64_t a[] = {-1, int64_t{1} << 40};
  const int32_t c[] = {7, -8};
  raw.add_raw_input_contents(bytes(a));
  raw.add_raw_input_contents(bytes(c));
  raw.add_raw_input_contents(std::string("\1\0\0\0x\0\0\0\0", 9));
  const InferBody one = infer_body(typed, std::nullopt), other = infer_body(raw, std::nullopt);
  EXPECT_EQ(one.bytes, other.bytes);
  EXPECT_EQ(one.bytes.substr(0, static_cast<size_t>(one.json_bytes)),
            R"({"parameters":{"binary_data_output":true},"inputs":[)"
            R"({"name":"a \"b\"\u000a","datatype":"INT64","shape":[2],"parameters":{"binary_data_size":16}},)"
            R"({"name":"c","datatype":"INT32","shape":[2],"parameters":{"binary_data_size":8}},)"
            R"({"name":"d","datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":9}}]})");
}

TEST(Translate, TheShorterPatienceCounts) {
  auto request = request_of({});
  request.set_id("7");
  request.add_outputs()->set_name("score");
  EXPECT_EQ(
      infer_body(request, std::chrono::microseconds(900)).bytes,
      R"({"id":"7","parameters":{"binary_data_output":true,"timeout":900},"inputs":[],"outputs":[{"name":"score"}]})");
  (*request.mutable_parameters())["timeout"].set_int64_param(500);
  EXPECT_THAT(infer_body(request, std::chrono::microseconds(900)).bytes, HasSubstr("\"timeout\":500}"));
  EXPECT_THAT(infer_body(request, std::nullopt).bytes, HasSubstr("\"timeout\":500}"));
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
}

TEST(Translate, PathsAnswersAndStatus) {
  EXPECT_EQ(model_path("a/b c", "", "/infer"), "/v2/models/a%2Fb%20c/infer");
  EXPECT_EQ(model_path("m", "0f", ""), "/v2/models/m/versions/0f");
  inference::ModelInferResponse out;
  read_infer({200,
              R"({"model_name":"m","model_version":"1","outputs":[{"name":"score","datatype":"FP32","shape":[2],)"
              R"("parameters":{"binary_data_size":8}}]})",
              "abcdefgh"},
             out);
  EXPECT_EQ(out.model_name(), "m");
  ASSERT_EQ(out.raw_output_contents_size(), 1);
  EXPECT_EQ(out.raw_output_contents(0), "abcdefgh");
  EXPECT_EQ(out.outputs(0).shape(0), 2);
  EXPECT_THROW(read_infer({200, R"({"outputs":[{"name":"s","parameters":{"binary_data_size":9}}]})", "abcdefgh"}, out),
               sdk::Failure);
  inference::RepositoryIndexResponse index;
  read_index({200, R"([{"name":"m","version":"1","state":"READY","reason":""}])", ""}, index);
  EXPECT_EQ(index.models(0).state(), "READY");
  const grpc::Status no = failed({404, R"({"error":"there is no model"})", ""});
  EXPECT_EQ(no.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(no.error_message(), "there is no model");
  EXPECT_EQ(failed({503, R"({"error":"x"})", ""}).error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace tessera::endpoint
