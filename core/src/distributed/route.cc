#include "distributed/route.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>

#include "distributed/bag_order.h"
#include "wiring/messages.h"

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

__extension__ using Wide = unsigned __int128;

// Compared with every begin where there are so few: that is done for several ids at once.
constexpr size_t kFewRanges = 4;

// Calls put(i, range) for each id.
template <class Id, class Put>
void find_ranges(const Cut& cut, const Id* ids, int64_t num_ids, const Put& put) {
  const int64_t* begins = cut.begins.data();
  const size_t ranges = cut.begins.size() - 1;
  if (ranges <= kFewRanges) {
    for (int64_t i = 0; i < num_ids; ++i) {
      int32_t range = 0;
      for (size_t k = 1; k < ranges; ++k) range += ids[i] >= begins[k];
      put(i, range);
    }
  } else if (const uint64_t reciprocal = cut.reciprocal) {
    for (int64_t i = 0; i < num_ids; ++i) put(i, static_cast<int32_t>((static_cast<Wide>(ids[i]) * reciprocal) >> 64));
  } else if (cut.block) {
    for (int64_t i = 0; i < num_ids; ++i) put(i, static_cast<int32_t>(ids[i] / cut.block));
  } else {
    for (int64_t i = 0; i < num_ids; ++i)
      put(i, static_cast<int32_t>(std::upper_bound(begins, begins + ranges + 1, ids[i]) - begins) - 1);
  }
}

class Router {
 public:
  Router(const RankWiring& own, const CheckedBatch& batch, Workers workers, RouteScratch& scratch, RoutedBatch& out)
      : own_(own), wiring_(own.wiring), batch_(batch), workers_(workers), scratch_(scratch), out_(out) {}

  void run() {
    read_lengths();
    count_bags();
    if (batch_.values.dtype() == DType::kInt32)
      measure_all<int32_t>();
    else
      measure_all<int64_t>();
    lay_out();
    if (batch_.values.dtype() == DType::kInt32)
      fill_all<int32_t>();
    else
      fill_all<int64_t>();
    fill_lengths();
  }

 private:
  // The input's lengths as int32, which check_batch has seen to fit.
  void read_lengths() {
    const Tensor& lengths = batch_.lengths;
    if (lengths.dtype() == DType::kInt32) {
      lengths_ = lengths.data<int32_t>();
    } else {
      scratch_.input_lengths.resize(lengths.numel());
      std::transform(lengths.data<int64_t>(), lengths.data<int64_t>() + lengths.numel(), scratch_.input_lengths.begin(),
                     [](int64_t n) { return static_cast<int32_t>(n); });
      lengths_ = scratch_.input_lengths.data();
    }
  }

  // Samples of every slot, and where each stream's lengths begin.
  void count_bags() {
    const size_t n = num_streams();
    out_.sent.assign(n, {});
    out_.lengths_begin.resize(n + 1);
    int64_t total = 0;
    for (size_t i = 0; i < n; ++i) {
      out_.lengths_begin[i] = total;
      out_.sent[i].bags = batch_.slots[slot_of(i)].bags;
      total += out_.sent[i].bags;
    }
    out_.lengths_begin[n] = total;
    out_.lengths.resize(total);
    out_.bag_order.resize(total);
    scratch_.ranges_begin.assign(wiring_.cuts().size(), 0);
    int64_t ranged = 0;
    for (size_t c = 0; c < wiring_.cuts().size(); ++c) {
      scratch_.ranges_begin[c] = ranged;
      if (!wiring_.cuts()[c].copies()) ranged += batch_.slots[wiring_.cuts()[c].slot].ids;
    }
    scratch_.ranges.resize(ranged);
    scratch_.local_rows.resize(ranged);
    make_cursors();
    measure_means();
  }

  // Each cut has its own, so that they can be walked together.
  void make_cursors() {
    std::vector<size_t>& begins = scratch_.cursors_begin;
    if (begins.size() != wiring_.cuts().size() + 1) {  // otherwise as for the batch before
      begins.assign(1, num_streams());
      for (const Cut& cut : wiring_.cuts()) begins.push_back(begins.back() + cut.single.size());
    }
    const size_t cursors = begins.back();
    scratch_.next.resize(cursors);
    scratch_.counts.resize(cursors);
    if (out_.weighted) scratch_.next_weight.resize(cursors);
    if (wiring_.sequence()) scratch_.next_position.resize(cursors);
  }

  void measure_means() {
    out_.mean_begin.assign(wiring_.slots().size(), -1);
    out_.mean_scale.clear();
    for (size_t s = 0; s < wiring_.slots().size(); ++s) {
      if (wiring_.slots()[s].pooling != PoolingType::kMean || wiring_.slots()[s].replicated) continue;
      out_.mean_begin[s] = static_cast<int64_t>(out_.mean_scale.size());
      for (int64_t b = 0; b < batch_.slots[s].bags; ++b) {
        const int64_t length = batch_.clean() ? slot_length(static_cast<int>(s), b)
                                              : batch_.mean_lengths.data<int64_t>()[batch_.slots[s].first_bag + b];
        out_.mean_scale.push_back(length ? 1.0f / static_cast<float>(length) : 0.0f);
      }
    }
  }

  // The ids of the others, and of what is kept here.
  size_t num_streams() const { return wiring_.streams().size() + wiring_.kept().size(); }
  int slot_of(size_t stream) const {
    const size_t sent = wiring_.streams().size();
    return stream < sent ? wiring_.streams()[stream].slot : wiring_.kept()[stream - sent].slot;
  }

  int64_t slot_length(int slot, int64_t bag) const { return lengths_[batch_.slots[slot].first_bag + bag]; }

  // The place of a slot's i-th id in the caller's slot.
  int32_t position(int slot, int64_t i) const {
    if (batch_.clean()) return static_cast<int32_t>(i);
    return static_cast<int32_t>(batch_.positions.data<int64_t>()[batch_.slots[slot].first_id + i] -
                                batch_.original_slots[slot].first_id);
  }

  template <class Id>
  SlotInput<Id> slot_input(int slot) const {
    const SlotBags& at = batch_.slots[slot];
    return {batch_.values.data<Id>() + at.first_id,
            out_.weighted ? batch_.weights.data<float>() + at.first_id : nullptr, at.ids, at.bags};
  }

  // body(cut) for each.
  template <class Body>
  void each_cut(const Body& body) const {
    workers_.run(std::ssize(wiring_.cuts()), bytes(), [&](int64_t c) { body(static_cast<size_t>(c)); });
  }
  // The number of ids that a pass works on, about.
  int64_t bytes() const { return batch_.values.numel() * 16 + std::ssize(out_.lengths) * 8; }

  // First pass: lengths and sizes of every stream. Sharders are asked by the caller's thread.
  template <class Id>
  void measure_all() {
    for (size_t c = 0; c < wiring_.cuts().size(); ++c) {
      if (wiring_.cuts()[c].routed) ask_sharder<Id>(wiring_.cuts()[c], scratch_.ranges_begin[c]);
    }
    each_cut([&](size_t c) {
      const Cut& cut = wiring_.cuts()[c];
      if (cut.copies())
        measure_whole(cut);
      else
        measure_cut<Id>(c);
    });
    workers_.run(std::ssize(out_.sent), bytes(), [&](int64_t stream) { order_stream(static_cast<size_t>(stream)); });
  }

  void order_stream(size_t stream) {
    StreamPiece& piece = out_.sent[stream];
    const int32_t* lengths = out_.lengths.data() + out_.lengths_begin[stream];
    const BagCounts n = order_bags(lengths, piece.bags, out_.bag_order.data() + out_.lengths_begin[stream]);
    piece.full_bags = n.full;
    piece.ids = n.ids;
  }

  template <class Id>
  void ask_sharder(const Cut& cut, int64_t ranges_begin) {
    const SlotInput<Id> in = slot_input<Id>(cut.slot);
    std::span<const int64_t> ids;
    if constexpr (std::is_same_v<Id, int64_t>) {
      ids = {in.ids, static_cast<size_t>(in.num_ids)};
    } else {
      scratch_.routed_ids.assign(in.ids, in.ids + in.num_ids);
      ids = scratch_.routed_ids;
    }
    cut.router->route(ids, scratch_.ranges.data() + ranges_begin, scratch_.local_rows.data() + ranges_begin);
  }

  void measure_whole(const Cut& cut) {
    for (int stream : cut.streams[0]) {
      std::copy_n(lengths_ + batch_.slots[cut.slot].first_bag, out_.sent[stream].bags,
                  out_.lengths.data() + out_.lengths_begin[stream]);
    }
  }

  template <class Id>
  void measure_cut(size_t index) {
    const Cut& cut = wiring_.cuts()[index];
    const SlotInput<Id> in = slot_input<Id>(cut.slot);
    int32_t* ranges = scratch_.ranges.data() + scratch_.ranges_begin[index];
    const int32_t* lengths = lengths_ + batch_.slots[cut.slot].first_bag;
    if (in_two(cut) && !cut.routed) return measure_two(cut, in, lengths, ranges);
    if (!cut.routed) find_ranges(cut, in.ids, in.num_ids, [&](int64_t i, int32_t range) { ranges[i] = range; });
    for (const auto& streams : cut.streams) {
      for (int stream : streams) std::fill_n(out_.lengths.data() + out_.lengths_begin[stream], in.bags, 0);
    }
    int64_t i = 0;
    if (cut.single.empty()) {
      for (int64_t b = 0; b < in.bags; ++b) {
        for (const int64_t end = i + lengths[b]; i < end; ++i) {
          for (int stream : cut.streams[ranges[i]]) ++out_.lengths[out_.lengths_begin[stream] + b];
        }
      }
      return;
    }
    int32_t** counts = scratch_.counts.data() + scratch_.cursors_begin[index];
    for (size_t range = 0; range < cut.single.size(); ++range) {
      const int stream = cut.single[range];
      counts[range] = stream < 0 ? nullptr : out_.lengths.data() + out_.lengths_begin[stream];
    }
    for (int64_t b = 0; b < in.bags; ++b) {
      for (const int64_t end = i + lengths[b]; i < end; ++i) ++counts[ranges[i]][b];
    }
  }

  // The same for two ranges of rows, in one pass.
  template <class Id>
  void measure_two(const Cut& cut, const SlotInput<Id>& in, const int32_t* lengths, int32_t* ranges) {
    int32_t* const first = out_.lengths.data() + out_.lengths_begin[cut.single[0]];
    int32_t* const second = out_.lengths.data() + out_.lengths_begin[cut.single[1]];
    const int64_t border = cut.begins[1];
    int64_t i = 0;
    for (int64_t b = 0; b < in.bags; ++b) {
      int32_t in_second = 0;
      for (const int64_t end = i + lengths[b]; i < end; ++i) in_second += ranges[i] = in.ids[i] >= border;
      first[b] = lengths[b] - in_second;
      second[b] = in_second;
    }
  }

  // The place of every stream's ids, weights and lengths in the payload of its rank.
  void lay_out() {
    const int world_size = wiring_.world_size();
    out_.payload_bytes.assign(world_size, 0);
    out_.parts.resize(world_size);
    int64_t total = 0;
    for (int rank = 0; rank < world_size; ++rank) {
      PayloadPart& p = out_.parts[rank];
      p = {};
      p.begin = total;
      for (int i = wiring_.stream_begin(rank); i < wiring_.stream_begin(rank + 1); ++i) {
        out_.sent[i].first_id = p.ids;
        out_.sent[i].first_bag = p.bags;
        p.ids += out_.sent[i].ids;
        p.bags += out_.sent[i].bags;
      }
      if (sums_for_this_rank(rank)) {
        for (int i : wiring_.summed_streams(wiring_.hosts().of(rank)))
          p.presence_words += presence_words(out_.sent[i].bags);
      }
      const int64_t streams = wiring_.stream_begin(rank + 1) - wiring_.stream_begin(rank);
      out_.payload_bytes[rank] =
          tessera::payload_bytes(p.ids, out_.weighted ? p.ids : 0, streams + p.bags + p.presence_words);
      total += out_.payload_bytes[rank];
    }
    out_.payload.ensure(total);
    out_.num_kept_ids = 0;
    for (size_t i = wiring_.streams().size(); i < num_streams(); ++i) {
      out_.sent[i].first_id = out_.num_kept_ids;
      out_.num_kept_ids += out_.sent[i].ids;
    }
    out_.kept_ids.ensure(out_.num_kept_ids);
    if (out_.weighted) out_.kept_weights.ensure(out_.num_kept_ids);
    out_.positions_begin.clear();
    if (!wiring_.sequence()) return;
    int64_t positions = 0;
    for (const StreamPiece& piece : out_.sent) {
      out_.positions_begin.push_back(positions);
      positions += piece.ids;
    }
    out_.positions.resize(positions);
  }

  // Second pass: ids and weights into the payload, positions for sequences.
  template <class Id>
  void fill_all() {
    each_cut([&](size_t c) {
      if (wiring_.cuts()[c].copies())
        copy(wiring_.cuts()[c], slot_input<Id>(wiring_.cuts()[c].slot));
      else
        fill_cut<Id>(c);
    });
  }

  template <class Id>
  void fill_cut(size_t index) {
    const Cut& cut = wiring_.cuts()[index];
    const SlotInput<Id> in = slot_input<Id>(cut.slot);
    const int64_t* rows = scratch_.local_rows.data() + scratch_.ranges_begin[index];
    const int32_t* ranges = scratch_.ranges.data() + scratch_.ranges_begin[index];
    const int64_t* begins = cut.begins.data();
    const auto first_id = [&](int stream) { return ids_of(stream); };
    if (cut.router)
      scatter<int64_t>(index, in.num_ids, first_id, [&](int64_t i) { return rows[i]; });
    else
      scatter<int64_t>(index, in.num_ids, first_id, [&](int64_t i) { return in.ids[i] - begins[ranges[i]]; });
    if (out_.weighted) {
      scatter<float>(
          index, in.num_ids, [&](int stream) { return weights_of(stream); }, [&](int64_t i) { return in.weights[i]; });
    }
    if (wiring_.sequence()) {
      scatter<int32_t>(
          index, in.num_ids, [&](int stream) { return out_.positions.data() + out_.positions_begin[stream]; },
          [&](int64_t i) { return position(cut.slot, i); });
    }
  }

  // A cut that leaves the ids as they are.
  template <class Id>
  void copy(const Cut& cut, const SlotInput<Id>& in) {
    for (int stream : cut.streams[0]) {
      std::copy_n(in.ids, in.num_ids, ids_of(stream));
      if (out_.weighted) std::copy_n(in.weights, in.num_ids, weights_of(stream));
      if (!wiring_.sequence()) continue;
      int32_t* positions = out_.positions.data() + out_.positions_begin[stream];
      for (int64_t i = 0; i < in.num_ids; ++i) positions[i] = position(cut.slot, i);
    }
  }

  // Appends value(i) to the streams of ids' ranges; begin_of(stream) is where a stream's values go.
  template <class T, class Begin, class Value>
  void scatter(size_t index, int64_t n, const Begin& begin_of, const Value& value) {
    const Cut& cut = wiring_.cuts()[index];
    const int32_t* ranges = scratch_.ranges.data() + scratch_.ranges_begin[index];
    if (in_two(cut)) {  // both cursors in registers: in memory each step would wait for the one before
      T *first = begin_of(cut.single[0]), *second = begin_of(cut.single[1]);
      for (int64_t i = 0; i < n; ++i) {
        *(ranges[i] ? second : first) = value(i);
        second += ranges[i];
        first += 1 - ranges[i];
      }
      return;
    }
    std::vector<T*>& next = cursors<T>();
    if (!cut.single.empty()) {
      T** at = next.data() + scratch_.cursors_begin[index];
      for (size_t range = 0; range < cut.single.size(); ++range)
        at[range] = cut.single[range] < 0 ? nullptr : begin_of(cut.single[range]);
      for (int64_t i = 0; i < n; ++i) *at[ranges[i]]++ = value(i);
      return;
    }
    for (const auto& streams : cut.streams) {
      for (int stream : streams) next[stream] = begin_of(stream);
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int stream : cut.streams[ranges[i]]) *next[stream]++ = value(i);
    }
  }

  static bool in_two(const Cut& cut) { return cut.single.size() == 2 && cut.single[0] >= 0 && cut.single[1] >= 0; }

  template <class T>
  std::vector<T*>& cursors() {
    if constexpr (std::is_same_v<T, float>)
      return scratch_.next_weight;
    else if constexpr (std::is_same_v<T, int32_t>)
      return scratch_.next_position;
    else
      return scratch_.next;
  }

  bool sums_for_this_rank(int rank) const {
    const HostGrid& hosts = wiring_.hosts();
    return hosts.of(rank) != own_.host && hosts.local(rank) == hosts.local(own_.rank);
  }

  void fill_lengths() {
    for (int rank = 0; rank < wiring_.world_size(); ++rank) {
      const int first = wiring_.stream_begin(rank), last = wiring_.stream_begin(rank + 1);
      const PayloadPart& p = out_.parts[rank];
      auto* bags =
          reinterpret_cast<int32_t*>(out_.payload.data<uint8_t>() + p.begin + p.ids * (out_.weighted ? 12 : 8));
      for (int i = first; i < last; ++i) *bags++ = static_cast<int32_t>(out_.sent[i].bags);
      if (first < last) std::copy_n(out_.lengths.data() + out_.lengths_begin[first], p.bags, bags);
      if (p.presence_words) fill_presence(wiring_.hosts().of(rank), reinterpret_cast<uint32_t*>(bags + p.bags));
    }
  }

  void fill_presence(int host, uint32_t* words) {
    for (int stream : wiring_.summed_streams(host)) {
      const int64_t bags = out_.sent[stream].bags;
      const int32_t* lengths = out_.lengths.data() + out_.lengths_begin[stream];
      *words++ = static_cast<uint32_t>(bags);
      std::fill_n(words, (bags + 31) / 32, 0u);
      for (int64_t b = 0; b < bags; ++b) words[b / 32] |= uint32_t{lengths[b] > 0} << (b % 32);
      words += (bags + 31) / 32;
    }
  }

  bool is_kept(int stream) const { return static_cast<size_t>(stream) >= wiring_.streams().size(); }
  int64_t* ids_of(int stream) const {
    if (is_kept(stream)) return out_.kept_ids.data<int64_t>() + out_.sent[stream].first_id;
    const PayloadPart& p = out_.parts[wiring_.streams()[stream].rank];
    return reinterpret_cast<int64_t*>(out_.payload.data<uint8_t>() + p.begin) + out_.sent[stream].first_id;
  }
  float* weights_of(int stream) const {
    if (is_kept(stream)) return out_.kept_weights.data<float>() + out_.sent[stream].first_id;
    const PayloadPart& p = out_.parts[wiring_.streams()[stream].rank];
    return reinterpret_cast<float*>(out_.payload.data<uint8_t>() + p.begin + p.ids * 8) + out_.sent[stream].first_id;
  }

  const RankWiring& own_;
  const Wiring& wiring_;
  const CheckedBatch& batch_;
  const Workers workers_;
  RouteScratch& scratch_;
  RoutedBatch& out_;
  const int32_t* lengths_ = nullptr;
};

}  // namespace

void route(const RankWiring& own, const CheckedBatch& batch, const RouteOptions& options, RouteScratch& scratch,
           RoutedBatch& out) {
  out.weighted = options.weighted;
  Router(own, batch, options.workers, scratch, out).run();
}

}  // namespace tessera
