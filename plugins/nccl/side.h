// The side channel: a group of the transport that this one wraps. It carries what is in host memory, and knows who is
// late or gone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/sdk/collective.h"

namespace tessera::nccl {

// A sentence of the wrapped transport as one of the transport `name`: "tcp: rank 1 ..." is "nccl: rank 1 ...".
inline std::string in_the_name_of(const std::string& name, std::string text) {
  if (const size_t colon = text.find(": "); colon != std::string::npos && text.find(' ') > colon)
    text.erase(0, colon + 2);
  return name + ": " + text;
}

class Side {
 public:
  Side(const tsr_collective& api, tsr_group* raw) : api_(api), raw_(raw) {}
  ~Side() { api_.close(raw_); }
  Side(const Side&) = delete;

  static std::unique_ptr<Side> connect(const tsr_part& part, const tsr_rendezvous& where) {
    const auto& api = *static_cast<const tsr_collective*>(part.component->api);
    sdk::Call call;
    tsr_group* group = nullptr;
    call.check(api.connect(part.self, &where, &group, call.err()));
    return std::make_unique<Side>(api, group);
  }
  std::unique_ptr<Side> split(int32_t color) const {
    sdk::Call call;
    tsr_group* child = nullptr;
    call.check(api_.split(raw_, color, &child, call.err()));
    return child ? std::make_unique<Side>(api_, child) : nullptr;
  }

  const tsr_collective& api() const { return api_; }
  tsr_group* raw() const { return raw_; }
  int32_t rank() const { return api_.rank(raw_); }
  int32_t world_size() const { return api_.world_size(raw_); }
  void abort(const char* reason) const { api_.abort(raw_, reason); }
  uint64_t bytes_sent() const { return TSR_HAS(tsr_collective, &api_, bytes_sent) ? api_.bytes_sent(raw_) : 0; }
  int32_t host_of(int32_t rank) const {
    return TSR_HAS(tsr_collective, &api_, host_of) ? api_.host_of(raw_, rank) : -1;
  }

  // Everybody's `mine`, by rank; blocks.
  std::vector<int64_t> all_gather(const std::vector<int64_t>& mine, const char* label, double timeout_s) const {
    std::vector<int64_t> all(mine.size() * static_cast<size_t>(world_size()));
    const std::vector<int64_t> counts(static_cast<size_t>(world_size()), static_cast<int64_t>(mine.size()));
    int64_t n = static_cast<int64_t>(mine.size()), m = static_cast<int64_t>(all.size());
    DLTensor in{const_cast<int64_t*>(mine.data()), {kDLCPU, 0}, 1, sdk::dtype_of<int64_t>(), &n, nullptr, 0};
    DLTensor out{all.data(), {kDLCPU, 0}, 1, sdk::dtype_of<int64_t>(), &m, nullptr, 0};
    const tsr_collective_call how{sizeof(how), 0, nullptr, timeout_s, label};
    sdk::Call call;
    tsr_work* work = nullptr;
    call.check(api_.all_gather_v(raw_, &in, &out, counts.data(), &how, &work, call.err()));
    call.check(api_.wait(work, call.err()));
    return all;
  }

 private:
  const tsr_collective& api_;
  tsr_group* raw_;
};

}  // namespace tessera::nccl
