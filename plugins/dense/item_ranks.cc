#include "item_ranks.h"

#include <cmath>

namespace tessera_dense {
namespace {

using tessera::sdk::fail;
using tessera::sdk::ModuleCall;
using tessera::sdk::Value;

constexpr const char* kItemRanks = "item_ranks";
constexpr int64_t kSamplesTogether = 64;  // samples whose scores are one product

// The integers of each sample: a sequence, or one.
struct SampleIds {
  SampleIds(const ModuleCall& call, size_t i) : ids(call.inputs[i]) {
    if (!call.offsets.empty() && call.offsets[i].data != nullptr) offsets = offsets_of(call, i, kItemRanks);
  }
  int64_t begin(int64_t sample) const { return offsets ? offsets[sample] : sample; }
  int64_t end(int64_t sample) const { return offsets ? offsets[sample + 1] : sample + 1; }
  int64_t at(int64_t i) const { return integer_at(ids, i); }
  const DLTensor& ids;
  const int64_t* offsets = nullptr;
};

void check_ids(const Value& value, const Value& like, const char* what) {
  const bool integer = value.dtype.code == kDLInt && (value.dtype.bits == 32 || value.dtype.bits == 64);
  if (!integer || value.width > 1 || !value.has_rows_of(like)) fail(TSR_INVALID_ARGUMENT, kItemRanks, " takes ", what);
}

}  // namespace

struct ItemRanks::Work {
  SampleIds items;
  const SampleIds* seen;  // NULL: none
  int64_t count;          // of candidates
};

ItemRanks::ItemRanks(const tessera::sdk::Setup& setup) : host_(setup.host) {
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
  if (all_ && !inputs[2].jagged)
    fail(TSR_INVALID_ARGUMENT, kItemRanks, " with items = \"all\" takes the items' ids as a sequence");
  return {all_ ? inputs[2].with_width(1) : Value{1}};
}

float ItemRanks::rank_of(const Work& work, const float* scores, int64_t sample, int64_t id) const {
  int64_t place = -1;
  index_.each(id, 0, work.count, [&](int64_t c) { place = c; });
  if (place < 0 || std::isnan(scores[place])) return 0;
  const float own = scores[place];
  const auto before = [&](int64_t c) {
    return scores[c] > own || (scores[c] == own && c != place && (ties_last_ || ids_[static_cast<size_t>(c)] < id));
  };
  int64_t rank = 1;
  for (int64_t c = 0; c < work.count; ++c) rank += before(c) ? 1 : 0;
  for (int64_t i = work.seen ? work.seen->begin(sample) : 0; work.seen && i < work.seen->end(sample); ++i) {
    const int64_t seen = work.seen->at(i);
    if (seen == id) return 0;
    bool again = false;  // an id counts once
    for (int64_t k = work.seen->begin(sample); k < i && !again; ++k) again = work.seen->at(k) == seen;
    if (!again) index_.each(seen, 0, work.count, [&](int64_t c) { rank -= before(c) ? 1 : 0; });
  }
  return static_cast<float>(rank);
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
  const SampleIds seen(call, seen_ ? 4 : 2);
  const Work work{SampleIds(call, 2), seen_ ? &seen : nullptr, count};
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
  float* scratch = scratch_.at_least(host_, kSamplesTogether * count * slots_of(host_, call.batch, kSamplesTogether));
  in_blocks(host_, call.batch, kSamplesTogether, [&](int64_t first, int64_t last, int64_t slot) {
    const OneThread alone;
    float* scores = scratch + slot * kSamplesTogether * count;
    if (count > 0)
      multiply({'N', 'T', last - first, count, width, 1, states + first * width, width, candidates, width, 0, scores,
                count});
    for (int64_t s = first; s < last; ++s, scores += count) {
      const int64_t begin = work.items.begin(s), end = work.items.end(s);
      if (!all_) out[s] = begin == end ? -1.0f : rank_of(work, scores, s, work.items.at(end - 1));
      for (int64_t i = begin; all_ && i < end; ++i) out[i] = rank_of(work, scores, s, work.items.at(i));
    }
  });
}

void ItemRanks::backward(const ModuleCall& call, tsr_module_context*) {
  for (const DLTensor& t : call.grad_inputs) {
    if (t.data != nullptr) std::fill_n(tessera::sdk::data_as<float>(t), tessera::sdk::numel(t), 0.0f);
  }
}

}  // namespace tessera_dense
