// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/wrapped.h - transports that work through another one, such as codecs and tracers.
//
// InnerGroup calls the wrapped transport: it is one of its groups in C++. WrappedGroup and WrappedCollective forward
// everything to it. A codec overrides the operations that it changes, and waits for them with then():
//
//   Work* all_to_all_v(const DLTensor& send, Counts out, const DLTensor& recv, Counts in,
//                      const CollectiveCall& call) override {
//     ... encode ...
//     return then(inner().all_to_all_v(encoded, sizes, arriving, expected, call), [=] { ... decode ... });
//   }
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "tessera/sdk/collective.h"
#include "tessera/sdk/draft/waits.h"

namespace tessera::sdk {
inline namespace v1 {

// A group of a transport that another plugin made, closed by the destructor. Every call throws Failure with that
// transport's message.
class InnerGroup {
 public:
  InnerGroup(const tsr_collective& api, tsr_group* raw, const tsr_collective_waits* waits = nullptr)
      : api_(&api), raw_(raw), waits_(waits) {}
  ~InnerGroup() {
    if (raw_ != nullptr) api_->close(raw_);
  }
  InnerGroup(InnerGroup&& other) noexcept
      : api_(other.api_), raw_(std::exchange(other.raw_, nullptr)), waits_(other.waits_) {}
  InnerGroup& operator=(InnerGroup&&) = delete;

  static InnerGroup connect(const tsr_instance& part, const tsr_rendezvous& where) {
    const auto& api = *static_cast<const tsr_collective*>(part.component->api);
    tsr_group* group = nullptr;
    Call call;
    call.check(api.connect(part.self, &where, &group, call.err()));
    return {api, group, waits_of(part)};
  }
  // The figures of the component's groups; NULL: it has none.
  static const tsr_collective_waits* waits_of(const tsr_instance& part) {
    return extension_of<tsr_collective_waits>(part, TSR_COLLECTIVE_WAITS);
  }
  // The result is empty (operator bool) for color -1.
  InnerGroup split(int32_t color, int32_t key, const CollectiveCall& how) const {
    tsr_group* child = nullptr;
    Call call;
    call.check(api_->split(raw_, color, key, &how, &child, call.err()));
    return {*api_, child, waits_};
  }
  explicit operator bool() const { return raw_ != nullptr; }

  int32_t rank() const { return api_->rank(raw_); }
  int32_t world_size() const { return api_->world_size(raw_); }
  void abort(const char* reason) const noexcept { api_->abort(raw_, reason); }
  uint64_t bytes_sent() const { return TSR_HAS(tsr_collective, api_, bytes_sent) ? api_->bytes_sent(raw_) : 0; }
  int32_t host_of(int32_t rank) const {
    return TSR_HAS(tsr_collective, api_, host_of) ? api_->host_of(raw_, rank) : -1;
  }
  bool waited_s(std::span<double> seconds) const {
    Call call;
    return waits_ != nullptr && TSR_HAS(tsr_collective_waits, waits_, waited) &&
           waits_->waited(raw_, seconds.data(), call.err()) == TSR_OK;
  }
  void status() const {
    Call call;
    if (TSR_HAS(tsr_collective, api_, status)) call.check(api_->status(raw_, call.err()));
  }

  // Each starts an operation, which wait() ends.
  tsr_work* all_to_all_v(const DLTensor& send, Counts send_counts, const DLTensor& recv, Counts recv_counts,
                         const CollectiveCall& how) const {
    return started([&](tsr_work** work, tsr_error* err) {
      return api_->all_to_all_v(raw_, &send, send_counts.data(), &recv, recv_counts.data(), &how, work, err);
    });
  }
  tsr_work* all_reduce(const DLTensor& inout, int32_t op, const CollectiveCall& how) const {
    return started(
        [&](tsr_work** work, tsr_error* err) { return api_->all_reduce(raw_, &inout, op, &how, work, err); });
  }
  tsr_work* reduce_scatter_v(const DLTensor& send, Counts counts, const DLTensor& recv, int32_t op,
                             const CollectiveCall& how) const {
    return started([&](tsr_work** work, tsr_error* err) {
      return api_->reduce_scatter_v(raw_, &send, counts.data(), &recv, op, &how, work, err);
    });
  }
  tsr_work* all_gather_v(const DLTensor& send, const DLTensor& recv, Counts counts, const CollectiveCall& how) const {
    return started([&](tsr_work** work, tsr_error* err) {
      return api_->all_gather_v(raw_, &send, &recv, counts.data(), &how, work, err);
    });
  }
  tsr_work* broadcast(const DLTensor& inout, int32_t root, const CollectiveCall& how) const {
    return started(
        [&](tsr_work** work, tsr_error* err) { return api_->broadcast(raw_, &inout, root, &how, work, err); });
  }
  tsr_work* barrier(const CollectiveCall& how) const {
    return started([&](tsr_work** work, tsr_error* err) { return api_->barrier(raw_, &how, work, err); });
  }
  void wait(tsr_work* work) const {
    Call call;
    call.check(api_->wait(work, call.err()));
  }
  const tsr_collective& api() const { return *api_; }

 private:
  template <class Start>
  static tsr_work* started(const Start& start) {
    tsr_work* work = nullptr;
    Call call;
    call.check(start(&work, call.err()));
    return work;
  }

  const tsr_collective* api_;
  tsr_group* raw_;
  const tsr_collective_waits* waits_;
};

class WrappedGroup : public Group {
 public:
  explicit WrappedGroup(InnerGroup inner) : inner_(std::move(inner)) {}
  // Makes this kind of group around another inner one, for split().
  virtual std::unique_ptr<Group> wrap(InnerGroup inner) const = 0;

  int32_t rank() const override { return inner_.rank(); }
  int32_t world_size() const override { return inner_.world_size(); }
  std::unique_ptr<Group> split(int32_t color, int32_t key, const CollectiveCall& call) override {
    InnerGroup child = inner_.split(color, key, call);
    return child ? wrap(std::move(child)) : nullptr;
  }
  Work* all_to_all_v(const DLTensor& send, Counts send_counts, const DLTensor& recv, Counts recv_counts,
                     const CollectiveCall& call) override {
    return then(inner_.all_to_all_v(send, send_counts, recv, recv_counts, call));
  }
  Work* all_reduce(const DLTensor& inout, int32_t op, const CollectiveCall& call) override {
    return then(inner_.all_reduce(inout, op, call));
  }
  Work* reduce_scatter_v(const DLTensor& send, Counts counts, const DLTensor& recv, int32_t op,
                         const CollectiveCall& call) override {
    return then(inner_.reduce_scatter_v(send, counts, recv, op, call));
  }
  Work* all_gather_v(const DLTensor& send, const DLTensor& recv, Counts counts, const CollectiveCall& call) override {
    return then(inner_.all_gather_v(send, recv, counts, call));
  }
  Work* broadcast(const DLTensor& inout, int32_t root, const CollectiveCall& call) override {
    return then(inner_.broadcast(inout, root, call));
  }
  Work* barrier(const CollectiveCall& call) override { return then(inner_.barrier(call)); }
  void abort(const char* reason) noexcept override { inner_.abort(reason); }
  uint64_t bytes_sent() const override { return inner_.bytes_sent(); }
  void status() const override { inner_.status(); }
  int32_t host_of(int32_t rank) const override { return inner_.host_of(rank); }
  bool waited_s(std::span<double> seconds) const override { return inner_.waited_s(seconds); }

 protected:
  const InnerGroup& inner() const { return inner_; }
  // The work of an operation of inner(): its wait() waits for that, and then calls `after` unless it failed.
  Work* then(tsr_work* work, std::function<void()> after = nullptr) const {
    try {
      return new InnerWork(inner_, work, std::move(after));
    } catch (...) {
      inner_.wait(work);
      throw;
    }
  }

 private:
  class InnerWork : public Work {
   public:
    InnerWork(const InnerGroup& group, tsr_work* work, std::function<void()> after)
        : group_(group), work_(work), after_(std::move(after)) {}
    void wait() override {
      group_.wait(work_);
      if (after_) after_();
    }

   private:
    const InnerGroup& group_;
    tsr_work* work_;
    std::function<void()> after_;
  };

  InnerGroup inner_;
};

class WrappedCollective : public Collective {
 public:
  static constexpr uint32_t kFlags = TSR_COLLECTIVE_WRAPS;
  // `id`: the component's id, for the error if there is no inner component.
  WrappedCollective(const Setup& setup, const char* id) : inner_(setup.inner) {
    if (inner_ == nullptr)
      fail(TSR_INVALID_ARGUMENT, id, " works through another transport: name it, as in ", id, "(tcp)");
    check_flags(api().flags, TSR_COLLECTIVE_WRAPS, inner_->component->id);
  }
  virtual std::unique_ptr<Group> wrap(InnerGroup inner) const = 0;

  // Returns the abilities of the inner transport, without flags, because this class knows none.
  CollectiveInfo describe() const override {
    tsr_collective_info info{};
    info.struct_size = sizeof(info);
    Call call;
    call.check(api().describe(inner_->self, &info, call.err()));
    check_flags(info.flags, 0, inner_->component->id);
    return {info.device_types, {info.reducible, info.num_reducible}};
  }
  int64_t wire_bytes(DLDataType dtype, int64_t elements, int64_t row_elements, uint32_t flags) const noexcept override {
    if (!TSR_HAS(tsr_collective, &api(), wire_bytes)) {
      return Collective::wire_bytes(dtype, elements, row_elements, flags);
    }
    return api().wire_bytes(inner_->self, dtype, elements, row_elements, flags);
  }
  std::unique_ptr<Group> connect(const tsr_rendezvous& where) override {
    return wrap(InnerGroup::connect(*inner_, where));
  }
  // It knows its waits if the inner transport does.
  const void* extension(std::string_view id) const {
    return InnerGroup::waits_of(*inner_) == nullptr ? nullptr : waits_extension(id);
  }

 protected:
  const tsr_instance& inner() const { return *inner_; }  // must outlive this

 private:
  const tsr_collective& api() const { return *static_cast<const tsr_collective*>(inner_->component->api); }
  const tsr_instance* inner_;
};

}  // namespace v1
}  // namespace tessera::sdk
