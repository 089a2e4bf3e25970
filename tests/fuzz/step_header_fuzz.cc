// A step's headers with their payloads, and the bits that say which bags have ids, sent to a rank by three broken peers
// on two hosts. The rank refuses them, or lays out rows that are all inside the received data. An input has, for each
// of two steps and each peer, a header and its payload; the first byte says whether headers are made right where
// possible, and whether the exchanges are joined along a grid of two rows.
#include <memory>

#include "distributed/host_sums.h"
#include "distributed/input_exchange.h"
#include "distributed/route.h"
#include "distributed/wire_layout.h"
#include "fuzz.h"
#include "tessera/runtime.h"
#include "tessera/sdk/collective.h"

namespace tessera::fuzz {
namespace {

constexpr int kPeers = 4;
constexpr uint64_t kFingerprint = 0x7e55e7a;
constexpr int64_t kMostCount = 4096;  // more would only use memory
constexpr size_t kMostPayload = 512;

// The next messages of rank 0's peers.
struct Feed {
  Taker input{Input()};
  bool right = false, joined = false;
  std::vector<std::vector<uint8_t>> payloads = std::vector<std::vector<uint8_t>>(kPeers);
};
Feed& feed() {
  static Feed one;
  return one;
}

int64_t limited(int64_t count) { return count > kMostCount && count <= int64_t{1} << 40 ? count % kMostCount : count; }

PeerHeader next_header(int peer) {
  auto h = feed().input.take<PeerHeader>();
  h.num_ids = limited(h.num_ids);
  h.num_bags = limited(h.num_bags);
  h.presence_words = limited(h.presence_words);
  if (feed().right) {
    h.magic = PeerHeader::kMagic;
    h.fingerprint = kFingerprint;
    h.flags &= PeerHeader::kWeighted;
    h.largest = std::max<int64_t>(h.largest, 64 << 10) % (256 << 10);
    h.largest_rows = kMostCount;
    h.rows = limited(h.rows) & (kMostCount - 1);
  }
  const Input payload = feed().input.take(std::min<size_t>(kMostPayload, feed().input.take<uint16_t>()));
  feed().payloads[static_cast<size_t>(peer)].assign(payload.begin(), payload.end());
  return h;
}

class Done final : public sdk::Work {
 public:
  void wait() override {}
};

// A group that receives everything from the feed.
class FedGroup final : public sdk::Group {
 public:
  int32_t rank() const override { return 0; }
  int32_t world_size() const override { return kPeers; }
  std::unique_ptr<sdk::Group> split(int32_t, int32_t, const sdk::CollectiveCall&) override {
    return std::make_unique<FedGroup>();
  }
  sdk::Work* all_to_all_v(const DLTensor&, sdk::Counts, const DLTensor& recv, sdk::Counts counts,
                          const sdk::CollectiveCall& call) override {
    auto* to = static_cast<uint8_t*>(recv.data);
    const bool headers = call.label != nullptr && std::string_view(call.label).starts_with("step header");
    const size_t blocks = feed().joined ? 2 : 1;
    for (int peer = 0; peer < kPeers; ++peer) {
      const auto n = static_cast<size_t>(counts[static_cast<size_t>(peer)]) * recv.dtype.bits / 8;
      if (n == 0) continue;
      std::memset(to, 0, n);
      for (size_t begin = 0; begin < n; begin += headers ? n / blocks : n) {
        const size_t end = headers ? begin + n / blocks : n;
        size_t at = begin;
        if (headers) {
          const PeerHeader h = next_header(peer);
          std::memcpy(to + at, &h, sizeof(h));
          at += sizeof(h);
        }
        const std::vector<uint8_t>& payload = feed().payloads[static_cast<size_t>(peer)];
        if (!payload.empty()) std::memcpy(to + at, payload.data(), std::min(payload.size(), end - at));
      }
      to += n;
    }
    return new Done;
  }
  sdk::Work* all_reduce(const DLTensor&, int32_t, const sdk::CollectiveCall&) override { return new Done; }
  sdk::Work* reduce_scatter_v(const DLTensor&, sdk::Counts, const DLTensor&, int32_t,
                              const sdk::CollectiveCall&) override {
    return new Done;
  }
  sdk::Work* all_gather_v(const DLTensor&, const DLTensor& recv, sdk::Counts, const sdk::CollectiveCall&) override {
    if (recv.shape[0] > 0) std::memset(recv.data, 0, static_cast<size_t>(recv.shape[0]) * recv.dtype.bits / 8);
    return new Done;
  }
  sdk::Work* broadcast(const DLTensor&, int32_t, const sdk::CollectiveCall&) override { return new Done; }
  sdk::Work* barrier(const sdk::CollectiveCall&) override { return new Done; }
  void abort(const char*) noexcept override {}
  uint64_t bytes_sent() const override { return 0; }
  void status() const override {}
  int32_t host_of(int32_t rank) const override { return rank / 2; }
};

class FedCollective final : public sdk::Collective {
 public:
  std::unique_ptr<sdk::Group> connect(const tsr_rendezvous&) override { return std::make_unique<FedGroup>(); }
};

constexpr tsr_component kComponent =
    sdk::component<FedCollective>({.id = "fuzz.fed", .version = "1.0.0", .about = "peers as an input has them"});
constexpr const tsr_component* kComponents[] = {&kComponent};
constexpr tsr_plugin kPlugin = {sizeof(tsr_plugin), TSR_ABI_MAJOR, TSR_ABI_EPOCH, TSR_ABI_MINOR, 0, 1, "fuzz", "1.0.0",
                                __VERSION__,        kComponents};

EmbeddingBagConfig table(const char* name, int64_t rows) {
  return {.name = name, .num_embeddings = rows, .embedding_dim = 8, .feature_names = {std::string("f_") + name}};
}

// Rank 0 of two hosts of two, with tables in ranges of rows, in columns, and summed inside hosts.
struct Job {
  using Combine = ParameterSharding::Combine;
  explicit Job(JoinExchanges join) {
    EmbeddingModuleShardingPlan plan;
    plan.add("a", {"test", "fused", Combine::kSum, false, {{3, 8, 0, 0, 3}, {6, 8, 3, 0, 0}, {1, 8, 9, 0, 1}}});
    plan.add("b", {"test", "fused", Combine::kConcat, false, {{8, 4, 0, 0, 1}, {8, 4, 0, 4, 0}}});
    plan.add("d", {"test", "fused", Combine::kHostSum, false, {{4, 8, 0, 0, 0}, {4, 8, 4, 0, 1}}});
    wiring = std::make_unique<Wiring>(tables, plan, HostGrid{2, 2});
    own = std::make_unique<RankWiring>(*wiring, 0);
    fingerprint.all = kFingerprint;
    group = ProcessGroup::connect(runtime, {.rank = 0, .world_size = kPeers, .local_rank = 0, .local_world_size = 2},
                                  {.backend = "fuzz.fed", .join_exchanges = join});
  }
  const Runtime runtime{{.default_path = false, .plugins = {&kPlugin}}};
  const std::vector<EmbeddingBagConfig> tables = {table("a", 10), table("b", 8), table("d", 8)};
  std::unique_ptr<Wiring> wiring;
  std::unique_ptr<RankWiring> own;
  JobFingerprint fingerprint;
  std::shared_ptr<ProcessGroup> group;
};

void check_rows(const RankWiring& own, const ReceivedBatch& received) {
  for (const IdBlock& id_block : received.id_blocks) {
    require(id_block.first_id >= 0 && id_block.ids >= 0 && id_block.first_id + id_block.ids <= received.num_ids,
            "ids are there");
    require(id_block.full_bags >= 0 && id_block.full_bags <= id_block.bags, "bags with ids are some of all");
  }
  for (size_t i = 0; i < received.id_blocks.size(); ++i) {
    const int64_t* offsets = received.offsets.data<int64_t>() + received.first_offset[i];
    for (int64_t b = 0; b < received.id_blocks[i].full_bags; ++b)
      require(offsets[b] <= offsets[b + 1], "offsets ascend");
    const int64_t rows = own.wiring.id_routes()[own.first_id_route + static_cast<int>(i) % own.num_id_routes].rows;
    for (int64_t k = 0; k < received.id_blocks[i].ids; ++k) {
      const int64_t id = received.ids.data<int64_t>()[received.id_blocks[i].first_id + k];
      require(id >= 0 && id < rows, "an id is a row of the shard");
    }
  }
}

void step(Job& job, const RoutedBatch& routed, InputExchange& exchange) {
  IdMessages messages;
  ReceivedBatch received;
  Stopwatch watch;
  exchange.send_headers(routed, false, false, messages);
  exchange.send_payloads(routed, "", messages, watch);
  exchange.finish(routed, messages, received, watch);
  check_rows(*job.own, received);
  WireLayout wire;
  RowMoves moves;
  add_host_lengths(*job.own, routed, wire);
  lay_out_rows(*job.own, routed, received, wire);
  list_host_sums(*job.own, received, wire, moves);
  require(wire.elements >= 0, "rows have places");
}

}  // namespace

void fuzz_step_header(Input input) {
  static Job direct(JoinExchanges::kNever), joined(JoinExchanges::kAlways);
  Taker taker(input);
  const auto how = taker.take<uint8_t>();
  feed().right = how % 2 == 1;
  feed().joined = how / 2 % 2 == 1;
  Job& job = feed().joined ? joined : direct;
  feed().input = taker;
  std::vector<int64_t> ids;
  std::vector<int32_t> lengths;
  std::vector<std::string> keys;
  for (const EmbeddingBagConfig& t : job.tables) {
    keys.push_back(t.feature_names[0]);
    for (int32_t b = 0; b < 3; ++b) {
      lengths.push_back(b);
      for (int32_t i = 0; i < b; ++i) ids.push_back((b * 3 + i) % t.num_embeddings);
    }
  }
  const auto batch = KeyedJaggedTensor::from_lengths_sync(keys, Tensor::from(ids), Tensor::from(lengths));
  KeyIndex index;
  CheckedBatch checked;
  RouteScratch scratch;
  RoutedBatch routed;
  check_batch(*job.wiring, job.tables, {}, index, batch, checked);
  route(*job.own, checked, {}, scratch, routed);
  routed.rows_wanted.assign(kPeers, 0);
  InputExchange exchange(job.group, *job.own, job.fingerprint, job.group->joins().rows);
  taken([&] {
    for (int i = 0; i < 2; ++i) step(job, routed, exchange);
  });
}

}  // namespace tessera::fuzz
