#include "modules/bounds.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "modules/device_bounds.h"
#include "tessera/quantization.h"

namespace tessera {
namespace {

// Both passes are branch-free, so that compilers vectorise them.
template <class T>
bool ascends(const T* offsets, int64_t bags) {
  T wrong = 0;
  for (int64_t i = 0; i < bags; ++i) wrong |= static_cast<T>(offsets[i] > offsets[i + 1]);
  return wrong == 0;
}

// An id below 0 and an id above the last one both leave a sign bit, by themselves or by the difference.
template <class T>
bool all_inside(const T* ids, int64_t count, int64_t rows) {
  if (rows == 0) return count == 0;
  const T last = static_cast<T>(std::min<int64_t>(rows - 1, std::numeric_limits<T>::max()));
  using Bits = std::make_unsigned_t<T>;
  Bits signs = 0;
  for (int64_t i = 0; i < count; ++i)
    signs |= static_cast<Bits>(ids[i]) | (static_cast<Bits>(last) - static_cast<Bits>(ids[i]));
  return static_cast<T>(signs) >= 0;
}

template <class T>
bool contains(const T* ids, int64_t count, int64_t id) {
  T found = 0;
  for (int64_t i = 0; i < count; ++i) found |= static_cast<T>(ids[i] == static_cast<T>(id));
  return found != 0;
}

template <class Call>
auto with_integers(const Tensor& t, const Call& call) {
  return t.dtype() == DType::kInt32 ? call(static_cast<const int32_t*>(t.raw()))
                                    : call(static_cast<const int64_t*>(t.raw()));
}

void require_integers(const Tensor& t, const char* what) {
  if (t.dtype() != DType::kInt32 && t.dtype() != DType::kInt64) {
    fail(Code::kInvalidArgument, what, " must be int32 or int64, not ", to_string(t.dtype()));
  }
}

std::vector<int64_t> widened(const Tensor& offsets) {
  return with_integers(offsets, [&](const auto* p) { return std::vector<int64_t>(p, p + offsets.numel()); });
}

// The wrong ids and offsets found so far.
struct Findings {
  BoundsCheckMode mode;
  int64_t count = 0;
  std::string first;

  void add(const std::string& sentence) {
    if (mode == BoundsCheckMode::kFatal) fail(Code::kOutOfRange, sentence);
    if (count++ == 0) first = sentence;
  }
};

// Moves offsets as FBGEMM does. name_bag(i) returns the words for bag i in messages.
template <class NameBag>
void repair_offsets(std::vector<int64_t>& offsets, int64_t n, Findings& found, const NameBag& name_bag) {
  const int64_t bags = static_cast<int64_t>(offsets.size()) - 1;
  if (offsets[bags] != n) {
    found.add(str_cat("the last offset is ", offsets[bags], ", but there are ", n,
                      " ids; lengths must add up to the number of ids"));
    offsets[bags] = n;
  }
  for (int64_t i = 0; i < bags; ++i) {
    int64_t &start = offsets[i], &end = offsets[i + 1];
    if (start >= 0 && start <= end && end <= n) continue;
    found.add(str_cat(name_bag(i), ": its ids are said to be [", start, ", ", end, ") of ", n,
                      "; offsets must ascend from 0 to the number of ids"));
    start = std::clamp<int64_t>(start, 0, n);
    end = std::max(start, std::min(end, n));
  }
}

std::string name_bag(std::span<const BoundsFeature> features, int64_t bag) {
  for (const BoundsFeature& f : features) {
    if (bag >= f.first_bag && bag < f.first_bag + f.bags) {
      return str_cat("feature \"", f.feature, "\", sample ", bag - f.first_bag);
    }
  }
  return str_cat("a feature that no table reads, entry ", bag, " of the batch");
}

int64_t valid_ids(const BoundsFeature& f) { return f.remapping == nullptr ? f.rows : f.remapping->ids(); }

std::string bad_id(const BoundsFeature& f, int64_t sample, int64_t id) {
  if (valid_ids(f) == 0) {
    return str_cat("feature \"", f.feature, "\", sample ", sample, ": id ", id, " was asked of table \"", f.table,
                   "\", which has no rows");
  }
  return str_cat("feature \"", f.feature, "\", sample ", sample, ": id ", id, " is not in table \"", f.table,
                 "\", whose ids are 0 to ", valid_ids(f) - 1);
}

// Copies the batch without padding and bad ids, features one after the other.
template <class T>
class Copier {
 public:
  Copier(const BoundsInput& input, const std::vector<int64_t>& offsets, Findings& found, CheckedIds& out)
      : input_(input), in_offsets_(offsets), found_(found), out_(out), ids_(input.ids.data<T>()) {
    int64_t bags = 0, most = 0;
    for (const BoundsFeature& f : input.features) {
      out.first_bag.push_back(bags);
      out.begin.push_back(offsets[f.first_bag]);
      bags += f.bags;
      most += offsets[f.first_bag + f.bags] - offsets[f.first_bag];
    }
    out.clean = false;
    out.bad.assign(input.features.size(), 0);
    out.dropped.assign(input.features.size(), 0);
    out.ids = Tensor::empty({most}, input.ids.dtype());
    if (input.weights.defined()) out.weights = Tensor::empty({most});
    out.positions = Tensor::empty({most}, DType::kInt64);
    out.lengths = Tensor::empty({bags}, DType::kInt64);
    out.offsets = Tensor::zeros({bags + 1}, DType::kInt64);
  }

  void run() {
    for (size_t i = 0; i < input_.features.size(); ++i) {
      for (int64_t bag = 0; bag < input_.features[i].bags; ++bag) copy_bag(i, bag);
    }
    out_.ids = out_.ids.first({kept_});
    if (out_.weights.defined()) out_.weights = out_.weights.first({kept_});
    out_.positions = out_.positions.first({kept_});
  }

 private:
  void copy_bag(size_t feature, int64_t bag) {
    const BoundsFeature& f = input_.features[feature];
    const int64_t start = in_offsets_[f.first_bag + bag], end = in_offsets_[f.first_bag + bag + 1];
    int64_t length = 0;
    for (int64_t p = start; p < end; ++p) {
      if (f.padding_idx >= 0 && ids_[p] == f.padding_idx) continue;
      ++length;
      const int64_t row = row_of(feature, bag, ids_[p]);
      if (row < 0) {
        ++out_.dropped[feature];
        continue;
      }
      out_.ids.template data<T>()[kept_] = static_cast<T>(row);
      if (out_.weights.defined()) out_.weights.data<float>()[kept_] = input_.weights.data<float>()[p];
      out_.positions.data<int64_t>()[kept_++] = p;
    }
    const int64_t out_bag = out_.first_bag[feature] + bag;
    out_.lengths.data<int64_t>()[out_bag] = length;
    out_.offsets.data<int64_t>()[out_bag + 1] = kept_;
  }

  // Returns the row in which the id is looked up; -1: none.
  int64_t row_of(size_t feature, int64_t bag, int64_t id) {
    const BoundsFeature& f = input_.features[feature];
    if (f.pruned && id == -1) return -1;
    if (id < 0 || id >= valid_ids(f)) {
      found_.add(bad_id(f, bag, id));
      ++out_.bad[feature];
      if (!input_.bad_ids_become_0 || valid_ids(f) == 0) return -1;
      id = 0;
    }
    return f.remapping == nullptr ? id : f.remapping->row(id);
  }

  const BoundsInput& input_;
  const std::vector<int64_t>& in_offsets_;
  Findings& found_;
  CheckedIds& out_;
  const T* ids_;
  int64_t kept_ = 0;
};

void check_types(const BoundsInput& in) {
  require_integers(in.ids, "ids");
  require_integers(in.offsets, "offsets");
  if (in.offsets.numel() < 1) fail(Code::kInvalidArgument, "offsets must have one entry more than there are bags");
  if (in.weights.defined() && (in.weights.dtype() != DType::kFloat32 || in.weights.numel() != in.ids.numel())) {
    fail(Code::kInvalidArgument, "weights must be float32, one for each of the ", in.ids.numel(), " ids, not ",
         in.weights.numel(), " of ", to_string(in.weights.dtype()));
  }
  for (const BoundsFeature& f : in.features) {
    TESSERA_CHECK(f.first_bag >= 0 && f.bags >= 0);
    if (f.remapping != nullptr && in.ids.dtype() == DType::kInt32 && f.rows > std::numeric_limits<int32_t>::max()) {
      fail(Code::kInvalidArgument, "feature \"", f.feature, "\": the rows of table \"", f.table,
           "\" need ids of type int64");
    }
    if (f.first_bag + f.bags >= in.offsets.numel()) {
      fail(Code::kInvalidArgument, "feature \"", f.feature, "\" has bags ", f.first_bag, " to ",
           f.first_bag + f.bags - 1, ", but the batch has only ", in.offsets.numel() - 1);
    }
  }
}

bool offsets_are_good(const BoundsInput& in) {
  return with_integers(in.offsets, [&](const auto* p) {
    const int64_t bags = in.offsets.numel() - 1;
    return p[0] >= 0 && p[bags] == in.ids.numel() && ascends(p, bags);
  });
}

bool ids_are_good(const BoundsInput& in) {
  for (const BoundsFeature& f : in.features) {
    if (f.remapping != nullptr) return false;
    const auto [start, end] = with_integers(in.offsets, [&](const auto* p) {
      return std::pair<int64_t, int64_t>(p[f.first_bag], p[f.first_bag + f.bags]);
    });
    const bool good = with_integers(in.ids, [&, start = start, end = end](const auto* ids) {
      return all_inside(ids + start, end - start, f.rows) &&
             (f.padding_idx < 0 || !contains(ids + start, end - start, f.padding_idx));
    });
    if (!good) return false;
  }
  return true;
}

}  // namespace

CheckedIds check_bounds(BoundsCheckMode mode, const BoundsInput& input) {
  check_types(input);
  if (input.ids.stream()) return check_bounds_on_device(mode, input);
  const bool offsets_good = offsets_are_good(input);
  CheckedIds out;
  if (offsets_good && !input.always_copy && ids_are_good(input)) return out;

  Findings found{mode, 0, {}};
  std::vector<int64_t> offsets = widened(input.offsets);
  if (!offsets_good) {
    repair_offsets(offsets, input.ids.numel(), found, [&](int64_t bag) { return name_bag(input.features, bag); });
  }
  out.bad_offsets = found.count;
  if (input.ids.dtype() == DType::kInt32) {
    Copier<int32_t>(input, offsets, found, out).run();
  } else {
    Copier<int64_t>(input, offsets, found, out).run();
  }
  out.first = found.first;
  return out;
}

BoundsCheckIndices bounds_check_indices(BoundsCheckMode mode, std::span<const int64_t> rows_per_feature,
                                        const Tensor& indices, const Tensor& offsets, const Tensor& weights) {
  require_integers(indices, "indices");
  require_integers(offsets, "offsets");
  const int64_t features = static_cast<int64_t>(rows_per_feature.size()), n = indices.numel();
  const int64_t batch = features == 0 ? 0 : (offsets.numel() - 1) / features;
  if (offsets.numel() != batch * features + 1) {
    fail(Code::kInvalidArgument, offsets.numel(), " offsets do not fit ", features,
         " features: there must be one more than features times samples");
  }
  if (weights.defined() && weights.numel() > 0 && weights.numel() != n) {
    fail(Code::kInvalidArgument, "there are ", weights.numel(), " weights for ", n, " indices");
  }
  Findings found{mode, 0, {}};
  std::vector<int64_t> wide = widened(offsets), ids = widened(indices);
  repair_offsets(wide, n, found,
                 [&](int64_t bag) { return str_cat("feature ", bag / batch, ", sample ", bag % batch); });
  for (int64_t bag = 0; bag < batch * features; ++bag) {
    const int64_t rows = rows_per_feature[bag / batch];
    for (int64_t p = wide[bag]; p < wide[bag + 1]; ++p) {
      if (ids[p] == -1 || (ids[p] >= 0 && ids[p] < rows)) continue;
      found.add(
          str_cat("feature ", bag / batch, ", sample ", bag % batch, ": id ", ids[p], " is not in [0, ", rows, ")"));
      ids[p] = 0;
    }
  }
  return {.indices = Tensor::from(ids).reshape(indices.shape()).to(indices.dtype()),
          .offsets = Tensor::from(wide).to(offsets.dtype()),
          .warning_count = mode == BoundsCheckMode::kWarning ? found.count : 0};
}

}  // namespace tessera
