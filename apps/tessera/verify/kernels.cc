// Checks kernels in host memory: compares them with plain loops over random jagged batches, and tests their duties to
// callers.
#include <cmath>
#include <cstring>

#include "verify/kernel_subject.h"

namespace tessera::cli::verify {
namespace {

const std::vector<TableShape> kTables = {{7, 4}, {1, 16}, {40, 17}, {300, 32}, {0, 8}, {25, 64}, {90, 1}, {33, 128}};
const std::vector<int32_t> kPoolings = {TSR_POOLING_SUM,  TSR_POOLING_MEAN, TSR_POOLING_SUM, TSR_POOLING_NONE,
                                        TSR_POOLING_MEAN, TSR_POOLING_SUM,  TSR_POOLING_SUM, TSR_POOLING_MEAN,
                                        TSR_POOLING_SUM,  TSR_POOLING_MEAN, TSR_POOLING_SUM};

// ---- level 3 ----

void check_kernel_supports(Subject& subject) {
  const Kernel k(subject);
  require(k.api.compute_kernels[0] != nullptr, "it lists no compute kernel");
  const auto refuses = [&](KernelShape shape, DLDevice device, const char* what) {
    KernelBed bed(k.with(std::move(shape)));
    tsr_kernel_config config = bed.config();
    config.device = device;
    subject.doing(str_cat("supports for ", what));
    Call call;
    const tsr_code code = k.api.supports(k.part.self(), &config, call.out());
    call.fails(code, str_cat("supports for ", what));
  };
  KernelShape shape = k.any_shape();
  shape.compute_kernel = "verify_knows_no_such_kernel";
  refuses(shape, {kDLCPU, 0}, "a compute kernel that does not exist");
  shape = k.any_shape();
  shape.weights = {kDLComplex, 128, 1};
  refuses(shape, {kDLCPU, 0}, "rows of complex numbers");
  constexpr auto kNoDevice = static_cast<DLDeviceType>(5);  // a number that DLPack assigns to no device
  refuses(k.any_shape(), {kNoDevice, 0}, "a device type that does not exist");
}

// The output of forward for a batch. `longer`: every struct is longer than the plugin knows.
std::vector<double> looked_up(const Kernel& k, bool longer) {
  KernelBed bed(k.with(k.any_shape()), longer);
  bed.open();
  Random random = k.subject.random();
  const PlainTables plain(bed, random);
  BatchShape how{.poolings = {TSR_POOLING_SUM, TSR_POOLING_MEAN, TSR_POOLING_SUM}};
  LookupBatch batch(random, bed.shape(), how);
  struct LongFeature {
    tsr_lookup_feature feature;
    unsigned char more[24];
  };
  std::vector<LongFeature> features;
  for (const tsr_lookup_feature& f : batch.features) {
    features.push_back({f, {}});
    std::memset(features.back().more, 0xC3, sizeof(LongFeature::more));
  }
  if (longer) {
    batch.raw.features = &features[0].feature;
    batch.raw.feature_stride = sizeof(LongFeature);
  }
  Outputs out(batch, bed.shape().output);
  bed.forward(batch, out, false);
  std::vector<double> values;
  for (int64_t i = 0; i < out[0].size(); ++i) values.push_back(out[0].get(i));
  return values;
}

void check_kernel_longer_structs(Subject& subject) {
  const Kernel k(subject);
  k.needs_rows();
  const std::vector<double> want = looked_up(k, false);
  try {
    require(looked_up(k, true) == want, "forward gives something else when the host's structs are longer");
  } catch (const Skipped& e) {
    broken("supports refuses a config when the host's structs are longer: ", e.what());
  }
}

void check_kernel_no_memory(Subject& subject) {
  const Kernel k(subject);
  KernelBed bed(k.with(k.any_shape()));
  if (const std::string why = bed.why_not(); !why.empty()) throw Skipped(why);
  const int64_t before = subject.host().live_bytes();
  for (int64_t allowed = 0; allowed < 16; ++allowed) {
    subject.host().allow(allowed);
    Call call;
    const tsr_code code = bed.try_open(call);
    subject.host().allow(-1);
    call.fails_well(code, str_cat("open with memory for ", allowed, " blocks"));
    if (code == TSR_OK) return;
    require(code == TSR_RESOURCE_EXHAUSTED, "open fails with ", name_of(code),
            " when memory runs out, but that is TSR_RESOURCE_EXHAUSTED");
    require(subject.host().live_bytes() == before, "an open that failed keeps ", subject.host().live_bytes() - before,
            " bytes of the host");
  }
}

void check_kernel_close(Subject& subject) {
  const Kernel k(subject);
  const int64_t before = subject.host().live_bytes();
  for (int i = 0; i < 3; ++i) {
    KernelBed bed(k.with(k.any_shape()));
    bed.open();
    Random random = subject.random();
    BatchShape how{.poolings = {TSR_POOLING_SUM, TSR_POOLING_SUM}};
    const LookupBatch batch(random, bed.shape(), how);
    Outputs out(batch, bed.shape().output);
    tsr_context* first = bed.forward(batch, out, bed.shape().train);
    tsr_context* second = bed.forward(batch, out, bed.shape().train);
    bed.release(first);
    bed.release(second);
    for (uint32_t t = 0; t < bed.config().num_tables; ++t) {
      auto stats = sdk::sized<tsr_kernel_stats>();
      Call call;
      call.succeeds(k.api.stats(bed.instance(), t, &stats, call.out()), "stats");
      const uint64_t ids = 2 * static_cast<uint64_t>(batch.ids_of(t));
      require(stats.hits <= ids && stats.rows_in_use <= static_cast<uint64_t>(bed.shape().tables[t].rows),
              "stats of table ", t, " counts ", stats.hits, " hits among ", ids, " lookups, and ", stats.rows_in_use,
              " rows in use");
      require(stats.lookups == ids, "after lookups of ", ids, " ids in table ", t, ", stats counts ", stats.lookups);
    }
  }
  require(subject.host().live_bytes() == before, "after close it holds ", subject.host().live_bytes() - before,
          " bytes that the host lent");
}

// ---- level 4 ----

// Compares forward for one shape, if it is supported.
void compare_forward(const Kernel& k, KernelShape shape, const BatchShape& how, uint64_t salt) {
  KernelBed bed(k.with(std::move(shape)));
  if (!bed.why_not().empty()) return;
  bed.open();
  Random random = k.subject.random(salt);
  const PlainTables plain(bed, random);
  const LookupBatch batch(random, bed.shape(), how);
  Outputs out(batch, bed.shape().output);
  bed.release(bed.forward(batch, out, salt % 2 == 0 && bed.shape().train));
  plain.compare_outputs(batch, out);
}

void check_kernel_forward(Subject& subject) {
  const Kernel k(subject);
  k.needs_rows();
  if (!k.exact()) throw Skipped("it only infers: its rows are not as they were imported");
  uint64_t salt = 0;
  for (const DLDataType rows : {kFloat32, kFloat16, kBFloat16}) {
    for (const DLDataType output : {kFloat32, kFloat16, kBFloat16}) {
      for (const bool weighted : {false, true}) {
        KernelShape shape = k.any_shape(kTables);
        shape.weights = rows;
        shape.output = output;
        BatchShape how{.weighted = weighted, .poolings = kPoolings};
        if (weighted) how.poolings[3] = TSR_POOLING_SUM;
        how.wide = ++salt % 2 == 0;
        subject.host().threads = 1 + static_cast<uint32_t>(salt % 3);
        compare_forward(k, shape, how, salt);
      }
    }
  }
  BatchShape how{.poolings = {TSR_POOLING_MAX, TSR_POOLING_SUM, TSR_POOLING_MAX}};
  try {
    compare_forward(k, k.any_shape(kTables), how, 100);
  } catch (const Unimplemented&) {  // the kernel has no MAX pooling
  }
  how.poolings = {TSR_POOLING_SUM, TSR_POOLING_MEAN};
  how.longest = 0;
  compare_forward(k, k.any_shape(kTables), how, 101);
  how.bags = 0;
  compare_forward(k, k.any_shape(kTables), how, 102);
  how = {.bags = 2000, .longest = 20, .poolings = {TSR_POOLING_SUM, TSR_POOLING_SUM, TSR_POOLING_MEAN}};
  compare_forward(k, k.any_shape({{5000, 16}, {3, 32}}), how, 103);
}

void check_kernel_placed_rows(Subject& subject) {
  const Kernel k(subject);
  k.needs_rows();
  if ((k.api.flags & TSR_KERNEL_PLACES_ROWS) == 0) throw Skipped("it does not say TSR_KERNEL_PLACES_ROWS");
  if (!k.exact()) throw Skipped("it only infers: its rows are not as they were imported");
  BatchShape how{.poolings = {TSR_POOLING_SUM, TSR_POOLING_MEAN, TSR_POOLING_SUM, TSR_POOLING_SUM, TSR_POOLING_MEAN},
                 .listed = true};
  for (uint64_t salt = 0; salt < 6; ++salt) compare_forward(k, k.any_shape(kTables), how, salt);
}

void check_kernel_update(Subject& subject) {
  const Kernel k(subject);
  k.needs_rows();
  k.needs_updates();
  uint64_t salt = 0;
  std::string why_not;
  bool any = false;
  for (const char* optimizer : {"exact_sgd", "exact_adagrad", "exact_rowwise_adagrad", "adam"}) {
    for (const DLDataType rows : {kFloat32, kFloat16, kBFloat16}) {
      KernelShape shape = k.any_shape(kTables);
      shape.weights = rows;
      shape.max_gradient = ++salt % 2 == 0 ? 0.6 : 0;  // each type in turn gets a limit
      subject.host().threads = 1 + static_cast<uint32_t>(salt / 2 % 3);
      KernelBed bed(k.with(shape, optimizer));
      if (why_not = bed.why_not(); !why_not.empty()) continue;
      any = true;
      bed.open();
      Random random = subject.random(salt);
      PlainTables plain(bed, random);
      for (int64_t step = 1; step <= 3; ++step) {
        train_step(bed, plain, random, step);
        plain.compare_rows(bed, str_cat("after step ", step, " of ", optimizer));
      }
    }
  }
  if (!any) throw Skipped(why_not);
}

void compare_gradients(const Kernel& k, uint64_t salt, const std::vector<int32_t>& poolings) {
  KernelShape shape = k.any_shape(kTables);
  shape.compute_kernel = TSR_COMPUTE_DENSE;
  shape.max_gradient = salt == 3 ? 0.6 : 0;
  KernelBed bed(k.with(shape));
  bed.open();
  Random random = k.subject.random(salt);
  const PlainTables plain(bed, random);
  BatchShape how{.weighted = salt % 2 == 0, .wide = salt % 3 == 0, .poolings = poolings};
  const LookupBatch batch(random, shape, how);
  Outputs out(batch, shape.output), grad(batch, shape.output);
  grad.randomize(random);
  tsr_context* context = bed.forward(batch, out, true);
  Array grad_weights(kFloat32, {batch.ids->size()});
  const auto got = bed.backward_rows(batch, context, grad, how.weighted ? &grad_weights : nullptr, 0.25);
  compare_row_gradients(got, plain.gradients(batch, grad, 0.25), shape);
  if (how.weighted) plain.compare_weight_gradients(batch, grad, 0.25, grad_weights);
  bed.release(context);
}

void check_kernel_gradients(Subject& subject) {
  const Kernel k(subject);
  k.needs_rows();
  if (!k.serves("dense")) throw Skipped("it does not serve \"dense\": it hands no gradients out");
  for (uint64_t salt = 1; salt <= 6; ++salt) compare_gradients(k, salt, kPoolings);
  try {
    compare_gradients(k, 7, {TSR_POOLING_MAX, TSR_POOLING_SUM, TSR_POOLING_MAX});
  } catch (const Unimplemented&) {  // the kernel has no MAX pooling
  }
}

// Two batches are under way at once, and the second one's backward comes first.
void check_kernel_contexts(Subject& subject) {
  const Kernel k(subject);
  k.needs_rows();
  k.needs_updates();
  KernelBed bed(k.with(k.any_shape(kTables)));
  bed.open();
  Random random = subject.random();
  PlainTables plain(bed, random);
  BatchShape how{.poolings = kPoolings};
  const LookupBatch a(random, bed.shape(), how), b(random, bed.shape(), how);
  Outputs out_a(a, kFloat32), out_b(b, kFloat32), grad_a(a, kFloat32), grad_b(b, kFloat32);
  grad_a.randomize(random);
  grad_b.randomize(random);
  tsr_context* of_a = bed.forward(a, out_a, true);
  tsr_context* of_b = bed.forward(b, out_b, true);
  plain.compare_outputs(a, out_a);
  plain.compare_outputs(b, out_b);
  const auto first = plain.gradients(b, grad_b, 1);
  bed.backward(b, of_b, grad_b, nullptr, 1, 1);
  plain.update(first, 1);
  const auto second = plain.gradients(a, grad_a, 1);
  bed.backward(a, of_a, grad_a, nullptr, 1, 2);
  plain.update(second, 2);
  plain.compare_rows(bed, "after two batches whose contexts lived together");
}

// Applies gradients of some rows of a table, three times.
void apply_to(const Kernel& k, TableShape table, const std::vector<int64_t>& some) {
  Subject& subject = k.subject;
  const int64_t dim = table.dim, count = static_cast<int64_t>(some.size());
  KernelBed bed(k.with(k.any_shape({table}), "exact_adagrad"));
  bed.open();
  Random random = subject.random();
  PlainTables plain(bed, random);
  PlainTables::RowGradients gradients(1);
  for (const int64_t row : some) {
    for (int64_t d = 0; d < dim; ++d) gradients[0][row].push_back(static_cast<double>(between(random, -64, 64)) / 32);
  }
  Array rows({kDLInt, 64, 1}, {count}), values(kFloat32, {count, dim});
  int64_t i = 0;
  for (const auto& [row, sum] : gradients[0]) {
    rows.set(i, static_cast<double>(row));
    for (int64_t d = 0; d < dim; ++d) values.set(i * dim + d, sum[static_cast<size_t>(d)]);
    ++i;
  }
  for (int64_t step = 1; step <= 3; ++step) {
    auto update = sdk::sized<tsr_update>();
    update.learning_rate = learning_rate_at(step);
    update.step = step;
    subject.doing("apply");
    Call call;
    call.succeeds(k.api.apply(bed.instance(), 0, rows.raw(), values.raw(), &update, nullptr, call.out()), "apply");
    plain.update(gradients, step);
    plain.compare_rows(bed, str_cat("after apply number ", step));
  }
}

void check_kernel_apply(Subject& subject) {
  const Kernel k(subject);
  k.needs_rows();
  if (k.updating().empty() || !TSR_HAS(tsr_kernel, &k.api, apply)) throw Skipped("it has no apply");
  apply_to(k, {50, 12}, {0, 3, 4, 20, 49});
  std::vector<int64_t> many;
  for (int64_t row = 5; row < 5003; row += 1 + row % 7) many.push_back(row);
  apply_to(k, {5003, 9}, many);
}

// ---- level 5 ----

void check_kernel_sequences(Subject& subject) {
  const Kernel k(subject);
  k.needs_rows();
  k.needs_updates();
  KernelBed bed(k.with(k.any_shape({{2000, 16}, {3, 8}, {500, 33}}), "exact_rowwise_adagrad"));
  bed.open();
  Random random = subject.random(9);
  PlainTables plain(bed, random);
  for (int64_t step = 1; step <= 150; ++step) {
    subject.host().threads = 1 + static_cast<uint32_t>(random() % 3);
    switch (random() % 4) {
      case 0: {  // an evaluation, or a batch that is given up
        BatchShape how{.bags = between(random, 0, 60),
                       .poolings = {TSR_POOLING_SUM, TSR_POOLING_MEAN, TSR_POOLING_SUM, TSR_POOLING_NONE}};
        const LookupBatch batch(random, bed.shape(), how);
        Outputs out(batch, kFloat32);
        bed.release(bed.forward(batch, out, random() % 2 == 0));
        plain.compare_outputs(batch, out);
        break;
      }
      case 1: {
        KernelBed::Rows rows = bed.export_rows(random() % 3, between(random, 1, 300));
        break;
      }
      default:
        train_step(bed, plain, random, step);
        plain.compare_rows(bed, str_cat("after call ", step, " of 150"));
    }
  }
  plain.compare_rows(bed, "after 150 calls");
}

}  // namespace

void compare_row_gradients(const std::vector<tsr_row_gradient>& got, const PlainTables::RowGradients& want,
                           const KernelShape& shape) {
  for (size_t t = 0; t < want.size(); ++t) {
    const int64_t dim = shape.tables[t].dim, n = got[t].rows.ndim == 1 ? got[t].rows.shape[0] : -1;
    require(n == static_cast<int64_t>(want[t].size()), "backward_rows gave ", n, " rows of table ", t,
            ", but the batch has ", want[t].size(), " different ones");
    const auto* rows = static_cast<const int64_t*>(got[t].rows.data);
    const auto* values = static_cast<const float*>(got[t].values.data);
    int64_t i = 0;
    for (const auto& [row, sum] : want[t]) {
      require(rows[i] == row, "backward_rows gave row ", rows[i], " of table ", t, " as number ", i,
              ", but ascending and unique rows have ", row);
      for (int64_t d = 0; d < dim; ++d) {
        const double v = sum[static_cast<size_t>(d)];
        require(std::abs(values[i * dim + d] - v) <= 1e-4 + 1e-4 * std::abs(v), "the gradient of row ", row,
                " of table ", t, ", column ", d, ", is ", values[i * dim + d], ", but plain loops give ", v);
      }
      ++i;
    }
  }
}

std::span<const Check> kernel_checks() {
  static constexpr const char* kForward = "abi/kernel.h, tsr_kernel::forward";
  static constexpr const char* kBackward = "abi/kernel.h, tsr_kernel::backward";
  static constexpr const char* kRows = "abi/kernel.h, tsr_kernel::export_rows";
  static constexpr Check kChecks[] = {
      {"kernel.supports", 3, TSR_KERNEL_KIND, "abi/kernel.h, tsr_kernel::supports", 20, check_kernel_supports},
      {"kernel.longer_structs", 3, TSR_KERNEL_KIND, "abi/base.h, arrays of structs carry a stride", 20,
       check_kernel_longer_structs},
      {"kernel.memory", 3, TSR_KERNEL_KIND, "abi/host.h, tsr_host::alloc", 20, check_kernel_no_memory},
      {"kernel.close", 3, TSR_KERNEL_KIND, "abi/kernel.h, tsr_kernel::close", 20, check_kernel_close},
      {"kernel.flags", 3, TSR_KERNEL_KIND, "abi/base.h, Of every flags", 20, check_kernel_flags},
      {"kernel.forward", 4, TSR_KERNEL_KIND, kForward, 60, check_kernel_forward},
      {"kernel.placed_rows", 4, TSR_KERNEL_KIND, "abi/kernel.h, tsr_lookup::output_rows", 30, check_kernel_placed_rows},
      {"kernel.update", 4, TSR_KERNEL_KIND, kBackward, 60, check_kernel_update},
      {"kernel.gradients", 4, TSR_KERNEL_KIND, "abi/kernel.h, tsr_row_gradient", 30, check_kernel_gradients},
      {"kernel.contexts", 4, TSR_KERNEL_KIND, "abi/kernel.h, tsr_context", 30, check_kernel_contexts},
      {"kernel.row_views", 4, TSR_KERNEL_KIND, "abi/kernel.h, tsr_row_gradient", 30, check_kernel_row_views},
      {"kernel.many_calls", 4, TSR_KERNEL_KIND, kBackward, 60, check_kernel_many_calls},
      {"kernel.ranks", 4, TSR_KERNEL_KIND, "abi/kernel.h, tsr_kernel_config", 60, check_kernel_ranks},
      {"kernel.apply", 4, TSR_KERNEL_KIND, "abi/kernel.h, tsr_kernel::apply", 30, check_kernel_apply},
      {"kernel.rows", 4, TSR_KERNEL_KIND, kRows, 30, check_kernel_rows},
      {"kernel.read_rows", 4, TSR_KERNEL_KIND, "abi/kernel.h, tsr_kernel::read_rows", 30, check_kernel_read_rows},
      {"kernel.quantized", 4, TSR_KERNEL_KIND, kForward, 60, check_kernel_quantized},
      {"kernel.cursors", 4, TSR_KERNEL_KIND, kRows, 30, check_kernel_cursors},
      {"kernel.extra", 4, TSR_KERNEL_KIND, "abi/kernel.h, tsr_rows::extra", 30, check_kernel_extra},
      {"kernel.changes", 4, TSR_KERNEL_KIND, "abi/draft/changes.h", 30, check_kernel_changes},
      {"kernel.read_only", 4, TSR_KERNEL_KIND, "abi/kernel.h, TSR_LOOKUP_READ_ONLY", 30, check_kernel_read_only},
      {"kernel.start_values", 4, TSR_KERNEL_KIND, "abi/kernel.h, tsr_start_values", 30, check_kernel_start_values},
      {"kernel.prefetch", 4, TSR_KERNEL_KIND, "abi/draft/prefetch.h, tsr_prefetch::prefetch", 30,
       check_kernel_prefetch},
      {"kernel.estimate", 4, TSR_KERNEL_KIND, "abi/draft/cost.h, tsr_kernel_cost::estimate", 20, check_kernel_estimate},
      {"kernel.threads", 4, TSR_KERNEL_KIND, "abi/kernel.h, TSR_KERNEL_FORWARD_ANY_THREAD", 30, check_kernel_threads},
      {"kernel.large", 4, TSR_KERNEL_KIND, kForward, 200, check_kernel_large},
      {"kernel.sequences", 5, TSR_KERNEL_KIND, kBackward, 120, check_kernel_sequences},
  };
  return kChecks;
}

}  // namespace tessera::cli::verify
