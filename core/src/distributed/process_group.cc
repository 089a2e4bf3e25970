#include "tessera/process_group.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>

#include "config/fnv1a.h"
#include "distributed/device_staging.h"
#include "distributed/hosts.h"
#include "tessera/abi/draft/waits.h"
#include "tessera/calls.h"
#include "tessera/sdk/random.h"
#include "tessera/sdk/sized.h"
#include "tessera/step_figures.h"

namespace tessera {

namespace {

const tsr_collective& api_of(const tsr_component& component) {
  return *static_cast<const tsr_collective*>(component.api);
}

// An operation that waits for other ranks has a deadline of its own, and reports its errors itself.
plugin::Asked waiting(const tsr_component* transport, const char* what) { return {transport, what, true}; }

}  // namespace

Work& Work::operator=(Work&& other) noexcept {
  const Work dropped(std::move(*this));
  transport_ = other.transport_;
  raw_ = std::exchange(other.raw_, nullptr);
  staged_ = std::exchange(other.staged_, nullptr);
  return *this;
}

Work::~Work() {
  if (!raw_) return;
  AbiError dropped;
  const plugin::CallScope call(waiting(transport_, "wait"));
  api_of(*transport_).wait(std::exchange(raw_, nullptr), dropped.out());
  if (staged_) staged_->drop();
}

void Work::wait() {
  if (!raw_) return;
  StagedExchange* staged = std::exchange(staged_, nullptr);
  AbiError err;
  const plugin::CallScope call(waiting(transport_, "wait"));
  const tsr_code code = api_of(*transport_).wait(std::exchange(raw_, nullptr), err.out());
  if (staged && code != TSR_OK) staged->drop();
  err.check(code);
  if (staged) staged->finish();
}

namespace {

tsr_collective_info described(const Component& part) {
  auto info = sdk::sized<tsr_collective_info>();
  AbiError err;
  const plugin::CallScope call({part.raw()->component, "describe"});
  err.check(part.api<tsr_collective>().describe(part.self(), &info, err.out()), part.id());
  if (info.flags & TSR_MUST_UNDERSTAND)
    fail(Code::kUnimplemented, "the transport \"", part.id(), "\" describes itself with flags ", info.flags,
         ", which this core does not know");
  return info;
}

bool exchanges(const tsr_collective_info& info, DeviceType wanted) {
  for (const int32_t* type = info.device_types; type != nullptr && *type != 0; ++type) {
    if (*type == static_cast<int32_t>(wanted)) return true;
  }
  return false;
}

// Returns, for "auto" on a device, the usable transport with the highest priority that exchanges its memory; "auto" if
// there is none.
std::string transport_id(const Runtime& runtime, const ProcessGroupOptions& options) {
  if (options.backend != "auto" || options.device == kCpu) return options.backend;
  const tsr_component* best = nullptr;
  std::string found = options.backend;
  for (const std::string& id : runtime.ids(TSR_COLLECTIVE_KIND)) {
    try {
      const tsr_component& component = runtime.component(TSR_COLLECTIVE_KIND, id);
      if (best && component.priority <= best->priority) continue;
      const ComponentPtr part = runtime.ask(TSR_COLLECTIVE_KIND, id);
      if (!exchanges(described(*part), options.device.type)) continue;
      best = &component;
      found = id;
    } catch (const Error&) {  // the load report says why
    }
  }
  return found;
}

ComponentPtr transport(const Runtime& runtime, const ProcessGroupOptions& options) {
  return runtime.create(TSR_COLLECTIVE_KIND, transport_id(runtime, options), options.options);
}

uint32_t flags_of(Carries carries, bool lossy_rows, bool lossy_gradients) {
  switch (carries) {
    case Carries::kIds:
      return TSR_CALL_FORWARD;
    case Carries::kRows:
      return TSR_CALL_FORWARD | (lossy_rows ? uint32_t{TSR_CALL_LOSSY} : 0);
    case Carries::kRowGradients:
      return TSR_CALL_BACKWARD | (lossy_gradients ? uint32_t{TSR_CALL_LOSSY} : 0);
    case Carries::kGradients:
      return TSR_CALL_BACKWARD;
    case Carries::kOther:
      break;
  }
  return 0;
}

int64_t sent_by(const Component& part, DType dtype, int64_t elements, int64_t row_elements, uint32_t flags) {
  const auto& api = part.api<tsr_collective>();
  if (!TSR_HAS(tsr_collective, &api, wire_bytes)) return elements * size_of(dtype);
  return api.wire_bytes(part.self(), to_dl(dtype), elements, row_elements, flags);
}

}  // namespace

WireBytes wire_bytes_of(const Runtime& runtime, const ProcessGroupOptions& options) {
  if (!options.lossy_rows && !options.lossy_gradients) return nullptr;
  try {
    return [part = transport(runtime, options), rows = options.lossy_rows, gradients = options.lossy_gradients](
               bool back, int64_t elements, int64_t row_elements) {
      const uint32_t flags = flags_of(back ? Carries::kRowGradients : Carries::kRows, rows, gradients);
      return sent_by(*part, DType::kFloat32, elements, row_elements, flags);
    };
  } catch (const Error&) {  // planning without MPI's launcher goes on without MPI
    return nullptr;
  }
}

struct ProcessGroup::Impl {
  ComponentPtr part;           // null for one rank
  tsr_group* group = nullptr;  // null for one rank
  int rank = 0, world = 1, local_rank = 0, local_world = 1;
  std::string backend;
  tsr_collective_info info{};
  bool lossy_rows = false, lossy_gradients = false;
  Joins joins;
  mutable std::mutex parts;                             // guards the groups below; abort() may come from any thread
  std::shared_ptr<ProcessGroup> in_host, across_hosts;  // null until first asked for
  DeviceStaging staging;

  const tsr_component* transport() const { return part->raw()->component; }
  const tsr_collective& api() const { return api_of(*transport()); }
  HostSides sides(const Tensor& send, const Tensor& recv, bool in_place = false) {
    const DeviceStream* stream = send.stream() ? send.stream() : recv.stream();
    if (!stream || exchanges(info, stream->device().type)) return {send, recv, nullptr};
    return staging.sides(send, recv, in_place);
  }
  uint32_t flags(Carries carries) const { return flags_of(carries, lossy_rows, lossy_gradients); }
  // `tensor` is one of those exchanged.
  tsr_collective_call call_at(const CallSite& site, const Tensor& tensor = {}) const;
  // Starts an operation of the transport. `args` come before the call in the operation's parameters.
  template <class Operation, class... Args>
  Work start(const char* what, Operation operation, const CallSite& site, const HostSides& sides, Args... args) const {
    const tsr_collective_call at = call_at(site, sides.recv);
    tsr_work* work = nullptr;
    AbiError err;
    const plugin::CallScope asked(waiting(transport(), what));
    err.check(operation(group, args..., &at, &work, err.out()));
    return {transport(), work, sides.staged};
  }
  ~Impl() {
    if (!group) return;
    const plugin::CallScope call({transport(), "close"});
    api().close(group);
  }
  void abort(const char* reason) const {
    if (!group) return;
    const plugin::CallScope call({transport(), "abort"});
    api().abort(group, reason);
  }
};

tsr_collective_call ProcessGroup::Impl::call_at(const CallSite& site, const Tensor& tensor) const {
  auto call = sdk::sized<tsr_collective_call>();
  call.flags = flags(site.carries);
  call.stream = tensor.stream() ? tensor.stream()->raw() : nullptr;
  call.label = site.label;
  if (site.label) call.site = fnv1a(site.label) ^ (site.place * sdk::kGoldenStep);
  call.row_elements = site.row_elements;
  return call;
}

namespace {

// Copies, because a single rank receives what it sends.
void copy(const Tensor& send, const Tensor& recv) {
  TESSERA_CHECK(send.bytes() <= recv.bytes(), "the receive buffer is too small");
  if (send.stream() || recv.stream()) {
    DeviceStream* stream = send.stream() ? send.stream() : recv.stream();
    if (send.raw() != recv.raw()) stream->copy(send, recv.reshape({-1}).narrow(0, send.numel()));
    return;
  }
  if (send.bytes() && send.raw() != recv.raw()) std::memcpy(recv.raw(), send.raw(), send.bytes());
}

void check_counts(std::span<const int64_t> counts, int world, const Tensor& tensor) {
  TESSERA_CHECK(static_cast<int>(counts.size()) == world, "one count per rank");
  TESSERA_CHECK(std::accumulate(counts.begin(), counts.end(), int64_t{0}) == tensor.numel(),
                "counts add up to the tensor");
}

}  // namespace

ProcessGroup::ProcessGroup(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ProcessGroup::~ProcessGroup() = default;

std::shared_ptr<ProcessGroup> ProcessGroup::connect(const Runtime& runtime, const RankEnvironment& where,
                                                    const ProcessGroupOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->rank = where.rank;
  impl->world = where.world_size;
  impl->local_rank = where.local_rank;
  impl->local_world = where.local_world_size;
  impl->backend = "local";
  impl->lossy_rows = options.lossy_rows;
  impl->lossy_gradients = options.lossy_gradients;
  impl->joins = options.joins();
  if (where.world_size > 1) {
    impl->part = transport(runtime, options);
    impl->backend = impl->part->id();
    impl->info = described(*impl->part);
    auto r = sdk::sized<tsr_rendezvous>();
    r.rank = where.rank;
    r.world_size = where.world_size;
    r.local_rank = where.local_rank;
    r.local_world_size = where.local_world_size;
    r.master_port = where.master_port;
    r.master_addr = where.master_addr.c_str();
    r.token = where.token.c_str();
    r.timeout_s = options.timeout_s;
    r.device = options.device.dl();
    AbiError err;
    const plugin::CallScope call(waiting(impl->transport(), "connect"));
    err.check(impl->api().connect(impl->part->self(), &r, &impl->group, err.out()));
    if (!impl->group) fail(Code::kInternal, impl->backend, ": connect returned TSR_OK, but no group");
  }
  std::shared_ptr<ProcessGroup> group(new ProcessGroup(std::move(impl)));
  group->find_hosts();
  return group;
}

void ProcessGroup::find_hosts() {
  int per_host = ranks_per_host(all_gather(HostClaim{impl_->local_rank, impl_->local_world}, "hosts"));
  if (per_host == 0) {
    const std::vector<int32_t> hosts = hosts_by_transport();
    per_host = hosts.empty() ? impl_->world : ranks_per_host(hosts);
  }
  impl_->local_world = per_host;
  impl_->local_rank = impl_->rank % per_host;
}

// Returns the hosts' numbers by rank; empty if the transport does not know them.
std::vector<int32_t> ProcessGroup::hosts_by_transport() const {
  if (!impl_->group || !TSR_HAS(tsr_collective, &impl_->api(), host_of)) return {};
  std::vector<int32_t> hosts(static_cast<size_t>(impl_->world));
  for (int r = 0; r < impl_->world; ++r) {
    hosts[static_cast<size_t>(r)] = impl_->api().host_of(impl_->group, r);
    if (hosts[static_cast<size_t>(r)] < 0) return {};
  }
  return hosts;
}

int ProcessGroup::rank() const { return impl_->rank; }
int ProcessGroup::world_size() const { return impl_->world; }
int ProcessGroup::local_rank() const { return impl_->local_rank; }
int ProcessGroup::local_world_size() const { return impl_->local_world; }
const std::string& ProcessGroup::backend() const { return impl_->backend; }
Joins ProcessGroup::joins() const { return impl_->joins; }

std::shared_ptr<ProcessGroup> ProcessGroup::split(int color, int key) const {
  auto impl = std::make_unique<Impl>();
  impl->backend = impl_->backend;
  impl->info = impl_->info;
  impl->lossy_rows = impl_->lossy_rows;
  impl->lossy_gradients = impl_->lossy_gradients;
  impl->joins = impl_->joins;
  if (!impl_->group) {
    if (color < 0) return nullptr;
    return std::shared_ptr<ProcessGroup>(new ProcessGroup(std::move(impl)));
  }
  impl->part = impl_->part;
  AbiError err;
  const plugin::CallScope asked(waiting(impl_->transport(), "split"));
  const tsr_collective_call call = impl_->call_at("split");
  err.check(impl_->api().split(impl_->group, color, key, &call, &impl->group, err.out()));
  const int per_host = local_ranks_of(color, key);
  if (!impl->group && color >= 0)
    fail(Code::kInternal, impl_->backend, ": split returned TSR_OK, but no group for color ", color);
  if (!impl->group) return nullptr;
  impl->rank = impl->api().rank(impl->group);
  impl->world = impl->api().world_size(impl->group);
  impl->local_world = per_host;
  impl->local_rank = impl->rank % per_host;
  return std::shared_ptr<ProcessGroup>(new ProcessGroup(std::move(impl)));
}

// Returns the ranks per host in the group that all ranks of `color` form. All ranks must call it.
int ProcessGroup::local_ranks_of(int color, int key) const {
  struct Choice {
    int color, key;
  };
  std::vector<std::pair<int32_t, int32_t>> members;  // (key, rank in this group)
  int32_t rank = 0;
  for (const Choice& chosen : all_gather(Choice{color, key}, "members")) {
    if (chosen.color == color) members.emplace_back(chosen.key, rank);
    ++rank;
  }
  std::sort(members.begin(), members.end());
  std::vector<int32_t> hosts;
  for (const auto& [_, r] : members) hosts.push_back(r / impl_->local_world);
  return ranks_per_host_or_one(hosts);
}

std::shared_ptr<ProcessGroup> ProcessGroup::part(std::shared_ptr<ProcessGroup>& kept, int color) const {
  if (!kept) {
    std::shared_ptr<ProcessGroup> made = split(color);
    const std::lock_guard lock(impl_->parts);
    kept = std::move(made);
  }
  return kept;
}

std::shared_ptr<ProcessGroup> ProcessGroup::in_host() const {
  return part(impl_->in_host, impl_->rank / impl_->local_world);
}

std::shared_ptr<ProcessGroup> ProcessGroup::across_hosts() const {
  return part(impl_->across_hosts, impl_->local_rank);
}

Work ProcessGroup::all_to_all_v(const Tensor& send, std::span<const int64_t> send_counts, const Tensor& recv,
                                std::span<const int64_t> recv_counts, const CallSite& site) const {
  check_counts(send_counts, impl_->world, send);
  check_counts(recv_counts, impl_->world, recv);
  if (!impl_->group) return copy(send, recv), Work();
  const HostSides sides = impl_->sides(send, recv);
  const DLTensor in = sides.send.dl(), out = sides.recv.dl();
  return impl_->start("all_to_all_v", impl_->api().all_to_all_v, site, sides, &in, send_counts.data(), &out,
                      recv_counts.data());
}

Work ProcessGroup::all_reduce(const Tensor& inout, ReduceOp op, const CallSite& site) const {
  if (!impl_->group) return {};
  const HostSides sides = impl_->sides(inout, inout, true);
  const DLTensor t = sides.recv.dl();
  return impl_->start("all_reduce", impl_->api().all_reduce, site, sides, &t, static_cast<int32_t>(op));
}

Work ProcessGroup::reduce_scatter_v(const Tensor& send, std::span<const int64_t> counts, const Tensor& recv,
                                    ReduceOp op, const CallSite& site) const {
  check_counts(counts, impl_->world, send);
  if (!impl_->group) return copy(send, recv), Work();
  const HostSides sides = impl_->sides(send, recv);
  const DLTensor in = sides.send.dl(), out = sides.recv.dl();
  return impl_->start("reduce_scatter_v", impl_->api().reduce_scatter_v, site, sides, &in, counts.data(), &out,
                      static_cast<int32_t>(op));
}

Work ProcessGroup::all_gather_v(const Tensor& send, const Tensor& recv, std::span<const int64_t> counts,
                                const CallSite& site) const {
  check_counts(counts, impl_->world, recv);
  if (!impl_->group) return copy(send, recv), Work();
  const HostSides sides = impl_->sides(send, recv);
  const DLTensor in = sides.send.dl(), out = sides.recv.dl();
  return impl_->start("all_gather_v", impl_->api().all_gather_v, site, sides, &in, &out, counts.data());
}

Work ProcessGroup::broadcast(const Tensor& inout, int root, const CallSite& site) const {
  TESSERA_CHECK(root >= 0 && root < impl_->world, "the root is a rank");
  if (!impl_->group) return {};
  const HostSides sides = impl_->sides(inout, inout, true);
  const DLTensor t = sides.recv.dl();
  return impl_->start("broadcast", impl_->api().broadcast, site, sides, &t, root);
}

void ProcessGroup::barrier(const char* label) const {
  if (!impl_->group) return;
  const tsr_collective_call call = impl_->call_at(label);
  tsr_work* work = nullptr;
  AbiError err;
  const plugin::CallScope asked(waiting(impl_->transport(), "barrier"));
  err.check(impl_->api().barrier(impl_->group, &call, &work, err.out()));
  Work(impl_->transport(), work).wait();
}

void ProcessGroup::gather_bytes(const void* mine, void* all, int64_t bytes, const char* label) const {
  const int64_t world = impl_->world;
  const Tensor send = Tensor::borrow(const_cast<void*>(mine), {bytes}, DType::kUInt8);
  const Tensor recv = Tensor::borrow(all, {bytes * world}, DType::kUInt8);
  all_gather_v(send, recv, std::vector<int64_t>(static_cast<size_t>(world), bytes), label).wait();
}

std::vector<std::string> ProcessGroup::all_gather_text(const std::string& text, const char* label) const {
  if (!impl_->group) return {text};
  const std::vector<int64_t> counts = all_gather(std::ssize(text), label);
  constexpr int64_t kLongest = int64_t{1} << 30;
  for (size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] < 0 || counts[r] > kLongest)
      throw Error(Code::kDataLoss, str_cat("rank ", r, " announced a text of ", counts[r], " bytes"),
                  static_cast<int>(r));
  }
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const Tensor all = Tensor::empty({total}, DType::kUInt8);
  all_gather_v(Tensor::from<uint8_t>(std::vector<uint8_t>(text.begin(), text.end())), all, counts, label).wait();
  std::vector<std::string> out;
  const char* at = static_cast<const char*>(all.raw());
  for (int64_t n : counts) {
    out.emplace_back(n ? at : "", static_cast<size_t>(n));
    at += n;
  }
  return out;
}

uint64_t ProcessGroup::bytes_sent() const {
  if (!impl_->group || !TSR_HAS(tsr_collective, &impl_->api(), bytes_sent)) return 0;
  return impl_->api().bytes_sent(impl_->group);
}

std::vector<double> ProcessGroup::waited_s() const {
  if (!impl_->group) return {};
  const auto* draft = impl_->part->extension<tsr_collective_waits>(TSR_COLLECTIVE_WAITS);
  if (!draft || !TSR_HAS(tsr_collective_waits, draft, waited)) return {};
  std::vector<double> seconds(static_cast<size_t>(impl_->world));
  AbiError err;
  const plugin::CallScope call({impl_->transport(), "waited"});
  if (draft->waited(impl_->group, seconds.data(), err.out()) != TSR_OK) return {};
  return seconds;
}

int64_t ProcessGroup::wire_bytes(const CallSite& site, DType dtype, int64_t elements) const {
  if (!impl_->group) return elements * size_of(dtype);
  return sent_by(*impl_->part, dtype, elements, site.row_elements, impl_->flags(site.carries));
}

void ProcessGroup::abort(const std::string& reason) const {
  impl_->abort(reason.c_str());
  const std::lock_guard lock(impl_->parts);
  for (const auto& part : {impl_->in_host, impl_->across_hosts}) {
    if (part) part->abort(reason);
  }
}

}  // namespace tessera
