// tessera/bounds.h - ids and offsets are checked here before anything is read or written; the caller's buffers are
// never changed. Unsharded and sharded modules use the same check.
//
// Cost where nothing is wrong: one vectorised pass over offsets and ids, no allocation. [any-thread]
//
// Ids, offsets and weights may be on a device, all of them. Where its part can, it looks there, and the host waits for
// 12 bytes; what is wrong is then found, said and repaired in host memory, and the copy goes back to the device.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/embedding_configs.h"
#include "tessera/tensor.h"

namespace tessera {

// One run of bags that one table reads. The strings are for messages and are only borrowed.
struct BoundsFeature {
  std::string_view feature;
  std::string_view table;
  int64_t rows = 0;       // valid ids are [0, rows)
  int64_t first_bag = 0;  // its bags are [first_bag, first_bag + bags) of the offsets
  int64_t bags = 0;
  int64_t padding_idx = -1;  // ids left out everywhere, MEAN's length included; -1: none
  // Tables whose rows were pruned: the id -1 is in order in every mode, and dropped. With a remapping, valid ids are
  // those that it knows; each becomes its stored row, or is dropped where that was pruned.
  bool pruned = false;
  const IndexRemapping* remapping = nullptr;
};

struct BoundsInput {
  Tensor ids;      // int32 or int64 [n]
  Tensor offsets;  // int32 or int64 [all bags + 1], ascending in [0, n], the last one n
  Tensor weights;  // float32 [n], or undefined
  std::span<const BoundsFeature> features;
  bool always_copy = false;       // the features one after the other even where nothing is wrong
  bool bad_ids_become_0 = false;  // FBGEMM's repair in kIgnore and kWarning, instead of dropping them
};

// The ids to look up.
struct CheckedIds {
  // True: look up what was given, at each feature's first_bag; the tensors below are undefined.
  // False: look up the copy below, which holds the features one after the other, without padding and bad ids.
  bool clean = true;
  Tensor ids;                      // dtype of the input [m]
  Tensor offsets;                  // int64 [bags + 1]
  Tensor weights;                  // float32 [m], undefined without
  Tensor positions;                // int64 [m]: where each kept id was in the input
  Tensor lengths;                  // int64 [bags]: what MEAN divides by; bad ids count, padding does not
  std::vector<int64_t> first_bag;  // per feature, into offsets and lengths
  std::vector<int64_t> begin;      // per feature: where its first bag began in the input, offsets repaired

  std::vector<int64_t> bad;      // per feature: ids that were wrong; empty where there are none
  std::vector<int64_t> dropped;  // per feature: ids that are not in the copy, padding aside
  int64_t bad_offsets = 0;       // offsets that had to be moved
  std::string first;             // a sentence about the first thing wrong, empty if nothing was
};

// kInvalidArgument for wrong types or counts, whatever the mode. kOutOfRange in mode kFatal: one sentence that names
// feature, sample, id and bound. Otherwise bad offsets are moved as FBGEMM moves them (the last to n; each bag's end
// into [start, n]) and bad ids are dropped.
CheckedIds check_bounds(BoundsCheckMode mode, const BoundsInput& input);

// FBGEMM's bounds_check_indices, for those who want its repair: features of equally many bags, a bad id becomes 0, and
// -1 (a pruned row) is accepted. Works on copies.
struct BoundsCheckIndices {
  Tensor indices;
  Tensor offsets;
  int64_t warning_count = 0;  // repairs; counted by kWarning alone
};
BoundsCheckIndices bounds_check_indices(BoundsCheckMode mode, std::span<const int64_t> rows_per_feature,
                                        const Tensor& indices, const Tensor& offsets, const Tensor& weights = {});

}  // namespace tessera
