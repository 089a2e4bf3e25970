// Tests packed models on disk: complete or absent, opened without reading rows, and refused with a reason if damaged.
#include "tessera/predictor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "inference/test_model.h"
#include "tessera/config.h"

namespace tessera {
namespace {

using namespace test;
using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

class Packing : public testing::Test {
 protected:
  std::vector<TableReport> pack(const PackOptions& options = {}, const std::string& name = "model") {
    return pack_model(small_model(folder_).model, folder_.file(name), options);
  }
  std::pair<std::string, Code> opening() {
    return failure_of([&] { open_packed_model(folder_.file("model")); });
  }
  void flip(const std::string& file, size_t at) {
    std::string text = read_file(folder_.file(file));
    ASSERT_LT(at, text.size());
    text[at] = static_cast<char>(text[at] ^ 4);
    write_text(folder_.file(file), text);
  }
  ModelFolder folder_;
};

TEST_F(Packing, FloatsComeBackAsTheyWere) {
  const auto reports = pack({.format = RowFormat::kFloat32});
  const FloatModel from = small_model(folder_);
  const InferenceModel model = open_packed_model(folder_.file("model"));
  ASSERT_EQ(model.tables.size(), 4u);
  for (size_t t = 0; t < model.tables.size(); ++t) {
    EXPECT_EQ(model.tables[t].rows.to_vector<uint8_t>(), from.model.tables[t].rows.to_vector<uint8_t>());
    EXPECT_EQ(reports[t].worst_error, 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(model.tables[t].rows.raw()) % 4096, 0u) << "rows begin on a page";
  }
  ASSERT_EQ(model.dense.size(), from.model.dense.size());
  for (const auto& [name, value] : model.dense)
    EXPECT_EQ(value.to_vector<float>(), from.model.dense.at(name).to_vector<float>()) << name;
  const ModelDescription& d = model.description;
  EXPECT_EQ(d.name, "model");
  EXPECT_EQ(d.type, "dlrm");
  EXPECT_EQ(d.version.size(), 16u);
  EXPECT_EQ(d.dense_inputs, kTestDense);
  ASSERT_EQ(d.features.size(), 5u);
  EXPECT_EQ(d.features[1].name, "seen");
  EXPECT_EQ(d.features[1].ids, 41);
  EXPECT_EQ(d.tables[2].pooling, PoolingType::kMean);
  EXPECT_EQ(d.tables[0].bytes, 41 * 32);
  EXPECT_EQ(model.dlrm.num_embeddings, 5);
  verify_packed_model(folder_.file("model"));
}

TEST_F(Packing, ReportsWhatQuantizingLoses) {
  const auto reports = pack({.format = RowFormat::kInt8, .formats = {{"tag", RowFormat::kInt4}}, .name = "films"});
  EXPECT_EQ(reports[0].bytes_before, 41 * 32);
  EXPECT_EQ(reports[0].bytes_after, 41 * 12);
  EXPECT_EQ(reports[2].format, RowFormat::kInt4);
  EXPECT_EQ(reports[2].bytes_after, 17 * 8);
  const InferenceModel model = open_packed_model(folder_.file("model"));
  EXPECT_EQ(model.description.name, "films");
  const FloatModel from = small_model(folder_);
  for (size_t t = 0; t < reports.size(); ++t) {
    const Tensor before = dequantize_rows(from.model.tables[t].rows, RowFormat::kFloat32, kTestDim),
                 after = dequantize_rows(model.tables[t].rows, reports[t].format, kTestDim);
    double worst = 0, sum = 0;
    for (int64_t i = 0; i < before.numel(); ++i) {
      const double error = std::abs(before.item(i) - after.item(i));
      worst = std::max(worst, error);
      sum += error;
    }
    EXPECT_DOUBLE_EQ(reports[t].worst_error, worst);
    EXPECT_NEAR(reports[t].mean_error, sum / static_cast<double>(before.numel()), 1e-12);
    EXPECT_LT(worst, t == 2 ? 0.15 : 0.01) << "values lie within about 2 of 0";
    EXPECT_GT(worst, 0);
  }
}

TEST_F(Packing, EqualContentsHaveEqualVersions) {
  pack({}, "a");
  pack({}, "b");
  pack({.format = RowFormat::kInt4}, "c");
  const auto version = [&](const char* name) { return open_packed_model(folder_.file(name)).description.version; };
  EXPECT_EQ(version("a"), version("b"));
  EXPECT_NE(version("a"), version("c"));
}

TEST_F(Packing, RefusesWhatCannotBePacked) {
  EXPECT_THAT(failure_of([&] {
                pack({.formats = {{"movie", RowFormat::kInt4}}});
              }),
              testing::Pair(AllOf(HasSubstr("\"movie\""), HasSubstr("film, user, tag, genre")), Code::kNotFound));
  NamedTensors tensors = small_tensors();
  tensors.tensors.at("sparse_arch.embedding_bag_collection.embedding_bags.user.weight").data<float>()[7 * 8 + 3] = NAN;
  tensors.write(folder_.file("nan.safetensors"));
  const FloatModel bad = open_float_model(folder_.file("nan.safetensors"), {.tables = small_tables()});
  EXPECT_THAT(failure_of([&] { pack_model(bad.model, folder_.file("model"), {}); }),
              testing::Pair(AllOf(HasSubstr("table \"user\", row 7"), HasSubstr("column 3")), Code::kInvalidArgument));
  EXPECT_FALSE(fs::exists(folder_.file("model"))) << "half a model";
  EXPECT_FALSE(fs::exists(folder_.file("model.packing")));
  pack();
  EXPECT_THAT(failure_of([&] { pack(); }), testing::Pair(HasSubstr("model exists"), Code::kAlreadyExists));
  EXPECT_THAT(failure_of([&] { pack_model(open_packed_model(folder_.file("model")), folder_.file("again"), {}); }),
              testing::Pair(HasSubstr("in int8 already"), Code::kInvalidArgument));
  InferenceModel pruned = small_model(folder_).model;
  pruned.tables[0].config.remapping = IndexRemapping::array(Tensor::from<int64_t>({0, -1, 1}));
  EXPECT_THAT(
      failure_of([&] { pack_model(pruned, folder_.file("again"), {}); }),
      testing::Pair(HasSubstr("give it the rows of all ids, those of pruned ones as zeros"), Code::kUnimplemented));
}

// The formats would turn these values into infinities.
TEST_F(Packing, RefusesValuesThatAFormatCannotHold) {
  NamedTensors tensors = small_tensors();
  tensors.tensors.at("sparse_arch.embedding_bag_collection.embedding_bags.user.weight").data<float>()[7 * 8 + 3] = -1e5;
  tensors.write(folder_.file("large.safetensors"));
  const FloatModel large = open_float_model(folder_.file("large.safetensors"), {.tables = small_tables()});
  for (const RowFormat format : {RowFormat::kFloat16, RowFormat::kInt8, RowFormat::kFloat8}) {
    EXPECT_THAT(failure_of([&] { pack_model(large.model, folder_.file("model"), {.format = format}); }),
                testing::Pair(AllOf(HasSubstr("table \"user\", row 7"), HasSubstr("from -100000 to"),
                                    HasSubstr(str_cat("too large for ", sdk::to_string(format)))),
                              Code::kInvalidArgument));
  }
  pack_model(large.model, folder_.file("model"), {.formats = {{"user", RowFormat::kFloat32}}});
}

TEST_F(Packing, RefusesColumnsThatAFormatCannotHave) {
  NamedTensors tensors;
  tensors.add("sparse_arch.embedding_bag_collection.embedding_bags.t.weight", {5, 6}, 1);
  tensors.add_linear("dense_arch.model._mlp.0._linear", 6, 3, 2);
  tensors.add_linear("over_arch.model.1", 1, 7, 4);
  tensors.write(folder_.file("six.safetensors"));
  const FloatModel model = open_float_model(folder_.file("six.safetensors"));
  EXPECT_THAT(
      failure_of([&] { pack_model(model.model, folder_.file("model"), {.format = RowFormat::kInt4}); }),
      testing::Pair(AllOf(HasSubstr("\"t\" has 6 columns"), HasSubstr("multiples of 4")), Code::kInvalidArgument));
  pack_model(model.model, folder_.file("model"), {.format = RowFormat::kInt8});
}

TEST_F(Packing, NamesTheDirectoryThatCannotBeWritten) {
  if (geteuid() == 0) {
    // Root can write everywhere, so a file blocks the path instead.
    write_text(folder_.file("in_the_way"), "");
    EXPECT_THAT(failure_of([&] { pack({}, "in_the_way/model"); }).first, HasSubstr("in_the_way"));
    return;
  }
  fs::create_directory(folder_.file("closed"));
  chmod(folder_.file("closed").c_str(), 0500);
  EXPECT_THAT(failure_of([&] { pack({}, "closed/model"); }).first,
              AllOf(HasSubstr("closed/model"), HasSubstr("Permission denied")));
}

TEST_F(Packing, DamagedFilesAreRefusedByName) {
  EXPECT_THAT(opening(), testing::Pair(HasSubstr("because there is no such directory"), Code::kNotFound));
  fs::create_directory(folder_.file("model"));
  EXPECT_THAT(opening(),
              testing::Pair(AllOf(HasSubstr("no packed model"), HasSubstr("tessera quantize")), Code::kNotFound));
  fs::remove(folder_.file("model"));
  pack();
  const std::string rows = read_file(folder_.file("model/table-1.rows"));

  write_text(folder_.file("model/table-1.rows"), rows.substr(0, rows.size() - 1));
  EXPECT_THAT(opening(), testing::Pair(HasSubstr("table-1.rows is damaged"), Code::kDataLoss));
  write_text(folder_.file("model/table-1.rows"), rows.substr(0, 100));
  EXPECT_THAT(opening(), testing::Pair(HasSubstr("table-1.rows is damaged"), Code::kDataLoss));
  write_text(folder_.file("model/table-1.rows"), "");
  EXPECT_THAT(opening(), testing::Pair(HasSubstr("table-1.rows is empty"), Code::kDataLoss));
  fs::remove(folder_.file("model/table-1.rows"));
  EXPECT_THAT(opening(), testing::Pair(HasSubstr("table-1.rows"), Code::kDataLoss));
  write_text(folder_.file("model/table-1.rows"), rows);
  flip("model/table-1.rows", 30);
  EXPECT_THAT(opening(), testing::Pair(HasSubstr("the checksum of its header"), Code::kDataLoss));
  write_text(folder_.file("model/table-1.rows"), read_file(folder_.file("model/table-2.rows")));
  EXPECT_THAT(opening(), testing::Pair(HasSubstr("table-1.rows belongs to another model"), Code::kDataLoss));
  write_text(folder_.file("model/table-1.rows"), rows);
  EXPECT_EQ(opening().second, Code::kOk);

  flip("model/dense.safetensors", 1200);
  EXPECT_THAT(opening(), testing::Pair(HasSubstr("dense.safetensors is damaged"), Code::kDataLoss));
  flip("model/dense.safetensors", 1200);
  flip("model/model.json", 400);
  EXPECT_THAT(opening(), testing::Pair(HasSubstr("model.json is damaged"), Code::kDataLoss));
}

TEST_F(Packing, DamagedRowsAreFoundByVerify) {
  pack();
  flip("model/table-0.rows", 4096 + 5);
  EXPECT_EQ(opening().second, Code::kOk) << "opening reads no rows";
  EXPECT_THAT(failure_of([&] { verify_packed_model(folder_.file("model")); }),
              testing::Pair(AllOf(HasSubstr("table-0.rows is damaged"), HasSubstr("checksum")), Code::kDataLoss));
}

TEST_F(Packing, NewerFormatsAreRefused) {
  pack();
  std::string text = read_file(folder_.file("model/model.json"));
  const size_t at = text.find("\"version\": 1");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 12, "\"version\": 4");
  write_text(folder_.file("model/model.json"), text);
  EXPECT_THAT(opening(), testing::Pair(AllOf(HasSubstr("model format 4"), HasSubstr("up to 3")), Code::kUnimplemented));
}

TEST_F(Packing, TablesAreMappedNotRead) {
  pack();
  // A table file with a hole of a TiB after its first rows would take hours to read.
  const auto sparse = [&](const char* name) { return folder_.file(std::string("model/") + name); };
  const InferenceModel model = open_packed_model(folder_.file("model"));
  const InferenceModel other = open_packed_model(folder_.file("model"));
  EXPECT_NE(model.tables[0].rows.raw(), other.tables[0].rows.raw());
  // Both map the file itself, so both see a byte that changes in it.
  std::fstream file(sparse("table-0.rows"), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096 + 10);
  file.put('\x77');
  file.close();
  EXPECT_EQ(model.tables[0].rows.data<uint8_t>()[10], 0x77);
  EXPECT_EQ(other.tables[0].rows.data<uint8_t>()[10], 0x77);
}

TEST_F(Packing, ClearsAwayWhatAKilledRunLeft) {
  fs::create_directory(folder_.file("model.packing"));
  write_text(folder_.file("model.packing/table-0.rows"), "half");
  write_text(folder_.file("model.packing/model.json"), "{");
  pack();
  verify_packed_model(folder_.file("model"));
  EXPECT_FALSE(fs::exists(folder_.file("model.packing")));

  fs::create_directory(folder_.file("other.packing"));
  write_text(folder_.file("other.packing/notes.txt"), "mine");
  EXPECT_THAT(failure_of([&] { pack({}, "other"); }),
              testing::Pair(HasSubstr("notes.txt is not part of a packed model"), Code::kAlreadyExists));
  EXPECT_EQ(read_file(folder_.file("other.packing/notes.txt")), "mine");
}

TEST_F(Packing, AKilledRunLeavesAWholeModelOrNone) {
  (void)small_model(folder_);
  int whole = 0, none = 0;
  for (int i = 0; i < 12; ++i) {
    fs::remove_all(folder_.file("model"));
    const pid_t child = fork();
    if (child == 0) {
      try {
        pack();
      } catch (...) {
      }
      _exit(0);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(300 << (i % 8)));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    if (fs::exists(folder_.file("model"))) {
      ASSERT_NO_THROW(verify_packed_model(folder_.file("model")));
      ++whole;
    } else {
      ++none;
    }
  }
  EXPECT_GT(whole + none, 0);
  fs::remove_all(folder_.file("model"));
  pack();
  verify_packed_model(folder_.file("model"));
}

}  // namespace
}  // namespace tessera
