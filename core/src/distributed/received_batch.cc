#include "distributed/received_batch.h"

#include <algorithm>
#include <cstring>

namespace tessera {
namespace {

[[noreturn]] void damaged(int peer, const std::string& what) {
  throw Error(Code::kDataLoss, str_cat("rank ", peer, " sent ", what), peer);
}

class Unpacker {
 public:
  Unpacker(const RankWiring& own, std::span<const PeerHeader> headers, std::span<const uint8_t* const> payloads,
           ReceivedBatch& out)
      : own_(own), wiring_(own.wiring), headers_(headers), payloads_(payloads), out_(out) {}

  void run() {
    const int world = wiring_.world_size();
    const int id_routes = own_.num_id_routes;
    out_.id_blocks.assign(static_cast<size_t>(world) * id_routes, {});
    out_.first_offset.resize(out_.id_blocks.size());
    int64_t ids = 0, bags = 0;
    for (const PeerHeader& h : headers_) {
      ids += h.num_ids;
      bags += h.num_bags;
    }
    out_.ids.ensure(ids);
    out_.offsets.ensure(bags + static_cast<int64_t>(out_.id_blocks.size()) + 1);
    out_.num_ids = ids;
    out_.num_offsets = 0;
    if (out_.weighted) out_.weights.ensure(ids);
    out_.presence.assign(wiring_.hosts().count * wiring_.summed_routes(own_.host).size(), {});
    int64_t first_id = 0;
    for (int peer = 0; peer < world; ++peer) {
      unpack_peer(peer, first_id);
      first_id += headers_[peer].num_ids;
    }
  }

 private:
  // Copies one peer's ids and weights, and turns its lengths into offsets, leaving empty bags out.
  void unpack_peer(int peer, int64_t first_id) {
    const PeerHeader& h = headers_[peer];
    const uint8_t* payload = payloads_[peer];
    const int own = own_.first_id_route;
    const int id_routes = own_.num_id_routes;
    if (out_.weighted != static_cast<bool>(h.flags & PeerHeader::kWeighted) && h.num_ids) {
      fail(Code::kFailedPrecondition, "rank ", peer, " and rank ", own_.rank, " disagree on whether ids have weights");
    }
    if (h.num_ids) std::memcpy(out_.ids.data<int64_t>() + first_id, payload, h.num_ids * 8);
    if (out_.weighted && h.num_ids)
      std::memcpy(out_.weights.data<float>() + first_id, payload + h.num_ids * 8, h.num_ids * 4);
    const auto* bags = reinterpret_cast<const int32_t*>(payload + h.num_ids * (out_.weighted ? 12 : 8));
    const int32_t* lengths = bags + id_routes;
    int64_t at = first_id, seen_bags = 0;
    int64_t* offsets = out_.offsets.data<int64_t>() + out_.num_offsets;
    for (int s = 0; s < id_routes; ++s) {
      IdBlock& id_block = out_.id_blocks[static_cast<size_t>(peer) * id_routes + s];
      id_block.bags = bags[s];
      id_block.first_bag = seen_bags;
      seen_bags += id_block.bags;
      if (id_block.bags < 0 || seen_bags > h.num_bags) damaged(peer, "more bags than its header says");
      id_block.first_id = at;
      out_.first_offset[static_cast<size_t>(peer) * id_routes + s] = out_.num_offsets;
      *offsets++ = at;
      int32_t signs = 0;
      int64_t full = 0;
      for (int64_t b = 0; b < id_block.bags; ++b) {  // the next bag overwrites an empty bag's offset
        signs |= lengths[b];
        at += lengths[b];
        offsets[full] = at;
        full += lengths[b] != 0;
      }
      if (signs < 0) damaged(peer, "a negative bag length");
      lengths += id_block.bags;
      offsets += full;
      out_.num_offsets += full + 1;
      id_block.full_bags = full;
      id_block.ids = at - id_block.first_id;
      if (at > first_id + h.num_ids) damaged(peer, "bag lengths beyond its ids");
      check_ids(peer, own + s, id_block);
    }
    unpack_presence(peer, bags + id_routes + h.num_bags);
  }

  // Reads which bags of a home on another host have ids at this host's ranks.
  void unpack_presence(int peer, const int32_t* words) {
    const HostGrid& hosts = wiring_.hosts();
    const int64_t count = headers_[peer].presence_words;
    const int host = own_.host;
    const std::vector<int>& id_routes = wiring_.summed_routes(host);
    const bool expected = hosts.of(peer) != host && hosts.local(peer) == hosts.local(own_.rank);
    constexpr const char* kNotes = "damaged notes of which bags have ids";
    int64_t at = 0;
    for (size_t s = 0; expected && s < id_routes.size(); ++s) {
      if (at >= count || words[at] < 0 || words[at] > (count - at - 1) * 32) damaged(peer, kNotes);
      Presence& presence = out_.presence[hosts.of(peer) * id_routes.size() + s];
      presence.bags = words[at++];
      presence.bits = reinterpret_cast<const uint32_t*>(words + at);
      for (int64_t word = 0; word < (presence.bags + 31) / 32; ++word)
        presence.full_bags += __builtin_popcount(presence.bits[word]);
      at += (presence.bags + 31) / 32;
    }
    if (at != count) damaged(peer, kNotes);
    // This rank's own row routes among them have rows for exactly the bags that came with ids.
    const int first = own_.first_id_route, last = own_.first_id_route + own_.num_id_routes;
    for (int id_route = first; expected && id_route < last; ++id_route) {
      if (!std::binary_search(id_routes.begin(), id_routes.end(), id_route)) continue;
      const Presence& presence = presence_of(wiring_, out_, id_route, hosts.of(peer));
      const IdBlock& id_block = out_.id_blocks[static_cast<size_t>(peer) * (last - first) + id_route - first];
      if (presence.bags != id_block.bags || presence.full_bags != id_block.full_bags) damaged(peer, kNotes);
    }
    for (int i = wiring_.host_sum_begin(host); expected && i < wiring_.host_sum_begin(host + 1); ++i) {
      const auto bags_of = [&](int row_route) {
        return presence_of(wiring_, out_, wiring_.row_routes()[row_route].id_route, hosts.of(peer)).bags;
      };
      for (int row_route : wiring_.host_sums()[i].row_routes) {
        if (bags_of(row_route) != bags_of(wiring_.host_sums()[i].row_routes[0])) damaged(peer, kNotes);
      }
    }
  }

  // The home has checked the ids. A peer that sends others is broken, and must not make this rank read wild memory.
  void check_ids(int peer, int id_route, const IdBlock& id_block) const {
    const IdRoute& from = wiring_.id_routes()[id_route];
    const RowRouterPtr& router = wiring_.row_splits()[from.row_split].router;
    const TableFeature& table_feature = wiring_.table_features()[from.table_feature];
    const int64_t rows = table_feature.any_id            ? INT64_MAX
                         : router && router->keeps_ids() ? table_feature.rows
                                                         : from.rows;
    const int64_t* ids = out_.ids.data<int64_t>() + id_block.first_id;
    uint64_t signs = 0;
    for (int64_t i = 0; i < id_block.ids; ++i) {
      const auto id = static_cast<uint64_t>(ids[i]);
      signs |= id | (static_cast<uint64_t>(rows - 1) - id);
    }
    if (signs >> 63 == 0) return;
    const int64_t* wrong = std::find_if(ids, ids + id_block.ids, [&](int64_t id) { return id < 0 || id >= rows; });
    damaged(peer, str_cat("row ", *wrong, " for \"",
                          wiring_.table_features()[wiring_.id_routes()[id_route].table_feature].name,
                          "\", whose shard here has ", rows, " rows"));
  }

  const RankWiring& own_;
  const Wiring& wiring_;
  const std::span<const PeerHeader> headers_;
  const std::span<const uint8_t* const> payloads_;
  ReceivedBatch& out_;
};

}  // namespace

void unpack(const RankWiring& own, std::span<const PeerHeader> headers, std::span<const uint8_t* const> payloads,
            bool weighted, ReceivedBatch& out) {
  out.weighted = weighted;
  Unpacker(own, headers, payloads, out).run();
}

const Presence& presence_of(const Wiring& wiring, const ReceivedBatch& batch, int id_route, int home_host) {
  const int own = wiring.hosts().of(wiring.id_routes()[id_route].rank);
  const std::vector<int>& id_routes = wiring.summed_routes(own);
  const auto at = std::lower_bound(id_routes.begin(), id_routes.end(), id_route) - id_routes.begin();
  return batch.presence[static_cast<size_t>(home_host) * id_routes.size() + at];
}

int64_t bags_present(const Wiring& wiring, const ReceivedBatch& batch, const HostSum& sum, int home_host) {
  const int64_t bags = presence_of(wiring, batch, wiring.row_routes()[sum.row_routes[0]].id_route, home_host).bags;
  int64_t count = 0;
  for (int64_t word = 0; word < (bags + 31) / 32; ++word) {
    uint32_t any = 0;
    for (int row_route : sum.row_routes)
      any |= presence_of(wiring, batch, wiring.row_routes()[row_route].id_route, home_host).bits[word];
    count += __builtin_popcount(any);
  }
  return count;
}

}  // namespace tessera
