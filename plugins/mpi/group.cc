// The operations: what each rank exchanges with each other.
#include "group.h"

#include <algorithm>
#include <cstring>

#include "tessera/sdk/collective_checks.h"
#include "tessera/sdk/tensor.h"

namespace tessera::mpi {
namespace {

char* bytes_of(const DLTensor& tensor) { return sdk::data_as<char>(tensor); }
size_t size_of(const DLTensor& tensor) {
  return static_cast<size_t>(sdk::numel(tensor)) * static_cast<size_t>(sdk::element_bytes(tensor));
}

void copy(char* to, const char* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

Reduction reduction_of(const DLTensor& tensor, int32_t op) {
  Reduction reduction;
  reduction.element_bytes = static_cast<size_t>(sdk::element_bytes(tensor));
  if (sdk::holds<float>(tensor)) {
    reduction.type = MPI_FLOAT;
  } else if (sdk::holds<double>(tensor)) {
    reduction.type = MPI_DOUBLE;
  } else if (sdk::holds<int32_t>(tensor)) {
    reduction.type = MPI_INT32_T;
  } else if (sdk::holds<int64_t>(tensor)) {
    reduction.type = MPI_INT64_T;
  } else {
    sdk::fail(TSR_UNIMPLEMENTED, "mpi reduces float32, float64, int32 and int64, not DLPack type code ",
              int{tensor.dtype.code}, " with ", int{tensor.dtype.bits}, " bits");
  }
  switch (op) {
    case TSR_REDUCE_SUM:
      reduction.op = MPI_SUM;
      break;
    case TSR_REDUCE_MAX:
      reduction.op = MPI_MAX;
      break;
    case TSR_REDUCE_MIN:
      reduction.op = MPI_MIN;
      break;
    default:
      sdk::fail(TSR_UNIMPLEMENTED, "mpi reduces by sum, max and min, not by operation ", op);
  }
  return reduction;
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
    const std::string text = refusal.what() + (" (rank " + std::to_string(rank()) + ", " + name_of(op.header) + ")");
    engine_.recycle(op);
    engine_.refuse(refusal.code(), text);
  }
  engine_.start(op);
  return &op;
}

sdk::Work* Group::all_to_all_v(const DLTensor& send, sdk::Counts send_counts, const DLTensor& recv,
                               sdk::Counts recv_counts, const sdk::CollectiveCall& call) {
  return run(OpKind::kAllToAll, &send, call, [&](Op& op) {
    sdk::CallChecks("mpi", *this).all_to_all_v(send, send_counts, recv, recv_counts);
    const size_t element = static_cast<size_t>(sdk::element_bytes(send));
    const char* from = bytes_of(send);
    char* to = bytes_of(recv);
    for (int32_t r = 0; r < world_size(); ++r) {
      const size_t sent = static_cast<size_t>(send_counts[r]) * element;
      const size_t received = static_cast<size_t>(recv_counts[r]) * element;
      if (r == rank()) {
        copy(to, from, sent);
      } else {
        op.lanes[r] = {true, true, from, sent, to, received};
      }
      from += sent;
      to += received;
    }
  });
}

// What fits into a message is exchanged whole. Otherwise piece r is reduced by rank r, which hands it out.
sdk::Work* Group::all_reduce(const DLTensor& inout, int32_t op, const sdk::CollectiveCall& call) {
  return run(OpKind::kAllReduce, &inout, call, [&](Op& o) {
    sdk::CallChecks("mpi", *this).all_reduce(inout);
    o.reduction = reduction_of(inout, op);
    o.header.reduce = static_cast<uint8_t>(op);
    o.header.total = size_of(inout);
    char* data = bytes_of(inout);
    const bool whole = size_of(inout) <= kInline;
    const size_t elements = static_cast<size_t>(sdk::numel(inout)), world = static_cast<size_t>(world_size());
    for (size_t r = 0; r < world; ++r) {
      const size_t begin = whole ? 0 : elements * r / world * o.reduction.element_bytes;
      const size_t end = whole ? size_of(inout) : elements * (r + 1) / world * o.reduction.element_bytes;
      char* piece = data == nullptr ? nullptr : data + begin;
      if (static_cast<int32_t>(r) == rank()) {
        o.reduction.own = o.reduction.target = piece;
        o.reduction.bytes = end - begin;
      } else {
        o.lanes[r] = {true, true, piece, end - begin, piece, whole ? 0 : end - begin};
      }
    }
    o.reduction.hands_out = !whole;
  });
}

sdk::Work* Group::reduce_scatter_v(const DLTensor& send, sdk::Counts counts, const DLTensor& recv, int32_t op,
                                   const sdk::CollectiveCall& call) {
  return run(OpKind::kReduceScatter, &send, call, [&](Op& o) {
    sdk::CallChecks("mpi", *this).reduce_scatter_v(send, counts, recv);
    o.reduction = reduction_of(send, op);
    o.header.reduce = static_cast<uint8_t>(op);
    o.header.total = size_of(send);
    const char* piece = bytes_of(send);
    for (int32_t r = 0; r < world_size(); ++r) {
      const size_t bytes = static_cast<size_t>(counts[r]) * o.reduction.element_bytes;
      if (r == rank()) {
        o.reduction.own = piece;
      } else {
        o.lanes[r] = {true, true, piece, bytes, nullptr, 0};
      }
      piece += bytes;
    }
    o.reduction.target = bytes_of(recv);
    o.reduction.bytes = size_of(recv);
    if (world_size() == 1) copy(o.reduction.target, o.reduction.own, o.reduction.bytes);
  });
}

sdk::Work* Group::all_gather_v(const DLTensor& send, const DLTensor& recv, sdk::Counts counts,
                               const sdk::CollectiveCall& call) {
  return run(OpKind::kAllGather, &send, call, [&](Op& op) {
    sdk::CallChecks("mpi", *this).all_gather_v(send, recv, counts);
    op.header.total = size_of(recv);
    const size_t element = static_cast<size_t>(sdk::element_bytes(recv));
    char* to = bytes_of(recv);
    for (int32_t r = 0; r < world_size(); ++r) {
      const size_t bytes = static_cast<size_t>(counts[r]) * element;
      if (r == rank()) {
        copy(to, bytes_of(send), bytes);
      } else {
        op.lanes[r] = {true, true, bytes_of(send), size_of(send), to, bytes};
      }
      to += bytes;
    }
  });
}

sdk::Work* Group::broadcast(const DLTensor& inout, int32_t root, const sdk::CollectiveCall& call) {
  return run(OpKind::kBroadcast, &inout, call, [&](Op& op) {
    sdk::CallChecks("mpi", *this).broadcast(inout, root);
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

}  // namespace tessera::mpi
