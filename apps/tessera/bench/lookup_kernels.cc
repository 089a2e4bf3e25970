// Kernels as subjects of `bench lookup`, and the reference that they must agree with.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "bench/bench.h"
#include "bench/lookup_subject.h"
#include "plugin/interfaces.h"
#include "tessera/sdk/kernel.h"

namespace tessera::cli {
namespace {

constexpr size_t kComparedBatches = 2;         // the second step shows whether optimizer state was kept
constexpr int64_t kComparedLookups = 1 << 18;  // lookups compared per batch, about

// Returns whichever of "fused" and "dense" the plugin serves; otherwise a compute kernel of its own, such as one that
// makes rows on demand.
std::string compute_kernel_of(const Runtime& runtime, const LookupOptions& options) {
  if (options.row_format) return TSR_COMPUTE_QUANT;
  std::string wanted = options.train ? TSR_COMPUTE_FUSED : TSR_COMPUTE_DENSE;
  if (options.kernel != "auto") {
    const tsr_kernel& api = runtime.create(TSR_KERNEL_KIND, options.kernel)->api<tsr_kernel>();
    if ((api.flags & TSR_KERNEL_ROWS_ON_DEMAND) != 0 || !plugin::serves(api, wanted)) return api.compute_kernels[0];
  }
  return wanted;
}

// Opens an instance of the kernel; if it refuses the shape, that is a usage error.
Lookup open_kernel(const Runtime& runtime, LookupOptions options, const std::string& id,
                   const OptimizerSpec& optimizer) {
  options.kernel = id;
  options.train = !optimizer.name.empty();
  options.optimizer = optimizer;
  try {
    options.compute_kernel = compute_kernel_of(runtime, options);
    return Lookup(runtime, std::move(options));
  } catch (const Error& e) {
    if (e.code() == Code::kResourceExhausted) throw;
    throw UsageError(e.what());
  }
}

void write_start_rows(const LookupShape& shape, Lookup& lookup) {
  const int64_t run = std::clamp<int64_t>((1 << 20) / shape.dim, 1, shape.rows);
  Tensor values = Tensor::empty({run, shape.dim});
  for (int64_t t = 0; t < shape.tables; ++t) {
    for (int64_t r = 0; r < shape.rows; r += run) {
      const int64_t count = std::min(run, shape.rows - r);
      start_rows(shape, t, r, count, values.data<float>());
      if (!lookup.rows_on_demand()) {
        lookup.write_rows(static_cast<int>(t), r, count, values.data<float>());
        continue;
      }
      std::vector<int64_t> ids(static_cast<size_t>(count));
      std::iota(ids.begin(), ids.end(), r);
      lookup.import_rows(static_cast<int>(t), ids, values.data<float>());
    }
  }
}

// Bytes of one row in all of an optimizer's states.
double state_bytes(const Runtime& runtime, const OptimizerSpec& optimizer, int64_t dim) {
  const ComponentPtr part = runtime.create(TSR_OPTIMIZER_KIND, optimizer.name, optimizer.options);
  const sdk::OptimizerRef updates(part->raw());
  int64_t values = 0;
  for (uint32_t k = 0; k < updates.num_states(); ++k) values += updates.state_width(k, dim);
  return static_cast<double>(values) * sizeof(float);
}

Tensor output_for(const LookupShape& shape) { return Tensor::zeros({shape.batch, shape.tables * shape.dim}); }

void train_step(Lookup& lookup, const tsr_lookup& batch, const Tensor& output, const Tensor& gradient) {
  Lookup::Context context;
  lookup.forward(batch, output, &context);
  lookup.backward(std::move(context), batch, gradient);
}

// Batches and the output in the kernel's memory.
struct Timed {
  Timed(const LookupShape& s, const LookupBatches& b) : stream(s.stream), batches(b), output(place(output_for(s))) {
    for (const auto& batch : batches) {
      if (stream) on_device.push_back(batch->on_device(s));
    }
  }
  Tensor place(const Tensor& host) const { return stream ? stream->to_device(host) : host; }
  const tsr_lookup& batch(size_t b) const { return (stream ? on_device : batches)[b]->raw(); }

  DeviceStreamPtr stream;
  const LookupBatches& batches;
  LookupBatches on_device;
  Tensor output;
};

// Compares sums of many terms that were added in another order. `terms` is the number of terms of size about 1, which
// may cancel; large sums get a relative error. `rounding` is the error of each term, if updates have stored it again.
bool close(const float* a, const float* b, int64_t n, double terms, double rounding) {
  for (int64_t i = 0; i < n; ++i) {
    const double bound = 1e-5 + 1e-6 * terms + 1e-4 * std::abs(b[i]) + 2 * rounding * (terms + std::abs(b[i]));
    if (!(std::abs(a[i] - b[i]) <= bound)) return false;  // the condition is written so that NaN fails
  }
  return true;
}

}  // namespace

LookupReference::LookupReference(const Runtime& runtime, const LookupShape& shape, const LookupBatches& batches,
                                 const OptimizerSpec& optimizer)
    : shape_(shape),
      batches_(batches),
      every_((shape.lookups() + kComparedLookups - 1) / kComparedLookups),
      touched_(static_cast<size_t>(shape.tables)) {
  const size_t compared = std::min(kComparedBatches, batches.size());
  find_touched(compared);
  std::vector<int64_t> counts;
  for (const std::vector<int64_t>& rows : touched_) counts.push_back(static_cast<int64_t>(rows.size()));
  Lookup lookup = open_kernel(runtime, lookup_options(shape, counts), "reference", optimizer);
  std::vector<float> row(static_cast<size_t>(shape.dim));
  for (int64_t t = 0; t < shape.tables; ++t) {
    for (int64_t i = 0; i < counts[static_cast<size_t>(t)]; ++i) {
      stored_rows(shape, t, touched_[static_cast<size_t>(t)][static_cast<size_t>(i)], 1, row.data());
      lookup.write_rows(static_cast<int>(t), i, 1, row.data());
    }
  }
  if (!optimizer.name.empty()) gradient_ = output_gradient(shape);
  for (size_t b = 0; b < compared; ++b) {
    const auto batch = touching(*batches[b]);
    outputs_.push_back(output_for(shape));
    if (gradient_.defined()) {
      train_step(lookup, batch->raw(), outputs_.back(), gradient_);
    } else {
      lookup.forward(batch->raw(), outputs_.back(), nullptr);
    }
  }
  for (int64_t t = 0; gradient_.defined() && t < shape.tables; ++t) rows_.push_back(lookup.weight(static_cast<int>(t)));
}

void LookupReference::find_touched(size_t compared) {
  for (int64_t t = 0; t < shape_.tables; ++t) {
    std::vector<int64_t>& rows = touched_[static_cast<size_t>(t)];
    for (size_t b = 0; b < compared; ++b) {
      const int64_t* ids = batches_[b]->ids() + t * shape_.batch * shape_.pooling;
      for (int64_t bag = 0; bag < shape_.batch; bag += every_)
        rows.insert(rows.end(), ids + bag * shape_.pooling, ids + (bag + 1) * shape_.pooling);
    }
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  }
}

std::unique_ptr<LookupBatch> LookupReference::touching(const LookupBatch& batch) const {
  std::vector<int64_t> ids, offsets{0};
  for (int64_t bag = 0; bag < shape_.bags(); ++bag) {
    const std::vector<int64_t>& rows = touched_[static_cast<size_t>(bag / shape_.batch)];
    for (int64_t i = bag * shape_.pooling; i < (bag + 1) * shape_.pooling; ++i) {
      const auto at = std::lower_bound(rows.begin(), rows.end(), batch.ids()[i]);
      if (at != rows.end() && *at == batch.ids()[i]) ids.push_back(at - rows.begin());
    }
    offsets.push_back(static_cast<int64_t>(ids.size()));
  }
  return std::make_unique<LookupBatch>(shape_, Tensor::from(ids), Tensor::from(offsets));
}

bool LookupReference::agrees(Lookup& lookup) const {
  Tensor output = output_for(shape_);
  for (size_t b = 0; b < outputs_.size(); ++b) {
    output.fill(NAN);  // an element that is not written then compares unequal to anything
    if (gradient_.defined()) {
      train_step(lookup, batches_[b]->raw(), output, gradient_);
    } else {
      lookup.forward(batches_[b]->raw(), output, nullptr);
    }
    const double rounding = gradient_.defined() ? shape_.rounding() : 0;
    const int64_t width = shape_.tables * shape_.dim;
    for (int64_t bag = 0; bag < shape_.batch; bag += every_) {
      const float *got = output.data<float>() + bag * width, *want = outputs_[b].data<float>() + bag * width;
      if (!close(got, want, width, static_cast<double>(shape_.pooling), rounding)) return false;
    }
  }
  for (int64_t t = 0; gradient_.defined() && t < shape_.tables; ++t) {
    if (!same_rows(lookup, t)) return false;
  }
  return true;
}

namespace {

// Reads a row as a lookup returns it.
void read_row(Lookup& lookup, int64_t t, int64_t id, std::vector<float>& row) {
  if (!lookup.rows_on_demand()) return lookup.read_rows(static_cast<int>(t), id, 1, row.data());
  const int64_t dim = std::ssize(row);
  const LookupShape one{.tables = 1, .dim = dim, .batch = 1, .pooling = 1};
  const LookupBatch batch(one, Tensor::from<int64_t>({id}));
  tsr_lookup_feature feature = batch.raw().features[0];
  feature.table = static_cast<int32_t>(t);
  tsr_lookup raw = batch.raw();
  raw.features = &feature;
  lookup.forward(raw, Tensor::borrow(row.data(), {1, dim}, DType::kFloat32), nullptr);
}

}  // namespace

bool LookupReference::same_rows(Lookup& lookup, int64_t t) const {
  const std::vector<int64_t>& touched = touched_[static_cast<size_t>(t)];
  std::vector<float> row(static_cast<size_t>(shape_.dim)), start(row.size());
  for (size_t i = 0; i < touched.size(); ++i) {
    read_row(lookup, t, touched[i], row);
    const float* expected = rows_[static_cast<size_t>(t)].data<float>() + static_cast<int64_t>(i) * shape_.dim;
    if (!close(row.data(), expected, shape_.dim, 1, shape_.rounding())) return false;
    const int64_t beside = touched[i] + 1;
    if (beside == shape_.rows || (i + 1 < touched.size() && touched[i + 1] == beside)) continue;
    read_row(lookup, t, beside, row);
    stored_rows(shape_, t, beside, 1, start.data());
    if (row != start) return false;
  }
  return true;
}

LookupSubject kernel_subject(const Runtime& runtime, const std::string& id, const LookupShape& shape,
                             const LookupBatches& batches, const OptimizerSpec& optimizer,
                             const LookupReference& reference) {
  const std::vector<int64_t> rows(static_cast<size_t>(shape.tables), shape.rows);
  LookupOptions options = lookup_options(shape, rows);
  options.row_format = shape.format;
  options.stream = shape.stream;
  auto lookup = std::make_shared<Lookup>(open_kernel(runtime, options, id, optimizer));
  write_start_rows(shape, *lookup);
  LookupSubject subject{.kernel = lookup->kernel_id(), .verified = reference.agrees(*lookup)};
  if (lookup->rows_on_demand()) {  // all rows fit until this point
    for (LookupTable& table : options.tables) {
      table.any_id = true;
      table.rows = static_cast<int64_t>(std::ceil(static_cast<double>(shape.rows) / shape.load));
    }
    lookup = std::make_shared<Lookup>(open_kernel(runtime, options, id, optimizer));
    write_start_rows(shape, *lookup);
  }
  const auto there = std::make_shared<const Timed>(shape, batches);
  const double read = static_cast<double>(shape.lookups() * shape.row_bytes());
  LookupWay way;
  if (optimizer.name.empty()) {
    subject.bytes = read;
    way.run = [lookup, there](size_t b) { lookup->forward(there->batch(b), there->output, nullptr); };
  } else {
    subject.pass = LookupPass::kTrain;
    subject.optimizer = optimizer.name;
    const double written = 2 * distinct_rows(shape, batches);
    subject.bytes = read + written * static_cast<double>(shape.row_bytes());
    subject.moved = subject.bytes + written * state_bytes(runtime, optimizer, shape.dim);
    way.run = [lookup, there, gradient = there->place(output_gradient(shape))](size_t b) {
      train_step(*lookup, there->batch(b), there->output, gradient);
    };
  }
  if (shape.stream) way.wait = [stream = shape.stream] { stream->synchronize(); };
  subject.ways.push_back(std::move(way));
  return subject;
}

LookupSubject copy_subject(const LookupShape& shape) {
  const int64_t bytes = shape.lookups() * shape.row_bytes();
  const Tensor from = shape.stream->empty({bytes}, DType::kUInt8), to = shape.stream->empty({bytes}, DType::kUInt8);
  const auto copy = [stream = shape.stream, from, to](size_t) { stream->copy(from, to); };
  shape.stream->fill(from, 7);
  shape.stream->fill(to, 0);
  copy(0);
  LookupSubject subject;
  subject.kernel = "copy";
  subject.pass = LookupPass::kCopy;
  subject.bytes = 2 * static_cast<double>(bytes);
  subject.verified = in_host_memory(to.narrow(bytes - 1, 1)).item() == 7;
  LookupWay way;
  way.run = copy;
  way.wait = [stream = shape.stream] { stream->synchronize(); };
  subject.ways.push_back(std::move(way));
  return subject;
}

}  // namespace tessera::cli
