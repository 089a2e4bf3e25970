// The stages of a step, for all ranks of a job in this process: what one stage hands on is what the next one takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "config/test_refusal.h"
#include "distributed/host_row_moves.h"
#include "distributed/host_sums.h"
#include "distributed/output_moves.h"
#include "distributed/received_batch.h"
#include "distributed/route.h"
#include "distributed/wire_layout.h"
#include "tessera/runtime.h"

namespace tessera {
namespace {

using Combine = ParameterSharding::Combine;

EmbeddingBagConfig table(const std::string& name, int64_t rows, int64_t cols, PoolingType pooling) {
  return {
      .name = name, .num_embeddings = rows, .embedding_dim = cols, .feature_names = {"f_" + name}, .pooling = pooling};
}

// An element of a table: sums of a few of them are exact.
float element(int64_t row, int64_t col) { return static_cast<float>(row % 61 * 16 + col); }

struct Rank {
  Rank(const Wiring& wiring, int rank, bool local_rows)
      : own(wiring, rank, [=](const RowRoute&) { return local_rows; }), to_output(output_moves(own)) {}
  RankWiring own;
  KeyIndex keys;
  CheckedBatch checked;
  RouteScratch scratch;
  RoutedBatch routed;
  ReceivedBatch received;
  WireLayout wire;
  std::vector<float> rows;    // on the wire
  std::vector<float> output;  // or its gradient
  RowMoves to_output;
  RowMoves host_sums;
  std::vector<int64_t> ids;      // of the batch, table feature by table feature
  std::vector<int32_t> lengths;  // likewise
};

class Job {
 public:
  static constexpr int64_t kBags = 5;

  // `local_rows`: kernels write rows to the output if the wiring makes them local rows.
  Job(std::vector<EmbeddingBagConfig> tables, const EmbeddingModuleShardingPlan& plan, HostGrid hosts, bool local_rows)
      : tables_(std::move(tables)), wiring_(tables_, plan, hosts) {
    for (int r = 0; r < wiring_.world_size(); ++r) ranks_.push_back(std::make_unique<Rank>(wiring_, r, local_rows));
    take_batches(2 * kBags + 1);  // nothing of it is left in the next one
    take_batches(kBags);
  }

  const Wiring& wiring() const { return wiring_; }
  Rank& rank(int r) { return *ranks_[static_cast<size_t>(r)]; }

  // The messages that peers sent to `r`.
  void unpack_at(Rank& r) {
    std::vector<PeerHeader> headers;
    std::vector<const uint8_t*> payloads;
    for (const auto& peer : ranks_) {
      const PayloadPart& part = peer->routed.parts[static_cast<size_t>(r.own.rank)];
      PeerHeader h{.num_bags = part.bags, .num_ids = part.ids, .presence_words = part.presence_words};
      headers.push_back(h);
      payloads.push_back(peer->routed.payload.data<uint8_t>() + part.begin);
    }
    unpack(r.own, headers, payloads, false, r.received);
  }

  // Every row that an owner looks up, or its gradient: on the wire or, if it is a local row, in the output.
  template <class Body>
  void each_owner_row(Rank& r, const Body& body) {
    for (int peer = 0; peer < wiring_.world_size(); ++peer) {
      for (int k = 0; k < r.own.num_row_routes; ++k) {
        const RowRoute& row_route = wiring_.row_routes()[r.own.first_row_route + k];
        const auto id_block =
            static_cast<size_t>(peer * r.own.num_id_routes + row_route.id_route - r.own.first_id_route);
        const int64_t* offsets = r.received.offsets.data<int64_t>() + r.received.first_offset[id_block];
        const int64_t begin = r.wire.owner_begin[static_cast<size_t>(peer) * static_cast<size_t>(r.own.num_row_routes) +
                                                 static_cast<size_t>(k)];
        const int64_t col =
            wiring_.table_features()[wiring_.id_routes()[row_route.id_route].table_feature].col + row_route.col;
        EXPECT_EQ(begin < 0, peer == r.own.rank &&
                                 r.own.local_rows[static_cast<size_t>(row_route.id_route - r.own.first_id_route)]);
        for (int64_t b = 0; b < r.received.id_blocks[id_block].full_bags; ++b) {
          const int32_t bag = rank(peer).routed.bag_order[rank(peer).routed.lengths_begin[row_route.id_route] + b];
          float* row = begin < 0 ? r.output.data() + bag * wiring_.output_width() + col
                                 : r.rows.data() + begin + b * row_route.cols;
          body(peer, row_route, bag,
               std::span(r.received.ids.data<int64_t>() + offsets[b], r.received.ids.data<int64_t>() + offsets[b + 1]),
               row);
        }
      }
    }
  }
  void look_up() {
    for (const auto& r : ranks_) {
      each_owner_row(*r, [&](int, const RowRoute& row_route, int32_t, std::span<const int64_t> ids, float* row) {
        std::fill_n(row, row_route.cols, 0.0f);
        for (const int64_t id : ids) {
          for (int64_t c = 0; c < row_route.cols; ++c)
            row[c] += element(wiring_.id_routes()[row_route.id_route].row + id, row_route.col + c);
        }
      });
    }
  }

  // One exchange in the memory of all ranks; `home`: towards the homes. Both sides count alike.
  void exchange(Hop WireLayout::*hop, bool across, bool home) {
    const HostGrid& hosts = wiring_.hosts();
    for (const auto& from : ranks_) {
      const Hop& out = from->wire.*hop;
      int64_t at = out.owner_begin;
      for (size_t i = 0; i < out.owner_counts.size(); ++i) {
        const int to = across ? static_cast<int>(i) : from->own.host * hosts.ranks + static_cast<int>(i);
        const Hop& in = rank(to).wire.*hop;
        const int index = across ? from->own.rank : hosts.local(from->own.rank);
        int64_t arrives = in.home_begin;
        for (int j = 0; j < index; ++j) arrives += in.home_counts[static_cast<size_t>(j)];
        ASSERT_EQ(in.home_counts[static_cast<size_t>(index)], out.owner_counts[i]);
        float *owner_rows = from->rows.data() + at, *home_rows = rank(to).rows.data() + arrives;
        std::copy_n(home ? owner_rows : home_rows, out.owner_counts[i], home ? home_rows : owner_rows);
        at += out.owner_counts[i];
      }
    }
  }
  void rows_to_homes() {
    exchange(&WireLayout::in_host, false, true);
    if (wiring_.hosts().count == 1) return;
    for (const auto& r : ranks_) HostRowMoves().combine(r->host_sums, r->rows.data(), r->rows.data());
    exchange(&WireLayout::across, true, true);
  }
  void gradients_to_owners() {
    if (wiring_.hosts().count > 1) {
      exchange(&WireLayout::across, true, false);
      for (const auto& r : ranks_) HostRowMoves().split(r->host_sums, r->rows.data(), r->rows.data());
    }
    exchange(&WireLayout::in_host, false, false);
  }

  OutputLayout output_layout(int64_t bags) const {
    OutputLayout out;
    for (const TableFeature& table_feature : wiring_.table_features()) {
      out.offset.push_back(table_feature.col);
      out.stride.push_back(wiring_.output_width());
      out.rows.push_back(bags);
    }
    return out;
  }

  // The batch of a rank, pooled without any sharding.
  std::vector<float> expected(const Rank& r) const {
    std::vector<float> out(static_cast<size_t>(kBags * wiring_.output_width()), 0);
    size_t id = 0, bag = 0;
    for (const TableFeature& table_feature : wiring_.table_features()) {
      for (int64_t b = 0; b < kBags; ++b) {
        const int32_t length = r.lengths[bag++];
        float* row = out.data() + b * wiring_.output_width() + table_feature.col;
        for (int32_t i = 0; i < length; ++i, ++id) {
          for (int64_t c = 0; c < table_feature.dim; ++c) row[c] += element(r.ids[id], c);
        }
        if (table_feature.pooling != PoolingType::kMean || length == 0) continue;
        for (int64_t c = 0; c < table_feature.dim; ++c) row[c] *= 1.0f / static_cast<float>(length);
      }
    }
    return out;
  }

 private:
  void take_batches(int64_t bags) {
    for (const auto& r : ranks_) take_batch(*r, bags);
    for (const auto& r : ranks_) unpack_at(*r);
    for (const auto& r : ranks_) {
      add_host_lengths(r->own, r->routed, r->wire);
      lay_out_rows(r->own, r->routed, r->received, r->wire);
      list_host_sums(r->own, r->received, r->wire, r->host_sums);
      list_output(r->own, r->routed, r->wire, output_layout(bags), r->to_output);
      r->rows.assign(static_cast<size_t>(r->wire.elements), 0);
      r->output.assign(static_cast<size_t>(bags * wiring_.output_width()), -1);
    }
  }

  // Bags of 0 to 4 ids, other ones on each rank.
  void take_batch(Rank& r, int64_t bags) {
    std::vector<std::string> keys;
    uint32_t draw = 17 + 7 * static_cast<uint32_t>(r.own.rank);
    r.ids.clear();
    r.lengths.clear();
    const auto next = [&](int64_t n) {
      draw = draw * 1664525 + 1013904223;
      return static_cast<int64_t>(draw >> 16) % n;
    };
    for (const EmbeddingBagConfig& t : tables_) {
      keys.push_back(t.feature_names[0]);
      for (int64_t b = 0; b < bags; ++b) {
        r.lengths.push_back(static_cast<int32_t>(next(5)));
        for (int32_t i = 0; i < r.lengths.back(); ++i) {
          constexpr int64_t kDrawn = 1 << 16;
          const int64_t rows = t.num_embeddings;
          r.ids.push_back(rows > kDrawn ? next(kDrawn) * (rows / kDrawn) + next(rows / kDrawn) : next(rows));
        }
      }
    }
    const auto input = KeyedJaggedTensor::from_lengths_sync(keys, Tensor::from(r.ids), Tensor::from(r.lengths));
    check_batch(wiring_, tables_, {}, r.keys, input, r.checked);
    route(r.own, r.checked, {}, r.scratch, r.routed);
  }

  std::vector<EmbeddingBagConfig> tables_;
  Wiring wiring_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// Rows in unequal parts, columns on two ranks, a whole table; sums inside hosts where there are two.
Job job_of(HostGrid hosts, bool local_rows) {
  const int last = hosts.count * hosts.ranks - 1;
  EmbeddingModuleShardingPlan plan;
  plan.add("a", {"test", "fused", Combine::kSum, false, {{3, 4, 0, 0, last}, {6, 4, 3, 0, 0}, {1, 4, 9, 0, 1}}});
  plan.add("b", {"test", "fused", Combine::kConcat, false, {{8, 4, 0, 0, 1}, {8, 4, 0, 4, last}}});
  plan.add("c", {"test", "fused", Combine::kConcat, false, {{5, 4, 0, 0, 1}}});
  plan.add("d", {"test", "fused", Combine::kHostSum, false, {{4, 4, 0, 0, 0}, {4, 4, 4, 0, 1}}});
  return {{table("a", 10, 4, PoolingType::kMean), table("b", 8, 8, PoolingType::kSum),
           table("c", 5, 4, PoolingType::kSum), table("d", 8, 4, PoolingType::kSum)},
          plan,
          hosts,
          local_rows};
}

// More rows than 32 bits count, which no memory has to hold here: in ranges, whole, and summed inside hosts.
Job large_job_of(HostGrid hosts, bool local_rows) {
  constexpr int64_t kRows = int64_t{3} << 32, kFirst = (int64_t{1} << 31) + 7;
  const int last = hosts.count * hosts.ranks - 1;
  EmbeddingModuleShardingPlan plan;
  plan.add("a", {"test", "fused", Combine::kSum, false, {{kFirst, 4, 0, 0, last}, {kRows - kFirst, 4, kFirst, 0, 0}}});
  plan.add("b", {"test", "fused", Combine::kConcat, false, {{kRows, 4, 0, 0, 1}, {kRows, 4, 0, 4, last}}});
  plan.add("d", {"test", "fused", Combine::kHostSum, false, {{kRows - 3, 4, 0, 0, 0}, {3, 4, kRows - 3, 0, 1}}});
  return {{table("a", kRows, 4, PoolingType::kMean), table("b", kRows, 8, PoolingType::kSum),
           table("d", kRows, 4, PoolingType::kSum)},
          plan,
          hosts,
          local_rows};
}

class Stages : public testing::TestWithParam<std::tuple<HostGrid, bool>> {
 protected:
  static Job job() { return job_of(std::get<0>(GetParam()), std::get<1>(GetParam())); }
};

void expect_rows_as_without_sharding(Job&& job) {
  job.look_up();
  job.rows_to_homes();
  for (int r = 0; r < job.wiring().world_size(); ++r) {
    Rank& rank = job.rank(r);
    std::vector<float>& out = rank.output;
    HostRowMoves().combine(rank.to_output, rank.rows.data(), out.data());
    const std::vector<float> want = job.expected(rank);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], want[i], 1e-3) << "rank " << r << ", element " << i;
  }
}

TEST_P(Stages, RowsComeTogetherAsWithoutSharding) { expect_rows_as_without_sharding(job()); }

TEST_P(Stages, RowsBeyond32BitsComeTogether) {
  expect_rows_as_without_sharding(large_job_of(std::get<0>(GetParam()), std::get<1>(GetParam())));
}

// The gradient of an element is its home, bag and column: every owner's row gets those of its bag.
TEST_P(Stages, GradientsReachEveryRowOfTheirBag) {
  Job job = Stages::job();
  const int64_t width = job.wiring().output_width();
  const auto gradient = [&](int home, int64_t bag, int64_t col) {
    return static_cast<float>(int64_t{home} * 4096 + bag * 256 + col);
  };
  for (int r = 0; r < job.wiring().world_size(); ++r) {
    Rank& rank = job.rank(r);
    std::vector<float>& grad = rank.output;
    for (int64_t i = 0; i < Job::kBags * width; ++i) grad[static_cast<size_t>(i)] = gradient(r, i / width, i % width);
    HostRowMoves().split(rank.to_output, rank.rows.data(), grad.data());
  }
  job.gradients_to_owners();
  int seen = 0;
  for (int r = 0; r < job.wiring().world_size(); ++r) {
    job.each_owner_row(job.rank(r), [&](int home, const RowRoute& row_route, int32_t bag, std::span<const int64_t>,
                                        const float* row) {
      const RoutedBatch& sent = job.rank(home).routed;
      const TableFeature& table_feature =
          job.wiring().table_features()[job.wiring().id_routes()[row_route.id_route].table_feature];
      const float scale =
          sent.mean_begin[table_feature.table] < 0 ? 1 : sent.mean_scale[sent.mean_begin[table_feature.table] + bag];
      for (int64_t c = 0; c < row_route.cols; ++c, ++seen)
        ASSERT_EQ(row[c], scale * gradient(home, bag, table_feature.col + row_route.col + c));
    });
  }
  EXPECT_GT(seen, 100);
}

std::string name_of(const testing::TestParamInfo<std::tuple<HostGrid, bool>>& tested) {
  const auto& [hosts, local_rows] = tested.param;
  return str_cat(hosts.count, "hosts_of_", hosts.ranks, local_rows ? "_local_rows" : "");
}
INSTANTIATE_TEST_SUITE_P(
    Hosts, Stages,
    testing::Combine(testing::Values(HostGrid{1, 2}, HostGrid{1, 3}, HostGrid{2, 2}, HostGrid{3, 2}), testing::Bool()),
    name_of);

// Whole tables, ranges of rows on two and on three ranks, columns on two: large enough to be shared among threads.
TEST(Route, IsTheSameOnAnyNumberOfThreads) {
  const Runtime runtime({.default_path = false, .threads = 3});
  EmbeddingModuleShardingPlan plan;
  plan.add("a", {"test", "fused", Combine::kSum, false, {{3, 4, 0, 0, 2}, {6, 4, 3, 0, 0}, {1, 4, 9, 0, 1}}});
  plan.add("b", {"test", "fused", Combine::kConcat, false, {{8, 4, 0, 0, 1}, {8, 4, 0, 4, 2}}});
  plan.add("c", {"test", "fused", Combine::kConcat, false, {{5, 4, 0, 0, 1}}});
  plan.add("d", {"test", "fused", Combine::kSum, false, {{4, 4, 0, 0, 0}, {4, 4, 4, 0, 1}}});
  const std::vector<EmbeddingBagConfig> tables = {
      table("a", 10, 4, PoolingType::kSum), table("b", 8, 8, PoolingType::kSum), table("c", 5, 4, PoolingType::kSum),
      table("d", 8, 4, PoolingType::kSum)};
  std::vector<std::string> keys;
  std::vector<int32_t> lengths;
  std::vector<int64_t> ids;
  std::vector<float> weights;
  for (const EmbeddingBagConfig& t : tables) {
    keys.push_back(t.feature_names[0]);
    for (int64_t b = 0; b < 5000; ++b) {
      lengths.push_back(static_cast<int32_t>(b * 7 % 5));
      for (int32_t i = 0; i < lengths.back(); ++i) {
        ids.push_back((b * 31 + int64_t{i} * 17) % t.num_embeddings);
        weights.push_back(static_cast<float>(weights.size()));
      }
    }
  }
  const auto input =
      KeyedJaggedTensor::from_lengths_sync(keys, Tensor::from(ids), Tensor::from(lengths), Tensor::from(weights));
  for (const bool sequence : {false, true}) {
    const Wiring wiring(tables, plan, {1, 3}, {sequence});
    const RankWiring own(wiring, 0);
    KeyIndex index;
    CheckedBatch batch;
    check_batch(wiring, tables, {BoundsCheckMode::kFatal, true}, index, input, batch);
    const auto routed = [&](Workers workers) {
      RouteScratch scratch;
      RoutedBatch out;
      route(own, batch, {true, workers}, scratch, out);
      return out;
    };
    const RoutedBatch one = routed({}), many = routed(Workers(runtime.host()));
    const auto payload = [](const RoutedBatch& r) {
      const PayloadPart& last = r.parts.back();
      return std::vector<uint8_t>(r.payload.data<uint8_t>(),
                                  r.payload.data<uint8_t>() + last.begin + r.payload_bytes.back());
    };
    ASSERT_GT(payload(one).size(), 500000u);
    EXPECT_EQ(payload(one), payload(many));
    EXPECT_EQ(one.lengths, many.lengths);
    EXPECT_EQ(one.positions, many.positions);
    EXPECT_EQ(one.positions.empty(), !sequence);
    for (size_t s = 0; s < one.sent.size(); ++s) {
      EXPECT_EQ(one.sent[s].ids, many.sent[s].ids);
      const auto order = [&](const RoutedBatch& r) { return r.bag_order.begin() + r.lengths_begin[s]; };
      EXPECT_TRUE(std::equal(order(one), order(one) + one.sent[s].full_bags, order(many)));
    }
  }
}

std::string refusal(Job& job, int rank) {
  return test::refusal(
      Code::kDataLoss, [&] { job.unpack_at(job.rank(rank)); }, "taken");
}

TEST(Unpack, PayloadsThatContradictTheWiringAreRefused) {
  Job job = job_of({1, 2}, false);
  EXPECT_EQ(refusal(job, 0), "taken");
  const PayloadPart& part = job.rank(1).routed.parts[0];
  ASSERT_GT(part.ids, 0);
  auto* ids = reinterpret_cast<int64_t*>(job.rank(1).routed.payload.data<uint8_t>() + part.begin);
  auto* bags = reinterpret_cast<int32_t*>(ids + part.ids);
  const auto with = [&](auto& place, auto value) {
    const auto before = std::exchange(place, value);
    std::string text = refusal(job, 0);
    place = before;
    return text;
  };
  EXPECT_NE(with(ids[0], 1000).find("rank 1 sent row 1000"), std::string::npos);
  EXPECT_NE(with(ids[0], -1).find("rank 1 sent row -1"), std::string::npos);
  EXPECT_NE(with(bags[0], -1).find("more bags than its header says"), std::string::npos);
  EXPECT_NE(with(bags[job.rank(0).own.num_id_routes], -3).find("negative bag length"), std::string::npos);
  EXPECT_NE(with(bags[job.rank(0).own.num_id_routes], 100000).find("beyond its ids"), std::string::npos);
  EXPECT_EQ(refusal(job, 0), "taken");
}

}  // namespace
}  // namespace tessera
