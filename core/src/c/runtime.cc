// Runtime, texts, plans and process groups in tessera.h.
#include "tessera/runtime.h"

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <utility>

#include "c/call.h"
#include "c/description.h"
#include "c/handles.h"
#include "tessera/abi/optimizer.h"

namespace tessera::c {

void check_known(std::span<const char> tail, uint32_t high_flags, uint32_t reserved, const char* name) {
  if (std::any_of(tail.begin(), tail.end(), [](char byte) { return byte != 0; })) {
    fail(Code::kUnimplemented, name, " uses members that libtessera ", TESSERA_VERSION,
         " does not know: leave them 0, or use a newer library");
  }
  if (high_flags != 0) {
    fail(Code::kUnimplemented, name, "->flags has bit ", std::bit_width(high_flags) - 1, ", which libtessera ",
         TESSERA_VERSION, " does not know: leave it out, or use a newer library");
  }
  if (reserved != 0) fail(Code::kUnimplemented, name, "->reserved is ", reserved, ", but must be 0");
}

void Session::drop(StepHandle step) {
  const std::lock_guard lock(dropping_);
  dropped_.push_back(std::move(step));
  if (used_.exchange(true, std::memory_order_acquire)) return;
  dropped_.clear();
  used_.store(false, std::memory_order_release);
}

void Session::defer(int64_t number, StartedStep step) {
  const std::lock_guard lock(dropping_);
  deferred_.emplace(number, std::move(step));
}

void Session::finish_deferred(int64_t before) {
  while (true) {
    // Its destructor waits. An error reaches the other ranks too, and a broken group fails the caller's own call.
    decltype(deferred_)::node_type next;
    const std::lock_guard lock(dropping_);
    if (deferred_.empty() || deferred_.begin()->first >= before) return;
    next = deferred_.extract(deferred_.begin());
  }
}

Use::Use(Session& session) : session_(session) {
  session.opened->check_process();
  if (session.used_.exchange(true, std::memory_order_acquire)) {
    fail(Code::kFailedPrecondition, "another thread is in this process group, or in a model over it: one thread at a ",
         "time may use them");
  }
  const std::lock_guard lock(session.dropping_);
  session.dropped_.clear();
}

Collective::Collective(Session& session, int64_t step) : use_(session) { session.finish_deferred(step); }

std::shared_ptr<Session> session_of(const std::shared_ptr<const OpenRuntime>& runtime, tsr_process_group* group) {
  if (group != nullptr) return group->session;
  return std::make_shared<Session>(runtime, ProcessGroup::connect(runtime->runtime, RankEnvironment{}));
}

Tensor borrowed(const DLTensor* tensor, const char* name, DeviceStream* device) {
  need(tensor, name);
  const DLDevice where = tensor->device;
  if (where.device_type == kDLCPU) device = nullptr;
  if (where.device_type != kDLCPU && device == nullptr)
    fail(Code::kUnimplemented, name, " is on a device, but must be in host memory");
  if (device != nullptr &&
      (where.device_type != device->device().dl().device_type || where.device_id != device->device().index))
    fail(Code::kInvalidArgument, name, " is on device ", where.device_id, " of DLPack's type ", where.device_type,
         ", but the model is on device ", device->device().index, " of ", device->id());
  if (tensor->ndim < 0 || (tensor->ndim > 0 && tensor->shape == nullptr))
    fail(Code::kInvalidArgument, name, " is not a DLTensor: it has ", tensor->ndim, " dimensions");
  const Shape shape(tensor->shape, tensor->shape + tensor->ndim);
  int64_t elements = 1;
  for (int32_t i = tensor->ndim - 1; i >= 0; --i) {
    if (shape[i] < 0) fail(Code::kInvalidArgument, name, " has a dimension of ", shape[i]);
    if (tensor->strides != nullptr && shape[i] > 1 && tensor->strides[i] != elements)
      fail(Code::kInvalidArgument, name, " is not compact and row-major: copy it first");
    elements *= shape[i];
  }
  if (elements > 0 && tensor->data == nullptr) fail(Code::kInvalidArgument, name, " has no data");
  char* const data = static_cast<char*>(tensor->data) + tensor->byte_offset;
  const DType dtype = from_dl(tensor->dtype);
  return device == nullptr ? Tensor::borrow(data, shape, dtype) : device->borrow(data, shape, dtype);
}

Tensor borrowed(const DLTensor* tensor, const char* name, DType dtype, DeviceStream* device) {
  Tensor out = borrowed(tensor, name, device);
  if (out.dtype() != dtype)
    fail(Code::kInvalidArgument, name, " is ", to_string(out.dtype()), ", but must be ", to_string(dtype));
  return out;
}

}  // namespace tessera::c

using namespace tessera;
using namespace tessera::c;

namespace {

std::vector<std::string> texts(const char* const* from, uint32_t count, const char* name) {
  if (count > 0) need(from, name);
  std::vector<std::string> out;
  for (uint32_t i = 0; i < count; ++i) {
    need(from[i], name);
    out.emplace_back(from[i]);
  }
  return out;
}

RankEnvironment rank_environment(const tsr_process_group_options& options) {
  RankEnvironment out = RankEnvironment::from_environment();
  if (options.world_size > 0) {
    if (options.rank < 0 || options.rank >= options.world_size)
      fail(Code::kInvalidArgument, "rank is ", options.rank, ", but must be in [0, ", options.world_size, ")");
    const std::string token = std::move(out.token);
    out = {options.rank, options.world_size, options.local_rank, options.local_world_size};
    out.token = token;
    out.source = "the caller";
  }
  if (options.master_addr != nullptr) out.master_addr = options.master_addr;
  if (options.master_port != 0) out.master_port = options.master_port;
  if (options.token != nullptr) out.token = options.token;
  return out;
}

ReduceOp reduction(int32_t op) {
  if (op < TSR_REDUCE_SUM || op > TSR_REDUCE_MIN)
    fail(Code::kUnimplemented, "op is ", op, "; 0 (sum), 1 (max) and 2 (min) are known");
  return static_cast<ReduceOp>(op);
}

// The counts of an all_to_all, which must add up to its tensor.
std::span<const int64_t> pieces(const int64_t* counts, int world_size, const Tensor& tensor, const char* name) {
  need(counts, name);
  const std::span<const int64_t> out(counts, static_cast<size_t>(world_size));
  int64_t total = 0;
  for (const int64_t count : out) {
    if (count < 0 || count > tensor.numel() - total)
      fail(Code::kInvalidArgument, name, " must be at least 0 and add up to the tensor's ", tensor.numel(),
           " elements");
    total += count;
  }
  if (total != tensor.numel())
    fail(Code::kInvalidArgument, name, " add up to ", total, ", but the tensor has ", tensor.numel(), " elements");
  return out;
}

// Runs a collective of one tensor.
template <class Body>
tsr_code exchange(tsr_process_group* group, tsr_error* err, const Body& body) {
  return guarded(err, [&] {
    need(group, "group");
    const Collective use(*group->session);
    body(*group->session->group);
  });
}

}  // namespace

const char* tsr_version(void) { return TESSERA_VERSION; }
uint32_t tsr_version_number(void) { return TESSERA_VERSION_NUMBER; }

const char* tsr_code_name(tsr_code code) {
  static constexpr std::array kNames = {"TSR_OK",
                                        "TSR_CANCELLED",
                                        "TSR_UNKNOWN",
                                        "TSR_INVALID_ARGUMENT",
                                        "TSR_DEADLINE_EXCEEDED",
                                        "TSR_NOT_FOUND",
                                        "TSR_ALREADY_EXISTS",
                                        "TSR_PERMISSION_DENIED",
                                        "TSR_RESOURCE_EXHAUSTED",
                                        "TSR_FAILED_PRECONDITION",
                                        "TSR_ABORTED",
                                        "TSR_OUT_OF_RANGE",
                                        "TSR_UNIMPLEMENTED",
                                        "TSR_INTERNAL",
                                        "TSR_UNAVAILABLE",
                                        "TSR_DATA_LOSS"};
  static_assert(kNames.size() == TSR_DATA_LOSS + 1);
  const bool known = code >= TSR_OK && code <= TSR_DATA_LOSS;
  return kNames[static_cast<size_t>(known ? code : tsr_code{TSR_INTERNAL})];
}

const char* tsr_text_data(const tsr_text* text) { return text == nullptr ? "" : text->text.c_str(); }
void tsr_text_free(tsr_text* text) { delete text; }

tsr_code tsr_runtime_open(const tsr_runtime_options* options, tsr_runtime** runtime, tsr_error* err) {
  return made(runtime, "runtime", err, [&] {
    const tsr_runtime_options in = copy_if_given(options, "options");
    RuntimeOptions out{.plugin_path = texts(in.plugin_path, in.num_plugin_paths, "plugin_path"),
                       .require = texts(in.require, in.num_required, "require"),
                       .threads = in.threads < 0 ? 0 : std::max(1, in.threads)};
    if (in.num_plugins > 0) need(in.plugins, "plugins");
    out.plugins.assign(in.plugins, in.plugins + in.num_plugins);
    if (in.log != nullptr) out.log = log_of(in.log, in.log_user);
    return new tsr_runtime{std::make_shared<const OpenRuntime>(std::move(out))};
  });
}

void tsr_runtime_close(tsr_runtime* runtime) { close(runtime); }

tsr_code tsr_runtime_report(const tsr_runtime* runtime, tsr_text** json, tsr_error* err) {
  return made(json, "json", err, [&] {
    need(runtime, "runtime");
    runtime->opened().check_process();
    runtime->opened().runtime.open_all();
    return new tsr_text{runtime->opened().runtime.report().json()};
  });
}

tsr_code tsr_plan(const tsr_runtime* runtime, const char* model, const char* planner, tsr_text** plan,
                  tsr_text** report, tsr_error* err) {
  return made(plan, "plan", err, [&] {
    need(runtime, "runtime");
    need(model, "model");
    if (report != nullptr) *report = nullptr;
    runtime->opened().check_process();
    const Runtime& parts = runtime->opened().runtime;
    const Description description = parse_description(model);
    if (const OptimizerSpec& optimizer = description.sharded.optimizer; !optimizer.name.empty())
      (void)parts.create(TSR_OPTIMIZER_KIND, optimizer.name, optimizer.options);  // throws if there is none like that
    const Planning planning = parse_planning(planner == nullptr ? "" : planner, description, std::nullopt);
    if (!planning.shardings.empty()) {
      const ShardingPlan requested = requested_plan(parts, description, planning);
      auto text = std::make_unique<tsr_text>(tsr_text{requested.json()});
      if (report != nullptr) *report = new tsr_text{requested.str()};
      return text.release();
    }
    const PlanResult found = EmbeddingShardingPlanner(parts, planning.options).plan(description.modules);
    auto text = std::make_unique<tsr_text>(tsr_text{found.plan.json()});
    if (report != nullptr) *report = new tsr_text{found.report()};
    return text.release();
  });
}

tsr_code tsr_process_group_connect(const tsr_runtime* runtime, const tsr_process_group_options* options,
                                   tsr_process_group** group, tsr_error* err) {
  return made(group, "group", err, [&] {
    need(runtime, "runtime");
    runtime->opened().check_process();
    const tsr_process_group_options in = copy_if_given(options, "options");
    ProcessGroupOptions how;
    if (in.backend != nullptr) how.backend = in.backend;
    if (in.timeout_s > 0) how.timeout_s = in.timeout_s;
    auto connected = ProcessGroup::connect(runtime->opened().runtime, rank_environment(in), how);
    return new tsr_process_group{std::make_shared<Session>(runtime->shared, std::move(connected))};
  });
}

void tsr_process_group_close(tsr_process_group* group) { close(group); }

tsr_code tsr_process_group_describe(const tsr_process_group* group, tsr_process_group_info* info, tsr_error* err) {
  return guarded(err, [&] {
    need(group, "group");
    const ProcessGroup& g = *group->session->group;
    copy_out<tsr_process_group_info>(
        {0, g.rank(), g.world_size(), g.local_rank(), g.local_world_size(), 0, g.backend().c_str()}, info, "info");
  });
}

tsr_code tsr_process_group_all_reduce(tsr_process_group* group, const DLTensor* inout, int32_t op, tsr_error* err) {
  return exchange(group, err,
                  [&](const ProcessGroup& g) { g.all_reduce(borrowed(inout, "inout"), reduction(op)).wait(); });
}

tsr_code tsr_process_group_broadcast(tsr_process_group* group, const DLTensor* inout, int32_t root, tsr_error* err) {
  return exchange(group, err, [&](const ProcessGroup& g) {
    if (root < 0 || root >= g.world_size())
      fail(Code::kInvalidArgument, "root is ", root, ", but the group has ", g.world_size(), " ranks");
    g.broadcast(borrowed(inout, "inout"), root).wait();
  });
}

tsr_code tsr_process_group_all_gather(tsr_process_group* group, const DLTensor* send, const DLTensor* recv,
                                      tsr_error* err) {
  return exchange(group, err, [&](const ProcessGroup& g) {
    const Tensor from = borrowed(send, "send"), to = borrowed(recv, "recv");
    if (from.dtype() != to.dtype() || to.numel() != from.numel() * g.world_size())
      fail(Code::kInvalidArgument, "recv has ", to.numel(), " elements of ", to_string(to.dtype()), ", and must have ",
           from.numel() * g.world_size(), " of ", to_string(from.dtype()), ": send's, once for each rank");
    g.all_gather_v(from, to, std::vector<int64_t>(g.world_size(), from.numel())).wait();
  });
}

tsr_code tsr_process_group_reduce_scatter(tsr_process_group* group, const DLTensor* send, const DLTensor* recv,
                                          int32_t op, tsr_error* err) {
  return exchange(group, err, [&](const ProcessGroup& g) {
    const Tensor from = borrowed(send, "send"), to = borrowed(recv, "recv");
    if (from.dtype() != to.dtype() || from.numel() != to.numel() * g.world_size())
      fail(Code::kInvalidArgument, "send has ", from.numel(), " elements of ", to_string(from.dtype()),
           ", and must have ", to.numel() * g.world_size(), " of ", to_string(to.dtype()),
           ": recv's, once for each rank");
    g.reduce_scatter_v(from, std::vector<int64_t>(g.world_size(), to.numel()), to, reduction(op)).wait();
  });
}

tsr_code tsr_process_group_all_to_all(tsr_process_group* group, const DLTensor* send, const int64_t* send_counts,
                                      const DLTensor* recv, const int64_t* recv_counts, tsr_error* err) {
  return exchange(group, err, [&](const ProcessGroup& g) {
    const Tensor from = borrowed(send, "send"), to = borrowed(recv, "recv");
    if (from.dtype() != to.dtype())
      fail(Code::kInvalidArgument, "send is ", to_string(from.dtype()), ", and recv is ", to_string(to.dtype()));
    const auto sent = pieces(send_counts, g.world_size(), from, "send_counts");
    const auto received = pieces(recv_counts, g.world_size(), to, "recv_counts");
    g.all_to_all_v(from, sent, to, received).wait();
  });
}

tsr_code tsr_process_group_barrier(tsr_process_group* group, tsr_error* err) {
  return exchange(group, err, [](const ProcessGroup& g) { g.barrier(); });
}

tsr_code tsr_process_group_abort(tsr_process_group* group, const char* reason, tsr_error* err) {
  return guarded(err, [&] {
    need(group, "group");
    need(reason, "reason");
    group->opened().check_process();
    group->session->group->abort(reason);
  });
}
