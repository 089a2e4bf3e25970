// Checks transports: every operation on 1 to 8 ranks, and what ranks are told if one of them fails.
#include "tessera/abi/collective.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

#include "verify/check.h"
#include "verify/ranks.h"

namespace tessera::cli::verify {
namespace {

constexpr DLDevice kHost{kDLCPU, 0};

template <class T>
DLDataType type_of() {
  return {static_cast<uint8_t>(std::is_floating_point_v<T> ? kDLFloat
                               : std::is_signed_v<T>       ? kDLInt
                                                           : kDLUInt),
          static_cast<uint8_t>(8 * sizeof(T)), 1};
}
template <class T>
std::string type_name() {
  return str_cat(std::is_floating_point_v<T> ? "float" : std::is_signed_v<T> ? "int" : "uint", 8 * sizeof(T));
}

// A different number for each rank and position; sums are exact in every type. float32 has 12 bits after the point,
// float64 has 40, and int64 goes beyond 32 bits, which a transport that sends them as a smaller type loses.
template <class T>
T value(int64_t rank, int64_t i) {
  const auto whole = static_cast<T>((rank * 31 + i * 7) % 23);
  constexpr auto kParts = static_cast<T>(sizeof(T) == 8 ? int64_t{1} << 40 : 4096);
  if constexpr (std::is_floating_point_v<T>) return whole + static_cast<T>((rank + i) % 8) / kParts;
  if constexpr (std::is_same_v<T, int64_t>) return whole * kParts + whole;
  return whole;
}
template <class T>
std::vector<T> values(int rank, int64_t n) {
  std::vector<T> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) out[static_cast<size_t>(i)] = value<T>(rank, i);
  return out;
}
template <class T>
T reduced(int world, int64_t i, int32_t op) {
  T result = value<T>(0, i);
  for (int r = 1; r < world; ++r) {
    const T v = value<T>(r, i);
    result = op == TSR_REDUCE_SUM   ? static_cast<T>(result + v)
             : op == TSR_REDUCE_MAX ? std::max(result, v)
                                    : std::min(result, v);
  }
  return result;
}

// Rank r's count of n things: uneven, some are 0.
std::vector<int64_t> uneven(size_t world, int64_t n) {
  std::vector<int64_t> counts(world);
  for (size_t r = 0; r < world; ++r)
    counts[r] = r % 3 == 1 ? 0 : n * static_cast<int64_t>(r + 1) / static_cast<int64_t>(world);
  return counts;
}
int64_t sum(const std::vector<int64_t>& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

template <class T>
void expect(const std::vector<T>& got, const std::vector<T>& want, const Group& group, const std::string& what) {
  for (size_t i = 0; i < want.size(); ++i) {
    require(got[i] == want[i], what, " of ", type_name<T>(), " on ", group.world(), " ranks: rank ", group.rank(),
            " got ", +got[i], " as element ", i, " of ", want.size(), ", not ", +want[i], " (off by ",
            std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i])), ")");
  }
}

// Runs one operation of each kind on n elements and checks the results.
template <class T>
class Operations {
 public:
  Operations(const Group& group, int64_t n, DLDevice device) : g_(group), n_(n), device_(device) {}

  void all_to_all() const {
    const int me = g_.rank();
    const auto count = [&](int a, int b) { return (a + 2 * b) % 4 * n_ / 3; };
    std::vector<int64_t> out, in;
    std::vector<T> send, want;
    for (int r = 0; r < g_.world(); ++r) {
      out.push_back(count(me, r));
      in.push_back(count(r, me));
      for (int64_t i = 0; i < out.back(); ++i) send.push_back(value<T>(me, i + r));
      for (int64_t i = 0; i < in.back(); ++i) want.push_back(value<T>(r, i + me));
    }
    std::vector<T> recv(want.size(), T{99});
    const Elements<T> s(send, type_of<T>(), device_), r(recv, type_of<T>(), device_);
    g_.run("all_to_all_v", [&](const tsr_collective_call* c, tsr_work** w, tsr_error* e) {
      return g_.api().all_to_all_v(g_.raw(), s.raw(), out.data(), r.raw(), in.data(), c, w, e);
    });
    expect(recv, want, g_, "all_to_all_v");
  }

  void all_reduce(int32_t op) const {
    std::vector<T> inout = values<T>(g_.rank(), n_), want(inout.size());
    for (size_t i = 0; i < want.size(); ++i) want[i] = reduced<T>(g_.world(), static_cast<int64_t>(i), op);
    const Elements<T> t(inout, type_of<T>(), device_);
    g_.run("all_reduce", [&](const tsr_collective_call* c, tsr_work** w, tsr_error* e) {
      return g_.api().all_reduce(g_.raw(), t.raw(), op, c, w, e);
    });
    expect(inout, want, g_, "all_reduce");
  }

  void reduce_scatter(int32_t op) const {
    const std::vector<int64_t> counts = uneven(g_.ranks(), n_);
    const auto me = static_cast<size_t>(g_.rank());
    const int64_t before = std::accumulate(counts.begin(), counts.begin() + g_.rank(), int64_t{0});
    std::vector<T> send = values<T>(g_.rank(), sum(counts)), recv(static_cast<size_t>(counts[me]), T{99}),
                   want(recv.size());
    for (size_t i = 0; i < want.size(); ++i) want[i] = reduced<T>(g_.world(), before + static_cast<int64_t>(i), op);
    const Elements<T> s(send, type_of<T>(), device_), r(recv, type_of<T>(), device_);
    g_.run("reduce_scatter_v", [&](const tsr_collective_call* c, tsr_work** w, tsr_error* e) {
      return g_.api().reduce_scatter_v(g_.raw(), s.raw(), counts.data(), r.raw(), op, c, w, e);
    });
    expect(recv, want, g_, "reduce_scatter_v");
    require(send == values<T>(g_.rank(), sum(counts)), "reduce_scatter_v changes what it sends");
  }

  void all_gather() const {
    const std::vector<int64_t> counts = uneven(g_.ranks(), n_);
    std::vector<T> send = values<T>(g_.rank(), counts[static_cast<size_t>(g_.rank())]), want;
    for (int r = 0; r < g_.world(); ++r) {
      const std::vector<T> piece = values<T>(r, counts[static_cast<size_t>(r)]);
      want.insert(want.end(), piece.begin(), piece.end());
    }
    std::vector<T> recv(want.size(), T{99});
    const Elements<T> s(send, type_of<T>(), device_), r(recv, type_of<T>(), device_);
    g_.run("all_gather_v", [&](const tsr_collective_call* c, tsr_work** w, tsr_error* e) {
      return g_.api().all_gather_v(g_.raw(), s.raw(), r.raw(), counts.data(), c, w, e);
    });
    expect(recv, want, g_, "all_gather_v");
  }

  void broadcast(int32_t root) const {
    std::vector<T> inout = values<T>(g_.rank(), n_);
    const Elements<T> t(inout, type_of<T>(), device_);
    g_.run("broadcast", [&](const tsr_collective_call* c, tsr_work** w, tsr_error* e) {
      return g_.api().broadcast(g_.raw(), t.raw(), root, c, w, e);
    });
    expect(inout, values<T>(root, n_), g_, "broadcast");
  }

  void moves() const {
    all_to_all();
    all_gather();
    for (int32_t root = 0; root < g_.world(); ++root) broadcast(root);
  }
  void reductions() const {
    for (const int32_t op : {TSR_REDUCE_SUM, TSR_REDUCE_MAX, TSR_REDUCE_MIN}) {
      all_reduce(op);
      reduce_scatter(op);
    }
  }

 private:
  const Group& g_;
  int64_t n_;
  DLDevice device_;
};

// Skips the check if a transport does not work in forked ranks.
void needs_forked_ranks(Subject& subject) {
  const auto& api = subject.api<tsr_collective>();
  if ((api.flags & TSR_COLLECTIVE_LAUNCHES) != 0)
    throw Skipped("its ranks are started by its own launcher: run tests of what is built on it under that launcher");
}

// Finds out whether the ranks of this transport can be forked. It runs in a process of its own, because the plugin must
// not be open in the process that forks.
void check_collective_forkable(Subject& subject) { needs_forked_ranks(subject); }

// The devices of tensors: host memory, and an emulated device whose memory is the host's.
std::vector<DLDevice> devices_of(const Group& group) {
  if (group.on_emulated_device()) return {kHost, {kDLExtDev, 0}};
  return {kHost};
}

void every_operation(Group& group, std::span<const int64_t> sizes) {
  for (const DLDevice device : devices_of(group)) {
    for (const int64_t n : sizes) {
      Operations<float>(group, n, device).moves();
      Operations<float>(group, n, device).reductions();
      Operations<double>(group, n, device).reductions();
      Operations<int32_t>(group, n, device).reductions();
      Operations<int64_t>(group, n, device).reductions();
      Operations<int64_t>(group, n, device).moves();
      Operations<uint8_t>(group, n, device).moves();
    }
  }
  group.barrier("the last barrier");
}

// ---- level 3 ----

void check_collective_alone(Subject& subject) {
  in_all_ranks(subject, {.world = 1}, [](Group& group) {
    constexpr int64_t kSizes[] = {0, 1, 100};
    every_operation(group, kSizes);
    require(group.split(-1) == nullptr, "split with color -1 gives a group");
  });
}

void check_collective_absent(Subject& subject) {
  const auto ends = in_ranks(subject, {.world = 2, .timeout_s = 1, .patience_s = 12, .absent = {1}}, [](Group&) {});
  require(ends[0].returned, "connect was not done 12 s after a deadline of 1 s, without rank 1");
  require(ends[0].threw, "connect succeeded without rank 1");
  require(ends[0].code == TSR_DEADLINE_EXCEEDED, "connect without rank 1 failed with ", name_of(ends[0].code),
          ", not with TSR_DEADLINE_EXCEEDED: ", ends[0].text);
  require(ends[0].text.find('1') != std::string::npos, "connect without rank 1 does not name it: ", ends[0].text);
}

// ---- level 4 ----

void check_collective_operations(Subject& subject) {
  static constexpr int64_t kSizes[] = {0, 1, 2, 3, 17, 1000, 4099};
  const std::vector<int> worlds = subject.thorough() ? std::vector{1, 2, 3, 4, 5, 6, 7, 8} : std::vector{2, 3, 8};
  for (const int world : worlds)
    in_all_ranks(subject, {.world = world}, [](Group& group) { every_operation(group, kSizes); });
}

void check_collective_large(Subject& subject) {
  in_all_ranks(subject, {.world = 2}, [](Group& group) {
    static constexpr int64_t kSizes[] = {300007};
    for (const DLDevice device : devices_of(group)) {
      Operations<float>(group, kSizes[0], device).moves();
      Operations<float>(group, kSizes[0], device).reductions();
    }
  });
}

void check_collective_in_flight(Subject& subject) {
  in_all_ranks(subject, {.world = 3}, [](Group& group) {
    constexpr int kCount = 60;
    std::vector<std::vector<float>> data;
    std::vector<std::unique_ptr<Elements<float>>> tensors;
    std::vector<tsr_work*> works;
    for (int i = 0; i < kCount; ++i) data.push_back(values<float>(group.rank(), int64_t{50} * i));
    for (int i = 0; i < kCount; ++i) {
      tensors.push_back(std::make_unique<Elements<float>>(data[static_cast<size_t>(i)], type_of<float>(), kHost));
      const DLTensor* t = tensors.back()->raw();
      works.push_back(group.begin("many", 0, [&](const tsr_collective_call* c, tsr_work** w, tsr_error* e) {
        return i % 3 == 0 ? group.api().broadcast(group.raw(), t, i % 2, c, w, e)
                          : group.api().all_reduce(group.raw(), t, TSR_REDUCE_SUM, c, w, e);
      }));
    }
    for (tsr_work* work : works) group.wait(work);
    for (int i = 0; i < kCount; ++i) {
      std::vector<float> want = values<float>(i % 2, int64_t{50} * i);
      for (size_t k = 0; i % 3 != 0 && k < want.size(); ++k)
        want[k] = reduced<float>(3, static_cast<int64_t>(k), TSR_REDUCE_SUM);
      expect(data[static_cast<size_t>(i)], want, group, str_cat("operation ", i, " of ", kCount, " in flight"));
    }
  });
}

void check_collective_split(Subject& subject) {
  in_all_ranks(subject, {.world = 4}, [](Group& group) {
    const int me = group.rank();
    tsr_group* raw = group.split(me == 3 ? -1 : me % 2);
    require((raw == nullptr) == (me == 3), "split gave rank ", me,
            raw == nullptr ? " no group" : " a group for color -1");
    if (raw != nullptr) {
      const Group part(group.api(), raw, group.info());
      require(part.world() == (me == 1 ? 1 : 2) && part.rank() == me / 2, "rank ", me, " is rank ", part.rank(), " of ",
              part.world(), " in its part");
      Operations<float>(part, 100, kHost).moves();
      part.barrier("in the part");
    }
    group.barrier("after the split");
    // The reverse order, except for ranks 1 and 2, whose keys are equal.
    const Group turned(group.api(), group.split(0, me == 2 ? -1 : -me), group.info());
    const int want[] = {3, 1, 2, 0};
    require(turned.rank() == want[me], "with the keys 0, -1, -1 and -3, rank ", me, " becomes rank ", turned.rank(),
            " and not ", want[me]);
    turned.barrier("in the turned group");
  });
}

void require_told(const std::vector<RankEnd>& ends, int rank, int at_fault, const char* what, double within_s) {
  const RankEnd& end = ends[static_cast<size_t>(rank)];
  require(end.returned, "rank ", rank, " was not told within ", within_s, " s that rank ", at_fault, " ", what);
  require(end.threw, "rank ", rank, " finished an operation although rank ", at_fault, " ", what);
  require(end.code != TSR_UNKNOWN, end.text);
  require(end.text.find(std::to_string(at_fault)) != std::string::npos, "when rank ", at_fault, " ", what, ", rank ",
          rank, " is told of another: ", end.text);
  require(end.blamed == at_fault, "when rank ", at_fault, " ", what, ", rank ", rank, " gets an error with rank ",
          end.blamed, ", though it says: ", end.text);
}

void check_collective_killed(Subject& subject) {
  constexpr double kDeadline = 6;
  const auto ends =
      in_ranks(subject, {.world = 3, .timeout_s = kDeadline, .patience_s = 3 * kDeadline}, [](Group& group) {
        group.barrier("before");
        if (group.rank() == 1) kill(getpid(), SIGKILL);
        group.barrier("step");
      });
  for (const int rank : {0, 2}) require_told(ends, rank, 1, "was killed", 3 * kDeadline);
}

void check_collective_stopped(Subject& subject) {
  constexpr double kDeadline = 1.5;
  const auto ends = in_ranks(subject, {.world = 3, .timeout_s = 10, .patience_s = 10, .lost = {1}}, [](Group& group) {
    group.barrier("before");
    if (group.rank() == 1) raise(SIGSTOP);
    group.barrier("step", kDeadline);
    group.barrier("next", kDeadline);
  });
  for (const int rank : {0, 2}) {
    require_told(ends, rank, 1, "was stopped", 10);
    const RankEnd& end = ends[static_cast<size_t>(rank)];
    require(end.code == TSR_DEADLINE_EXCEEDED || end.code == TSR_ABORTED, "rank ", rank, " is told with ",
            name_of(end.code), " that rank 1 was late, not with TSR_DEADLINE_EXCEEDED: ", end.text);
  }
}

// Aborts a wait of the same rank, and waits of the other ranks.
void check_collective_abort(Subject& subject) {
  const auto ends = in_ranks(subject, {.world = 3, .timeout_s = 15, .patience_s = 12}, [](Group& group) {
    group.barrier("before");
    std::thread other;
    if (group.rank() == 2) {
      other = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        group.abort("verify has had enough");
      });
    }
    struct Join {
      std::thread& thread;
      ~Join() {
        if (thread.joinable()) thread.join();
      }
    } const join{other};
    if (group.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    group.barrier("step");
    group.barrier("next");
  });
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    require(ends[rank].returned, "rank ", rank, " still waits 12 s after another thread of rank 2 has aborted");
    require(ends[rank].threw, "rank ", rank, " finished an operation that was aborted");
    require(ends[rank].text.find("verify has had enough") != std::string::npos, "rank ", rank,
            " is not told the reason of an abort: ", ends[rank].text);
  }
}

// The group's description of itself, if it has one.
std::string status_of(const Group& group) {
  Call call;
  const tsr_code code = group.api().status(group.raw(), call.out());
  return call.fails_well(code, "status");
}

// After one failed operation, every later one must fail.
void check_collective_poison(Subject& subject) {
  const auto ends = in_ranks(subject, {.world = 2, .timeout_s = 10, .patience_s = 20}, [](Group& group) {
    group.barrier("before");
    if (group.rank() == 1) return void(std::this_thread::sleep_for(std::chrono::milliseconds(1500)));
    const bool says = TSR_HAS(tsr_collective, &group.api(), status);
    if (says) require(status_of(group).empty(), "status fails before anything did: ", status_of(group));
    std::string first;
    for (int i = 0; i < 3; ++i) {
      try {
        group.barrier("step", i == 0 ? 0.4 : 5);
      } catch (const Refused& e) {
        if (i == 0) first = e.what();
        require(first == e.what(), "after an operation failed, the next fails with another error: \"", e.what(),
                "\" instead of \"", first, "\"");
        if (says)
          require(status_of(group) == first, "after an operation failed with \"", first, "\", status says \"",
                  status_of(group), "\"");
        continue;
      }
      broken("an operation succeeds without rank 1, or after one that has failed");
    }
  });
  for (const RankEnd& end : ends) require(!end.threw, end.text);
  require(ends[0].returned, "an operation after one that has failed does not end");
}

// ---- level 5 ----

// Runs the same random sequence on all ranks.
void check_collective_sequences(Subject& subject) {
  for (const int world : {2, 4}) {
    in_all_ranks(subject, {.world = world, .patience_s = 80}, [&](Group& group) {
      Random random = subject.random(11);
      for (int i = 0; i < 400; ++i) {
        const int64_t n = random() % 5 == 0 ? between(random, 0, 100000) : between(random, 0, 300);
        const Operations<float> floats(group, n, kHost);
        const Operations<int64_t> ints(group, n, kHost);
        switch (random() % 6) {
          case 0:
            floats.all_to_all();
            break;
          case 1:
            floats.all_reduce(static_cast<int32_t>(random() % 3));
            break;
          case 2:
            ints.reduce_scatter(static_cast<int32_t>(random() % 3));
            break;
          case 3:
            ints.all_gather();
            break;
          case 4:
            ints.broadcast(static_cast<int32_t>(random() % static_cast<uint64_t>(world)));
            break;
          default:
            group.barrier("in a sequence");
        }
      }
    });
  }
}

}  // namespace

std::span<const Check> collective_checks() {
  static constexpr const char* kHeader = "abi/collective.h, tsr_collective";
  static constexpr const char* kFailures = "abi/collective.h, an operation that fails";
  static constexpr const char* kKind = TSR_COLLECTIVE_KIND;
  static constexpr Check kChecks[] = {
      {"collective.ranks", 3, kKind, kHeader, 20, check_collective_forkable, Check::kComponent},
      {"collective.alone", 3, kKind, kHeader, 40, check_collective_alone},
      {"collective.absent", 3, kKind, "abi/collective.h, tsr_collective::connect", 40, check_collective_absent},
      {"collective.operations", 4, kKind, kHeader, 120, check_collective_operations},
      {"collective.large", 4, kKind, kHeader, 60, check_collective_large},
      {"collective.in_flight", 4, kKind, kHeader, 60, check_collective_in_flight},
      {"collective.split", 4, kKind, "abi/collective.h, tsr_collective::split", 60, check_collective_split},
      {"collective.killed", 4, kKind, kFailures, 60, check_collective_killed},
      {"collective.stopped", 4, kKind, kFailures, 60, check_collective_stopped},
      {"collective.abort", 4, kKind, "abi/collective.h, tsr_collective::abort", 60, check_collective_abort},
      {"collective.poison", 4, kKind, kFailures, 60, check_collective_poison},
      {"collective.sequences", 5, kKind, kHeader, 200, check_collective_sequences},
  };
  return kChecks;
}

}  // namespace tessera::cli::verify
