// Compares the quant kernel, loaded as the core loads it, with plain loops over decoded rows.
#include <sys/mman.h>

#include "tessera/sdk/row_format.h"
#include "test_support.h"

namespace tessera_cpu::test {
namespace {

using tessera::sdk::kRowFormats;
using tessera::sdk::RowFormat;
using tessera::sdk::RowFormatInfo;

const char* const kIsas[] = {"avx512", "avx2", "portable"};

bool runs_here(TestHost& host, const std::string& isa) {
  const Part part(TESSERA_KERNEL_QUANT, "quant", host, "{}", isa);
  EXPECT_TRUE(part.code == TSR_OK || part.code == TSR_UNAVAILABLE) << part.message;
  return part.code == TSR_OK;
}

Options infer_options(const RowFormatInfo& format, std::vector<TableShape> tables) {
  Options o;
  o.tables = std::move(tables);
  o.optimizer = "";
  o.compute_kernel = "quant";
  o.weight_dtype = format.dtype;
  o.row_format = format.layout;
  o.train = false;
  return o;
}

// Dims that fill blocks, leave remainders, and exceed what stays in registers.
std::vector<TableShape> shapes_for(const RowFormatInfo& format) {
  std::vector<TableShape> out;
  for (int64_t dim : {4, 8, 12, 16, 20, 32, 36, 64, 76, 128, 200, 256, 260, 520}) {
    const int64_t multiple = std::max<int64_t>(1, 8 / format.bits);
    out.push_back({3 + dim % 31, (dim + multiple - 1) / multiple * multiple});
  }
  if (format.header == 0) out.push_back({9, 7});
  out.push_back({0, 8});
  return out;
}

// Stored rows that end at the end of mapped memory. Their address may have any alignment.
class GuardedRows {
 public:
  GuardedRows(const RowFormatInfo& format, const TableShape& shape, int64_t padding, Random& random)
      : format_(format), shape_(shape), stride_(tessera::sdk::row_bytes(format.format, shape.dim) + padding) {
    const int64_t data = tessera::sdk::row_bytes(format.format, shape.dim);
    size_ = shape.rows == 0 ? 0 : (shape.rows - 1) * stride_ + data;
    const int64_t page = 4096, pages = (size_ + page - 1) / page;
    mapped_ = static_cast<size_t>((pages + 1) * page);
    memory_ = static_cast<char*>(mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(memory_ + pages * page, static_cast<size_t>(page), PROT_NONE);
    rows_ = memory_ + pages * page - size_;
    std::normal_distribution<float> normal(0.1f, 1);
    std::vector<float> values(static_cast<size_t>(shape.dim));
    for (int64_t r = 0; r < shape.rows; ++r) {
      for (float& v : values) v = normal(random);
      tessera::sdk::encode_row(format.format, values.data(), shape.dim, rows_ + r * stride_);
    }
    mprotect(memory_, static_cast<size_t>(pages * page), PROT_READ);  // forbids writing, and reading beyond the end
  }
  ~GuardedRows() { munmap(memory_, mapped_); }
  GuardedRows(const GuardedRows&) = delete;
  GuardedRows& operator=(const GuardedRows&) = delete;

  tsr_stored_rows view() const {
    return {sizeof(tsr_stored_rows), 0, rows_, static_cast<uint64_t>(size_), stride_, format_.layout};
  }
  std::vector<float> decoded(int64_t row) const {
    std::vector<float> out(static_cast<size_t>(shape_.dim));
    tessera::sdk::decode_row(format_.format, rows_ + row * stride_, shape_.dim, out.data());
    return out;
  }
  std::string bytes(int64_t row) const {
    return {rows_ + row * stride_, static_cast<size_t>(tessera::sdk::row_bytes(format_.format, shape_.dim))};
  }

 private:
  RowFormatInfo format_;
  TableShape shape_;
  int64_t stride_;
  int64_t size_ = 0;
  size_t mapped_ = 0;
  char* memory_ = nullptr;
  char* rows_ = nullptr;
};

struct QuantModel : Model {
  QuantModel(TestHost& host, const Options& o, const std::string& isa = "")
      : Model(host, TESSERA_KERNEL_QUANT, "quant", o, isa) {}

  void adopt(const RowFormatInfo& format, int64_t padding, uint64_t seed) {
    Random random(seed);
    for (size_t t = 0; t < options.tables.size(); ++t) {
      rows.push_back(std::make_unique<GuardedRows>(format, options.tables[t], padding, random));
      const tsr_stored_rows view = rows.back()->view();
      Error error;
      ASSERT_EQ(api->adopt_rows(instance, static_cast<uint32_t>(t), &view, &error), TSR_OK) << error.message;
    }
  }

  // Computes the sums of the decoded rows, in double.
  std::vector<float> expected(Batch& batch) const {
    std::vector<float> out(static_cast<size_t>(batch.output_size), NAN);
    const auto index = [](Array& a, int64_t i) {
      return a.tensor.dtype.bits == 64 ? a.data<int64_t>()[i] : a.data<int32_t>()[i];
    };
    for (const tsr_lookup_feature& f : batch.raw_features) {
      const int64_t dim = options.tables[static_cast<size_t>(f.table)].dim;
      int64_t row_out = 0;
      const auto add = [&](int64_t begin, int64_t end, double factor) {
        std::vector<double> sum(static_cast<size_t>(dim));
        for (int64_t p = begin; p < end; ++p) {
          const std::vector<float> row = rows[static_cast<size_t>(f.table)]->decoded(index(*batch.ids, p));
          const double weight = batch.lookup.weights == nullptr ? 1 : batch.weights->get(p);
          for (size_t d = 0; d < sum.size(); ++d) sum[d] += weight * row[d];
        }
        float* to = out.data() + f.output_offset + row_out++ * f.output_stride;
        for (size_t d = 0; d < sum.size(); ++d) to[d] = static_cast<float>(sum[d] * factor);
      };
      for (int64_t b = 0; b < f.bags; ++b) {
        const int64_t begin = index(*batch.offsets, f.first_offset + b),
                      end = index(*batch.offsets, f.first_offset + b + 1);
        if (f.pooling == TSR_POOLING_NONE) {
          for (int64_t p = begin; p < end; ++p) add(p, p + 1, 1);
        } else {
          add(begin, end, f.pooling == TSR_POOLING_MEAN && end > begin ? 1.0 / static_cast<double>(end - begin) : 1);
        }
      }
    }
    return out;
  }

  std::vector<std::unique_ptr<GuardedRows>> rows;
};

std::vector<FeatureShape> all_features(const Options& o) {
  std::vector<FeatureShape> features;
  for (size_t t = 0; t < o.tables.size(); ++t) {
    features.push_back({static_cast<int32_t>(t), static_cast<int32_t>(t % 3)});  // NONE, SUM, MEAN
    if (t % 4 == 0) features.push_back({static_cast<int32_t>(t), TSR_POOLING_SUM});
  }
  return features;
}

void compare(TestHost& host, const RowFormatInfo& format, const std::string& isa, DLDataType output) {
  Options o = infer_options(format, shapes_for(format));
  o.output_dtype = output;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE(isa + " " + format.name + " seed " + std::to_string(seed));
    host.threads = 1 + static_cast<uint32_t>(seed % 2);
    QuantModel model(host, o, isa);
    model.open();
    model.adopt(format, static_cast<int64_t>(seed) * 5, seed);
    Random random(seed + 50);
    const auto batch = random_batch(random, o, all_features(o), seed == 3 ? 0 : 1 + static_cast<int64_t>(seed * 7), 6,
                                    seed % 2 == 0 ? kI32 : kI64, seed == 2);
    Array got(output, batch->output_size);
    std::fill(got.bytes.begin(), got.bytes.end(), '\x7f');
    model.forward(*batch, got);
    const bool bf16 = output.code == kDLBfloat, half = output.bits == 16;
    expect_near(values_of(got), model.expected(*batch),
                bf16   ? 8e-3f
                : half ? 1e-3f
                       : 2e-6f,
                bf16   ? 1e-3f
                : half ? 1e-4f
                       : 1e-5f,
                format.name);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(QuantKernel, AgreesWithDecodedRowsInEveryFormat) {
  TestHost host;
  for (const char* isa : kIsas) {
    if (!runs_here(host, isa)) continue;
    for (const RowFormatInfo& format : kRowFormats) {
      for (DLDataType output : {kF32, kF16, kBF16}) compare(host, format, isa, output);
    }
  }
  EXPECT_EQ(host.live_bytes, 0);
}

TEST(QuantKernel, SameBitsForAnyNumberOfThreads) {
  const RowFormatInfo& format = tessera::sdk::info_of(RowFormat::kInt4);
  std::vector<float> first;
  for (uint32_t threads : {1u, 3u}) {
    TestHost host;
    host.threads = threads;
    const Options o = infer_options(format, {{3000, 64}, {50, 32}});
    QuantModel model(host, o);
    model.open();
    model.adopt(format, 0, 3);
    Random random(9);
    const auto batch = random_batch(random, o, {{0, TSR_POOLING_SUM}, {1, TSR_POOLING_MEAN}, {0, TSR_POOLING_NONE}},
                                    2000, 9, kI64, true);
    Array output(kF32, batch->output_size);
    model.forward(*batch, output);
    if (threads == 1) first = values_of(output);
    EXPECT_EQ(std::memcmp(values_of(output).data(), first.data(), 4 * first.size()), 0);
  }
}

TEST(QuantKernel, ForwardAllocatesNothing) {
  TestHost host;
  const RowFormatInfo& format = tessera::sdk::info_of(RowFormat::kInt8);
  const Options o = infer_options(format, {{100, 64}, {50, 32}});
  QuantModel model(host, o);
  model.open();
  model.adopt(format, 0, 3);
  Random random(9);
  const auto batch = random_batch(random, o, {{0, TSR_POOLING_SUM}, {1, TSR_POOLING_MEAN}}, 20, 9, kI64, false);
  Array output(kF32, batch->output_size);
  model.forward(*batch, output);
  const int64_t news = news_so_far(), allocations = host.allocations;
  model.forward(*batch, output);
  EXPECT_EQ(news_so_far(), news);
  EXPECT_EQ(host.allocations, allocations);
}

TEST(QuantKernel, ImportedRowsAreTheCodecs) {
  TestHost host;
  for (const RowFormatInfo& format : kRowFormats) {
    SCOPED_TRACE(format.name);
    const Options o = infer_options(format, {{20, 16}});
    QuantModel adopted(host, o), imported(host, o);
    adopted.open();
    imported.open();
    EXPECT_EQ(imported.rows_of(0), std::vector<float>(320));  // rows are 0 initially
    adopted.adopt(format, 3, 8);
    std::vector<float> values;
    Random random(1);
    std::normal_distribution<float> normal(0, 2);
    for (int i = 0; i < 320; ++i) values.push_back(normal(random));
    imported.set_rows(0, values);
    std::vector<float> row(16), stored(static_cast<size_t>(tessera::sdk::row_bytes(format.format, 16)) / 4 + 1);
    for (int64_t r = 0; r < 20; ++r) {
      tessera::sdk::encode_row(format.format, values.data() + 16 * r, 16, stored.data());
      tessera::sdk::decode_row(format.format, stored.data(), 16, row.data());
      const std::vector<float> all = imported.rows_of(0);
      EXPECT_EQ(std::vector<float>(all.begin() + 16 * r, all.begin() + 16 * (r + 1)), row);
    }
    Error error;
    tsr_kernel_stats stats{};
    stats.struct_size = sizeof(stats);
    ASSERT_EQ(imported.api->stats(imported.instance, 0, &stats, &error), TSR_OK);
    EXPECT_EQ(stats.weight_bytes, static_cast<uint64_t>(20 * tessera::sdk::row_bytes(format.format, 16)));
    ASSERT_EQ(adopted.api->stats(adopted.instance, 0, &stats, &error), TSR_OK);
    EXPECT_EQ(stats.weight_bytes, 0u) << "adopted rows are the caller's memory";
  }
}

TEST(QuantKernel, StoredRowsHaveKnownFlagsAndTheNamedFormat) {
  TestHost host;
  const RowFormatInfo& int4 = tessera::sdk::info_of(RowFormat::kInt4);
  QuantModel model(host, infer_options(int4, {{4, 8}, {3, 6}}));
  model.open();
  Error error;
  char memory[100] = {};
  const tsr_stored_rows unknown{sizeof(tsr_stored_rows), 1u << 16, memory, 100, 8, int4.layout};
  EXPECT_EQ(model.api->adopt_rows(model.instance, 0, &unknown, &error), TSR_UNIMPLEMENTED);
  EXPECT_EQ(std::string(error.message).find("tsr_stored_rows has flags 65536"), 0u) << error.message;
  const tsr_stored_rows other{sizeof(tsr_stored_rows), 0, memory, 100, 8, TSR_ROW_FORMAT_INT8};
  EXPECT_EQ(model.api->adopt_rows(model.instance, 0, &other, &error), TSR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.message).find("opened for \"fbgemm.int4\""), std::string::npos) << error.message;
}

TEST(QuantKernel, RefusalsNameTableAndBound) {
  TestHost host;
  const RowFormatInfo& int4 = tessera::sdk::info_of(RowFormat::kInt4);
  const auto unsupported = [&](const Options& o) {
    Error error;
    Model model(host, TESSERA_KERNEL_QUANT, "quant", o);
    EXPECT_NE(model.supports(error), TSR_OK);
    return std::string(error.message);
  };
  Options o = infer_options(int4, {{4, 8}});
  o.train = true;
  EXPECT_NE(unsupported(o).find("only infers"), std::string::npos);
  o = infer_options(int4, {{4, 8}});
  o.compute_kernel = "fused";
  EXPECT_NE(unsupported(o).find("only quant"), std::string::npos);
  EXPECT_NE(unsupported(infer_options(int4, {{4, 7}})).find("multiple of 2"), std::string::npos);
  o = infer_options(int4, {{4, 8}});
  o.weight_dtype = {kDLInt, 3, 1};
  EXPECT_NE(unsupported(o).find("3 bits are not served"), std::string::npos);
  o = infer_options(int4, {{4, 8}});
  o.row_format = "acme.mx4";
  EXPECT_NE(unsupported(o).find("\"acme.mx4\" are not known"), std::string::npos);
  o.row_format = TSR_ROW_FORMAT_INT8;  // the rows have codes of 4 bits
  EXPECT_NE(unsupported(o).find("4 bits are not served"), std::string::npos);

  QuantModel model(host, infer_options(int4, {{4, 8}, {3, 6}}));
  model.open();
  Error error;
  char memory[100] = {};
  for (const tsr_stored_rows& bad :
       {tsr_stored_rows{sizeof(tsr_stored_rows), 0, memory, 31, 8, int4.layout},
        tsr_stored_rows{sizeof(tsr_stored_rows), 0, memory, 100, 7, int4.layout},
        tsr_stored_rows{sizeof(tsr_stored_rows), 0, memory, 100, -8, int4.layout},
        tsr_stored_rows{sizeof(tsr_stored_rows), 0, memory, 100, INT64_MAX / 2, int4.layout},
        tsr_stored_rows{sizeof(tsr_stored_rows), 0, nullptr, 100, 8, int4.layout}}) {
    EXPECT_EQ(model.api->adopt_rows(model.instance, 0, &bad, &error), TSR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.message).find("take 8 bytes each"), std::string::npos) << error.message;
  }
  const auto import = [&](uint32_t table, int64_t row, int64_t dim, float value) {
    Array ids(kI64, 1), weights(kF32, dim);
    ids.data<int64_t>()[0] = row;
    weights.set(dim - 1, value);
    const tsr_rows rows{sizeof(tsr_rows), 0, 0, 0, 1, &ids.tensor, &weights.tensor, nullptr, nullptr};
    EXPECT_NE(model.api->import_rows(model.instance, table, &rows, &error), TSR_OK);
    return std::string(error.message);
  };
  EXPECT_NE(import(0, 4, 8, 1).find("no row 4"), std::string::npos);
  EXPECT_NE(import(0, 2, 8, NAN).find("row 2: its value nan in column 7"), std::string::npos) << error.message;
  EXPECT_NE(import(0, 3, 8, -INFINITY).find("row 3: its value -inf"), std::string::npos) << error.message;
  EXPECT_NE(import(1, 0, 6, 1).find("multiples of 4"), std::string::npos) << error.message;
  const tsr_stored_rows good{sizeof(tsr_stored_rows), 0, memory, 32, 8, int4.layout};
  ASSERT_EQ(model.api->adopt_rows(model.instance, 0, &good, &error), TSR_OK) << error.message;
  EXPECT_NE(import(0, 0, 8, 1).find("read only"), std::string::npos) << error.message;

  Random random(1);
  const Options shapes = infer_options(int4, {{4, 8}, {3, 6}});
  const auto batch = random_batch(random, shapes, {{0, TSR_POOLING_MAX}}, 2, 2, kI64, false);
  Array output(kF32, batch->output_size);
  EXPECT_EQ(model.api->forward(model.instance, &batch->lookup, &output.tensor, nullptr, nullptr, &error),
            TSR_UNIMPLEMENTED);
  tsr_context* context = nullptr;
  EXPECT_EQ(model.api->forward(model.instance, &batch->lookup, &output.tensor, nullptr, &context, &error),
            TSR_FAILED_PRECONDITION);
  EXPECT_NE(std::string(error.message).find("only infers"), std::string::npos);
}

}  // namespace
}  // namespace tessera_cpu::test
