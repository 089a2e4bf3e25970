// Checks what a kernel keeps: views of gradients of two batches, memory and sums after many calls, equal answers in
// processes of different ranks.
#include "verify/kernel_subject.h"
#include "verify/memory_growth.h"
#include "verify/other_processes.h"

namespace tessera::cli::verify {
namespace {

BatchShape small_batches() { return {.bags = 4, .poolings = {TSR_POOLING_SUM, TSR_POOLING_MEAN, TSR_POOLING_SUM}}; }

}  // namespace

// The gradients of two batches live together, until their contexts are released.
void check_kernel_row_views(Subject& subject) {
  const Kernel k(subject);
  k.needs_rows();
  if (!k.serves(TSR_COMPUTE_DENSE)) throw Skipped("it does not serve \"dense\": it hands no gradients out");
  KernelShape shape = k.any_shape({{60, 5}, {9, 16}});
  shape.compute_kernel = TSR_COMPUTE_DENSE;
  KernelBed bed(k.with(shape));
  bed.open();
  Random random = subject.random();
  const PlainTables plain(bed, random);
  BatchShape how{.poolings = {TSR_POOLING_SUM, TSR_POOLING_MEAN}};
  const LookupBatch a(random, shape, how), b(random, shape, how);
  Outputs out_a(a, shape.output), out_b(b, shape.output), grad_a(a, shape.output), grad_b(b, shape.output);
  grad_a.randomize(random);
  grad_b.randomize(random);
  tsr_context* const of_a = bed.forward(a, out_a, true);
  tsr_context* const of_b = bed.forward(b, out_b, true);
  const auto rows_a = bed.backward_rows(a, of_a, grad_a, nullptr, 1);
  const auto rows_b = bed.backward_rows(b, of_b, grad_b, nullptr, 1);
  compare_row_gradients(rows_a, plain.gradients(a, grad_a, 1), shape);
  compare_row_gradients(rows_b, plain.gradients(b, grad_b, 1), shape);
  bed.release(of_a);
  bed.release(of_b);
}

// Small steps, so that what depends on the number of calls is noticed, and memory that is not given back.
void check_kernel_many_calls(Subject& subject) {
  const Kernel k(subject);
  k.needs_rows();
  k.needs_updates();
  KernelBed bed(k.with(k.any_shape({{7, 4}, {12, 3}})));
  bed.open();
  Random random = subject.random(11);
  PlainTables plain(bed, random);
  const int64_t steps = subject.thorough() ? 3000 : 600, warm = 200;
  MemoryGrowth growth;
  for (int64_t step = 1; step <= steps; ++step) {
    train_step(bed, plain, random, step, small_batches());
    plain.compare_rows(bed, str_cat("after step ", step));
    if (step == warm) growth.begin();
    if (step > warm && step % 50 == 0) growth.require_little("steps", step - warm);
  }
}

void check_kernel_ranks(Subject& subject) {
  const std::vector<double> sums = ask_in_processes(2, [&] {
    const Kernel k(subject);
    k.needs_rows();
    k.needs_updates();
    KernelShape shape = k.any_shape({{300, 9}, {7, 4}});
    shape.max_gradient = 0.75;
    KernelBed bed(k.with(shape));
    bed.open();
    Random random = subject.random(12);
    PlainTables plain(bed, random);
    BatchShape how = small_batches();
    how.bags = 60;
    train_step(bed, plain, random, 1, how);
    double sum = 0, place = 1;
    for (const float w : bed.export_rows(0, 300).weights) sum += w * (place += 1);
    return sum;
  });
  require(sums[0] == sums[1], "the same steps give other rows in a process with RANK=1 than with RANK=0");
}

}  // namespace tessera::cli::verify
