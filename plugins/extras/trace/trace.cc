// trace: records every call of a job's groups and passes it to the transport that it wraps.
#include <tessera/sdk/wrapped.h>

#include <optional>

#include "record.h"

namespace extras {
namespace {

class TraceGroup final : public WrappedGroup {
 public:
  TraceGroup(InnerGroup inner, std::shared_ptr<TraceFile> file, std::string name)
      : WrappedGroup(std::move(inner)), file_(std::move(file)), name_(std::move(name)) {}
  ~TraceGroup() override { file_->flush(); }
  TraceGroup(const TraceGroup&) = delete;

  std::unique_ptr<Group> wrap(InnerGroup child) const override {
    return std::make_unique<TraceGroup>(std::move(child), file_, name_);
  }
  // The k-th split of a group names its children by k and their color, so that names are the same on all ranks and in
  // every run.
  std::unique_ptr<Group> split(int32_t color, int32_t key, const CollectiveCall& call) override {
    const std::string child = name_ + "." + std::to_string(splits_++) + ":" + std::to_string(color);
    const CallRecord record = begun("split", nullptr, call);
    InnerGroup made = recorded(record, {}, [&] { return inner().split(color, key, call); });
    return made ? std::make_unique<TraceGroup>(std::move(made), file_, child) : nullptr;
  }

  Work* all_to_all_v(const DLTensor& send, Counts send_counts, const DLTensor& recv, Counts recv_counts,
                     const CollectiveCall& call) override {
    return started(begun("all_to_all_v", &send, call), &recv,
                   [&] { return inner().all_to_all_v(send, send_counts, recv, recv_counts, call); });
  }
  Work* all_reduce(const DLTensor& inout, int32_t op, const CollectiveCall& call) override {
    return started(begun("all_reduce", &inout, call), &inout, [&] { return inner().all_reduce(inout, op, call); });
  }
  Work* reduce_scatter_v(const DLTensor& send, Counts counts, const DLTensor& recv, int32_t op,
                         const CollectiveCall& call) override {
    return started(begun("reduce_scatter_v", &send, call), &recv,
                   [&] { return inner().reduce_scatter_v(send, counts, recv, op, call); });
  }
  Work* all_gather_v(const DLTensor& send, const DLTensor& recv, Counts counts, const CollectiveCall& call) override {
    return started(begun("all_gather_v", &send, call), &recv,
                   [&] { return inner().all_gather_v(send, recv, counts, call); });
  }
  Work* broadcast(const DLTensor& inout, int32_t root, const CollectiveCall& call) override {
    return started(begun("broadcast", &inout, call), &inout, [&] { return inner().broadcast(inout, root, call); });
  }
  Work* barrier(const CollectiveCall& call) override {
    return started(begun("barrier", nullptr, call), nullptr, [&] { return inner().barrier(call); });
  }

 private:
  // The result that a call leaves in this rank's memory.
  struct Result {
    const void* data = nullptr;
    size_t bytes = 0;
  };

  class Traced final : public Work {
   public:
    Traced(const TraceGroup& group, CallRecord record, Result result)
        : group_(group), record_(std::move(record)), result_(result) {}
    void started(tsr_work* work) { work_ = work; }
    void wait() override {
      group_.recorded(record_, result_, [&] { group_.inner().wait(work_); });
    }

   private:
    const TraceGroup& group_;
    const CallRecord record_;
    const Result result_;
    tsr_work* work_ = nullptr;
  };

  CallRecord begun(const char* operation, const DLTensor* given, const CollectiveCall& call) const {
    CallRecord out;
    out.number = file_->next_number();
    out.group = name_;
    out.label = call.label == nullptr ? "" : call.label;
    out.operation = operation;
    if (given != nullptr) {
      out.dtype = given->dtype;
      out.bytes = numel(*given) * element_bytes(*given);
    }
    out.flags = call.flags;
    out.site = call.site;
    out.row_elements = call.row_elements;
    out.start = std::chrono::steady_clock::now();
    return out;
  }

  // Runs `end`, which ends a call, and records the call. Failures are passed on.
  template <class End>
  auto recorded(const CallRecord& record, Result result, const End& end) const -> decltype(end()) {
    const auto add = [&](const Failure* failure) {
      std::optional<uint64_t> sum;
      if (failure == nullptr && file_->checksums() && result.data != nullptr) sum = checksum(result.data, result.bytes);
      file_->add(record, sum ? &*sum : nullptr, failure);
    };
    try {
      if constexpr (std::is_void_v<decltype(end())>) {
        end();
        add(nullptr);
      } else {
        auto out = end();
        add(nullptr);
        return out;
      }
    } catch (const Failure& failure) {
      add(&failure);
      throw;
    }
  }

  // Allocates the record first, because nothing may fail after the inner operation has started.
  template <class Start>
  Work* started(const CallRecord& record, const DLTensor* result, const Start& start) const {
    Result left;
    if (result != nullptr && result->device.device_type == kDLCPU)
      left = {raw(*result), static_cast<size_t>(numel(*result) * element_bytes(*result))};
    auto work = std::make_unique<Traced>(*this, record, left);
    try {
      work->started(start());
    } catch (const Failure& failure) {
      file_->add(record, nullptr, &failure);
      throw;
    }
    return work.release();
  }

  std::shared_ptr<TraceFile> file_;
  const std::string name_;
  uint64_t splits_ = 0;
};

class Trace final : public WrappedCollective {
 public:
  explicit Trace(const Setup& setup)
      : WrappedCollective(setup, "trace"),
        file_(setup.options.string("file", "trace")),
        checksums_(setup.options.flag("checksums", false)) {}
  std::unique_ptr<Group> wrap(InnerGroup inner) const override {
    const std::string path = file_ + "." + std::to_string(inner.rank());
    return std::make_unique<TraceGroup>(std::move(inner), std::make_shared<TraceFile>(path, checksums_), "0");
  }

 private:
  const std::string file_;
  const bool checksums_;
};

}  // namespace
}  // namespace extras

TESSERA_PLUGIN("trace", "1.0.0",
               tessera::sdk::component<extras::Trace>(
                   {.id = "trace", .version = "1.0.0", .about = "records every call in a file", .priority = -100}));
