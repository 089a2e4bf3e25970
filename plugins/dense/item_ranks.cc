#include "item_ranks.h"

#include <algorithm>
#include <cmath>

namespace tessera_dense {
namespace {

using tessera::sdk::fail;
using tessera::sdk::ModuleCall;
using tessera::sdk::Value;

constexpr const char* kItemRanks = "item_ranks";
constexpr int64_t kSamplesTogether = 64;     // samples whose scores are one product
constexpr int64_t kScoresAtOnce = 16 << 20;  // in memory

// The ids of each sample: from an input, which is a sequence or has one id per sample, or from vectors with offsets.
struct SampleIds {
  SampleIds(const ModuleCall& call, size_t i) : input(&call.inputs[i]), samples(call.batch) {
    if (!call.offsets.empty() && call.offsets[i].data != nullptr) offsets = offsets_of(call, i, kItemRanks);
  }
  SampleIds(const std::vector<int64_t>& ids, const std::vector<int64_t>& bounds)
      : copies(ids.data()), offsets(bounds.data()), samples(std::ssize(bounds) - 1) {}
  int64_t begin(int64_t sample) const { return offsets ? offsets[sample] : sample; }
  int64_t end(int64_t sample) const { return begin(sample + 1); }
  int64_t at(int64_t i) const { return copies ? copies[i] : integer_at(*input, i); }
  bool has(int64_t sample, int64_t id) const {
    for (int64_t i = begin(sample); i < end(sample); ++i) {
      if (at(i) == id) return true;
    }
    return false;
  }
  const DLTensor* input = nullptr;
  const int64_t *copies = nullptr, *offsets = nullptr;
  int64_t samples;
};

void check_ids(const Value& value, const Value& like, const char* what) {
  const bool integer = value.dtype.code == kDLInt && (value.dtype.bits == 32 || value.dtype.bits == 64);
  if (!integer || value.width > 1 || !value.has_rows_of(like)) fail(TSR_INVALID_ARGUMENT, kItemRanks, " takes ", what);
}

}  // namespace

struct ItemRanks::Work {
  SampleIds items, seen;  // unless seen_, nobody reads `seen`
  const float* states;    // a row for each sample
  const float* candidates;
  int64_t count, width;  // number of candidates, width of their rows
  // Index of the sample's first item to rank: the last item, or with `all` the first.
  int64_t first_item(int64_t sample, bool all) const {
    return all ? items.begin(sample) : std::max(items.begin(sample), items.end(sample) - 1);
  }
};

// The requests of all ranks, in the order of the ranks.
struct ItemRanks::Gathered {
  std::vector<int64_t> items, item_bounds = {0}, seen, seen_bounds = {0};
  std::vector<float> states;
  int64_t first_sample = 0, first_item = 0;  // the first ones of this rank
  int64_t most_candidates = 0;               // the most that a rank has
};

ItemRanks::ItemRanks(const tessera::sdk::Setup& setup) : host_(setup.host), drawn_(setup.options) {
  tessera::sdk::joined_width(setup.options);
  all_ = setup.options.word("items", {"last", "all"}) == 1;
  ties_last_ = setup.options.word("ties", {"lower_id", "last"}) == 1;
  seen_ = setup.options.flag("seen", false);
  prepare_products();
}

std::vector<Value> ItemRanks::outputs(std::span<const Value> inputs) const {
  const size_t wanted = seen_ ? 5 : 4;
  if (inputs.size() != wanted)
    fail(TSR_INVALID_ARGUMENT, kItemRanks, " takes ", wanted, " inputs, not ", inputs.size(),
         ": states, candidates' rows, the items' ids, the candidates' ids", seen_ ? ", ids that were seen" : "");
  if (!is_float(inputs[0].dtype) || !is_float(inputs[1].dtype) ||
      (inputs[0].width != inputs[1].width && inputs[0].width != 0 && inputs[1].width != 0))
    fail(TSR_INVALID_ARGUMENT, kItemRanks, " takes states and candidates of one width, not of ", inputs[0].width,
         " and ", inputs[1].width, " values");
  check_ids(inputs[2], inputs[2], "the items' ids as integers");
  check_ids(inputs[3], inputs[1], "an id for each candidate, as an integer");
  if (seen_) check_ids(inputs[4], inputs[4], "ids that were seen as integers");
  if (inputs[1].only_in_training)
    fail(TSR_INVALID_ARGUMENT, kItemRanks, " ranks in evaluations, but its candidates (input 1) are drawn in training ",
         "alone: take those of another feature, or leave out during=training");
  if (const int64_t draw = drawn_.of(1); draw == DrawnInputs::kPerBatch || draw == DrawnInputs::kPerSample)
    fail(TSR_INVALID_ARGUMENT, kItemRanks, " compares an item with each other item once, but input 1 may have an id ",
         "twice: draw it with draw=all");
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].split && !inputs[i].split_in_evaluation) continue;
    if (i != 1 && i != 3)
      fail(TSR_INVALID_ARGUMENT, "each rank has other rows of input ", i, ": only candidates may be split");
  }
  if (all_ && !inputs[2].jagged)
    fail(TSR_INVALID_ARGUMENT, kItemRanks, " with items = \"all\" takes the items' ids as a sequence");
  return {all_ ? inputs[2].with_width(1) : Value{1}};
}

int64_t ItemRanks::place_of(const Work& work, int64_t id) const {
  int64_t place = -1;
  index_.each(id, 0, work.count, [&](int64_t c) { place = c; });
  return place;
}

int64_t ItemRanks::count_before(const Work& work, const float* scores, int64_t sample, int64_t id, float own) const {
  const int64_t place = place_of(work, id);
  const auto before = [&](int64_t c) {
    return scores[c] > own || (scores[c] == own && c != place && (ties_last_ || ids_[static_cast<size_t>(c)] < id));
  };
  int64_t count = 0;
  for (int64_t c = 0; c < work.count; ++c) count += before(c) ? 1 : 0;
  for (int64_t i = seen_ ? work.seen.begin(sample) : 0; seen_ && i < work.seen.end(sample); ++i) {
    const int64_t seen = work.seen.at(i);
    bool again = false;  // an id counts once
    for (int64_t k = work.seen.begin(sample); k < i && !again; ++k) again = work.seen.at(k) == seen;
    if (!again) index_.each(seen, 0, work.count, [&](int64_t c) { count -= before(c) ? 1 : 0; });
  }
  return count;
}

void ItemRanks::score(const Work& work, int64_t first, int64_t last, float* scores) const {
  const auto product = [&](const float* candidates, int64_t count, float* to) {
    multiply({'N', 'T', last - first, count, work.width, 1, work.states + first * work.width, work.width, candidates,
              work.width, 0, to, count});
  };
  if (work.count > 1) return product(work.candidates, work.count, scores);
  if (work.count == 0) return;
  // oneDNN sums a single column in another order. Two columns give the same bits as a larger block.
  std::vector<float> twice(work.candidates, work.candidates + work.width), both(static_cast<size_t>(last - first) * 2);
  twice.insert(twice.end(), work.candidates, work.candidates + work.width);
  product(twice.data(), 2, both.data());
  for (int64_t s = 0; s < last - first; ++s) scores[s] = both[static_cast<size_t>(s) * 2];
}

void ItemRanks::forward(const ModuleCall& call, tsr_module_context** context) {
  if (context) *context = reinterpret_cast<tsr_module_context*>(this);
  const int64_t outputs = call.outputs[0].shape[0];
  float* out = matrix(call.outputs[0], outputs, 1, "item_ranks' output");
  std::fill_n(out, outputs, 0.0f);
  if (call.trains) return;
  const int64_t width = call.inputs[0].shape[1], count = call.inputs[1].shape[0];
  const SampleRows rows(call, 0, kItemRanks);
  const float* candidates = matrix(call.inputs[1], count, width, "the candidates' rows");
  ids_.clear();
  for (int64_t i = 0; i < count; ++i) ids_.push_back(integer_at(call.inputs[3], i));
  index_.take(ids_);
  float* states = states_.at_least(host_, call.batch * width);
  for (int64_t s = 0; s < call.batch; ++s) {
    if (rows.count(s) > 0)
      std::copy_n(rows.values(s) + (rows.count(s) - 1) * width, width, states + s * width);
    else
      std::fill_n(states + s * width, width, 0.0f);
  }
  const Work work{SampleIds(call, 2), SampleIds(call, seen_ ? 4 : 2), states, candidates, count, width};
  call.sums_over_ranks() ? rank_together(call, work, out) : rank_alone(work, out);
}

void ItemRanks::rank_alone(const Work& work, float* out) {
  const int64_t samples = work.items.samples, count = work.count;
  float* scratch = scratch_.at_least(host_, kSamplesTogether * count * slots_of(host_, samples, kSamplesTogether));
  in_blocks(host_, samples, kSamplesTogether, [&](int64_t first, int64_t last, int64_t slot) {
    const OneThread alone;
    float* scores = scratch + slot * kSamplesTogether * count;
    score(work, first, last, scores);
    for (int64_t s = first; s < last; ++s, scores += count) {
      const int64_t begin = work.first_item(s, all_), end = work.items.end(s);
      if (!all_) out[s] = -1;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t id = work.items.at(i), place = place_of(work, id);
        const bool ranked = place >= 0 && !std::isnan(scores[place]) && !(seen_ && work.seen.has(s, id));
        out[all_ ? i : s] = ranked ? static_cast<float>(1 + count_before(work, scores, s, id, scores[place])) : 0;
      }
    }
  });
}

void ItemRanks::gather(const ModuleCall& call, const Work& own, Gathered* all) {
  const auto world = static_cast<size_t>(call.world_size()), rank = static_cast<size_t>(call.rank());
  // Each sample sends the number of its items, the number of ids that it has seen, the items, and the seen ids.
  std::vector<double> asked;
  for (int64_t s = 0; s < own.items.samples; ++s) {
    const int64_t first = own.first_item(s, all_), begin = seen_ ? own.seen.begin(s) : 0;
    const int64_t end = seen_ ? own.seen.end(s) : 0;
    asked.push_back(static_cast<double>(own.items.end(s) - first));
    asked.push_back(static_cast<double>(end - begin));
    for (int64_t i = first; i < own.items.end(s); ++i) asked.push_back(static_cast<double>(own.items.at(i)));
    for (int64_t i = begin; i < end; ++i) asked.push_back(static_cast<double>(own.seen.at(i)));
  }
  std::vector<double> sizes;
  const double here[] = {static_cast<double>(own.items.samples), static_cast<double>(asked.size()),
                         static_cast<double>(own.count)};
  gather_sizes(call, ids_, here, &sizes);
  const size_t stride = sizes.size() / world;
  int64_t samples = 0, numbers = 0, first_number = 0;
  for (size_t r = 0; r < world; ++r) {
    if (r == rank) all->first_sample = samples, first_number = numbers;
    samples += static_cast<int64_t>(sizes[r * stride]);
    numbers += static_cast<int64_t>(sizes[r * stride + 1]);
    all->most_candidates = std::max(all->most_candidates, static_cast<int64_t>(sizes[r * stride + 2]));
  }
  std::vector<double> gathered(static_cast<size_t>(numbers));
  std::copy(asked.begin(), asked.end(), gathered.begin() + first_number);
  sum_over_ranks(call, gathered);
  const double* next = gathered.data();
  for (int64_t s = 0; s < samples; ++s) {
    if (s == all->first_sample) all->first_item = std::ssize(all->items);
    const auto items = static_cast<int64_t>(*next++), seen = static_cast<int64_t>(*next++);
    for (int64_t i = 0; i < items; ++i) all->items.push_back(static_cast<int64_t>(*next++));
    for (int64_t i = 0; i < seen; ++i) all->seen.push_back(static_cast<int64_t>(*next++));
    all->item_bounds.push_back(std::ssize(all->items));
    all->seen_bounds.push_back(std::ssize(all->seen));
  }
  all->states.resize(static_cast<size_t>(samples * own.width));
  std::copy_n(own.states, own.items.samples * own.width, all->states.begin() + all->first_sample * own.width);
  sum_over_ranks(call, all->states);
}

// The rank that has an item's row sends its score to all ranks, and each counts its own candidates before the item.
void ItemRanks::rank_together(const ModuleCall& call, const Work& own, float* out) {
  Gathered all;
  gather(call, own, &all);
  const Work work{SampleIds(all.items, all.item_bounds),
                  SampleIds(all.seen, all.seen_bounds),
                  all.states.data(),
                  own.candidates,
                  own.count,
                  own.width};
  const int64_t samples = work.items.samples;
  const int64_t blocks = std::max<int64_t>(1, kScoresAtOnce / kSamplesTogether / (all.most_candidates + 1));
  std::vector<double> counts(all.items.size());
  std::vector<float> scored;  // two per item of the current samples: 1 if a rank has it, and its score
  std::vector<float> kept(all.items.size());
  for (int64_t begin = 0; begin < samples; begin += blocks * kSamplesTogether) {
    const int64_t end = std::min(samples, begin + blocks * kSamplesTogether), first_item = work.items.begin(begin);
    float* scratch = scratch_.at_least(host_, (end - begin) * work.count);
    scored.assign(static_cast<size_t>((work.items.begin(end) - first_item) * 2), 0.0f);
    // Calls body(item, id, sample, scores) for the items of samples [begin, end).
    const auto each = [&](bool first_time, const auto& body) {
      in_blocks(host_, end - begin, kSamplesTogether, [&](int64_t first, int64_t last, int64_t) {
        const OneThread alone;
        float* scores = scratch + first * work.count;
        if (first_time) score(work, begin + first, begin + last, scores);
        for (int64_t s = begin + first; s < begin + last; ++s, scores += work.count) {
          for (int64_t i = work.items.begin(s); i < work.items.end(s); ++i) body(i, work.items.at(i), s, scores);
        }
      });
    };
    each(true, [&](int64_t i, int64_t id, int64_t, const float* scores) {
      const int64_t place = place_of(work, id);
      if (place < 0) return;
      scored[static_cast<size_t>(i - first_item) * 2] = 1;
      scored[static_cast<size_t>(i - first_item) * 2 + 1] = scores[place];
    });
    sum_over_ranks(call, scored);
    each(false, [&](int64_t i, int64_t id, int64_t sample, const float* scores) {
      const float score = scored[static_cast<size_t>(i - first_item) * 2 + 1];
      const bool ranked = scored[static_cast<size_t>(i - first_item) * 2] > 0 && !std::isnan(score) &&
                          !(seen_ && work.seen.has(sample, id));
      kept[static_cast<size_t>(i)] = ranked ? 1 : 0;
      if (ranked) counts[static_cast<size_t>(i)] = static_cast<double>(count_before(work, scores, sample, id, score));
    });
  }
  sum_over_ranks(call, counts);
  for (int64_t s = 0, i = all.first_item; s < own.items.samples; ++s) {
    const int64_t first = own.first_item(s, all_), end = own.items.end(s);
    if (!all_) out[s] = -1;
    for (int64_t k = first; k < end; ++k, ++i) {
      const auto at = static_cast<size_t>(i);
      out[all_ ? k : s] = kept[at] > 0 ? static_cast<float>(1 + counts[at]) : 0;
    }
  }
}

void ItemRanks::backward(const ModuleCall& call, tsr_module_context*) {
  for (const DLTensor& t : call.grad_inputs) {
    if (t.data != nullptr) std::fill_n(tessera::sdk::data_as<float>(t), tessera::sdk::numel(t), 0.0f);
  }
}

}  // namespace tessera_dense
