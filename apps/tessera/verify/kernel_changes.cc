// Checks kernels that report which of their rows have changed: the draft tessera.kernel.changes.
#include "tessera/abi/draft/changes.h"

#include <algorithm>
#include <array>
#include <map>

#include "verify/kernel_subject.h"

namespace tessera::cli::verify {
namespace {

using RowsById = std::map<int64_t, std::vector<float>>;

// Calls the draft's functions on a bed's instance.
class Changes {
 public:
  Changes(const Kernel& kernel, KernelBed& bed) : bed_(bed) {
    const tsr_instance& part = *kernel.part.raw();
    if (TSR_HAS(tsr_component, part.component, extension))
      api_ = static_cast<const tsr_kernel_changes*>(part.component->extension(part.self, TSR_KERNEL_CHANGES));
    if (api_ == nullptr) throw Skipped(str_cat("it has no ", TSR_KERNEL_CHANGES));
  }

  uint32_t followers() const { return api_->followers; }
  tsr_code mark(uint32_t follower, Call& call) {
    bed_.subject().doing("mark");
    return api_->mark(bed_.instance(), follower, call.out());
  }
  void mark(uint32_t follower) {
    Call call;
    call.succeeds(mark(follower, call), "mark");
  }
  tsr_code count(uint32_t follower, uint32_t table, int64_t* changed, int64_t* removed, Call& call) {
    bed_.subject().doing("count");
    return api_->count(bed_.instance(), follower, table, changed, removed, call.out());
  }
  // Fetches the changed rows, `at_once` per call, and checks that there are as many as count says.
  RowsById changed(uint32_t follower, uint32_t table, int64_t at_once) {
    const int64_t dim = bed_.shape().tables[table].dim;
    RowsById out;
    bed_.subject().doing("export_changed");
    for (uint64_t cursor = 0;;) {
      Array ids({kDLInt, 64, 1}, {at_once}), weights(kFloat32, {at_once, dim});
      tsr_rows rows{sizeof(tsr_rows), 0, 0, 0, 0, ids.raw(), weights.raw(), nullptr, nullptr};
      Call call;
      call.succeeds(api_->export_changed(bed_.instance(), follower, table, &cursor, &rows, call.out()),
                    "export_changed");
      ids.check_end("export_changed");
      weights.check_end("export_changed");
      require(rows.count >= 0 && rows.count <= at_once, "export_changed gave ", rows.count, " rows into room for ",
              at_once);
      if (rows.count == 0) break;
      for (int64_t i = 0; i < rows.count; ++i) {
        const int64_t id = ids.data<int64_t>()[i];
        const float* row = weights.data<float>() + i * dim;
        require(out.emplace(id, std::vector<float>(row, row + dim)).second, "export_changed gives row ", id, " twice");
      }
    }
    int64_t changed = -1, removed = -1;
    Call call;
    call.succeeds(count(follower, table, &changed, &removed, call), "count");
    require(changed == static_cast<int64_t>(out.size()), "count says that ", changed,
            " rows have changed, but export_changed gives ", out.size());
    require(removed >= 0, "count says that ", removed, " rows were given up");
    return out;
  }

 private:
  KernelBed& bed_;
  const tsr_kernel_changes* api_ = nullptr;
};

RowsById rows_of(KernelBed& bed, size_t table) {
  const KernelBed::Rows all = bed.export_rows(table, 1000);
  const auto dim = static_cast<size_t>(bed.shape().tables[table].dim);
  RowsById out;
  for (size_t i = 0; i < all.ids.size(); ++i) {
    const auto row = all.weights.begin() + static_cast<ptrdiff_t>(i * dim);
    out[all.ids[i]] = {row, row + static_cast<ptrdiff_t>(dim)};
  }
  return out;
}

// Checks that each value that has changed is reported, with its new value.
void check_named(const RowsById& before, const RowsById& now, const RowsById& changed, const char* by) {
  for (const auto& [id, row] : now) {
    const auto was = before.find(id);
    const bool same = was != before.end() && was->second == row;
    require(same || changed.contains(id), "row ", id, " was changed by ", by, ", but export_changed leaves it out");
  }
  for (const auto& [id, row] : changed) {
    const auto is = now.find(id);
    require(is != now.end(), "export_changed gives row ", id, ", which does not exist");
    require(is->second == row, "export_changed gives other weights of row ", id, " than export_rows");
  }
}

// Imports some rows, with states.
void import_some(KernelBed& bed, const std::vector<int64_t>& ids, float weight) {
  const auto dim = static_cast<size_t>(bed.shape().tables[0].dim);
  KernelBed::Rows rows{ids, std::vector<float>(ids.size() * dim, weight), {}};
  for (uint32_t s = 0; s < bed.num_states(); ++s)
    rows.states.emplace_back(ids.size() * static_cast<size_t>(bed.state_width(s, 0)), 0.25f);
  bed.import_rows(0, rows);
}

// A follower is told the changes since its own mark, whatever another follower asks.
void check_followers(const Kernel& k) {
  KernelBed bed(k.with(k.any_shape({{37, 8}}), "exact_adagrad"));
  Changes changes(k, bed);
  bed.open();
  std::array<RowsById, 2> marked;
  const auto mark = [&](uint32_t follower) {
    changes.mark(follower);
    marked[follower] = rows_of(bed, 0);
    require(changes.changed(follower, 0, 7).empty(), "right after a mark some rows have changed");
  };
  const auto check = [&](uint32_t follower, const char* by) {
    check_named(marked[follower], rows_of(bed, 0), changes.changed(follower, 0, 3), by);
  };
  require(changes.followers() > 0, "it serves no follower, but has the extension");
  Call nobody;
  nobody.fails(changes.mark(changes.followers(), nobody), "mark for a follower that does not exist");
  if (changes.followers() < marked.size()) return;
  mark(0);
  int64_t changed = 0, removed = 0;
  Call early;
  early.fails(changes.count(1, 0, &changed, &removed, early),
              "count without a mark, although another follower has one");
  import_some(bed, {5, 30}, 0.5f);
  mark(1);
  check(0, "import_rows before another follower's mark");
  import_some(bed, {7, 30}, 0.75f);
  check(0, "import_rows around another follower's mark");
  check(1, "import_rows after another follower's mark");
  mark(0);
  check(1, "import_rows before another follower's mark");
}

}  // namespace

void check_kernel_changes(Subject& subject) {
  const Kernel k(subject);
  k.needs_rows();
  KernelBed bed(k.with(k.any_shape({{37, 8}, {200, 16}}), "exact_adagrad"));
  Changes changes(k, bed);
  bed.open();
  int64_t changed = 0, removed = 0;
  Call early;
  early.fails(changes.count(0, 0, &changed, &removed, early), "count without a mark");
  Random random = subject.random();
  PlainTables plain(bed, random);  // imports rows, before the mark is set
  changes.mark(0);
  require(changes.changed(0, 1, 7).empty(), "right after a mark some rows have changed");
  RowsById before = rows_of(bed, 0);
  import_some(bed, {5, 30}, 0.5f);
  check_named(before, rows_of(bed, 0), changes.changed(0, 0, 100), "import_rows");
  check_followers(k);
  if (!bed.updates_rows()) return;
  KernelBed trained(k.with(bed.shape(), "exact_adagrad"));
  Changes of_training(k, trained);
  trained.open();
  PlainTables copy(trained, random);
  for (int64_t step = 1; step <= 3; ++step) {
    of_training.mark(0);
    std::vector<RowsById> was{rows_of(trained, 0), rows_of(trained, 1)};
    train_step(trained, copy, random, step);
    for (uint32_t t = 0; t < 2; ++t)
      check_named(was[t], rows_of(trained, t), of_training.changed(0, t, step == 1 ? 1 : 50), "backward");
  }
}

}  // namespace tessera::cli::verify
