// Checks ids and offsets before anything is read or written. The caller's buffers are never changed.
// Unsharded and sharded modules use the same check.
//
// If nothing is wrong, the cost is one vectorised pass over offsets and ids, without allocation. [any-thread]
//
// Ids, offsets and weights may all be on a device. If its component can check them there, the host only waits for 12
// bytes. Errors are then reported and repaired in host memory, and the copy goes back to the device.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/embedding_configs.h"
#include "tessera/tensor.h"

namespace tessera {

// One run of bags that one table reads. The strings are only borrowed, for messages.
struct BoundsFeature {
  std::string_view feature;
  std::string_view table;
  int64_t rows = 0;       // valid ids are [0, rows)
  int64_t first_bag = 0;  // its bags are [first_bag, first_bag + bags) of the offsets
  int64_t bags = 0;
  int64_t padding_idx = -1;  // ids that are left out everywhere, even from MEAN's length; -1: none
  // True for tables with pruned rows: the id -1 is valid in every mode and is dropped. With a remapping, valid ids are
  // those that it knows. Each becomes its stored row, or is dropped if its row was pruned.
  bool pruned = false;
  const IndexRemapping* remapping = nullptr;
};

struct BoundsInput {
  Tensor ids;      // int32 or int64 [n]
  Tensor offsets;  // int32 or int64 [all bags + 1], ascending in [0, n], the last one n
  Tensor weights;  // float32 [n], or undefined
  std::span<const BoundsFeature> features;
  bool always_copy = false;       // copy features one after the other even if nothing is wrong
  bool bad_ids_become_0 = false;  // FBGEMM's repair in kIgnore and kWarning; otherwise they are dropped
};

// The ids to look up.
struct CheckedIds {
  // True: look up the input itself, at each feature's first_bag; the tensors below are undefined. False: look up the
  // copy below. It holds the features one after the other, without padding and bad ids.
  bool clean = true;
  Tensor ids;                      // dtype of the input [m]
  Tensor offsets;                  // int64 [bags + 1]
  Tensor weights;                  // float32 [m], undefined without
  Tensor positions;                // int64 [m]: position of each remaining id in the input
  Tensor lengths;                  // int64 [bags]: MEAN's divisor; bad ids count, padding does not
  std::vector<int64_t> first_bag;  // per feature, into offsets and lengths
  std::vector<int64_t> begin;      // per feature: start of its first bag in the input, after the repair of offsets

  std::vector<int64_t> bad;      // per feature: number of wrong ids; empty: no id is wrong
  std::vector<int64_t> dropped;  // per feature: number of ids that are not in the copy, without padding
  int64_t bad_offsets = 0;       // number of offsets that had to be moved
  std::string first;             // a sentence about the first error; empty: none
};

// kInvalidArgument: wrong types or counts, in every mode. kOutOfRange: an error in mode kFatal; the sentence names
// feature, sample, id and bound. In the other modes bad ids are dropped, and bad offsets are moved as FBGEMM does (the
// last one to n, each bag's end into [start, n]).
CheckedIds check_bounds(BoundsCheckMode mode, const BoundsInput& input);

// Does what FBGEMM's bounds_check_indices does. Features have equally many bags, a bad id becomes 0, and -1 (a pruned
// row) is accepted. Works on copies.
struct BoundsCheckIndices {
  Tensor indices;
  Tensor offsets;
  int64_t warning_count = 0;  // number of repairs; only kWarning counts them
};
BoundsCheckIndices bounds_check_indices(BoundsCheckMode mode, std::span<const int64_t> rows_per_feature,
                                        const Tensor& indices, const Tensor& offsets, const Tensor& weights = {});

}  // namespace tessera
