#include "distributed/exchange.h"

#include <cstring>
#include <numeric>

#include "distributed/host_sums.h"
#include "distributed/route.h"

namespace tessera {
namespace {

PeerHeader* headers(const Buffer& buffer) { return reinterpret_cast<PeerHeader*>(buffer.data<uint8_t>()); }

// How many ids, weights and bags a peer may announce: more is a damaged header, not a batch.
constexpr int64_t kMostItems = int64_t{1} << 40;

bool plausible(int64_t count) { return count >= 0 && count <= kMostItems; }

}  // namespace

Exchange::Exchange(std::shared_ptr<ProcessGroup> group, const LaneMap& map, uint64_t fingerprint)
    : group_(std::move(group)),
      host_group_(map.hosts().count > 1 ? group_->in_host() : group_),
      map_(map),
      fingerprint_(fingerprint) {}

void Exchange::inputs(Step& step, bool finished, const std::string& error) {
  send_headers(step, finished, !error.empty());
  const int world = group_->world_size();
  const PeerHeader* from = headers(step.header_recv);
  bool any_error = false;
  step.all_finished = true;
  step.payload_recv_bytes.assign(world, 0);
  const int64_t streams = map_.stream_begin(group_->rank() + 1) - map_.stream_begin(group_->rank());
  for (int peer = 0; peer < world; ++peer) {
    const PeerHeader& h = from[peer];
    if (h.magic != PeerHeader::kMagic || !plausible(h.num_ids) || !plausible(h.num_bags) ||
        !plausible(h.presence_words)) {
      const std::string damage = cat("rank ", peer, " sent a damaged step header");
      abort(cat("rank ", group_->rank(), ": ", damage));  // nobody else knows of it
      fail(Code::kDataLoss, damage);
    }
    if (h.fingerprint != fingerprint_) {
      fail(Code::kFailedPrecondition, "rank ", peer, " runs other tables or another plan than rank ", group_->rank(),
           ": all ranks need the same config and plan");
    }
    any_error = any_error || (h.flags & PeerHeader::kError);
    step.all_finished = step.all_finished && (h.flags & PeerHeader::kFinished);
    step.payload_recv_bytes[peer] =
        payload_bytes(streams, {0, h.num_ids, h.num_bags, h.presence_words}, h.flags & PeerHeader::kWeighted);
  }
  if (any_error) share_error(error);
  const int64_t total = std::accumulate(step.payload_recv_bytes.begin(), step.payload_recv_bytes.end(), int64_t{0});
  const int64_t sending = std::accumulate(step.payload_send_bytes.begin(), step.payload_send_bytes.end(), int64_t{0});
  step.payload_recv.ensure(total);
  group_
      ->all_to_all_v(step.payload_send.tensor().first({sending}), step.payload_send_bytes,
                     step.payload_recv.tensor().first({total}), step.payload_recv_bytes, "ids")
      .wait();
  try {
    unpack(step);
  } catch (const std::exception& e) {
    abort(cat("rank ", group_->rank(), " cannot use the ids that it received: ", e.what()));
    throw;
  }
}

void Exchange::send_headers(Step& step, bool finished, bool error) {
  const int world = group_->world_size();
  const int64_t bytes = static_cast<int64_t>(sizeof(PeerHeader));
  step.header_send.ensure(world * bytes);
  step.header_recv.ensure(world * bytes);
  PeerHeader* to = headers(step.header_send);
  for (int peer = 0; peer < world; ++peer) {
    PeerHeader h;
    h.flags = (finished ? PeerHeader::kFinished : 0u) | (error ? PeerHeader::kError : 0u) |
              (step.weighted ? PeerHeader::kWeighted : 0u);
    if (!error) {
      h.num_bags = step.payload_parts[peer].bags;
      h.num_ids = step.payload_parts[peer].ids;
      h.presence_words = step.payload_parts[peer].presence_words;
    }
    h.fingerprint = fingerprint_;
    to[peer] = h;
  }
  step.header_counts.assign(world, bytes);
  group_
      ->all_to_all_v(step.header_send.tensor().first({world * bytes}), step.header_counts,
                     step.header_recv.tensor().first({world * bytes}), step.header_counts, "step header")
      .wait();
}

void Exchange::share_error(const std::string& mine) {
  const auto texts = group_->all_gather_text(mine, "step error");
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (!texts[rank].empty()) fail(Code::kInvalidArgument, "rank ", rank, ": ", texts[rank]);
  }
  fail(Code::kInternal, "a rank announced an error but no text");
}

void Exchange::unpack(Step& step) {
  const int world = group_->world_size();
  const int streams = map_.stream_begin(group_->rank() + 1) - map_.stream_begin(group_->rank());
  step.received.assign(static_cast<size_t>(world) * streams, {});
  step.first_offset.assign(step.received.size(), 0);
  int64_t ids = 0, bags = 0;
  for (int peer = 0; peer < world; ++peer) {
    ids += headers(step.header_recv)[peer].num_ids;
    bags += headers(step.header_recv)[peer].num_bags;
  }
  step.ids.ensure(ids);
  step.offsets.ensure(bags + static_cast<int64_t>(step.received.size()));
  step.num_ids = ids;
  step.num_offsets = 0;
  if (step.weighted) step.weights.ensure(ids);
  step.presence.assign(map_.hosts().count * map_.summed_streams(map_.hosts().of(group_->rank())).size(), {});
  const uint8_t* payload = step.payload_recv.data<uint8_t>();
  int64_t first_id = 0;
  for (int peer = 0; peer < world; ++peer) {
    unpack_peer(step, peer, payload, first_id);
    payload += step.payload_recv_bytes[peer];
    first_id += headers(step.header_recv)[peer].num_ids;
  }
}

// Copies one peer's ids and weights, and turns its lengths into offsets, leaving empty bags out.
void Exchange::unpack_peer(Step& step, int peer, const uint8_t* payload, int64_t first_id) {
  const PeerHeader& h = headers(step.header_recv)[peer];
  const int own = map_.stream_begin(group_->rank());
  const int streams = map_.stream_begin(group_->rank() + 1) - own;
  if (step.weighted != static_cast<bool>(h.flags & PeerHeader::kWeighted) && h.num_ids) {
    fail(Code::kFailedPrecondition, "rank ", peer, " and rank ", group_->rank(),
         " disagree on whether ids have weights");
  }
  if (h.num_ids) std::memcpy(step.ids.data<int64_t>() + first_id, payload, h.num_ids * 8);
  if (step.weighted && h.num_ids)
    std::memcpy(step.weights.data<float>() + first_id, payload + h.num_ids * 8, h.num_ids * 4);
  const auto* bags = reinterpret_cast<const int32_t*>(payload + h.num_ids * (step.weighted ? 12 : 8));
  const int32_t* lengths = bags + streams;
  int64_t at = first_id, seen_bags = 0;
  int64_t* offsets = step.offsets.data<int64_t>();
  for (int s = 0; s < streams; ++s) {
    StreamPiece& piece = step.received[static_cast<size_t>(peer) * streams + s];
    piece.bags = bags[s];
    piece.first_bag = seen_bags;
    seen_bags += piece.bags;
    if (piece.bags < 0 || seen_bags > h.num_bags)
      fail(Code::kDataLoss, "rank ", peer, " sent more bags than its header says");
    piece.first_id = at;
    step.first_offset[static_cast<size_t>(peer) * streams + s] = step.num_offsets;
    offsets[step.num_offsets++] = at;
    for (int64_t b = 0; b < piece.bags; ++b) {
      const int32_t length = *lengths++;
      if (length < 0) fail(Code::kDataLoss, "rank ", peer, " sent a negative bag length");
      if (!length) continue;
      at += length;
      offsets[step.num_offsets++] = at;
      ++piece.full_bags;
    }
    piece.ids = at - piece.first_id;
    if (at > first_id + h.num_ids) fail(Code::kDataLoss, "rank ", peer, " sent bag lengths beyond its ids");
    check_ids(step, peer, own + s, piece);
  }
  unpack_presence(step, peer, bags + streams + h.num_bags);
}

// Which bags of a home on another host have ids at this host's ranks.
void Exchange::unpack_presence(Step& step, int peer, const int32_t* words) {
  const HostGrid& hosts = map_.hosts();
  const int64_t count = headers(step.header_recv)[peer].presence_words;
  const int host = hosts.of(group_->rank());
  const std::vector<int>& streams = map_.summed_streams(host);
  const bool expected = hosts.of(peer) != host && hosts.local(peer) == hosts.local(group_->rank());
  const auto damaged = [&] { fail(Code::kDataLoss, "rank ", peer, " sent damaged notes of which bags have ids"); };
  int64_t at = 0;
  for (size_t s = 0; expected && s < streams.size(); ++s) {
    if (at >= count || words[at] < 0 || words[at] > (count - at - 1) * 32) damaged();
    Presence& presence = step.presence[hosts.of(peer) * streams.size() + s];
    presence.bags = words[at++];
    presence.bits = reinterpret_cast<const uint32_t*>(words + at);
    for (int64_t word = 0; word < (presence.bags + 31) / 32; ++word)
      presence.full_bags += __builtin_popcount(presence.bits[word]);
    at += (presence.bags + 31) / 32;
  }
  if (at != count) damaged();
  for (int i = map_.host_sum_begin(host); expected && i < map_.host_sum_begin(host + 1); ++i) {
    const auto bags_of = [&](int lane) {
      return presence_of(map_, step, map_.lanes()[lane].stream, hosts.of(peer)).bags;
    };
    for (int lane : map_.host_sums()[i].lanes) {
      if (bags_of(lane) != bags_of(map_.host_sums()[i].lanes[0])) damaged();
    }
  }
}

// Ids were checked where the batch is; a peer that sends others is broken, and must not make this rank read wild
// memory.
void Exchange::check_ids(const Step& step, int peer, int stream, const StreamPiece& piece) const {
  const auto rows = static_cast<uint64_t>(map_.streams()[stream].rows);
  const int64_t* ids = step.ids.data<int64_t>() + piece.first_id;
  uint64_t largest = 0;
  for (int64_t i = 0; i < piece.ids; ++i) largest = std::max(largest, static_cast<uint64_t>(ids[i]));
  if (piece.ids && largest >= rows) {
    fail(Code::kDataLoss, "rank ", peer, " sent row ", static_cast<int64_t>(largest), " for \"",
         map_.slots()[map_.streams()[stream].slot].name, "\", whose shard here has ", rows, " rows");
  }
}

Work Exchange::to_home(const ProcessGroup& group, const Hop& hop, Step& step, const char* label) const {
  return group.all_to_all_v(step.owner_rows.tensor().narrow(hop.owner_begin, hop.owner_total), hop.owner_counts,
                            step.home_rows.tensor().narrow(hop.home_begin, hop.home_total), hop.home_counts, label);
}

Work Exchange::to_owner(const ProcessGroup& group, const Hop& hop, Step& step, const char* label) const {
  return group.all_to_all_v(step.home_rows.tensor().narrow(hop.home_begin, hop.home_total), hop.home_counts,
                            step.owner_rows.tensor().narrow(hop.owner_begin, hop.owner_total), hop.owner_counts, label);
}

Work Exchange::start_rows_to_home(Step& step) {
  return to_home(*host_group_, step.in_host, step, map_.hosts().count > 1 ? "rows inside the host" : "rows");
}

void Exchange::finish_rows_to_home(Step& step, Work first_hop) {
  first_hop.wait();
  if (map_.hosts().count == 1) return;
  sum_in_host(map_, group_->rank(), step);
  to_home(*group_, step.across, step, "rows across hosts").wait();
}

void Exchange::rows_to_owner(Step& step) {
  if (map_.hosts().count > 1) {
    to_owner(*group_, step.across, step, "gradients across hosts").wait();
    spread_in_host(map_, group_->rank(), step);
  }
  to_owner(*host_group_, step.in_host, step, map_.hosts().count > 1 ? "gradients inside the host" : "gradients").wait();
}

void Exchange::abort(const std::string& reason) const { group_->abort(reason); }

}  // namespace tessera
