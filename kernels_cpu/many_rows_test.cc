// Tests tables with more than 2^31 rows. They need no large machine: their memory maps the same few megabytes over and
// over, and the rows that a test touches are close together.
#include <sys/mman.h>
#include <unistd.h>

#include <map>

#include "test_support.h"

namespace tessera_cpu::test {
namespace {

constexpr int64_t kRows = (int64_t{1} << 31) + 1000,
                  kFirst = (int64_t{1} << 31) - 500;  // the first row that is touched

// Not a power of two, so that rows whose numbers differ only in their upper bits are at different places.
int64_t piece_bytes() { return 1237 * sysconf(_SC_PAGESIZE); }

// Maps `bytes` bytes that repeat one piece; NULL if the address space is too small.
void* repeated(uint64_t bytes) {
  const int piece = memfd_create("rows", MFD_CLOEXEC);
  void* all = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  bool mapped = piece >= 0 && ftruncate(piece, piece_bytes()) == 0 && all != MAP_FAILED;
  for (uint64_t at = 0; mapped && at < bytes; at += static_cast<uint64_t>(piece_bytes())) {
    const uint64_t size = std::min(bytes - at, static_cast<uint64_t>(piece_bytes()));
    mapped = mmap(static_cast<char*>(all) + at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, piece, 0) !=
             MAP_FAILED;
  }
  if (piece >= 0) close(piece);
  if (mapped) return all;
  if (all != MAP_FAILED) munmap(all, bytes);
  return nullptr;
}

// Makes 100 bags of 50 rows each, from kFirst on.
std::unique_ptr<Batch> batch_of(Random& random, std::map<int64_t, int>* times) {
  constexpr int64_t kBags = 100, kLong = 50;
  auto batch = std::make_unique<Batch>();
  batch->raw_features = {{0, TSR_POOLING_SUM, kBags, 0, 0, 1}};
  batch->ids = std::make_unique<Array>(kI64, kBags * kLong);
  batch->offsets = std::make_unique<Array>(kI64, kBags + 1);
  batch->grad_output = std::make_unique<Array>(kF32, kBags);
  for (int64_t i = 0; i < kBags * kLong; ++i) {
    const int64_t row = kFirst + static_cast<int64_t>(random() % static_cast<uint64_t>(kRows - kFirst));
    batch->ids->set(i, static_cast<double>(row));
    ++(*times)[row];
  }
  for (int64_t b = 0; b <= kBags; ++b) batch->offsets->set(b, static_cast<double>(b * kLong));
  for (int64_t b = 0; b < kBags; ++b) batch->grad_output->set(b, 1);
  batch->output_size = kBags;
  batch->lookup.struct_size = sizeof(tsr_lookup);
  batch->lookup.num_features = 1;
  batch->lookup.feature_stride = sizeof(tsr_lookup_feature);
  batch->lookup.features = batch->raw_features.data();
  batch->lookup.ids = &batch->ids->tensor;
  batch->lookup.offsets = &batch->offsets->tensor;
  return batch;
}

struct Rows {
  explicit Rows(int64_t n) : ids(kI64, n), weights(kF32, n) {
    raw.struct_size = sizeof(raw);
    raw.count = n;
    raw.ids = &ids.tensor;
    raw.weights = &weights.tensor;
  }
  Array ids, weights;
  tsr_rows raw{};
};

void check(const char* path, const std::string& id) {
  SCOPED_TRACE(id);
  TestHost host;
  host.large_alloc = repeated;
  host.large_free = [](void* memory, uint64_t bytes) { munmap(memory, bytes); };
  Options options;
  options.tables = {{kRows, 1}};
  options.weight_dtype = kF16;
  Model model(host, path, id, options);
  model.open();
  Random random(7);
  std::map<int64_t, int> times;
  const auto batch = batch_of(random, &times);
  Array output(kF32, batch->output_size);

  Error error;
  Rows start(kRows - kFirst);  // row kFirst + i has the value i % 16
  for (int64_t i = 0; i < start.raw.count; ++i) {
    start.ids.set(i, static_cast<double>(kFirst + i));
    start.weights.set(i, static_cast<double>(i % 16));
  }
  ASSERT_EQ(model.api->import_rows(model.instance, 0, &start.raw, &error), TSR_OK) << error.message;
  model.backward(*batch, model.forward(*batch, output), nullptr, 1, 1);
  for (int64_t b = 0; b < batch->output_size; ++b) {
    int64_t sum = 0;
    for (int64_t i = 50 * b; i < 50 * (b + 1); ++i) sum += (batch->ids->data<int64_t>()[i] - kFirst) % 16;
    ASSERT_EQ(output.get(b), static_cast<float>(sum)) << "bag " << b;
  }

  Rows end(kRows - kFirst);
  uint64_t cursor = kFirst;
  ASSERT_EQ(model.api->export_rows(model.instance, 0, &cursor, &end.raw, &error), TSR_OK) << error.message;
  ASSERT_EQ(end.raw.count, kRows - kFirst);
  EXPECT_EQ(cursor, static_cast<uint64_t>(kRows));
  for (int64_t i = 0; i < end.raw.count; ++i) {
    ASSERT_EQ(end.ids.data<int64_t>()[i], kFirst + i);
    ASSERT_EQ(end.weights.get(i), static_cast<float>(i % 16) - 0.0625f * static_cast<float>(times[kFirst + i])) << i;
  }
}

TEST(ManyRows, AreLookedUpAndUpdated) {
  void* room = repeated(static_cast<uint64_t>(kRows) * 2);
  if (room == nullptr) GTEST_SKIP() << "no room for 4 GiB of addresses";
  munmap(room, static_cast<uint64_t>(kRows) * 2);
  check(TESSERA_KERNEL_REFERENCE, "reference");
  check(TESSERA_KERNEL_CPU, "cpu");
}

}  // namespace
}  // namespace tessera_cpu::test
