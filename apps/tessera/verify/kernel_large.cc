// Checks kernels with shapes beyond the bounds that small code may have: ids above 65,535, rows wider than 256 columns,
// bags of up to 1,000 ids, batches of more than 65,536 bags, and many tables.
#include "verify/kernel_subject.h"

namespace tessera::cli::verify {
namespace {

struct LargeShape {
  std::vector<TableShape> tables;
  int64_t bags, longest;
  std::vector<int32_t> poolings;
  int level = 4;
};

std::vector<LargeShape> large_shapes() {
  constexpr int32_t kSum = TSR_POOLING_SUM, kMean = TSR_POOLING_MEAN, kNone = TSR_POOLING_NONE;
  std::vector<LargeShape> all = {{{{70001, 5}}, 150, 1000, {kSum, kMean}},
                                 {{{523, 257}, {211, 1030}}, 30, 40, {kSum, kMean, kMean, kSum}},
                                 {{{50, 3}}, 66001, 2, {kSum, kMean}},
                                 {{{70001, 257}}, 20, 500, {kSum}, 5},
                                 {{{1048583, 4}}, 60, 400, {kMean, kSum, kNone}, 5},
                                 {{}, 20, 5, {}, 5}};
  for (int64_t t = 0; t < 70; ++t) {
    all.back().tables.push_back({5 + t, 1 + t % 9});
    all.back().poolings.push_back(t % 2 == 0 ? kSum : kMean);
  }
  return all;
}

// Looks rows up; then updates them, or asks for their gradients.
void one_shape(const Kernel& k, const LargeShape& large, uint64_t salt) {
  KernelShape shape = k.any_shape(large.tables);
  int64_t elements = 0;
  for (const TableShape& t : large.tables) elements += t.rows * t.dim;
  const bool heavy = elements > 4000000;  // without states, and one step, which bounds memory and time
  const char* const optimizer = heavy ? "exact_sgd" : "exact_adagrad";
  if (!KernelBed(k.with(shape, optimizer)).why_not().empty()) return;
  BatchShape how{.bags = large.bags,
                 .longest = large.longest,
                 .weighted = salt % 3 == 2,
                 .wide = salt % 2 == 0,
                 .poolings = large.poolings};
  k.subject.host().threads = 1 + static_cast<uint32_t>(salt % 3);
  Random random = k.subject.random(200 + salt);
  KernelBed bed(k.with(shape, optimizer));
  bed.open();
  PlainTables plain(bed, random);
  if (!bed.updates_rows()) {
    const LookupBatch batch(random, shape, how);
    Outputs out(batch, shape.output);
    bed.release(bed.forward(batch, out, false));
    return plain.compare_outputs(batch, out);
  }
  for (int64_t step = 1; step <= (heavy ? 1 : 2); ++step) {
    train_step(bed, plain, random, step, how);
    plain.compare_rows(bed, str_cat("after step ", step));
  }
}

void gradients_of(const Kernel& k, const LargeShape& large) {
  if (!k.serves(TSR_COMPUTE_DENSE)) return;
  KernelShape shape = k.any_shape(large.tables);
  shape.compute_kernel = TSR_COMPUTE_DENSE;
  BatchShape how{.bags = large.bags, .longest = large.longest, .poolings = large.poolings};
  KernelBed bed(k.with(shape));
  if (!bed.why_not().empty()) return;
  bed.open();
  Random random = k.subject.random(300);
  const PlainTables plain(bed, random);
  const LookupBatch batch(random, shape, how);
  Outputs out(batch, shape.output), grad(batch, shape.output);
  grad.randomize(random);
  tsr_context* context = bed.forward(batch, out, true);
  compare_row_gradients(bed.backward_rows(batch, context, grad, nullptr, 0.25), plain.gradients(batch, grad, 0.25),
                        shape);
  bed.release(context);
}

}  // namespace

void check_kernel_large(Subject& subject) {
  const Kernel k(subject);
  k.needs_rows();
  if (!k.exact()) throw Skipped("it only infers: its rows are not as they were imported");
  uint64_t salt = 0;
  for (const LargeShape& large : large_shapes()) {
    ++salt;
    if (large.level > subject.what().level) continue;
    try {
      one_shape(k, large, salt);
      if (salt <= 2) gradients_of(k, large);
    } catch (const Exhausted& e) {  // a kernel may be configured for smaller batches
      throw Skipped(str_cat("it has no room for such batches: ", e.what()));
    }
  }
}

}  // namespace tessera::cli::verify
