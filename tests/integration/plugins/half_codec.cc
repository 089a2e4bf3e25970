// test.half(tcp): sends float32 of an all-to-all that may lose precision as bfloat16. Option `log`: a file that gets a
// line per operation: its name, label, flags, site and row_elements. Option `waits`: also a line when it was waited
// for.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tessera/sdk/wrapped.h"

namespace tessera::test {
namespace {

bool is_halved(DLDataType dtype, uint32_t flags) {
  return (flags & TSR_CALL_LOSSY) != 0 && sdk::same_dtype(dtype, sdk::dtype_of<float>());
}

// The operations of all groups of a process.
class Log {
 public:
  Log(const std::string& path, bool waits)
      : waits_(waits), file_(path.empty() ? nullptr : std::fopen(path.c_str(), "a")) {}
  ~Log() {
    if (file_ != nullptr) std::fclose(file_);
  }
  Log(const Log&) = delete;
  void add(const char* operation, const sdk::CollectiveCall& call) {
    if (file_ == nullptr) return;
    std::fprintf(file_, "%s|%s|%u|%llu|%lld\n", operation, call.label == nullptr ? "" : call.label, call.flags,
                 static_cast<unsigned long long>(call.site), static_cast<long long>(call.row_elements));
    std::fflush(file_);
  }
  bool waits() const { return waits_; }

 private:
  bool waits_;
  std::FILE* file_;
};

class HalfGroup final : public sdk::WrappedGroup {
 public:
  HalfGroup(sdk::InnerGroup inner, std::shared_ptr<Log> log) : WrappedGroup(std::move(inner)), log_(std::move(log)) {}
  std::unique_ptr<sdk::Group> wrap(sdk::InnerGroup inner) const override {
    return std::make_unique<HalfGroup>(std::move(inner), log_);
  }
  sdk::Work* all_to_all_v(const DLTensor& send, sdk::Counts send_counts, const DLTensor& recv, sdk::Counts recv_counts,
                          const sdk::CollectiveCall& call) override {
    log_->add("all_to_all_v", call);
    if (!is_halved(send.dtype, call.flags))
      return logged(inner().all_to_all_v(send, send_counts, recv, recv_counts, call), call);
    const auto out = std::make_shared<std::vector<uint16_t>>(), in = std::make_shared<std::vector<uint16_t>>();
    for (const float value : sdk::elements<float>(send)) {
      uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof(bits));
      out->push_back(static_cast<uint16_t>(bits >> 16));
    }
    in->resize(static_cast<size_t>(sdk::numel(recv)));
    float* const to = sdk::data_as<float>(recv);
    return then(inner().all_to_all_v(Halves(*out), send_counts, Halves(*in), recv_counts, call), [out, in, to] {
      for (size_t i = 0; i < in->size(); ++i) {
        const uint32_t bits = uint32_t{(*in)[i]} << 16;
        std::memcpy(to + i, &bits, sizeof(bits));
      }
    });
  }
  sdk::Work* all_reduce(const DLTensor& inout, int32_t op, const sdk::CollectiveCall& call) override {
    log_->add("all_reduce", call);
    return logged(inner().all_reduce(inout, op, call), call);
  }
  sdk::Work* all_gather_v(const DLTensor& send, const DLTensor& recv, sdk::Counts counts,
                          const sdk::CollectiveCall& call) override {
    log_->add("all_gather_v", call);
    return logged(inner().all_gather_v(send, recv, counts, call), call);
  }
  sdk::Work* broadcast(const DLTensor& inout, int32_t root, const sdk::CollectiveCall& call) override {
    log_->add("broadcast", call);
    return then(inner().broadcast(inout, root, call));
  }

 private:
  class Halves {
   public:
    explicit Halves(std::vector<uint16_t>& data) : size_(static_cast<int64_t>(data.size())) {
      tensor_ = {data.data(), {kDLCPU, 0}, 1, sdk::dtype_of<uint16_t>(), &size_, nullptr, 0};
    }
    Halves(const Halves&) = delete;
    operator const DLTensor&() const { return tensor_; }

   private:
    int64_t size_;
    DLTensor tensor_;
  };
  sdk::Work* logged(tsr_work* work, const sdk::CollectiveCall& call) const {
    if (!log_->waits()) return then(work);
    return then(work, [log = log_, site = call, label = std::string(call.label == nullptr ? "" : call.label)] {
      sdk::CollectiveCall waited = site;
      waited.label = label.c_str();
      log->add("wait", waited);
    });
  }
  std::shared_ptr<Log> log_;
};

class Half final : public sdk::WrappedCollective {
 public:
  explicit Half(const sdk::Setup& setup)
      : WrappedCollective(setup, "test.half"),
        log_(std::make_shared<Log>(setup.options.string("log", ""), setup.options.flag("waits", false))) {}
  std::unique_ptr<sdk::Group> wrap(sdk::InnerGroup inner) const override {
    return std::make_unique<HalfGroup>(std::move(inner), log_);
  }
  int64_t wire_bytes(DLDataType dtype, int64_t elements, int64_t row_elements, uint32_t flags) const noexcept override {
    const DLDataType sent = is_halved(dtype, flags) ? sdk::dtype_of<uint16_t>() : dtype;
    return WrappedCollective::wire_bytes(sent, elements, row_elements, flags);
  }

 private:
  std::shared_ptr<Log> log_;
};

}  // namespace
}  // namespace tessera::test

TESSERA_PLUGIN("test.half", "0.1.0",
               tessera::sdk::component<tessera::test::Half>(
                   {.id = "test.half", .version = "0.1.0", .about = "bfloat16 on the wire", .priority = -100}));
