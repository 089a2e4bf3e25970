// Encodes the values of exchanges that may lose precision, so that they travel in fewer bytes. All other operations go
// to the inner transport unchanged.
//
// Host memory is encoded when an operation starts and decoded when it is waited for. A rank's block for itself does not
// travel and stays exact.
#pragma once

#include <tessera/sdk/wrapped.h>

#include <cmath>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats.h"

namespace extras {

using namespace tessera::sdk;

// The options.
struct CodecRules {
  Format forward = Format::kHalf, backward = Format::kBfloat16;
  bool error_feedback = false;

  Encoding encoding(DLDataType dtype, int64_t row_elements, uint32_t flags) const {
    const bool may = (flags & TSR_CALL_LOSSY) != 0 && same_dtype(dtype, dtype_of<float>());
    const Format format = (flags & TSR_CALL_BACKWARD) != 0 ? backward : forward;
    return {may ? format : Format::kExact, row_elements};
  }
};

class CodecGroup final : public WrappedGroup {
 public:
  CodecGroup(InnerGroup inner, const CodecRules& rules) : WrappedGroup(std::move(inner)), rules_(rules) {}
  std::unique_ptr<Group> wrap(InnerGroup inner) const override {
    return std::make_unique<CodecGroup>(std::move(inner), rules_);
  }

  Work* all_to_all_v(const DLTensor& send, Counts send_counts, const DLTensor& recv, Counts recv_counts,
                     const CollectiveCall& call) override {
    const Encoding encoding = rules_.encoding(send.dtype, call.row_elements, call.flags);
    // The inner transport refuses invalid calls, on all ranks.
    if (encoding.is_exact() || !is_sound(send, send_counts) || !is_sound(recv, recv_counts))
      return WrappedGroup::all_to_all_v(send, send_counts, recv, recv_counts, call);
    Exchange& exchange = take_exchange();
    try {
      exchange.start(encoding, {send, send_counts, recv, recv_counts}, call);
    } catch (...) {
      exchange.recycle();
      throw;
    }
    return &exchange;
  }

 private:
  struct Operands {
    const DLTensor& send;
    Counts send_counts;
    const DLTensor& recv;
    Counts recv_counts;
  };

  // One encoded operation. The object is reused for later ones.
  class Exchange final : public Work {
   public:
    explicit Exchange(CodecGroup& group) : group_(group) {}

    void start(const Encoding& encoding, const Operands& of, const CollectiveCall& call) {
      encoding_ = encoding;
      counts_.assign(of.recv_counts.begin(), of.recv_counts.end());
      to_ = data_as<float>(of.recv);
      const auto own = static_cast<size_t>(group_.rank());
      bytes_of(of.send_counts, own, out_bytes_);
      bytes_of(of.recv_counts, own, in_bytes_);
      out_.resize(static_cast<size_t>(sum(out_bytes_)));
      in_.resize(static_cast<size_t>(sum(in_bytes_)));
      Residuals* residuals = group_.residuals_at(call.site);
      const float* from = data_as<float>(of.send);
      uint8_t* out = out_.data();
      for (size_t rank = 0; rank < counts_.size(); ++rank) {
        const int64_t n = of.send_counts[rank];
        if (rank == own) {
          if (n > 0) std::memcpy(to_ + sum(of.recv_counts.first(rank)), from, static_cast<size_t>(4 * n));
        } else if (residuals == nullptr) {
          encoding.encode(from, n, out);
        } else {
          encode_with((*residuals)[rank], from, n, out);
        }
        out += out_bytes_[rank];
        from += n;
      }
      CollectiveCall encoded = call;  // the encoded bytes are not rows, and must arrive unchanged
      encoded.flags &= ~uint32_t{TSR_CALL_LOSSY};
      encoded.row_elements = 0;
      work_ = group_.inner().all_to_all_v(Bytes(out_), out_bytes_, Bytes(in_), in_bytes_, encoded);
    }

    void wait() override {
      group_.inner().wait(work_);
      const uint8_t* in = in_.data();
      float* to = to_;
      for (size_t rank = 0; rank < counts_.size(); ++rank) {
        if (in_bytes_[rank] > 0) encoding_.decode(in, counts_[rank], to);
        in += in_bytes_[rank];
        to += counts_[rank];
      }
    }
    void recycle() noexcept override { group_.idle_.push_back(this); }

   private:
    void bytes_of(Counts counts, size_t own, std::vector<int64_t>& out) const {
      out.clear();
      for (const int64_t n : counts) out.push_back(encoding_.bytes(n));
      out[own] = 0;
    }
    // Adds the error of the last call to this one, and keeps the new error.
    void encode_with(std::vector<float>& residual, const float* from, int64_t n, uint8_t* out) {
      residual.resize(static_cast<size_t>(n));
      said_.resize(residual.size());
      for (size_t i = 0; i < residual.size(); ++i) residual[i] += from[i];
      encoding_.encode(residual.data(), n, out);
      encoding_.decode(out, n, said_.data());
      for (size_t i = 0; i < residual.size(); ++i) {
        const float left = residual[i] - said_[i];
        residual[i] = std::isfinite(left) ? left : 0;
      }
    }

    CodecGroup& group_;
    Encoding encoding_{Format::kExact, 0};
    tsr_work* work_ = nullptr;
    std::vector<int64_t> counts_, out_bytes_, in_bytes_;
    std::vector<uint8_t> out_, in_;
    std::vector<float> said_;
    float* to_ = nullptr;
  };

  // A vector as a tensor.
  class Bytes {
   public:
    explicit Bytes(std::vector<uint8_t>& data) : size_(static_cast<int64_t>(data.size())) {
      tensor_ = {data.data(), {kDLCPU, 0}, 1, dtype_of<uint8_t>(), &size_, nullptr, 0};
    }
    Bytes(const Bytes&) = delete;
    operator const DLTensor&() const { return tensor_; }

   private:
    int64_t size_;
    DLTensor tensor_;
  };

  using Residuals = std::vector<std::vector<float>>;  // one for each rank that gets a block

  static int64_t sum(Counts counts) {
    int64_t all = 0;
    for (const int64_t n : counts) all += n;
    return all;
  }
  static bool is_sound(const DLTensor& tensor, Counts counts) {
    const bool none_negative = std::all_of(counts.begin(), counts.end(), [](int64_t n) { return n >= 0; });
    return none_negative && tensor.device.device_type == kDLCPU && same_dtype(tensor.dtype, dtype_of<float>()) &&
           sum(counts) == numel(tensor) && (tensor.data != nullptr || numel(tensor) == 0);
  }

  Residuals* residuals_at(uint64_t site) {
    if (!rules_.error_feedback || site == 0) return nullptr;
    Residuals& out = residuals_[site];
    out.resize(static_cast<size_t>(world_size()));
    return &out;
  }

  Exchange& take_exchange() {
    if (idle_.empty()) {
      idle_.reserve(all_.size() + 1);  // recycle() must not fail
      all_.push_back(std::make_unique<Exchange>(*this));
      idle_.push_back(all_.back().get());
    }
    Exchange* out = idle_.back();
    idle_.pop_back();
    return *out;
  }

  const CodecRules rules_;
  std::vector<std::unique_ptr<Exchange>> all_;
  std::vector<Exchange*> idle_;
  std::unordered_map<uint64_t, Residuals> residuals_;  // per call site
};

class Codec final : public WrappedCollective {
 public:
  explicit Codec(const Setup& setup) : WrappedCollective(setup, "codec") {
    const std::string both = setup.options.string("name", "");
    const auto format = [&](const char* option, Format otherwise) {
      const std::string said = setup.options.string(option, both);
      return said.empty() ? otherwise : format_named(said, option);
    };
    rules_.forward = format("forward", rules_.forward);
    rules_.backward = format("backward", rules_.backward);
    rules_.error_feedback = setup.options.flag("error_feedback", false);
  }
  std::unique_ptr<Group> wrap(InnerGroup inner) const override {
    return std::make_unique<CodecGroup>(std::move(inner), rules_);
  }

  // Encoding happens in host memory, so the core brings a device's data there.
  CollectiveInfo describe() const override {
    const CollectiveInfo of_inner = WrappedCollective::describe();
    CollectiveInfo info;
    if (of_inner.device_types == nullptr) info.reducible = of_inner.reducible;
    return info;
  }
  int64_t wire_bytes(DLDataType dtype, int64_t elements, int64_t row_elements, uint32_t flags) const noexcept override {
    const Encoding encoding = rules_.encoding(dtype, row_elements, flags);
    if (encoding.is_exact()) return WrappedCollective::wire_bytes(dtype, elements, row_elements, flags);
    return WrappedCollective::wire_bytes(dtype_of<uint8_t>(), encoding.bytes(elements), 0,
                                         flags & ~uint32_t{TSR_CALL_LOSSY});
  }

 private:
  CodecRules rules_;
};

}  // namespace extras
