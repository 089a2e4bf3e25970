// SPDX-License-Identifier: Apache-2.0 OR MIT
// outside.delay: any transport with a longer way, "outside.delay?ms=2&jitter_ms=1(tcp)". An operation ends no earlier
// than `ms` after its start, plus a part of `jitter_ms` that `seed`, the rank and the operation's number decide.
#include <tessera/sdk/random.h>
#include <tessera/sdk/wrapped.h>

#include <chrono>
#include <thread>

using namespace tessera::sdk;
using Clock = std::chrono::steady_clock;

struct Delay {
  double ms, jitter_ms;
  uint64_t seed;
};

class Late : public WrappedGroup {
 public:
  Late(InnerGroup inner, const Delay& delay) : WrappedGroup(std::move(inner)), delay_(delay) {}
  std::unique_ptr<Group> wrap(InnerGroup inner) const override {
    return std::make_unique<Late>(std::move(inner), delay_);
  }

  Work* all_to_all_v(const DLTensor& send, Counts out, const DLTensor& recv, Counts in,
                     const CollectiveCall& call) override {
    const auto end = next_end();
    return late(inner().all_to_all_v(send, out, recv, in, call), end);
  }
  Work* all_reduce(const DLTensor& inout, int32_t op, const CollectiveCall& call) override {
    const auto end = next_end();
    return late(inner().all_reduce(inout, op, call), end);
  }
  Work* reduce_scatter_v(const DLTensor& send, Counts counts, const DLTensor& recv, int32_t op,
                         const CollectiveCall& call) override {
    const auto end = next_end();
    return late(inner().reduce_scatter_v(send, counts, recv, op, call), end);
  }
  Work* all_gather_v(const DLTensor& send, const DLTensor& recv, Counts counts, const CollectiveCall& call) override {
    const auto end = next_end();
    return late(inner().all_gather_v(send, recv, counts, call), end);
  }
  Work* broadcast(const DLTensor& inout, int32_t root, const CollectiveCall& call) override {
    const auto end = next_end();
    return late(inner().broadcast(inout, root, call), end);
  }
  Work* barrier(const CollectiveCall& call) override {
    const auto end = next_end();
    return late(inner().barrier(call), end);
  }

 private:
  Work* late(tsr_work* work, Clock::time_point end) const {
    return then(work, [end] { std::this_thread::sleep_until(end); });
  }
  Clock::time_point next_end() {
    const uint64_t key = ++number_ + (static_cast<uint64_t>(rank()) << 40);
    const double ms = delay_.ms + delay_.jitter_ms * Random(delay_.seed + kGoldenStep * (key - 1)).uniform();
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(ms));
  }

  Delay delay_;
  uint64_t number_ = 0;  // of operations that started
};

class Wrapper : public WrappedCollective {
 public:
  explicit Wrapper(const Setup& setup)
      : WrappedCollective(setup, "outside.delay"),
        delay_{milliseconds(setup.options, "ms", 1), milliseconds(setup.options, "jitter_ms", 0),
               static_cast<uint64_t>(setup.options.integer("seed", 1))} {}
  std::unique_ptr<Group> wrap(InnerGroup inner) const override {
    return std::make_unique<Late>(std::move(inner), delay_);
  }

 private:
  static double milliseconds(Options& options, const char* key, double otherwise) {
    const double ms = options.number(key, otherwise);
    if (!(ms >= 0 && ms <= 1000)) fail(TSR_INVALID_ARGUMENT, "option \"", key, "\" is ", ms, ", but must be 0 to 1000");
    return ms;
  }
  Delay delay_;
};

TESSERA_PLUGIN("delay", "1.0.0",
               component<Wrapper>({.id = "outside.delay", .version = "1", .about = "operations that end later"}));
