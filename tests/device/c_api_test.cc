// Models on a device in tessera.h: three steps on the fake device give the rows and states of those in host memory, and
// tensors in the wrong place are refused by name.
#include <cstring>
#include <string>
#include <vector>

#include "../c/c_calls.h"

namespace tessera::test {
namespace {

constexpr const char* kModel = R"({"modules": [{"tables": [{"name": "a", "num_embeddings": 6, "embedding_dim": 4},
    {"name": "b", "num_embeddings": 4, "embedding_dim": 4, "feature_names": ["y"]}]}],
    "optimizer": {"name": "exact_sgd", "learning_rate": 0.25}, "seed": 3, "kernel": "KERNEL"})";

std::string model_of(const char* device) {
  std::string out = kModel;
  const std::string name = device != nullptr && std::strncmp(device, "fake", 4) == 0 ? "fake(reference)" : "reference";
  return out.replace(out.find("KERNEL"), 6, name);
}

class COnDevice : public testing::Test {
 protected:
  void SetUp() override {
    const char* path[] = {TESSERA_TEST_PLUGINS, TESSERA_PLUGINS};
    tsr_runtime_options options{};
    options.struct_size = sizeof(options);
    options.plugin_path = path;
    options.num_plugin_paths = 2;
    OK(tsr_runtime_open(&options, &runtime_, &err));
  }
  void TearDown() override { tsr_runtime_close(runtime_); }

  void open(const char* device, tsr_model_parallel** model, tsr_collection** tables) {
    const std::string text = model_of(device);
    const tsr_model_parallel_options options{sizeof(options), 0, text.c_str(), nullptr, nullptr, device};
    OK(tsr_model_parallel_create(runtime_, nullptr, &options, model, &err));
    OK(tsr_model_parallel_collection(*model, "", tables, &err));
  }

  // Trains three steps, whose gradient is the output itself. Returns the last output and the rows of both tables.
  std::vector<float> train(const char* device) {
    tsr_model_parallel* model = nullptr;
    tsr_collection* tables = nullptr;
    open(device, &model, &tables);
    std::vector<float> result(16), rows(6 * 4);
    View<float> output(result, {2, 8}), a(rows, {6, 4});
    for (int i = 0; i < 3; ++i) {
      tsr_step* step = nullptr;
      EXPECT_EQ(tsr_collection_forward(tables, &batch_, &output, &step, nullptr), TSR_OK);
      DLTensor view;
      EXPECT_EQ(tsr_step_output(step, 0, &view, nullptr), TSR_OK);
      place_ = view.device;
      const DLTensor* grads[] = {&view};
      EXPECT_EQ(tsr_step_backward(step, grads, 1, nullptr, nullptr), TSR_OK);
      tsr_step_close(step);
    }
    std::vector<float> b_rows(4 * 4);
    View<float> b(b_rows, {4, 4});
    EXPECT_EQ(tsr_collection_read_rows(tables, "a", 0, &a, nullptr), TSR_OK);
    EXPECT_EQ(tsr_shard_read(tables, 1, 0, &b, nullptr, 0, nullptr), TSR_OK);
    result.insert(result.end(), rows.begin(), rows.end());
    result.insert(result.end(), b_rows.begin(), b_rows.end());
    tsr_collection_close(tables);
    tsr_model_parallel_close(model);
    return result;
  }

  tsr_runtime* runtime_ = nullptr;
  DLDevice place_{};  // of the last output
  // Two samples: a has {1, 2} and {}, y has {3} and {0}.
  std::vector<int64_t> ids_{1, 2, 3, 0}, lengths_{2, 0, 1, 1};
  View<int64_t> values_{ids_, {4}}, counts_{lengths_, {4}};
  tsr_batch batch_{sizeof(tsr_batch), 2,       nullptr, &values_, &counts_, nullptr,
                   nullptr,           nullptr, nullptr, 0,        0,        nullptr};
};

TEST_F(COnDevice, StepsEqualThoseInHostMemory) {
  const std::vector<float> host = train("cpu"), unsaid = train(nullptr);
  EXPECT_EQ(place_.device_type, kDLCPU);
  EXPECT_EQ(host, unsaid);
  EXPECT_EQ(train("fake"), host);
  EXPECT_EQ(place_.device_type, kDLExtDev);
}

TEST_F(COnDevice, ATensorInTheWrongPlaceIsRefused) {
  tsr_model_parallel* model = nullptr;
  tsr_collection* tables = nullptr;
  open("fake", &model, &tables);
  tsr_step* step = nullptr;
  OK(tsr_collection_forward(tables, &batch_, nullptr, &step, &err));
  DLTensor view;
  OK(tsr_step_output(step, 0, &view, &err));
  DLTensor elsewhere = view;
  elsewhere.device.device_id = 1;
  const DLTensor* grads[] = {&elsewhere};
  REFUSED(TSR_INVALID_ARGUMENT, "grads[0] is on device 1 of DLPack's type 12, but the model is on device 0 of fake",
          tsr_step_backward(step, grads, 1, nullptr, &err));
  grads[0] = &view;
  OK(tsr_step_backward(step, grads, 1, nullptr, &err));
  tsr_step_close(step);
  DLTensor ids = *&values_;
  ids.device = view.device;
  tsr_batch batch = batch_;
  batch.values = &ids;
  REFUSED(TSR_UNIMPLEMENTED, "batch->values is on a device",
          tsr_collection_forward(tables, &batch, nullptr, &step, &err));
  std::vector<float> rows(4);
  View<float> row(rows, {1, 4});
  (&row)->device = view.device;
  REFUSED(TSR_UNIMPLEMENTED, "weights is on a device", tsr_shard_read(tables, 0, 0, &row, nullptr, 0, &err));
  tsr_collection_close(tables);
  tsr_model_parallel_close(model);
}

TEST_F(COnDevice, AnUnknownDeviceIsNamed) {
  const std::string text = model_of("cpu");
  const tsr_model_parallel_options options{sizeof(options), 0, text.c_str(), nullptr, nullptr, "fakr"};
  tsr_model_parallel* model = nullptr;
  REFUSED(TSR_NOT_FOUND, "\"fakr\"", tsr_model_parallel_create(runtime_, nullptr, &options, &model, &err));
  EXPECT_EQ(model, nullptr);
}

}  // namespace
}  // namespace tessera::test
