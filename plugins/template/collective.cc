// acme.through: a transport around another one, "acme.through(tcp)", which it hands every operation on to. The frame of
// a codec (change what is sent before the inner operation starts, and what arrived after its wait) or of a tracer.
#include <tessera/sdk/collective.h>

using namespace tessera::sdk;

// An operation of the inner transport.
class Inner : public Work {
 public:
  Inner(const tsr_collective& api, tsr_work* raw) : api_(api), raw_(raw) {}
  void wait() override {
    Call call;
    call.check(api_.wait(raw_, call.err()));  // what arrived is there from here on
  }

 private:
  const tsr_collective& api_;
  tsr_work* raw_;
};

class Through : public Group {
 public:
  Through(const tsr_collective& api, tsr_group* raw) : api_(api), raw_(raw) {}
  ~Through() override { api_.close(raw_); }
  int32_t rank() const override { return api_.rank(raw_); }
  int32_t world_size() const override { return api_.world_size(raw_); }
  std::unique_ptr<Group> split(int32_t color) override {
    tsr_group* child = nullptr;
    Call call;
    call.check(api_.split(raw_, color, &child, call.err()));
    return child == nullptr ? nullptr : std::make_unique<Through>(api_, child);
  }

  Work* all_to_all_v(const DLTensor& send, Counts out, const DLTensor& recv, Counts in,
                     const CollectiveCall& how) override {
    return start([&](tsr_work** work, tsr_error* err) {
      return api_.all_to_all_v(raw_, &send, out.data(), &recv, in.data(), &how, work, err);
    });
  }
  Work* all_reduce(const DLTensor& inout, int32_t op, const CollectiveCall& how) override {
    return start([&](tsr_work** work, tsr_error* err) { return api_.all_reduce(raw_, &inout, op, &how, work, err); });
  }
  Work* reduce_scatter_v(const DLTensor& send, Counts counts, const DLTensor& recv, int32_t op,
                         const CollectiveCall& how) override {
    return start([&](tsr_work** work, tsr_error* err) {
      return api_.reduce_scatter_v(raw_, &send, counts.data(), &recv, op, &how, work, err);
    });
  }
  Work* all_gather_v(const DLTensor& send, const DLTensor& recv, Counts counts, const CollectiveCall& how) override {
    return start([&](tsr_work** work, tsr_error* err) {
      return api_.all_gather_v(raw_, &send, &recv, counts.data(), &how, work, err);
    });
  }
  Work* broadcast(const DLTensor& inout, int32_t root, const CollectiveCall& how) override {
    return start([&](tsr_work** work, tsr_error* err) { return api_.broadcast(raw_, &inout, root, &how, work, err); });
  }
  Work* barrier(const CollectiveCall& how) override {
    return start([&](tsr_work** work, tsr_error* err) { return api_.barrier(raw_, &how, work, err); });
  }
  void abort(const char* reason) noexcept override { api_.abort(raw_, reason); }
  uint64_t bytes_sent() const override {
    return TSR_HAS(tsr_collective, &api_, bytes_sent) ? api_.bytes_sent(raw_) : 0;
  }
  int32_t host_of(int32_t rank) const override {
    return TSR_HAS(tsr_collective, &api_, host_of) ? api_.host_of(raw_, rank) : -1;
  }

 private:
  template <class Start>
  Work* start(Start&& begin) {
    tsr_work* work = nullptr;
    Call call;
    call.check(begin(&work, call.err()));
    return new Inner(api_, work);
  }
  const tsr_collective& api_;
  tsr_group* raw_;
};

class Wrapper : public Collective {
 public:
  static constexpr uint32_t kCapabilities = TSR_COLLECTIVE_HOST_MEMORY_ONLY | TSR_COLLECTIVE_WRAPS;
  explicit Wrapper(const Setup& setup) : inner_(setup.inner) {
    if (inner_ == nullptr) fail(TSR_INVALID_ARGUMENT, "acme.through wraps a transport: acme.through(tcp)");
  }
  std::unique_ptr<Group> connect(const tsr_rendezvous& where) override {
    const auto& api = *static_cast<const tsr_collective*>(inner_->component->api);
    tsr_group* group = nullptr;
    Call call;
    call.check(api.connect(inner_->self, &where, &group, call.err()));
    return std::make_unique<Through>(api, group);
  }

 private:
  const tsr_part* inner_;  // outlives this object
};

TESSERA_PLUGIN("acme-through", "1.0.0",
               component<Wrapper>({.id = "acme.through", .version = "1.0.0", .about = "hands everything on"}));
