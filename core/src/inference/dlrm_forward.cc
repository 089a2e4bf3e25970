#include "inference/dlrm_forward.h"

#include "modules/dlrm_layers.h"
#include "modules/layer_part.h"
#include "plugin/calls.h"

namespace tessera::inference {

DlrmForward::DlrmForward(const Runtime& runtime, const DlrmOptions& options,
                         const std::map<std::string, Tensor>& parameters)
    : options_(checked(options)) {
  const int64_t dim = options.embedding_dim;
  const int64_t dense[] = {options.dense_inputs}, both[] = {dim, options.num_embeddings * dim},
                top[] = {interaction_width(options)};
  layers_[0] = open(runtime, bottom_options(options), dense, parameters);
  layers_[1] = open(runtime, interaction_options(options), both, parameters);
  layers_[2] = open(runtime, top_options(options), top, parameters);
}

DlrmForward::Layer DlrmForward::open(const Runtime& runtime, const DenseLayerOptions& options,
                                     std::span<const int64_t> widths, const std::map<std::string, Tensor>& parameters) {
  Layer layer;
  layer.part = create_layer(runtime, options.module, options.options, nullptr);
  layer.name = options.name;
  const auto tensor_of = [&](const tsr_parameter& p) {
    const std::string name = torchrec_name(options.name + "." + p.name, options_.top_mlp.size());
    const auto found = parameters.find(name);
    const std::vector<int64_t> shape(p.shape, p.shape + p.ndim);
    if (found == parameters.end()) fail(Code::kInvalidArgument, "the model has no parameter \"", name, "\"");
    if (found->second.shape() != shape)
      fail(Code::kInvalidArgument, "parameter \"", name, "\" has another shape than its layer");
    if (found->second.dtype() != from_dl(p.dtype))
      fail(Code::kInvalidArgument, "\"", name, "\" has another type in the model than in its layer");
    return found->second.dl();
  };
  for (const tsr_parameter& p : layer_parameters(*layer.part, layer.name)) layer.parameters.push_back(tensor_of(p));
  for (const tsr_parameter& p : layer_buffers(*layer.part, layer.name)) layer.buffers.push_back(tensor_of(p));
  std::vector<tsr_value> inputs;
  for (const int64_t width : widths) inputs.push_back(dense_value(width));
  layer.width = layer_outputs(*layer.part, layer.name, inputs).front().width;
  return layer;
}

void DlrmForward::run(Layer& layer, int64_t batch, std::span<const Input> inputs) {
  constexpr size_t kMostInputs = 2;
  TESSERA_CHECK(inputs.size() <= kMostInputs);
  const auto size = static_cast<size_t>(batch * layer.width);
  if (layer.output.size() < size) layer.output.resize(size);
  int64_t shapes[kMostInputs + 1][2];
  DLTensor in[kMostInputs];
  const auto matrix = [&](const float* values, int64_t width, int64_t* shape) {
    shape[0] = batch;
    shape[1] = width;
    return DLTensor{const_cast<float*>(values), kCpu.dl(), 2, to_dl(DType::kFloat32), shape, nullptr, 0};
  };
  for (size_t i = 0; i < inputs.size(); ++i) in[i] = matrix(inputs[i].values, inputs[i].width, shapes[i]);
  const DLTensor out = matrix(layer.output.data(), layer.width, shapes[kMostInputs]);
  AbiError error;
  const plugin::CallScope call(*layer.part, "forward", layer.name);
  tsr_module_call how{};
  how.struct_size = sizeof(how);
  how.batch = batch;
  how.num_inputs = static_cast<uint32_t>(inputs.size());
  how.num_outputs = 1;
  how.inputs = in;
  how.parameters = layer.parameters.data();
  how.buffers = layer.buffers.data();
  how.outputs = &out;
  error.check(layer.part->api<tsr_module>().forward(layer.part->self(), &how, nullptr, error.out()), layer.name);
}

std::span<const float> DlrmForward::logits(int64_t batch, const float* dense, const float* pooled) {
  auto& [bottom, interaction, top] = layers_;
  const Input of_bottom[] = {{dense, options_.dense_inputs}};
  run(bottom, batch, of_bottom);
  const Input of_interaction[] = {{bottom.output.data(), bottom.width},
                                  {pooled, options_.num_embeddings * options_.embedding_dim}};
  run(interaction, batch, of_interaction);
  const Input of_top[] = {{interaction.output.data(), interaction.width}};
  run(top, batch, of_top);
  return {top.output.data(), static_cast<size_t>(batch)};
}

}  // namespace tessera::inference
