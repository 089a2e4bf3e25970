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
           features.size(), ": set keys if the batch has others");
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

  enum class Stage { kStarted, kWaited, kFailed, kCancelled, kDone };  // kDone: backward was called

  tsr_step(std::shared_ptr<const Collection> of, StartedStep output)
      : collection(std::move(of)), number(collection->session().next_step()), pending(std::move(output)) {}
  // A finalizer may run this while another thread is in the group, so it must neither communicate nor fail.
  ~tsr_step() {
    if (stage == Stage::kStarted) collection->session().defer(number, std::move(pending));
    if (stage == Stage::kWaited) drop();
  }
  tsr_step(const tsr_step&) = delete;
  tsr_step& operator=(const tsr_step&) = delete;
  const OpenRuntime& opened() const { return *collection->session().opened; }

  // The calling thread must be in the session.
  void wait() {
    stage = Stage::kFailed;
    std::visit([](auto& output) { output.wait(); }, pending);
    if (DeviceStream* const device = collection->device()) device->synchronize();
    stage = Stage::kWaited;
  }
  // Gives up what backward would need. The step must have been waited for.
  void drop() noexcept {
    StepHandle handle = std::visit([](auto& output) { return std::move(output.wait().state); }, pending);
    if (handle) collection->session().drop(std::move(handle));
  }
  void check_waited() const {
    if (stage == Stage::kStarted)
      fail(Code::kFailedPrecondition, "the step was only started: call tsr_step_wait() first");
    if (stage == Stage::kFailed) fail(Code::kFailedPrecondition, "the step has failed: it can only be closed");
    if (stage == Stage::kCancelled) fail(Code::kFailedPrecondition, "the step was cancelled: it can only be closed");
  }
  const Bags* bags() const { return pending.index() == 0 ? &std::get<0>(pending).wait() : nullptr; }
  const Sequences& sequences() const { return std::get<1>(pending).wait(); }

  const std::shared_ptr<const Collection> collection;
  const int64_t number;
  mutable StartedStep pending;
  Stage stage = Stage::kStarted;
};

namespace {

// Returns the result of `make`. Its error is sent to the other ranks, because they wait for this rank's batch.
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

// Checks the caller's memory for a batch's rows before the other ranks get involved.
void check_output(const Collection& c, const KeyedJaggedTensor& features, const DLTensor* output) {
  const auto* inverse = features.inverse_indices_or_null();
  const std::vector<int64_t> wanted{inverse == nullptr ? features.stride() : inverse->indices.size(1), c.width};
  if (borrowed(output, "output", DType::kFloat32, c.device()).shape() != wanted)
    fail(Code::kInvalidArgument, "output must be float32 [", wanted[0], ", ", wanted[1], "]");
}

void check_backward(const tsr_step& step) {
  if (const std::string& table = step.collection->without_optimizer; !table.empty())
    fail(Code::kFailedPrecondition, "table \"", table,
         "\" has no optimizer, so backward would lose its gradient: name one in the model's description");
  if (step.stage == tsr_step::Stage::kDone)
    fail(Code::kFailedPrecondition,
         "backward may be called once for each forward, and was called for this step: look the batch up again");
}

// Refuses a gradient before the other ranks are involved, so that the caller may call again with another one.
void check_gradient(const Tensor& grad, const Tensor& output, const std::string& name) {
  if (grad.shape() == output.shape() && grad.dtype() == DType::kFloat32) return;
  std::string shape;
  for (const int64_t n : output.shape()) shape += str_cat(shape.empty() ? "" : ", ", n);
  fail(Code::kInvalidArgument, "the gradient ", name, " must be float32 [", shape,
       "], like the output: the step still waits for its backward");
}

void backward(tsr_step& step, ShardedEmbeddingBagCollection& bags, std::span<const DLTensor* const> grads) {
  if (grads.size() != 1)
    fail(Code::kInvalidArgument, "there are ", grads.size(), " gradients, but the step has 1 output");
  const Tensor grad = borrowed(grads[0], "grads[0]", step.collection->device());
  auto& output = std::get<0>(step.pending).wait();
  check_gradient(grad, output.values.values(), "grads[0]");
  step.stage = tsr_step::Stage::kDone;
  bags.backward(output, grad);
  output.state = {};  // its buffers serve the next step
}

void backward(tsr_step& step, ShardedEmbeddingCollection& sequences, std::span<const DLTensor* const> grads) {
  auto& output = std::get<1>(step.pending).wait();
  if (grads.size() != output.values.size())
    fail(Code::kInvalidArgument, "there are ", grads.size(), " gradients, but the step has ", output.values.size(),
         " outputs");
  std::vector<std::pair<std::string, Tensor>> named;
  for (size_t i = 0; i < grads.size(); ++i) {
    if (grads[i] == nullptr) continue;
    const auto& [name, rows] = output.values[i];
    named.emplace_back(name, borrowed(grads[i], name.c_str(), step.collection->device()));
    check_gradient(named.back().second, rows.values(), name);
  }
  step.stage = tsr_step::Stage::kDone;
  sequences.backward(output, named);
  output.state = {};
}

// Starts a step on a caller's batch. The thread must be in the session.
std::unique_ptr<tsr_step> started(const std::shared_ptr<const Collection>& c, const tsr_batch* batch,
                                  const DLTensor* output, bool keep) {
  tsr_batch in{};
  const KeyedJaggedTensor features = offered(*c, [&] {
    in = copy_in(batch, "batch");
    if (in.refused != nullptr) fail(Code::kInvalidArgument, in.refused);
    KeyedJaggedTensor features = batch_of(c->features, in);
    if (!c->bags() && in.weights != nullptr)
      fail(Code::kInvalidArgument, "rows of sequences have no weights: leave batch->weights out");
    if (c->bags() && !c->weighted && in.weights != nullptr)
      fail(Code::kInvalidArgument,
           "this collection is not weighted: is_weighted in its description makes its sums take the weights; or leave "
           "batch->weights out");
    if (output != nullptr) check_output(*c, features, output);
    return features;
  });
  return std::visit(
      [&](auto* sharded) { return std::make_unique<tsr_step>(c, sharded->forward(features, in.finished != 0, keep)); },
      c->sharded);
}

// Returns output i of a step, after checking i.
const Tensor& output_of(const tsr_step& step, uint32_t i) {
  step.check_waited();
  if (const auto* bags = step.bags()) {
    if (i != 0) fail(Code::kOutOfRange, "there is no output ", i, ": the step has 1");
    return bags->values.values();
  }
  return at(step.sequences().values, i, "output", "step").second.values();
}

}  // namespace

tsr_code tsr_collection_start(tsr_collection* collection, const tsr_batch* batch, tsr_step** step, tsr_error* err) {
  return made(step, "step", err, [&] {
    need(collection, "collection");
    const Collective use(collection->collection->session());
    return started(collection->collection, batch, nullptr, true).release();
  });
}

tsr_code tsr_step_wait(tsr_step* step, tsr_error* err) {
  return guarded(err, [&] {
    need(step, "step");
    const Collective use(step->collection->session(), step->number);
    if (step->stage != tsr_step::Stage::kStarted)
      fail(Code::kFailedPrecondition, "tsr_step_wait() or tsr_step_cancel() was already called for this step");
    step->wait();
  });
}

tsr_code tsr_step_cancel(tsr_step* step, tsr_error* err) {
  return guarded(err, [&] {
    need(step, "step");
    const Collective use(step->collection->session(), step->number);
    if (step->stage == tsr_step::Stage::kStarted) step->wait();
    if (step->stage == tsr_step::Stage::kWaited) step->drop();
    step->stage = tsr_step::Stage::kCancelled;
  });
}

tsr_code tsr_collection_forward(tsr_collection* collection, const tsr_batch* batch, const DLTensor* output,
                                tsr_step** step, tsr_error* err) {
  return guarded(err, [&] {
    if (step != nullptr) *step = nullptr;
    need(collection, "collection");
    const std::shared_ptr<const Collection>& c = collection->collection;
    const Collective use(c->session());
    if (output != nullptr && !c->bags())
      fail(Code::kUnimplemented, "sequences have an output for each feature: take them from the step");
    auto made = started(c, batch, output, step != nullptr);
    made->wait();
    if (output != nullptr) {
      assign(borrowed(output, "output", c->device()), output_of(*made, 0));
    }
    if (step != nullptr) *step = made.release();
  });
}

void tsr_step_close(tsr_step* step) { close(step); }

tsr_code tsr_step_describe(const tsr_step* step, tsr_step_info* info, tsr_error* err) {
  return guarded(err, [&] {
    need(step, "step");
    step->check_waited();
    if (const auto* bags = step->bags())
      return copy_out<tsr_step_info>({0, 1, bags->all_finished, bags->any_finished}, info, "info");
    const auto& sequences = step->sequences();
    copy_out<tsr_step_info>(
        {0, static_cast<uint32_t>(sequences.values.size()), sequences.all_finished, sequences.all_finished}, info,
        "info");
  });
}

tsr_code tsr_step_output(const tsr_step* step, uint32_t i, DLTensor* view, tsr_error* err) {
  return guarded(err, [&] {
    need(step, "step");
    need(view, "view");
    *view = output_of(*step, i).dl();
  });
}

tsr_code tsr_step_export(const tsr_step* step, uint32_t i, DLManagedTensorVersioned** output, tsr_error* err) {
  struct Owned {
    Tensor rows;  // shares the step's memory
    DLManagedTensorVersioned raw{};
  };
  return made(output, "output", err, [&] {
    need(step, "step");
    auto owned = std::make_unique<Owned>(Owned{output_of(*step, i)});
    owned->raw.version = {1, 0};
    owned->raw.manager_ctx = owned.get();
    owned->raw.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<Owned*>(self->manager_ctx); };
    owned->raw.dl_tensor = owned->rows.dl();
    return &owned.release()->raw;
  });
}

tsr_code tsr_step_backward(tsr_step* step, const DLTensor* const* grads, uint32_t num_grads,
                           const tsr_backward_options* options, tsr_error* err) {
  return guarded(err, [&] {
    need(step, "step");
    if (num_grads > 0) need(grads, "grads");
    (void)copy_if_given(options, "options");  // it has nothing but flags
    const Collective use(step->collection->session(), step->number);
    step->check_waited();
    check_backward(*step);
    std::visit([&](auto* sharded) { backward(*step, *sharded, {grads, num_grads}); }, step->collection->sharded);
    if (DeviceStream* const device = step->collection->device()) device->synchronize();  // the gradients are borrowed
  });
}

tsr_code tsr_collection_weight_gradients(tsr_collection* collection, const tsr_batch* batch, const DLTensor* grad,
                                         const DLTensor* gradients, tsr_error* err) {
  return guarded(err, [&] {
    need(collection, "collection");
    const Collection& c = *collection->collection;
    const Collective use(c.session());
    if (!c.bags()) fail(Code::kUnimplemented, "gradients of weights are of pooled rows: sequences have no weights");
    Tensor given, out;
    const KeyedJaggedTensor features = offered(c, [&] {
      KeyedJaggedTensor features = batch_of(c.features, copy_in(batch, "batch"));
      given = borrowed(grad, "grad", DType::kFloat32, c.device());
      out = borrowed(gradients, "gradients", DType::kFloat32);
      if (out.numel() != features.values().numel())
        fail(Code::kInvalidArgument, "gradients has ", out.numel(), " elements for ", features.values().numel(),
             " ids");
      return features;
    });
    const Tensor made = std::get<0>(c.sharded)->weight_gradients(features, given);
    if (made.numel() > 0) std::memcpy(out.raw(), made.raw(), made.bytes());
  });
}
