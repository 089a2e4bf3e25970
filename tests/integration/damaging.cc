// test.damaging(tcp): the transport in brackets, but in one exchange one bit arrives changed. Options: the `rank` where
// it does; the `label` of the all-to-all; `exchange`, which of those in a group, counted from 0; `word`, the 32-bit
// word of what was received. With `crashes_in_close` the first group that is closed ends the process.
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string>

#include "tessera/sdk/collective.h"
#include "tessera/sdk/plugin.h"
#include "tessera/sdk/tensor.h"

namespace tessera::test {
namespace {

struct Damage {
  int32_t rank = 0;
  std::string label;
  int exchange = 0;
  size_t word = 0;
  bool crashes_in_close = false;
};

class DamagingGroup final : public sdk::Group {
 public:
  DamagingGroup(const tsr_collective& api, tsr_group* raw, const Damage& damage)
      : api_(api), raw_(raw), damage_(damage) {}
  ~DamagingGroup() override {
    if (damage_.crashes_in_close) std::raise(SIGSEGV);
    api_.close(raw_);
  }

  int32_t rank() const override { return api_.rank(raw_); }
  int32_t world_size() const override { return api_.world_size(raw_); }
  std::unique_ptr<sdk::Group> split(int32_t color) override {
    sdk::Call call;
    tsr_group* child = nullptr;
    call.check(api_.split(raw_, color, &child, call.err()));
    return child ? std::make_unique<DamagingGroup>(api_, child, damage_) : nullptr;
  }
  sdk::Work* all_to_all_v(const DLTensor& send, sdk::Counts send_counts, const DLTensor& recv, sdk::Counts recv_counts,
                          const sdk::CollectiveCall& call) override {
    const bool meant = rank() == damage_.rank && call.label != nullptr && damage_.label == call.label;
    char* word = meant && seen_++ == damage_.exchange ? sdk::data_as<char>(recv) + 4 * damage_.word : nullptr;
    return started(word, [&](tsr_work** work, tsr_error* err) {
      return api_.all_to_all_v(raw_, &send, send_counts.data(), &recv, recv_counts.data(), &call, work, err);
    });
  }
  sdk::Work* all_reduce(const DLTensor& inout, int32_t op, const sdk::CollectiveCall& call) override {
    return started(
        nullptr, [&](tsr_work** work, tsr_error* err) { return api_.all_reduce(raw_, &inout, op, &call, work, err); });
  }
  sdk::Work* reduce_scatter_v(const DLTensor& send, sdk::Counts counts, const DLTensor& recv, int32_t op,
                              const sdk::CollectiveCall& call) override {
    return started(nullptr, [&](tsr_work** work, tsr_error* err) {
      return api_.reduce_scatter_v(raw_, &send, counts.data(), &recv, op, &call, work, err);
    });
  }
  sdk::Work* all_gather_v(const DLTensor& send, const DLTensor& recv, sdk::Counts counts,
                          const sdk::CollectiveCall& call) override {
    return started(nullptr, [&](tsr_work** work, tsr_error* err) {
      return api_.all_gather_v(raw_, &send, &recv, counts.data(), &call, work, err);
    });
  }
  sdk::Work* broadcast(const DLTensor& inout, int32_t root, const sdk::CollectiveCall& call) override {
    return started(
        nullptr, [&](tsr_work** work, tsr_error* err) { return api_.broadcast(raw_, &inout, root, &call, work, err); });
  }
  sdk::Work* barrier(const sdk::CollectiveCall& call) override {
    return started(nullptr, [&](tsr_work** work, tsr_error* err) { return api_.barrier(raw_, &call, work, err); });
  }
  void abort(const char* reason) noexcept override { api_.abort(raw_, reason); }
  uint64_t bytes_sent() const override { return api_.bytes_sent(raw_); }
  int32_t host_of(int32_t rank) const override { return api_.host_of(raw_, rank); }

 private:
  struct DamagedWork final : sdk::Work {
    const tsr_collective* api = nullptr;
    tsr_work* work = nullptr;
    char* word = nullptr;
    void wait() override {
      sdk::Call call;
      call.check(api->wait(work, call.err()));
      if (word) *word ^= 1;
    }
  };

  template <class Start>
  sdk::Work* started(char* word, const Start& start) {
    sdk::Call call;
    auto work = std::make_unique<DamagedWork>();
    work->api = &api_;
    work->word = word;
    call.check(start(&work->work, call.err()));
    return work.release();
  }

  const tsr_collective& api_;
  tsr_group* raw_;
  const Damage damage_;
  int seen_ = 0;
};

class Damaging final : public sdk::Collective {
 public:
  static constexpr uint32_t kCapabilities = TSR_COLLECTIVE_WRAPS | TSR_COLLECTIVE_HOST_MEMORY_ONLY;

  explicit Damaging(const sdk::Setup& setup) : inner_(*setup.inner) {
    damage_.rank = static_cast<int32_t>(setup.options.number("rank", 0));
    damage_.label = setup.options.string("label", "");
    damage_.exchange = static_cast<int>(setup.options.number("exchange", 0));
    damage_.word = static_cast<size_t>(setup.options.number("word", 0));
    damage_.crashes_in_close = setup.options.flag("crashes_in_close", false);
  }
  std::unique_ptr<sdk::Group> connect(const tsr_rendezvous& where) override {
    const auto& api = *static_cast<const tsr_collective*>(inner_.component->api);
    sdk::Call call;
    tsr_group* group = nullptr;
    call.check(api.connect(inner_.self, &where, &group, call.err()));
    return std::make_unique<DamagingGroup>(api, group, damage_);
  }

 private:
  const tsr_part& inner_;
  Damage damage_;
};

}  // namespace
}  // namespace tessera::test

TESSERA_PLUGIN("test.damaging", "0.1.0",
               tessera::sdk::component<tessera::test::Damaging>(
                   {.id = "test.damaging", .version = "0.1.0", .about = "a bit that flips", .priority = -100}));
