#include "distributed/input_exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "distributed/host_sums.h"
#include "distributed/route.h"

namespace tessera {
namespace {

// How many ids, weights and bags a peer may announce: more is a damaged header, not a batch.
constexpr int64_t kMostItems = int64_t{1} << 40;

bool plausible(int64_t count) { return count >= 0 && count <= kMostItems; }

[[noreturn]] void damaged_header(int peer) { fail(Code::kDataLoss, "rank ", peer, " sent a damaged step header"); }

// Every rank has it, and ends the step by itself.
class KnownToAll : public Error {
 public:
  template <class... Parts>
  explicit KnownToAll(Code code, const Parts&... parts) : Error(code, cat(parts...)) {}
};

}  // namespace

InputExchange::InputExchange(std::shared_ptr<ProcessGroup> group, const RankWiring& own, uint64_t fingerprint,
                             std::shared_ptr<ProcessGroup> steps)
    : group_(std::move(group)), steps_(std::move(steps)), own_(own), wiring_(own.wiring), fingerprint_(fingerprint) {}

void InputExchange::run(Step& step, bool finished, const std::string& error, Stopwatch& watch) {
  try {
    send_headers(step, finished, !error.empty(), watch);
    if (read_headers(step)) share_error(error);
    take_payloads(step, watch);
    unpack(step);
  } catch (const KnownToAll&) {
    throw;
  } catch (const std::exception& e) {
    const auto* known = dynamic_cast<const Error*>(&e);
    // Who has ended this exchange, here or elsewhere, has also ended the steps or wants them to go on.
    if (!known || (known->code() != Code::kCancelled && known->code() != Code::kAborted))
      abort_with_steps(cat("rank ", group_->rank(), " cannot use the ids that it received: ", e.what()));
    throw;
  }
}

void InputExchange::abort_with_steps(const std::string& reason) const {
  abort(reason);
  if (steps_) steps_->abort(reason);
}

// This rank's own header and payload stay where they are.
void InputExchange::send_headers(Step& step, bool finished, bool error, Stopwatch& watch) {
  const int world = group_->world_size(), own = group_->rank();
  const int64_t block = kHeaderBytes + room_;
  step.room = room_;
  step.headers.resize(world);
  PeerHeader h;
  h.flags = (finished ? PeerHeader::kFinished : 0u) | (error ? PeerHeader::kError : 0u) |
            (step.weighted ? PeerHeader::kWeighted : 0u);
  h.fingerprint = fingerprint_;
  for (int peer = 0; peer < world; ++peer) {
    if (peer != own) h.largest = std::max(h.largest, step.payload_send_bytes[peer]);
  }
  uint8_t* to = step.header_send.ensure((world - 1) * block).data<uint8_t>();
  for (int peer = 0; peer < world; ++peer) {
    if (!error) {
      h.num_bags = step.payload_parts[peer].bags;
      h.num_ids = step.payload_parts[peer].ids;
      h.presence_words = step.payload_parts[peer].presence_words;
    }
    step.headers[peer] = h;
    if (peer == own) continue;
    std::memcpy(to, &h, sizeof(h));
    const int64_t payload = h.largest <= room_ ? step.payload_send_bytes[peer] : 0;
    if (payload) {
      std::memcpy(to + kHeaderBytes, step.payload_send.data<uint8_t>() + step.payload_parts[peer].begin, payload);
    }
    std::memset(to + kHeaderBytes + payload, 0, room_ - payload);  // what lies in this memory is nobody else's business
    to += block;
  }
  step.header_recv.ensure((world - 1) * block);
  if (world == 1) return;
  step.header_counts.assign(world, block);
  step.header_counts[own] = 0;
  watch.wait(group_->all_to_all_v(step.header_send.tensor().first({(world - 1) * block}), step.header_counts,
                                  step.header_recv.tensor().first({(world - 1) * block}), step.header_counts,
                                  "step header"));
}

// True: a rank announced an error.
bool InputExchange::read_headers(Step& step) {
  const int world = group_->world_size(), own = group_->rank();
  const int64_t streams = own_.num_streams;
  const uint8_t* from = step.header_recv.data<uint8_t>();
  bool any_error = false;
  int64_t largest = 0;
  step.all_finished = true;
  step.payload_recv_bytes.resize(world);
  step.payloads.resize(world);
  for (int peer = 0; peer < world; ++peer) {
    PeerHeader& h = step.headers[peer];
    if (peer == own) {
      step.payloads[peer] = step.payload_send.tensor().defined() && !(h.flags & PeerHeader::kError)
                                ? step.payload_send.data<uint8_t>() + step.payload_parts[peer].begin
                                : nullptr;
    } else {
      std::memcpy(&h, from, sizeof(h));
      step.payloads[peer] = from + kHeaderBytes;
      from += kHeaderBytes + step.room;
    }
    if (h.magic != PeerHeader::kMagic || !plausible(h.num_ids) || !plausible(h.num_bags) ||
        !plausible(h.presence_words) || !plausible(h.largest)) {
      damaged_header(peer);
    }
    if (h.fingerprint != fingerprint_) {
      throw KnownToAll(Code::kFailedPrecondition, "rank ", peer, " runs other tables or another plan than rank ", own,
                       ": all ranks need the same config and plan");
    }
    any_error = any_error || (h.flags & PeerHeader::kError);
    step.all_finished = step.all_finished && (h.flags & PeerHeader::kFinished);
    largest = std::max(largest, h.largest);
    step.payload_recv_bytes[peer] = 0;
    if (h.flags & PeerHeader::kError) continue;
    step.payload_recv_bytes[peer] = payload_bytes(h.num_ids, h.flags & PeerHeader::kWeighted ? h.num_ids : 0,
                                                  streams + h.num_bags + h.presence_words);
    if (peer != own && step.payload_recv_bytes[peer] > h.largest) damaged_header(peer);
  }
  step.in_second = largest > step.room;
  room_ = room_for(largest, world);
  return any_error;
}

void InputExchange::take_payloads(Step& step, Stopwatch& watch) {
  const int own = group_->rank();
  const int64_t total = std::accumulate(step.payload_recv_bytes.begin(), step.payload_recv_bytes.end(), int64_t{0});
  step.payload_recv.ensure(total);  // a later batch of this size may need it
  if (!step.in_second) return;
  const int64_t sending = std::accumulate(step.payload_send_bytes.begin(), step.payload_send_bytes.end(), int64_t{0});
  watch.wait(group_->all_to_all_v(step.payload_send.tensor().first({sending}), step.payload_send_bytes,
                                  step.payload_recv.tensor().first({total}), step.payload_recv_bytes, "ids"));
  const uint8_t* payload = step.payload_recv.data<uint8_t>();
  for (int peer = 0; peer < group_->world_size(); ++peer) {
    if (peer != own) step.payloads[peer] = payload;
    payload += step.payload_recv_bytes[peer];
  }
}

void InputExchange::share_error(const std::string& mine) {
  const auto texts = group_->all_gather_text(mine, "step error");
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (!texts[rank].empty()) throw KnownToAll(Code::kInvalidArgument, "rank ", rank, ": ", texts[rank]);
  }
  throw KnownToAll(Code::kInternal, "a rank announced an error but no text");
}

void InputExchange::unpack(Step& step) {
  const int world = group_->world_size();
  const int streams = own_.num_streams;
  step.received.assign(static_cast<size_t>(world) * streams, {});
  step.first_offset.resize(step.received.size());
  int64_t ids = 0, bags = 0;
  for (const PeerHeader& h : step.headers) {
    ids += h.num_ids;
    bags += h.num_bags;
  }
  step.ids.ensure(ids);
  step.offsets.ensure(bags + static_cast<int64_t>(step.received.size()) + 1);
  step.output_rows.ensure(bags + static_cast<int64_t>(step.received.size()) + 1);
  step.num_ids = ids;
  step.num_offsets = 0;
  if (step.weighted) step.weights.ensure(ids);
  step.presence.assign(wiring_.hosts().count * wiring_.summed_streams(wiring_.hosts().of(group_->rank())).size(), {});
  int64_t first_id = 0;
  for (int peer = 0; peer < world; ++peer) {
    unpack_peer(step, peer, first_id);
    first_id += step.headers[peer].num_ids;
  }
}

// Copies one peer's ids and weights, and turns its lengths into offsets, leaving empty bags out.
void InputExchange::unpack_peer(Step& step, int peer, int64_t first_id) {
  const PeerHeader& h = step.headers[peer];
  const uint8_t* payload = step.payloads[peer];
  const int own = own_.first_stream;
  const int streams = own_.first_stream + own_.num_streams - own;
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
  int64_t* offsets = step.offsets.data<int64_t>() + step.num_offsets;
  for (int s = 0; s < streams; ++s) {
    StreamPiece& piece = step.received[static_cast<size_t>(peer) * streams + s];
    piece.bags = bags[s];
    piece.first_bag = seen_bags;
    seen_bags += piece.bags;
    if (piece.bags < 0 || seen_bags > h.num_bags)
      fail(Code::kDataLoss, "rank ", peer, " sent more bags than its header says");
    piece.first_id = at;
    step.first_offset[static_cast<size_t>(peer) * streams + s] = step.num_offsets;
    *offsets++ = at;
    int32_t signs = 0;
    int64_t full = 0;
    for (int64_t b = 0; b < piece.bags; ++b) {  // an empty bag's offset is written over by the next one
      signs |= lengths[b];
      at += lengths[b];
      offsets[full] = at;
      full += lengths[b] != 0;
    }
    if (signs < 0) fail(Code::kDataLoss, "rank ", peer, " sent a negative bag length");
    lengths += piece.bags;
    offsets += full;
    step.num_offsets += full + 1;
    piece.full_bags = full;
    piece.ids = at - piece.first_id;
    if (at > first_id + h.num_ids) fail(Code::kDataLoss, "rank ", peer, " sent bag lengths beyond its ids");
    check_ids(step, peer, own + s, piece);
  }
  unpack_presence(step, peer, bags + streams + h.num_bags);
}

// Which bags of a home on another host have ids at this host's ranks.
void InputExchange::unpack_presence(Step& step, int peer, const int32_t* words) {
  const HostGrid& hosts = wiring_.hosts();
  const int64_t count = step.headers[peer].presence_words;
  const int host = hosts.of(group_->rank());
  const std::vector<int>& streams = wiring_.summed_streams(host);
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
  // The own lanes among them have rows for the bags that came with ids, and for no others.
  const int first = own_.first_stream, last = own_.first_stream + own_.num_streams;
  for (int stream = first; expected && stream < last; ++stream) {
    if (!std::binary_search(streams.begin(), streams.end(), stream)) continue;
    const Presence& presence = presence_of(wiring_, step, stream, hosts.of(peer));
    const StreamPiece& piece = step.received[static_cast<size_t>(peer) * (last - first) + stream - first];
    if (presence.bags != piece.bags || presence.full_bags != piece.full_bags) damaged();
  }
  for (int i = wiring_.host_sum_begin(host); expected && i < wiring_.host_sum_begin(host + 1); ++i) {
    const auto bags_of = [&](int lane) {
      return presence_of(wiring_, step, wiring_.lanes()[lane].stream, hosts.of(peer)).bags;
    };
    for (int lane : wiring_.host_sums()[i].lanes) {
      if (bags_of(lane) != bags_of(wiring_.host_sums()[i].lanes[0])) damaged();
    }
  }
}

// Ids were checked where the batch is; a peer that sends others is broken, and must not make this rank read wild
// memory.
void InputExchange::check_ids(const Step& step, int peer, int stream, const StreamPiece& piece) const {
  const int64_t rows = wiring_.streams()[stream].rows;
  const int64_t* ids = step.ids.data<int64_t>() + piece.first_id;
  uint64_t signs = 0;
  for (int64_t i = 0; i < piece.ids; ++i) {
    const auto id = static_cast<uint64_t>(ids[i]);
    signs |= id | (static_cast<uint64_t>(rows - 1) - id);
  }
  if (signs >> 63 == 0) return;
  const int64_t* wrong = std::find_if(ids, ids + piece.ids, [&](int64_t id) { return id < 0 || id >= rows; });
  fail(Code::kDataLoss, "rank ", peer, " sent row ", *wrong, " for \"",
       wiring_.slots()[wiring_.streams()[stream].slot].name, "\", whose shard here has ", rows, " rows");
}

}  // namespace tessera
