// The implementation of QuantEmbeddings: kernel instances over stored rows, and one call of each for a batch.
#pragma once

#include <string>
#include <vector>

#include "modules/lookup_batch.h"
#include "modules/table_groups.h"
#include "tessera/quantization.h"

namespace tessera {

struct QuantEmbeddings::Impl {
  // A feature of a table, in output order.
  struct TableFeature {
    size_t table = 0;
    std::string feature;
    int64_t column = 0;  // column in the pooled output
  };
  // Tables of one row format.
  struct Group {
    std::shared_ptr<Lookup> lookup;
    std::vector<tsr_lookup_feature> features;  // of the batch
  };

  Impl(const Runtime& runtime, QuantCollectionOptions options, std::string prefix);

  // Finds and checks the batch's ids; `ids` is valid until the next call. The caller says where a table feature's rows
  // go in the output: add(table feature, offset, stride).
  const LookupIds& check(const KeyedJaggedTensor& batch, bool sequences);
  void add(size_t table_feature, int64_t offset, int64_t stride);
  void look_up(const Tensor& output);
  // The repaired offsets of the batch; nullptr if none were repaired.
  const CheckedIds* repaired() const { return repaired_ ? &*repaired_ : nullptr; }
  size_t key_of(size_t table_feature) const { return key_of_feature_[table_feature]; }

  const Runtime& runtime;
  QuantCollectionOptions options;
  std::string prefix;
  std::vector<std::string> names;
  std::vector<std::string> kernel_ids;
  std::vector<TableFeature> table_features;
  std::vector<int64_t> dims;  // by table feature
  int64_t width = 0;
  std::vector<int64_t> bad_ids;  // by table

 private:
  void open_kernels();
  void find_keys(const KeyedJaggedTensor& batch);
  void count_bad(const CheckedIds& checked);

  std::vector<Group> groups_;
  std::vector<TableGroups::Place> places_;  // by table
  bool warned_ = false;
  // These hold one batch. They are members so that their memory is used again.
  std::vector<std::string> keys_;
  std::vector<size_t> key_of_feature_;
  std::vector<BoundsFeature> features_;
  std::vector<PoolingType> pooling_;
  LookupIds ids_;
  std::optional<CheckedIds> repaired_;
};

}  // namespace tessera
