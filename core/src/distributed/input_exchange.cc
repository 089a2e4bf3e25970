#include "distributed/input_exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tessera {
namespace {

// The most ids, weights and bags that a peer may announce. A header with more is damaged.
constexpr int64_t kMostItems = int64_t{1} << 40;

bool plausible(int64_t count) { return count >= 0 && count <= kMostItems; }

[[noreturn]] void damaged_header(int peer) {
  throw Error(Code::kDataLoss, str_cat("rank ", peer, " sent a damaged step header"), peer);
}

// An error that every rank gets, so that each ends the step by itself.
class KnownToAll : public Error {
 public:
  using Error::Error;
};

}  // namespace

InputExchange::InputExchange(std::shared_ptr<ProcessGroup> group, const RankWiring& own, const JobFingerprint& job,
                             JoinExchanges join_rows, std::shared_ptr<ProcessGroup> steps)
    : group_(std::move(group)),
      steps_(std::move(steps)),
      own_(own),
      job_(job),
      grid_(RankGrid::of(group_->world_size(), group_->local_world_size(), group_->joins().ids)),
      join_rows_(join_rows) {}

template <class Body>
void InputExchange::guarded(const Body& body) const {
  try {
    body();
  } catch (const KnownToAll&) {
    throw;
  } catch (const std::exception& e) {
    const auto* known = dynamic_cast<const Error*>(&e);
    // A rank that has ended this exchange has also ended the steps, or wants them to continue. But other ranks of this
    // host may have come further, and may wait in a group that this rank does not belong to.
    if (known && (known->code() == Code::kCancelled || known->code() == Code::kAborted))
      abort(e.what());
    else
      abort_with_steps(str_cat("rank ", group_->rank(), " cannot use the ids that it received: ", said_of(e)));
    throw;
  }
}

void InputExchange::send_payloads(const RoutedBatch& batch, const std::string& error, IdMessages& messages,
                                  Stopwatch& watch) {
  guarded([&] {
    watch.wait(std::move(messages.travel));
    if (group_->world_size() > 1 && !grid_.is_direct()) pass_headers_on(messages, watch);
    if (read_headers(batch, messages)) share_error(error);
    start_payloads(batch, messages);
  });
}

void InputExchange::finish(const RoutedBatch& batch, IdMessages& messages, ReceivedBatch& received, Stopwatch& watch) {
  guarded([&] {
    if (messages.joins_ids) {
      messages.joined.finish_to_owner(*group_, std::move(messages.travel), payloads_of(messages),
                                      {"ids of a row", job_.all, Carries::kIds}, watch);
    } else {
      watch.wait(std::move(messages.travel));
    }
    unpack(own_, messages.headers, messages.payloads, batch.weighted, received);
  });
}

void InputExchange::abort_with_steps(const std::string& reason) const {
  abort(reason);
  if (steps_) steps_->abort(reason);
}

// The rank's own header and payload stay where they are.
int64_t InputExchange::write_headers(const RoutedBatch& batch, bool finished, bool error, IdMessages& messages) {
  const int world = group_->world_size(), own = group_->rank();
  const int64_t block = kHeaderBytes + inline_payload_;
  messages.grid = grid_;
  messages.inline_payload = inline_payload_;
  messages.headers.resize(world);
  PeerHeader h{.flags = (finished ? PeerHeader::kFinished : 0u) | (error ? PeerHeader::kError : 0u) |
                        (batch.weighted ? PeerHeader::kWeighted : 0u),
               .fingerprint = job_.all};
  for (int peer = 0; peer < world; ++peer) {
    if (peer != own) h.largest = std::max(h.largest, batch.payload_bytes[peer]);
  }
  const bool tells_rows = !error && may_join_rows();
  if (tells_rows) h.largest_rows = *std::max_element(batch.rows_wanted.begin(), batch.rows_wanted.end());
  const int64_t bytes = (grid_.is_direct() ? world - 1 : world) * block;
  uint8_t* const blocks = messages.header_send.ensure(bytes).data<uint8_t>();
  for (int peer = 0; peer < world; ++peer) {
    if (!error) {
      h.num_bags = batch.parts[peer].bags;
      h.num_ids = batch.parts[peer].ids;
      h.presence_words = batch.parts[peer].presence_words;
    }
    if (tells_rows) h.rows = batch.rows_wanted[peer];
    messages.headers[peer] = h;
    if (peer == own) continue;
    uint8_t* const to = blocks + (grid_.is_direct() ? peer - (peer > own) : grid_.place_of(peer)) * block;
    std::memcpy(to, &h, sizeof(h));
    const int64_t payload = h.largest <= inline_payload_ ? batch.payload_bytes[peer] : 0;
    if (payload) {
      std::memcpy(to + kHeaderBytes, batch.payload.data<uint8_t>() + batch.parts[peer].begin, payload);
    }
    std::memset(to + kHeaderBytes + payload, 0,
                inline_payload_ - payload);  // this memory may hold other data, which must not be sent
  }
  messages.header_recv.ensure(bytes);
  messages.header_counts.assign(world, 0);
  for (int peer = 0; peer < world; ++peer) {
    if (grid_.is_direct())
      messages.header_counts[peer] = peer != own ? block : 0;
    else
      messages.header_counts[peer] = grid_.same_row(own, peer) ? grid_.rows * block : 0;
  }
  return bytes;
}

void InputExchange::send_headers(const RoutedBatch& batch, bool finished, bool error, IdMessages& messages) {
  guarded([&] {
    const int64_t bytes = write_headers(batch, finished, error, messages);
    if (group_->world_size() > 1) messages.travel = start_headers(messages, bytes, "step header");
  });
}

Work InputExchange::start_headers(IdMessages& messages, int64_t bytes, const char* label) const {
  return group_->all_to_all_v(messages.header_send.tensor().first({bytes}), messages.header_counts,
                              messages.header_recv.tensor().first({bytes}), messages.header_counts,
                              {label, job_.all, Carries::kIds});
}

// Sends on the headers of other ranks. The block from this rank to itself stays here and is never read.
void InputExchange::pass_headers_on(IdMessages& messages, Stopwatch& watch) const {
  const int world = group_->world_size(), own = group_->rank();
  const int64_t block = kHeaderBytes + messages.inline_payload;
  read_relayed(block, messages);
  uint8_t* to = messages.header_send.data<uint8_t>();
  for (int row = 0; row < grid_.rows; ++row) {
    for (int column = 0; column < grid_.columns; ++column, to += block) {
      std::memcpy(to, messages.header_recv.data<uint8_t>() + (column * grid_.rows + row) * block, block);
    }
  }
  for (int peer = 0; peer < world; ++peer)
    messages.header_counts[peer] = grid_.same_column(own, peer) ? grid_.columns * block : 0;
  watch.wait(start_headers(messages, world * block, "step headers of a row"));
}

// Returns the bytes of the payload that a header announces, from one rank to another. Throws if the header is damaged.
int64_t InputExchange::checked_payload(const PeerHeader& h, int from, int to) const {
  if (h.magic != PeerHeader::kMagic || !plausible(h.num_ids) || !plausible(h.num_bags) ||
      !plausible(h.presence_words) || !plausible(h.largest) || !plausible(h.largest_rows) || h.rows < 0 ||
      h.rows > h.largest_rows) {
    damaged_header(from);
  }
  if (h.flags & PeerHeader::kError || h.fingerprint != job_.all) return 0;
  const int64_t id_routes = own_.wiring.id_route_begin(to + 1) - own_.wiring.id_route_begin(to);
  const int64_t bytes = payload_bytes(h.num_ids, h.flags & PeerHeader::kWeighted ? h.num_ids : 0,
                                      id_routes + h.num_bags + h.presence_words);
  if (from != to && bytes > h.largest) damaged_header(from);
  return bytes;
}

// Stores what the headers that pass through this rank say about the exchanges that will take the same way.
void InputExchange::read_relayed(int64_t block, IdMessages& messages) const {
  const int own = group_->rank();
  messages.relayed_rows.assign(static_cast<size_t>(grid_.world()), 0);
  messages.joined.sizes.relayed.assign(static_cast<size_t>(grid_.world()), 0);
  for (int at = 0; at < grid_.world(); ++at) {
    const int home = grid_.rank_at(grid_.row_of(own), at / grid_.rows);
    const int owner = grid_.rank_at(at % grid_.rows, grid_.column_of(own));
    if (home == own && owner == own) continue;  // the block from this rank to itself is never written
    PeerHeader h;
    std::memcpy(&h, messages.header_recv.data<uint8_t>() + at * block, sizeof(h));
    messages.joined.sizes.relayed[at] = checked_payload(h, home, owner);
    messages.relayed_rows[at] = h.rows;
  }
}

// Returns true if a rank announced an error.
bool InputExchange::read_headers(const RoutedBatch& batch, IdMessages& messages) {
  const int world = group_->world_size(), own = group_->rank();
  bool any_error = false;
  int64_t largest = 0, largest_rows = 0;
  messages.all_finished = true;
  messages.any_finished = false;
  messages.payload_recv_bytes.resize(world);
  messages.payloads.resize(world);
  for (int peer = 0; peer < world; ++peer) {
    PeerHeader& h = messages.headers[peer];
    if (peer == own) {
      messages.payloads[peer] = batch.payload.tensor().defined() && !(h.flags & PeerHeader::kError)
                                    ? batch.payload.data<uint8_t>() + batch.parts[peer].begin
                                    : nullptr;
    } else {
      const uint8_t* const from = messages.header_recv.data<uint8_t>() +
                                  (peer - (grid_.is_direct() && peer > own)) * (kHeaderBytes + messages.inline_payload);
      std::memcpy(&h, from, sizeof(h));
      messages.payloads[peer] = from + kHeaderBytes;
    }
    messages.payload_recv_bytes[peer] = checked_payload(h, peer, own);
    if (h.fingerprint != job_.all) refuse_other_job(peer);
    any_error = any_error || (h.flags & PeerHeader::kError);
    messages.all_finished = messages.all_finished && (h.flags & PeerHeader::kFinished);
    messages.any_finished = messages.any_finished || (h.flags & PeerHeader::kFinished);
    largest = std::max(largest, h.largest);
    largest_rows = std::max(largest_rows, h.largest_rows);
  }
  messages.in_second = largest > messages.inline_payload;
  const auto joins = [&](JoinExchanges join, int64_t bytes) {
    return !grid_.is_direct() && is_joined(join, static_cast<double>(bytes));
  };
  messages.joins_ids = messages.in_second && joins(group_->joins().ids, largest);
  messages.joins_rows = joins(join_rows_, largest_rows * static_cast<int64_t>(sizeof(float)));
  inline_payload_ = inline_payload_for(largest, world);
  return any_error;
}

// All ranks call this, because each has seen all headers.
void InputExchange::refuse_other_job(int peer) {
  const std::string difference = what_differs(job_, *group_);
  if (!difference.empty()) throw KnownToAll(Code::kInternal, difference);
  throw KnownToAll(Code::kFailedPrecondition, str_cat("rank ", peer, " has other tables or another plan than rank ",
                                                      group_->rank(), ": all ranks need the same config and plan"));
}

// Returns memory for the payloads of all ranks, one after the other.
Tensor InputExchange::payloads_of(IdMessages& messages) {
  const std::vector<int64_t>& bytes = messages.payload_recv_bytes;
  const int64_t total = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
  messages.payload_recv.ensure(total);
  return messages.payload_recv.tensor().first({total});
}

void InputExchange::start_payloads(const RoutedBatch& batch, IdMessages& messages) const {
  const int own = group_->rank();
  // Even if they came with the headers: a later batch of this size may need it.
  const Tensor recv = payloads_of(messages);
  if (!messages.in_second) return;
  const int64_t sending = std::accumulate(batch.payload_bytes.begin(), batch.payload_bytes.end(), int64_t{0});
  const Tensor send = batch.payload.tensor().first({sending});
  const CallSite site("ids", job_.all, Carries::kIds);
  if (messages.joins_ids) {
    messages.joined.prepare(grid_, own, batch.payload_bytes, messages.payload_recv_bytes);
    messages.travel = messages.joined.start_to_owner(*group_, send, site);
  } else {
    messages.travel = group_->all_to_all_v(send, batch.payload_bytes, recv, messages.payload_recv_bytes, site);
  }
  const uint8_t* payload = messages.payload_recv.data<uint8_t>();
  for (int peer = 0; peer < group_->world_size(); ++peer) {
    if (peer != own) messages.payloads[peer] = payload;
    payload += messages.payload_recv_bytes[peer];
  }
}

void InputExchange::share_error(const std::string& mine) {
  const auto texts = group_->all_gather_text(mine, "step error");
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty()) continue;
    throw KnownToAll(Code::kInvalidArgument, str_cat("rank ", rank, ": ", texts[rank]), static_cast<int>(rank));
  }
  throw KnownToAll(Code::kInternal, "a rank announced an error but no text");
}

}  // namespace tessera
