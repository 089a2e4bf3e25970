// A transport that wraps another one and passes every operation on.
#include "tessera/sdk/wrapped.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <vector>

#include "faults.h"

namespace {

using namespace tessera::sdk;
using bad::has;

// Rounds to about float16's precision, 11 bits.
void coarsen(const DLTensor& t) {
  if (!holds<float>(t)) return;
  for (float& x : elements<float>(t)) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    bits &= 0xFFFFE000u;
    std::memcpy(&x, &bits, 4);
  }
}

void zero_last(const DLTensor& t) {
  const int64_t bytes = element_bytes(t);
  if (numel(t) > 1) std::memset(data_as<char>(t) + (numel(t) - 1) * bytes, 0, static_cast<size_t>(bytes));
}

// Puts the block of rank 1 before that of rank 0.
void reorder(const DLTensor& t, Counts counts) {
  if (counts.size() < 2) return;
  char* first = data_as<char>(t);
  const int64_t bytes = element_bytes(t);
  std::rotate(first, first + counts[0] * bytes, first + (counts[0] + counts[1]) * bytes);
}

// Exchanges the messages of ranks r and r + 1, which have one size, or copies the first one over the second.
void mix(const DLTensor& t, const std::vector<int64_t>& counts, size_t r, bool swaps) {
  const int64_t bytes = element_bytes(t), size = counts[r] * bytes;
  char* first = data_as<char>(t);
  for (size_t i = 0; i < r; ++i) first += counts[i] * bytes;
  if (swaps) {
    std::swap_ranges(first, first + size, first + size);
  } else {
    std::copy_n(first, size, first + size);
  }
}

class Through : public WrappedGroup {
 public:
  using WrappedGroup::WrappedGroup;
  std::unique_ptr<Group> wrap(InnerGroup inner) const override { return std::make_unique<Through>(std::move(inner)); }
  std::unique_ptr<Group> split(int32_t color, int32_t key, const CollectiveCall& call) override {
    const bool one = has("splits_into_one") && color >= 0;
    return WrappedGroup::split(one ? 0 : color, has("ignores_the_key") ? 0 : key, call);
  }
  Work* all_to_all_v(const DLTensor& send, Counts out, const DLTensor& recv, Counts in,
                     const CollectiveCall& given) override {
    CollectiveCall how = given;
    if (has("forgets_the_deadline")) how.timeout_s = 0;
    if (has("forgets_the_label")) how.label = nullptr;
    if (has("waits_out_of_order")) {
      Work* const first = then(inner().all_to_all_v(send, out, recv, in, how));
      then(inner().barrier(how))->wait();
      return first;
    }
    if (has("sends_twice")) then(inner().all_to_all_v(send, out, recv, in, how))->wait();
    const bool swaps = has("swaps_equal_messages") || (has("swaps_once_in_a_thousand") && ++calls_ % 1000 == 0);
    if (has("duplicates_a_message") || swaps) {
      for (size_t r = 0; r + 1 < in.size(); ++r) {
        if (in[r] == 0 || in[r] != in[r + 1]) continue;
        return after(
            inner().all_to_all_v(send, out, recv, in, how),
            [to = DLTensor(recv), counts = std::vector(in.begin(), in.end()), r, swaps] { mix(to, counts, r, swaps); });
      }
    }
    return after(inner().all_to_all_v(send, out, recv, in, how),
                 [to = DLTensor(recv), from = DLTensor(send), counts = std::vector(in.begin(), in.end()),
                  size = numel(recv), backward = (how.flags & TSR_CALL_BACKWARD) != 0]() mutable {
                   if (has("changes_what_it_sends") && numel(from) > 0) *data_as<char>(from) ^= 1;
                   if (has("rounds_gradients") && backward) coarsen(to);
                   to.shape = &size;
                   to.ndim = 1;
                   if (has("reorders")) reorder(to, counts);
                   if (has("loses_the_last_element")) zero_last(to);
                   if (has("loses_precision")) coarsen(to);
                 });
  }
  Work* all_reduce(const DLTensor& inout, int32_t op, const CollectiveCall& how) override {
    return after(inner().all_reduce(inout, has("only_sums") ? int32_t{TSR_REDUCE_SUM} : op, how),
                 [t = DLTensor(inout), size = numel(inout)]() mutable {
                   t.shape = &size;
                   t.ndim = 1;
                   if (!has("rounds_doubles") || !holds<double>(t)) return;
                   for (double& x : elements<double>(t)) x = static_cast<float>(x);
                 });
  }
  Work* broadcast(const DLTensor& inout, int32_t root, const CollectiveCall& how) override {
    return after(inner().broadcast(inout, has("has_one_root") ? 0 : root, how));
  }
  Work* barrier(const CollectiveCall& how) override {
    if (has("skips_barriers")) return new Nothing;
    if (has("leaves_a_thread_in_use") && ++calls_ == 1) std::thread([] { pause(); }).detach();
    CollectiveCall patient = how;
    if (has("ignores_deadlines")) patient.timeout_s = 100;
    return after(inner().barrier(patient));
  }
  void abort(const char* reason) noexcept override {
    if (!has("ignores_abort")) inner().abort(reason);
  }
  void status() const override {
    if (!has("forgets_its_failure")) inner().status();
  }

 private:
  class Nothing : public Work {
    void wait() override {}
  };
  class Swallowing : public Work {
   public:
    Swallowing(const InnerGroup& group, tsr_work* work) : group_(group), work_(work) {}
    void wait() override {
      Call dropped;
      (void)group_.api().wait(work_, dropped.err());
    }

   private:
    const InnerGroup& group_;
    tsr_work* work_;
  };
  class Blameless : public Work {
   public:
    Blameless(const InnerGroup& group, tsr_work* work) : group_(group), work_(work) {}
    void wait() override {
      try {
        group_.wait(work_);
      } catch (const Failure& failure) {
        throw Failure(failure.code(), failure.what());
      }
    }

   private:
    const InnerGroup& group_;
    tsr_work* work_;
  };
  Work* after(tsr_work* work, std::function<void()> then_do = nullptr) const {
    if (has("blames_nobody")) return new Blameless(inner(), work);
    if (has("swallows_errors")) return new Swallowing(inner(), work);
    return then(work, std::move(then_do));
  }
  int64_t calls_ = 0;
};

// Starts operations whatever their flags are; the SDK itself refuses unknown ones.
tsr_code barrier_whatever_the_flags(tsr_group* group, const tsr_collective_call* call, tsr_work** work, tsr_error* err);

class BadPlugins : public WrappedCollective {
 public:
  explicit BadPlugins(const Setup& setup) : WrappedCollective(setup, "bad.through") {}
  std::unique_ptr<Group> wrap(InnerGroup inner) const override { return std::make_unique<Through>(std::move(inner)); }
  CollectiveInfo describe() const override {
    CollectiveInfo info = WrappedCollective::describe();
    static constexpr int32_t kEmulated[] = {kDLExtDev, 0};
    static constexpr DLDataType kMore[] = {dtype_of<float>(), dtype_of<double>(), dtype_of<int32_t>(),
                                           dtype_of<int64_t>(), dtype_of<uint8_t>()};
    if (has("describes_nothing")) info.reducible = {};
    if (has("says_it_knows_devices")) info.device_types = kEmulated;
    if (has("says_it_adds_bytes")) info.reducible = kMore;
    return info;
  }
  int64_t wire_bytes(DLDataType dtype, int64_t elements, int64_t row_elements, uint32_t flags) const noexcept override {
    if (has("counts_backwards")) return 1000000 - elements;
    return WrappedCollective::wire_bytes(dtype, elements, row_elements, flags);
  }
};

tsr_code barrier_whatever_the_flags(tsr_group* group, const tsr_collective_call* call, tsr_work** work,
                                    tsr_error* err) {
  CollectiveCall known = read_struct(*call);
  if (has("ignores_flags")) known.flags = 0;
  return BadPlugins::table<BadPlugins>.barrier(group, &known, work, err);
}
tsr_collective with_faults() {
  tsr_collective table = BadPlugins::table<BadPlugins>;
  table.barrier = barrier_whatever_the_flags;
  return table;
}
const tsr_collective kTable = with_faults();
constexpr tsr_component through() {
  tsr_component c = component<BadPlugins>(
      {.id = "bad.through", .version = "1.0.0", .about = "has the fault that BAD_PLUGINS_FAULT names"});
  c.api = &kTable;
  return c;
}

}  // namespace

TESSERA_PLUGIN("bad-collectives", "1.0.0", through());
