// test.damaging(tcp): wraps the transport in brackets and changes one bit that arrives in one exchange. Options:
// `rank`, the rank where this happens; `label` of the all-to-all; `exchange`, which of those in a group, counted from
// 0; `word`, the 32-bit word of the received data. With `crashes_in_close`, the first group that is closed ends the
// process.
#include <csignal>
#include <cstdint>
#include <string>

#include "tessera/sdk/wrapped.h"

namespace tessera::test {
namespace {

struct Damage {
  int32_t rank = 0;
  std::string label;
  int exchange = 0;
  size_t word = 0;
  bool crashes_in_close = false;
};

class DamagingGroup final : public sdk::WrappedGroup {
 public:
  DamagingGroup(sdk::InnerGroup inner, const Damage& damage) : WrappedGroup(std::move(inner)), damage_(damage) {}
  ~DamagingGroup() override {
    if (damage_.crashes_in_close) std::raise(SIGSEGV);
  }

  std::unique_ptr<sdk::Group> wrap(sdk::InnerGroup inner) const override {
    return std::make_unique<DamagingGroup>(std::move(inner), damage_);
  }
  sdk::Work* all_to_all_v(const DLTensor& send, sdk::Counts send_counts, const DLTensor& recv, sdk::Counts recv_counts,
                          const sdk::CollectiveCall& call) override {
    const bool meant = rank() == damage_.rank && call.label != nullptr && damage_.label == call.label;
    char* word = meant && seen_++ == damage_.exchange ? sdk::data_as<char>(recv) + 4 * damage_.word : nullptr;
    return then(inner().all_to_all_v(send, send_counts, recv, recv_counts, call), [word] {
      if (word) *word ^= 1;
    });
  }

 private:
  const Damage damage_;
  int seen_ = 0;
};

class Damaging final : public sdk::WrappedCollective {
 public:
  explicit Damaging(const sdk::Setup& setup) : WrappedCollective(setup, "test.damaging") {
    damage_.rank = static_cast<int32_t>(setup.options.number("rank", 0));
    damage_.label = setup.options.string("label", "");
    damage_.exchange = static_cast<int>(setup.options.number("exchange", 0));
    damage_.word = static_cast<size_t>(setup.options.number("word", 0));
    damage_.crashes_in_close = setup.options.flag("crashes_in_close", false);
  }
  std::unique_ptr<sdk::Group> wrap(sdk::InnerGroup inner) const override {
    return std::make_unique<DamagingGroup>(std::move(inner), damage_);
  }

 private:
  Damage damage_;
};

}  // namespace
}  // namespace tessera::test

TESSERA_PLUGIN("test.damaging", "0.1.0",
               tessera::sdk::component<tessera::test::Damaging>(
                   {.id = "test.damaging", .version = "0.1.0", .about = "a bit that flips", .priority = -100}));
