// Compares the row that ids without a row share (absent=shared) with plain sums: all poolings, weights and clamped
// gradients, ids that lose their rows between forward and backward, export and import, and changes since a mark.
#include <algorithm>
#include <cmath>
#include <set>

#include <tessera/sdk/plain_lookup.h>

#include "test_bed.h"

namespace {

using namespace extras;

// Bags of ids, some of them empty, in three features: SUM, MEAN and without pooling.
struct Batch {
  Batch(std::mt19937_64& random, int64_t step, size_t count, int64_t different, bool weighted)
      : ids(drawn(random, count, different)), n{std::ssize(ids)} {
    const auto third = static_cast<int64_t>(count) / 3;
    int64_t output = 0;
    for (const int32_t pooling : {TSR_POOLING_SUM, TSR_POOLING_MEAN, TSR_POOLING_NONE}) {
      const int64_t begin = offsets.empty() ? 0 : offsets.back(),
                    end = pooling == TSR_POOLING_NONE ? n[0] : begin + third;
      tsr_lookup_feature& f = features.emplace_back();
      f.pooling = pooling;
      f.first_offset = std::ssize(offsets);
      f.output_offset = output;
      f.output_stride = kDim;
      offsets.push_back(begin);
      while (offsets.back() < end) {
        offsets.push_back(std::min(end, offsets.back() + static_cast<int64_t>(random() % 5)));
        ++f.bags;
      }
      output += (pooling == TSR_POOLING_NONE ? end - begin : f.bags) * kDim;
    }
    size = static_cast<size_t>(output);
    for (int64_t i = 0; i < n[0]; ++i) weights.push_back(static_cast<float>(random() % 8) / 4);
    m = {std::ssize(offsets)};
    id_view = tensor(ids.data(), dtype_of<int64_t>(), n);
    offset_view = tensor(offsets.data(), dtype_of<int64_t>(), m);
    weight_view = tensor(weights.data(), dtype_of<float>(), n);
    lookup.struct_size = sizeof(lookup);
    lookup.num_features = static_cast<uint32_t>(features.size());
    lookup.feature_stride = sizeof(tsr_lookup_feature);
    lookup.features = features.data();
    lookup.ids = &id_view;
    lookup.offsets = &offset_view;
    lookup.weights = weighted ? &weight_view : nullptr;
    lookup.step = step;
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  std::vector<int64_t> ids, offsets, n, m;
  std::vector<float> weights;
  std::vector<tsr_lookup_feature> features;
  DLTensor id_view{}, offset_view{}, weight_view{};
  tsr_lookup lookup{};
  size_t size;  // number of floats of the output
};

// A plain copy of the values of all rows and of the shared row. The table's rows() says which ids have rows.
class Plain {
 public:
  struct Held {
    std::vector<float> values;
    float updates = 0.25f;
  };
  // Call after each forward. Forgets rows that were evicted, and adds new rows with start values.
  void follow(const std::map<int64_t, Row>& there) {
    std::erase_if(rows_, [&](const auto& known) { return !there.contains(known.first); });
    for (const auto& [id, row] : there) {
      if (id == TSR_SHARED_ROW_ID || rows_.contains(id)) continue;
      Held& fresh = rows_[id];
      for (int64_t d = 0; d < kDim; ++d) fresh.values.push_back(start_of(id, d));
    }
  }
  bool has(int64_t id) const { return rows_.contains(id); }
  const Held& of(int64_t id) const { return has(id) ? rows_.at(id) : shared_; }
  const Held& shared() const { return shared_; }
  std::vector<float> sums(const Batch& batch) const {
    std::vector<float> out(batch.size);
    for (const tsr_lookup_feature& f : batch.features)
      for_each_entry(batch.lookup, f, [&](const LookupEntry& e) {
        for (int64_t d = 0; d < kDim; ++d)
          out[static_cast<size_t>(e.place + d)] += e.share * of(e.row).values[static_cast<size_t>(d)];
      });
    return out;
  }
  // `had` has the ids that had a row in the forward. An id that has lost its row since then is not updated.
  void update(const Batch& batch, const std::vector<float>& grads, const std::set<int64_t>& had, float clamp) {
    std::map<int64_t, std::vector<float>> all;
    for (const tsr_lookup_feature& f : batch.features)
      for_each_entry(batch.lookup, f, [&](const LookupEntry& e) {
        if (had.contains(e.row) && !has(e.row)) return;
        std::vector<float>& sum = all[had.contains(e.row) ? e.row : TSR_SHARED_ROW_ID];
        sum.resize(kDim);
        for (int64_t d = 0; d < kDim; ++d) {
          const float g = grads[static_cast<size_t>(e.place + d)];
          sum[static_cast<size_t>(d)] += e.share * (clamp > 0 ? std::clamp(g, -clamp, clamp) : g);
        }
      });
    for (const auto& [id, sum] : all) {
      Held& row = id == TSR_SHARED_ROW_ID ? shared_ : rows_.at(id);
      for (size_t d = 0; d < sum.size(); ++d) row.values[d] -= kRate * sum[d];
      row.updates += 1;
    }
  }
  void compare(const std::map<int64_t, Row>& got, const std::string& what) const {
    expect(got.size() == rows_.size() + 1, what, ": ", got.size(), " rows, not ", rows_.size(), " and the shared one");
    for (const auto& [id, row] : got) {
      const Held& want = id == TSR_SHARED_ROW_ID ? shared_ : of(id);
      expect(row.updates == want.updates, what, ": row ", id, " was updated ", row.updates, " times, not ",
             want.updates);
      for (size_t d = 0; d < want.values.size(); ++d)
        expect(near(row.values[d], want.values[d]), what, ": row ", id, " is ", row.values[d], ", not ",
               want.values[d]);
    }
  }
  static bool near(float a, float b) { return std::abs(a - b) < 2e-3f * (1 + std::abs(b)); }

 private:
  std::map<int64_t, Held> rows_;
  Held shared_{std::vector<float>(kDim), 0.25f};
};

std::vector<float> forward(Bed& bed, const Batch& batch, tsr_context** context) {
  std::vector<float> out(batch.size, 77);
  std::vector<int64_t> shape{std::ssize(out)};
  bed.tables().forward(batch.lookup, tensor(out.data(), dtype_of<float>(), shape), nullptr, context);
  return out;
}
void backward(Bed& bed, const Batch& batch, const std::vector<float>& grads, tsr_context* context) {
  std::vector<int64_t> shape{std::ssize(grads)};
  const DLTensor gradient = tensor(grads.data(), dtype_of<float>(), shape);
  const tsr_update update{sizeof(tsr_update), 0, kRate, batch.lookup.step};
  const tsr_backward args{sizeof(tsr_backward), 0, &batch.lookup, &gradient, nullptr, 1, &update};
  bed.tables().backward(context, args, nullptr);
  bed.tables().release(context);
}
void compare(const std::vector<float>& got, const std::vector<float>& want, const std::string& what) {
  for (size_t i = 0; i < want.size(); ++i)
    expect(Plain::near(got[i], want[i]), what, ": output ", i, " is ", got[i], ", not ", want[i]);
}

struct Case {
  const char* options;
  bool weighted = false;
  float clamp = 0;
};

// Runs steps. Some have another step between forward and backward that evicts rows for other ids.
struct Steps {
  Bed& bed;
  Plain& plain;
  std::mt19937_64& random;
  const Case& of;
  int64_t step = 0, lost = 0, sharing = 0;

  void take(int nested) {
    Batch batch(random, ++step, 120, 3000, of.weighted);
    for (int64_t& id : batch.ids) id += nested * (int64_t{1} << 61);
    tsr_context* context = nullptr;
    const std::vector<float> got = forward(bed, batch, &context);
    plain.follow(bed.rows());
    std::set<int64_t> had;
    for (const int64_t id : batch.ids) {
      if (plain.has(id)) had.insert(id);
    }
    sharing += std::count_if(batch.ids.begin(), batch.ids.end(), [&](int64_t id) { return !had.contains(id); });
    compare(got, plain.sums(batch), of.options);
    if (nested > 0) take(nested - 1);
    lost += std::count_if(had.begin(), had.end(), [&](int64_t id) { return !plain.has(id); });
    std::vector<float> grads(batch.size);
    for (float& g : grads) g = static_cast<float>(random() % 17) / 16 - 0.5f;
    backward(bed, batch, grads, context);
    plain.update(batch, grads, had, of.clamp);
  }
};

void check_case(const Case& of) {
  Bed bed(kAnyId, of.options, of.clamp);
  Plain plain;
  std::mt19937_64 random(21);
  const Batch early(random, 1, 60, 3000, of.weighted);
  compare(forward(bed, early, nullptr), {}, of.options);  // sights ids, which will share the row
  plain.follow(bed.rows());
  Steps steps{bed, plain, random, of, 1};
  for (int i = 0; i < 40; ++i) steps.take(i % 3 == 2 ? 1 : 0);
  plain.compare(bed.rows(), of.options);
  expect(steps.lost > 20 && steps.sharing > 200, of.options, ": ", steps.lost, " ids lost their rows, and ",
         steps.sharing, " shared one: too few to tell");
  // An evaluation also reads the shared row, and gives no id a row.
  Batch reads(random, steps.step + 1, 120, 6000, of.weighted);
  reads.lookup.flags = TSR_LOOKUP_READ_ONLY;
  compare(forward(bed, reads, nullptr), plain.sums(reads), "an evaluation");
  plain.compare(bed.rows(), "behind an evaluation");
  const tsr_kernel_stats stats = bed.stats();
  expect(stats.rows_in_use == bed.rows().size(), "rows in use: ", stats.rows_in_use);
  expect(stats.hits < stats.lookups, "ids without a row are no hits");
}

constexpr const char* kShared = R"({"capacity":128,"evict":"lfu","absent":"shared"})";

// Until an id has been without a row, there is no shared row, and ids without one read zeros.
void check_begins() {
  Bed bed(kAnyId, R"({"capacity":100,"absent":"shared","admit_after":2})");
  expect(bed.step(1, {5}, true)[0] == 0 && bed.rows().empty() && bed.stats().rows_in_use == 0,
         "an evaluation makes no row");
  expect(bed.step(2, {5, 6, 6})[0] == 0, "the shared row starts with zeros");
  const auto rows = bed.rows();
  expect(rows.size() == 2 && rows.contains(6) && rows.contains(TSR_SHARED_ROW_ID), "5 shares, and 6 was seen twice");
  const Row& shared = rows.at(TSR_SHARED_ROW_ID);
  expect(shared.values[3] == -kRate && shared.updates == 1.25f && shared.extra.step == 2, "what 5 learns is shared");
  expect(bed.step(3, {7, 7777, 7})[kDim] == -kRate, "all ids without a row read it");
  Bed bounded(1000, R"({"capacity":1000,"absent":"shared","admit_after":2})");  // every id has a slot
  bounded.step(1, {999, 3, 999});
  expect(bounded.rows().size() == 2 && bounded.rows().at(TSR_SHARED_ROW_ID).updates == 1.25f, "with bounded ids, too");
}

// Hits are lookups of ids that already had a row, also in an evaluation, and also if other ids get the shared row.
void check_counts() {
  struct Count {
    const char* options;
    uint64_t hits;
  };
  for (const Count& of : {Count{R"({"capacity":9})", 4}, Count{R"({"capacity":9,"absent":"shared"})", 4},
                          Count{R"({"capacity":9,"absent":"shared","admit_after":2})", 3}}) {
    Bed bed(kAnyId, of.options);
    bed.step(1, {5, 6, 6});
    bed.step(2, {5, 6});
    bed.step(3, {5, 6, 7, 8, 7}, true);
    const tsr_kernel_stats stats = bed.stats();
    expect(stats.lookups == 10 && stats.hits == of.hits, of.options, ": ", stats.hits, " hits of ", stats.lookups);
  }
}

// Rows move into a table that is no longer empty, and into one without a shared row.
void check_moves() {
  Bed first(kAnyId, kShared), imported(kAnyId, kShared);
  Bed alone(kAnyId, R"({"capacity":128,"evict":"lfu"})");
  std::mt19937_64 random(9);
  for (int64_t step = 1; step <= 20; ++step) {
    const std::vector<int64_t> ids = drawn(random, 300, 3000);
    first.step(step, ids);
    imported.step(step, drawn(random, 300, 5000));
  }
  const auto all = first.rows();
  expect(all.contains(TSR_SHARED_ROW_ID), "no id has shared a row");
  imported.import(all, true);
  alone.import(all, true);
  const auto kept = alone.rows();
  expect(kept.size() == all.size() - 1 && !kept.contains(TSR_SHARED_ROW_ID), "a table of zeros has no shared row");
  for (int64_t step = 21; step <= 40; ++step) {
    const std::vector<int64_t> ids = drawn(random, 300, 3000);
    for (Bed* bed : {&first, &imported}) bed->step(step, ids);
  }
  const auto want = first.rows();
  const auto got = imported.rows();
  expect(got.size() == want.size(), got.size(), " rows after a move, not ", want.size());
  for (const auto& [id, row] : want)
    expect(got.contains(id) && got.at(id).values == row.values && got.at(id).updates == row.updates, "row ", id,
           " continues differently");
  // Rows that replace all rows also replace the shared one.
  imported.import({{3, want.at(TSR_SHARED_ROW_ID)}}, true);
  expect(imported.rows().size() == 1 && imported.step(50, {4}, true)[0] == 0, "the shared row starts again");
}

// The earlier rows with the changes applied are the current rows.
void check_changes() {
  std::mt19937_64 random(8);
  Bed bed(kAnyId, kShared);
  Changes& draft = bed.tables();
  int64_t removed = 0;
  int with = 0;
  draft.mark(0);
  bed.step(1, {1});
  expect(!bed.changed(3).contains(TSR_SHARED_ROW_ID), "no id has shared a row");
  for (int64_t step = 2; step < 20; ++step) bed.step(step, drawn(random, 300, 3000));
  expect(bed.changed(3).contains(TSR_SHARED_ROW_ID), "the shared row came into being");
  draft.mark(1);
  bool shared_since = false;
  for (int64_t step = 20; step < 40; ++step) {
    draft.mark(0);
    std::map<int64_t, Row> model = bed.rows();
    expect(draft.changes(0, 0).changed == 0 && draft.changes(0, 0).removed == 0,
           "something changed right after a mark");
    bed.step(step, step % 4 == 0 ? std::vector<int64_t>{drawn(random, 1, 1)[0]} : drawn(random, 30, 3000));
    const auto changed = bed.changed(7);
    const auto gone = bed.removed(5);
    with += changed.contains(TSR_SHARED_ROW_ID) ? 1 : 0;
    shared_since = shared_since || changed.contains(TSR_SHARED_ROW_ID);
    expect(bed.changed(3, 1).contains(TSR_SHARED_ROW_ID) == shared_since,
           "another one who follows is told otherwise of the shared row");
    expect(draft.changes(0, 0).changed == std::ssize(changed) && draft.changes(0, 0).removed == std::ssize(gone),
           "they are others than counted");
    for (const int64_t id : gone) expect(model.erase(id) == 1, "id ", id, " was not there");
    for (const auto& [id, row] : changed) model[id] = row;
    const auto now = bed.rows();
    expect(model.size() == now.size(), model.size(), " rows by changes, and there are ", now.size());
    for (const auto& [id, row] : now)
      expect(model.contains(id) && model.at(id).values == row.values, "row ", id, " by changes is another one");
    removed += std::ssize(gone);
  }
  draft.mark(0);
  bed.import({{3, bed.rows().begin()->second}}, true);
  const auto gone = bed.removed(5);
  expect(std::find(gone.begin(), gone.end(), TSR_SHARED_ROW_ID) != gone.end(), "what is replaced is removed");
  expect(with > 3 && with < 20 && removed > 10, with, " times the shared row changed, ", removed, " ids were removed");
}

}  // namespace

int main() {
  check_begins();
  check_counts();
  check_moves();
  check_changes();
  for (const Case& of :
       {Case{R"({"capacity":128,"evict":"lru","absent":"shared"})"},
        Case{R"({"capacity":128,"evict":"lfu","absent":"shared"})", true},
        Case{R"({"capacity":200,"evict":"decayed","half_life":7,"absent":"shared","admit_after":2})", false, 0.25f},
        Case{R"({"capacity":100,"evict":"lru","absent":"shared","admit_after":3})", true, 0.125f},
        Case{R"({"capacity":128,"evict":"lfu","absent":"shared","admit_probability":0.5})"}})
    check_case(of);
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
