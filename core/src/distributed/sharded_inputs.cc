#include <array>

#include "distributed/sharded_collection.h"

namespace tessera {

struct ShardedInputs::Impl {
  struct Side {
    Side(std::shared_ptr<ShardedCollection> c, const std::shared_ptr<ProcessGroup>& group)
        : collection(std::move(c)), side(collection->input_side(group)) {}
    ShardedCollection::Taken taken(const StepHandle& place, const KeyedJaggedTensor& batch) const {
      TESSERA_CHECK(place && place->owner == collection, "the place is of this collection");
      return {collection.get(), &*place, &batch, side.get()};
    }
    std::shared_ptr<ShardedCollection> collection;
    std::unique_ptr<InputSide> side;
  };
  explicit Impl(Side s) : first(std::move(s)) {}
  Side first;
  std::optional<Side> second;  // of the sequences, if there are pooled tables too
};

ShardedInputs::ShardedInputs(ShardedEmbeddingBagCollection& collection)
    : impl_(std::make_unique<Impl>(Impl::Side(collection.impl_, collection.group().split(0)))) {}

ShardedInputs::ShardedInputs(ShardedEmbeddingCollection& collection)
    : impl_(std::make_unique<Impl>(Impl::Side(collection.impl_, collection.group().split(0)))) {}

ShardedInputs::ShardedInputs(ShardedEmbeddingBagCollection& pooled, ShardedEmbeddingCollection& sequences) {
  const std::shared_ptr<ProcessGroup> group = pooled.group().split(0);
  impl_ = std::make_unique<Impl>(Impl::Side(pooled.impl_, group));
  impl_->second.emplace(sequences.impl_, group);
}

ShardedInputs::~ShardedInputs() = default;

StepHandle ShardedInputs::reserve() { return impl_->first.collection->reserve(); }
TakenBatch ShardedInputs::reserve_all() {
  return {reserve(), impl_->second ? impl_->second->collection->reserve() : StepHandle()};
}

void ShardedInputs::take(const StepHandle& place, const KeyedJaggedTensor& batch, bool finished) {
  take(TakenBatch{place, {}}, batch, finished);
}

void ShardedInputs::take(const TakenBatch& places, const KeyedJaggedTensor& batch, bool finished) {
  std::array<ShardedCollection::Taken, 2> all{impl_->first.taken(places.pooled, batch)};
  if (impl_->second) all[1] = impl_->second->taken(places.sequences, batch);
  ShardedCollection::start(std::span(all).first(impl_->second ? 2 : 1), finished, true);
}

void ShardedInputs::abort(const std::string& reason) const { impl_->first.side->exchange.abort(reason); }
void ShardedInputs::set_trace(Trace* trace) { impl_->first.side->trace = trace; }

TakenBatch take_together(ShardedEmbeddingBagCollection& pooled, const KeyedJaggedTensor& of_pooled,
                         ShardedEmbeddingCollection& sequences, const KeyedJaggedTensor& of_sequences, bool finished,
                         bool keep_for_backward) {
  const ShardedCollection &a = *pooled.impl_, &b = *sequences.impl_;
  TakenBatch out{pooled.impl_->reserve(), sequences.impl_->reserve()};
  std::array<ShardedCollection::Taken, 2> all{
      {{&a, &*out.pooled, &of_pooled, &a.side_of_steps()}, {&b, &*out.sequences, &of_sequences, &b.side_of_steps()}}};
  ShardedCollection::start(all, finished, keep_for_backward);
  return out;
}

}  // namespace tessera
