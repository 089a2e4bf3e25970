// Measures lookups and updates of one kernel component.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "calibration/parts.h"
#include "distributed/stopwatch.h"
#include "modules/lookup_view.h"
#include "tessera/lookup.h"
#include "tessera/sdk/random.h"

namespace tessera {
namespace {

constexpr double kKib = 1024, kMib = 1048576;
constexpr int64_t kPooling = 16;
// Larger tables are much slower if the machine has no huge pages left, so the better of two measurements counts.
constexpr double kHugePages = 32 * kMib;

// Tables of one shape in one kernel instance, and batches for them.
class KernelSubject {
 public:
  KernelSubject(const Runtime& runtime, const std::string& kernel, int64_t tables, int64_t rows, int64_t dim)
      : rows_(rows),
        dim_(dim),
        tables_(tables),
        random_(1),
        lookup_(opened(runtime, options(kernel, tables, rows, dim))) {
    // The rows are written, because untouched memory is mapped to one page of zeros.
    constexpr int64_t kBlock = 16384;
    const std::vector<float> values(static_cast<size_t>(std::min(rows, kBlock) * dim), 0.01f);
    for (int t = 0; t < tables; ++t) {
      for (int64_t first = 0; first < rows; first += kBlock) {
        lookup_.write_rows(t, first, std::min(kBlock, rows - first), values.data());
      }
    }
  }

  const std::string& kernel() const { return lookup_.kernel_id(); }
  int64_t row_bytes() const { return dim_ * static_cast<int64_t>(size_of(lookup_.options().weight_dtype)); }

  // Makes `count` batches. Each table has `bags` bags with `pooling` ids, drawn from `among` rows; 0: all ids differ.
  void prepare(int64_t count, int64_t bags, int64_t pooling, int64_t among = 0) {
    if (std::ssize(batches_) != count || bags != bags_ || pooling != pooling_) lay_out(count, bags, pooling);
    for (Batch& b : batches_) {
      int64_t* to = b.ids.data<int64_t>();
      for (int64_t t = 0; t < tables_; ++t, to += bags * pooling) fill(to, bags * pooling, among);
    }
  }

  // Runs forward for all batches, then backward in the same order. So all other batches lie between a batch's forward
  // and its backward. Returns the seconds of one forward and of one backward.
  std::vector<double> run() {
    const auto n = static_cast<double>(batches_.size());
    double forward = 0, backward = 0;
    Stopwatch watch;
    for (Batch& b : batches_) lookup_.forward(b.raw, output_, &b.context);
    watch.lap(forward, "forward");
    for (Batch& b : batches_) lookup_.backward(std::move(b.context), b.raw, gradient_);
    watch.lap(backward, "backward");
    return {forward / n, backward / n};
  }

 private:
  // With float32 rows if the kernel has them, otherwise with rows of 16 bits.
  static Lookup opened(const Runtime& runtime, LookupOptions options) {
    for (const DType type : {DType::kBFloat16, DType::kFloat16}) {
      try {
        return {runtime, options};
      } catch (const Error& e) {
        if (e.code() != Code::kUnimplemented) throw;
        options.weight_dtype = type;
      }
    }
    return {runtime, options};
  }
  static LookupOptions options(const std::string& kernel, int64_t tables, int64_t rows, int64_t dim) {
    LookupOptions o;
    o.kernel = kernel;
    o.compute_kernel = "fused";
    o.optimizer = {"exact_rowwise_adagrad", R"({"learning_rate": 0.01})", 0};
    for (int64_t t = 0; t < tables; ++t) o.tables.push_back({str_cat("t", t), rows, dim});
    return o;
  }

  struct Batch {
    Tensor ids;
    std::optional<LookupView> view;
    tsr_lookup raw{};
    Lookup::Context context;
  };

  void fill(int64_t* to, int64_t ids, int64_t among) {
    const auto rows = static_cast<uint64_t>(rows_);
    if (among > 0 || rows_ > 4 * ids) {  // among many rows, few are drawn twice
      const uint64_t choices = among > 0 ? static_cast<uint64_t>(among) : rows;
      for (int64_t i = 0; i < ids; ++i) to[i] = static_cast<int64_t>(random_.below(choices) * (rows / choices));
      return;
    }
    if (order_.empty()) {
      order_.resize(static_cast<size_t>(rows_));
      std::iota(order_.begin(), order_.end(), 0);
    }
    for (int64_t i = 0; i < ids; ++i) {
      const auto k = static_cast<size_t>(i % rows_);
      std::swap(order_[k], order_[k + random_.below(rows - k)]);
      to[i] = order_[k];
    }
  }

  void lay_out(int64_t count, int64_t bags, int64_t pooling) {
    bags_ = bags;
    pooling_ = pooling;
    offsets_ = Tensor::zeros({tables_ * bags + 1}, DType::kInt64);
    for (int64_t i = 0; i <= tables_ * bags; ++i) offsets_.data<int64_t>()[i] = i * pooling;
    output_ = Tensor::zeros({tables_ * bags, dim_});
    gradient_ = Tensor::empty({tables_ * bags, dim_});
    gradient_.fill(1e-3);
    features_.clear();
    for (int64_t t = 0; t < tables_; ++t) {
      features_.push_back({static_cast<int32_t>(t), TSR_POOLING_SUM, bags, t * bags, t * bags * dim_, dim_});
    }
    batches_ = std::vector<Batch>(static_cast<size_t>(count));
    for (Batch& b : batches_) {
      b.ids = Tensor::zeros({tables_ * bags * pooling}, DType::kInt64);
      b.view.emplace(b.ids, offsets_, Tensor());
      b.raw = b.view->of(features_);
    }
  }

  int64_t rows_, dim_, tables_, bags_ = 0, pooling_ = 0;
  sdk::Random random_;
  Lookup lookup_;
  std::vector<int64_t> order_;
  Tensor offsets_, output_, gradient_;
  std::vector<tsr_lookup_feature> features_;
  std::vector<Batch> batches_;
};

struct KernelInput {
  int64_t bags, pooling;
  int64_t among = 0;
  int64_t batches = 1;
};

std::vector<double> measure(const Trials& trials, KernelSubject& subject, const KernelInput& in) {
  return trials.times([&] {
    subject.prepare(in.batches, in.bags, in.pooling, in.among);
    return subject.run();
  });
}

double at_least(double x, double least) { return std::max(x, least); }

constexpr double kLeast = 0.1e-9;  // in seconds, instead of values that noise made negative

// Measures one table size and row length. It fills lookup and update of `row`, whose costs of bags and repeats are
// known.
void measure_cell(KernelSubject& subject, int64_t rows, const KernelFigures& kernel, const Trials& trials,
                  tsr_row_cost* row) {
  constexpr double kBatchBytes = 2 * kMib;
  constexpr int64_t kMostBatches = 32;  // at most 64 MiB between lookup and update
  const int64_t ids = std::clamp<int64_t>(static_cast<int64_t>(kBatchBytes / row->row_bytes), 2048, 32768);
  const int64_t bags = std::max<int64_t>(1, std::min(ids, rows / 2) / kPooling);
  const auto n = static_cast<double>(bags * kPooling);
  const auto batches = static_cast<int64_t>(row->reuse_bytes / (n * row->row_bytes));
  const std::vector<double> t =
      measure(trials, subject, {bags, kPooling, 0, std::clamp<int64_t>(batches, 1, kMostBatches)});
  row->lookup = at_least((t[0] - kernel.call_forward - static_cast<double>(bags) * row->bag_forward) / n, kLeast);
  row->update = at_least((t[1] - kernel.call_backward - static_cast<double>(bags) * row->bag_backward) / n, kLeast);
}

// Measures the costs of bags and repeats, in a table that fits into a near cache.
void measure_bags(KernelSubject& subject, int64_t rows, const KernelFigures& kernel, const Trials& trials,
                  tsr_row_cost* row) {
  const int64_t bags = std::max<int64_t>(8, std::min<int64_t>(1024, rows / 32));
  const auto n = static_cast<double>(bags), ids = n * kPooling;
  const auto net = [&](const KernelInput& in) {
    std::vector<double> t = measure(trials, subject, in);
    t[0] -= kernel.call_forward;
    t[1] -= kernel.call_backward;
    return t;
  };
  const auto single = net({bags * kPooling, 1}), pooled = net({bags, kPooling});
  const double more = n * (kPooling - 1);
  row->bag_forward = at_least((single[0] - pooled[0]) / more, kLeast);
  row->bag_backward = at_least((single[1] - pooled[1]) / more, kLeast);
  const double update = at_least((pooled[1] - n * row->bag_backward) / ids, kLeast);
  // A row has four ids on average. They are random, so rows have one, two or more ids in no order, as in real data.
  const double among = ids / 4, distinct = among * -std::expm1(-4.0);
  const auto repeated = net({bags, kPooling, static_cast<int64_t>(among)});
  row->repeat = at_least((repeated[1] - n * row->bag_backward - distinct * update) / (ids - distinct), kLeast);
}

void measure_calls(const Runtime& runtime, const std::string& id, const Trials& trials, KernelFigures* kernel) {
  constexpr int64_t kTables = 64, kBags = 8;
  KernelSubject one(runtime, id, 1, 4096, 16), many(runtime, id, kTables, 4096, 16);
  const auto call = measure(trials, one, {1, 1}), together = measure(trials, one, {kTables * kBags, 1}),
             apart = measure(trials, many, {kBags, 1});
  kernel->call_forward = call[0];
  kernel->call_backward = call[1];
  kernel->run_forward = at_least((apart[0] - together[0]) / (kTables - 1), kLeast);
  kernel->run_backward = at_least((apart[1] - together[1]) / (kTables - 1), kLeast);
}

}  // namespace

KernelFigures measure_kernel(const Runtime& runtime, const CalibrationOptions& options, const Trials& trials) {
  KernelFigures kernel;
  const KernelSubject first(runtime, options.kernel, 1, 16, 16);
  kernel.kernel = first.kernel();
  const double element_bytes = static_cast<double>(first.row_bytes()) / 16;
  measure_calls(runtime, kernel.kernel, trials, &kernel);
  const std::vector<int64_t> dims =
      options.quick ? std::vector<int64_t>{4, 32, 256} : std::vector<int64_t>{4, 16, 64, 256};
  const std::vector<double> sizes =
      options.quick ? std::vector<double>{64 * kKib, 2 * kMib, 16 * kMib, 128 * kMib}
                    : std::vector<double>{64 * kKib, kMib, 4 * kMib, 16 * kMib, 64 * kMib, 256 * kMib};
  for (const int64_t dim : dims) {
    const double row_bytes = static_cast<double>(dim) * element_bytes;
    tsr_row_cost common{};
    common.row_bytes = row_bytes;
    for (const double size : sizes) {
      const auto rows = static_cast<int64_t>(size / row_bytes);
      tsr_row_cost cell = common;
      for (int attempt = 0; attempt < (size > kHugePages ? 2 : 1); ++attempt) {
        KernelSubject subject(runtime, kernel.kernel, 1, rows, dim);
        if (size == sizes[0]) measure_bags(subject, rows, kernel, trials, &common);
        tsr_row_cost one = common;
        one.reuse_bytes = size;
        measure_cell(subject, rows, kernel, trials, &one);
        if (attempt == 0 || one.update < cell.update) cell = one;
      }
      kernel.rows.push_back(cell);
    }
  }
  return kernel;
}

}  // namespace tessera
