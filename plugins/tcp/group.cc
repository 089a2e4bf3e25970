// The operations: what each rank exchanges with each other.
#include <algorithm>
#include <numeric>

#include "tcp.h"
#include "tessera/sdk/collective_checks.h"
#include "tessera/sdk/tensor.h"

namespace tessera::tcp {
namespace {

// An all_reduce of up to this many bytes is exchanged whole, in one step; a larger one is cut into pieces.
constexpr size_t kOneStep = size_t{16} << 10;

char* bytes_of(const DLTensor& tensor) { return sdk::data_as<char>(tensor); }
size_t size_of(const DLTensor& tensor) {
  return static_cast<size_t>(sdk::numel(tensor)) * static_cast<size_t>(sdk::element_bytes(tensor));
}

}  // namespace

template <class Fill>
sdk::Work* Group::run(OpKind kind, const DLTensor* typed, const sdk::CollectiveCall& call, Fill&& fill) {
  engine_.throw_if_failed();
  Op& op = engine_.prepare(kind, call);
  if (typed != nullptr) {
    op.header.dtype_code = typed->dtype.code;
    op.header.dtype_bits = typed->dtype.bits;
  }
  try {
    fill(op);
  } catch (const sdk::Failure& refusal) {
    const std::string text =
        refusal.what() + (" (rank " + std::to_string(engine_.name()) + ", " + name_of(op.header) + ")");
    engine_.recycle(op);
    engine_.fail(refusal.code(), text);
  }
  engine_.start(op);
  return &op;
}

sdk::Work* Group::all_to_all_v(const DLTensor& send, sdk::Counts send_counts, const DLTensor& recv,
                               sdk::Counts recv_counts, const sdk::CollectiveCall& call) {
  return run(OpKind::kAllToAll, &send, call, [&](Op& op) {
    sdk::CallChecks("tcp", *this).all_to_all_v(send, send_counts, recv, recv_counts);
    op.one_reader = true;
    const size_t element = static_cast<size_t>(sdk::element_bytes(send));
    const char* from = bytes_of(send);
    char* to = bytes_of(recv);
    for (int32_t r = 0; r < world_size(); ++r) {
      const size_t sent = static_cast<size_t>(send_counts[r]) * element;
      const size_t received = static_cast<size_t>(recv_counts[r]) * element;
      if (r == rank()) {
        op.own = {to, from, sent};
      } else {
        op.lanes[r] = {true, true, from, sent, to, received};
      }
      from += sent;
      to += received;
    }
  });
}

void Group::reduce_in_one_step(Op& op, char* data, size_t bytes) {
  for (int32_t r = 0; r < world_size(); ++r) {
    if (r != rank()) op.lanes[r] = {true, true, data, bytes, nullptr, 0};
  }
  op.reduction.own = op.reduction.target = data;
  op.reduction.bytes = bytes;
  op.reduction.after_sends = true;
}

// Piece r is reduced by rank r, which hands it out while it comes into being.
void Group::reduce_in_two_steps(Op& op, char* data, size_t elements, size_t element_bytes) {
  const size_t world = static_cast<size_t>(world_size());
  for (size_t r = 0; r < world; ++r) {
    char* piece = data + elements * r / world * element_bytes;
    const size_t bytes = static_cast<size_t>(data + elements * (r + 1) / world * element_bytes - piece);
    if (static_cast<int32_t>(r) == rank()) {
      op.reduction.own = op.reduction.target = piece;
      op.reduction.bytes = bytes;
    } else {
      op.lanes[r] = {true, true, piece, bytes, piece, bytes};
    }
  }
  op.reduction.hands_out = true;
  op.one_reader = true;
}

sdk::Work* Group::all_reduce(const DLTensor& inout, int32_t op, const sdk::CollectiveCall& call) {
  return run(OpKind::kAllReduce, &inout, call, [&](Op& o) {
    sdk::CallChecks("tcp", *this).all_reduce(inout);
    o.reduction.function = reduce_function(inout.dtype, op);
    o.header.reduce = static_cast<uint8_t>(op);
    o.header.total = size_of(inout);
    if (size_of(inout) <= kOneStep) {
      reduce_in_one_step(o, bytes_of(inout), size_of(inout));
    } else {
      reduce_in_two_steps(o, bytes_of(inout), static_cast<size_t>(sdk::numel(inout)),
                          static_cast<size_t>(sdk::element_bytes(inout)));
    }
  });
}

sdk::Work* Group::reduce_scatter_v(const DLTensor& send, sdk::Counts counts, const DLTensor& recv, int32_t op,
                                   const sdk::CollectiveCall& call) {
  return run(OpKind::kReduceScatter, &send, call, [&](Op& o) {
    sdk::CallChecks("tcp", *this).reduce_scatter_v(send, counts, recv);
    o.reduction.function = reduce_function(send.dtype, op);
    o.header.reduce = static_cast<uint8_t>(op);
    o.header.total = size_of(send);
    const size_t element = static_cast<size_t>(sdk::element_bytes(send));
    o.one_reader = true;
    const char* piece = bytes_of(send);
    for (int32_t r = 0; r < world_size(); ++r) {
      const size_t bytes = static_cast<size_t>(counts[r]) * element;
      if (r == rank()) {
        o.reduction.own = piece;
      } else {
        o.lanes[r] = {true, true, piece, bytes, nullptr, 0};
      }
      piece += bytes;
    }
    o.reduction.target = bytes_of(recv);
    o.reduction.bytes = size_of(recv);
    if (world_size() == 1) o.own = {o.reduction.target, o.reduction.own, o.reduction.bytes};
  });
}

sdk::Work* Group::all_gather_v(const DLTensor& send, const DLTensor& recv, sdk::Counts counts,
                               const sdk::CollectiveCall& call) {
  return run(OpKind::kAllGather, &send, call, [&](Op& op) {
    sdk::CallChecks("tcp", *this).all_gather_v(send, recv, counts);
    op.header.total = size_of(recv);
    const size_t element = static_cast<size_t>(sdk::element_bytes(recv));
    char* to = bytes_of(recv);
    for (int32_t r = 0; r < world_size(); ++r) {
      const size_t bytes = static_cast<size_t>(counts[r]) * element;
      if (r == rank()) {
        op.own = {to, bytes_of(send), bytes};
      } else {
        op.lanes[r] = {true, true, bytes_of(send), size_of(send), to, bytes};
      }
      to += bytes;
    }
  });
}

sdk::Work* Group::broadcast(const DLTensor& inout, int32_t root, const sdk::CollectiveCall& call) {
  return run(OpKind::kBroadcast, &inout, call, [&](Op& op) {
    sdk::CallChecks("tcp", *this).broadcast(inout, root);
    op.header.total = size_of(inout);
    for (int32_t r = 0; r < world_size(); ++r) {
      Lane& lane = op.lanes[r];
      if (rank() == root && r != root) {
        lane = {true, false, bytes_of(inout), size_of(inout), nullptr, 0};
      } else if (rank() != root && r == root) {
        lane = {false, true, nullptr, 0, bytes_of(inout), size_of(inout)};
      }
    }
  });
}

sdk::Work* Group::barrier(const sdk::CollectiveCall& call) {
  return run(OpKind::kBarrier, nullptr, call, [&](Op& op) {
    for (int32_t r = 0; r < world_size(); ++r) op.lanes[r].sends = op.lanes[r].receives = r != rank();
  });
}

}  // namespace tessera::tcp
