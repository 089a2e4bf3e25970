// The keys of [[layer]] and [[head]].
#include "config/fields.h"

namespace tessera::config {

template <>
const std::vector<Field<LayerConfig>>& fields<LayerConfig>() {
  using S = LayerConfig;
  static const std::vector<Field<S>> table = {
      {"name", &S::name, "", "Required and unique. Other layers and heads refer to the layer by this name."},
      {"type", &S::type, "", "Kind of layer, which a module plugin provides: `mlp`, `cross`, ..."},
      {"inputs", &S::inputs, "",
       "Inputs of the model, and other layers. `experts:1` is the second output of `experts`."},
      {"options", &S::options, "",
       "Options of this kind of layer, as in `{ widths = [64, 1] }`. The widths of its inputs are known."},
      {"optimizer", &S::optimizer, "",
       "Differences from [dense_optimizer] for the layer's parameters, as in `{ learning_rate = 0.001 }`. See "
       "docs/training.md."},
      {"names", &S::names, "",
       "Names of its parameters in checkpoints, as in `{ \"*\" = \"over_arch.model.*\" }`. Unset: they begin with "
       "the layer's name. See docs/graphs.md."},
      {"trainable", &S::trainable, "", "`false` keeps its parameters at their start values."},
  };
  return table;
}

template <>
const std::vector<Field<HeadConfig>>& fields<HeadConfig>() {
  using S = HeadConfig;
  static const std::vector<Field<S>> table = {
      {"name", &S::name, "", "Required and unique."},
      {"input", &S::input, "", "Layer whose output is trained."},
      {"loss", &S::loss, "",
       "Loss that compares the output with the label: `binary_cross_entropy`, or a layer such as `mse`."},
      {"label", &S::label, "", "Name of the label column."},
      {"weight", &S::weight, "", "Factor of this loss in the sum of all losses.", {.least = 0}},
      {"groups", &S::groups, "",
       "Column with one id per sample, for losses of pairs: they compare only samples with the same id."},
      {"positive_weight",
       &S::positive_weight,
       "",
       "Further factor of the loss of samples whose label is 0.5 or more, for rare positives. Predictions are then "
       "larger than the share of positives.",
       {.least = 1e-6}},
      {"label_smoothing",
       &S::label_smoothing,
       "",
       "With s, `binary_cross_entropy` compares with (1 - s) label + s / 2 in training.",
       {.least = 0, .most = 0.9}},
      {"focal_gamma",
       &S::focal_gamma,
       "",
       "With g, `binary_cross_entropy` of a sample is multiplied by (1 - p)^g, p the probability that the model gives "
       "its label, so that samples that it knows count less.",
       {.least = 0, .most = 10}},
      {"where", &S::where, "",
       "Label column: only samples where it is 0.5 or more count in the head's loss and metrics, such as buyers among "
       "those who clicked. Empty: all do."},
      {"learn_weight", &S::learn_weight, "",
       "`true`: the model learns how certain this task is, and weighs its loss by that. See docs/graphs.md."},
      {"loss_options", &S::loss_options, "", "Options of a loss that is a layer, as in `{ class_weights = [1, 5] }`."},
  };
  return table;
}

}  // namespace tessera::config
