// Checks transports with long series of small exchanges between ranks, with calls that ask for something unknown, and,
// for wrappers, with an inner transport that counts the bytes that it is given.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <thread>

#include "tessera/sdk/wrapped.h"
#include "verify/check.h"
#include "verify/ranks.h"

namespace tessera::cli::verify {
namespace {

// Elements of a message, which differ from those of every other message.
float element(uint64_t call, int64_t from, int64_t to, int64_t i) {
  uint64_t h = call * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(from) * 1000003 + static_cast<uint64_t>(to) * 10007 +
               static_cast<uint64_t>(i);
  h = (h ^ (h >> 29)) * 0xBF58476D1CE4E5B9u;
  return static_cast<float>(static_cast<int64_t>(h >> 40) % (1 << 20) - (1 << 19)) / (1 << 16);
}

// Sizes of messages of which most are equal.
std::vector<int64_t> sizes_of(uint64_t call, int64_t world) {
  constexpr int64_t kSizes[] = {16, 1, 64, 3, 257, 8, 1031, 32};
  const int64_t n = kSizes[call % std::size(kSizes)];
  std::vector<int64_t> out(static_cast<size_t>(world), n);
  if (call % 3 == 1) out[static_cast<size_t>(call / 3) % out.size()] = n / 2;  // all but one are equal
  return out;
}

// One exchange in flight, with memory around its tensors: it starts in the constructor.
class Exchange {
 public:
  static constexpr float kAround = -77;
  enum Kind { kAllToAll, kLossy, kAllGather, kReduceScatter, kAllReduce, kBroadcast, kKinds };

  Exchange(const Group& group, Kind kind, uint64_t call) : g_(group), kind_(kind), call_(call), me_(group.rank()) {
    const int64_t world = group.world();
    const std::vector<int64_t> sizes = sizes_of(call, world);
    const int64_t mine = sizes[static_cast<size_t>(me_)];
    out_ = sizes;
    in_.assign(static_cast<size_t>(world), mine);
    const bool many = kind == kAllToAll || kind == kLossy;
    if (many || kind == kReduceScatter) {
      for (int64_t to = 0; to < world; ++to) append(send_, me_, to, sizes[static_cast<size_t>(to)]);
    } else {
      append(send_, me_, 0, kind == kAllGather ? mine : sizes[0]);
    }
    for (int64_t from = 0; from < world && many; ++from) append(want_, from, me_, mine);
    for (int64_t from = 0; from < world && kind == kAllGather; ++from)
      append(want_, from, 0, sizes[static_cast<size_t>(from)]);
    if (kind == kBroadcast) append(want_, root(), 0, sizes[0]);
    if (kind == kReduceScatter) add_up(me_, mine);
    if (kind == kAllReduce) add_up(0, sizes[0]);
    sent_ = send_;
    recv_.assign(want_.size() + 2 * kMargin, kAround);
    if (kind == kAllReduce || kind == kBroadcast) std::copy(send_.begin(), send_.end(), recv_.begin() + kMargin);
    start();
  }

  void finish() {
    g_.wait(work_);
    const double off = kind_ == kLossy ? 1 : 0;  // a codec may round
    for (size_t i = 0; i < want_.size(); ++i) {
      require(std::abs(recv_[i + kMargin] - want_[i]) <= off, name(), " number ", call_, " of a series, of ", out_[0],
              " and more elements, on ", g_.world(), " ranks: rank ", me_, " got ", recv_[i + kMargin], " as element ",
              i, " of ", want_.size(), ", not ", want_[i]);
    }
    require(send_ == sent_, name(), " number ", call_, " of a series changes what it sends");
    for (size_t i = 0; i < kMargin; ++i) {
      require(recv_[i] == kAround && recv_[recv_.size() - 1 - i] == kAround, name(),
              " wrote beside the tensor that it received into");
    }
  }

 private:
  static constexpr size_t kMargin = 4;  // floats in front of the tensor (byte_offset), and after it

  const char* name() const {
    constexpr const char* kNames[] = {"all_to_all_v",     "all_to_all_v (lossy)", "all_gather_v",
                                      "reduce_scatter_v", "all_reduce",           "broadcast"};
    return kNames[kind_];
  }
  int32_t root() const { return static_cast<int32_t>(call_ % g_.ranks()); }
  void append(std::vector<float>& to, int64_t from, int64_t peer, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) to.push_back(element(call_, from, peer, i));
  }
  void add_up(int64_t peer, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      float sum = 0;  // exact, because all elements are multiples of 2^-16
      for (int64_t from = 0; from < g_.world(); ++from) sum += element(call_, from, peer, i);
      want_.push_back(sum);
    }
  }
  static DLTensor tensor(float* data, int64_t* size, uint64_t skipped) {
    return {data, {kDLCPU, 0}, 1, sdk::dtype_of<float>(), size, nullptr, skipped * sizeof(float)};
  }
  void start() {
    sdk::CollectiveCall how = sdk::named_call("a series");
    if (kind_ == kAllToAll) how.flags = std::array{0u, TSR_CALL_FORWARD, TSR_CALL_BACKWARD}[call_ / 2 % 3];
    if (kind_ == kLossy) {
      how.flags = TSR_CALL_LOSSY | (call_ % 4 == 1 ? TSR_CALL_FORWARD : TSR_CALL_BACKWARD);
      how.row_elements = out_[0] % 16 == 0 ? 16 : 0;
      how.site = call_ % 3 == 1 ? 0 : 1 + call_ % 8;  // the sizes of a site are always the same
    }
    send_size_ = static_cast<int64_t>(send_.size());
    recv_size_ = static_cast<int64_t>(want_.size());
    send_raw_ = tensor(send_.data(), &send_size_, 0);
    recv_raw_ = tensor(recv_.data(), &recv_size_, kMargin);
    const tsr_collective& api = g_.api();
    Call call;
    const tsr_code code = begin(api, how, call.out());
    call.fails_well(code, str_cat("the start of ", name()));
    if (code != TSR_OK) throw Refused(code, call.message(), call.rank());
  }
  tsr_code begin(const tsr_collective& api, const sdk::CollectiveCall& how, tsr_error* err) {
    switch (kind_) {
      case kAllGather:
        return api.all_gather_v(g_.raw(), &send_raw_, &recv_raw_, out_.data(), &how, &work_, err);
      case kReduceScatter:
        return api.reduce_scatter_v(g_.raw(), &send_raw_, out_.data(), &recv_raw_, TSR_REDUCE_SUM, &how, &work_, err);
      case kAllReduce:
        return api.all_reduce(g_.raw(), &recv_raw_, TSR_REDUCE_SUM, &how, &work_, err);
      case kBroadcast:
        return api.broadcast(g_.raw(), &recv_raw_, root(), &how, &work_, err);
      default:
        return api.all_to_all_v(g_.raw(), &send_raw_, out_.data(), &recv_raw_, in_.data(), &how, &work_, err);
    }
  }

  const Group& g_;
  Kind kind_;
  uint64_t call_;
  int64_t me_;
  std::vector<int64_t> out_, in_;
  std::vector<float> send_, sent_, recv_, want_;
  int64_t send_size_ = 0, recv_size_ = 0;
  DLTensor send_raw_{}, recv_raw_{};
  tsr_work* work_ = nullptr;
};

// Up to three exchanges are in flight at once.
void series(const Group& group, uint64_t calls) {
  using Kind = Exchange::Kind;
  std::vector<std::unique_ptr<Exchange>> flying;
  for (uint64_t call = 0; call < calls; ++call) {
    const auto kind = call % 2 == 0 ? Kind::kAllToAll : static_cast<Kind>(call / 2 % Kind::kKinds);
    flying.push_back(std::make_unique<Exchange>(group, kind, call));
    if (flying.size() <= call / 7 % 3) continue;
    for (const auto& exchange : flying) exchange->finish();
    flying.clear();
  }
  for (const auto& exchange : flying) exchange->finish();
  group.barrier("after the series");
}

void check_collective_equal_counts(Subject& subject) {
  const uint64_t calls = subject.thorough() ? 6000 : 300;
  for (const int world : {2, 4}) {
    in_all_ranks(subject, {.world = world, .patience_s = 80}, [&](Group& group) {
      series(group, calls);
      const Group turned(group.api(), group.split(0, -group.rank()), group.info());
      series(turned, calls / 4);
    });
  }
}

// Barriers: none returns before the last rank has come.
void check_collective_barrier(Subject& subject) {
  in_all_ranks(subject, {.world = 3}, [](Group& group) {
    using std::chrono::steady_clock;
    for (int32_t late = 0; late < 3; ++late) {
      group.barrier("all are here");
      if (group.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(60));
      const int64_t came = steady_clock::now().time_since_epoch().count();
      group.barrier("one comes late");
      const int64_t left = steady_clock::now().time_since_epoch().count();
      std::vector<int64_t> from_late{came};
      const Elements<int64_t> tensor(from_late, {kDLInt, 64, 1}, {kDLCPU, 0});
      group.run("when it came", [&](const tsr_collective_call* c, tsr_work** w, tsr_error* e) {
        return group.api().broadcast(group.raw(), tensor.raw(), late, c, w, e);
      });
      require(left >= from_late[0], "a barrier ended on rank ", group.rank(), " before rank ", late, " had come");
    }
  });
}

// ---- flags ----

void check_collective_flags(Subject& subject) {
  constexpr uint32_t kMust = 1u << 31;
  in_all_ranks(subject, {.world = 1}, [&](Group& group) {
    std::vector<float> data(4), more(4);
    const std::vector<int64_t> counts{4};
    const Elements<float> a(data, sdk::dtype_of<float>(), {kDLCPU, 0}), b(more, sdk::dtype_of<float>(), {kDLCPU, 0});
    sdk::CollectiveCall how = sdk::named_call("flags");
    how.flags = kMust;
    const tsr_collective& api = group.api();
    tsr_group* g = group.raw();
    const auto refused = [&](const char* what, const auto& start) {
      tsr_work* work = nullptr;
      Call call;
      const tsr_code code = start(&work, call.out());
      call.fails(code, str_cat(what, " with an unknown flag that must be understood"));
    };
    refused("all_to_all_v", [&](tsr_work** w, tsr_error* e) {
      return api.all_to_all_v(g, a.raw(), counts.data(), b.raw(), counts.data(), &how, w, e);
    });
    refused("all_reduce", [&](tsr_work** w, tsr_error* e) { return api.all_reduce(g, a.raw(), 0, &how, w, e); });
    refused("reduce_scatter_v", [&](tsr_work** w, tsr_error* e) {
      return api.reduce_scatter_v(g, a.raw(), counts.data(), b.raw(), 0, &how, w, e);
    });
    refused("all_gather_v", [&](tsr_work** w, tsr_error* e) {
      return api.all_gather_v(g, a.raw(), b.raw(), counts.data(), &how, w, e);
    });
    refused("broadcast", [&](tsr_work** w, tsr_error* e) { return api.broadcast(g, a.raw(), 0, &how, w, e); });
    refused("barrier", [&](tsr_work** w, tsr_error* e) { return api.barrier(g, &how, w, e); });
  });
  const auto ends = in_ranks(subject, {.world = 1, .flags = kMust}, [](Group&) {});
  require(ends[0].threw, "connect with an unknown flag that must be understood succeeded");
}

// ---- what a wrapper hands to the inner transport ----

struct Counted {
  int64_t bytes = 0, barriers = 0;
  double timeout_s = 0;  // of the last all_to_all_v
  bool labelled = false;
  bool in_order = true;  // works were waited for in the order of their start
};

class CountingGroup : public sdk::WrappedGroup {
 public:
  CountingGroup(sdk::InnerGroup inner, Counted* counted) : WrappedGroup(std::move(inner)), counted_(counted) {}
  std::unique_ptr<sdk::Group> wrap(sdk::InnerGroup inner) const override {
    return std::make_unique<CountingGroup>(std::move(inner), counted_);
  }
  sdk::Work* all_to_all_v(const DLTensor& send, sdk::Counts out, const DLTensor& recv, sdk::Counts in,
                          const sdk::CollectiveCall& call) override {
    for (size_t r = 0; r < out.size(); ++r) {
      if (static_cast<int32_t>(r) != rank()) counted_->bytes += out[r] * sdk::element_bytes(send);
    }
    counted_->timeout_s = call.timeout_s;
    counted_->labelled = call.label != nullptr && *call.label != '\0';
    return ordered(WrappedGroup::all_to_all_v(send, out, recv, in, call));
  }
  sdk::Work* all_reduce(const DLTensor& inout, int32_t op, const sdk::CollectiveCall& call) override {
    counted_->bytes += 2 * of_others(inout);
    return ordered(WrappedGroup::all_reduce(inout, op, call));
  }
  sdk::Work* reduce_scatter_v(const DLTensor& send, sdk::Counts counts, const DLTensor& recv, int32_t op,
                              const sdk::CollectiveCall& call) override {
    counted_->bytes += of_others(send);
    return ordered(WrappedGroup::reduce_scatter_v(send, counts, recv, op, call));
  }
  sdk::Work* all_gather_v(const DLTensor& send, const DLTensor& recv, sdk::Counts counts,
                          const sdk::CollectiveCall& call) override {
    counted_->bytes += sdk::numel(send) * sdk::element_bytes(send) * (world_size() - 1);
    return ordered(WrappedGroup::all_gather_v(send, recv, counts, call));
  }
  sdk::Work* broadcast(const DLTensor& inout, int32_t root, const sdk::CollectiveCall& call) override {
    if (root == rank()) counted_->bytes += sdk::numel(inout) * sdk::element_bytes(inout) * (world_size() - 1);
    return ordered(WrappedGroup::broadcast(inout, root, call));
  }
  sdk::Work* barrier(const sdk::CollectiveCall& call) override {
    ++counted_->barriers;
    return ordered(WrappedGroup::barrier(call));
  }

 private:
  int64_t of_others(const DLTensor& t) const {
    return sdk::numel(t) * sdk::element_bytes(t) * (world_size() - 1) / world_size();
  }
  sdk::Work* ordered(sdk::Work* work) { return new OrderedWork(work, this); }
  class OrderedWork : public sdk::Work {
   public:
    OrderedWork(sdk::Work* inner, CountingGroup* group) : inner_(inner), group_(group), number_(group->started_++) {}
    ~OrderedWork() override { inner_->recycle(); }
    OrderedWork(const OrderedWork&) = delete;
    void wait() override {
      group_->counted_->in_order &= number_ == group_->waited_;
      group_->waited_ = number_ + 1;
      inner_->wait();
    }

   private:
    sdk::Work* inner_;
    CountingGroup* group_;
    int64_t number_;
  };

  int64_t started_ = 0, waited_ = 0;
  Counted* counted_;
};

// Hands everything on to another transport, and counts.
class CountingCollective : public sdk::WrappedCollective {
 public:
  explicit CountingCollective(const sdk::Setup& setup) : WrappedCollective(setup, "verify.counting") {}
  std::unique_ptr<sdk::Group> wrap(sdk::InnerGroup inner) const override {
    return std::make_unique<CountingGroup>(std::move(inner), &counted);
  }
  mutable Counted counted;
};

// The most bytes that one operation may pass to the inner transport: those that it sends, half as many again for codes
// and headers of messages, and 4 KiB.
int64_t allowed(int64_t bytes) { return bytes + bytes / 2 + 4096; }

constexpr double kDeadline = 7.5;

void count_exchanges(const Group& group, const Made& wrapper, const Counted& counted) {
  const int64_t world = group.world(), n = 20000;
  const auto& api = wrapper.api<tsr_collective>();
  for (const uint32_t flags : {0u, uint32_t{TSR_CALL_LOSSY | TSR_CALL_FORWARD}}) {
    const int64_t each = TSR_HAS(tsr_collective, &api, wire_bytes)
                             ? api.wire_bytes(wrapper.self(), sdk::dtype_of<float>(), n, 16, flags)
                             : n * int64_t{sizeof(float)};
    std::vector<float> send(static_cast<size_t>(n * world), 1), recv(send.size());
    const std::vector<int64_t> counts(static_cast<size_t>(world), n);
    const Elements<float> s(send, sdk::dtype_of<float>(), {kDLCPU, 0}), r(recv, sdk::dtype_of<float>(), {kDLCPU, 0});
    const int64_t before = counted.bytes;
    group.run("counted", [&](const tsr_collective_call* c, tsr_work** w, tsr_error* e) {
      sdk::CollectiveCall how = *c;
      how.flags = flags;
      how.row_elements = 16;
      how.site = 1;
      how.timeout_s = kDeadline;
      how.label = "verify.counted";
      return group.api().all_to_all_v(group.raw(), s.raw(), counts.data(), r.raw(), counts.data(), &how, w, e);
    });
    require(counted.bytes - before <= allowed(each * (world - 1)), "all_to_all_v of ", n, " float32 for each of ",
            world - 1, " other ranks gave the inner transport ", counted.bytes - before,
            " bytes to send, while wire_bytes says ", each * (world - 1));
    require(counted.timeout_s > 0 && counted.timeout_s <= kDeadline, "all_to_all_v with a deadline of ", kDeadline,
            " s gives the inner transport ", counted.timeout_s, " s");
    require(counted.labelled, "all_to_all_v with a label hands no label to the inner transport");
  }
  const auto bounded = [&](const char* what, int64_t bytes, const Group::Start& start) {
    const int64_t before = counted.bytes;
    group.run(what, start);
    require(counted.bytes - before <= allowed(bytes), what, " of ", n, " float32 gave the inner transport ",
            counted.bytes - before, " bytes to send, but ", bytes, " are enough");
  };
  std::vector<float> data(static_cast<size_t>(n), 1), all(static_cast<size_t>(n * world));
  const std::vector<int64_t> counts(static_cast<size_t>(world), n);
  const Elements<float> d(data, sdk::dtype_of<float>(), {kDLCPU, 0}), a(all, sdk::dtype_of<float>(), {kDLCPU, 0});
  const int64_t bytes = n * int64_t{sizeof(float)};
  bounded("all_reduce", 2 * bytes, [&](const tsr_collective_call* c, tsr_work** w, tsr_error* e) {
    return group.api().all_reduce(group.raw(), d.raw(), TSR_REDUCE_SUM, c, w, e);
  });
  bounded("all_gather_v", bytes * (world - 1), [&](const tsr_collective_call* c, tsr_work** w, tsr_error* e) {
    return group.api().all_gather_v(group.raw(), d.raw(), a.raw(), counts.data(), c, w, e);
  });
  bounded("reduce_scatter_v", bytes * (world - 1), [&](const tsr_collective_call* c, tsr_work** w, tsr_error* e) {
    return group.api().reduce_scatter_v(group.raw(), a.raw(), counts.data(), d.raw(), TSR_REDUCE_SUM, c, w, e);
  });
  bounded("broadcast", bytes * (world - 1), [&](const tsr_collective_call* c, tsr_work** w, tsr_error* e) {
    return group.api().broadcast(group.raw(), d.raw(), 0, c, w, e);
  });
  require(counted.in_order, "works of the inner transport are waited for in another order than that of their start");
  const int64_t before = counted.barriers;
  group.barrier("counted");
  require(counted.barriers - before <= 1, "a barrier is ", counted.barriers - before,
          " barriers of the inner transport");
}

void check_collective_counted(Subject& subject) {
  if ((subject.api<tsr_collective>().flags & TSR_COLLECTIVE_WRAPS) == 0)
    throw Skipped("it wraps no transport: the bytes that it really sends are not counted");
  in_all_ranks(subject, {.world = 3, .counts = true}, [](Group& group) {
    require(group.wrapper() != nullptr, "the group is not a wrapper's");
    const auto& counting = *static_cast<const CountingCollective*>(group.counting()->self);
    count_exchanges(group, *group.wrapper(), counting.counted);
  });
}

}  // namespace

const tsr_component& counting_collective() {
  static constexpr tsr_component kComponent = sdk::component<CountingCollective>(
      {.id = "verify.counting", .version = "1.0.0", .about = "counts what it hands on"});
  return kComponent;
}

std::span<const Check> collective_series_checks() {
  static constexpr const char* kHeader = "abi/collective.h, tsr_collective";
  static constexpr const char* kKind = TSR_COLLECTIVE_KIND;
  static constexpr Check kChecks[] = {
      {"collective.flags", 3, kKind, "abi/collective.h, tsr_collective_call::flags", 20, check_collective_flags},
      {"collective.equal_counts", 4, kKind, kHeader, 120, check_collective_equal_counts},
      {"collective.barrier", 4, kKind, "abi/collective.h, tsr_collective::barrier", 30, check_collective_barrier},
      {"collective.counted", 4, kKind, "abi/collective.h, tsr_collective::wire_bytes", 30, check_collective_counted},
  };
  return kChecks;
}

}  // namespace tessera::cli::verify
