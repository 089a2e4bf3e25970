// Checks the rows of a kernel: export, import, and quantized rows.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>

#include "verify/kernel_subject.h"

namespace tessera::cli::verify {
namespace {

// Compares lookups of each row format that is supported; false: none is.
bool compare_quantized(const Kernel& k, const std::vector<TableShape>& tables, BatchShape how);

// Kernels whose rows come on demand: imported rows replace all others.
void check_replaced(KernelBed& bed, const KernelBed::Rows& some) {
  KernelBed::Rows one{{some.ids[1]}, {some.weights.begin(), some.weights.begin() + 8}, {}};
  for (uint32_t s = 0; s < bed.num_states(); ++s)
    one.states.emplace_back(static_cast<size_t>(bed.state_width(s, 0)), 0.25f);
  bed.import_rows(0, one, TSR_IMPORT_REPLACE);
  const KernelBed::Rows left = bed.export_rows(0, 100);
  require(left.ids == one.ids && left.weights == one.weights, "import_rows of one row with TSR_IMPORT_REPLACE leaves ",
          left.ids.size(), " rows");
}

}  // namespace

void check_kernel_rows(Subject& subject) {
  const Kernel k(subject);
  k.needs_rows();
  KernelShape shape = k.any_shape({{37, 8}});
  const bool two = KernelBed(k.with(shape, "two_states")).why_not().empty();  // states that do not start at 0
  KernelBed bed(k.with(shape, two ? "two_states" : "exact_adagrad"));
  bed.open();
  Random random = subject.random();
  const bool exact = k.exact();
  KernelBed::Rows some;
  for (const int64_t id : {30, 2, 17, 0, 36}) {  // a subset in no particular order
    some.ids.push_back(id);
    for (int64_t d = 0; d < 8; ++d) some.weights.push_back(static_cast<float>(between(random, -100, 100)) / 64);
  }
  for (uint32_t s = 0; s < bed.num_states(); ++s)
    some.states.emplace_back(5 * bed.state_width(s, 0), 0.5f + static_cast<float>(s));
  bed.import_rows(0, some);
  const KernelBed::Rows all = bed.export_rows(0, 100);
  for (const int64_t at_once : {1, 5, 37}) {
    const KernelBed::Rows pieces = bed.export_rows(0, at_once);
    require(pieces.ids == all.ids && pieces.weights == all.weights && pieces.states == all.states,
            "export_rows gives other rows in pieces of ", at_once, " than in one piece");
  }
  const size_t there = (k.api.flags & TSR_KERNEL_ROWS_ON_DEMAND) != 0 ? 5 : 37;
  const size_t given = std::set(all.ids.begin(), all.ids.end()).size();
  require(given == there && all.ids.size() == there, "export_rows gave ", given, " different rows of ", there);
  for (size_t i = 0; i < all.ids.size(); ++i) {
    const auto at = std::find(some.ids.begin(), some.ids.end(), all.ids[i]) - some.ids.begin();
    const bool set = at < static_cast<ptrdiff_t>(some.ids.size());
    for (size_t d = 0; d < 8; ++d) {
      const double want = set ? some.weights[static_cast<size_t>(at) * 8 + d] : 0, got = all.weights[i * 8 + d];
      require(exact ? got == want : std::abs(got - want) < 1.6, "column ", d, " of row ", all.ids[i], " is ", got,
              set ? " after import_rows set it to " : ", though no import named it: rows start at ", want);
    }
    for (size_t s = 0; s < all.states.size(); ++s) {
      const auto state = static_cast<uint32_t>(s);
      const float start = static_cast<float>(bed.updates().state(state).start);
      const float want = set ? 0.5f + static_cast<float>(s) : start,
                  got = all.states[s][i * static_cast<size_t>(bed.state_width(state, 0))];
      require(got == want, "state ", s, " of row ", all.ids[i], " is ", got, ", not ", want, ", after ",
              set ? "import_rows" : "open");
    }
  }
  if ((k.api.flags & TSR_KERNEL_ROWS_ON_DEMAND) != 0) check_replaced(bed, some);
}

// Named rows are those that export_rows gives.
void check_kernel_read_rows(Subject& subject) {
  const Kernel k(subject);
  k.needs_rows();
  if (!TSR_HAS(tsr_kernel, &k.api, read_rows)) throw Skipped("it has no read_rows");
  KernelBed bed(k.with(k.any_shape({{37, 8}, {200, 16}}), "exact_adagrad"));
  bed.open();
  Random random = subject.random();
  PlainTables plain(bed, random);
  if (bed.updates_rows()) train_step(bed, plain, random, 1);
  for (size_t t = 0; t < bed.shape().tables.size(); ++t) {
    const auto dim = static_cast<size_t>(bed.shape().tables[t].dim);
    const KernelBed::Rows all = bed.export_rows(t, 1000);
    std::vector<size_t> places;
    std::vector<int64_t> ids;
    for (int i = 0; i < 50; ++i) {
      places.push_back(static_cast<size_t>(between(random, 0, static_cast<int64_t>(all.ids.size()) - 1)));
      ids.push_back(all.ids[places.back()]);
    }
    const KernelBed::Rows got = bed.read_rows(t, ids);
    require(got.ids == ids, "read_rows changes the ids that it is asked for");
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto same = [&](const std::vector<float>& a, const std::vector<float>& b, size_t width) {
        return std::equal(a.begin() + static_cast<ptrdiff_t>(i * width),
                          a.begin() + static_cast<ptrdiff_t>((i + 1) * width),
                          b.begin() + static_cast<ptrdiff_t>(places[i] * width));
      };
      require(same(got.weights, all.weights, dim), "read_rows gives other weights for row ", ids[i], " of table ", t,
              " than export_rows");
      for (uint32_t s = 0; s < bed.num_states(); ++s) {
        require(same(got.states[s], all.states[s], static_cast<size_t>(bed.state_width(s, t))),
                "read_rows gives another state ", s, " for row ", ids[i], " of table ", t, " than export_rows");
      }
    }
    const KernelBed::Rows after = bed.export_rows(t, 1000);
    require(after.ids == all.ids && after.weights == all.weights && after.states == all.states,
            "read_rows changes rows of table ", t);
  }
}

// Kernels for quantized rows: a lookup must give the pooled sum of the rows that export_rows gives.
void check_kernel_quantized(Subject& subject) {
  const Kernel k(subject);
  k.needs_rows();
  if (!k.serves("quant")) throw Skipped("it does not serve \"quant\"");
  const bool any = compare_quantized(k, {{40, 16}, {9, 32}}, BatchShape{});
  BatchShape long_bags{.bags = 150, .longest = 1000};
  compare_quantized(k, {{70001, 8}, {9, 264}}, long_bags);
  if (!any) throw Skipped("it supports none of the row formats that verify knows");
}

namespace {

bool compare_quantized(const Kernel& k, const std::vector<TableShape>& tables, BatchShape how) {
  int supported = 0;
  for (const DLDataType rows : {DLDataType{kDLUInt, 8, 1}, {kDLUInt, 4, 1}, {kDLUInt, 2, 1}, kFloat16, kFloat32}) {
    KernelShape shape{tables};
    shape.compute_kernel = "quant";
    shape.train = false;
    shape.weights = rows;
    KernelBed bed(k.with(shape));
    if (!bed.why_not().empty()) continue;
    ++supported;
    bed.open();
    Random random = k.subject.random(rows.bits);
    std::vector<KernelBed::Rows> held;
    for (size_t t = 0; t < 2; ++t) {
      KernelBed::Rows made;
      for (int64_t r = 0; r < shape.tables[t].rows; ++r) made.ids.push_back(r);
      for (size_t i = 0; i < made.ids.size() * static_cast<size_t>(shape.tables[t].dim); ++i)
        made.weights.push_back(static_cast<float>(between(random, -1000, 1000)) / 500);
      bed.import_rows(t, made);
      held.push_back(bed.export_rows(t, 10000));
      const double step = rows.code == kDLUInt ? 4.0 / ((1 << rows.bits) - 1) : 4e-3;
      for (size_t i = 0; i < made.weights.size(); ++i) {
        require(std::abs(made.weights[i] - held[t].weights[i]) <= step, "a row of ", name_of(rows), " holds ",
                held[t].weights[i], " for ", made.weights[i]);
      }
    }
    how.poolings = {TSR_POOLING_SUM, TSR_POOLING_MEAN, TSR_POOLING_SUM};
    how.weighted = true;
    const LookupBatch batch(random, shape, how);
    Outputs out(batch, shape.output);
    bed.forward(batch, out, false);
    for (const tsr_lookup_feature& f : batch.features) {
      const int64_t dim = shape.tables[static_cast<size_t>(f.table)].dim;
      for (int64_t b = 0; b < f.bags; ++b) {
        const int64_t begin = batch.begin(f, b), end = batch.begin(f, b + 1);
        for (int64_t d = 0; d < dim; ++d) {
          double want = 0;
          for (int64_t p = begin; p < end; ++p) {
            want +=
                batch.weights->get(p) * held[static_cast<size_t>(f.table)]
                                            .weights[static_cast<size_t>(batch.ids->get(p)) * static_cast<size_t>(dim) +
                                                     static_cast<size_t>(d)];
          }
          if (f.pooling == TSR_POOLING_MEAN && end > begin) want /= static_cast<double>(end - begin);
          const double got = out[0].get(batch.place(f, b, begin) + d);
          require(std::abs(got - want) <= 1e-3 + 1e-3 * std::abs(want), "forward over rows of ", name_of(rows),
                  " gave ", got, ", but the rows that export_rows gives add up to ", want);
        }
      }
    }
  }
  return supported > 0;
}

}  // namespace

}  // namespace tessera::cli::verify
