#include "job.h"

#include <algorithm>
#include <sstream>

namespace tessera::tcp::simulation {

DLTensor Started::view(std::vector<float>& data, int64_t& size) {
  size = static_cast<int64_t>(data.size());
  return {data.data(), {kDLCPU, 0}, 1, sdk::dtype_of<float>(), &size, nullptr, 0};
}

Started::Started(sdk::Group& group, size_t index, const Operation& operation, const char* label)
    : index_(index), operation_(operation), rank_(group.rank()), world_(group.world_size()) {
  using sdk::OpKind;
  const sdk::CollectiveCall call = sdk::named_call(label, 0);
  std::vector<int64_t> out, in;
  const auto append = [&](int to, int64_t count) {
    for (int64_t k = 0; k < count; ++k) from_.push_back(number(index_, rank_, to, k));
    out.push_back(count);
  };
  switch (operation.kind) {
    case OpKind::kAllToAll:
      for (int r = 0; r < world_; ++r) {
        append(r, count_of(operation, rank_, r));
        in.push_back(count_of(operation, r, rank_));
        to_.resize(to_.size() + static_cast<size_t>(in.back()));
      }
      work_ = group.all_to_all_v(view(from_, from_size_), out, view(to_, to_size_), in, call);
      break;
    case OpKind::kAllReduce:
      append(0, operation.elements);
      work_ = group.all_reduce(view(from_, from_size_), TSR_REDUCE_SUM, call);
      break;
    case OpKind::kReduceScatter:
      for (int r = 0; r < world_; ++r) append(r, count_of(operation, 1, r));
      to_.resize(static_cast<size_t>(out[static_cast<size_t>(rank_)]));
      work_ = group.reduce_scatter_v(view(from_, from_size_), out, view(to_, to_size_), TSR_REDUCE_SUM, call);
      break;
    case OpKind::kAllGather:
      append(0, count_of(operation, rank_, 1));
      for (int r = 0; r < world_; ++r) in.push_back(count_of(operation, r, 1));
      for (int64_t count : in) to_.resize(to_.size() + static_cast<size_t>(count));
      work_ = group.all_gather_v(view(from_, from_size_), view(to_, to_size_), in, call);
      break;
    case OpKind::kBroadcast: {
      const int root = static_cast<int>(index_) % world_;
      if (rank_ == root) append(0, operation.elements);
      from_.resize(static_cast<size_t>(operation.elements));
      work_ = group.broadcast(view(from_, from_size_), root, call);
      break;
    }
    case OpKind::kBarrier:
      work_ = group.barrier(call);
      break;
  }
}

std::string Started::wrong() const {
  using sdk::OpKind;
  const std::vector<float>& got =
      operation_.kind == OpKind::kAllReduce || operation_.kind == OpKind::kBroadcast ? from_ : to_;
  size_t at = 0;
  const auto differs = [&](float expected) { return got[at++] != expected; };
  const auto says = [&](int from) {
    std::ostringstream out;
    out << "rank " << rank_ << ": operation " << index_ << ": element " << at - 1 << " of " << got.size() << ", from "
        << from << ", is " << got[at - 1];
    return out.str();
  };
  const auto all = [&](int to, int64_t k) {
    float sum = 0;
    for (int r = 0; r < world_; ++r) sum += number(index_, r, to, k);
    return sum;
  };
  for (int r = 0; r < world_; ++r) {
    const int64_t count = operation_.kind == OpKind::kAllToAll    ? count_of(operation_, r, rank_)
                          : operation_.kind == OpKind::kAllGather ? count_of(operation_, r, 1)
                                                                  : 0;
    const int to = operation_.kind == OpKind::kAllToAll ? rank_ : 0;
    for (int64_t k = 0; k < count; ++k) {
      if (differs(number(index_, r, to, k))) return says(r);
    }
  }
  const auto left = static_cast<int64_t>(got.size() - at);
  for (int64_t k = 0; k < left; ++k) {
    const int root = static_cast<int>(index_) % world_;
    const float expected = operation_.kind == OpKind::kBroadcast   ? number(index_, root, 0, k)
                           : operation_.kind == OpKind::kAllReduce ? all(0, k)
                                                                   : all(rank_, k);
    if (differs(expected)) return says(-1);
  }
  return "";
}

void Started::scribble() {
  std::fill(from_.begin(), from_.end(), -1.0f);
  std::fill(to_.begin(), to_.end(), -2.0f);
}

}  // namespace tessera::tcp::simulation
