// tessera/sdk/collective.h - base classes of a transport: Collective connects, Group exchanges, Work is one operation.
//
// abi/collective.h is the specification. Transports that move bytes between pairs of ranks have their operations from
// sdk/pairwise.h. A class C : Collective may say
//   static constexpr uint32_t kCapabilities = TSR_COLLECTIVE_HOST_MEMORY_ONLY;
//   static constexpr int32_t kDeviceTypes[] = {kDLCUDA, 0};
// otherwise it has none.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "tessera/abi/collective.h"
#include "tessera/sdk/plugin.h"
#include "tessera/sdk/tensor.h"

namespace tessera::sdk {

// One operation in flight.
class Work {
 public:
  virtual ~Work() = default;
  virtual void wait() = 0;  // throws Failure when the operation failed
  // After wait(), whatever it did. Override to keep the object for the next operation.
  virtual void recycle() noexcept { delete this; }
};

using CollectiveCall = tsr_collective_call;  // stream, timeout_s, label
using Counts = std::span<const int64_t>;     // one per rank

// The destructor closes: it says goodbye to the peers. Operations return a Work that recycle()s itself; never NULL.
class Group {
 public:
  virtual ~Group() = default;
  virtual int32_t rank() const = 0;
  virtual int32_t world_size() const = 0;
  virtual std::unique_ptr<Group> split(int32_t color) = 0;  // null for color -1
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
  // Equal for ranks that share a machine; -1: not known.
  virtual int32_t host_of([[maybe_unused]] int32_t rank) const { return -1; }
};

class Collective {
 public:
  virtual ~Collective() = default;
  virtual std::unique_ptr<Group> connect(const tsr_rendezvous& where) = 0;  // never null

  static constexpr const char* kKind = TSR_COLLECTIVE_KIND;
  static constexpr uint32_t kCapabilities = 0;
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
  // Every operation: start it, hand its work out.
  template <class Start>
  static tsr_code started(tsr_work** work, tsr_error* err, Start&& start) noexcept {
    return guard(err, [&] { *work = reinterpret_cast<tsr_work*>(there(static_cast<Work*>(start()), "an operation")); });
  }

  template <class C>
  static tsr_code connect_slot(void* self, const tsr_rendezvous* where, tsr_group** group, tsr_error* err) noexcept {
    return guard(err, [&] {
      *group = reinterpret_cast<tsr_group*>(there(static_cast<C*>(self)->connect(*where).release(), "connect()"));
    });
  }
  static tsr_code split_slot(tsr_group* g, int32_t color, tsr_group** child, tsr_error* err) noexcept {
    return guard(err, [&] {
      Group* made = of(g).split(color).release();
      *child = reinterpret_cast<tsr_group*>(color < 0 ? made : there(made, "split()"));
    });
  }
  static int32_t rank_slot(const tsr_group* g) noexcept { return of(g).rank(); }
  static int32_t world_size_slot(const tsr_group* g) noexcept { return of(g).world_size(); }
  static tsr_code all_to_all_v_slot(tsr_group* g, const DLTensor* send, const int64_t* send_counts,
                                    const DLTensor* recv, const int64_t* recv_counts, const tsr_collective_call* call,
                                    tsr_work** work, tsr_error* err) noexcept {
    return started(work, err, [&] {
      return of(g).all_to_all_v(*send, counts_of(g, send_counts), *recv, counts_of(g, recv_counts), *call);
    });
  }
  static tsr_code all_reduce_slot(tsr_group* g, const DLTensor* inout, int32_t op, const tsr_collective_call* call,
                                  tsr_work** work, tsr_error* err) noexcept {
    return started(work, err, [&] { return of(g).all_reduce(*inout, op, *call); });
  }
  static tsr_code reduce_scatter_v_slot(tsr_group* g, const DLTensor* send, const int64_t* counts, const DLTensor* recv,
                                        int32_t op, const tsr_collective_call* call, tsr_work** work,
                                        tsr_error* err) noexcept {
    return started(work, err, [&] { return of(g).reduce_scatter_v(*send, counts_of(g, counts), *recv, op, *call); });
  }
  static tsr_code all_gather_v_slot(tsr_group* g, const DLTensor* send, const DLTensor* recv, const int64_t* counts,
                                    const tsr_collective_call* call, tsr_work** work, tsr_error* err) noexcept {
    return started(work, err, [&] { return of(g).all_gather_v(*send, *recv, counts_of(g, counts), *call); });
  }
  static tsr_code broadcast_slot(tsr_group* g, const DLTensor* inout, int32_t root, const tsr_collective_call* call,
                                 tsr_work** work, tsr_error* err) noexcept {
    return started(work, err, [&] { return of(g).broadcast(*inout, root, *call); });
  }
  static tsr_code barrier_slot(tsr_group* g, const tsr_collective_call* call, tsr_work** work,
                               tsr_error* err) noexcept {
    return started(work, err, [&] { return of(g).barrier(*call); });
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
  template <class C>
  static constexpr const int32_t* device_types_of() {
    if constexpr (requires { C::kDeviceTypes; }) {
      return C::kDeviceTypes;
    } else {
      return nullptr;
    }
  }
};

template <class C>
constexpr tsr_collective Collective::table = {sizeof(tsr_collective),
                                              C::kCapabilities,
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
                                              device_types_of<C>()};

}  // namespace tessera::sdk
