// SPDX-License-Identifier: Apache-2.0 OR MIT
// acme.through: a transport around another one, "acme.through(tcp)", which it hands every operation on to. The frame of
// a codec (change data before the inner operation starts, and after its wait) or of a tracer.
#include <tessera/sdk/wrapped.h>

using namespace tessera::sdk;

// Whatever is not overridden is handed on; here one operation, to show how.
class Through : public WrappedGroup {
 public:
  using WrappedGroup::WrappedGroup;
  std::unique_ptr<Group> wrap(InnerGroup inner) const override { return std::make_unique<Through>(std::move(inner)); }

  Work* all_to_all_v(const DLTensor& send, Counts out, const DLTensor& recv, Counts in,
                     const CollectiveCall& call) override {
    // call.flags has TSR_CALL_LOSSY if values may lose precision. The sent data do not change before the wait.
    return then(inner().all_to_all_v(send, out, recv, in, call), [] { /* what arrived is there from here on */ });
  }
};

class Wrapper : public WrappedCollective {
 public:
  explicit Wrapper(const Setup& setup) : WrappedCollective(setup, "acme.through") {}
  std::unique_ptr<Group> wrap(InnerGroup inner) const override { return std::make_unique<Through>(std::move(inner)); }
};

TESSERA_PLUGIN("acme-through", "1.0.0",
               component<Wrapper>({.id = "acme.through", .version = "1.0.0", .about = "hands everything on"}));
