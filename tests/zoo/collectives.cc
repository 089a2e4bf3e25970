// A transport around another one, which it hands every operation on to.
#include "tessera/sdk/collective.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "faults.h"

namespace {

using namespace tessera::sdk;
using zoo::has;

class Inner : public Work {
 public:
  Inner(const tsr_collective& api, tsr_work* raw, std::function<void()> after)
      : api_(api), raw_(raw), after_(std::move(after)) {}
  void wait() override {
    Call call;
    const tsr_code code = api_.wait(raw_, call.err());
    if (!has("swallows_errors")) call.check(code);
    after_();
  }

 private:
  const tsr_collective& api_;
  tsr_work* raw_;
  std::function<void()> after_;
};

// What arrives as float16 would, roughly: with 11 bits.
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

// The piece of rank 1 in front of that of rank 0.
void reorder(const DLTensor& t, Counts counts) {
  if (counts.size() < 2) return;
  char* first = data_as<char>(t);
  const int64_t bytes = element_bytes(t);
  std::rotate(first, first + counts[0] * bytes, first + (counts[0] + counts[1]) * bytes);
}

class Through : public Group {
 public:
  Through(const tsr_collective& api, tsr_group* raw) : api_(api), raw_(raw) {}
  ~Through() override { api_.close(raw_); }
  int32_t rank() const override { return api_.rank(raw_); }
  int32_t world_size() const override { return api_.world_size(raw_); }
  std::unique_ptr<Group> split(int32_t color) override {
    tsr_group* child = nullptr;
    Call call;
    call.check(api_.split(raw_, has("splits_into_one") && color >= 0 ? 0 : color, &child, call.err()));
    return child == nullptr ? nullptr : std::make_unique<Through>(api_, child);
  }
  Work* all_to_all_v(const DLTensor& send, Counts out, const DLTensor& recv, Counts in,
                     const CollectiveCall& how) override {
    return start([&](tsr_work** w,
                     tsr_error* e) { return api_.all_to_all_v(raw_, &send, out.data(), &recv, in.data(), &how, w, e); },
                 [to = DLTensor(recv), counts = std::vector(in.begin(), in.end()), size = numel(recv)]() mutable {
                   to.shape = &size;
                   to.ndim = 1;
                   if (has("reorders")) reorder(to, counts);
                   if (has("loses_the_last_element")) zero_last(to);
                   if (has("loses_precision")) coarsen(to);
                 });
  }
  Work* all_reduce(const DLTensor& inout, int32_t op, const CollectiveCall& how) override {
    const int32_t asked = has("only_sums") ? int32_t{TSR_REDUCE_SUM} : op;
    return start([&](tsr_work** w, tsr_error* e) { return api_.all_reduce(raw_, &inout, asked, &how, w, e); });
  }
  Work* reduce_scatter_v(const DLTensor& send, Counts counts, const DLTensor& recv, int32_t op,
                         const CollectiveCall& how) override {
    return start([&](tsr_work** w, tsr_error* e) {
      return api_.reduce_scatter_v(raw_, &send, counts.data(), &recv, op, &how, w, e);
    });
  }
  Work* all_gather_v(const DLTensor& send, const DLTensor& recv, Counts counts, const CollectiveCall& how) override {
    return start(
        [&](tsr_work** w, tsr_error* e) { return api_.all_gather_v(raw_, &send, &recv, counts.data(), &how, w, e); });
  }
  Work* broadcast(const DLTensor& inout, int32_t root, const CollectiveCall& how) override {
    const int32_t from = has("has_one_root") ? 0 : root;
    return start([&](tsr_work** w, tsr_error* e) { return api_.broadcast(raw_, &inout, from, &how, w, e); });
  }
  Work* barrier(const CollectiveCall& how) override {
    tsr_collective_call patient = how;
    if (has("ignores_deadlines")) patient.timeout_s = 100;
    return start([&](tsr_work** w, tsr_error* e) { return api_.barrier(raw_, &patient, w, e); });
  }
  void abort(const char* reason) noexcept override {
    if (!has("ignores_abort")) api_.abort(raw_, reason);
  }
  uint64_t bytes_sent() const override { return api_.bytes_sent(raw_); }

 private:
  template <class Start>
  Work* start(
      Start&& begin, std::function<void()> after = [] {}) {
    tsr_work* work = nullptr;
    Call call;
    call.check(begin(&work, call.err()));
    return new Inner(api_, work, std::move(after));
  }
  const tsr_collective& api_;
  tsr_group* raw_;
};

class Zoo : public Collective {
 public:
  static constexpr uint32_t kCapabilities = TSR_COLLECTIVE_HOST_MEMORY_ONLY | TSR_COLLECTIVE_WRAPS;
  explicit Zoo(const Setup& setup) : inner_(setup.inner) {
    if (inner_ == nullptr) fail(TSR_INVALID_ARGUMENT, "zoo.through wraps a transport: zoo.through(tcp)");
  }
  std::unique_ptr<Group> connect(const tsr_rendezvous& where) override {
    const auto& api = *static_cast<const tsr_collective*>(inner_->component->api);
    tsr_group* group = nullptr;
    Call call;
    call.check(api.connect(inner_->self, &where, &group, call.err()));
    return std::make_unique<Through>(api, group);
  }

 private:
  const tsr_part* inner_;
};

}  // namespace

TESSERA_PLUGIN(
    "zoo-collectives", "1.0.0",
    component<Zoo>({.id = "zoo.through", .version = "1.0.0", .about = "has the fault that ZOO_FAULT names"}));
