// A third transport in a few dozen lines: ranks are threads, and an engine reads the others' data in place. It knows of
// the operations only what sdk::PairwiseGroup lays out.
#include "tessera/sdk/pairwise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <thread>

#include "tessera/sdk/pair_failures.h"
#include "test_data.h"

namespace tessera::sdk {
namespace {

using testing::HasSubstr;

struct Engine;

struct Op final : PairwiseOp {
  struct Sum : ReducedPiece {
    bool wanted = false;
  };
  Engine* engine = nullptr;
  std::vector<PeerTransfer> transfers;
  Sum reduction;
  void wait() override;
  void recycle() noexcept override {}
};

struct Board {
  explicit Board(int world) : ops(static_cast<size_t>(world)), all(world) {}
  std::vector<Op*> ops;  // per rank
  std::barrier<> all;
};

struct Engine {
  static constexpr const char* kName = "threads";
  static constexpr size_t kExchangedWhole = 64;

  Engine(Board* b, int32_t r) : board(b), rank_(r) {}
  Engine(std::pair<Board*, int32_t> where) : Engine(where.first, where.second) {}
  int32_t rank() const { return rank_; }
  int32_t world_size() const { return static_cast<int32_t>(board->ops.size()); }
  int32_t name() const { return rank_; }
  Op& prepare(OpKind kind, const CollectiveCall& call) {
    op = Op{};
    op.engine = this;
    op.header.kind = kind;
    if (call.label != nullptr) set_text(op.header.label, sizeof(op.header.label), call.label);
    op.transfers.resize(board->ops.size());
    return op;
  }
  static void reduces(Op& op, DLDataType, int32_t) { op.reduction.wanted = true; }
  static void keep(Op&, char* to, const char* from, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void start(Op& started) {
    board->ops[static_cast<size_t>(rank_)] = &started;
    board->all.arrive_and_wait();
  }
  void recycle(Op&) noexcept {}
  [[noreturn]] void refuse(tsr_code code, const Blame& blame) { throw Failure(code, blame.text, blame.rank); }
  void throw_if_failed() const {}
  void abort(const std::string&) noexcept {}
  uint64_t bytes_sent() const { return 0; }

  Board* board;
  int32_t rank_;
  Op op;
};

void Op::wait() {
  Board& board = *engine->board;
  const auto me = static_cast<size_t>(engine->rank());
  std::vector<float> sum;
  const auto sent_to_me = [&](size_t from) -> const PeerTransfer& { return board.ops[from]->transfers[me]; };
  for (size_t r = 0; r < transfers.size() && reduction.wanted; ++r) {
    const char* its = r == me ? reduction.own : sent_to_me(r).send;
    sum.resize(reduction.bytes / sizeof(float));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += reinterpret_cast<const float*>(its)[i];
  }
  for (size_t r = 0; r < transfers.size() && !reduction.wanted; ++r) {
    EXPECT_EQ(r != me && transfers[r].receives, r != me && sent_to_me(r).sends);
    if (transfers[r].recv_bytes == 0) continue;
    EXPECT_EQ(transfers[r].recv_bytes, sent_to_me(r).send_bytes);
    std::memcpy(transfers[r].recv, sent_to_me(r).send, transfers[r].recv_bytes);
  }
  board.all.arrive_and_wait();
  if (!sum.empty()) std::memcpy(reduction.target, sum.data(), reduction.bytes);
  board.all.arrive_and_wait();
  for (size_t r = 0; r < transfers.size() && reduction.hands_out; ++r) {
    if (r != me && transfers[r].recv_bytes > 0) {
      std::memcpy(transfers[r].recv, board.ops[r]->reduction.target, transfers[r].recv_bytes);
    }
  }
  board.all.arrive_and_wait();
}

struct Threads final : PairwiseGroup<Engine> {
  using PairwiseGroup::PairwiseGroup;
  std::unique_ptr<Group> split(int32_t, int32_t, const CollectiveCall&) override { return nullptr; }
};

// Runs `body` as three ranks.
void in_ranks(const std::function<void(Group&)>& body) {
  Board board(3);
  std::vector<std::jthread> threads;
  for (int32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      Threads group(std::pair{&board, rank});
      body(group);
    });
  }
}

const CollectiveCall kCall = named_call("loss");

TEST(Pairwise, AllToAll) {
  in_ranks([](Group& group) {
    const auto me = group.rank();
    std::vector<float> sent = counting(6, static_cast<float>(10 * me)), got(static_cast<size_t>(3 * (me + 1)));
    const std::vector<int64_t> to = {1, 2, 3}, from(3, me + 1);  // rank r gets r + 1 from each
    group.all_to_all_v(View(sent), to, View(got), from, kCall)->wait();
    for (size_t i = 0; i < got.size(); ++i) {
      const auto sender = static_cast<int32_t>(i) / (me + 1), at = static_cast<int32_t>(i) % (me + 1);
      const int32_t before = me * (me + 1) / 2;  // the sender's data for lower ranks comes first
      EXPECT_EQ(got[i], static_cast<float>(10 * sender + before + at)) << me << " " << i;
    }
  });
}

// Tests one step, two steps with blocks of different sizes, two steps with fewer elements than ranks, and no data.
TEST(Pairwise, AllReduce) {
  in_ranks([](Group& group) {
    for (const size_t n : {0, 1, 16, 17, 1000}) {
      std::vector<float> data = counting(n, static_cast<float>(group.rank()));
      group.all_reduce(View(data), TSR_REDUCE_SUM, kCall)->wait();
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(data[i], static_cast<float>(3 * i + 3)) << n << " " << i;
    }
  });
}

TEST(Pairwise, ReduceScatterAllGatherBroadcastAndBarrier) {
  in_ranks([](Group& group) {
    const std::vector<int64_t> counts = {2, 0, 3};
    const auto mine = static_cast<size_t>(counts[static_cast<size_t>(group.rank())]);
    const size_t first = group.rank() == 0 ? 0 : 2;
    std::vector<float> all = counting(5, 1), piece(mine), gathered(5), said(2, group.rank() == 1 ? 7.0f : 0.0f);
    group.reduce_scatter_v(View(all), counts, View(piece), TSR_REDUCE_SUM, kCall)->wait();
    for (size_t i = 0; i < mine; ++i) EXPECT_EQ(piece[i], 3 * static_cast<float>(first + i + 1));
    group.all_gather_v(View(piece), View(gathered), counts, kCall)->wait();
    EXPECT_EQ(gathered, (std::vector<float>{3, 6, 9, 12, 15}));
    group.broadcast(View(said), 1, kCall)->wait();
    EXPECT_EQ(said, (std::vector<float>{7, 7}));
    group.barrier(kCall)->wait();
  });
}

TEST(Pairwise, ARefusalNamesRankAndOperation) {
  in_ranks([](Group& group) {
    std::vector<float> data(2);
    try {
      group.broadcast(View(data), 3, kCall);
      ADD_FAILURE();
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), TSR_INVALID_ARGUMENT);
      EXPECT_EQ(failure.rank(), group.rank());
      EXPECT_THAT(failure.what(), HasSubstr("threads: root 3 is not a rank of a group of 3 (rank "));
      EXPECT_THAT(failure.what(), HasSubstr(", broadcast \"loss\")"));
    }
  });
}

TEST(OpHeader, IsSafeToPrintWhateverThePeerWrote) {
  OpHeader header;
  std::memset(static_cast<void*>(&header), 0xff, sizeof(header));
  header.label[0] = '\n';
  EXPECT_THAT(describe(header), HasSubstr("an unknown operation \"?"));
  set_text(header.label, sizeof(header.label), std::string(100, 'x'));
  header.kind = OpKind::kAllReduce;
  header.reduce = TSR_REDUCE_MAX;
  header.dtype_code = kDLFloat;
  header.dtype_bits = 32;
  header.total = 4096;
  EXPECT_EQ(describe(header), "all_reduce \"" + std::string(31, 'x') + "\" (max of float32, 4096 bytes)");
}

}  // namespace
}  // namespace tessera::sdk
