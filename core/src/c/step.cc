// Steps of tessera.h: batches in, rows out, gradients back.
#include <cstring>

#include "c/call.h"
#include "c/handles.h"

using namespace tessera;
using namespace tessera::c;

namespace {

Tensor if_given(const DLTensor* tensor, const char* name) {
  return tensor == nullptr ? Tensor() : borrowed(tensor, name);
}

}  // namespace

KeyedJaggedTensor tessera::c::batch_of(const std::vector<std::string>& features, const tsr_batch& in) {
  KeyedJaggedTensor::Options out;
  if (in.keys == nullptr) {
    if (in.num_keys != features.size())
      fail(Code::kInvalidArgument, "the batch has ", in.num_keys, " keys, and the collection's features are ",
           features.size(), ": give keys where there are others");
    out.keys = features;
  } else {
    for (uint32_t k = 0; k < in.num_keys; ++k) {
      need(in.keys[k], "batch->keys[...]");
      out.keys.emplace_back(in.keys[k]);
    }
  }
  out.values = borrowed(in.values, "batch->values");
  out.lengths = if_given(in.lengths, "batch->lengths");
  out.offsets = if_given(in.offsets, "batch->offsets");
  if (in.weights != nullptr) out.weights = borrowed(in.weights, "batch->weights", DType::kFloat32);
  if (in.strides != nullptr) {
    for (uint32_t k = 0; k < in.num_keys; ++k) out.stride_per_key_per_rank.push_back({in.strides[k]});
  }
  if (in.inverse != nullptr) out.inverse_indices = {out.keys, borrowed(in.inverse, "batch->inverse", DType::kInt64)};
  return KeyedJaggedTensor(std::move(out));
}

struct tsr_step {
  using Bags = ShardedEmbeddingBagCollection::Output;
  using Sequences = ShardedEmbeddingCollection::Output;

  ~tsr_step() {
    auto* bags = std::get_if<Bags>(&output);
    StepHandle handle = std::move(bags ? bags->state : std::get_if<Sequences>(&output)->state);
    if (handle) collection->session().drop(std::move(handle));
  }
  const OpenRuntime& opened() const { return *collection->session().opened; }

  std::shared_ptr<const Collection> collection;
  std::variant<Bags, Sequences> output;
  bool done = false;  // backward was
};

namespace {

// What `make` makes; its error is told to the other ranks, who would wait for this one's batch.
template <class Make>
KeyedJaggedTensor offered(const Collection& c, const Make& make) {
  try {
    return make();
  } catch (const Error& e) {
    try {
      std::visit([&](auto* sharded) { sharded->refuse_batch(e.what()); }, c.sharded);
    } catch (const Error& told) {
      if (told.code() != Code::kInvalidArgument) throw;  // nobody could be told
    }
    throw;
  }
}

void copy_rows(const Tensor& rows, const DLTensor* output) {
  const Tensor to = borrowed(output, "output", DType::kFloat32);
  if (to.shape() != rows.shape())
    fail(Code::kInvalidArgument, "output has to be float32 [", rows.size(0), ", ", rows.size(1), "]");
  if (rows.bytes() > 0) std::memcpy(to.raw(), rows.raw(), rows.bytes());
}

void check_backward(const tsr_step& step) {
  if (const std::string& table = step.collection->without_optimizer; !table.empty())
    fail(Code::kFailedPrecondition, "table \"", table,
         "\" has no optimizer, so backward would lose its gradient: name one in the model's description");
  if (step.done)
    fail(Code::kFailedPrecondition,
         "backward goes once for each forward, and this step's was called: look the batch up again");
}

void backward(tsr_step& step, ShardedEmbeddingBagCollection& bags, std::span<const DLTensor* const> grads) {
  if (grads.size() != 1)
    fail(Code::kInvalidArgument, "there are ", grads.size(), " gradients, and the step has 1 output");
  const Tensor grad = borrowed(grads[0], "grads[0]");
  auto& output = std::get<tsr_step::Bags>(step.output);
  step.done = true;
  bags.backward(output, grad);
  output.state = {};  // its buffers serve the next step
}

void backward(tsr_step& step, ShardedEmbeddingCollection& sequences, std::span<const DLTensor* const> grads) {
  auto& output = std::get<tsr_step::Sequences>(step.output);
  if (grads.size() != output.values.size())
    fail(Code::kInvalidArgument, "there are ", grads.size(), " gradients, and the step has ", output.values.size(),
         " outputs");
  std::vector<std::pair<std::string, Tensor>> named;
  for (size_t i = 0; i < grads.size(); ++i) {
    if (grads[i] != nullptr)
      named.emplace_back(output.values[i].first, borrowed(grads[i], output.values[i].first.c_str()));
  }
  step.done = true;
  sequences.backward(output, named);
  output.state = {};
}

}  // namespace

tsr_code tsr_collection_forward(tsr_collection* collection, const tsr_batch* batch, const DLTensor* output,
                                tsr_step** step, tsr_error* err) {
  return guarded(err, [&] {
    if (step != nullptr) *step = nullptr;
    need(collection, "collection");
    const std::shared_ptr<const Collection>& c = collection->collection;
    const Use use(c->session());
    const tsr_batch in = copy_in(batch, "batch");
    if (output != nullptr && !c->bags())
      fail(Code::kUnimplemented, "sequences have an output for each feature: take them from the step");
    const KeyedJaggedTensor features = offered(*c, [&] {
      if (in.refused != nullptr) fail(Code::kInvalidArgument, in.refused);
      if (output != nullptr) (void)borrowed(output, "output", DType::kFloat32);
      return batch_of(c->features, in);
    });
    auto made = std::visit(
        [&](auto* sharded) {
          return std::unique_ptr<tsr_step>(
              new tsr_step{c, std::move(sharded->forward(features, in.finished != 0, step != nullptr).wait())});
        },
        c->sharded);
    if (output != nullptr) copy_rows(std::get<tsr_step::Bags>(made->output).values.values(), output);
    if (step != nullptr) *step = made.release();
  });
}

void tsr_step_close(tsr_step* step) { close(step); }

tsr_code tsr_step_describe(const tsr_step* step, tsr_step_info* info, tsr_error* err) {
  return guarded(err, [&] {
    need(step, "step");
    if (const auto* bags = std::get_if<tsr_step::Bags>(&step->output))
      return copy_out<tsr_step_info>({0, 1, bags->all_finished, bags->any_finished}, info, "info");
    const auto& sequences = std::get<tsr_step::Sequences>(step->output);
    copy_out<tsr_step_info>(
        {0, static_cast<uint32_t>(sequences.values.size()), sequences.all_finished, sequences.all_finished}, info,
        "info");
  });
}

tsr_code tsr_step_output(const tsr_step* step, uint32_t i, DLTensor* view, tsr_error* err) {
  return guarded(err, [&] {
    need(step, "step");
    need(view, "view");
    if (const auto* bags = std::get_if<tsr_step::Bags>(&step->output)) {
      if (i != 0) fail(Code::kOutOfRange, "there is no output ", i, ": the step has 1");
      *view = bags->values.values().dl();
    } else {
      *view = at(std::get<tsr_step::Sequences>(step->output).values, i, "output", "step").second.values().dl();
    }
  });
}

tsr_code tsr_step_backward(tsr_step* step, const DLTensor* const* grads, uint32_t num_grads, tsr_error* err) {
  return guarded(err, [&] {
    need(step, "step");
    if (num_grads > 0) need(grads, "grads");
    const Use use(step->collection->session());
    check_backward(*step);
    std::visit([&](auto* sharded) { backward(*step, *sharded, {grads, num_grads}); }, step->collection->sharded);
  });
}
