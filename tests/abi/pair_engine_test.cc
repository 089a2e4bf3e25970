// Tests the engine that pairwise transports share, over queues between threads. The transport can be told to lose a
// rank, to damage data, and to deliver it out of order.
#include "tessera/sdk/pair_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <deque>
#include <functional>
#include <latch>
#include <thread>

#include "test_data.h"

namespace {

std::atomic<int> yields{0};
std::atomic<bool> crowded{false};  // a rank that offers its processor gets it back late

}  // namespace

// Replaces the system's function, which it calls.
extern "C" int sched_yield() noexcept {
  ++yields;
  if (crowded) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return static_cast<int>(syscall(SYS_sched_yield));
}

namespace tessera::sdk {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// One direction between two ranks. Each side has a bell, which rings when something may have changed for it.
struct Queue {
  std::mutex mutex;
  std::deque<char> bytes;
  std::deque<Notice> notices;
  bool closed = false;       // by either side
  size_t held_back = 0;      // bytes at the beginning to deliver after the next as many
  std::vector<char> behind;  // bytes held back
  size_t passed = 0;         // how many of the bytes after them have passed
  bool damaged = false;      // damages what passes
};

struct Bell {
  Fd fd{eventfd(0, EFD_NONBLOCK)};
  void ring() const { eventfd_write(fd.get(), 1); }
  void hush() const {
    eventfd_t unused;
    eventfd_read(fd.get(), &unused);
  }
};

struct Side {
  Bell data, notice;
};

// The connections between ranks.
struct Wires {
  explicit Wires(int32_t n) : world(n), queues(at(n, 0)), sides(queues.size()) {}
  Queue& from_to(int32_t from, int32_t to) { return queues[at(from, to)]; }
  Side& side(int32_t of, int32_t towards) { return sides[at(of, towards)]; }
  void close(int32_t a, int32_t b) {
    for (const auto& [from, to] : {std::pair{a, b}, std::pair{b, a}}) {
      Queue& queue = from_to(from, to);
      const std::lock_guard lock(queue.mutex);
      queue.closed = true;
      side(from, to).data.ring();
      side(from, to).notice.ring();
    }
  }
  void lose(int32_t rank) {
    for (int32_t other = 0; other < world; ++other) {
      if (other != rank) close(rank, other);
    }
  }
  size_t at(int32_t a, int32_t b) const {
    return static_cast<size_t>(a) * static_cast<size_t>(world) + static_cast<size_t>(b);
  }
  int32_t world;
  std::vector<Queue> queues;
  std::vector<Side> sides;
};

class Notices {
 public:
  void tell(const Notice& notice) const noexcept {
    Queue& queue = wires->from_to(rank, other);
    const std::lock_guard lock(queue.mutex);
    if (!queue.closed) queue.notices.push_back(notice);
    wires->side(other, rank).notice.ring();
  }
  Heard hear(Notice* notice) {
    Queue& queue = wires->from_to(other, rank);
    const std::lock_guard lock(queue.mutex);
    if (queue.notices.empty()) {
      if (queue.closed) return {Heard::kEnd, 0};
      wires->side(rank, other).notice.hush();
      return {};
    }
    *notice = queue.notices.front();
    queue.notices.pop_front();
    return {Heard::kNotice, 0};
  }
  int descriptor() const { return wires->side(rank, other).notice.fd.get(); }

  Wires* wires = nullptr;
  int32_t rank = 0, other = 0;
};

class Link : public PairLink {
 public:
  static constexpr const char* kName = "queues";
  static constexpr size_t kExchangedWhole = 64;
  static constexpr size_t kRoom = 97;  // so that nothing fits

  Link() = default;
  Link(Wires* wires, int32_t rank, int32_t other) {
    notices_.wires = wires, notices_.rank = rank, notices_.other = other;
  }
  Link(Link&& other) noexcept { *this = std::move(other); }
  Link& operator=(Link&& other) noexcept {
    std::swap(notices_, other.notices_);
    return *this;
  }
  ~Link() {
    if (notices_.wires != nullptr) notices_.wires->close(notices_.rank, notices_.other);
  }

  ssize_t send(iovec* pieces, size_t count, const iovec*) {
    Queue& queue = out();
    const std::lock_guard lock(queue.mutex);
    if (queue.closed) return no(EPIPE);
    ssize_t sent = 0;
    for (size_t i = 0; i < count; ++i) {
      const char* from = static_cast<const char*>(pieces[i].iov_base);
      for (size_t k = 0; k < pieces[i].iov_len && queue.bytes.size() < kRoom; ++k, ++sent) push(queue, from[k]);
    }
    if (sent == 0) return no(EAGAIN);
    wires().side(notices_.other, notices_.rank).data.ring();
    return sent;
  }
  ssize_t receive(iovec* pieces, size_t count) {
    Queue& queue = in();
    const std::lock_guard lock(queue.mutex);
    if (queue.bytes.empty()) return queue.closed ? 0 : no(EAGAIN);
    ssize_t got = 0;
    for (size_t i = 0; i < count; ++i) {
      char* to = static_cast<char*>(pieces[i].iov_base);
      for (size_t k = 0; k < pieces[i].iov_len && !queue.bytes.empty(); ++k, ++got) {
        to[k] = queue.bytes.front();
        queue.bytes.pop_front();
      }
    }
    wires().side(notices_.other, notices_.rank).data.ring();
    return got;
  }
  bool sleeps(uint32_t wants, pollfd* where) {
    *where = {wires().side(notices_.rank, notices_.other).data.fd.get(), POLLIN, 0};
    const std::scoped_lock lock(in().mutex, out().mutex);
    if (in().closed) return false;
    return ((wants & Wake::kData) == 0 || in().bytes.empty()) &&
           ((wants & Wake::kRoom) == 0 || out().bytes.size() >= kRoom);
  }
  void wake(bool rung) {
    if (rung) wires().side(notices_.rank, notices_.other).data.hush();
  }
  Notices& notices() { return notices_; }
  const Notices& notices() const { return notices_; }

 private:
  static ssize_t no(int error) {
    errno = error;
    return -1;
  }
  static void push(Queue& queue, char byte) {
    if (queue.damaged) byte = static_cast<char>(byte ^ 0x55);
    if (queue.behind.size() < queue.held_back) {
      queue.behind.push_back(byte);
      return;
    }
    queue.bytes.push_back(byte);
    if (queue.held_back == 0 || ++queue.passed < queue.held_back) return;
    queue.bytes.insert(queue.bytes.end(), queue.behind.begin(), queue.behind.end());
    queue.held_back = 0;
  }
  Wires& wires() const { return *notices_.wires; }
  Queue& out() const { return wires().from_to(notices_.rank, notices_.other); }
  Queue& in() const { return wires().from_to(notices_.other, notices_.rank); }
  Notices notices_;
};
static_assert(IsPairLink<Link>);

struct Queues final : PairGroup<Link> {
  using PairwiseGroup::PairwiseGroup;
  std::unique_ptr<Group> split(int32_t, int32_t, const CollectiveCall&) override { return nullptr; }
};

struct Outcome {
  tsr_code code = TSR_OK;
  std::string text;
};

// Runs `body` as ranks in threads and returns what each threw. No group is closed before all are done, unless `body`
// closes it. `waited` is rank 0's.
std::vector<Outcome> in_ranks(Wires& wires, const std::function<void(std::unique_ptr<Group>&)>& body,
                              const std::shared_ptr<WaitedFor>& waited = nullptr) {
  std::vector<Outcome> outcomes(static_cast<size_t>(wires.world));
  std::latch done(wires.world);
  std::vector<std::jthread> threads;
  for (int32_t rank = 0; rank < wires.world; ++rank) {
    threads.emplace_back([&, rank] {
      PairEngineOptions<Link> options{.rank = rank, .timeout_s = 20, .links = {}, .names = {}};
      for (int32_t other = 0; other < wires.world; ++other) {
        options.links.push_back(other == rank ? Link() : Link(&wires, rank, other));
        options.names.push_back(other);
      }
      if (rank == 0) options.waited = waited;
      std::unique_ptr<Group> group = std::make_unique<Queues>(std::move(options));
      try {
        body(group);
      } catch (const Failure& failure) {
        outcomes[static_cast<size_t>(rank)] = {failure.code(), failure.what()};
      }
      done.arrive_and_wait();
    });
  }
  threads.clear();
  return outcomes;
}

CollectiveCall call(const char* label, double timeout_s = 0) { return named_call(label, timeout_s); }

// Runs every operation, all in flight at once; ranks wait for the last one first.
TEST(PairEngine, DoesWhatOperationsSay) {
  Wires wires(3);
  const auto outcomes = in_ranks(wires, [](std::unique_ptr<Group>& group) {
    const auto me = static_cast<size_t>(group->rank());
    const float ten = 10 * static_cast<float>(me);
    const std::vector<int64_t> to = {1, 2, 3}, from(3, group->rank() + 1), counts = {200, 0, 300};
    const auto piece_size = static_cast<size_t>(counts[me]);
    std::vector<float> sent = counting(6, ten), got(3 * (me + 1)), few = counting(16, ten), many = counting(1000, ten),
                       all = counting(500, 1), piece(piece_size), mine(piece_size, ten), gathered(500),
                       told(300, me == 1 ? 7.0f : 0.0f);
    const View sent_v(sent), got_v(got), few_v(few), many_v(many), all_v(all), piece_v(piece), mine_v(mine),
        gathered_v(gathered), told_v(told);
    Work* works[] = {group->all_to_all_v(sent_v, to, got_v, from, call("ids")),
                     group->all_reduce(few_v, TSR_REDUCE_SUM, call("few")),
                     group->all_reduce(many_v, TSR_REDUCE_MAX, call("many")),
                     group->reduce_scatter_v(all_v, counts, piece_v, TSR_REDUCE_SUM, call("pieces")),
                     group->all_gather_v(mine_v, gathered_v, counts, call("gather")),
                     group->broadcast(told_v, 1, call("told")),
                     group->barrier(call("end"))};
    for (size_t i = std::size(works); i-- > 0;) finish(works[i]);
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t from = i / (me + 1), want = 10 * from + me * (me + 1) / 2 + i % (me + 1);
      ASSERT_EQ(got[i], static_cast<float>(want)) << me << " " << i;
    }
    for (size_t i = 0; i < few.size(); ++i) ASSERT_EQ(few[i], static_cast<float>(3 * i + 30));
    for (size_t i = 0; i < many.size(); ++i) ASSERT_EQ(many[i], static_cast<float>(i + 20));
    for (size_t i = 0; i < piece.size(); ++i)
      ASSERT_EQ(piece[i], static_cast<float>(3 * (i + 1 + (me == 2 ? 200 : 0))));
    for (size_t i = 0; i < gathered.size(); ++i) ASSERT_EQ(gathered[i], i < 200 ? 0.0f : 20.0f);
    EXPECT_EQ(told, std::vector<float>(300, 7));
    const uint64_t before = group->bytes_sent();
    finish(group->barrier(call("counted")));
    EXPECT_EQ(group->bytes_sent() - before, 2 * sizeof(OpHeader));
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.code, TSR_OK) << outcome.text;
}

// If others want the processor, ranks do not offer it again and again.
TEST(PairEngine, InACrowdRanksSleepAtOnce) {
  Wires wires(2);
  crowded = true;
  const int before = yields;
  const auto outcomes = in_ranks(wires, [](std::unique_ptr<Group>& group) {
    for (int i = 0; i < 50; ++i) finish(group->barrier(call("step")));
  });
  crowded = false;
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.code, TSR_OK) << outcome.text;
  EXPECT_LT(yields - before, 10) << "one for each rank, were it not for some luck";
}

TEST(PairEngine, ALostRankIsNamedOnAllOthers) {
  Wires wires(4);
  const auto outcomes = in_ranks(wires, [&](std::unique_ptr<Group>& group) {
    finish(group->barrier(call("before")));
    if (group->rank() == 1) wires.lose(1);
    finish(group->barrier(call("step")));
  });
  for (const size_t rank : {0, 2, 3}) {
    EXPECT_EQ(outcomes[rank].code, TSR_ABORTED);
    EXPECT_THAT(outcomes[rank].text, HasSubstr("queues: rank 1 died during barrier \""));
  }
}

TEST(PairEngine, ALateRankIsNamedOnAllAndEveryLaterOperationFailsAlike) {
  Wires wires(3);
  std::latch given_up(2);
  const auto outcomes = in_ranks(wires, [&](std::unique_ptr<Group>& group) {
    if (group->rank() == 2) given_up.wait();
    try {
      finish(group->barrier(call("step", 0.3)));
    } catch (const Failure&) {
      if (group->rank() != 2) given_up.count_down();
    }
    finish(group->barrier(call("next")));
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, TSR_DEADLINE_EXCEEDED);
    EXPECT_EQ(outcome.text, "queues: rank 2 was late: barrier \"step\" did not finish within 0.3 s");
  }
}

// Rank 1 has sent its data before rank 0 begins; rank 2 sends none at all.
TEST(PairEngine, KnowsForWhomItHasWaited) {
  Wires wires(3);
  const auto waited = std::make_shared<WaitedFor>(3);
  std::latch sent(1), given_up(1);
  in_ranks(
      wires,
      [&](std::unique_ptr<Group>& group) {
        if (group->rank() == 2) return given_up.wait();
        if (group->rank() == 0) sent.wait();
        Work* work = group->barrier(call("step", group->rank() == 0 ? 0.3 : 20));
        if (group->rank() == 1) sent.count_down();
        EXPECT_THROW(finish(work), Failure);
        if (group->rank() == 0) given_up.count_down();
      },
      waited);
  EXPECT_EQ(waited->seconds(0), 0);
  EXPECT_EQ(waited->seconds(1), 0);
  EXPECT_GT(waited->seconds(2), 0.2);
  EXPECT_LT(waited->seconds(2), 20);
}

// Rank 1 cannot finish sending, because rank 2 takes nothing; it is therefore late in the operation that rank 0 waits
// for.
TEST(PairEngine, ARankThatIsHeldUpIsNotNamed) {
  Wires wires(3);
  std::latch given_up(2);
  const auto outcomes = in_ranks(wires, [&](std::unique_ptr<Group>& group) {
    std::vector<float> weights(1000);
    if (group->rank() == 2) return given_up.wait();
    struct GivenUp {
      std::latch& latch;
      ~GivenUp() { latch.count_down(); }
    } const at_end{given_up};
    finish(group->broadcast(View(weights), 1, call("weights", group->rank() == 1 ? 2.0 : 20)));
    finish(group->barrier(call("step", 1.6)));
  });
  for (const size_t rank : {0, 1}) {
    EXPECT_THAT(outcomes[rank].text, AllOf(HasSubstr("queues: rank 2 was late: "), Not(HasSubstr("rank 1"))));
  }
}

// Ranks 0 and 1 owe each other results that they cannot compute without the data of rank 2, which stops in the middle.
TEST(PairEngine, OfAReductionTheRankWhoseDataIsMissingIsNamed) {
  Wires wires(3);
  std::latch given_up(2);
  const auto outcomes = in_ranks(wires, [&](std::unique_ptr<Group>& group) {
    std::vector<float> data(1000);
    const View view(data);
    Work* work = group->all_reduce(view, TSR_REDUCE_SUM, call("sum", 0.5));
    if (group->rank() == 2) given_up.wait();
    struct GivenUp {
      std::latch* latch;
      ~GivenUp() {
        if (latch != nullptr) latch->count_down();
      }
    } const at_end{group->rank() == 2 ? nullptr : &given_up};
    finish(work);
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.text, "queues: rank 2 was late: all_reduce \"sum\" did not finish within 0.5 s");
  }
}

TEST(PairEngine, ARankThatClosesIsNotADeadOne) {
  Wires wires(3);
  const auto outcomes = in_ranks(wires, [](std::unique_ptr<Group>& group) {
    finish(group->barrier(call("before")));
    if (group->rank() == 1) return group.reset();
    finish(group->barrier(call("step")));
  });
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(outcomes[rank].code, TSR_ABORTED);
    EXPECT_EQ(outcomes[rank].text, "queues: rank 1 closed its group before barrier \"step\" was done");
  }
}

TEST(PairEngine, AnAbortReachesWaitersHereAndElsewhere) {
  Wires wires(3);
  const auto outcomes = in_ranks(wires, [](std::unique_ptr<Group>& group) {
    if (group->rank() == 0) std::thread([&] { group->abort("enough"); }).join();
    finish(group->barrier(call("step")));
  });
  EXPECT_EQ(outcomes[0].code, TSR_CANCELLED);
  EXPECT_EQ(outcomes[0].text, "queues: aborted by this rank: enough");
  for (const size_t rank : {1, 2}) {
    EXPECT_EQ(outcomes[rank].code, TSR_ABORTED);
    EXPECT_EQ(outcomes[rank].text, "queues: rank 0 aborted: enough");
  }
}

TEST(PairEngine, RanksThatDisagreeAreNamedWithWhatTheyCalled) {
  Wires wires(2);
  const auto outcomes = in_ranks(wires, [](std::unique_ptr<Group>& group) {
    std::vector<float> data(1000);
    finish(group->rank() == 0 ? group->barrier(call("epoch"))
                              : group->all_reduce(View(data), TSR_REDUCE_SUM, call("loss")));
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, TSR_INVALID_ARGUMENT);
    EXPECT_THAT(outcome.text, HasSubstr("queues: ranks disagree: rank "));
    EXPECT_THAT(outcome.text, HasSubstr("rank 1 called all_reduce \"loss\" (sum of float32, 4000 bytes)"));
    EXPECT_THAT(outcome.text, HasSubstr("rank 0 called barrier \"epoch\""));
  }
}

TEST(PairEngine, WhatArrivesInAnotherOrderIsNoticed) {
  Wires wires(2);
  wires.from_to(0, 1).held_back = sizeof(OpHeader);
  const auto outcomes = in_ranks(wires, [](std::unique_ptr<Group>& group) {
    Work* works[] = {group->barrier(call("step")), group->barrier(call("step"))};
    for (Work* work : works) finish(work);
  });
  EXPECT_EQ(outcomes[1].code, TSR_INVALID_ARGUMENT);
  EXPECT_THAT(outcomes[1].text, HasSubstr(", as operations number 1 and 0"));
}

TEST(PairEngine, DamagedDataNamesWhoSentIt) {
  Wires wires(2);
  wires.from_to(0, 1).damaged = true;
  const auto outcomes = in_ranks(wires, [](std::unique_ptr<Group>& group) { finish(group->barrier(call("step"))); });
  EXPECT_EQ(outcomes[1].code, TSR_DATA_LOSS);
  EXPECT_EQ(outcomes[1].text, "queues: damaged data from rank 0 during barrier \"step\"");
}

// An abort without a reason would be an error without text; an unknown kind of notice is not a goodbye.
TEST(PairEngine, DamagedNoticesNameWhoSentThem) {
  Notice wordless(Notice::kAbort, 1, TSR_ABORTED, {}), unknown, nobody(Notice::kAbort, 1, TSR_ABORTED, {"enough", -7});
  unknown.kind = 77;
  for (const Notice& damaged : {wordless, unknown, nobody}) {
    Wires wires(2);
    const auto outcomes = in_ranks(wires, [&](std::unique_ptr<Group>& group) {
      if (group->rank() == 0) return finish(group->barrier(call("step")));
      Link link(&wires, 1, 0);
      link.notices().tell(damaged);
    });
    EXPECT_EQ(outcomes[0].code, TSR_DATA_LOSS);
    EXPECT_EQ(outcomes[0].text, "queues: a damaged notice from rank 1");
  }
}

TEST(NoticeSocket, HearsNoticesWhole) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  Fd here(ends[0]), there(ends[1]);
  NoticeSocket hears(here.get());
  Notice sent(Notice::kAbort, 3, TSR_CANCELLED, {"enough\n", 5}), got;
  EXPECT_EQ(hears.hear(&got).what, Heard::kNothing);
  ASSERT_EQ(write(there.get(), &sent, 100), 100);
  EXPECT_EQ(hears.hear(&got).what, Heard::kNothing);
  ASSERT_EQ(write(there.get(), reinterpret_cast<const char*>(&sent) + 100, sizeof(sent) - 100), 412);
  NoticeSocket(there.get()).tell(Notice());
  EXPECT_EQ(hears.hear(&got).what, Heard::kNotice);
  EXPECT_EQ(got.reported(), TSR_CANCELLED);
  EXPECT_EQ(got.said().text, "enough?");
  EXPECT_EQ(got.said().rank, 5);
  EXPECT_EQ(hears.hear(&got).what, Heard::kNotice);
  EXPECT_EQ(got.kind, uint32_t{Notice::kGoodbye});
  there.reset();
  EXPECT_EQ(hears.hear(&got).what, Heard::kEnd);
}

}  // namespace
}  // namespace tessera::sdk
