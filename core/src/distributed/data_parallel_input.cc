#include "distributed/data_parallel_input.h"

#include <algorithm>
#include <vector>

#include "sparse/arrays.h"

namespace tessera {
namespace {

class HostDataParallelInput final : public DataParallelInput {
 public:
  void take(const Wiring& wiring, const CheckedBatch& batch, bool weighted, RowExecutor&) override {
    batch_ = &batch;
    weighted_ = weighted;
    pooled_ = !wiring.sequence();
  }
  LookupView view() const override {
    const Tensor none;
    return {batch_->values, batch_->offsets,
            pooled_ && !batch_->clean() ? batch_->mean_weights
            : weighted_                 ? batch_->weights
                                        : none};
  }
  int64_t first_offset(size_t table_feature) const override { return batch_->feature_bags[table_feature].first_bag; }

 private:
  const CheckedBatch* batch_ = nullptr;
  bool weighted_ = false, pooled_ = true;
};

// Copies only the ids of data-parallel tables' features, one feature after the other.
class DeviceDataParallelInput final : public DataParallelInput {
 public:
  explicit DeviceDataParallelInput(const DeviceStreamPtr& stream) {
    for (Buffer* buffer : {&host_ids_, &host_offsets_, &host_weights_}) buffer->pinned(stream);
    for (Buffer* buffer : {&ids_, &offsets_, &weights_}) buffer->on_device(stream);
  }

  void take(const Wiring& wiring, const CheckedBatch& batch, bool weighted, RowExecutor& executor) override {
    const Tensor& from_weights = batch.clean() ? batch.weights : batch.mean_weights;
    weighted_ = weighted || !batch.clean();
    num_ids_ = num_bags_ = 0;
    first_offset_.assign(wiring.table_features().size(), 0);
    each_table_feature(wiring, [&](size_t s) {
      first_offset_[s] = num_bags_;
      num_ids_ += batch.feature_bags[s].ids;
      num_bags_ += batch.feature_bags[s].bags;
    });
    int64_t* ids = host_ids_.ensure(num_ids_).data<int64_t>();
    int64_t* offsets = host_offsets_.ensure(num_bags_ + 1).data<int64_t>();
    float* weights = weighted_ ? host_weights_.ensure(num_ids_).data<float>() : nullptr;
    int64_t begin = 0;
    each_table_feature(wiring, [&](size_t s) {
      const FeatureBags& bags = batch.feature_bags[s];
      for (int64_t b = 0; b < bags.bags; ++b)
        *offsets++ = begin + sparse::integer_at(batch.offsets, bags.first_bag + b) - bags.first_id;
      for (int64_t i = 0; i < bags.ids; ++i) *ids++ = sparse::integer_at(batch.values, bags.first_id + i);
      if (weights) weights = std::copy_n(from_weights.data<float>() + bags.first_id, bags.ids, weights);
      begin += bags.ids;
    });
    *offsets = begin;
    executor.upload(host_ids_, ids_, num_ids_);
    executor.upload(host_offsets_, offsets_, num_bags_ + 1);
    if (weighted_) executor.upload(host_weights_, weights_, num_ids_);
  }
  LookupView view() const override {
    const Tensor none;
    return {ids_.tensor().first({num_ids_}), offsets_.tensor().first({num_bags_ + 1}),
            weighted_ ? weights_.tensor().first({num_ids_}) : none};
  }
  int64_t first_offset(size_t table_feature) const override { return first_offset_[table_feature]; }

 private:
  template <class Body>
  static void each_table_feature(const Wiring& wiring, const Body& body) {
    for (size_t s = 0; s < wiring.table_features().size(); ++s) {
      if (wiring.table_features()[s].data_parallel) body(s);
    }
  }

  Buffer host_ids_{DType::kInt64}, host_offsets_{DType::kInt64}, host_weights_{DType::kFloat32};
  Buffer ids_{DType::kInt64}, offsets_{DType::kInt64}, weights_{DType::kFloat32};
  int64_t num_ids_ = 0, num_bags_ = 0;
  bool weighted_ = false;
  std::vector<int64_t> first_offset_;  // by table feature
};

}  // namespace

std::unique_ptr<DataParallelInput> data_parallel_input(const DeviceStreamPtr& stream) {
  if (stream) return std::make_unique<DeviceDataParallelInput>(stream);
  return std::make_unique<HostDataParallelInput>();
}

}  // namespace tessera
