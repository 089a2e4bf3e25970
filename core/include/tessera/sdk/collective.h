// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/collective.h - base classes of a transport: Collective connects, Group exchanges, Work is one operation.
//
// abi/collective.h is the specification. Transports that move bytes between pairs of ranks get their operations from
// sdk/pairwise.h. Transports that work through another one (codecs, tracers) start from sdk/wrapped.h. A class C :
// Collective may declare
//   static constexpr uint32_t kFlags = TSR_COLLECTIVE_LAUNCHES;
// Otherwise its table has none. It overrides describe() if it can do more than every transport must.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "tessera/abi/collective.h"
#include "tessera/sdk/plugin.h"
#include "tessera/sdk/structs.h"
#include "tessera/sdk/tensor.h"

namespace tessera::sdk {
inline namespace v1 {

// One operation in flight.
class Work {
 public:
  virtual ~Work() = default;
  virtual void wait() = 0;  // throws Failure if the operation failed
  // Called after wait(), even if that failed. Override it to keep the object for the next operation.
  virtual void recycle() noexcept { delete this; }
};

using CollectiveCall = tsr_collective_call;  // flags, stream, timeout_s, label, site, row_elements
using Counts = std::span<const int64_t>;     // one per rank

// A call with only a label and a timeout (0: the group's default).
inline CollectiveCall named_call(const char* label, double timeout_s = 0) {
  CollectiveCall call{};
  call.struct_size = sizeof(call);
  call.timeout_s = timeout_s;
  call.label = label;
  return call;
}

// The abilities of an object (tsr_collective_info). All spans must outlive it.
struct CollectiveInfo {
  static constexpr DLDataType kLeast[] = {dtype_of<float>(), dtype_of<double>(), dtype_of<int32_t>(),
                                          dtype_of<int64_t>()};
  const int32_t* device_types = nullptr;           // 0-terminated; null: host memory only
  std::span<const DLDataType> reducible = kLeast;  // types that reductions take
};

// The destructor closes the group and says goodbye to the peers. Operations return a Work, never NULL, which frees
// itself in recycle().
class Group {
 public:
  virtual ~Group() = default;
  virtual int32_t rank() const = 0;
  virtual int32_t world_size() const = 0;
  // Null for color -1. Ranks of the new group are ordered by `key`, then by rank().
  virtual std::unique_ptr<Group> split(int32_t color, int32_t key, const CollectiveCall& call) = 0;
  virtual Work* all_to_all_v(const DLTensor& send, Counts send_counts, const DLTensor& recv, Counts recv_counts,
                             const CollectiveCall& call) = 0;
  virtual Work* all_reduce(const DLTensor& inout, int32_t op, const CollectiveCall& call) = 0;
  virtual Work* reduce_scatter_v(const DLTensor& send, Counts counts, const DLTensor& recv, int32_t op,
                                 const CollectiveCall& call) = 0;
  virtual Work* all_gather_v(const DLTensor& send, const DLTensor& recv, Counts counts, const CollectiveCall& call) = 0;
  virtual Work* broadcast(const DLTensor& inout, int32_t root, const CollectiveCall& call) = 0;
  virtual Work* barrier(const CollectiveCall& call) = 0;
  virtual void abort(const char* reason) noexcept = 0;  // from any thread
  virtual uint64_t bytes_sent() const = 0;              // to other ranks, since connect; from any thread
  // Throws the Failure that poisoned the group, if there is one. [any-thread]
  virtual void status() const = 0;
  // Returns the same number for ranks that share a machine; -1: unknown.
  virtual int32_t host_of([[maybe_unused]] int32_t rank) const { return -1; }
  // Fills in how long this rank has waited for each one (abi/draft/waits.h); false: unknown. From any thread.
  virtual bool waited_s([[maybe_unused]] std::span<double> seconds) const { return false; }
};

class Collective {
 public:
  virtual ~Collective() = default;
  virtual CollectiveInfo describe() const { return {}; }
  virtual std::unique_ptr<Group> connect(const tsr_rendezvous& where) = 0;  // never null
  // Bytes that travel for `elements` elements between two ranks of an all_to_all_v.
  virtual int64_t wire_bytes(DLDataType dtype, int64_t elements, [[maybe_unused]] int64_t row_elements,
                             [[maybe_unused]] uint32_t flags) const noexcept {
    return elements * dtype.bits * dtype.lanes / 8;
  }

  static constexpr const char* kKind = TSR_COLLECTIVE_KIND;
  static constexpr uint32_t kFlags = 0;
  template <class C>
  static const tsr_collective table;

 private:
  static Group& of(tsr_group* g) { return *reinterpret_cast<Group*>(g); }
  static const Group& of(const tsr_group* g) { return *reinterpret_cast<const Group*>(g); }
  static Counts counts_of(tsr_group* g, const int64_t* counts) {
    return {counts, static_cast<size_t>(of(g).world_size())};
  }
  template <class T>
  static T* there(T* made, const char* by) {
    if (made == nullptr) fail(TSR_INTERNAL, by, " returned a null pointer: return an object, or throw Failure");
    return made;
  }
  // Copies a call at this side's length. Refuses a call with an unknown high flag.
  static CollectiveCall call_of(const tsr_collective_call* raw) {
    const CollectiveCall call = read_struct(*raw);
    check_flags(call.flags, 0, "the call");
    return call;
  }
  // Starts an operation and returns its work; all operations use it.
  template <class Start>
  static tsr_code started(const tsr_collective_call* call, tsr_work** work, tsr_error* err, Start&& start) noexcept {
    return guard(err, [&] {
      *work = reinterpret_cast<tsr_work*>(there(static_cast<Work*>(start(call_of(call))), "an operation"));
    });
  }

  template <class C>
  static tsr_code describe_slot(void* self, tsr_collective_info* out, tsr_error* err) noexcept {
    return guard(err, [&] {
      const CollectiveInfo said = static_cast<const C*>(self)->describe();
      tsr_collective_info info{};
      info.device_types = said.device_types;
      info.reducible = said.reducible.data();
      info.num_reducible = static_cast<uint32_t>(said.reducible.size());
      write_struct(info, out);
    });
  }
  template <class C>
  static tsr_code connect_slot(void* self, const tsr_rendezvous* where, tsr_group** group, tsr_error* err) noexcept {
    return guard(err, [&] {
      const tsr_rendezvous meeting = read_struct(*where);
      check_flags(meeting.flags, 0, "the rendezvous");
      *group = reinterpret_cast<tsr_group*>(there(static_cast<C*>(self)->connect(meeting).release(), "connect()"));
    });
  }
  static tsr_code split_slot(tsr_group* g, int32_t color, int32_t key, const tsr_collective_call* call,
                             tsr_group** child, tsr_error* err) noexcept {
    return guard(err, [&] {
      Group* made = of(g).split(color, key, call_of(call)).release();
      *child = reinterpret_cast<tsr_group*>(color < 0 ? made : there(made, "split()"));
    });
  }
  static int32_t rank_slot(const tsr_group* g) noexcept { return of(g).rank(); }
  static int32_t world_size_slot(const tsr_group* g) noexcept { return of(g).world_size(); }
  static tsr_code all_to_all_v_slot(tsr_group* g, const DLTensor* send, const int64_t* send_counts,
                                    const DLTensor* recv, const int64_t* recv_counts, const tsr_collective_call* call,
                                    tsr_work** work, tsr_error* err) noexcept {
    return started(call, work, err, [&](const CollectiveCall& how) {
      return of(g).all_to_all_v(*send, counts_of(g, send_counts), *recv, counts_of(g, recv_counts), how);
    });
  }
  static tsr_code all_reduce_slot(tsr_group* g, const DLTensor* inout, int32_t op, const tsr_collective_call* call,
                                  tsr_work** work, tsr_error* err) noexcept {
    return started(call, work, err, [&](const CollectiveCall& how) { return of(g).all_reduce(*inout, op, how); });
  }
  static tsr_code reduce_scatter_v_slot(tsr_group* g, const DLTensor* send, const int64_t* counts, const DLTensor* recv,
                                        int32_t op, const tsr_collective_call* call, tsr_work** work,
                                        tsr_error* err) noexcept {
    return started(call, work, err, [&](const CollectiveCall& how) {
      return of(g).reduce_scatter_v(*send, counts_of(g, counts), *recv, op, how);
    });
  }
  static tsr_code all_gather_v_slot(tsr_group* g, const DLTensor* send, const DLTensor* recv, const int64_t* counts,
                                    const tsr_collective_call* call, tsr_work** work, tsr_error* err) noexcept {
    return started(call, work, err, [&](const CollectiveCall& how) {
      return of(g).all_gather_v(*send, *recv, counts_of(g, counts), how);
    });
  }
  static tsr_code broadcast_slot(tsr_group* g, const DLTensor* inout, int32_t root, const tsr_collective_call* call,
                                 tsr_work** work, tsr_error* err) noexcept {
    return started(call, work, err, [&](const CollectiveCall& how) { return of(g).broadcast(*inout, root, how); });
  }
  static tsr_code barrier_slot(tsr_group* g, const tsr_collective_call* call, tsr_work** work,
                               tsr_error* err) noexcept {
    return started(call, work, err, [&](const CollectiveCall& how) { return of(g).barrier(how); });
  }
  static tsr_code wait_slot(tsr_work* work, tsr_error* err) noexcept {
    Work* w = reinterpret_cast<Work*>(work);
    const tsr_code code = guard(err, [&] { w->wait(); });
    w->recycle();
    return code;
  }
  static void abort_slot(tsr_group* g, const char* reason) noexcept { of(g).abort(reason); }
  static void close_slot(tsr_group* g) noexcept { delete reinterpret_cast<Group*>(g); }
  static uint64_t bytes_sent_slot(const tsr_group* g) noexcept { return of(g).bytes_sent(); }
  static int32_t host_of_slot(const tsr_group* g, int32_t rank) noexcept { return of(g).host_of(rank); }
  static tsr_code status_slot(const tsr_group* g, tsr_error* err) noexcept {
    return guard(err, [&] { of(g).status(); });
  }
  template <class C>
  static int64_t wire_bytes_slot(void* self, DLDataType dtype, int64_t elements, int64_t row_elements,
                                 uint32_t flags) noexcept {
    return static_cast<const C*>(self)->wire_bytes(dtype, elements, row_elements, flags);
  }
};

template <class C>
constexpr tsr_collective Collective::table = {sizeof(tsr_collective),
                                              C::kFlags,
                                              &describe_slot<C>,
                                              &connect_slot<C>,
                                              &split_slot,
                                              &rank_slot,
                                              &world_size_slot,
                                              &all_to_all_v_slot,
                                              &all_reduce_slot,
                                              &reduce_scatter_v_slot,
                                              &all_gather_v_slot,
                                              &broadcast_slot,
                                              &barrier_slot,
                                              &wait_slot,
                                              &abort_slot,
                                              &close_slot,
                                              &bytes_sent_slot,
                                              &host_of_slot,
                                              &status_slot,
                                              &wire_bytes_slot<C>};

}  // namespace v1
}  // namespace tessera::sdk
