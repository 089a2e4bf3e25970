// tessera bench infer: latency of a quantized collection in one process, from ids to pooled rows.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/bench.h"
#include "options.h"
#include "tessera/quantization.h"
#include "tessera/sdk/random.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;
using json = nlohmann::ordered_json;

constexpr double kRoundUs = 50e3;       // time spent on each dtype and batch size in a round
constexpr size_t kMostSamples = 20000;  // samples taken in that time, at most
constexpr size_t kInputs = 32;          // different batches, used in rotation

struct InferBench {
  CommonOptions common;
  int64_t tables = 26, rows = 100000, dim = 64, pooling = 10;
  std::vector<int64_t> batches;
  std::vector<RowFormat> formats;
  std::string kernel = "auto";
};

// Returns false if help was printed.
bool parse_infer(const std::vector<std::string>& args, InferBench* b) {
  std::string batches, dtypes;
  Options options(
      "bench infer", "[OPTIONS]",
      "Times QuantEmbeddingBagCollection: each call makes a KeyedJaggedTensor of int32 ids and pools its rows. The "
      "exit status is 1 if results differ from sums of decoded rows.");
  auto add = options.add_options();
  add("tables", po::value(&b->tables)->default_value(b->tables), "number of tables, each with one feature");
  add("rows", po::value(&b->rows)->default_value(b->rows), "rows of each table");
  add("dim", po::value(&b->dim)->default_value(b->dim), "columns of each table");
  add("pooling", po::value(&b->pooling)->default_value(b->pooling), "ids per bag");
  add("batch", po::value(&batches)->default_value("1,16,256"), "sizes of requests in samples, separated by commas");
  add("dtype", po::value(&dtypes)->default_value("int8,int4"), "row formats: int8, int4, int2, fp16, fp32, fp8");
  add("kernel", po::value(&b->kernel)->default_value(b->kernel), "kernel plugin");
  if (!parse(options, args, &b->common)) return false;
  require_range({{"--tables", b->tables}, {"--rows", b->rows}, {"--dim", b->dim}, {"--pooling", b->pooling}},
                INT32_MAX);
  b->batches = integer_list("--batch", batches, 1);
  for (const std::string& dtype : text_list("--dtype", dtypes)) {
    try {
      b->formats.push_back(row_format_from(dtype));
    } catch (const Error& e) {
      throw UsageError(str_cat("--dtype: ", e.what()));
    }
  }
  return true;
}

std::vector<QuantizedTable> make_tables(const InferBench& b, RowFormat format) {
  std::vector<QuantizedTable> tables;
  Tensor weights = Tensor::empty({b.rows, b.dim});
  for (int64_t t = 0; t < b.tables; ++t) {
    QuantizedTable table;
    table.config.name = str_cat("t", t);
    table.config.num_embeddings = b.rows;
    table.config.embedding_dim = b.dim;
    table.config.init_range = 1;
    table.config.row_format = format;
    initial_values(table.config, 1, 0, b.rows, 0, b.dim, weights.data<float>());
    table.rows = quantize_rows(weights, format, table.config.name);
    tables.push_back(std::move(table));
  }
  return tables;
}

// Requests of one batch size.
struct Requests {
  Requests(const InferBench& b, int64_t size) : batch(size) {
    sdk::Random random(static_cast<uint64_t>(size));
    const int64_t bags = b.tables * size;
    for (size_t i = 0; i < kInputs; ++i) {
      ids.push_back(Tensor::empty({bags * b.pooling}, DType::kInt32));
      for (int32_t& id : ids.back().span<int32_t>())
        id = static_cast<int32_t>(random.below(static_cast<uint64_t>(b.rows)));
    }
    lengths = Tensor::empty({bags}, DType::kInt32);
    std::fill_n(lengths.data<int32_t>(), bags, static_cast<int32_t>(b.pooling));
    for (int64_t t = 0; t < b.tables; ++t) keys.push_back(str_cat("t", t));
  }
  int64_t batch;
  std::vector<std::string> keys;
  std::vector<Tensor> ids;
  Tensor lengths;
};

// Compares pooled rows with sums, in double precision, of the decoded rows.
bool right(const InferBench& b, const QuantEmbeddingBagCollection& module, const Requests& requests,
           const Tensor& output) {
  std::vector<float> row(static_cast<size_t>(b.dim));
  std::vector<double> sum(row.size());
  const int32_t* id = requests.ids[0].data<int32_t>();
  for (int64_t t = 0; t < b.tables; ++t) {
    const Tensor& rows = module.tables()[static_cast<size_t>(t)].rows;
    for (int64_t s = 0; s < requests.batch; ++s) {
      std::fill(sum.begin(), sum.end(), 0.0);
      for (int64_t i = 0; i < b.pooling; ++i) {
        const auto* stored = static_cast<const uint8_t*>(rows.raw()) + *id++ * rows.size(1);
        sdk::decode_row(*module.tables()[static_cast<size_t>(t)].config.row_format, stored, b.dim, row.data());
        for (size_t d = 0; d < row.size(); ++d) sum[d] += row[d];
      }
      const float* got = output.data<float>() + s * module.width() + t * b.dim;
      for (size_t d = 0; d < row.size(); ++d) {
        // The condition is written so that NaN fails.
        if (!(std::abs(got[d] - sum[d]) <= 1e-5 + 2e-6 * static_cast<double>(b.pooling) + 1e-5 * std::abs(sum[d]))) {
          return false;
        }
      }
    }
  }
  return true;
}

// The subject of one result line.
struct InferSubject {
  RowFormat format;
  std::shared_ptr<QuantEmbeddingBagCollection> module;
  Requests requests;
  bool verified = false;
  size_t next = 0;
  std::vector<double> samples;  // microseconds per request

  Tensor run() {
    const size_t i = next++ % kInputs;
    const auto batch = KeyedJaggedTensor::from_lengths_sync(requests.keys, requests.ids[i], requests.lengths);
    return module->forward(batch).values();
  }
  void round() {
    double spent = 0;
    for (size_t i = 0; i < kMostSamples && spent < kRoundUs; ++i) {
      const Stopwatch watch;
      (void)run();
      samples.push_back(watch.us());
      spent += samples.back();
    }
  }
};

json result_line(const InferBench& b, const InferSubject& s) {
  const Percentiles us = percentiles(s.samples);
  const double lookups = static_cast<double>(b.tables * s.requests.batch * b.pooling);
  json line{{"bench", "infer"},
            {"kernel", s.module->kernel_ids().front()},
            {"T", b.tables},
            {"E", b.rows},
            {"D", b.dim},
            {"L", b.pooling},
            {"B", s.requests.batch},
            {"dtype", sdk::to_string(s.format)},
            {"threads", b.common.threads}};
  add_percentiles(&line, "us", s.samples);
  line.update({{"p99_us", us.p99},
               {"requests_per_s", 1e6 / us.median},
               {"ns_per_lookup", 1e3 * us.median / lookups},
               {"verified", s.verified}});
  return line;
}

int run_infer(const InferBench& b) {
  const Runtime runtime({{}, {}, true, b.common.threads});
  std::vector<InferSubject> subjects;
  for (RowFormat format : b.formats) {
    QuantCollectionOptions options{.tables = make_tables(b, format), .kernel = b.kernel};
    const auto module = std::make_shared<QuantEmbeddingBagCollection>(runtime, std::move(options));
    for (int64_t batch : b.batches) {
      subjects.push_back({format, module, Requests(b, batch), false, 0, {}});
      InferSubject& s = subjects.back();
      s.verified = right(b, *module, s.requests, s.run());
      s.round();
      s.samples.clear();
    }
  }
  Report report(b.common);
  const auto round = [&] {
    for (InferSubject& s : subjects) s.round();
  };
  run_rounds(b.common, round, [&] {
    for (InferSubject& s : subjects) {
      report.line(result_line(b, s));
      s.samples.clear();
    }
  });
  return std::all_of(subjects.begin(), subjects.end(), [](const InferSubject& s) { return s.verified; }) ? 0 : 1;
}

}  // namespace

BenchRun bench_infer(const std::vector<std::string>& args, const CommonOptions& common) {
  InferBench b{.common = common};
  if (!parse_infer(args, &b)) return {};
  return [b] { return run_infer(b); };
}

}  // namespace tessera::cli
