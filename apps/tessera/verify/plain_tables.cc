#include <algorithm>
#include <cmath>

#include "tessera/sdk/half.h"
#include "verify/kernel_bed.h"

namespace tessera::cli::verify {
namespace {

// The value after rounding to a row's type.
float stored(DLDataType type, double value) {
  const float f = static_cast<float>(value);
  if (type.bits == 32) return f;
  return type.code == kDLFloat ? sdk::half_to_float(sdk::float_to_half(f))
                               : sdk::bfloat16_to_float(sdk::float_to_bfloat16(f));
}

double step_of(DLDataType type) { return type.bits == 32 ? 2e-5 : type.code == kDLFloat ? 2e-3 : 1.6e-2; }
double tolerance(DLDataType type, double want) { return step_of(type) * (4 + 10 * std::abs(want)); }

// The largest distance between neighbouring numbers of the type at this size; 0 if it is negligible.
double spacing(DLDataType type, double size) {
  const double digits = type.bits == 32 ? 0 : type.code == kDLFloat ? 0x1p-10 : 0x1p-7;
  return digits * size;
}

constexpr double kLargest = 2;          // size of initial rows
constexpr double kOffTogether = 0.004;  // part by which the change of all rows of a table may be off

const char* pooling_name(int32_t pooling) {
  constexpr const char* kNames[] = {"NONE", "SUM", "MEAN", "MAX"};
  return kNames[pooling];
}

}  // namespace

PlainTables::PlainTables(KernelBed& bed, Random& random) : bed_(bed), shape_(bed.shape()) {
  require(TSR_HAS(tsr_kernel, &bed.api(), import_rows) && TSR_HAS(tsr_kernel, &bed.api(), export_rows), "");
  for (size_t t = 0; t < shape_.tables.size(); ++t) {
    const auto [rows, dim] = shape_.tables[t];
    KernelBed::Rows made;
    for (int64_t r = 0; r < rows; ++r) made.ids.push_back(r);
    for (int64_t i = 0; i < rows * dim; ++i)
      made.weights.push_back(stored(shape_.weights, static_cast<double>(between(random, -1000, 1000)) / 500));
    for (uint32_t k = 0; k < bed.num_states(); ++k)
      made.states.emplace_back(static_cast<size_t>(rows * bed.state_width(k, t)),
                               static_cast<float>(bed.updates().state(k).start));
    bed.import_rows(t, made);
    rows_.push_back(std::move(made));
  }
}

double PlainTables::value(const tsr_lookup_feature& f, int64_t id, int64_t d) const {
  const auto t = static_cast<size_t>(f.table);
  return rows_[t].weights[static_cast<size_t>(id * shape_.tables[t].dim + d)];
}

int64_t PlainTables::winner(const LookupBatch& batch, const tsr_lookup_feature& f, int64_t bag, int64_t d) const {
  int64_t best = -1;
  double most = 0;
  for (int64_t p = batch.begin(f, bag); p < batch.begin(f, bag + 1); ++p) {
    const double v = value(f, static_cast<int64_t>(batch.ids->get(p)), d);
    if (best >= 0 && !(v > most)) continue;
    best = p;
    most = v;
  }
  return best;
}

void PlainTables::compare_outputs(const LookupBatch& batch, Outputs& got) const {
  std::vector<std::vector<double>> want(got.size());
  for (size_t k = 0; k < got.size(); ++k) want[k].assign(static_cast<size_t>(got[k].size()), 0.0);
  std::vector<std::vector<const tsr_lookup_feature*>> whose(got.size());
  for (size_t k = 0; k < got.size(); ++k) whose[k].assign(want[k].size(), nullptr);
  for (const tsr_lookup_feature& f : batch.features) {
    const int64_t dim = shape_.tables[static_cast<size_t>(f.table)].dim;
    for (int64_t b = 0; b < f.bags; ++b) {
      const int64_t begin = batch.begin(f, b), end = batch.begin(f, b + 1);
      const bool sequence = f.pooling == TSR_POOLING_NONE;
      for (int64_t p = begin; p < (sequence ? end : begin + 1); ++p) {
        for (int64_t d = 0; d < dim; ++d) whose[f.output][static_cast<size_t>(batch.place(f, b, p) + d)] = &f;
      }
      for (int64_t p = begin; p < end; ++p) {
        const double w = batch.weights == nullptr ? 1 : batch.weights->get(p);
        const double share = f.pooling == TSR_POOLING_MEAN ? w / static_cast<double>(end - begin) : w;
        for (int64_t d = 0; d < dim; ++d) {
          if (f.pooling == TSR_POOLING_MAX && winner(batch, f, b, d) != p) continue;
          want[f.output][static_cast<size_t>(batch.place(f, b, p) + d)] +=
              share * value(f, static_cast<int64_t>(batch.ids->get(p)), d);
        }
      }
    }
  }
  for (size_t k = 0; k < got.size(); ++k) {
    for (size_t i = 0; i < want[k].size(); ++i) {
      const double is = got[k].get(static_cast<int64_t>(i));
      if (whose[k][i] == nullptr) {
        require(is == kUntouched, "forward wrote element ", i, " of output ", k, ", which belongs to no feature");
        continue;
      }
      require(std::abs(is - want[k][i]) <= tolerance(shape_.output, want[k][i]), "forward (", shape_.text(),
              ", pooling ", pooling_name(whose[k][i]->pooling), batch.weights ? ", weighted" : "", ") gave ", is,
              " for element ", i, " of output ", k, ", but plain loops give ", want[k][i]);
    }
  }
}

double PlainTables::reaching(const LookupBatch& batch, const tsr_lookup_feature& f, int64_t bag, int64_t position,
                             int64_t d, Outputs& grad, double scale) const {
  if (f.pooling == TSR_POOLING_MAX && winner(batch, f, bag, d) != position) return 0;
  double g = grad[f.output].get(batch.place(f, bag, position) + d) * scale;
  if (shape_.max_gradient > 0) g = std::clamp(g, -shape_.max_gradient, shape_.max_gradient);
  const double length = static_cast<double>(batch.begin(f, bag + 1) - batch.begin(f, bag));
  return f.pooling == TSR_POOLING_MEAN ? g / length : g;
}

PlainTables::RowGradients PlainTables::gradients(const LookupBatch& batch, Outputs& grad, double scale) const {
  RowGradients sums(shape_.tables.size());
  for (const tsr_lookup_feature& f : batch.features) {
    const int64_t dim = shape_.tables[static_cast<size_t>(f.table)].dim;
    for (int64_t b = 0; b < f.bags; ++b) {
      for (int64_t p = batch.begin(f, b); p < batch.begin(f, b + 1); ++p) {
        auto& sum = sums[static_cast<size_t>(f.table)]
                        .try_emplace(static_cast<int64_t>(batch.ids->get(p)), static_cast<size_t>(dim), 0.0)
                        .first->second;
        const double w = batch.weights == nullptr ? 1 : batch.weights->get(p);
        for (int64_t d = 0; d < dim; ++d) sum[static_cast<size_t>(d)] += w * reaching(batch, f, b, p, d, grad, scale);
      }
    }
  }
  return sums;
}

void PlainTables::compare_weight_gradients(const LookupBatch& batch, Outputs& grad, double scale,
                                           const Array& got) const {
  got.check_end("backward, in grad_weights,");
  for (const tsr_lookup_feature& f : batch.features) {
    const int64_t dim = shape_.tables[static_cast<size_t>(f.table)].dim;
    for (int64_t b = 0; b < f.bags; ++b) {
      for (int64_t p = batch.begin(f, b); p < batch.begin(f, b + 1); ++p) {
        double want = 0;
        for (int64_t d = 0; d < dim; ++d)
          want += reaching(batch, f, b, p, d, grad, scale) * value(f, static_cast<int64_t>(batch.ids->get(p)), d);
        const double bound = tolerance(shape_.output, want) * std::sqrt(static_cast<double>(dim));
        require(std::abs(got.get(p) - want) <= bound, "the gradient of the weight at position ", p, " is ", got.get(p),
                ", but plain loops give ", want, " (", shape_.text(), ", pooling ", pooling_name(f.pooling), ")");
      }
    }
  }
}

std::vector<float*> PlainTables::states_of(size_t table, int64_t row) {
  std::vector<float*> out(sdk::OptimizerRef::kMaxStates);
  for (uint32_t k = 0; k < bed_.num_states(); ++k)
    out[k] = rows_[table].states[k].data() + row * bed_.state_width(k, table);
  return out;
}

void PlainTables::update(const RowGradients& gradients, int64_t step) {
  const tsr_update how{sizeof(tsr_update), 0, learning_rate_at(step), step};
  const sdk::OptimizerRef& optimizer = bed_.updates();
  if (before_.empty()) {
    for (const KernelBed::Rows& rows : rows_) before_.push_back(rows.weights);
    for (const KernelBed::Rows& rows : rows_) changes_.emplace_back(rows.weights.size());
  }
  for (size_t t = 0; t < gradients.size(); ++t) {
    const auto dim = static_cast<size_t>(shape_.tables[t].dim);
    for (const auto& [row, sum] : gradients[t]) {
      const std::vector<float> grad(sum.begin(), sum.end());
      float* weight = rows_[t].weights.data() + static_cast<size_t>(row) * dim;
      double* change = changes_[t].data() + static_cast<size_t>(row) * dim;
      for (size_t d = 0; d < dim; ++d) change[d] -= weight[d];
      std::vector<float*> states = states_of(t, row);
      optimizer.update_row(how, static_cast<int64_t>(dim), weight, grad.data(), states.data());
      for (size_t d = 0; d < dim; ++d) {
        change[d] += weight[d];
        weight[d] = stored(shape_.weights, weight[d]);
      }
    }
  }
}

// A kernel that rounds to the nearest value changes rows as plain loops do. One that rounds otherwise, as at random,
// changes them by what there was before rounding, in the mean.
void PlainTables::compare_changes(size_t table, const KernelBed::Rows& got, const std::string& when) const {
  if (before_.empty()) return;
  const auto dim = static_cast<size_t>(shape_.tables[table].dim);
  double largest = kLargest;
  struct {
    double both = 0, wanted = 0;
    void add(double change, double want) {
      both += change * want;
      wanted += want * want;
    }
    double off() const { return std::abs(both / wanted - 1); }
  } rounded, exact;
  for (size_t i = 0; i < got.weights.size(); ++i) {
    const size_t at = static_cast<size_t>(got.ids[i / dim]) * dim + i % dim;
    const double was = before_[table][at], change = got.weights[i] - was;
    rounded.add(change, rows_[table].weights[at] - was);
    exact.add(change, changes_[table][at]);
    largest = std::max(largest, std::abs(double{got.weights[i]}));
  }
  if (exact.wanted == 0) return;
  const double noise = spacing(shape_.weights, kLargest) / std::sqrt(12 * rounded.wanted);
  if (rounded.wanted > 0 && rounded.off() <= kOffTogether + 4 * noise) return;
  const double at_random = spacing(shape_.weights, largest) / std::sqrt(6 * exact.wanted);  // its deviation at most
  require(exact.off() <= kOffTogether + 6 * at_random, "all rows of a table of ", shape_.tables[table].rows,
          " rows together changed by ", exact.both / exact.wanted, " times what plain loops change them by, ", when,
          " (", shape_.text(), ")");
}

void PlainTables::compare_rows(KernelBed& bed, const std::string& when) {
  for (size_t t = 0; t < shape_.tables.size(); ++t) {
    const KernelBed::Rows got = bed.export_rows(t, std::max<int64_t>(1, shape_.tables[t].rows));
    require(got.ids.size() == rows_[t].ids.size(), "export_rows gave ", got.ids.size(), " of ", rows_[t].ids.size(),
            " rows");
    const auto dim = static_cast<size_t>(shape_.tables[t].dim);
    for (size_t i = 0; i < got.weights.size(); ++i) {
      const auto id = static_cast<size_t>(got.ids[i / dim]);
      const double want = rows_[t].weights[id * dim + i % dim], is = got.weights[i];
      // Accepts either neighbour, and formulas that round twice.
      const double bound =
          5e-5 * (1 + std::abs(want)) + 2 * spacing(shape_.weights, std::max(kLargest, std::abs(want)));
      require(std::abs(is - want) <= bound, "column ", i % dim, " of row ", id, " of a table of ",
              shape_.tables[t].rows, " rows is ", is, " ", when, ", but plain loops give ", want, " (", shape_.text(),
              ")");
    }
    compare_changes(t, got, when);
    for (size_t i = 0; i < got.weights.size(); ++i)
      rows_[t].weights[static_cast<size_t>(got.ids[i / dim]) * dim + i % dim] = got.weights[i];
    for (uint32_t k = 0; k < got.states.size(); ++k) {
      const auto width = static_cast<size_t>(bed.state_width(k, t));
      for (size_t i = 0; i < got.states[k].size(); ++i) {
        const double want = rows_[t].states[k][static_cast<size_t>(got.ids[i / width]) * width + i % width];
        require(std::abs(got.states[k][i] - want) <= 4 * tolerance(kFloat32, want), "state ",
                bed.updates().state(k).name, " of row ", got.ids[i / width], " is ", got.states[k][i], " ", when,
                ", but plain loops give ", want);
      }
    }
  }
  before_.clear();
  changes_.clear();
}

void train_step(KernelBed& bed, PlainTables& plain, Random& random, int64_t step) {
  BatchShape how{.weighted = step % 2 == 0, .wide = step % 3 != 0};
  for (size_t f = 0; f < bed.shape().tables.size() + 3; ++f)  // some tables are read by two features
    how.poolings.push_back(f % 3 == 1 ? TSR_POOLING_MEAN : TSR_POOLING_SUM);
  if (!how.weighted) how.poolings.push_back(TSR_POOLING_NONE);
  train_step(bed, plain, random, step, how);
}

void train_step(KernelBed& bed, PlainTables& plain, Random& random, int64_t step, const BatchShape& how) {
  const double scale = 1.0 / static_cast<double>(1 + step % 3);
  const LookupBatch batch(random, bed.shape(), how);
  Outputs out(batch, bed.shape().output), grad(batch, bed.shape().output);
  grad.randomize(random);
  tsr_context* context = bed.forward(batch, out, true);
  plain.compare_outputs(batch, out);
  require(context != nullptr, "forward kept no context for backward");
  const PlainTables::RowGradients gradients = plain.gradients(batch, grad, scale);
  std::optional<Array> grad_weights;
  if (how.weighted) grad_weights.emplace(kFloat32, std::vector<int64_t>{batch.ids->size()});
  bed.backward(batch, context, grad, grad_weights ? &*grad_weights : nullptr, scale, step);
  if (grad_weights) plain.compare_weight_gradients(batch, grad, scale, *grad_weights);
  plain.update(gradients, step);
}

}  // namespace tessera::cli::verify
