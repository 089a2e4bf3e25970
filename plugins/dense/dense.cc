// The plugin with the dense layers.
#include "attention.h"
#include "bilinear.h"
#include "chain_layer.h"
#include "combine.h"
#include "cross.h"
#include "dot_interaction.h"
#include "experts.h"
#include "fields.h"
#include "int8_products.h"
#include "item_loss.h"
#include "item_ranks.h"
#include "label_losses.h"
#include "losses.h"
#include "mlp.h"
#include "piecewise.h"
#include "sequence_codes.h"
#include "sequence_moves.h"
#include "sequence_rows.h"
#include "sequences.h"
#include "tessera/sdk/isa.h"
#include "tessera/sdk/plugin.h"

namespace tessera_dense {

const Loops& choose_loops() {
  const tessera::sdk::IsaVariant variants[] = {
#if TESSERA_X86
    {"avx512",
     __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw"),
     &avx512::kLoops},
    {"avx2", __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"), &avx2::kLoops},
#endif
    {"portable", true, &portable::kLoops},
  };
  return *static_cast<const Loops*>(tessera::sdk::choose_isa(variants).table);
}

const Int8Kernels& choose_int8() {
  const tessera::sdk::IsaVariant variants[] = {
#if TESSERA_X86
    // A processor with AVX-512 but without VNNI runs the AVX2 variant, whose results are the same.
    {"avx512", &choose_loops() == &avx512::kLoops,
     __builtin_cpu_supports("avx512vnni") ? &avx512::kInt8Kernels : &avx2::kInt8Kernels},
    {"avx2", __builtin_cpu_supports("avx2") != 0, &avx2::kInt8Kernels},
#endif
    {"portable", true, &portable::kInt8Kernels},
  };
  return *static_cast<const Int8Kernels*>(tessera::sdk::choose_isa(variants).table);
}

}  // namespace tessera_dense

using tessera::sdk::component;

// docs/layers.md has their options and formulas.
TESSERA_PLUGIN(
    "dense", "1.2.0",
    component<tessera_dense::Mlp>(
        {.id = "mlp", .version = "1.1.0", .about = "linear layers with norm, activation and dropout (oneDNN)"}),
    component<tessera_dense::DotInteraction>(
        {.id = "dot_interaction", .version = "1.0.0", .about = "DLRM's pairwise dot products"}),
    component<tessera_dense::Cross>(
        {.id = "cross", .version = "1.1.0", .about = "cross networks: full, low rank, vector, mixture (oneDNN)"}),
    component<tessera_dense::BatchNormMlp>(
        {.id = "mlp_batch_norm", .version = "1.0.0", .about = "an mlp with batch norm over the ranks' samples"}),
    component<tessera_dense::Linear>({.id = "linear", .version = "1.0.0", .about = "one linear layer (oneDNN)"}),
    component<tessera_dense::Projection>(
        {.id = "projection", .version = "1.0.0", .about = "inputs of any widths to one width"}),
    component<tessera_dense::ActivationLayer>({.id = "activation", .version = "1.0.0", .about = "an activation"}),
    component<tessera_dense::AffineLayer>(
        {.id = "affine", .version = "1.0.0", .about = "values times a factor, plus an offset"}),
    component<tessera_dense::Piecewise>(
        {.id = "piecewise", .version = "1.0.0", .about = "a line through points, of each value"}),
    component<tessera_dense::Softmax>({.id = "softmax", .version = "1.0.0", .about = "softmax of a sample's values"}),
    component<tessera_dense::Dropout>({.id = "dropout", .version = "1.0.0", .about = "dropout while training"}),
    component<tessera_dense::LayerNorm>({.id = "layer_norm", .version = "1.0.0", .about = "layer norm"}),
    component<tessera_dense::BatchNorm>(
        {.id = "batch_norm", .version = "1.0.0", .about = "batch norm over the ranks' samples"}),
    component<tessera_dense::Dice>(
        {.id = "dice", .version = "1.0.0", .about = "DIN's activation, over the ranks' samples"}),
    component<tessera_dense::Concat>({.id = "concat", .version = "1.0.0", .about = "inputs side by side"}),
    component<tessera_dense::Sum>({.id = "sum", .version = "1.0.0", .about = "sum, element by element"}),
    component<tessera_dense::Hadamard>({.id = "product", .version = "1.0.0", .about = "product, element by element"}),
    component<tessera_dense::LogitProduct>(
        {.id = "logit_product", .version = "1.0.0", .about = "logit of the product of probabilities"}),
    component<tessera_dense::Matmul>(
        {.id = "matmul", .version = "1.0.0", .about = "product of two matrices for each sample"}),
    component<tessera_dense::Fm>({.id = "fm", .version = "1.0.0", .about = "factorization machine, second order"}),
    component<tessera_dense::Bilinear>(
        {.id = "bilinear", .version = "1.0.0", .about = "FinalMLP's fusion of two streams (oneDNN)"}),
    component<tessera_dense::FieldLinear>(
        {.id = "field_linear", .version = "1.0.0", .about = "weighted sums of fields (oneDNN)"}),
    component<tessera_dense::FieldProducts>(
        {.id = "field_products", .version = "1.0.0", .about = "products of pairs of fields, element by element"}),
    component<tessera_dense::FieldSum>({.id = "field_sum", .version = "1.0.0", .about = "sum of each field's values"}),
    component<tessera_dense::FieldScale>(
        {.id = "field_scale", .version = "1.0.0", .about = "each field times a number"}),
    component<tessera_dense::NumericEmbedding>(
        {.id = "numeric_embedding", .version = "1.0.0", .about = "AutoDis: rows of each number, weighed by its value"}),
    component<tessera_dense::SquaredError>(
        {.id = "mse", .version = "1.0.0", .about = "a loss: the squared error of each sample"}),
    component<tessera_dense::Gate>({.id = "gate", .version = "1.0.0", .about = "an input times a learnt gate"}),
    component<tessera_dense::Experts>({.id = "experts", .version = "1.0.0", .about = "several mlps side by side"}),
    component<tessera_dense::Mixture>({.id = "mixture", .version = "1.0.0", .about = "experts weighed by gates"}),
    component<tessera_dense::SumPooling>({.id = "sum_pooling", .version = "1.0.0", .about = "sum of a sequence"}),
    component<tessera_dense::MeanPooling>({.id = "mean_pooling", .version = "1.0.0", .about = "mean of a sequence"}),
    component<tessera_dense::MaxPooling>({.id = "max_pooling", .version = "1.0.0", .about = "maximum of a sequence"}),
    component<tessera_dense::PositionWeights>(
        {.id = "position_weights", .version = "1.0.0", .about = "sum of a sequence, weighed by position"}),
    component<tessera_dense::TargetAttention>(
        {.id = "target_attention", .version = "1.0.0", .about = "DIN's attention of a target over a sequence"}),
    component<tessera_dense::Attention>(
        {.id = "attention", .version = "1.0.0", .about = "rows of a sequence see others: softmax or SiLU (oneDNN)"}),
    component<tessera_dense::PositionEmbedding>(
        {.id = "position_embedding", .version = "1.0.0", .about = "adds a learnt row for each position"}),
    component<tessera_dense::TimeEncoding>(
        {.id = "time_encoding", .version = "1.0.0", .about = "adds a row for the time since, or hour and weekday"}),
    component<tessera_dense::ActionEmbedding>(
        {.id = "action_embedding", .version = "1.0.0", .about = "learnt rows of the bits of an action"}),
    component<tessera_dense::ConcatSequences>(
        {.id = "concat_sequences", .version = "1.0.0", .about = "one sequence after the other, in each sample"}),
    component<tessera_dense::SplitSequences>(
        {.id = "split_sequences", .version = "1.0.0", .about = "a sequence's first rows and the others"}),
    component<tessera_dense::LastRow>({.id = "last_row", .version = "1.0.0", .about = "the last row of a sequence"}),
    component<tessera_dense::RowsOf>({.id = "rows_of", .version = "1.0.0", .about = "the last rows of a sequence"}),
    component<tessera_dense::Add>(
        {.id = "add", .version = "1.0.0", .about = "sum of sequences, or with a row for each sample"}),
    component<tessera_dense::ReplaceLast>(
        {.id = "replace_last", .version = "1.0.0", .about = "a sequence whose last rows are others"}),
    component<tessera_dense::Interleave>(
        {.id = "interleave", .version = "1.0.0", .about = "a row of each sequence by turns"}),
    component<tessera_dense::PadRows>(
        {.id = "pad_rows", .version = "1.0.0", .about = "a sequence's first rows side by side"}),
    component<tessera_dense::UnpadRows>(
        {.id = "unpad_rows", .version = "1.0.0", .about = "rows side by side as a sequence"}),
    component<tessera_dense::MaskRows>(
        {.id = "mask_rows", .version = "1.0.0", .about = "hides rows of a sequence, which a model is to tell"}),
    component<tessera_dense::ScaleRows>(
        {.id = "scale_rows", .version = "1.0.0", .about = "each row times a number of its own, or of its sample"}),
    component<tessera_dense::SampleLinear>(
        {.id = "sample_linear", .version = "1.0.0", .about = "each row times its sample's matrix (oneDNN)"}),
    component<tessera_dense::Split>({.id = "split_columns", .version = "1.0.0", .about = "columns as several outputs"}),
    component<tessera_dense::L2Norm>({.id = "l2_norm", .version = "1.0.0", .about = "rows of length 1"}),
    component<tessera_dense::SwishLayerNorm>(
        {.id = "swish_layer_norm", .version = "1.0.0", .about = "x times the sigmoid of its layer norm"}),
    component<tessera_dense::SampledSoftmax>(
        {.id = "sampled_softmax", .version = "1.0.0", .about = "loss: in-batch softmax with log-Q correction"}),
    component<tessera_dense::ItemLoss>(
        {.id = "item_loss", .version = "1.0.0", .about = "loss of the next item: softmax, BCE or gBCE (oneDNN)"}),
    component<tessera_dense::ItemRanks>(
        {.id = "item_ranks", .version = "1.0.0", .about = "ranks of items among all candidates (oneDNN)"}),
    component<tessera_dense::PairwiseLoss>(
        {.id = "pairwise_loss", .version = "1.1.0", .about = "loss: larger labels above smaller ones"}),
    component<tessera_dense::Bpr>(
        {.id = "bpr", .version = "1.0.0", .about = "loss: a user's positives above the negatives"}),
    component<tessera_dense::Hinge>({.id = "hinge", .version = "1.0.0", .about = "loss: a margin between 0 and 1"}),
    component<tessera_dense::Contrastive>(
        {.id = "contrastive", .version = "1.0.0", .about = "loss: pairs together, others apart"}),
    component<tessera_dense::SoftmaxCrossEntropy>(
        {.id = "softmax_cross_entropy", .version = "1.0.0", .about = "loss: classes, a value for each"}),
    component<tessera_dense::Jrc>(
        {.id = "jrc", .version = "1.0.0", .about = "loss: probabilities and ranks within groups"}));
