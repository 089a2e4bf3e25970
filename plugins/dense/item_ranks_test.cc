// item_ranks with candidates that are divided among several ranks.
#include <gmock/gmock.h>

#include <barrier>
#include <mutex>
#include <thread>

#include "test_layer.h"

namespace {

using testing::HasSubstr;

constexpr int kThreeRanks = 3;
constexpr int64_t kRankedItems = 200, kStateWidth = 5;

// Sums over ranks that are threads of this process.
class SummingRanks {
 public:
  static tsr_code add_up(void* self, const DLTensor* inout, tsr_error*) {
    auto& r = *static_cast<SummingRanks*>(self);
    inout->dtype.bits == 64 ? r.add<double>(inout) : r.add<float>(inout);
    return TSR_OK;
  }

 private:
  template <class T>
  void add(const DLTensor* inout) {
    auto* values = static_cast<T*>(inout->data);
    const auto n = static_cast<size_t>(inout->shape[0]);
    {
      const std::lock_guard lock(mutex_);
      sums_.resize(std::max(sums_.size(), n));
      for (size_t i = 0; i < n; ++i) sums_[i] += double{values[i]};
    }
    meet_.arrive_and_wait();
    for (size_t i = 0; i < n; ++i) values[i] = static_cast<T>(sums_[i]);
    meet_.arrive_and_wait();
    {
      const std::lock_guard lock(mutex_);
      sums_.clear();
    }
    meet_.arrive_and_wait();
  }

  std::barrier<> meet_{kThreeRanks};
  std::mutex mutex_;
  std::vector<double> sums_;
};

struct Sample {
  std::vector<float> state;
  std::vector<int64_t> items, seen;
};

struct ItemTable {
  int64_t first;
  std::vector<std::vector<float>> rows;
};

// Random numbers. If `coarse`, they are whole, so that many scores are equal.
std::vector<float> numbers(Noise& noise, bool coarse) {
  std::vector<float> out;
  for (int64_t i = 0; i < kStateWidth; ++i) out.push_back(coarse ? std::round(noise.next()) : noise.next());
  return out;
}

int64_t below(Noise& noise, int64_t n) { return static_cast<int64_t>((noise.next() + 1) / 2 * static_cast<float>(n)); }

std::vector<Sample> samples_of(Noise& noise, bool coarse) {
  std::vector<Sample> out(150);
  for (Sample& s : out) {
    s.state = numbers(noise, coarse);
    s.items.resize(static_cast<size_t>(below(noise, 4)));
    s.seen.resize(static_cast<size_t>(below(noise, 9)));
    for (int64_t& id : s.items) id = below(noise, kRankedItems + 20);  // a few, like 0, are no candidates
    for (int64_t& id : s.seen) id = below(noise, kRankedItems + 20);
  }
  return out;
}

void set_ids(Layer& layer, size_t input, const std::vector<int64_t>& ids) {
  layer.inputs[input].counts = ids;
  if (ids.empty()) layer.inputs[input].counts.assign(1, 0);
}

// Gives a layer its samples and candidates.
void fill(Layer& layer, const std::vector<Sample>& samples, const ItemTable& table) {
  layer.trains = false;
  layer.ids = {2, 3, 4};
  std::vector<int64_t> item_bounds = {0}, seen_bounds = {0}, items, seen, ids;
  for (const Sample& s : samples) {
    items.insert(items.end(), s.items.begin(), s.items.end());
    seen.insert(seen.end(), s.seen.begin(), s.seen.end());
    item_bounds.push_back(std::ssize(items));
    seen_bounds.push_back(std::ssize(seen));
  }
  const auto count = std::ssize(table.rows);
  std::vector<int64_t> bounds(samples.size() + 1, count);
  bounds[0] = 0;
  layer.all_bounds = {{}, bounds, item_bounds, bounds, seen_bounds};
  const auto n = std::ssize(samples);
  layer.with_inputs(
      {{n, kStateWidth}, {count, kStateWidth}, {std::ssize(items), 1}, {count, 1}, {std::ssize(seen), 1}});
  for (size_t s = 0; s < samples.size(); ++s)
    std::copy_n(samples[s].state.begin(), kStateWidth,
                layer.inputs[0].data.begin() + static_cast<int64_t>(s) * kStateWidth);
  for (int64_t c = 0; c < count; ++c) {
    std::copy_n(table.rows[static_cast<size_t>(c)].begin(), kStateWidth,
                layer.inputs[1].data.begin() + c * kStateWidth);
    ids.push_back(table.first + c);
  }
  set_ids(layer, 2, items);
  set_ids(layer, 3, ids);
  set_ids(layer, 4, seen);
}

class ItemRanks : public testing::TestWithParam<const char*> {};

TEST_P(ItemRanks, AreTheSameIfRanksDivideTheCandidates) {
  const std::string options = std::string(R"({"seen": true)") + GetParam() + "}";
  for (const bool coarse : {true, false}) {
    Noise noise;
    const std::vector<Sample> samples = samples_of(noise, coarse);
    ItemTable all{1, {}};
    for (int64_t i = 0; i < kRankedItems; ++i) all.rows.push_back(numbers(noise, coarse));
    TestHost host;
    Layer whole(host, "item_ranks", options);
    ASSERT_EQ(whole.code, TSR_OK) << whole.error();
    fill(whole, samples, all);
    ASSERT_EQ(whole.forward(), TSR_OK) << whole.error();
    ASSERT_GT(*std::max_element(whole.output.data.begin(), whole.output.data.end()), 100);

    SummingRanks ranks;
    const int64_t blocks[] = {0, 1, 1, kRankedItems};  // a rank with one candidate is a special case of score()
    const int64_t shares[] = {0, 97, 97, 150};         // the second rank has no samples, and so no candidates
    std::vector<std::vector<float>> outputs(kThreeRanks);
    std::vector<std::thread> running;
    for (int r = 0; r < kThreeRanks; ++r) {
      running.emplace_back([&, r] {
        TestHost own(2);
        Layer part(own, "item_ranks", options);
        part.sum_over_ranks = SummingRanks::add_up;
        part.ranks = &ranks;
        part.rank = r;
        part.world_size = kThreeRanks;
        fill(part, {samples.begin() + shares[r], samples.begin() + shares[r + 1]},
             {1 + blocks[r], {all.rows.begin() + blocks[r], all.rows.begin() + blocks[r + 1]}});
        EXPECT_EQ(part.forward(), TSR_OK) << part.error();
        outputs[static_cast<size_t>(r)] = part.output.data;
      });
    }
    for (std::thread& t : running) t.join();
    std::vector<float> got;
    for (const auto& out : outputs) got.insert(got.end(), out.begin(), out.end());
    EXPECT_EQ(got, whole.output.data) << "coarse " << coarse;
  }
}

INSTANTIATE_TEST_SUITE_P(Options, ItemRanks, testing::Values("", R"(, "ties": "last")", R"(, "items": "all")"));

}  // namespace
