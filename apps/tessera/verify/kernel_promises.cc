// Checks a kernel's promises besides right sums: flags that it must understand, cursors, evaluations that change
// nothing, rows that it makes itself, extra data kept per row, announced ids, lookups by several threads.
#include <algorithm>
#include <cmath>
#include <optional>
#include <thread>

#include "tessera/abi/draft/prefetch.h"
#include "verify/kernel_subject.h"
#include "verify/threads.h"

namespace tessera::cli::verify {
namespace {

constexpr uint32_t kMust = 1u << 31, kHint = 1u << 15;  // flags that nobody defines

tsr_kernel_stats stats_of(const KernelBed& bed, uint32_t table) {
  auto stats = sdk::sized<tsr_kernel_stats>();
  Call call;
  call.succeeds(bed.api().stats(bed.instance(), table, &stats, call.out()), "stats");
  return stats;
}

bool same_rows(const KernelBed::Rows& a, const KernelBed::Rows& b) {
  return a.ids == b.ids && a.weights == b.weights && a.states == b.states;
}

LookupBatch batch_of(Random& random, const KernelShape& shape) {
  BatchShape how;
  how.poolings.assign(shape.tables.size(), TSR_POOLING_SUM);
  return LookupBatch(random, shape, how);
}

std::vector<double> values_of(Outputs& out) {
  std::vector<double> values;
  for (int64_t i = 0; i < out[0].size(); ++i) values.push_back(out[0].get(i));
  return values;
}

void must_refuse(tsr_code code, const Call& call, const std::string& what) {
  call.fails(code, what);
  require(code == TSR_UNIMPLEMENTED, what, " fails with ", name_of(code), ", but that is TSR_UNIMPLEMENTED");
}

}  // namespace

void check_kernel_flags(Subject& subject) {
  const Kernel k(subject);
  KernelBed bed(k.with(k.any_shape()));
  bed.open();
  const auto supports = [&](uint32_t flags, Call& call) {
    tsr_kernel_config config = bed.config();
    config.flags = flags;
    subject.doing("supports");
    return k.api.supports(k.part.self(), &config, call.out());
  };
  Call hinted, told;
  hinted.succeeds(supports(kHint, hinted), "supports with an unknown hint");
  must_refuse(supports(kMust, told), told, "supports with an unknown flag that must be understood");
  Random random = subject.random();
  LookupBatch batch = batch_of(random, bed.shape());
  Outputs plain(batch, bed.shape().output), out(batch, bed.shape().output);
  bed.release(bed.forward(batch, plain, bed.shape().train));
  batch.raw.flags = kHint;
  bed.release(bed.forward(batch, out, bed.shape().train));
  require(values_of(plain) == values_of(out), "forward gives other results with an unknown hint");
  batch.raw.flags = kMust;
  Call call;
  subject.doing("forward");
  const tsr_code code = k.api.forward(bed.instance(), &batch.raw, out.raw(), nullptr, nullptr, call.out());
  must_refuse(code, call, "forward with an unknown flag that must be understood");
  batch.raw.flags = 0;
  if (!bed.updates_rows()) return;
  Outputs grad(batch, bed.shape().output);
  grad.fill(0);
  for (const uint32_t flags : {kHint, kMust}) {
    Call updating;
    tsr_context* context = bed.forward(batch, out, true);
    const tsr_code updated = bed.backward_with(flags, batch, context, grad, updating);
    bed.release(context);
    if (flags == kHint)
      updating.succeeds(updated, "backward with an unknown hint in tsr_update");
    else
      must_refuse(updated, updating, "backward with an unknown flag in tsr_update that must be understood");
  }
}

// Gives an export up half way, because the table changes.
void check_kernel_cursors(Subject& subject) {
  const Kernel k(subject);
  k.needs_rows();
  KernelBed bed(k.with(k.any_shape({{200, 8}})));
  bed.open();
  Random random = subject.random();
  PlainTables plain(bed, random);
  Array ids({kDLInt, 64, 1}, {30}), weights(kFloat32, {30, 8});
  tsr_rows rows{sizeof(tsr_rows), 0, 0, 0, 0, ids.raw(), weights.raw(), nullptr, nullptr};
  uint64_t cursor = 0;
  Call call;
  subject.doing("export_rows");
  call.succeeds(k.api.export_rows(bed.instance(), 0, &cursor, &rows, call.out()), "export_rows");
  std::optional<PlainTables> again;
  if (bed.updates_rows()) {
    train_step(bed, plain, random, 1);
  } else {
    again.emplace(bed, random);
  }
  subject.doing("export_rows by a cursor from before the table changed");
  const tsr_code code = k.api.export_rows(bed.instance(), 0, &cursor, &rows, call.out());
  if (call.fails_well(code, "export_rows by an old cursor"); code != TSR_OK && code != TSR_FAILED_PRECONDITION)
    broken("export_rows by a cursor from before the table changed fails with ", name_of(code),
           ", but only TSR_FAILED_PRECONDITION may be used for that");
  require(code != TSR_OK || (rows.count >= 0 && rows.count <= 30), "export_rows by an old cursor gave ", rows.count,
          " rows into room for 30");
  ids.check_end("export_rows by an old cursor");
  weights.check_end("export_rows by an old cursor");
  if (k.exact()) (again ? *again : plain).compare_rows(bed, "in an export that began after the table had changed");
}

void check_kernel_extra(Subject& subject) {
  const Kernel k(subject);
  k.needs_rows();
  KernelBed bed(k.with(k.any_shape({{37, 8}})));
  bed.open();
  const uint32_t bytes = stats_of(bed, 0).extra_bytes;
  if (bytes == 0) throw Skipped("it keeps nothing of a row but weights and states");
  require(bytes % 4 == 0, "tsr_kernel_stats::extra_bytes is ", bytes, ", which is not a multiple of 4");
  Random random = subject.random();
  const PlainTables plain(bed, random);
  const size_t stride = bytes + 8;  // the gap between the values is unused
  const auto call_with = [&](const auto& slot, const char* what, std::vector<unsigned char>& extra) {
    Array ids({kDLInt, 64, 1}, {37}), weights(kFloat32, {37, 8});
    for (int64_t i = 0; i < 37; ++i) ids.set(i, static_cast<double>(i));
    tsr_rows rows{sizeof(tsr_rows), 0,       0,           static_cast<uint32_t>(stride), 37, ids.raw(),
                  weights.raw(),    nullptr, extra.data()};
    subject.doing(what);
    Call call;
    call.succeeds(slot(rows, call), what);
    require(rows.count == 37, what, " moved ", rows.count, " of 37 rows");
    std::vector<int64_t> order(37);
    for (int64_t i = 0; i < 37; ++i) order[static_cast<size_t>(i)] = static_cast<int64_t>(ids.get(i));
    return order;
  };
  std::vector<unsigned char> set(37 * stride, 0x5A), got(37 * stride, 0xC3);
  for (size_t i = 0; i < set.size(); ++i) set[i] = i % stride < bytes ? static_cast<unsigned char>(random() % 100) : 0;
  const auto imports = [&](tsr_rows& rows, Call& c) { return k.api.import_rows(bed.instance(), 0, &rows, c.out()); };
  const auto exports = [&](tsr_rows& rows, Call& c) {
    uint64_t cursor = 0;
    return k.api.export_rows(bed.instance(), 0, &cursor, &rows, c.out());
  };
  call_with(imports, "import_rows", set);
  const std::vector<int64_t> order = call_with(exports, "export_rows", got);
  for (size_t i = 0; i < 37; ++i) {
    for (size_t b = 0; b < stride; ++b) {
      const unsigned char want = b < bytes ? set[static_cast<size_t>(order[i]) * stride + b] : 0xC3,
                          is = got[i * stride + b];
      require(is == want, "byte ", b, " after row ", order[i], " is ", int{is},
              b < bytes ? " in extra" : " in no row's extra", ", not ", int{want});
    }
  }
}

void check_kernel_read_only(Subject& subject) {
  const Kernel k(subject);
  const bool on_demand = (k.api.flags & TSR_KERNEL_ROWS_ON_DEMAND) != 0;
  KernelBed bed(k.with(k.any_shape({{100, 8}})));
  bed.open();
  Random random = subject.random();
  LookupBatch batch = batch_of(random, bed.shape());
  Outputs out(batch, bed.shape().output);
  const auto rows = [&] { return k.moves_rows() ? bed.export_rows(0, 1000) : KernelBed::Rows{}; };
  const KernelBed::Rows before = rows();
  const uint64_t in_use = stats_of(bed, 0).rows_in_use;
  batch.raw.flags = TSR_LOOKUP_READ_ONLY;
  bed.forward(batch, out, false);
  const uint64_t now = stats_of(bed, 0).rows_in_use;
  require(now == in_use, "a lookup with TSR_LOOKUP_READ_ONLY took the rows in use from ", in_use, " to ", now);
  require(same_rows(before, rows()), "a lookup with TSR_LOOKUP_READ_ONLY changed what export_rows gives");
  if (!on_demand) return;
  for (const double x : values_of(out))
    require(x == 0 || x == kUntouched, "a lookup with TSR_LOOKUP_READ_ONLY gave ", x,
            " for a row that does not exist, but must give 0");
}

// The first lookup that trains must give sums of start values.
void check_kernel_start_values(Subject& subject) {
  const Kernel k(subject);
  const bool promised = (k.api.flags & (TSR_KERNEL_ROWS_ON_DEMAND | TSR_KERNEL_STARTS_ROWS)) != 0;
  if (!promised && TSR_HAS(tsr_kernel, &k.api, import_rows)) throw Skipped("its rows are given to it");
  const auto looked_up = [&](int64_t start) {
    KernelBed bed(k.with(k.any_shape({{100, 8}})));
    bed.start_values(start);
    bed.open();
    Random random = subject.random();
    const LookupBatch batch = batch_of(random, bed.shape());
    Outputs out(batch, bed.shape().output);
    bed.release(bed.forward(batch, out, bed.shape().train));
    std::vector<double> got = values_of(out);
    if (!promised) return got;
    const tsr_lookup_feature& f = batch.features[0];
    for (int64_t b = 0; b < f.bags; ++b) {
      for (int64_t d = 0; d < 8; ++d) {
        double want = 0;
        for (int64_t p = batch.begin(f, b); p < batch.begin(f, b + 1); ++p)
          want += KernelBed::start_value(start, 0, static_cast<int64_t>(batch.ids->get(p)), d);
        const double is = got[static_cast<size_t>(batch.place(f, b, batch.begin(f, b)) + d)];
        require(std::abs(is - want) <= 1e-4, "the first lookup of rows that did not exist gave ", is,
                ", but their start values add up to ", want);
      }
    }
    return got;
  };
  require(looked_up(1) == looked_up(1), "two tables with the same start values give different rows");
  require(looked_up(1) != looked_up(2), "tables with other start values give the same rows");
}

// Announces batches while the previous step is under way and changes rows of theirs.
void check_kernel_prefetch(Subject& subject) {
  const Kernel k(subject);
  k.needs_rows();
  k.needs_updates();
  const tsr_component* component = k.part.raw()->component;
  const auto* draft = TSR_HAS(tsr_component, component, extension)
                          ? static_cast<const tsr_prefetch*>(component->extension(k.part.self(), TSR_PREFETCH))
                          : nullptr;
  if (draft == nullptr) throw Skipped(str_cat("it does not have ", TSR_PREFETCH));
  KernelBed bed(k.with({{{1000, 16}, {3, 8}, {200, 33}}}, "exact_adagrad"));
  bed.open();
  Random random = subject.random();
  PlainTables plain(bed, random);
  for (int64_t step = 1; step <= 40; ++step) {
    const LookupBatch next = batch_of(random, bed.shape());
    Call call;
    tsr_code code = TSR_OK;
    std::thread ahead([&] { code = draft->prefetch(bed.instance(), &next.raw, nullptr, call.out()); });
    try {
      train_step(bed, plain, random, step);
    } catch (...) {
      ahead.join();
      throw;
    }
    ahead.join();
    call.succeeds(code, "prefetch during a step");
    Outputs out(next, kFloat32);
    bed.release(bed.forward(next, out, true));
    plain.compare_outputs(next, out);
  }
  plain.compare_rows(bed, "after steps with batches that were prefetched during them");
}

// A planner asks about bands of a table's rows. Memory that a kernel has once for all of them must not count in each
// band.
void check_kernel_estimate(Subject& subject) {
  constexpr int64_t kRows = 1 << 20, kDim = 16;
  constexpr uint64_t kRounded = 256;  // bytes by which an answer may differ, at the granularity of a row
  const Kernel k(subject);
  const auto* cost = sdk::extension_of<tsr_kernel_cost>(*k.part.raw(), TSR_KERNEL_COST);
  if (!TSR_HAS(tsr_kernel_cost, cost, estimate)) throw Skipped("it has no estimate (" TSR_KERNEL_COST ")");
  KernelBed bed(k.with(k.any_shape({{kRows, kDim}})));
  if (const std::string why = bed.why_not(); !why.empty()) throw Skipped(why);
  const auto bytes_of = [&](int64_t rows) {
    auto work = sdk::sized<tsr_workload>();
    work.rows = rows;
    work.dim = kDim;
    work.ids = work.bags = 100;
    work.runs = 1;
    auto out = sdk::sized<tsr_estimate>();
    Call call;
    const tsr_code code = cost->estimate(k.part.self(), &bed.config(), &work, &out, call.out());
    if (code == TSR_UNIMPLEMENTED) throw Skipped(call.message());
    call.succeeds(code, "estimate");
    return out.bytes;
  };
  const uint64_t whole = bytes_of(kRows);
  uint64_t sum = bytes_of(4), bands = 1;
  for (int64_t before = 4; before < kRows; before *= 4, ++bands) sum += bytes_of(3 * before);
  const uint64_t off = sum > whole ? sum - whole : whole - sum;
  require(off <= bands * kRounded, "estimate of a table of ", kRows, " rows is ", whole, " bytes, and ", sum,
          " in total for ", bands, " parts of it");
}

void check_kernel_threads(Subject& subject) {
  const Kernel k(subject);
  k.needs_rows();
  if ((k.api.flags & TSR_KERNEL_FORWARD_ANY_THREAD) == 0)
    throw Skipped("it does not say TSR_KERNEL_FORWARD_ANY_THREAD");
  KernelShape shape = k.any_shape({{7, 4}, {300, 32}});
  shape.train = false;
  KernelBed bed(k.with(shape));
  bed.open();
  Random random = subject.random();
  const PlainTables plain(bed, random);  // makes rows that are not all alike
  std::vector<LookupBatch> batches;
  std::vector<std::vector<double>> want;
  for (int t = 0; t < 4; ++t) {
    batches.push_back(batch_of(random, bed.shape()));
    batches.back().raw.flags = TSR_LOOKUP_READ_ONLY;
    Outputs out(batches.back(), shape.output);
    bed.forward(batches.back(), out, false);
    want.push_back(values_of(out));
  }
  on_four_threads([&](int thread) {
    const auto t = static_cast<size_t>(thread);
    for (int i = 0; i < (subject.thorough() ? 2000 : 200); ++i) {
      Outputs out(batches[t], shape.output);
      out.fill(kUntouched);
      Call call;
      call.succeeds(k.api.forward(bed.instance(), &batches[t].raw, out.raw(), nullptr, nullptr, call.out()),
                    "during lookups by other threads, forward");
      require(values_of(out) == want[t], "during lookups by other threads, forward gave other results than by itself");
    }
  });
}

}  // namespace tessera::cli::verify
