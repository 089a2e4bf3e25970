// The side channel: a group of a transport for host memory, which this transport wraps. It carries data in host memory,
// and knows which ranks are late or gone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/sdk/wrapped.h"

namespace tessera::nccl {

// Rewrites a message of the wrapped transport as one of transport `name`: "tcp: rank 1 ..." becomes "nccl: rank 1 ...".
inline std::string in_the_name_of(const std::string& name, std::string text) {
  if (const size_t colon = text.find(": "); colon != std::string::npos && text.find(' ') > colon)
    text.erase(0, colon + 2);
  return name + ": " + text;
}

class Side : public sdk::InnerGroup {
 public:
  using InnerGroup::InnerGroup;
  explicit Side(InnerGroup group) : InnerGroup(std::move(group)) {}

  // Null for color -1.
  std::unique_ptr<Side> split(int32_t color, int32_t key, const sdk::CollectiveCall& call) const {
    InnerGroup child = InnerGroup::split(color, key, call);
    return child ? std::make_unique<Side>(std::move(child)) : nullptr;
  }

  // Returns the values `mine` of every rank, in the order of the ranks. Blocks.
  std::vector<int64_t> all_gather(const std::vector<int64_t>& mine, const char* label, double timeout_s) const {
    std::vector<int64_t> all(mine.size() * static_cast<size_t>(world_size()));
    const std::vector<int64_t> counts(static_cast<size_t>(world_size()), static_cast<int64_t>(mine.size()));
    int64_t n = static_cast<int64_t>(mine.size()), m = static_cast<int64_t>(all.size());
    DLTensor in{const_cast<int64_t*>(mine.data()), {kDLCPU, 0}, 1, sdk::dtype_of<int64_t>(), &n, nullptr, 0};
    DLTensor out{all.data(), {kDLCPU, 0}, 1, sdk::dtype_of<int64_t>(), &m, nullptr, 0};
    wait(all_gather_v(in, out, counts, sdk::named_call(label, timeout_s)));
    return all;
  }
};

}  // namespace tessera::nccl
