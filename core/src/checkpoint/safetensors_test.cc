// Tests files that other programs may write, mostly damaged ones.
#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/test_model.h"

namespace tessera::checkpoint {
namespace {

using test::TestDirectory;
using testing::HasSubstr;

std::string file_of(const std::string& header, const std::string& data, int64_t claimed = -1) {
  const uint64_t length = claimed < 0 ? header.size() : static_cast<uint64_t>(claimed);
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + header + data;
}

TEST(Safetensors, ComeBackAsWritten) {
  const TestDirectory dir;
  const Tensor a = Tensor::from<float>({1, 2, 3, 4, 5, 6}).reshape({2, 3}), b = Tensor::from<int64_t>({-7});
  const Tensor half = Tensor::from<float>({0.5, -2}).to(DType::kFloat16), step = Tensor::scalar(3.0f);
  {
    SafetensorsWriter writer(dir.file("x"), {{"a", {DType::kFloat32, {2, 3}}},
                                             {"b", {DType::kInt64, {1}}},
                                             {"a.half", {DType::kFloat16, {2}}},
                                             {"none", {DType::kFloat32, {0, 4}}},
                                             {"step", {DType::kFloat32, {}}}});
    writer.write("step", step);
    writer.write("a.half", half);
    writer.write("a", a);
    writer.write("b", b);
  }
  const SafetensorsReader reader{InputFile(dir.file("x"))};
  EXPECT_EQ(reader.tensors().size(), 5u);
  EXPECT_EQ(reader.read("a").to_vector<float>(), a.to_vector<float>());
  EXPECT_EQ(reader.read("a").shape(), a.shape());
  EXPECT_EQ(reader.read("b").to_vector<int64_t>(), b.to_vector<int64_t>());
  EXPECT_EQ(reader.read("a.half").item(1), -2);
  EXPECT_EQ(reader.read("step").dim(), 0);
  EXPECT_EQ(reader.read("step").item(), 3);
  EXPECT_EQ(reader.read("none").numel(), 0);
  EXPECT_EQ(reader.find("c"), nullptr);
  for (const auto& [name, tensor] : reader.tensors()) EXPECT_EQ(tensor.offset % size_of(tensor.dtype), 0) << name;
}

TEST(Safetensors, ReadsWhatOthersWrite) {  // metadata, spaces, any order
  const TestDirectory dir;
  test::write_file(dir.file("x"), file_of(R"( {"__metadata__":{"format":"pt"},
      "b":{"data_offsets":[4,8],"shape":[1,1],"dtype":"I32"}, "a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  )",
                                          std::string("\0\0\x80\x3f\x05\0\0\0", 8)));
  const SafetensorsReader reader{InputFile(dir.file("x"))};
  EXPECT_EQ(reader.read("a").item(), 1);
  EXPECT_EQ(reader.read("b").item(), 5);
}

TEST(Safetensors, RefusesDamage) {
  const TestDirectory dir;
  const auto one = [](const std::string& fields) { return "{\"a\":{" + fields + "}}"; };
  const std::string fine = one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), data(8, 'x');
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "it has 0 bytes"},
      {"1234567", "it has 7 bytes"},
      {file_of(fine, data, INT64_MAX), "its header claims 9223372036854775807 bytes"},
      {file_of(fine, data, 1000), "its header claims 1000 bytes"},
      {std::string(8, '\xff') + fine + data, "its header claims"},
      {file_of("", ""), "its header is not JSON: line 1, byte 1: it ends too early"},
      {file_of("[1]", ""), "not a JSON object"},
      {file_of(fine.substr(0, 20), data), "its header is not JSON: line 1, byte 21: it ends too early"},
      {file_of(std::string(1 << 16, '['), ""), "its header is nested deeper than 32"},
      {file_of(fine, data.substr(1)), "lies at [0, 8) of 7 bytes"},
      {file_of(fine, data + "y"), "tensors end at byte"},
      {file_of(R"({"a":3})", ""), "needs dtype, shape and data_offsets"},
      {file_of(one(R"("dtype":"F32","shape":[2])"), data), "needs dtype, shape and data_offsets"},
      {file_of(one(R"("dtype":"F8","shape":[2],"data_offsets":[0,8])"), data), "unknown type \"F8\""},
      {file_of(one(R"("dtype":7,"shape":[2],"data_offsets":[0,8])"), data), "unknown type 7"},
      {file_of(one(R"("dtype":"F32","shape":2,"data_offsets":[0,8])"), data), "no list as shape"},
      {file_of(one(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), data), "-2 in its shape"},
      {file_of(one(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), data), "2.0 in its shape"},
      {file_of(one(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8])"), data), "in its shape"},
      {file_of(one(R"("dtype":"F32","shape":[4611686018427387905,4],"data_offsets":[0,8])"), data), "too large"},
      {file_of(one(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), data), "has 8 bytes, its shape needs 12"},
      {file_of(one(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), data), "lies at [8, 0)"},
      {file_of(one(R"("dtype":"F32","shape":[2],"data_offsets":[-8,0])"), data), "needs two offsets"},
      {file_of(one(R"("dtype":"F32","shape":[2],"data_offsets":[18446744073709551608,0])"), data), "lies at ["},
      {file_of(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,9])"), data), "needs two offsets"},
      {file_of(one(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), data), "there is a gap"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
               R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
               data),
       "tensors overlap"}};
  for (const auto& [content, sentence] : cases) {
    test::write_file(dir.file("bad"), content);
    const auto [text, code] = test::failure_of([&] { SafetensorsReader reader{InputFile(dir.file("bad"))}; });
    EXPECT_EQ(code, Code::kDataLoss) << sentence;
    EXPECT_THAT(text, HasSubstr(sentence));
    EXPECT_THAT(text, HasSubstr(dir.file("bad")));
  }
}

TEST(Safetensors, SaysWhatToDoWithAFileOfTorchSave) {
  const TestDirectory dir;
  const std::string path = dir.file("model.pt");
  for (const std::string& begin :
       {std::string("PK\x03\x04\0\0\x08\x08\0\0", 10), std::string("\x80\x02\x8a\nl\xfc\x9c\x46\xf9", 9)}) {
    test::write_file(path, begin + std::string(1000, 'x'));
    const auto [text, code] = test::failure_of([&] { SafetensorsReader reader{InputFile(path)}; });
    EXPECT_EQ(code, Code::kInvalidArgument);
    EXPECT_EQ(text, path +
                        " is a file of torch.save, not of safetensors: convert it in Python with "
                        "safetensors.torch.save_file(torch.load(\"" +
                        path + "\", weights_only=True), \"model.safetensors\")");
  }
  // The zip signature is a valid length here, so this is a damaged safetensors file.
  std::string header = "{}";
  header.resize(0x04034b50, ' ');
  test::write_file(path, file_of(header, ""));
  EXPECT_TRUE(SafetensorsReader{InputFile(path)}.tensors().empty());
}

TEST(Files, NameThePath) {
  const TestDirectory dir;
  EXPECT_EQ(test::failure_of([&] { InputFile file(dir.file("none")); }).second, Code::kNotFound);
  EXPECT_THAT(test::failure_of([&] { OutputFile file(dir.file("no/such/folder"), 1); }).first,
              HasSubstr("cannot create " + dir.file("no/such/folder")));
  EXPECT_EQ(test::failure_of([&] { InputFile file(dir.file("")); }).second, Code::kUnavailable);
  OutputFile full("/dev/full", 0);
  const auto [text, code] = test::failure_of([&] { full.write_at(0, "x", 1); });
  EXPECT_EQ(code, Code::kResourceExhausted);
  EXPECT_THAT(text, HasSubstr("/dev/full"));
}

}  // namespace
}  // namespace tessera::checkpoint
