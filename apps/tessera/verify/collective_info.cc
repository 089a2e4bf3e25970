// Checks that a transport's description of itself (tsr_collective::describe, wire_bytes) is true.
#include <algorithm>
#include <cstring>

#include "tessera/sdk/tensor.h"
#include "verify/check.h"
#include "verify/ranks.h"

namespace tessera::cli::verify {
namespace {

void check_collective_describe(Subject& subject) {
  const Made part = subject.make();
  subject.doing("describe");
  const tsr_collective_info info = described(part), again = described(part);
  require(std::memcmp(&info, &again, sizeof(info)) == 0, "describe gives another answer when it is asked again");
  require(info.num_reducible < 256 && (info.reducible != nullptr || info.num_reducible == 0),
          "describe gives no list of the types that reductions take");
  const std::span<const DLDataType> reducible(info.reducible, info.num_reducible);
  for (const DLDataType& least :
       {sdk::dtype_of<float>(), sdk::dtype_of<double>(), sdk::dtype_of<int32_t>(), sdk::dtype_of<int64_t>()}) {
    require(
        std::any_of(reducible.begin(), reducible.end(), [&](const DLDataType& t) { return sdk::same_dtype(t, least); }),
        "describe does not say that reductions take ", least.code == kDLFloat ? "float" : "int", int{least.bits});
  }
  int count = 0;
  for (const int32_t* type = info.device_types; type != nullptr && *type != 0; ++type) {
    require(*type > 0 && *type != kDLCPU, "describe names device type ", *type, ", which is not a device");
    require(++count < 64, "describe's list of device types does not end with 0");
  }
  const auto& api = part.api<tsr_collective>();
  if (!TSR_HAS(tsr_collective, &api, wire_bytes)) return;
  subject.doing("wire_bytes");
  for (const uint32_t flags : {0u, uint32_t{TSR_CALL_LOSSY | TSR_CALL_FORWARD}}) {
    for (const int64_t width : {0, 16}) {
      int64_t before = 0;
      for (const int64_t n : {0, 16, 32, 1600, 160000}) {
        const int64_t bytes = api.wire_bytes(part.self(), sdk::dtype_of<float>(), n, width, flags);
        require(bytes >= before, "wire_bytes says ", bytes, " for ", n, " float32 in rows of ", width, ", but ", before,
                " for fewer");
        before = bytes;
      }
    }
  }
}

// Tests every type that the transport claims to add up.
void check_collective_reducible(Subject& subject) {
  in_all_ranks(subject, {.world = 2}, [](Group& group) {
    const DLDevice device{group.on_emulated_device() ? kDLExtDev : kDLCPU, 0};
    const std::span<const DLDataType> reducible(group.info().reducible, group.info().num_reducible);
    for (const DLDataType& type : reducible) {
      std::vector<uint64_t> zeros(8);  // zeros in every type
      int64_t n = 64 * static_cast<int64_t>(zeros.size()) / (int64_t{type.bits} * type.lanes);
      const DLTensor tensor{zeros.data(), device, 1, type, &n, nullptr, 0};
      try {
        group.run("a described type", [&](const tsr_collective_call* c, tsr_work** w, tsr_error* e) {
          return group.api().all_reduce(group.raw(), &tensor, TSR_REDUCE_SUM, c, w, e);
        });
      } catch (const Refused& e) {
        broken("describe says that reductions take DLPack type ", int{type.code}, " with ", int{type.bits},
               " bits, but all_reduce says: ", e.what());
      }
      require(zeros == std::vector<uint64_t>(8), "the sum of zeros is not 0 in DLPack type ", int{type.code}, " with ",
              int{type.bits}, " bits");
      // a rank that is ahead would otherwise make the others fail in the previous type
      group.barrier("after a described type");
    }
  });
}

}  // namespace

std::span<const Check> collective_info_checks() {
  static constexpr const char* kInfo = "abi/collective.h, tsr_collective_info";
  static constexpr Check kChecks[] = {
      {"collective.describe", 3, TSR_COLLECTIVE_KIND, kInfo, 20, check_collective_describe},
      {"collective.reducible", 4, TSR_COLLECTIVE_KIND, kInfo, 40, check_collective_reducible},
  };
  return kChecks;
}

}  // namespace tessera::cli::verify
