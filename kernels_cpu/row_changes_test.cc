// Tests which rows the cpu kernel reports as changed since a mark: tessera.kernel.changes/draft-3.
#include <set>

#include "tessera/abi/draft/rows_view.h"
#include "tessera/sdk/draft/changes.h"
#include "test_support.h"

namespace {

using namespace tessera_cpu::test;

struct Changed {
  std::vector<int64_t> ids;
  std::vector<float> weights, states;
};

class Tables : public Model {
 public:
  Tables(TestHost& host, const Options& o) : Model(host, TESSERA_KERNEL_CPU, "cpu", o) {
    open().randomize(Random(2));
    draft_ = static_cast<const tsr_kernel_changes*>(extension(TSR_KERNEL_CHANGES));
  }

  bool knows() const { return draft_ != nullptr; }
  tsr_code mark(uint32_t follower, Error& error) { return draft_->mark(instance, follower, &error); }
  void mark(uint32_t follower = 0) {
    Error error;
    ASSERT_EQ(mark(follower, error), TSR_OK) << error.message;
  }
  tsr_code count(uint32_t table, int64_t* changed, Error& error, uint32_t follower = 0) {
    int64_t removed = 7;
    const tsr_code code = draft_->count(instance, follower, table, changed, &removed, &error);
    EXPECT_EQ(removed, code == TSR_OK ? 0 : 7);
    return code;
  }
  // Fetches changes of a table with a state per row, `at_once` rows per call.
  Changed changed(uint32_t table, int64_t at_once, uint32_t follower = 0) {
    const int64_t dim = options.tables[table].dim;
    Array ids(kI64, at_once), weights(kF32, at_once * dim), state(kF32, at_once);
    const DLTensor* states[] = {&state.tensor};
    tsr_rows rows{sizeof(tsr_rows), 0, 1, 0, 0, &ids.tensor, &weights.tensor, states, nullptr};
    Changed out;
    Error error;
    for (uint64_t cursor = 0;;) {
      EXPECT_EQ(draft_->export_changed(instance, follower, table, &cursor, &rows, &error), TSR_OK) << error.message;
      if (rows.count == 0) break;
      out.ids.insert(out.ids.end(), ids.data<int64_t>(), ids.data<int64_t>() + rows.count);
      out.weights.insert(out.weights.end(), weights.data<float>(), weights.data<float>() + rows.count * dim);
      out.states.insert(out.states.end(), state.data<float>(), state.data<float>() + rows.count);
    }
    int64_t counted = -1;
    EXPECT_EQ(count(table, &counted, error, follower), TSR_OK) << error.message;
    EXPECT_EQ(counted, static_cast<int64_t>(out.ids.size()));
    return out;
  }
  void train(Batch& batch, int64_t step) {
    Array output(kF32, batch.output_size);
    backward(batch, forward(batch, output), nullptr, 1, step);
  }

 private:
  const tsr_kernel_changes* draft_ = nullptr;
};

Options two_tables() {
  Options o;
  o.tables = {{3000, 16}, {70, 4}};
  o.take_optimizer("exact_rowwise_adagrad");
  return o;
}

std::vector<int64_t> ids_of(Batch& batch, uint32_t feature) {
  const tsr_lookup_feature& f = batch.raw_features[feature];
  const auto at = [](Array& a, int64_t i) {
    return a.tensor.dtype.bits == 64 ? a.data<int64_t>()[i] : int64_t{a.data<int32_t>()[i]};
  };
  std::set<int64_t> out;
  for (int64_t i = at(*batch.offsets, f.first_offset); i < at(*batch.offsets, f.first_offset + f.bags); ++i)
    out.insert(at(*batch.ids, i));
  return {out.begin(), out.end()};
}

TEST(RowChanges, AreTheRowsOfTheBatchesWithTheirValues) {
  for (const uint32_t threads : {1u, 4u}) {
    TestHost host;
    host.threads = threads;
    Tables model(host, two_tables());
    ASSERT_TRUE(model.knows());
    Random random(5);
    for (int64_t round = 0; round < 3; ++round) {
      const auto batch = random_batch(random, model.options, {{0, TSR_POOLING_SUM}, {1, TSR_POOLING_MEAN}},
                                      round == 0 ? 1200 : 3, 4, round == 1 ? kI32 : kI64, round == 2);
      model.train(*batch, 2 * round + 1);  // these changes are before the mark, and so are not reported
      model.mark();
      EXPECT_TRUE(model.changed(0, 64).ids.empty());
      const auto next = random_batch(random, model.options, {{0, TSR_POOLING_SUM}, {1, TSR_POOLING_MEAN}},
                                     round == 0 ? 1200 : 3, 4, round == 1 ? kI32 : kI64, round == 2);
      const std::vector<float> before = model.rows_of(0);
      model.train(*next, 2 * round + 2);
      const std::vector<float> after = model.rows_of(0);
      for (uint32_t t = 0; t < 2; ++t) {
        const Changed found = model.changed(t, t == 0 ? 64 : 1);
        EXPECT_EQ(found.ids, ids_of(*next, t)) << threads << ' ' << round;
        if (t == 1) continue;
        for (size_t i = 0; i < found.ids.size(); ++i) {
          for (size_t d = 0; d < 16; ++d)
            ASSERT_EQ(found.weights[16 * i + d], after[static_cast<size_t>(found.ids[i]) * 16 + d]);
          ASSERT_EQ(found.states[i], after[size_t{3000} * 16 + static_cast<size_t>(found.ids[i])]);
        }
      }
      const Changed all = model.changed(0, 5000);
      const std::set<int64_t> named(all.ids.begin(), all.ids.end());
      int64_t differ = 0;
      for (int64_t row = 0; row < 3000; ++row) {
        if (std::equal(before.begin() + row * 16, before.begin() + (row + 1) * 16, after.begin() + row * 16)) continue;
        ++differ;
        ASSERT_TRUE(named.contains(row)) << row;
      }
      EXPECT_GT(differ, 0);
    }
  }
}

TEST(RowChanges, RowsThatAreImportedLoadedAndAppliedCountToo) {
  TestHost host;
  Options o = two_tables();
  o.compute_kernel = "dense";
  Tables model(host, o);
  model.mark();
  Array rows(kI64, 2), values(kF32, 32);
  rows.data<int64_t>()[0] = 5;
  rows.data<int64_t>()[1] = 2999;
  const tsr_update update{sizeof(tsr_update), 0, 0.1, 1};
  Error error;
  ASSERT_EQ(model.api->apply(model.instance, 0, &rows.tensor, &values.tensor, &update, nullptr, &error), TSR_OK)
      << error.message;
  EXPECT_EQ(model.changed(0, 10).ids, (std::vector<int64_t>{5, 2999}));
  model.mark();
  EXPECT_TRUE(model.changed(0, 10).ids.empty());
  model.set_rows(1, model.rows_of(1));
  EXPECT_EQ(model.changed(1, 100).ids.size(), 70u);
  EXPECT_TRUE(model.changed(0, 10).ids.empty());
}

// Two followers with marks at different times each get the changes since their own mark.
TEST(RowChanges, EachWhoFollowsIsToldSinceItsOwnMark) {
  TestHost host;
  host.threads = 4;
  Tables model(host, two_tables());
  Random random(6);
  std::set<int64_t> since[2];
  int64_t step = 0;
  const auto mark = [&](uint32_t follower) {
    model.mark(follower);
    since[follower].clear();
  };
  mark(0);
  mark(1);
  for (int64_t round = 0; round < 24; ++round) {
    const auto batch =
        random_batch(random, model.options, {{0, TSR_POOLING_SUM}, {1, TSR_POOLING_SUM}}, 2, 3, kI64, false);
    model.train(*batch, ++step);
    for (std::set<int64_t>& ids : since) {
      const std::vector<int64_t> more = ids_of(*batch, 0);
      ids.insert(more.begin(), more.end());
    }
    for (const uint32_t follower : {0u, 1u}) {
      const Changed found = model.changed(0, 7, follower);
      ASSERT_EQ(found.ids, std::vector<int64_t>(since[follower].begin(), since[follower].end())) << round;
      const std::vector<float> now = model.rows_of(0);
      for (size_t i = 0; i < found.ids.size(); ++i)
        ASSERT_EQ(found.weights[16 * i], now[static_cast<size_t>(found.ids[i]) * 16]);
    }
    if (round % 3 == 2) mark(1);
    if (round % 7 == 6) mark(0);
  }
  EXPECT_NE(since[0], since[1]);
}

// The kernel does not see writes through a view, so it reports all rows of the table as changed.
TEST(RowChanges, AllRowsOfAViewedTableCount) {
  TestHost host;
  Tables model(host, two_tables());
  const auto* draft = static_cast<const tsr_rows_view*>(model.extension(TSR_ROWS_VIEW));
  ASSERT_NE(draft, nullptr);
  model.mark();
  tsr_matrix_view view{};
  view.struct_size = sizeof(view);
  Error error;
  ASSERT_EQ(draft->view(model.instance, 1, 0, &view, &error), TSR_OK) << error.message;
  EXPECT_TRUE(model.changed(1, 64).ids.empty()) << "a state is no row";
  ASSERT_EQ(draft->view(model.instance, 1, TSR_VIEW_WEIGHTS, &view, &error), TSR_OK) << error.message;
  static_cast<float*>(view.data)[69 * view.stride] = 5;
  const Changed found = model.changed(1, 64);
  EXPECT_EQ(found.ids.size(), 70u);
  EXPECT_EQ(found.weights[size_t{69} * 4], 5);
  EXPECT_TRUE(model.changed(0, 64).ids.empty()) << "the other table was not viewed";
  model.mark(1);
  EXPECT_EQ(model.changed(1, 64, 1).ids.size(), 70u);
  EXPECT_EQ(draft->view(model.instance, 1, 1, &view, &error), TSR_OUT_OF_RANGE);
  EXPECT_NE(std::string(error.message).find("has no state 1: it has 1"), std::string::npos) << error.message;
}

TEST(RowChanges, WhoFollowsIsOneOfThose) {
  TestHost host;
  Tables model(host, two_tables());
  Error error;
  EXPECT_EQ(model.mark(tessera::sdk::kFollowers, error), TSR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.message).find("there is no follower 2"), std::string::npos) << error.message;
  model.mark(1);
  int64_t changed = 0;
  EXPECT_EQ(model.count(0, &changed, error, 0), TSR_FAILED_PRECONDITION);
  EXPECT_NE(std::string(error.message).find("follower 0 has none"), std::string::npos) << error.message;
  EXPECT_EQ(model.count(0, &changed, error, 1), TSR_OK);
  EXPECT_EQ(model.count(0, &changed, error, tessera::sdk::kFollowers), TSR_INVALID_ARGUMENT);
}

TEST(RowChanges, BeforeTheFirstMarkNothingIsKnownAndNothingKept) {
  TestHost host;
  Tables model(host, two_tables());
  const uint64_t bytes = model.stats(0).other_bytes;
  int64_t changed = 0;
  Error error;
  EXPECT_EQ(model.count(0, &changed, error), TSR_FAILED_PRECONDITION);
  EXPECT_NE(std::string(error.message).find("call mark first"), std::string::npos) << error.message;
  model.mark();
  const uint64_t followed = model.stats(0).other_bytes;
  EXPECT_GE(followed, bytes + (3000 / 8) / 2);  // a bit per row, reported in equal parts by all tables
  model.mark();
  EXPECT_EQ(model.stats(0).other_bytes, followed);
  model.mark(1);
  EXPECT_LE(model.stats(0).other_bytes, bytes + 2 * (followed - bytes));
}

}  // namespace
