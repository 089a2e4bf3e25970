// Tests that lookups whose rows are in several outputs, some at listed rows, give the same numbers as one contiguous
// output.
#include "test_support.h"

namespace tessera_cpu::test {
namespace {

constexpr float kUntouched = 123;

// Spreads the rows of a batch's features over two outputs.
class Placement {
 public:
  Placement(Random& random, const Batch& batch, const Options& o) : batch_(batch), type_(o.output_dtype) {
    features = batch.raw_features;
    const int64_t offsets = batch.offsets->shape[0];
    listed = std::make_unique<Array>(kI32, offsets);
    for (int64_t i = 0; i < offsets; ++i) listed->set(i, -7);  // stays for features that list no rows
    int64_t sizes[2] = {0, 0};
    for (tsr_lookup_feature& f : features) {
      const int64_t dim = o.tables[f.table].dim;
      f.output = random() % 2;
      f.output_offset = sizes[f.output];
      f.output_stride = dim + static_cast<int64_t>(random() % 3);
      f.listed = f.pooling != TSR_POOLING_NONE && random() % 3 > 0;
      int64_t row = -1;
      for (int64_t i = 0; i < rows(f); ++i) {
        row += f.listed ? 1 + static_cast<int64_t>(random() % 3) : 1;
        if (f.listed) listed->set(f.first_offset + i, static_cast<double>(row));
      }
      if (row >= 0) sizes[f.output] += row * f.output_stride + dim;
    }
    for (int k : {0, 1}) outputs[k] = std::make_unique<Array>(type_, sizes[k]);
    lookup = batch.lookup;
    lookup.features = features.data();
    lookup.num_outputs = 2;
    lookup.output_rows = &listed->tensor;
  }

  int64_t rows(const tsr_lookup_feature& f) const {
    const auto offset = [&](int64_t i) {
      return batch_.offsets->tensor.dtype.bits == 64 ? batch_.offsets->data<int64_t>()[i]
                                                     : batch_.offsets->data<int32_t>()[i];
    };
    return f.pooling == TSR_POOLING_NONE ? offset(f.first_offset + f.bags) - offset(f.first_offset) : f.bags;
  }
  // Calls body(index in the single output, which output, index there) for every element of every row.
  template <class Body>
  void each_element(const Options& o, const Body& body) const {
    for (size_t f = 0; f < features.size(); ++f) {
      const tsr_lookup_feature &plain = batch_.raw_features[f], &x = features[f];
      for (int64_t i = 0; i < rows(x); ++i) {
        const int64_t row = x.listed ? listed->data<int32_t>()[x.first_offset + i] : i;
        for (int64_t d = 0; d < o.tables[x.table].dim; ++d) {
          body(plain.output_offset + i * plain.output_stride + d, x.output,
               x.output_offset + row * x.output_stride + d);
        }
      }
    }
  }
  std::array<DLTensor, 2> tensors() const { return {outputs[0]->tensor, outputs[1]->tensor}; }
  void fill(float value) const {
    for (const auto& output : outputs) {
      for (int64_t i = 0; i < output->shape[0]; ++i) output->set(i, value);
    }
  }

  std::vector<tsr_lookup_feature> features;
  std::unique_ptr<Array> listed;
  std::unique_ptr<Array> outputs[2];
  tsr_lookup lookup{};

 private:
  const Batch& batch_;
  DLDataType type_;
};

tsr_context* forward(Model& model, const Placement& placed) {
  placed.fill(kUntouched);
  tsr_context* context = nullptr;
  Error error;
  const auto outputs = placed.tensors();
  EXPECT_EQ(model.api->forward(model.instance, &placed.lookup, outputs.data(), nullptr, &context, &error), TSR_OK)
      << error.message;
  return context;
}

// Does the work of Model::backward with the batch's gradients, at their places.
void backward(Model& model, const Placement& placed, Batch& batch, tsr_context* context, Array& grad_weights,
              int64_t step) {
  placed.fill(kUntouched);
  placed.each_element(model.options, [&](int64_t plain, uint32_t output, int64_t at) {
    placed.outputs[output]->set(at, batch.grad_output->get(plain));
  });
  const auto gradients = placed.tensors();
  tsr_backward args = model.args_of(batch, &grad_weights, 0.5, step);
  args.lookup = &placed.lookup;
  args.grad_output = gradients.data();
  Error error;
  EXPECT_EQ(model.api->backward(model.instance, context, &args, nullptr, &error), TSR_OK) << error.message;
  model.api->release(model.instance, context);
}

void compare(TestHost& host, const char* path, const std::string& id, const std::string& isa, const Options& o,
             const std::vector<FeatureShape>& features, int64_t bags, bool weighted) {
  SCOPED_TRACE(id + " " + isa + (weighted ? " weighted" : ""));
  Model plain(host, path, id, o, isa), other(host, path, id, o, isa);
  plain.open().randomize(Random(5));
  other.open().randomize(Random(5));
  Random random(17);
  for (int64_t step = 1; step <= 3; ++step) {
    const auto batch = random_batch(random, o, features, bags, 5, step == 2 ? kI32 : kI64, weighted);
    const Placement placed(random, *batch, o);
    Array want(o.output_dtype, batch->output_size);
    Array want_weights(kF32, batch->ids->shape[0]), got_weights(kF32, batch->ids->shape[0]);
    tsr_context* context = plain.forward(*batch, want);
    tsr_context* context_placed = forward(other, placed);
    int64_t written = 0, different = 0;
    placed.each_element(o, [&](int64_t index, uint32_t output, int64_t at) {
      ++written;
      different += placed.outputs[output]->get(at) != want.get(index);
      placed.outputs[output]->set(at, kUntouched);
    });
    EXPECT_GT(written, 0);
    EXPECT_EQ(different, 0);
    for (const auto& output : placed.outputs) {
      for (float value : values_of(*output)) different += value != kUntouched;
    }
    EXPECT_EQ(different, 0) << "written beside the rows";
    plain.backward(*batch, context, &want_weights, 0.5, step);
    backward(other, placed, *batch, context_placed, got_weights, step);
    EXPECT_EQ(values_of(got_weights), values_of(want_weights));
    for (int t = 0; t < static_cast<int>(o.tables.size()); ++t) {
      ASSERT_EQ(other.rows_of(t), plain.rows_of(t)) << "table " << t << " step " << step;
    }
  }
}

TEST(PlacedRows, AreTheSameNumbersInEveryKernelAndPooling) {
  TestHost host;
  Options o;
  o.tables = {{7, 4}, {40, 17}, {300, 32}, {25, 64}, {20, 200}};
  o.optimizer = "exact_rowwise_adagrad";
  const std::vector<FeatureShape> sums{{0, TSR_POOLING_SUM}, {1, TSR_POOLING_MEAN}, {2, TSR_POOLING_SUM},
                                       {2, TSR_POOLING_SUM}, {3, TSR_POOLING_SUM},  {4, TSR_POOLING_MEAN},
                                       {1, TSR_POOLING_NONE}};
  std::vector<FeatureShape> all = sums;
  all.push_back({3, TSR_POOLING_MAX});
  all.push_back({0, TSR_POOLING_MAX});
  for (const char* isa : {"avx512", "avx2", "portable"}) {
    const Part part(TESSERA_KERNEL_CPU, "cpu", host, "{}", isa);
    if (part.code == TSR_UNAVAILABLE) continue;
    for (DLDataType type : {kF32, kF16, kBF16}) {
      o.output_dtype = type;
      compare(host, TESSERA_KERNEL_CPU, "cpu", isa, o, all, 9, false);
      compare(host, TESSERA_KERNEL_CPU, "cpu", isa, o, sums, 9, true);
    }
  }
  o.output_dtype = kF32;
  compare(host, TESSERA_KERNEL_REFERENCE, "reference", "", o, all, 9, false);
  compare(host, TESSERA_KERNEL_REFERENCE, "reference", "", o, sums, 9, true);
}

// The batch is large: tables are divided into buckets, threads share bags, and some rows occur once.
TEST(PlacedRows, AreTheSameNumbersInLargeBatches) {
  TestHost host;
  Options o;
  o.tables = {{50000, 16}, {200000, 8}, {3, 32}};
  o.optimizer = "exact_rowwise_adagrad";
  for (uint32_t threads : {1u, 3u}) {
    host.threads = threads;
    compare(host, TESSERA_KERNEL_CPU, "cpu", "", o,
            {{0, TSR_POOLING_SUM}, {1, TSR_POOLING_SUM}, {0, TSR_POOLING_SUM}, {2, TSR_POOLING_SUM}}, 3000, false);
    compare(host, TESSERA_KERNEL_CPU, "cpu", "", o, {{0, TSR_POOLING_SUM}, {1, TSR_POOLING_SUM}}, 3000, false);
  }
}

TEST(PlacedRows, BadPlacesAreRefused) {
  TestHost host;
  Options o;
  o.tables = {{3, 2}};
  for (const auto& [path, id] : {std::pair{TESSERA_KERNEL_CPU, "cpu"}, {TESSERA_KERNEL_REFERENCE, "reference"}}) {
    Model model(host, path, id, o);
    model.open();
    EXPECT_TRUE(model.api->flags & TSR_KERNEL_PLACES_ROWS);
    const auto refused = [&](const char* words, const auto& change) {
      Random random(1);
      const auto batch = random_batch(random, o, {{0, TSR_POOLING_SUM}}, 4, 3, kI64, false);
      Placement placed(random, *batch, o);
      placed.features[0].listed = 1;
      for (int i : {0, 1, 2, 3}) placed.listed->set(i, i);
      change(placed);
      Error error;
      const auto outputs = placed.tensors();
      EXPECT_EQ(model.api->forward(model.instance, &placed.lookup, outputs.data(), nullptr, nullptr, &error),
                TSR_INVALID_ARGUMENT);
      EXPECT_NE(std::string(error.message).find(words), std::string::npos) << error.message;
    };
    refused("output 2", [](Placement& p) { p.features[0].output = 2; });
    refused("end of output", [](Placement& p) { p.listed->set(3, 1000); });
    refused("first listed row -1", [](Placement& p) { p.listed->set(0, -1); });
    refused("cannot be used for a sequence", [](Placement& p) { p.features[0].pooling = TSR_POOLING_NONE; });
    refused("output_rows for", [](Placement& p) { p.listed->tensor.shape[0] = 2; });
    refused("another type", [&](Placement& p) { p.outputs[1] = std::make_unique<Array>(kF16, 100); });
  }
}

}  // namespace
}  // namespace tessera_cpu::test
