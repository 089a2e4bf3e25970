// Lookups and updates of one kernel plugin.
#include <algorithm>
#include <chrono>
#include <numeric>

#include "calibrate/calibrate.h"
#include "data/random.h"
#include "tessera/lookup.h"

namespace tessera::cli {
namespace {

constexpr double kKib = 1024, kMib = 1048576;
constexpr int64_t kPooling = 16;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Tables of one shape in one kernel instance, and a batch over them.
class Subject {
 public:
  Subject(const Runtime& runtime, const std::string& kernel, int64_t tables, int64_t rows, int64_t dim)
      : rows_(rows), dim_(dim), tables_(tables), random_(1), lookup_(runtime, options(kernel, tables, rows, dim)) {
    // Written, because memory that was never touched is one page of zeros.
    constexpr int64_t kBlock = 16384;
    const std::vector<float> values(static_cast<size_t>(std::min(rows, kBlock) * dim), 0.01f);
    for (int t = 0; t < tables; ++t) {
      for (int64_t first = 0; first < rows; first += kBlock) {
        lookup_.write_rows(t, first, std::min(kBlock, rows - first), values.data());
      }
    }
  }

  const std::string& kernel() const { return lookup_.kernel_id(); }

  // The next batch: `bags` bags of each table with `pooling` ids each, every row `repeats` times.
  void prepare(int64_t bags, int64_t pooling, int64_t repeats = 1) {
    const int64_t ids = bags * pooling;
    if (ids_.numel() != ids * tables_ || pooling != pooling_) lay_out(bags, pooling);
    int64_t* to = ids_.data<int64_t>();
    for (int64_t t = 0; t < tables_; ++t, to += ids) fill(to, ids, repeats);
  }

  // Forward and backward, in seconds.
  std::vector<double> run() {
    const double start = now();
    Lookup::Context context;
    lookup_.forward(raw_, output_, &context);
    const double middle = now();
    lookup_.backward(std::move(context), raw_, gradient_);
    return {middle - start, now() - middle};
  }

 private:
  static LookupOptions options(const std::string& kernel, int64_t tables, int64_t rows, int64_t dim) {
    LookupOptions o;
    o.kernel = kernel;
    o.compute_kernel = "fused";
    o.optimizer = {"exact_rowwise_adagrad", R"({"learning_rate": 0.01})", 0};
    for (int64_t t = 0; t < tables; ++t) o.tables.push_back({cat("t", t), rows, dim});
    return o;
  }

  // `ids` ids, different ones as far as the table has so many rows, each `repeats` times at scattered places.
  void fill(int64_t* to, int64_t ids, int64_t repeats) {
    const int64_t distinct = std::max<int64_t>(1, ids / repeats);
    if (rows_ < 4 * distinct) {
      if (order_.empty()) {
        order_.resize(static_cast<size_t>(rows_));
        std::iota(order_.begin(), order_.end(), 0);
      }
      for (int64_t i = 0; i < std::min(distinct, rows_); ++i) {
        const auto other = i + static_cast<int64_t>(random_.below(static_cast<uint64_t>(rows_ - i)));
        std::swap(order_[static_cast<size_t>(i)], order_[static_cast<size_t>(other)]);
      }
      for (int64_t i = 0; i < ids; ++i) to[i] = order_[static_cast<size_t>(i % distinct % rows_)];
      return;
    }
    for (int64_t i = 0; i < distinct; ++i) to[i] = static_cast<int64_t>(random_.below(static_cast<uint64_t>(rows_)));
    for (int64_t i = distinct; i < ids; ++i) to[i] = to[i % distinct];
  }

  void lay_out(int64_t bags, int64_t pooling) {
    pooling_ = pooling;
    ids_ = Tensor::zeros({tables_ * bags * pooling}, DType::kInt64);
    offsets_ = Tensor::zeros({tables_ * bags + 1}, DType::kInt64);
    for (int64_t i = 0; i <= tables_ * bags; ++i) offsets_.data<int64_t>()[i] = i * pooling;
    output_ = Tensor::zeros({tables_ * bags, dim_});
    gradient_ = Tensor::empty({tables_ * bags, dim_});
    gradient_.fill(1e-3);
    features_.clear();
    for (int64_t t = 0; t < tables_; ++t) {
      features_.push_back({static_cast<int32_t>(t), TSR_POOLING_SUM, bags, t * bags, t * bags * dim_, dim_});
    }
    raw_ids_ = ids_.dl();
    raw_offsets_ = offsets_.dl();
    raw_ = {};
    raw_.struct_size = sizeof(raw_);
    raw_.num_features = static_cast<uint32_t>(features_.size());
    raw_.feature_stride = sizeof(tsr_lookup_feature);
    raw_.features = features_.data();
    raw_.ids = &raw_ids_;
    raw_.offsets = &raw_offsets_;
  }

  int64_t rows_, dim_, tables_, pooling_ = 0;
  data::Random random_;
  Lookup lookup_;
  std::vector<int64_t> order_;
  Tensor ids_ = Tensor::zeros({0}, DType::kInt64), offsets_, output_, gradient_;
  std::vector<tsr_lookup_feature> features_;
  DLTensor raw_ids_, raw_offsets_;
  tsr_lookup raw_;
};

std::vector<double> measure(const Trials& trials, Subject& subject, int64_t bags, int64_t pooling,
                            int64_t repeats = 1) {
  return trials.times([&] {
    subject.prepare(bags, pooling, repeats);
    return subject.run();
  });
}

double at_least(double x, double least) { return std::max(x, least); }

constexpr double kLeast = 0.1e-9;  // seconds: what noise leaves negative

// One table size of one row length. `row`, with its costs of bags and repeats known: fills lookup and update.
void measure_cell(Subject& subject, int64_t rows, const KernelFigures& kernel, const Trials& trials,
                  tsr_row_cost* row) {
  const int64_t ids = std::clamp<int64_t>(static_cast<int64_t>(2 * kMib / row->row_bytes), 2048, 32768);
  const int64_t bags = std::max<int64_t>(1, std::min(ids, rows / 2) / kPooling);
  const auto n = static_cast<double>(bags * kPooling);
  const std::vector<double> t = measure(trials, subject, bags, kPooling);
  row->lookup = at_least((t[0] - kernel.call_forward - static_cast<double>(bags) * row->bag_forward) / n, kLeast);
  row->update = at_least((t[1] - kernel.call_backward - static_cast<double>(bags) * row->bag_backward) / n, kLeast);
}

// Bags and repeats, in a table that lies in a near cache.
void measure_bags(Subject& subject, int64_t rows, const KernelFigures& kernel, const Trials& trials,
                  tsr_row_cost* row) {
  const int64_t bags = std::max<int64_t>(8, std::min<int64_t>(1024, rows / 32));
  const auto n = static_cast<double>(bags);
  const auto net = [&](int64_t count, int64_t pooling, int64_t repeats) {
    std::vector<double> t = measure(trials, subject, count, pooling, repeats);
    t[0] -= kernel.call_forward;
    t[1] -= kernel.call_backward;
    return t;
  };
  const auto single = net(bags * kPooling, 1, 1), pooled = net(bags, kPooling, 1), repeated = net(bags, kPooling, 8);
  const double more = n * (kPooling - 1);
  row->bag_forward = at_least((single[0] - pooled[0]) / more, kLeast);
  row->bag_backward = at_least((single[1] - pooled[1]) / more, kLeast);
  const double ids = n * kPooling;
  const double update = at_least((pooled[1] - n * row->bag_backward) / ids, kLeast);
  row->repeat = at_least((repeated[1] - n * row->bag_backward - ids / 8 * update) / (ids * 7 / 8), kLeast);
}

void measure_calls(const Runtime& runtime, const std::string& id, const Trials& trials, KernelFigures* kernel) {
  constexpr int64_t kTables = 64, kBags = 8;
  Subject one(runtime, id, 1, 4096, 16), many(runtime, id, kTables, 4096, 16);
  const auto call = measure(trials, one, 1, 1), together = measure(trials, one, kTables * kBags, 1),
             apart = measure(trials, many, kBags, 1);
  kernel->call_forward = call[0];
  kernel->call_backward = call[1];
  kernel->run_forward = at_least((apart[0] - together[0]) / (kTables - 1), kLeast);
  kernel->run_backward = at_least((apart[1] - together[1]) / (kTables - 1), kLeast);
}

}  // namespace

KernelFigures measure_kernel(const Runtime& runtime, const CalibrateOptions& options, const Trials& trials) {
  KernelFigures kernel;
  kernel.kernel = Subject(runtime, options.kernel, 1, 16, 16).kernel();
  measure_calls(runtime, kernel.kernel, trials, &kernel);
  const std::vector<int64_t> dims =
      options.quick ? std::vector<int64_t>{4, 32, 256} : std::vector<int64_t>{4, 16, 64, 256};
  const std::vector<double> sizes = options.quick
                                        ? std::vector<double>{64 * kKib, 2 * kMib, 128 * kMib}
                                        : std::vector<double>{64 * kKib, kMib, 8 * kMib, 64 * kMib, 256 * kMib};
  for (const int64_t dim : dims) {
    const double row_bytes = static_cast<double>(dim) * 4;
    tsr_row_cost common{};
    common.row_bytes = row_bytes;
    for (const double size : sizes) {
      const auto rows = static_cast<int64_t>(size / row_bytes);
      Subject subject(runtime, kernel.kernel, 1, rows, dim);
      if (size == sizes[0]) measure_bags(subject, rows, kernel, trials, &common);
      tsr_row_cost cell = common;
      cell.reuse_bytes = size;
      measure_cell(subject, rows, kernel, trials, &cell);
      kernel.rows.push_back(cell);
    }
  }
  return kernel;
}

}  // namespace tessera::cli
