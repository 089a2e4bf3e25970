#include "distributed/route.h"

#include <algorithm>
#include <type_traits>

#include "distributed/bag_order.h"
#include "wiring/messages.h"

namespace tessera {
namespace {

// The ids, lengths and weights of one table feature in the input.
template <class Id>
struct FeatureInput {
  const Id* ids;
  const float* weights;
  int64_t num_ids;
  int64_t bags;
};

__extension__ using Wide = unsigned __int128;

// With so few ranges an id is compared with every begin, because that can be done for several ids at once.
constexpr size_t kFewRanges = 4;

// Calls put(i, range) for each id.
template <class Id, class Put>
void find_ranges(const RowSplit& split, const Id* ids, int64_t num_ids, const Put& put) {
  const int64_t* begins = split.begins.data();
  const size_t ranges = split.begins.size() - 1;
  if (ranges <= kFewRanges) {
    for (int64_t i = 0; i < num_ids; ++i) {
      int32_t range = 0;
      for (size_t k = 1; k < ranges; ++k) range += ids[i] >= begins[k];
      put(i, range);
    }
  } else if (const uint64_t reciprocal = split.reciprocal) {
    for (int64_t i = 0; i < num_ids; ++i) put(i, static_cast<int32_t>((static_cast<Wide>(ids[i]) * reciprocal) >> 64));
  } else if (split.block) {
    for (int64_t i = 0; i < num_ids; ++i) put(i, static_cast<int32_t>(ids[i] / split.block));
  } else {
    for (int64_t i = 0; i < num_ids; ++i)
      put(i, static_cast<int32_t>(std::upper_bound(begins, begins + ranges + 1, ids[i]) - begins) - 1);
  }
}

class Router {
 public:
  Router(const RankWiring& own, const CheckedBatch& batch, const RouteOptions& options, RouteScratch& scratch,
         RoutedBatch& out)
      : own_(own),
        wiring_(own.wiring),
        batch_(batch),
        workers_(options.workers),
        once_(options.once),
        scratch_(scratch),
        out_(out) {}

  void run() {
    read_lengths();
    count_bags();
    if (batch_.values.dtype() == DType::kInt32)
      measure_all<int32_t>();
    else
      measure_all<int64_t>();
    lay_out();
    lay_out_kept();
    if (batch_.values.dtype() == DType::kInt32)
      fill_all<int32_t>();
    else
      fill_all<int64_t>();
    out_.ids = ids_for_others();
    send_once();
    out_.ids_sent = ids_for_others();
    fill_lengths();
  }

 private:
  // Copies the input's lengths as int32. check_batch() has checked that they fit.
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

  // Counts the samples of every table feature, and sets where each id route's lengths begin.
  void count_bags() {
    const size_t n = num_id_routes();
    out_.sent.assign(n, {});
    out_.lengths_begin.resize(n + 1);
    int64_t total = 0;
    for (size_t i = 0; i < n; ++i) {
      out_.lengths_begin[i] = total;
      out_.sent[i].bags = batch_.feature_bags[table_feature_of(i)].bags;
      total += out_.sent[i].bags;
    }
    out_.lengths_begin[n] = total;
    out_.lengths.resize(total);
    out_.bag_order.resize(total);
    scratch_.ranges_begin.assign(wiring_.row_splits().size(), 0);
    int64_t ranged = 0;
    for (size_t c = 0; c < wiring_.row_splits().size(); ++c) {
      scratch_.ranges_begin[c] = ranged;
      if (!wiring_.row_splits()[c].is_whole()) ranged += batch_.feature_bags[wiring_.row_splits()[c].table_feature].ids;
    }
    scratch_.ranges.resize(ranged);
    scratch_.rows_in_shard.resize(ranged);
    make_cursors();
    measure_means();
  }

  // Each row split has its own cursors, so that several can be walked at once.
  void make_cursors() {
    std::vector<size_t>& begins = scratch_.cursors_begin;
    if (begins.size() != wiring_.row_splits().size() + 1) {  // if not, they are the same as for the previous batch
      begins.assign(1, num_id_routes());
      for (const RowSplit& split : wiring_.row_splits()) begins.push_back(begins.back() + split.single.size());
    }
    const size_t cursors = begins.back();
    scratch_.next.resize(cursors);
    scratch_.counts.resize(cursors);
    if (out_.weighted) scratch_.next_weight.resize(cursors);
    if (wiring_.sequence()) scratch_.next_position.resize(cursors);
  }

  void measure_means() {
    out_.mean_begin.assign(wiring_.table_features().size(), -1);
    out_.mean_scale.clear();
    for (size_t s = 0; s < wiring_.table_features().size(); ++s) {
      if (wiring_.table_features()[s].pooling != PoolingType::kMean || wiring_.table_features()[s].data_parallel)
        continue;
      out_.mean_begin[s] = static_cast<int64_t>(out_.mean_scale.size());
      for (int64_t b = 0; b < batch_.feature_bags[s].bags; ++b) {
        const int64_t length = batch_.clean()
                                   ? feature_length(static_cast<int>(s), b)
                                   : batch_.mean_lengths.data<int64_t>()[batch_.feature_bags[s].first_bag + b];
        out_.mean_scale.push_back(length ? 1.0f / static_cast<float>(length) : 0.0f);
      }
    }
  }

  // The number of id routes, including those of replicated rows.
  size_t num_id_routes() const { return wiring_.id_routes().size() + wiring_.replicated_rows().size(); }
  int table_feature_of(size_t id_route) const {
    const size_t sent = wiring_.id_routes().size();
    return id_route < sent ? wiring_.id_routes()[id_route].table_feature
                           : wiring_.replicated_rows()[id_route - sent].table_feature;
  }

  int64_t feature_length(int table_feature, int64_t bag) const {
    return lengths_[batch_.feature_bags[table_feature].first_bag + bag];
  }

  // The position of a table feature's i-th id in the caller's table feature.
  int32_t position(int table_feature, int64_t i) const {
    if (batch_.clean()) return static_cast<int32_t>(i);
    return static_cast<int32_t>(batch_.positions.data<int64_t>()[batch_.feature_bags[table_feature].first_id + i] -
                                batch_.original_feature_bags[table_feature].first_id);
  }

  template <class Id>
  FeatureInput<Id> feature_input(int table_feature) const {
    const FeatureBags& at = batch_.feature_bags[table_feature];
    return {batch_.values.data<Id>() + at.first_id,
            out_.weighted ? batch_.weights.data<float>() + at.first_id : nullptr, at.ids, at.bags};
  }

  // Calls body(row split) for each row split.
  template <class Body>
  void each_row_split(const Body& body) const {
    workers_.run(std::ssize(wiring_.row_splits()), bytes(), [&](int64_t c) { body(static_cast<size_t>(c)); });
  }
  // The approximate number of bytes that a pass works on.
  int64_t bytes() const { return batch_.values.numel() * 16 + std::ssize(out_.lengths) * 8; }

  // First pass: counts lengths and sizes of every id route. Sharders are called by the caller's thread.
  template <class Id>
  void measure_all() {
    for (size_t c = 0; c < wiring_.row_splits().size(); ++c) {
      if (wiring_.row_splits()[c].routed) ask_sharder<Id>(wiring_.row_splits()[c], scratch_.ranges_begin[c]);
    }
    each_row_split([&](size_t c) {
      const RowSplit& split = wiring_.row_splits()[c];
      if (split.is_whole())
        measure_whole(split);
      else
        measure_split<Id>(c);
    });
    workers_.run(std::ssize(out_.sent), bytes(),
                 [&](int64_t id_route) { order_id_route(static_cast<size_t>(id_route)); });
  }

  void order_id_route(size_t id_route) {
    IdBlock& id_block = out_.sent[id_route];
    const int32_t* lengths = out_.lengths.data() + out_.lengths_begin[id_route];
    const BagCounts n = order_bags(lengths, id_block.bags, out_.bag_order.data() + out_.lengths_begin[id_route]);
    id_block.full_bags = n.full;
    id_block.ids = n.ids;
  }

  template <class Id>
  void ask_sharder(const RowSplit& split, int64_t ranges_begin) {
    const FeatureInput<Id> in = feature_input<Id>(split.table_feature);
    std::span<const int64_t> ids;
    if constexpr (std::is_same_v<Id, int64_t>) {
      ids = {in.ids, static_cast<size_t>(in.num_ids)};
    } else {
      scratch_.routed_ids.assign(in.ids, in.ids + in.num_ids);
      ids = scratch_.routed_ids;
    }
    split.router->route(ids, scratch_.ranges.data() + ranges_begin, scratch_.rows_in_shard.data() + ranges_begin);
  }

  void measure_whole(const RowSplit& split) {
    for (int id_route : split.id_routes[0]) {
      std::copy_n(lengths_ + batch_.feature_bags[split.table_feature].first_bag, out_.sent[id_route].bags,
                  out_.lengths.data() + out_.lengths_begin[id_route]);
    }
  }

  template <class Id>
  void measure_split(size_t index) {
    const RowSplit& split = wiring_.row_splits()[index];
    const FeatureInput<Id> in = feature_input<Id>(split.table_feature);
    int32_t* ranges = scratch_.ranges.data() + scratch_.ranges_begin[index];
    const int32_t* lengths = lengths_ + batch_.feature_bags[split.table_feature].first_bag;
    if (in_two(split) && !split.routed) return measure_two(split, in, lengths, ranges);
    if (!split.routed) find_ranges(split, in.ids, in.num_ids, [&](int64_t i, int32_t range) { ranges[i] = range; });
    for (const auto& id_routes : split.id_routes) {
      for (int id_route : id_routes) std::fill_n(out_.lengths.data() + out_.lengths_begin[id_route], in.bags, 0);
    }
    int64_t i = 0;
    if (split.single.empty()) {
      for (int64_t b = 0; b < in.bags; ++b) {
        for (const int64_t end = i + lengths[b]; i < end; ++i) {
          for (int id_route : split.id_routes[ranges[i]]) ++out_.lengths[out_.lengths_begin[id_route] + b];
        }
      }
      return;
    }
    int32_t** counts = scratch_.counts.data() + scratch_.cursors_begin[index];
    for (size_t range = 0; range < split.single.size(); ++range) {
      const int id_route = split.single[range];
      counts[range] = id_route < 0 ? nullptr : out_.lengths.data() + out_.lengths_begin[id_route];
    }
    for (int64_t b = 0; b < in.bags; ++b) {
      for (const int64_t end = i + lengths[b]; i < end; ++i) ++counts[ranges[i]][b];
    }
  }

  // Does the same for two ranges of rows, in one pass.
  template <class Id>
  void measure_two(const RowSplit& split, const FeatureInput<Id>& in, const int32_t* lengths, int32_t* ranges) {
    int32_t* const first = out_.lengths.data() + out_.lengths_begin[split.single[0]];
    int32_t* const second = out_.lengths.data() + out_.lengths_begin[split.single[1]];
    const int64_t border = split.begins[1];
    int64_t i = 0;
    for (int64_t b = 0; b < in.bags; ++b) {
      int32_t in_second = 0;
      for (const int64_t end = i + lengths[b]; i < end; ++i) in_second += ranges[i] = in.ids[i] >= border;
      first[b] = lengths[b] - in_second;
      second[b] = in_second;
    }
  }

  // Sets the place of every id route's ids, weights and lengths in the payload of its rank.
  void lay_out() {
    const int world_size = wiring_.world_size();
    out_.payload_bytes.assign(world_size, 0);
    out_.parts.resize(world_size);
    int64_t total = 0;
    for (int rank = 0; rank < world_size; ++rank) {
      PayloadPart& p = out_.parts[rank];
      p = {};
      p.begin = total;
      for (int i = wiring_.id_route_begin(rank); i < wiring_.id_route_begin(rank + 1); ++i) {
        out_.sent[i].first_id = p.ids;
        out_.sent[i].first_bag = p.bags;
        p.ids += out_.sent[i].ids;
        p.bags += out_.sent[i].bags;
      }
      if (sums_for_this_rank(rank)) {
        for (int i : wiring_.summed_routes(wiring_.hosts().of(rank)))
          p.presence_words += presence_words(out_.sent[i].bags);
      }
      const int64_t id_routes = wiring_.id_route_begin(rank + 1) - wiring_.id_route_begin(rank);
      out_.payload_bytes[rank] =
          tessera::payload_bytes(p.ids, out_.weighted ? p.ids : 0, id_routes + p.bags + p.presence_words);
      total += out_.payload_bytes[rank];
    }
    out_.payload.ensure(total);
  }

  // Sets the places of data that do not travel: ids of replicated rows, and positions.
  void lay_out_kept() {
    out_.num_replicated_ids = 0;
    for (size_t i = wiring_.id_routes().size(); i < num_id_routes(); ++i) {
      out_.sent[i].first_id = out_.num_replicated_ids;
      out_.num_replicated_ids += out_.sent[i].ids;
    }
    out_.replicated_ids.ensure(out_.num_replicated_ids);
    if (out_.weighted) out_.replicated_weights.ensure(out_.num_replicated_ids);
    out_.positions_begin.clear();
    if (!wiring_.sequence()) return;
    int64_t positions = 0;
    for (const IdBlock& id_block : out_.sent) {
      out_.positions_begin.push_back(positions);
      positions += id_block.ids;
    }
    out_.positions.resize(positions);
  }

  // Second pass: writes ids and weights into the payload and, for sequences, positions.
  template <class Id>
  void fill_all() {
    each_row_split([&](size_t c) {
      if (wiring_.row_splits()[c].is_whole())
        copy(wiring_.row_splits()[c], feature_input<Id>(wiring_.row_splits()[c].table_feature));
      else
        fill_split<Id>(c);
    });
  }

  template <class Id>
  void fill_split(size_t index) {
    const RowSplit& split = wiring_.row_splits()[index];
    const FeatureInput<Id> in = feature_input<Id>(split.table_feature);
    const int64_t* rows = scratch_.rows_in_shard.data() + scratch_.ranges_begin[index];
    const int32_t* ranges = scratch_.ranges.data() + scratch_.ranges_begin[index];
    const int64_t* begins = split.begins.data();
    const auto first_id = [&](int id_route) { return ids_of(id_route); };
    if (split.router)
      scatter<int64_t>(index, in.num_ids, first_id, [&](int64_t i) { return rows[i]; });
    else
      scatter<int64_t>(index, in.num_ids, first_id, [&](int64_t i) { return in.ids[i] - begins[ranges[i]]; });
    if (out_.weighted) {
      scatter<float>(
          index, in.num_ids, [&](int id_route) { return weights_of(id_route); },
          [&](int64_t i) { return in.weights[i]; });
    }
    if (wiring_.sequence()) {
      scatter<int32_t>(
          index, in.num_ids, [&](int id_route) { return out_.positions.data() + out_.positions_begin[id_route]; },
          [&](int64_t i) { return position(split.table_feature, i); });
    }
  }

  int64_t ids_for_others() const {
    int64_t ids = 0;
    for (int rank = 0; rank < wiring_.world_size(); ++rank) ids += rank == own_.rank ? 0 : out_.parts[rank].ids;
    return ids;
  }

  // Replaces repeated ids by the distinct ones if that saves enough.
  void send_once() {
    out_.once.clear();
    if (once_.empty() || out_.weighted) return;
    OnceScratch& scratch = scratch_.once;
    const int id_routes = static_cast<int>(wiring_.id_routes().size());
    scratch.ids.clear();
    for (int i = 0; i < id_routes; ++i) scratch.ids.push_back(ids_of(i));
    if (!find_once(own_, once_, workers_, scratch, out_)) return out_.once.clear();
    std::swap(out_.payload, scratch.payload);
    lay_out();
    for (int i = 0; i < id_routes; ++i) std::copy_n(scratch.ids[i], out_.sent[i].ids, ids_of(i));
  }

  // Copies ids through a row split that leaves them unchanged.
  template <class Id>
  void copy(const RowSplit& split, const FeatureInput<Id>& in) {
    for (int id_route : split.id_routes[0]) {
      std::copy_n(in.ids, in.num_ids, ids_of(id_route));
      if (out_.weighted) std::copy_n(in.weights, in.num_ids, weights_of(id_route));
      if (!wiring_.sequence()) continue;
      int32_t* positions = out_.positions.data() + out_.positions_begin[id_route];
      for (int64_t i = 0; i < in.num_ids; ++i) positions[i] = position(split.table_feature, i);
    }
  }

  // Appends value(i) to the id route of each id's range. begin_of(id route) is where that id route's values begin.
  template <class T, class Begin, class Value>
  void scatter(size_t index, int64_t n, const Begin& begin_of, const Value& value) {
    const RowSplit& split = wiring_.row_splits()[index];
    const int32_t* ranges = scratch_.ranges.data() + scratch_.ranges_begin[index];
    if (in_two(split)) {  // both cursors are in registers; in memory each step would wait for the previous one
      T *first = begin_of(split.single[0]), *second = begin_of(split.single[1]);
      for (int64_t i = 0; i < n; ++i) {
        *(ranges[i] ? second : first) = value(i);
        second += ranges[i];
        first += 1 - ranges[i];
      }
      return;
    }
    std::vector<T*>& next = cursors<T>();
    if (!split.single.empty()) {
      T** at = next.data() + scratch_.cursors_begin[index];
      for (size_t range = 0; range < split.single.size(); ++range)
        at[range] = split.single[range] < 0 ? nullptr : begin_of(split.single[range]);
      for (int64_t i = 0; i < n; ++i) *at[ranges[i]]++ = value(i);
      return;
    }
    for (const auto& id_routes : split.id_routes) {
      for (int id_route : id_routes) next[id_route] = begin_of(id_route);
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int id_route : split.id_routes[ranges[i]]) *next[id_route]++ = value(i);
    }
  }

  static bool in_two(const RowSplit& split) {
    return split.single.size() == 2 && split.single[0] >= 0 && split.single[1] >= 0;
  }

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
      const int first = wiring_.id_route_begin(rank), last = wiring_.id_route_begin(rank + 1);
      const PayloadPart& p = out_.parts[rank];
      auto* bags =
          reinterpret_cast<int32_t*>(out_.payload.data<uint8_t>() + p.begin + p.ids * (out_.weighted ? 12 : 8));
      for (int i = first; i < last; ++i) *bags++ = static_cast<int32_t>(out_.sent[i].bags);
      for (int i = first; i < last; ++i) {
        const IdBlock& sent = out_.sent[i];
        if (out_.once.empty() || out_.once[i].id_route < 0)
          std::copy_n(out_.lengths.data() + out_.lengths_begin[i], sent.bags, bags);
        else if (sent.bags)
          std::fill_n(bags, sent.bags, static_cast<int32_t>(sent.ids / sent.bags));
        bags += sent.bags;
      }
      if (p.presence_words) fill_presence(wiring_.hosts().of(rank), reinterpret_cast<uint32_t*>(bags));
    }
  }

  void fill_presence(int host, uint32_t* words) {
    for (int id_route : wiring_.summed_routes(host)) {
      const int64_t bags = out_.sent[id_route].bags;
      const int32_t* lengths = out_.lengths.data() + out_.lengths_begin[id_route];
      *words++ = static_cast<uint32_t>(bags);
      std::fill_n(words, (bags + 31) / 32, 0u);
      for (int64_t b = 0; b < bags; ++b) words[b / 32] |= uint32_t{lengths[b] > 0} << (b % 32);
      words += (bags + 31) / 32;
    }
  }

  bool is_replicated(int id_route) const { return static_cast<size_t>(id_route) >= wiring_.id_routes().size(); }
  int64_t* ids_of(int id_route) const {
    if (is_replicated(id_route)) return out_.replicated_ids.data<int64_t>() + out_.sent[id_route].first_id;
    const PayloadPart& p = out_.parts[wiring_.id_routes()[id_route].rank];
    return reinterpret_cast<int64_t*>(out_.payload.data<uint8_t>() + p.begin) + out_.sent[id_route].first_id;
  }
  float* weights_of(int id_route) const {
    if (is_replicated(id_route)) return out_.replicated_weights.data<float>() + out_.sent[id_route].first_id;
    const PayloadPart& p = out_.parts[wiring_.id_routes()[id_route].rank];
    return reinterpret_cast<float*>(out_.payload.data<uint8_t>() + p.begin + p.ids * 8) + out_.sent[id_route].first_id;
  }

  const RankWiring& own_;
  const Wiring& wiring_;
  const CheckedBatch& batch_;
  const Workers workers_;
  const std::span<const uint8_t> once_;
  RouteScratch& scratch_;
  RoutedBatch& out_;
  const int32_t* lengths_ = nullptr;
};

}  // namespace

void route(const RankWiring& own, const CheckedBatch& batch, const RouteOptions& options, RouteScratch& scratch,
           RoutedBatch& out) {
  out.weighted = options.weighted;
  Router(own, batch, options, scratch, out).run();
}

}  // namespace tessera
