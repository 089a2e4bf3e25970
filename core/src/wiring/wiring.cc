#include "wiring/wiring.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "wiring/tiling.h"

namespace tessera {
namespace {

using Combine = ParameterSharding::Combine;

// Shards by column block, each block's in row order; of copies the first, in every block. Shards without rows count
// only where route() numbers them.
std::map<std::pair<int64_t, int64_t>, std::vector<int>> column_blocks(const ParameterSharding& sharding) {
  std::map<std::pair<int64_t, int64_t>, std::vector<int>> blocks;
  std::vector<size_t> counted;
  for (const size_t s : sharding.distinct()) {
    const ShardMetadata& shard = sharding.shards[s];
    if (shard.rows == 0 && !sharding.routed) continue;
    counted.push_back(s);
    if (!shard.replica) blocks[{shard.col, shard.cols}];
  }
  for (const size_t s : counted) {
    const ShardMetadata& shard = sharding.shards[s];
    if (!shard.replica || blocks.empty())
      blocks[{shard.col, shard.cols}].push_back(static_cast<int>(s));
    else  // a copy has all columns
      for (auto& [columns, shards] : blocks) shards.push_back(static_cast<int>(s));
  }
  if (sharding.routed) return blocks;
  for (auto& [columns, shards] : blocks) {
    std::sort(shards.begin(), shards.end(),
              [&](int x, int y) { return sharding.shards[x].row < sharding.shards[y].row; });
  }
  return blocks;
}

int64_t uniform_block(const std::vector<int64_t>& begins) {
  const int64_t block = begins[1] - begins[0];
  for (size_t k = 1; k + 1 < begins.size(); ++k) {
    if (begins[k] != static_cast<int64_t>(k) * block) return 0;
  }
  return begins.back() - begins[begins.size() - 2] <= block ? block : 0;
}

// Exact for ids and blocks below 2^32.
uint64_t reciprocal_of(int64_t block, int64_t table_rows) {
  if (block < 2 || table_rows > int64_t{1} << 32) return 0;
  return ~uint64_t{0} / static_cast<uint64_t>(block) + 1;
}

}  // namespace

void check_tiling(const EmbeddingBagConfig& table, const ParameterSharding& sharding, int world_size) {
  const auto refuse = [&](const std::string& why) {
    fail(Code::kInvalidArgument, "the plan of table \"", table.name, "\" (", sharding.sharding_type,
         ") does not fit: ", why);
  };
  if (sharding.shards.empty()) refuse("it has no shards");
  std::vector<int> copies;
  const ShardMetadata* copy = nullptr;
  for (size_t i = 0; i < sharding.shards.size(); ++i) {
    const ShardMetadata& s = sharding.shards[i];
    if (s.rank < 0 || s.rank >= world_size) {
      refuse(str_cat("a shard is on rank ", s.rank, ", but there are ", world_size, " ranks"));
    }
    if (!sharding.is_replica(i)) continue;
    if (copy == nullptr) copy = &s;
    copies.push_back(s.rank);
    if (s.rows != copy->rows || s.row != copy->row) refuse("the copies of a replica hold other rows");
    if (s.col != 0 || s.cols != table.embedding_dim) refuse("a replica has not all columns");
    if (!s.replica && s.rows != table.num_embeddings) refuse("a replica is not the whole table");
  }
  std::vector<int> all(world_size);
  std::iota(all.begin(), all.end(), 0);
  std::sort(copies.begin(), copies.end());
  if (copy != nullptr && copies != all) refuse("a replica is needed on every rank, once");
  if (sharding.combine == Combine::kReplica) return;
  std::vector<tsr_rectangle> rectangles;
  for (const size_t i : sharding.distinct()) {
    const ShardMetadata& s = sharding.shards[i];
    if (table.any_id && !sharding.routed && s.rows != table.num_embeddings)
      refuse("it cuts rows by ranges, and the table's ids have no bound");
    rectangles.push_back({s.row, s.rows, s.col, s.cols});
  }
  const auto why_not = sharding.routed ? why_not_tiling_routed : why_not_tiling;
  const std::string reason = why_not(rectangles, table.num_embeddings, table.embedding_dim);
  if (!reason.empty()) refuse(reason);
}

Wiring::Wiring(const std::vector<EmbeddingBagConfig>& tables, const EmbeddingModuleShardingPlan& plan, HostGrid hosts,
               const WiringOptions& options)
    : sequence_(options.sequence), hosts_(hosts) {
  for (const EmbeddingBagConfig& table : tables) check_tiling(table, plan.at(table.name), world_size());
  for (const auto& [name, sharding] : plan.tables()) {
    const auto known =
        std::find_if(tables.begin(), tables.end(), [&name = name](const auto& t) { return t.name == name; });
    if (known == tables.end())
      fail(Code::kInvalidArgument, "the plan has a table \"", name, "\" that the collection has not");
  }
  add_slots(tables, plan);
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].replicated) continue;
    const auto t = static_cast<size_t>(slots_[i].table);
    add_slot_streams(static_cast<int>(i), plan.at(tables[t].name),
                     options.routers.empty() ? nullptr : options.routers[t], tables[t].num_embeddings);
  }
  order_by_rank();
  number_kept();
  find_single_streams();
  if (!sequence_ && hosts_.ranks > 1 && hosts_.count > 1) find_host_sums(tables, plan);
  if (host_sums_.empty()) hosts_ = {1, world_size()};
  for (int host = 0; host <= hosts_.count; ++host) {
    const auto at =
        std::partition_point(host_sums_.begin(), host_sums_.end(), [&](const HostSum& s) { return s.host < host; });
    host_sum_begin_.push_back(static_cast<int>(at - host_sums_.begin()));
  }
  summed_streams_.resize(hosts_.count);
  for (const Lane& lane : lanes_) {
    if (lane.host_sum < 0) continue;
    auto& streams = summed_streams_[host_sums_[lane.host_sum].host];
    if (streams.empty() || streams.back() != lane.stream) streams.push_back(lane.stream);
  }
  order_arrivals();
}

void Wiring::add_slots(const std::vector<EmbeddingBagConfig>& tables, const EmbeddingModuleShardingPlan& plan) {
  const auto names = embedding_names_by_table(tables);
  for (size_t t = 0; t < tables.size(); ++t) {
    for (size_t f = 0; f < tables[t].feature_names.size(); ++f) {
      Slot slot;
      slot.table = static_cast<int>(t);
      slot.feature = tables[t].feature_names[f];
      slot.name = names[t][f];
      slot.pooling = tables[t].pooling;
      slot.rows = tables[t].num_embeddings;
      slot.any_id = tables[t].any_id;
      slot.dim = tables[t].embedding_dim;
      slot.col = output_width_;
      slot.replicated = plan.at(tables[t].name).combine == Combine::kReplica;
      output_width_ += slot.dim;
      slots_.push_back(std::move(slot));
    }
  }
}

void Wiring::add_slot_streams(int slot, const ParameterSharding& sharding, const RowRouterPtr& router,
                              int64_t table_rows) {
  std::map<std::vector<int64_t>, int> cut_of;          // column blocks that are cut alike share a cut
  std::map<std::tuple<int, int, int>, int> stream_of;  // (cut, range, rank)
  for (const auto& [columns, shards] : column_blocks(sharding)) {
    // Ranges are the block's shards and, where the block does not hold all rows, the gaps between them.
    std::vector<int64_t> begins;
    std::vector<int> shard_of;  // of each range; -1: a gap
    int64_t next = 0;
    for (int i : shards) {
      const ShardMetadata& shard = sharding.shards[i];
      if (!sharding.routed && shard.row > next) {
        begins.push_back(next);
        shard_of.push_back(-1);
        next = shard.row;
      }
      begins.push_back(next);
      shard_of.push_back(i);
      next += shard.rows;
    }
    if (next < table_rows) {
      begins.push_back(next);
      shard_of.push_back(-1);
    }
    begins.push_back(table_rows);
    const bool all_rows = std::count(shard_of.begin(), shard_of.end(), -1) == 0;
    slots_[slot].starts_at_zero = slots_[slot].starts_at_zero || !all_rows;
    auto [at, is_new] = cut_of.try_emplace(begins, static_cast<int>(cuts_.size()));
    if (is_new) {
      Cut cut;
      cut.slot = slot;
      cut.begins = begins;
      cut.block = uniform_block(begins);
      cut.reciprocal = reciprocal_of(cut.block, table_rows);
      cut.streams.resize(shard_of.size());
      cut.routed = sharding.routed;
      cut.router = router;
      cuts_.push_back(std::move(cut));
    }
    const int c = at->second;
    bool first = true;
    for (size_t range = 0; range < shard_of.size(); ++range) {
      if (shard_of[range] < 0 || sharding.shards[shard_of[range]].rows == 0) continue;
      const ShardMetadata& shard = sharding.shards[shard_of[range]];
      if (shard.replica) {
        if (slots_[slot].kept < 0) {
          slots_[slot].kept = static_cast<int>(kept_.size());
          kept_.push_back({slot, shard.rows});
          cuts_[c].kept = static_cast<int>(range);
        }
        kept_arrivals_.push_back(
            {static_cast<int>(range),
             {slot, columns.first, columns.second, std::exchange(first, false), -1, -1, slots_[slot].kept}});
        continue;
      }
      auto [found, fresh] =
          stream_of.try_emplace({c, static_cast<int>(range), shard.rank}, static_cast<int>(streams_.size()));
      if (fresh) {
        cuts_[c].streams[range].push_back(found->second);
        streams_.push_back({slot, shard.rank, sharding.routed ? 0 : shard.row, shard.rows, c, static_cast<int>(range)});
      }
      lanes_.push_back(
          {found->second, slots_[slot].table, shard_of[range], shard.col, shard.cols, std::exchange(first, false)});
    }
  }
  if (!slots_[slot].starts_at_zero) return;
  for (Lane& lane : lanes_) {
    if (streams_[lane.stream].slot == slot) lane.first = false;
  }
}

void Wiring::order_by_rank() {
  std::vector<int> order(streams_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return streams_[a].rank < streams_[b].rank; });
  std::vector<int> place(streams_.size());
  std::vector<Stream> streams;
  for (int old : order) {
    place[old] = static_cast<int>(streams.size());
    streams.push_back(streams_[old]);
  }
  streams_ = std::move(streams);
  for (Lane& lane : lanes_) lane.stream = place[lane.stream];
  for (Cut& cut : cuts_) {
    for (auto& range : cut.streams) {
      for (int& stream : range) stream = place[stream];
    }
  }
  std::stable_sort(lanes_.begin(), lanes_.end(), [](const Lane& a, const Lane& b) { return a.stream < b.stream; });
  for (int rank = 0; rank <= world_size(); ++rank) {
    const auto stream =
        std::partition_point(streams_.begin(), streams_.end(), [&](const Stream& s) { return s.rank < rank; });
    stream_begin_.push_back(static_cast<int>(stream - streams_.begin()));
    const auto lane = std::partition_point(lanes_.begin(), lanes_.end(),
                                           [&](const Lane& l) { return streams_[l.stream].rank < rank; });
    lane_begin_.push_back(static_cast<int>(lane - lanes_.begin()));
  }
}

// The first cut of a slot finds the ids that stay; its other ones send them nowhere.
void Wiring::number_kept() {
  for (Cut& cut : cuts_) {
    if (cut.kept >= 0) cut.streams[cut.kept] = {static_cast<int>(kept_stream(slots_[cut.slot].kept))};
  }
}

void Wiring::find_single_streams() {
  for (Cut& cut : cuts_) {
    for (size_t range = 0; range < cut.streams.size(); ++range) {
      const std::vector<int>& streams = cut.streams[range];
      if (streams.size() > 1 || (streams.empty() && cut.begins[range] < cut.begins[range + 1])) {
        cut.single.clear();
        break;
      }
      cut.single.push_back(streams.empty() ? -1 : streams[0]);
    }
  }
}

// Lanes of one slot, host and column block. A lane that is alone there has nothing to be added to.
void Wiring::find_host_sums(const std::vector<EmbeddingBagConfig>& tables, const EmbeddingModuleShardingPlan& plan) {
  std::vector<bool> is_summed;  // by table
  for (const EmbeddingBagConfig& t : tables) is_summed.push_back(plan.at(t.name).combine == Combine::kHostSum);
  std::map<std::tuple<int, int, int64_t, int64_t>, std::vector<int>> blocks;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const Lane& lane = lanes_[i];
    if (!is_summed[lane.table]) continue;
    const Stream& stream = streams_[lane.stream];
    blocks[{hosts_.of(stream.rank), stream.slot, lane.col, lane.cols}].push_back(static_cast<int>(i));
  }
  for (const auto& [key, lanes] : blocks) {
    if (lanes.size() < 2) continue;
    HostSum sum{std::get<1>(key), std::get<0>(key), std::get<2>(key), std::get<3>(key), false, lanes};
    for (int lane : lanes) {
      sum.first = sum.first || lanes_[lane].first;
      lanes_[lane].host_sum = static_cast<int>(host_sums_.size());
    }
    host_sums_.push_back(std::move(sum));
  }
}

// Sorted by slot, then columns, then the first row: the lanes, and the sums of hosts that others get in their place.
void Wiring::order_arrivals() {
  std::vector<std::pair<int, Arrival>> found = kept_arrivals_;  // range of the cut
  const auto range_of = [&](int lane) { return streams_[lanes_[lane].stream].range; };
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const Lane& lane = lanes_[i];
    const auto index = static_cast<int>(i);
    found.push_back({range_of(index), {streams_[lane.stream].slot, lane.col, lane.cols, lane.first, index, -1}});
  }
  for (size_t i = 0; i < host_sums_.size(); ++i) {
    const HostSum& sum = host_sums_[i];
    int range = range_of(sum.lanes.front());
    for (int lane : sum.lanes) range = std::min(range, range_of(lane));
    found.push_back({range, {sum.slot, sum.col, sum.cols, sum.first, -1, static_cast<int>(i)}});
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& x, const auto& y) {
    return std::tuple(x.second.slot, x.second.col, x.first) < std::tuple(y.second.slot, y.second.col, y.first);
  });
  for (auto& [range, arrival] : found) in_order_.push_back(arrival);
}

std::vector<Arrival> Wiring::arrivals(int rank) const {
  const int own = hosts_.of(rank);
  std::vector<Arrival> out;
  for (const Arrival& a : in_order_) {
    const int sum = a.kept >= 0 ? -1 : a.lane >= 0 ? lanes_[a.lane].host_sum : a.host_sum;
    const bool of_other_host = sum >= 0 && host_sums_[sum].host != own;
    if (a.kept >= 0 || (a.lane >= 0 ? !of_other_host : of_other_host)) out.push_back(a);
  }
  return out;
}

RankWiring::RankWiring(const Wiring& all, int r, const PlacesRows& places_rows)
    : wiring(all),
      rank(r),
      host(all.hosts().of(r)),
      first_stream(all.stream_begin(r)),
      num_streams(all.stream_begin(r + 1) - first_stream),
      first_lane(all.lane_begin(r)),
      num_lanes(all.lane_begin(r + 1) - first_lane),
      arrivals(all.arrivals(r)),
      stays(num_streams, places_rows != nullptr) {
  if (!places_rows) return;
  const auto stream_of = [&](const Arrival& a) { return all.lanes()[a.lane].stream - first_stream; };
  for (size_t begin = 0, end = 0; begin < arrivals.size(); begin = end) {
    end = end_of_columns(arrivals, begin);
    const Slot& slot = all.slots()[arrivals[begin].slot];
    const bool sums = !all.sequence() && slot.pooling == PoolingType::kSum && !slot.starts_at_zero;
    bool taken = false;
    for (size_t i = begin; i < end; ++i) {
      Arrival& a = arrivals[i];
      if (a.lane < 0 || all.streams()[all.lanes()[a.lane].stream].rank != rank) continue;
      // Either of the first two may be there first.
      a.stays = sums && !taken && i < begin + 2 && places_rows(all.lanes()[a.lane]);
      taken = taken || a.stays;
      if (!a.stays) stays[stream_of(a)] = false;
    }
  }
  for (Arrival& a : arrivals) a.stays = a.stays && stays[stream_of(a)];
}

size_t end_of_columns(const std::vector<Arrival>& arrivals, size_t begin) {
  const auto columns = [](const Arrival& a) { return std::tuple(a.slot, a.col, a.cols); };
  size_t end = begin + 1;
  while (end < arrivals.size() && columns(arrivals[end]) == columns(arrivals[begin])) ++end;
  return end;
}

int64_t Wiring::row_elements() const {
  int64_t width = lanes_.empty() ? 0 : lanes_.front().cols;
  for (const Lane& lane : lanes_) width = lane.cols == width ? width : 0;
  return width;
}

}  // namespace tessera
