#include "distributed/route.h"

#include <algorithm>
#include <cstring>

namespace tessera {
namespace {

// The ids, lengths and weights of one slot, as the input holds them.
template <class Id>
struct SlotInput {
  const Id* ids;
  const float* weights;
  int64_t num_ids;
  int64_t bags;
};

int find_range(const Cut& cut, int64_t id) {
  if (cut.block) return static_cast<int>(id / cut.block);
  const auto at = std::upper_bound(cut.begins.begin(), cut.begins.end(), id);
  return static_cast<int>(at - cut.begins.begin()) - 1;
}

class Router {
 public:
  Router(const LaneMap& map, const CheckedBatch& batch, int rank, bool sequence, Step& step)
      : map_(map), batch_(batch), input_(batch.input), rank_(rank), sequence_(sequence), step_(step) {}

  void run() {
    read_lengths();
    count_bags();
    if (input_.values().dtype() == DType::kInt32)
      measure_all<int32_t>();
    else
      measure_all<int64_t>();
    lay_out();
    if (input_.values().dtype() == DType::kInt32)
      fill_all<int32_t>();
    else
      fill_all<int64_t>();
    fill_lengths();
  }

 private:
  // The input's lengths as int32.
  void read_lengths() {
    const Tensor& lengths = input_.lengths();
    if (lengths.dtype() == DType::kInt32) {
      lengths_ = lengths.data<int32_t>();
    } else {
      step_.input_lengths.resize(lengths.numel());
      std::transform(lengths.data<int64_t>(), lengths.data<int64_t>() + lengths.numel(), step_.input_lengths.begin(),
                     [](int64_t n) { return static_cast<int32_t>(n); });
      lengths_ = step_.input_lengths.data();
    }
  }

  // Samples of every slot, and where each stream's lengths begin.
  void count_bags() {
    const size_t n = map_.streams().size();
    step_.sent.assign(n, {});
    step_.lengths_begin.resize(n + 1);
    int64_t total = 0;
    for (size_t i = 0; i < n; ++i) {
      step_.lengths_begin[i] = total;
      step_.sent[i].bags = batch_.slot_bags[map_.streams()[i].slot];
      total += step_.sent[i].bags;
    }
    step_.lengths_begin[n] = total;
    step_.lengths.resize(total);
    step_.ranges_begin.assign(map_.cuts().size(), 0);
    int64_t ranged = 0;
    for (size_t c = 0; c < map_.cuts().size(); ++c) {
      step_.ranges_begin[c] = ranged;
      if (!map_.cuts()[c].whole() || map_.cuts()[c].router)
        ranged += input_.length_per_key()[batch_.slot_key[map_.cuts()[c].slot]];
    }
    step_.ranges.resize(ranged);
    step_.local_rows.resize(ranged);
    measure_means();
  }

  void measure_means() {
    step_.mean_begin.assign(map_.slots().size(), -1);
    step_.mean_scale.clear();
    for (size_t s = 0; s < map_.slots().size(); ++s) {
      if (map_.slots()[s].pooling != PoolingType::kMean || map_.slots()[s].replicated) continue;
      step_.mean_begin[s] = static_cast<int64_t>(step_.mean_scale.size());
      for (int64_t b = 0; b < batch_.slot_bags[s]; ++b) {
        const int64_t length = batch_.clean() ? slot_length(static_cast<int>(s), b)
                                              : batch_.mean_lengths.data<int64_t>()[batch_.slot_first_bag[s] + b];
        step_.mean_scale.push_back(length ? 1.0f / static_cast<float>(length) : 0.0f);
      }
    }
  }

  int64_t slot_length(int slot, int64_t bag) const { return lengths_[batch_.slot_first_bag[slot] + bag]; }

  // Where the i-th id of a slot stood in the caller's slot.
  int64_t position(int slot, int64_t i) const {
    if (batch_.clean()) return i;
    const int64_t first = input_.offset_per_key()[batch_.slot_key[slot]];
    return batch_.positions.data<int64_t>()[first + i] - batch_.original.offset_per_key()[batch_.original_key[slot]];
  }

  template <class Id>
  SlotInput<Id> slot_input(int slot) const {
    const int key = batch_.slot_key[slot];
    const int64_t first = input_.offset_per_key()[key];
    return {input_.values().data<Id>() + first, step_.weighted ? input_.weights().data<float>() + first : nullptr,
            input_.length_per_key()[key], batch_.slot_bags[slot]};
  }

  // First pass: lengths and sizes of every stream.
  template <class Id>
  void measure_all() {
    for (size_t c = 0; c < map_.cuts().size(); ++c) {
      const Cut& cut = map_.cuts()[c];
      if (cut.whole() && !cut.router)
        measure_whole(cut);
      else
        measure_cut<Id>(cut, step_.ranges_begin[c]);
    }
    for (size_t i = 0; i < map_.streams().size(); ++i) {
      StreamPiece& piece = step_.sent[i];
      const int32_t* lengths = step_.lengths.data() + step_.lengths_begin[i];
      for (int64_t b = 0; b < piece.bags; ++b) {
        piece.full_bags += lengths[b] > 0;
        piece.ids += lengths[b];
      }
    }
  }

  void measure_whole(const Cut& cut) {
    for (int stream : cut.streams[0]) {
      std::copy_n(lengths_ + batch_.slot_first_bag[cut.slot], step_.sent[stream].bags,
                  step_.lengths.data() + step_.lengths_begin[stream]);
    }
  }

  template <class Id>
  void measure_cut(const Cut& cut, int64_t ranges_begin) {
    const SlotInput<Id> in = slot_input<Id>(cut.slot);
    int32_t* ranges = step_.ranges.data() + ranges_begin;
    int64_t* rows = step_.local_rows.data() + ranges_begin;
    if (cut.router) {
      const std::vector<int64_t> ids(in.ids, in.ids + in.num_ids);
      cut.router->route(ids, ranges, rows);
    } else {
      for (int64_t i = 0; i < in.num_ids; ++i) {
        ranges[i] = find_range(cut, in.ids[i]);
        rows[i] = in.ids[i] - cut.begins[ranges[i]];
      }
    }
    for (const auto& streams : cut.streams) {
      for (int stream : streams) std::fill_n(step_.lengths.data() + step_.lengths_begin[stream], in.bags, 0);
    }
    int64_t i = 0;
    for (int64_t b = 0; b < in.bags; ++b) {
      for (const int64_t end = i + slot_length(cut.slot, b); i < end; ++i) {
        for (int stream : cut.streams[ranges[i]]) ++step_.lengths[step_.lengths_begin[stream] + b];
      }
    }
  }

  // Where every stream's ids, weights and lengths go in the payload of its rank.
  void lay_out() {
    const int world_size = map_.world_size();
    step_.payload_send_bytes.assign(world_size, 0);
    step_.payload_parts.resize(world_size);
    int64_t total = 0;
    for (int rank = 0; rank < world_size; ++rank) {
      PayloadPart& p = step_.payload_parts[rank];
      p = {};
      p.begin = total;
      for (int i = map_.stream_begin(rank); i < map_.stream_begin(rank + 1); ++i) {
        step_.sent[i].first_id = p.ids;
        step_.sent[i].first_bag = p.bags;
        p.ids += step_.sent[i].ids;
        p.bags += step_.sent[i].bags;
      }
      if (sums_for_this_rank(rank)) {
        for (int i : map_.summed_streams(map_.hosts().of(rank))) p.presence_words += 1 + (step_.sent[i].bags + 31) / 32;
      }
      step_.payload_send_bytes[rank] =
          payload_bytes(map_.stream_begin(rank + 1) - map_.stream_begin(rank), p, step_.weighted);
      total += step_.payload_send_bytes[rank];
    }
    step_.payload_send.ensure(total);
    step_.positions_begin.clear();
    if (!sequence_) return;
    int64_t positions = 0;
    for (const StreamPiece& piece : step_.sent) {
      step_.positions_begin.push_back(positions);
      positions += piece.ids;
    }
    step_.positions.resize(positions);
  }

  // Second pass: ids and weights into the payload, positions for sequences.
  template <class Id>
  void fill_all() {
    step_.next.resize(map_.streams().size());
    for (size_t c = 0; c < map_.cuts().size(); ++c) {
      const Cut& cut = map_.cuts()[c];
      const SlotInput<Id> in = slot_input<Id>(cut.slot);
      if (cut.whole() && !cut.router) {
        for (int stream : cut.streams[0]) {
          std::copy_n(in.ids, in.num_ids, ids_of(stream));
          if (step_.weighted) std::copy_n(in.weights, in.num_ids, weights_of(stream));
          if (sequence_)
            for (int64_t i = 0; i < in.num_ids; ++i)
              step_.positions[step_.positions_begin[stream] + i] = position(cut.slot, i);
        }
        continue;
      }
      for (const auto& streams : cut.streams) {
        for (int stream : streams) step_.next[stream] = 0;
      }
      const int32_t* ranges = step_.ranges.data() + step_.ranges_begin[c];
      const int64_t* rows = step_.local_rows.data() + step_.ranges_begin[c];
      for (int64_t i = 0; i < in.num_ids; ++i) {
        for (int stream : cut.streams[ranges[i]]) {
          const int64_t at = step_.next[stream]++;
          ids_of(stream)[at] = rows[i];
          if (step_.weighted) weights_of(stream)[at] = in.weights[i];
          if (sequence_) step_.positions[step_.positions_begin[stream] + at] = position(cut.slot, i);
        }
      }
    }
  }

  bool sums_for_this_rank(int rank) const {
    const HostGrid& hosts = map_.hosts();
    return hosts.of(rank) != hosts.of(rank_) && hosts.local(rank) == hosts.local(rank_);
  }

  void fill_lengths() {
    for (int rank = 0; rank < map_.world_size(); ++rank) {
      const int first = map_.stream_begin(rank), last = map_.stream_begin(rank + 1);
      const PayloadPart& p = step_.payload_parts[rank];
      auto* bags =
          reinterpret_cast<int32_t*>(step_.payload_send.data<uint8_t>() + p.begin + p.ids * (step_.weighted ? 12 : 8));
      for (int i = first; i < last; ++i) *bags++ = static_cast<int32_t>(step_.sent[i].bags);
      if (first < last) std::copy_n(step_.lengths.data() + step_.lengths_begin[first], p.bags, bags);
      if (p.presence_words) fill_presence(map_.hosts().of(rank), reinterpret_cast<uint32_t*>(bags + p.bags));
    }
  }

  void fill_presence(int host, uint32_t* words) {
    for (int stream : map_.summed_streams(host)) {
      const int64_t bags = step_.sent[stream].bags;
      const int32_t* lengths = step_.lengths.data() + step_.lengths_begin[stream];
      *words++ = static_cast<uint32_t>(bags);
      std::fill_n(words, (bags + 31) / 32, 0u);
      for (int64_t b = 0; b < bags; ++b) words[b / 32] |= uint32_t{lengths[b] > 0} << (b % 32);
      words += (bags + 31) / 32;
    }
  }

  int64_t* ids_of(int stream) const {
    const PayloadPart& p = step_.payload_parts[map_.streams()[stream].rank];
    return reinterpret_cast<int64_t*>(step_.payload_send.data<uint8_t>() + p.begin) + step_.sent[stream].first_id;
  }
  float* weights_of(int stream) const {
    const PayloadPart& p = step_.payload_parts[map_.streams()[stream].rank];
    return reinterpret_cast<float*>(step_.payload_send.data<uint8_t>() + p.begin + p.ids * 8) +
           step_.sent[stream].first_id;
  }

  const LaneMap& map_;
  const CheckedBatch& batch_;
  const KeyedJaggedTensor& input_;
  const int rank_;
  const bool sequence_;
  Step& step_;
  const int32_t* lengths_ = nullptr;
};

}  // namespace

int64_t payload_bytes(int64_t num_streams, const PayloadPart& part, bool weighted) {
  return (part.ids * (weighted ? 12 : 8) + (num_streams + part.bags + part.presence_words) * 4 + 7) / 8 * 8;
}

void route(const LaneMap& map, const CheckedBatch& batch, int rank, bool sequence, Step& step) {
  Router(map, batch, rank, sequence, step).run();
}

}  // namespace tessera
